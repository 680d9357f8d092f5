package data

import (
	"context"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/layers"
)

// Map applies f to every element (tf.data: map). f must be a function of its
// argument: for augmentation use Random, or Augment with layers. f may keep
// its argument and may return it or a part of it, but must not change the
// memory of a result. An error contains the number of the element.
func Map[T, U any](d *Dataset[T], f func(context.Context, T) (U, error)) *Dataset[U] {
	out := from(d.n, pipeline.Map(d.open, f)).of(d.form)
	out.some = func(used func(int) bool) pipeline.Opener[U] { return pipeline.MapUsed(d.opens(used), used, f) }
	return out
}

// ParallelMap is Map in several goroutines (tf.data: map with
// num_parallel_calls): workers goroutines, or one for each processor if
// workers is 0. Results are in the order of d. Another goroutine reads d, at
// most about 32 elements for each worker in advance.
func ParallelMap[T, U any](d *Dataset[T], workers int, f func(context.Context, T) (U, error)) *Dataset[U] {
	out := from(d.n, mapped(d.open, workers, nil, f)).of(d.form)
	out.some = func(used func(int) bool) pipeline.Opener[U] { return mapped(d.opens(used), workers, used, f) }
	return out
}

// mapped is ParallelMap for a reader that uses those elements alone for which used is true,
// or all if it is nil. The others are zero values.
func mapped[T, U any](open pipeline.Opener[T], workers int, used func(i int) bool, f func(context.Context, T) (U, error)) pipeline.Opener[U] {
	return func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[U, error] {
		return func(yield func(U, error) bool) {
			n := workers
			if n < 1 {
				n = runtime.GOMAXPROCS(0)
			}
			p := &parallel[T, U]{f: f, used: used, at: at, order: make(chan *task[T, U], n), work: make(chan *task[T, U], n)}
			p.run(open, n, yield)
		}
	}
}

// Augment applies layers to the X of batches as in training, and to Y those
// that mix labels; see keras.Pipeline.Augment. Random numbers are functions of
// the layers' seeds, the epoch and the number of the batch.
func Augment(d *Dataset[keras.Batch], ls ...layers.Layer) *Dataset[keras.Batch] {
	return from(d.n, pipeline.MapAt("Augment", d.open, keras.NewAugmenter(d.n, ls...).Batch)).of(pipeline.Batches)
}

const (
	maxTask   = 16                     // elements that one worker takes at once
	shortTask = 100 * time.Microsecond // a task that takes less is made larger
)

// task is some elements in a row.
type task[T, U any] struct {
	first int // number of the first element
	in    []T
	out   []U
	err   error // of the element after those of out
	done  chan struct{}
}

// parallel is one reading of a ParallelMap.
type parallel[T, U any] struct {
	f       func(context.Context, T) (U, error)
	used    func(i int) bool // elements that f is called for; nil: all
	at      pipeline.Start
	ctx     context.Context
	order   chan *task[T, U] // as the reader wants them
	work    chan *task[T, U]
	size    atomic.Int32 // elements of the next task
	failure atomic.Value // a panic, passed on to the reader
	wait    sync.WaitGroup
}

// panicked is what a goroutine panicked with.
type panicked struct{ with any }

func (p *parallel[T, U]) run(open pipeline.Opener[T], workers int, yield func(U, error) bool) {
	ctx, cancel := context.WithCancel(p.at.Context)
	p.ctx = ctx
	p.size.Store(1)
	p.goes(func() { defer close(p.order); defer close(p.work); p.feed(open) }, cancel)
	for range workers {
		p.goes(p.serve, cancel)
	}
	defer func() {
		cancel()
		p.wait.Wait()
		if f := p.failure.Load(); f != nil {
			panic(f.(panicked).with)
		}
	}()
	var none U
	for t := range p.order {
		select {
		case <-t.done:
		case <-ctx.Done():
			if p.at.Context.Err() != nil {
				yield(none, pipeline.Ended(p.at.Context))
			}
			return
		}
		for _, y := range t.out {
			if !yield(y, nil) {
				return
			}
		}
		if t.err != nil {
			yield(none, t.err)
			return
		}
	}
	// The feeder leaves early only when there is a panic or the context ends.
	if p.at.Context.Err() != nil {
		yield(none, pipeline.Ended(p.at.Context))
	}
}

// goes runs a goroutine whose panic ends all of them.
func (p *parallel[T, U]) goes(f func(), cancel func()) {
	p.wait.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				p.failure.CompareAndSwap(nil, panicked{r})
				cancel()
			}
		}()
		f()
	})
}

// feed makes tasks of the elements.
func (p *parallel[T, U]) feed(open pipeline.Opener[T]) {
	next := p.at.Skip
	t := &task[T, U]{first: next, done: make(chan struct{})}
	var began time.Time
	send := func() bool {
		full := t
		next += len(full.in)
		t = &task[T, U]{first: next, done: make(chan struct{})}
		select {
		case p.order <- full:
		case <-p.ctx.Done():
			return false
		}
		select {
		case p.work <- full:
		case <-p.ctx.Done():
			return false
		}
		return true
	}
	at := p.at
	at.Context = p.ctx
	for x, err := range open(at, pipeline.Forever) {
		if err != nil {
			t.err = err
			send()
			return
		}
		if len(t.in) == 0 {
			began = time.Now()
		}
		// A slow source is not waited for.
		if t.in = append(t.in, x); len(t.in) < int(p.size.Load()) && time.Since(began) < shortTask {
			continue
		}
		if !send() {
			return
		}
	}
	if len(t.in) > 0 {
		send()
	}
}

// serve works on tasks until there are none.
func (p *parallel[T, U]) serve() {
	for t := range p.work {
		start := time.Now()
		t.out = make([]U, 0, len(t.in))
		for i, x := range t.in {
			if p.ctx.Err() != nil {
				return
			}
			var y U
			var err error
			if p.used == nil || p.used(t.first+i) {
				y, err = p.f(p.ctx, x)
			}
			if err != nil {
				t.err = pipeline.InMap(t.first+i, err)
				break
			}
			t.out = append(t.out, y)
		}
		close(t.done)
		if n := int32(len(t.in)); n < maxTask && time.Since(start) < shortTask {
			p.size.CompareAndSwap(n, 2*n)
		}
	}
}
