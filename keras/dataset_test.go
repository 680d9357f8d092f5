package keras

import (
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// counted is a dataset of n samples: 0, 1, 2 ….
func counted(n int) *Pipeline { return FromTensors(NewTensor(rising(n), n), nil, nil) }

// generator yields n elements of the given shape, each full of its number.
func generator(n int, batched bool, shape ...int) *Pipeline {
	return FromGenerator(func() iter.Seq2[Batch, error] {
		return func(yield func(Batch, error) bool) {
			for i := range n {
				data := make([]float32, Shape(shape).Size())
				for k := range data {
					data[k] = float32(i)
				}
				if !yield(Batch{X: NewTensor(data, shape...)}, nil) {
					return
				}
			}
		}
	}, batched)
}

func catch(f func()) (err error) {
	defer tensor.Catch(&err)
	f()
	return nil
}

func TestBatchSizes(t *testing.T) {
	for _, c := range []struct {
		d    *Pipeline
		want []int
	}{
		{counted(10).Batch(4), []int{4, 4, 2}},
		{counted(10).BatchDropRemainder(4), []int{4, 4}},
		{counted(8).Batch(4), []int{4, 4}},
		{counted(3).Batch(4), []int{3}},
		{counted(3).BatchDropRemainder(4), nil},
		{counted(0).Batch(4), nil},
		{counted(10).Shuffle(3).Batch(4).Prefetch(2), []int{4, 4, 2}},
		{counted(10).Map(func(b Batch) (Batch, error) { return b, nil }).Batch(4), []int{4, 4, 2}},
		{generator(10, false).Batch(4), []int{4, 4, 2}},
		{generator(10, false).BatchDropRemainder(4), []int{4, 4}},
		{generator(3, true, 5), []int{5, 5, 5}},
	} {
		for range 2 { // datasets open again
			if _, got := rows(t, c.d); !slices.Equal(got, c.want) {
				t.Errorf("got batches of %v, want %v", got, c.want)
			}
		}
		if n := c.d.Len(); n >= 0 && n != len(c.want) {
			t.Errorf("got Len %d, want %d", n, len(c.want))
		}
	}
	if n := generator(3, false).Len(); n != -1 {
		t.Errorf("got Len %d of a generator, want -1", n)
	}
	if n := counted(7).Shuffle(2).Prefetch(1).Len(); n != 7 {
		t.Errorf("got Len %d, want 7", n)
	}
}

// TestOwnRows: of batches of samples in memory a rank reads its rows alone.
func TestOwnRows(t *testing.T) {
	own := func(rows int) (first, end int) { return rows / 4, rows / 2 }
	for _, d := range []*Pipeline{counted(13), counted(13).Shuffle(13, 1)} {
		whole, _ := rows(t, d.Batch(8))
		got, _ := rows(t, d.batch(8, false, own))
		for i := range whole {
			at, n := i, 8
			if i >= 8 {
				at, n = i-8, 5
			}
			first, end := own(n)
			want := whole[i]
			if at < first || at >= end { // memory of the first batch, or of a new one
				want = 0
			}
			if got[i] != want {
				t.Errorf("row %d of a batch of %d is %v, want %v", at, n, got[i], want)
			}
		}
	}
}

func TestShuffle(t *testing.T) {
	plain := values(t, NewTensor(rising(100), 100))
	for _, buffer := range []int{0, 1, 7, 100, 1000} {
		d := counted(100).Shuffle(buffer, 5)
		first, _ := rows(t, d)
		second, _ := rows(t, d)
		again, _ := rows(t, counted(100).Shuffle(buffer, 5))
		other, _ := rows(t, counted(100).Shuffle(buffer, 6))
		batched, _ := rows(t, counted(100).Shuffle(buffer, 5).Batch(7))
		if !slices.Equal(first, again) || !slices.Equal(first, batched) {
			t.Errorf("buffer %d: the order is not that of the seed alone", buffer)
		}
		if mixes := buffer > 1; slices.Equal(first, plain) == mixes || slices.Equal(first, second) == mixes || slices.Equal(first, other) == mixes {
			t.Errorf("buffer %d: got %v, then %v, with another seed %v", buffer, first, second, other)
		}
		if sorted := slices.Sorted(slices.Values(first)); !slices.Equal(sorted, plain) {
			t.Errorf("buffer %d: got %v, want a permutation", buffer, first)
		}
		// An element cannot come before the window has reached it.
		for at, x := range first {
			if buffer > 0 && int(x) >= at+buffer {
				t.Errorf("buffer %d: element %v is at %d", buffer, x, at)
			}
		}
	}
}

// TestShuffleUniform counts where each of 4 samples comes in 2400 epochs: 600
// times in each place on average, with a standard deviation of 21.
func TestShuffleUniform(t *testing.T) {
	d := counted(4).Shuffle(4)
	var count [4][4]int
	for range 2400 {
		order, _ := rows(t, d)
		for at, x := range order {
			count[int(x)][at]++
		}
	}
	for x, places := range count {
		for at, n := range places {
			if n < 500 || n > 700 { // 4.7 standard deviations
				t.Errorf("sample %d was in place %d %d times, want about 600", x, at, n)
			}
		}
	}
}

// TestHeldBatches reads elements that the pipeline holds on the way: they must
// not be overwritten by those that follow.
func TestHeldBatches(t *testing.T) {
	plain := values(t, NewTensor(rising(60), 60))
	for name, d := range map[string]*Pipeline{
		"shuffled batches":           counted(60).Batch(4).Shuffle(3),
		"prefetched":                 counted(60).Batch(4).Prefetch(1),
		"prefetched far":             counted(60).Batch(4).Prefetch(4),
		"prefetched twice":           counted(60).Batch(4).Prefetch(2).Prefetch(3),
		"shuffled and prefetched":    counted(60).Batch(4).Shuffle(4).Prefetch(2),
		"prefetched and shuffled":    counted(60).Batch(4).Prefetch(2).Shuffle(4),
		"shuffled twice":             counted(60).Shuffle(60).Shuffle(9).Batch(4),
		"computed":                   counted(60).Batch(4).Map(func(b Batch) (Batch, error) { return Batch{X: b.X.MulScalar(1)}, nil }).Prefetch(3),
		"generated, shuffled":        generator(60, true, 1).Shuffle(5),
		"generated, batched, ragged": generator(60, false).Shuffle(5).Batch(7).Prefetch(2),
	} {
		for range 3 {
			var got []float64
			for b, err := range d.Batches() {
				check(t, err)
				runtime.Gosched() // let the goroutine run ahead
				got = append(got, values(t, b.X)...)
			}
			if slices.Sort(got); !slices.Equal(got, plain) {
				t.Errorf("%s: got %v, want each number once", name, got)
			}
		}
	}
}

func TestTuplesAndWeights(t *testing.T) {
	a, b := NewTensor(rising(12), 6, 2), NewTensor([]int32{10, 11, 12, 13, 14, 15}, 6)
	w := NewTensor([]float32{0, .5, 1, 1.5, 2, 2.5}, 6)
	for name, d := range map[string]*Pipeline{
		"in memory": FromTensors(Tuple(a, b), Tuple(b), w).Shuffle(6).Batch(4),
		"stream":    FromTensors(Tuple(a, b), Tuple(b), w).Map(func(b Batch) (Batch, error) { return b, nil }).Shuffle(6).Batch(4),
	} {
		n := 0
		for batch, err := range d.Batches() {
			check(t, err)
			if !batch.X.IsTuple() || batch.X.Len() != 2 || !batch.Y.IsTuple() || batch.Weight.IsTuple() {
				t.Fatalf("%s: got X %v, Y %v, Weight %v, want the tuples of the dataset", name, batch.X, batch.Y, batch.Weight)
			}
			xa, xb := values(t, batch.X.Unpack()[0]), values(t, batch.X.Unpack()[1])
			y, w := values(t, batch.Y.Unpack()[0]), values(t, batch.Weight)
			for i := range w {
				if row := 2 * w[i]; xa[2*i] != 2*row || xa[2*i+1] != 2*row+1 || xb[i] != row+10 || y[i] != row+10 {
					t.Errorf("%s: the parts of a sample are not of one row: %v %v %v %v", name, xa, xb, y, w)
				}
			}
			n += len(w)
			if batch.X.Unpack()[1].DType() != Int32 {
				t.Errorf("%s: got %v, want int32", name, batch.X.Unpack()[1].Type())
			}
		}
		if n != 6 {
			t.Errorf("%s: got %d rows, want 6", name, n)
		}
	}
}

func TestPrefetchEnds(t *testing.T) {
	before := runtime.NumGoroutine()
	ended := 0
	endless := FromGenerator(func() iter.Seq2[Batch, error] {
		return func(yield func(Batch, error) bool) {
			defer func() { ended++ }()
			for yield(Batch{X: NewTensor([]float32{1}, 1)}, nil) {
			}
		}
	}, true)
	for range 20 {
		for _, err := range endless.Prefetch(3).Prefetch(1).Batches() {
			check(t, err)
			break
		}
	}
	if ended != 20 {
		t.Errorf("%d of 20 generators ended when their reader did", ended)
	}
	// The goroutines have closed their channels, but may still be returning.
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestErrorsPassThrough(t *testing.T) {
	broken := errors.New("disk on fire")
	fails := func(after int) *Pipeline {
		return FromGenerator(func() iter.Seq2[Batch, error] {
			return func(yield func(Batch, error) bool) {
				for range after {
					if !yield(Batch{X: NewTensor([]float32{1}, 1)}, nil) {
						return
					}
				}
				yield(Batch{}, broken)
			}
		}, false)
	}
	for name, d := range map[string]*Pipeline{
		"batch":    fails(3).Batch(2),
		"prefetch": fails(3).Prefetch(2),
		"shuffle":  fails(3).Shuffle(2),
		"map": counted(3).Map(func(Batch) (Batch, error) {
			return Batch{}, broken
		}).Batch(2).Prefetch(1),
	} {
		var got error
		n := 0
		for _, err := range d.Batches() {
			if got = err; err == nil {
				n++
			}
		}
		if !errors.Is(got, broken) {
			t.Errorf("%s: got %v after %d elements, want the error of the source", name, got, n)
		}
	}
	defer func() {
		if r := recover(); r != "out of cheese" {
			t.Errorf("got panic %v, want that of the source", r)
		}
	}()
	for range counted(3).Map(func(Batch) (Batch, error) { panic("out of cheese") }).Prefetch(2).Batches() {
	}
	t.Error("the panic of the source got lost")
}

func TestDatasetErrors(t *testing.T) {
	x := NewTensor(rising(6), 3, 2)
	wantError(t, catch(func() { FromTensors(x, NewTensor(rising(4), 4), nil) }), "FromTensors: Y has 4 samples, X has 3")
	wantError(t, catch(func() { FromTensors(x, x, NewTensor(rising(2), 2)) }), "FromTensors: Weight has 2 samples, X has 3")
	wantError(t, catch(func() { FromTensors(Tuple(x, NewTensor(rising(4), 4)), nil, nil) }), "FromTensors: X has 4 samples, X has 3")
	wantError(t, catch(func() { FromTensors(nil, nil, nil) }), "FromTensors: no X given")
	wantError(t, catch(func() { FromTensors(tensor.Scalar(Float32, 1), nil, nil) }), "FromTensors: X is a scalar; axis 0 counts samples")
	wantError(t, catch(func() { FromImages(make([]byte, 10), make([]byte, 3), 4) }), "FromImages: 10 bytes of images for 3 labels, want 4 each")
	first := func(d Dataset) error {
		for _, err := range d.Batches() {
			return err
		}
		return nil
	}
	wantError(t, first(counted(4).Batch(0)), "Batch: size is 0, want a positive number")
	wantError(t, first(counted(4).Batch(-2).Prefetch(1)), "Batch: size is -2, want a positive number")
	wantError(t, first(counted(4).Batch(2).Batch(2)), "Batch: the dataset is batched already")
	i := 0
	ragged := counted(4).Map(func(b Batch) (Batch, error) {
		i++
		return Batch{X: NewTensor(make([]float32, i), i)}, nil
	})
	wantError(t, first(ragged.Batch(2)), "Batch: sample 1 of the batch is float32[2], the first is float32[1]")
	for s, want := range map[float64]string{0.99: "ValidationSplit 0.99 of 4 samples leaves one side empty", 0.1: ""} {
		_, _, err := counted(4).split(s)
		if want == "" {
			check(t, err)
			continue
		}
		wantError(t, err, want)
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		n, train int
		share    float64
	}{{10, 8, 0.2}, {10, 7, 0.25}, {3, 1, 0.5}, {4, 3, 0.1}} {
		d := counted(c.n).Shuffle(100)
		train, held, err := d.split(c.share)
		check(t, err)
		a, _ := rows(t, train.Batch(3))
		b, _ := rows(t, held)
		if len(a) != c.train || train.Len() != c.train || held.Len() != c.n-c.train {
			t.Errorf("%v of %d: got %d to train on, want %d", c.share, c.n, len(a), c.train)
		}
		for i, x := range b { // the end, in order
			if int(x) != c.train+i {
				t.Errorf("%v of %d: got %v to validate on, want the last samples as they lie", c.share, c.n, b)
			}
		}
		if slices.Max(a) != float64(c.train-1) {
			t.Errorf("%v of %d: got %v to train on, want the first samples", c.share, c.n, a)
		}
	}
}

func TestFromImages(t *testing.T) {
	for b, err := range FromImages([]byte{0, 51, 255, 102}, []byte{3, 9}, 2).Batch(2).Batches() {
		check(t, err)
		if got := fmt.Sprint(b.X, b.Y); got != "float32[2 2]\n[[  0 0.2]\n [  1 0.4]] int32[2] [3 9]" {
			t.Errorf("got %s", got)
		}
	}
}

// TestTakeSkip: parts of samples in memory and of batches, an error of the
// source among them.
func TestTakeSkip(t *testing.T) {
	values := func(p *Pipeline) (got []float64) {
		for b, err := range p.Batches() {
			check(t, err)
			v, err := b.X.Float64s()
			check(t, err)
			got = append(got, v...)
		}
		return got
	}
	rows := FromTensors(NewTensor(rising(7), 7, 1), nil, nil)
	for _, c := range []struct {
		name string
		p    *Pipeline
		n    int
		want []float64
	}{
		{"take", rows.Take(3).Batch(2), 2, []float64{0, 1, 2}},
		{"skip", rows.Skip(5).Batch(2), 1, []float64{5, 6}},
		{"take more than there is", rows.Take(70).Batch(7), 1, []float64{0, 1, 2, 3, 4, 5, 6}},
		{"skip all", rows.Skip(70).Batch(7), 0, nil},
		{"batches", rows.Batch(2).Skip(1).Take(2), 2, []float64{2, 3, 4, 5}},
		{"take none", rows.Batch(2).Take(0), 0, nil},
	} {
		if got := values(c.p); !slices.Equal(got, c.want) || c.p.Len() != c.n {
			t.Errorf("%s: got %v and Len %d, want %v and %d", c.name, got, c.p.Len(), c.want, c.n)
		}
	}
}
