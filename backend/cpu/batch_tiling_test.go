package cpu

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/pooling"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// firstLayer is a convolution of one channel with bias and relu, pooled, and the
// gradients of pooling, bias and kernel.
func firstLayer(t *testing.T, d dtype.DType, batch, size, outs int) (*Program, []driver.Buffer) {
	rng := rand.New(rand.NewPCG(51, uint64(batch)))
	side := []int{1, 1}
	zero := []int{0, 0}
	a := op.Attr{Stride: side, Dilation: side, Low: zero, High: zero}
	pool := op.Attr{Window: []int{2, 2}, Stride: []int{2, 2}, Dilation: side, Low: zero, High: zero}
	grad := a
	grad.Dims, grad.DType = op.Shape{3, 3, 1, outs}, dtype.Float32
	half := (size - 2) / 2
	g := ir.New(4)
	var in []driver.Buffer
	var vals []*ir.Value
	for i, s := range []op.Shape{{batch, size, size, 1}, {3, 3, 1, outs}, {outs}, {batch, half, half, outs}} {
		x := randomArray(rng, d, s...)
		vals, in = append(vals, param(t, g, i, x.Type)), append(in, &Buffer{storage: x.data})
	}
	y := record(t, g, op.Relu, op.Attr{}, record(t, g, op.Add, op.Attr{}, record(t, g, op.Conv, a, vals[0], vals[1]), vals[2]))
	zeros := record(t, g, op.Const, op.Attr{DType: d})
	pooled := record(t, g, op.MaxPool, pool, y)
	dy := record(t, g, op.MaxPoolGrad, pool, y, record(t, g, op.Mul, op.Attr{}, pooled, vals[3]))
	dy = record(t, g, op.Where, op.Attr{}, record(t, g, op.Greater, op.Attr{}, y, zeros), dy, zeros)
	g.Output(record(t, g, op.Stats, op.Attr{}, y, y), -1) // comes between y and pooled
	g.Output(record(t, g, op.Square, op.Attr{}, pooled), -1)
	g.Output(record(t, g, op.Sum, op.Attr{Axes: []int{0, 1, 2}}, dy), -1)
	g.Output(record(t, g, op.ConvKernelGrad, grad, vals[0], dy), -1)
	if err := ir.Optimize(g, ir.Options{}); err != nil {
		t.Fatal(err)
	}
	p, err := shared.Compile(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*Program), in
}

// TestBatchTiling: batch-tiled kernels give the same bits as one by one, for any number of
// workers, and runs allocate nothing.
func TestBatchTiling(t *testing.T) {
	isatest.SkipEmulated(t, "how kernels are joined does not depend on the processor")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	isatest.ForEach(t, func(t *testing.T) {
		set := gemm.Current()
		for _, c := range []struct{ batch, size, outs int }{{16, 28, 64}, {37, 22, 32}} {
			for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
				p, in := firstLayer(t, d, c.batch, c.size, c.outs)
				joined := 0
				for _, s := range p.steps {
					if k, ok := s.kernel.(*batchTiled); ok {
						joined += len(k.kernels)
						if pool, ok := k.kernels[0].(*pooling.Vector); ok && !pool.HasEpilogue() && !k.firstInCache {
							t.Errorf("%d images of %v: all of the gradient of pooling is kept", c.batch, d)
						}
					}
				}
				if wide := set != nil && set.MaxPoolGrad[gemm.F32] != nil; wide && d == dtype.Float32 && joined != 5 {
					t.Errorf("%d images of %v: %d kernels go together, want 5 in\n%v", c.batch, d, joined, p.graph)
				}
				run := func(see func(*ir.Value, []byte) error) (all []byte) {
					var out []driver.Buffer
					for _, v := range p.graph.Outputs {
						out = append(out, &Buffer{storage: exec.Aligned(v.Type.Bytes())})
					}
					if err := p.RunWatched(context.Background(), in, out, see); err != nil {
						t.Fatal(err)
					}
					for _, b := range out {
						all = append(all, b.(*Buffer).storage...)
					}
					return all
				}
				runtime.GOMAXPROCS(1)
				alone := run(func(*ir.Value, []byte) error { return nil })
				for _, procs := range []int{1, 2, 5} {
					runtime.GOMAXPROCS(procs)
					if !bytes.Equal(run(nil), alone) {
						t.Errorf("%d images of %v, %d workers: together and alone differ", c.batch, d, procs)
					}
				}
			}
		}
	})
}
