package cpu

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// convLayers are the convolutions of a small classifier of digits and of a
// large one, of a U-Net, and others of other kinds.
var convLayers = []struct {
	name        string
	x, w        op.Shape
	stride, pad int
	groups      int
}{
	{"1to32", op.Shape{128, 28, 28, 1}, op.Shape{3, 3, 1, 32}, 1, 0, 1},
	{"32to64", op.Shape{128, 13, 13, 32}, op.Shape{3, 3, 32, 64}, 1, 0, 1},
	{"1to420", op.Shape{32, 28, 28, 1}, op.Shape{3, 3, 1, 420}, 1, 0, 1},
	{"420to1000", op.Shape{32, 13, 13, 420}, op.Shape{3, 3, 420, 1000}, 1, 0, 1},
	{"unet64", op.Shape{1, 128, 128, 64}, op.Shape{3, 3, 64, 64}, 1, 1, 1},
	{"unet512", op.Shape{1, 16, 16, 512}, op.Shape{3, 3, 512, 512}, 1, 1, 1},
	{"down2x2", op.Shape{1, 128, 128, 64}, op.Shape{2, 2, 64, 128}, 2, 0, 1}, // its input gradient is the transposed convolution
	{"3to32same", op.Shape{64, 32, 32, 3}, op.Shape{3, 3, 3, 32}, 1, 1, 1},
	{"64to128stride2", op.Shape{32, 28, 28, 64}, op.Shape{3, 3, 64, 128}, 2, 1, 1},
	{"256to256small", op.Shape{32, 7, 7, 256}, op.Shape{3, 3, 256, 256}, 1, 1, 1},
	{"1x1", op.Shape{32, 28, 28, 64}, op.Shape{1, 1, 64, 128}, 1, 0, 1},
	{"groups4", op.Shape{32, 28, 28, 64}, op.Shape{3, 3, 16, 64}, 1, 1, 4},
	{"depthwise64", op.Shape{32, 28, 28, 64}, op.Shape{3, 3, 1, 64}, 1, 1, 64},
}

// BenchmarkConvPeak measures convolutions and their gradients like
// BenchmarkMatMulPeak.
func BenchmarkConvPeak(b *testing.B) {
	for _, l := range convLayers {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, c := range []op.Code{op.Conv, op.ConvInputGrad, op.ConvKernelGrad} {
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("%s/%v/%v/%dT", l.name, d, c, threads), func(b *testing.B) {
						typ := func(s op.Shape) op.Type { return op.Type{DType: d, Shape: s} }
						x, w := typ(l.x), typ(l.w)
						a := op.Attr{
							Stride: []int{l.stride, l.stride}, Dilation: []int{1, 1},
							Low: []int{l.pad, l.pad}, High: []int{l.pad, l.pad}, Groups: l.groups,
						}
						y, err := op.Infer(op.Conv, a, x, w)
						if err != nil {
							b.Fatal(err)
						}
						macs := y.Shape.Size() * l.w[:len(l.w)-1].Size()
						switch c {
						case op.ConvInputGrad:
							a.Dims, x = l.x, y
						case op.ConvKernelGrad:
							a.Dims, w, a.DType = l.w, y, dtype.Float32
						}
						benchPeak(b, c, a, []op.Type{x, w}, macs, threads)
					})
				}
			}
		}
	}
}

// benchPeak measures one operation.
func benchPeak(b *testing.B, c op.Code, a op.Attr, types []op.Type, macs, threads int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	r, k := bound(b, c, a, types, threads)
	shareOfPeak(b, r, k, types[0].DType, macs)
}

// bound is one operation on random operands, ready to run.
func bound(b *testing.B, c op.Code, a op.Attr, types []op.Type, threads int) (*exec.Run, exec.Kernel) {
	rng := rand.New(rand.NewPCG(1, 1))
	g := ir.New(len(types))
	var args []*ir.Value
	var arrays []array
	for i, t := range types {
		args = append(args, param(b, g, i, t))
		arrays = append(arrays, randomArray(rng, t.DType, t.Shape...))
	}
	g.Output(record(b, g, c, a, args...), -1)
	p := plan(b, g)
	in, out := buffers(p, arrays)
	r, err := p.get()
	if err != nil {
		b.Fatal(err)
	}
	if err := p.bind(r, in, out); err != nil {
		b.Fatal(err)
	}
	r.Procs = threads
	return &r.Run, p.steps[len(p.steps)-1].kernel
}

// BenchmarkPool measures pooling and its gradients in GB/s of what is read and
// written.
func BenchmarkPool(b *testing.B) {
	for _, s := range []struct {
		name         string
		x            op.Shape
		size, stride int
	}{
		{"26x26x32", op.Shape{128, 26, 26, 32}, 2, 2},
		{"11x11x64", op.Shape{128, 11, 11, 64}, 2, 2},
		{"26x26x420", op.Shape{32, 26, 26, 420}, 2, 2},
		{"3x3stride2", op.Shape{32, 55, 55, 64}, 3, 2},
	} {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, c := range []op.Code{op.MaxPool, op.MaxPoolGrad, op.AvgPool, op.AvgPoolGrad} {
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("%s/%v/%v/%dT", s.name, d, c, threads), func(b *testing.B) {
						defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
						two := func(n int) []int { return []int{n, n} }
						a := op.Attr{Window: two(s.size), Stride: two(s.stride), Dilation: two(1), Low: two(0), High: two(0)}
						x := op.Type{DType: d, Shape: s.x}
						y, err := op.Infer(op.MaxPool, a, x)
						if err != nil {
							b.Fatal(err)
						}
						args, bytes := []op.Type{x}, x.Bytes()+y.Bytes()
						switch c {
						case op.MaxPoolGrad:
							args, bytes = []op.Type{x, y}, bytes+x.Bytes()
						case op.AvgPoolGrad:
							args, a.Dims = []op.Type{y}, s.x
						}
						r, k := bound(b, c, a, args, threads)
						k.Run(r)
						var times []float64
						for b.Loop() {
							for range 15 {
								start := time.Now()
								for range 8 {
									k.Run(r)
								}
								times = append(times, time.Since(start).Seconds()/8)
							}
						}
						slices.Sort(times)
						b.ReportMetric(1e3*times[len(times)/2], "ms")
						b.ReportMetric(float64(bytes)/times[len(times)/2]/1e9, "GB/s")
						b.ReportMetric(0, "ns/op")
					})
				}
			}
		}
	}
}

// shareOfPeak measures a kernel of some multiplications as a share of what the
// processors can do at the same moment, in float32, or in pairs for bfloat16.
func shareOfPeak(b *testing.B, r *exec.Run, work exec.Kernel, d dtype.DType, macs int) {
	set := gemm.Current()
	if set == nil || set.Peak == nil {
		b.Skip("this instruction set has no measure of its peak")
	}
	peak, flops := set.Peak, set.PeakFlops
	if d == dtype.BFloat16 && set.PeakPairs != nil {
		peak, flops = set.PeakPairs, set.PeakPairsFlops
	}
	probe := func() float64 { // GFLOP/s of a core
		const n = 20000
		start := time.Now()
		peak(n)
		return float64(n*flops) / float64(time.Since(start))
	}
	work.Run(r)
	start := time.Now()
	work.Run(r)
	calls := max(1, int(5*time.Millisecond/max(1, time.Since(start))))
	for b.Loop() {
		var times, shares []float64
		var top float64 // of all measurements of the peak
		for tries := 0; len(times) < 9 && tries < 40; tries++ {
			before := max(probe(), probe())
			cpu, start := processTime(), time.Now()
			for range calls {
				work.Run(r)
			}
			wall, used := time.Since(start), processTime()-cpu
			after := max(probe(), probe())
			top = max(top, before, after)
			if float64(used) < 0.975*float64(wall)*float64(r.Procs) && tries < 31 {
				continue // others had the processors
			}
			times = append(times, wall.Seconds()*1e3/float64(calls))
			rate := float64(2*macs*calls) / float64(wall)
			shares = append(shares, 100*rate/((before+after)/2*float64(r.Procs)))
		}
		slices.Sort(times)
		slices.Sort(shares)
		b.ReportMetric(times[len(times)/2], "ms")
		b.ReportMetric(shares[len(shares)/2], "%peak")
		// The best of both is what a quiet machine would show.
		b.ReportMetric(100*float64(2*macs)/(times[0]*1e6)/(top*float64(r.Procs)), "%best")
	}
	b.ReportMetric(0, "ns/op")
}
