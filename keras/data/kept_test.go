package data_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/layers"
)

// numbers is what a batch holds, in memory that nothing else has: the elements
// of the tensors of X, then those of Y.
type numbers [][]float64

// numbersOf copies the elements of a batch.
func numbersOf(b keras.Batch) (n numbers, err error) {
	for _, t := range slices.Concat(b.X.Unpack(), b.Y.Unpack()) {
		v, err := t.Float64s()
		if err != nil {
			return nil, err
		}
		n = append(n, v)
	}
	return n, nil
}

func (n numbers) equal(m numbers) bool { return slices.EqualFunc(n, m, slices.Equal[[]float64]) }

// program is a random pipeline, and what it yields in an epoch by slices alone.
type program struct {
	text    string
	d       keras.SeekableDataset
	truth   func(epoch int) []numbers
	batched bool
	memory  bool // a Pipeline of samples in memory …
	shuffle bool // … whose Shuffle is pending
	tuple   bool

	mu   sync.Mutex
	seen []keras.Batch // what functions of the user kept
	want []numbers
}

// keep is what a careless function given to Map does.
func (p *program) keep(b keras.Batch) error {
	n, err := numbersOf(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.want = append(p.seen, b), append(p.want, n)
	return err
}

func newProgram(rng *rand.Rand) *program {
	n := 1 + rng.IntN(14)
	x, z, y := make([]float32, 2*n), make([]int32, n), make([]float32, n)
	rows := make([]numbers, n)
	p := &program{tuple: rng.IntN(4) == 0, memory: true}
	for i := range n {
		x[2*i], x[2*i+1], z[i], y[i] = float32(i), float32(i)+0.5, int32(1000+i), float32(-i)
		rows[i] = numbers{{float64(x[2*i]), float64(x[2*i+1])}, {float64(y[i])}}
		if p.tuple {
			rows[i] = slices.Insert(rows[i], 1, []float64{float64(z[i])})
		}
	}
	in := keras.NewTensor(x, n, 2)
	if p.tuple {
		in = keras.Tuple(in, keras.NewTensor(z, n))
	}
	p.d = keras.FromTensors(in, keras.NewTensor(y, n), nil)
	p.truth = func(int) []numbers { return rows }
	p.text = fmt.Sprintf("FromTensors(%d)", n)
	for range 1 + rng.IntN(6) {
		p.step(rng)
	}
	if !p.batched {
		p.batch(rng)
		for range rng.IntN(5) {
			p.step(rng)
		}
	}
	return p
}

func (p *program) batch(rng *rand.Rand) {
	n, drop := 1+rng.IntN(5), rng.IntN(4) == 0
	before := p.truth
	p.truth = func(epoch int) (all []numbers) {
		for group := range slices.Chunk(before(epoch), n) {
			if len(group) < n && drop {
				break
			}
			joined := make(numbers, len(group[0]))
			for _, row := range group {
				for i, part := range row {
					joined[i] = append(joined[i], part...)
				}
			}
			all = append(all, joined)
		}
		return all
	}
	p.batched, p.memory, p.shuffle = true, false, false
	name := "Batch"
	switch d := p.d.(type) {
	case *keras.Pipeline:
		if p.d = d.Batch(n); drop {
			p.d = d.BatchDropRemainder(n)
		}
	case *data.Dataset[keras.Batch]:
		switch how := rng.IntN(3); {
		case drop:
			p.d = d.BatchDropRemainder(n)
		case how == 0:
			name = "PaddedBatch"
			p.d = d.PaddedBatch(n, data.Padding{})
		case how == 1:
			name = "Chunk"
			p.d = data.Map(data.Chunk(d, n, false), func(_ context.Context, rows []keras.Batch) (keras.Batch, error) {
				return keras.Stack(keras.Batch{}, rows)
			})
		default:
			p.d = d.Batch(n)
		}
	}
	p.text += fmt.Sprintf(".%s(%d, %v)", name, n, drop)
}

// each changes the truth element by element.
func (p *program) each(f func(numbers) numbers) {
	before := p.truth
	p.truth = func(epoch int) (all []numbers) {
		for _, n := range before(epoch) {
			all = append(all, f(n))
		}
		return all
	}
}

func (p *program) all(f func(epoch int, all []numbers) []numbers) {
	before := p.truth
	p.truth = func(epoch int) []numbers { return f(epoch, slices.Clone(before(epoch))) }
}

// step adds an operation.
func (p *program) step(rng *rand.Rand) {
	if !p.batched && rng.IntN(3) == 0 {
		p.batch(rng)
		return
	}
	n, seed := 1+rng.IntN(4), rng.Uint64N(3)
	shuffled := func(epoch int, all []numbers) []numbers {
		out := make([]numbers, len(all))
		for i, k := range pipeline.Order(len(all), n, seed, epoch) {
			out[i] = all[k]
		}
		return out
	}
	keep := func(b keras.Batch) (keras.Batch, error) { return b, p.keep(b) }
	lazy := func(b keras.Batch) (keras.Batch, error) {
		parts := b.X.Unpack()
		twice := make([]*keras.Tensor, len(parts))
		for i, t := range parts {
			twice[i] = t.Add(t)
		}
		if b.X.IsTuple() {
			return keras.Batch{X: keras.Tuple(twice...), Y: b.Y}, p.keep(b)
		}
		return keras.Batch{X: twice[0], Y: b.Y}, p.keep(b)
	}
	twice := func(n numbers) numbers {
		m := slices.Clone(n)
		for i := range m[:len(m)-1] {
			m[i] = slices.Clone(m[i])
			for k := range m[i] {
				m[i][k] *= 2
			}
		}
		return m
	}
	if d, ok := p.d.(*keras.Pipeline); ok {
		choice := rng.IntN(7)
		if p.shuffle && (choice == 1 || choice == 2) {
			choice = 5 // it would take samples before it shuffles them
		}
		inMemory := p.memory && !p.batched
		p.memory = inMemory && (choice == 0 && !p.shuffle || choice == 1 || choice == 2)
		p.shuffle = p.memory && (p.shuffle || choice == 0)
		switch choice {
		case 0:
			p.d, p.text = d.Shuffle(n, seed), p.text+fmt.Sprintf(".Shuffle(%d, %d)", n, seed)
			p.all(shuffled)
		case 1:
			p.d, p.text = d.Take(3*n), p.text+fmt.Sprintf(".Take(%d)", 3*n)
			p.all(func(_ int, all []numbers) []numbers { return all[:min(3*n, len(all))] })
		case 2:
			p.d, p.text = d.Skip(n-1), p.text+fmt.Sprintf(".Skip(%d)", n-1)
			p.all(func(_ int, all []numbers) []numbers { return all[min(n-1, len(all)):] })
		case 3:
			p.d, p.text = d.Map(keep), p.text+".Map(keep)"
		case 4:
			p.d, p.text = data.FromDataset(d), "FromDataset("+p.text+")"
		case 5:
			p.d, p.text = d.Prefetch(n), p.text+fmt.Sprintf(".Prefetch(%d)", n)
		case 6:
			p.d, p.text = d.Map(lazy), p.text+".Map(lazy)"
			p.each(twice)
		}
		return
	}
	d := p.d.(*data.Dataset[keras.Batch])
	ctxed := func(f func(keras.Batch) (keras.Batch, error)) func(context.Context, keras.Batch) (keras.Batch, error) {
		return func(_ context.Context, b keras.Batch) (keras.Batch, error) { return f(b) }
	}
	var text string
	switch rng.IntN(18) {
	case 0:
		d, text = d.Shuffle(n, seed), fmt.Sprintf(".Shuffle(%d, %d)", n, seed)
		p.all(shuffled)
	case 1:
		d, text = d.Take(3*n), fmt.Sprintf(".Take(%d)", 3*n)
		p.all(func(_ int, all []numbers) []numbers { return all[:min(3*n, len(all))] })
	case 2:
		d, text = d.Skip(n-1), fmt.Sprintf(".Skip(%d)", n-1)
		p.all(func(_ int, all []numbers) []numbers { return all[min(n-1, len(all)):] })
	case 3:
		d, text = data.Map(d, ctxed(keep)), ".Map(keep)"
	case 4:
		d, text = data.Map(d, ctxed(lazy)), ".Map(lazy)"
		p.each(twice)
	case 5:
		d, text = d.Prefetch(n), fmt.Sprintf(".Prefetch(%d)", n)
	case 6:
		d, text = data.ParallelMap(d, n, ctxed(keep)), ".ParallelMap(keep)"
	case 7:
		d, text = data.ParallelMap(d, n, ctxed(lazy)), ".ParallelMap(lazy)"
		p.each(twice)
	case 8:
		d, text = d.Cache(), ".Cache()"
		before := p.truth
		p.truth = func(int) []numbers { return before(0) }
	case 9:
		d, text = d.Repeat(2), ".Repeat(2)"
		before := p.truth
		p.truth = func(epoch int) []numbers { return slices.Concat(before(2*epoch), before(2*epoch+1)) }
	case 10:
		d, text = d.Shard(2, n%2), fmt.Sprintf(".Shard(2, %d)", n%2)
		p.all(func(_ int, all []numbers) (some []numbers) {
			for i, x := range all {
				if i%2 == n%2 {
					some = append(some, x)
				}
			}
			return some
		})
	case 11:
		d, text = d.Filter(func(b keras.Batch) bool {
			if err := p.keep(b); err != nil {
				panic(err)
			}
			v, err := b.Y.Float64s()
			return err == nil && int(v[0])%3 != 0
		}), ".Filter(keep)"
		p.all(func(_ int, all []numbers) []numbers {
			return slices.DeleteFunc(all, func(n numbers) bool { return int(n[len(n)-1][0])%3 == 0 })
		})
	case 12:
		d, text = d.Concatenate(d), ".Concatenate(itself)"
		p.all(func(_ int, all []numbers) []numbers { return slices.Concat(all, all) })
	case 13:
		d, text = data.Map(data.Zip(d, d.Shuffle(n, seed)), func(_ context.Context, pair data.Pair[keras.Batch, keras.Batch]) (keras.Batch, error) {
			return keras.Batch{X: pair.Second.X, Y: pair.Second.Y}, p.keep(pair.First)
		}), fmt.Sprintf(".Zip(itself.Shuffle(%d, %d))", n, seed)
		p.all(shuffled)
	case 14:
		d, text = data.FlatMap(d, func(_ context.Context, b keras.Batch) (*data.Dataset[keras.Batch], error) {
			return data.FromSlice([]keras.Batch{b, b}), p.keep(b)
		}), ".FlatMap(twice)"
		p.all(func(_ int, all []numbers) (out []numbers) {
			for _, x := range all {
				out = append(out, x, x)
			}
			return out
		})
	case 15:
		d, text = data.Interleave(d, 2, 1, func(_ context.Context, b keras.Batch) (*data.Dataset[keras.Batch], error) {
			return data.FromSlice([]keras.Batch{b}), nil
		}), ".Interleave(2, 1)"
	case 16:
		if !p.batched {
			return
		}
		d, text = d.Unbatch(), ".Unbatch()"
		p.batched = false
		p.all(func(_ int, all []numbers) (out []numbers) {
			for _, b := range all {
				rows := len(b[len(b)-1])
				for i := range rows {
					row := make(numbers, len(b))
					for k, part := range b {
						width := len(part) / rows
						row[k] = part[i*width : (i+1)*width]
					}
					out = append(out, row)
				}
			}
			return out
		})
	case 17:
		d, text = d.Progress(func(int, int) {}), ".Progress()"
	}
	p.d, p.text = d, p.text+text
}

// wantNumbers compares batches with what they should hold.
func (p *program) wantNumbers(t *testing.T, what string, got []keras.Batch, want []numbers) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %s: got %d batches, want %d", p.text, what, len(got), len(want))
		return
	}
	for i, b := range got {
		n, err := numbersOf(b)
		if err != nil || !n.equal(want[i]) {
			t.Errorf("%s: %s: batch %d: got %v, %v, want %v", p.text, what, i, n, err, want[i])
			return
		}
	}
}

// handedBack is the beginning of the error of reading what was handed back.
const handedBack = "the memory of this batch was handed back to its dataset"

// TestKeptBatches: in random pipelines what keeps a batch, or records something
// of it and computes it at the end, has its numbers, whatever came after it and
// wherever it was kept: by a loop, by functions given to Map and others, by two
// loops at a time, by one that is left early, by one that hands others back. What Each and Release did hand back is an error to read, never
// other numbers.
func TestKeptBatches(t *testing.T) {
	t.Parallel()
	identity := keras.Sequential(&layers.Activation{Activation: "linear"})
	total := tensor.NewVariable("total", keras.Float64, nil, nil)
	add := tensor.Function(func(b keras.Batch) struct{} {
		sum := b.Y.Cast(keras.Float64).Sum()
		for _, x := range b.X.Unpack() {
			sum = sum.Add(x.Cast(keras.Float64).Sum())
		}
		total.Assign(total.Value().MulScalar(0.5).Add(sum))
		return struct{}{}
	}, owner{total})
	left := 0 // how many reads found memory that was handed back
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		p := newProgram(rng)
		number := rng.IntN(3)
		truth := p.truth(number)
		if len(truth) > 300 {
			continue
		}
		skip := rng.IntN(len(truth) + 1)
		open := func() iter.Seq2[keras.Batch, error] { return p.d.Epoch(background, number, skip) }
		truth = truth[skip:]
		p.text = fmt.Sprintf("seed %d: %s, epoch %d from %d on", seed, p.text, number, skip)

		var held []keras.Batch // by any of the readers below, which come in any order
		var want []numbers
		keep := func(b keras.Batch, n numbers) { held, want = append(held, b), append(want, n) }
		readers := []func(){
			func() { // keeps all, computes at the end, may leave early
				var kept, later []keras.Batch
				leave := -1
				if rng.IntN(3) == 0 {
					leave = 1 + rng.IntN(len(truth)+1)
				}
				for b, err := range open() {
					check(t, err)
					keep(b, truth[len(kept)])
					kept = append(kept, b)
					later = append(later, keras.Batch{X: b.X.Unpack()[0].MulScalar(3), Y: b.Y.Neg()})
					if len(kept) == leave {
						break
					}
					if rng.IntN(50) == 0 {
						runtime.GC()
					}
				}
				computed := make([]numbers, len(kept))
				for i, w := range truth[:len(kept)] {
					computed[i] = numbers{slices.Clone(w[0]), slices.Clone(w[len(w)-1])}
					for k := range computed[i][0] {
						computed[i][0][k] *= 3
					}
					for k := range computed[i][1] {
						computed[i][1][k] *= -1
					}
				}
				p.wantNumbers(t, "computed later", later, computed)
			},
			func() { // hands some back, beside another reader
				next, stop := iter.Pull2(open())
				defer stop()
				var given []keras.Batch
				i := 0
				for b, err := range open() {
					check(t, err)
					if other, err, ok := next(); ok {
						check(t, err)
						keep(other, truth[i])
					}
					if n, err := numbersOf(b); err != nil || !n.equal(truth[i]) {
						t.Errorf("%s: handing back: batch %d: got %v, %v, want %v", p.text, i, n, err, truth[i])
					}
					if rng.IntN(2) == 0 {
						b.Release()
						given = append(given, b)
					} else {
						keep(b, truth[i])
					}
					i++
				}
				for i, b := range given {
					if n, err := numbersOf(b); err != nil {
						if left++; !strings.Contains(err.Error(), handedBack) {
							t.Errorf("%s: handed back: batch %d: %v", p.text, i, err)
						}
					} else if !slices.ContainsFunc(truth, n.equal) {
						t.Errorf("%s: handed back: batch %d has other numbers: %v", p.text, i, n)
					}
				}
			},
			func() { // Each, with a sequence that keeps what passes
				check(t, total.Set([]float64{0}))
				var passed []keras.Batch
				check(t, add.Each(background, func(yield func(keras.Batch, error) bool) {
					for b, err := range open() {
						passed = append(passed, b)
						if !yield(b, err) {
							return
						}
					}
				}))
				sum := 0.0
				for i, w := range truth {
					sum *= 0.5
					for _, part := range w {
						for _, x := range part {
							sum += x
						}
					}
					if n, err := numbersOf(passed[i]); err != nil {
						if left++; !strings.Contains(err.Error(), handedBack) {
							t.Errorf("%s: through Each: batch %d: %v", p.text, i, err)
						}
					} else if !n.equal(w) {
						t.Errorf("%s: through Each: batch %d: got %v, want %v", p.text, i, n, w)
					}
				}
				if got, err := total.Item(); err != nil || got != sum { // all terms are multiples of 1/2
					t.Errorf("%s: Each: got %v, %v, want %v", p.text, got, err, sum)
				}
			},
			func() { // one of this module, for which the same tensors come again
				if !p.batched || p.tuple || len(p.truth(0)) == 0 {
					return
				}
				d := p.d
				if own, ok := d.(*data.Dataset[keras.Batch]); ok && rng.IntN(2) == 0 {
					d = own.Prefetch(2)
				}
				y, err := identity.PredictDataset(background, d)
				check(t, err)
				got, err := y.Float64s()
				check(t, err)
				var want []float64
				for _, n := range p.truth(0) {
					want = append(want, n[0]...)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: PredictDataset: got %v, want %v", p.text, got, want)
				}
			},
			func() { // of elements that are no batches
				d, ok := p.d.(*data.Dataset[keras.Batch])
				if !ok {
					return
				}
				i := 0
				for pair, err := range data.Zip(d, d).Epoch(background, number, skip) {
					check(t, err)
					pair.First.Release()
					keep(pair.First, truth[i])
					keep(pair.Second, truth[i])
					i++
				}
			},
		}
		for _, i := range rng.Perm(len(readers)) {
			readers[i]()
		}
		p.wantNumbers(t, "kept by functions", p.seen, p.want)
		p.wantNumbers(t, "kept", held, want)
		if t.Failed() {
			return
		}
	}
	if left < 100 {
		t.Errorf("%d reads found memory that was handed back: nothing was used again", left)
	}
}

type owner struct{ v *keras.Variable }

func (o owner) Variables() []*keras.Variable { return []*keras.Variable{o.v} }
