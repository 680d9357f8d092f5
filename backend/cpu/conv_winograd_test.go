package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// winogradShapes are even and odd sizes, planes, one band and several, several
// images to a chunk, kernels in passes, padding and cropping, and channels that do
// not fill a panel.
var winogradShapes = []struct {
	name      string
	x, w      op.Shape
	low, high []int
}{
	{"even", op.Shape{1, 22, 34, 40}, op.Shape{3, 3, 40, 64}, []int{0, 0}, []int{0, 0}},
	{"odd", op.Shape{2, 23, 31, 64}, op.Shape{3, 3, 64, 72}, []int{1, 1}, []int{1, 1}},
	{"bands", op.Shape{1, 64, 61, 72}, op.Shape{3, 3, 72, 100}, []int{1, 1}, []int{1, 1}},
	{"images", op.Shape{9, 13, 14, 64}, op.Shape{3, 3, 64, 64}, []int{1, 1}, []int{1, 1}},
	{"deep", op.Shape{1, 18, 18, 300}, op.Shape{3, 3, 300, 40}, []int{0, 0}, []int{0, 0}},
	{"passes", op.Shape{1, 10, 10, 260}, op.Shape{3, 3, 260, 1080}, []int{0, 0}, []int{0, 0}},
	{"planes", op.Shape{2, 3, 12, 16, 48}, op.Shape{1, 3, 3, 48, 80}, []int{0, 1, 1}, []int{0, 1, 1}},
	{"wide edges", op.Shape{1, 30, 30, 64}, op.Shape{3, 3, 64, 64}, []int{2, 0}, []int{1, 2}},
	{"cropped", op.Shape{1, 30, 32, 64}, op.Shape{3, 3, 64, 64}, []int{-1, -2}, []int{0, -1}},
}

// TestWinograd holds convolutions by Winograd's transforms against the portable
// kernels.
func TestWinograd(t *testing.T) {
	isatest.SkipRace(t)
	rng := rand.New(rand.NewPCG(41, 42))
	used := 0
	isatest.ForEach(t, func(t *testing.T) {
		level := isa.Current()
		if set := gemm.Of(level); set == nil || set.Depthwise == nil {
			return
		}
		for _, s := range winogradShapes {
			n := len(s.low)
			ones := []int{1, 1, 1}[:n]
			a := op.Attr{Stride: ones, Dilation: ones, Low: s.low, High: s.high}
			y, err := op.Infer(op.Conv, a, op.Type{DType: dtype.Float32, Shape: s.x}, op.Type{DType: dtype.Float32, Shape: s.w})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
				for _, c := range []op.Code{op.Conv, op.ConvInputGrad, op.ConvKernelGrad} {
					what := fmt.Sprint(s.name, ", ", c, " of ", d)
					a, shapes := convArguments(c, a, s.x, s.w, y.Shape)
					args := []array{randomArray(rng, d, shapes[0]...), randomArray(rng, d, shapes[1]...)}
					compile := func() *Program {
						g := ir.New(2)
						g.Output(record(t, g, c, a, param(t, g, 0, args[0].Type), param(t, g, 1, args[1].Type)), -1)
						return plan(t, g)
					}
					p := compile()
					switch kernelName(p) {
					case "winograd", "winogradGrad":
						used++
					default:
						tiles := d == dtype.Float16 && gemm.Of(level).Panels != nil // which are faster
						if c != op.ConvInputGrad && d != dtype.BFloat16 && !tiles {
							t.Errorf("%s is not computed by transforms", what)
						}
					}
					got := runProcs(t, p, args, 1)
					if !bytes.Equal(got.data, runProcs(t, p, args, 3).data) {
						t.Errorf("%s: other bits with 3 workers", what)
					}
					isa.Use(isa.Portable)
					want := eval(t, c, a, args...)
					isa.Use(level)
					// As in TestConvLevels, and two bits more: a tile is the sum of
					// 36 products in place of 9, and of sums of 4.
					terms := 9 * max(s.x[n+1], s.w[n+1], y.Shape.Size()/s.w[n+1])
					near(t, what, got, want.values(), 4*8*math.Sqrt(float64(terms)))
				}
			}
		}
	})
	if set := gemm.Current(); set != nil && set.Depthwise != nil && used == 0 {
		t.Error("no convolution is computed by transforms")
	}
}

// TestWinogradLimits: where transforms overflow though the convolution does not,
// and where arguments are not finite, results are those of a direct convolution,
// with the same bits for any number of workers, also for what follows.
func TestWinogradLimits(t *testing.T) {
	isatest.SkipRace(t)
	direct := map[string][]float64{} // results of the portable kernels
	isatest.ForEach(t, func(t *testing.T) { testWinogradLimits(t, direct) })
}

func testWinogradLimits(t *testing.T, direct map[string][]float64) {
	level := isa.Current()
	if set := gemm.Of(level); set == nil || set.Depthwise == nil {
		return
	}
	const large, small = 8e37, 1e-3 // a sum of four numbers up to 2·large is infinite
	rng := rand.New(rand.NewPCG(45, 46))
	scaled := func(x array, by float64) array {
		return arrayOf(x.DType, x.Shape, func(i int) float64 { return x.value(i) * by })
	}
	for _, s := range winogradShapes {
		n := len(s.low)
		ones := []int{1, 1, 1}[:n]
		a := op.Attr{Stride: ones, Dilation: ones, Low: s.low, High: s.high}
		y, err := op.Infer(op.Conv, a, op.Type{DType: dtype.Float32, Shape: s.x}, op.Type{DType: dtype.Float32, Shape: s.w})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
			for _, c := range []op.Code{op.Conv, op.ConvInputGrad, op.ConvKernelGrad} {
				a, shapes := convArguments(c, a, s.x, s.w, y.Shape)
				x, w := randomArray(rng, d, shapes[0]...), randomArray(rng, d, shapes[1]...)
				for _, k := range []struct {
					name    string
					args    []array
					unit    float64
					follows bool
				}{
					{"first large", []array{scaled(x, large), scaled(w, small)}, large * small, false},
					{"second large", []array{scaled(x, small), scaled(w, large)}, large * small, true},
					{"not finite", []array{arrayOf(d, x.Shape, func(i int) float64 {
						switch i {
						case 3 * len(x.data) / d.Size() / 7:
							return math.Inf(1)
						case 5 * len(x.data) / d.Size() / 7:
							return math.NaN()
						}
						return x.value(i)
					}), w}, 1, true},
				} {
					if d == dtype.Float16 && k.unit != 1 {
						continue // ends at 65504
					}
					what := fmt.Sprintf("%s, %v of %v, %s", s.name, c, d, k.name)
					g := ir.New(2)
					v := record(t, g, c, a, param(t, g, 0, k.args[0].Type), param(t, g, 1, k.args[1].Type))
					if k.follows {
						v = record(t, g, op.Neg, op.Attr{}, v)
					}
					g.Output(v, -1)
					if err := ir.Optimize(g, ir.Options{}); err != nil {
						t.Fatal(err)
					}
					program, err := New().Compile(t.Context(), g)
					if err != nil {
						t.Fatal(err)
					}
					p := program.(*Program)
					switch kernelName(p) {
					case "winograd", "winogradGrad":
					default:
						continue
					}
					got := runProcs(t, p, k.args, 1)
					if !bytes.Equal(got.data, runProcs(t, p, k.args, 3).data) {
						t.Errorf("%s: other bits with 3 workers", what)
					}
					if direct[what] == nil {
						isa.Use(isa.Portable)
						direct[what] = eval(t, c, a, k.args...).values()
						isa.Use(level)
					}
					values, want := got.values(), slices.Clone(direct[what])
					for i := range values {
						values[i] /= k.unit
						if want[i] /= k.unit; k.follows {
							want[i] = -want[i]
						}
						if k.unit != 1 && (math.IsInf(want[i], 0) || math.IsNaN(want[i])) {
							t.Fatalf("%s: element %d is %v, want a finite number", what, i, want[i])
						}
						if want[i]-want[i] != 0 { // an infinity or NaN: sums may add infinities in another order
							if values[i]-values[i] == 0 {
								t.Fatalf("%s: element %d is %v, want %v", what, i, values[i], want[i])
							}
							values[i], want[i] = 0, 0
						}
					}
					terms := 9 * max(s.x[n+1], s.w[n+1], y.Shape.Size()/s.w[n+1])
					near(t, what, arrayOf(d, got.Shape, func(i int) float64 { return values[i] }), want, 4*8*math.Sqrt(float64(terms)))
				}
			}
		}
	}
}

// TestWinogradEpilogue: what follows gives the bits that it gives apart.
func TestWinogradEpilogue(t *testing.T) {
	isatest.SkipRace(t)
	rng := rand.New(rand.NewPCG(43, 44))
	ones := []int{1, 1}
	a := op.Attr{Stride: ones, Dilation: ones, Low: ones, High: ones}
	for i, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16, dtype.Float16} {
		x, outs := op.Shape{3, 15, 16, 64}, 72
		if i == 3 { // kernels in passes
			x, outs = op.Shape{1, 10, 10, 260}, 1080
		}
		args := []array{randomArray(rng, d, x...), randomArray(rng, d, 3, 3, x[3], outs), randomArray(rng, d, outs)}
		var got [2]array
		for i, skip := range [][]string{nil, {"epilogue"}} {
			g := ir.New(3)
			conv := record(t, g, op.Conv, a, param(t, g, 0, args[0].Type), param(t, g, 1, args[1].Type))
			g.Output(record(t, g, op.Relu, op.Attr{}, record(t, g, op.Add, op.Attr{}, conv, param(t, g, 2, args[2].Type))), -1)
			if err := ir.Optimize(g, ir.Options{Skip: skip}); err != nil {
				t.Fatal(err)
			}
			p, err := New().Compile(t.Context(), g)
			if err != nil {
				t.Fatal(err)
			}
			got[i] = runProcs(t, p.(*Program), args, 2)
		}
		if !bytes.Equal(got[0].data, got[1].data) {
			t.Errorf("%v: fused and apart differ", d)
		}
	}
}
