package cpu

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// residual is a prediction of images: a convolution, a block with a residual sum, a separable
// convolution with a stride, pooling, and the mean over the pixels. x is multiplied by itself
// first, so that the convolutions' input lies in the arena. With int8 they are convolutions of
// integers, of an input in float32.
func residual(t *testing.T, d dtype.DType, batch int) (*Program, []driver.Buffer) {
	kernels := d
	if d == dtype.Int8 {
		d = dtype.Float32
	}
	rng := rand.New(rand.NewPCG(3, 4))
	one, zero, two := []int{1, 1}, []int{0, 0}, []int{2, 2}
	same := op.Attr{Stride: one, Dilation: one, Low: one, High: one}
	g := ir.New(0)
	var in []driver.Buffer
	add := func(x array) *ir.Value {
		in, g.Params = append(in, &Buffer{storage: x.data}), append(g.Params, nil)
		return param(t, g, len(in)-1, x.Type)
	}
	input := func(s ...int) *ir.Value { return add(randomArray(rng, d, s...)) }
	quantization := map[*ir.Value][]*ir.Value{}
	kernel := func(s ...int) *ir.Value {
		w := add(randomArray(rng, kernels, s...))
		if kernels == dtype.Int8 {
			scales := arrayOf(dtype.Float32, op.Shape{s[3]}, func(i int) float64 { return 500 + float64(i) })
			zero := arrayOf(dtype.Int8, op.Shape{}, func(int) float64 { return float64(len(in) - 9) })
			quantization[w] = []*ir.Value{add(scales), add(arrayOf(dtype.Float32, op.Shape{}, func(int) float64 { return 20 })), add(zero)}
		}
		return w
	}
	conv := func(a op.Attr, x, w *ir.Value) *ir.Value {
		if q := quantization[w]; q != nil {
			return record(t, g, op.QuantizedConv, a, append([]*ir.Value{x, w}, q...)...)
		}
		return record(t, g, op.Conv, a, x, w)
	}
	bias := func(x, b *ir.Value) *ir.Value {
		return record(t, g, op.Relu, op.Attr{}, record(t, g, op.Add, op.Attr{}, x, b))
	}
	// Weights first: the images of a batch are the first ones of a larger batch.
	w1, b1, w2, w3, w4, w5 := kernel(3, 3, 16, 32), input(32), kernel(3, 3, 32, 32), kernel(3, 3, 32, 32), kernel(3, 3, 1, 32), kernel(1, 1, 32, 64)
	x := input(batch, 12, 12, 16)
	y := bias(conv(same, record(t, g, op.Square, op.Attr{}, x), w1), b1)
	z := conv(same, record(t, g, op.Relu, op.Attr{}, conv(same, y, w2)), w3)
	y = record(t, g, op.Relu, op.Attr{}, record(t, g, op.Add, op.Attr{}, z, y))
	separable := op.Attr{Stride: two, Dilation: one, Low: zero, High: one, Groups: 32}
	y = conv(op.Attr{Stride: one, Dilation: one, Low: zero, High: zero}, bias(conv(separable, y, w4), b1), w5)
	y = record(t, g, op.MaxPool, op.Attr{Window: two, Stride: two, Dilation: one, Low: zero, High: zero}, y)
	g.Output(record(t, g, op.Mean, op.Attr{Axes: []int{1, 2}}, y), -1)
	return plan(t, g), in
}

func output(t *testing.T, p *Program, in []driver.Buffer, procs int, see func(*ir.Value, []byte) error) []byte {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	out := &Buffer{storage: exec.Aligned(p.graph.Outputs[0].Type.Bytes())}
	if err := p.RunWatched(context.Background(), in, []driver.Buffer{out}, see); err != nil {
		t.Fatal(err)
	}
	return out.storage
}

// TestDepthFirst: the bits of an image's result depend neither on the batch nor on the number
// of workers, and are those of layer by layer. 16-bit types on AMX are close to them: tiles
// compute few rows in other ways.
func TestDepthFirst(t *testing.T) {
	isatest.SkipEmulated(t, "how kernels are joined does not depend on the processor")
	isatest.ForEach(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16, dtype.Int8} {
			p, in := residual(t, d, 1)
			want := output(t, p, in, 1, nil)
			for _, batch := range []int{2, 3, 5} {
				p, in := residual(t, d, batch)
				if !slices.ContainsFunc(p.steps, func(s step) bool { _, ok := s.kernel.(*depthFirst); return ok }) {
					t.Errorf("%d images of %v are computed layer by layer:\n%v", batch, d, p.graph)
				}
				for _, procs := range []int{1, 2, 4, 7} {
					for range 3 { // the second run packs kernels, and the third uses them
						got := output(t, p, in, procs, nil)
						if !bytes.Equal(got[:len(want)], want) {
							t.Fatalf("%d images of %v, %d workers: the first one has other bits than alone", batch, d, procs)
						}
					}
				}
				whole, layers := output(t, p, in, 2, nil), output(t, p, in, 2, func(*ir.Value, []byte) error { return nil })
				if bytes.Equal(layers, whole) {
					continue
				}
				if !d.Is16() || isa.Current() != isa.AMX {
					t.Fatalf("%d images of %v: other bits than layer by layer", batch, d)
				}
				typ := p.graph.Outputs[0].Type
				a, b := array{typ, whole}.values(), array{typ, layers}.values()
				for i := range a {
					// Sums of 144 to 288 products, rounded after each layer.
					if diff, most := a[i]-b[i], 64*d.Epsilon()*(1+max(a[i], -a[i])); diff > most || -diff > most {
						t.Fatalf("%d images of %v: element %d is %v, layer by layer %v", batch, d, i, a[i], b[i])
					}
				}
			}
		}
	})
}

// endsBefore is a context that ends right after it was asked, before a step, whether it has.
type endsBefore struct {
	context.Context
	step int
	done chan struct{}
}

func (c *endsBefore) Done() <-chan struct{} { return c.done }

func (c *endsBefore) Err() error {
	c.step--
	switch {
	case c.step > 0:
		return nil
	case c.step == 0:
		close(c.done)
		return nil
	}
	return context.Canceled
}

// TestDepthFirstCanceled: a context that ends before or among the samples ends the run, and
// the next runs have the same bits, whatever of the kernels had been packed.
func TestDepthFirstCanceled(t *testing.T) {
	isatest.SkipEmulated(t, "how kernels are joined does not depend on the processor")
	p, in := residual(t, dtype.Float32, 1)
	want := output(t, p, in, 1, nil)
	p, in = residual(t, dtype.Float32, 5)
	step := 1 + slices.IndexFunc(p.steps, func(s step) bool { _, ok := s.kernel.(*depthFirst); return ok })
	if step == 0 {
		t.Fatal("computed layer by layer")
	}
	run := func(ctx context.Context) error {
		return p.Run(ctx, in, []driver.Buffer{&Buffer{storage: exec.Aligned(p.graph.Outputs[0].Type.Bytes())}})
	}
	for i := range 4 { // the second run packs kernels, and the third uses them
		if err := run(&endsBefore{context.Background(), step, make(chan struct{})}); err != context.Canceled {
			t.Fatalf("got %v, want %v", err, context.Canceled)
		}
		if got := output(t, p, in, 2, nil); !bytes.Equal(got[:len(want)], want) {
			t.Fatalf("other bits after run %d was canceled", i)
		}
	}
	for i := range 40 {
		p, in = residual(t, dtype.Float32, 5)
		for range 3 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*10*time.Microsecond)
			err := run(ctx)
			cancel()
			if err != nil && err != context.DeadlineExceeded {
				t.Fatal(err)
			}
			if got := output(t, p, in, 2, nil); !bytes.Equal(got[:len(want)], want) {
				t.Fatalf("other bits after a run of %d µs: %v", 10*i, err)
			}
		}
	}
}

// TestDepthFirstOff: MEZZO_SKIP=depth-first computes layer by layer.
func TestDepthFirstOff(t *testing.T) {
	s, err := backend.ParseSkips("depth-first")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.SetSkips(backend.SetSkips(s))
	p, _ := residual(t, dtype.Float32, 4)
	if slices.ContainsFunc(p.steps, func(s step) bool { _, ok := s.kernel.(*depthFirst); return ok }) {
		t.Error("samples are computed one by one")
	}
}
