package cpu

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// largeProgram has a kernel of every family on enough data for several workers.
func largeProgram(t testing.TB, d dtype.DType) (*Program, []array) {
	rng := rand.New(rand.NewPCG(21, 22))
	inputs := []array{
		randomArray(rng, d, 160, 120), randomArray(rng, d, 120, 110), randomArray(rng, d, 110),
		arrayOf(dtype.Int32, op.Shape{160}, func(i int) float64 { return float64(i * 31 % 110) }),
		arrayOf(dtype.Int64, op.Shape{2}, func(i int) float64 { return 77 }),
	}
	g := ir.New(len(inputs))
	var in []*ir.Value
	for i, x := range inputs {
		in = append(in, param(t, g, i, x.Type))
	}
	rec := func(c op.Code, a op.Attr, args ...*ir.Value) *ir.Value { return record(t, g, c, a, args...) }
	h := rec(op.Tanh, op.Attr{}, rec(op.Add, op.Attr{}, rec(op.MatMul, op.Attr{}, in[0], in[1]), in[2]))
	u := rec(op.Cast, op.Attr{DType: d}, rec(op.RandomUniform, op.Attr{Dims: h.Type.Shape, DType: dtype.Float32}, in[4]))
	h = rec(op.Mul, op.Attr{}, h, u)
	soft := rec(op.Softmax, op.Attr{Axes: []int{1}}, h)
	for _, v := range []*ir.Value{
		soft, rec(op.Sum, op.Attr{Axes: []int{0}}, h), rec(op.Mean, op.Attr{Axes: []int{1}}, h), rec(op.SumSquares, op.Attr{}, h),
		rec(op.Transpose, op.Attr{Perm: []int{1, 0}}, h), rec(op.TakeAlongAxis, op.Attr{}, soft, in[3]),
		rec(op.ScatterAdd, op.Attr{Size: 110}, h, in[3]), rec(op.ArgMax, op.Attr{Axes: []int{1}}, h),
		rec(op.Gather, op.Attr{}, in[1], in[3]), rec(op.Concat, op.Attr{Axes: []int{1}}, h, soft),
	} {
		g.Output(v, -1)
	}
	return plan(t, g), inputs
}

func buffers(p *Program, inputs []array) (in, out []driver.Buffer) {
	for _, x := range inputs {
		in = append(in, &Buffer{storage: x.data})
	}
	for _, v := range p.graph.Outputs {
		out = append(out, &Buffer{storage: exec.Aligned(v.Type.Bytes())})
	}
	return in, out
}

// TestSameBits runs one program with different numbers of workers, each time from
// several goroutines at once.
func TestSameBits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, d := range dtype.Floats() {
		p, inputs := largeProgram(t, d)
		var want []driver.Buffer
		for _, procs := range []int{1, 2, 3, 8} {
			runtime.GOMAXPROCS(procs)
			results := make([][]driver.Buffer, 3)
			var wg sync.WaitGroup
			for i := range results {
				wg.Go(func() {
					in, out := buffers(p, inputs)
					if err := p.Run(context.Background(), in, out); err != nil {
						t.Error(err)
					}
					results[i] = out
				})
			}
			wg.Wait()
			if want == nil {
				want = results[0]
			}
			for _, out := range results {
				for i := range out {
					if !bytes.Equal(out[i].(*Buffer).storage, want[i].(*Buffer).storage) {
						t.Errorf("%v: output %d with %d workers differs in bits", d, i, procs)
					}
				}
			}
		}
	}
}

// TestRunAllocates counts allocations while workers run; testing.AllocsPerRun would
// exclude them.
func TestRunAllocates(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	p, inputs := largeProgram(t, dtype.Float16)
	in, out := buffers(p, inputs)
	run := func() {
		if err := p.Run(context.Background(), in, out); err != nil {
			t.Fatal(err)
		}
	}
	const runs = 20
	var before, after runtime.MemStats
	// Like testing.AllocsPerRun this is an average, rounded down: a goroutine that
	// parks sometimes makes the Go runtime fill its lists of waiters.
	least := uint64(1 << 62)
	for range 3 {
		run()
		runtime.ReadMemStats(&before)
		for range runs {
			run()
		}
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
	}
	if least/runs != 0 {
		t.Errorf("%d runs allocated %d times, want none in a run", runs, least)
	}
}
