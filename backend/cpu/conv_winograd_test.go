package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// winogradShapes are even and odd sizes, planes, one band and several, several
// images to a chunk, kernels in passes, padding and cropping, and channels that do
// not fill a panel, or only a narrow one.
var winogradShapes = []struct {
	name      string
	x, w      op.Shape
	low, high []int
}{
	{"even", op.Shape{1, 22, 34, 40}, op.Shape{3, 3, 40, 64}, []int{0, 0}, []int{0, 0}},
	{"odd", op.Shape{2, 23, 31, 64}, op.Shape{3, 3, 64, 72}, []int{1, 1}, []int{1, 1}},
	{"bands", op.Shape{1, 64, 61, 72}, op.Shape{3, 3, 72, 100}, []int{1, 1}, []int{1, 1}},
	{"images", op.Shape{9, 13, 14, 64}, op.Shape{3, 3, 64, 64}, []int{1, 1}, []int{1, 1}},
	{"few tiles", op.Shape{1, 8, 8, 64}, op.Shape{3, 3, 64, 64}, []int{1, 1}, []int{1, 1}},
	{"deep", op.Shape{1, 18, 18, 300}, op.Shape{3, 3, 300, 40}, []int{0, 0}, []int{0, 0}},
	{"passes", op.Shape{1, 10, 10, 260}, op.Shape{3, 3, 260, 1080}, []int{0, 0}, []int{0, 0}},
	{"planes", op.Shape{2, 3, 12, 16, 48}, op.Shape{1, 3, 3, 48, 80}, []int{0, 1, 1}, []int{0, 1, 1}},
	{"wide edges", op.Shape{1, 30, 30, 64}, op.Shape{3, 3, 64, 64}, []int{2, 0}, []int{1, 2}},
	{"narrow", op.Shape{1, 32, 32, 16}, op.Shape{3, 3, 16, 16}, []int{1, 1}, []int{1, 1}},
	{"narrow, odd", op.Shape{2, 23, 31, 40}, op.Shape{3, 3, 40, 13}, []int{1, 1}, []int{1, 1}},
	{"cropped", op.Shape{1, 30, 32, 64}, op.Shape{3, 3, 64, 64}, []int{-1, -2}, []int{0, -1}},
}

// winogradCase is a convolution of winogradShapes, or a gradient of one.
type winogradCase struct {
	name  string
	code  op.Code
	attr  op.Attr
	args  []array
	want  []float64 // what the portable kernels compute
	terms int       // of a sum
}

// eachWinograd calls f for each convolution of winogradShapes and its gradients, in
// each type that transforms may compute in.
func eachWinograd(t *testing.T, f func(*winogradCase)) {
	for i, s := range winogradShapes {
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
				k := winogradCases[what]
				if k == nil {
					rng := rand.New(rand.NewPCG(41, uint64(i)))
					a, shapes := convArguments(c, a, s.x, s.w, y.Shape)
					k = &winogradCase{name: what, code: c, attr: a, args: []array{randomArray(rng, d, shapes[0]...), randomArray(rng, d, shapes[1]...)}}
					k.want = portable(t, c, a, k.args...).values()
					// A tile is the sum of 36 products in place of 9.
					k.terms = 9 * max(s.x[n+1], s.w[n+1], y.Shape.Size()/s.w[n+1])
					winogradCases[what] = k
				}
				f(k)
			}
		}
	}
}

// winogradCases keeps what eachWinograd has computed: portable Go takes most of the
// time of these tests.
var winogradCases = map[string]*winogradCase{}

// near is [near] for got, whose numbers are as those of what is wanted: as in
// TestConvLevels, and two bits more, as a tile has sums of 4.
func (k *winogradCase) near(t *testing.T, what string, got array, want []float64) {
	t.Helper()
	near(t, what, got, want, 4*8*math.Sqrt(float64(k.terms)))
}

// TestWinograd holds convolutions by Winograd's transforms against the portable
// kernels.
func TestWinograd(t *testing.T) {
	isatest.SkipRace(t)
	used := 0
	isatest.ForEach(t, func(t *testing.T) {
		set := gemm.Current()
		if set == nil || set.Depthwise == nil {
			return
		}
		eachWinograd(t, func(k *winogradCase) {
			g := ir.New(2)
			g.Output(record(t, g, k.code, k.attr, param(t, g, 0, k.args[0].Type), param(t, g, 1, k.args[1].Type)), -1)
			p := plan(t, g)
			switch d := k.args[0].DType; kernelName(p) {
			case "winograd", "winogradGrad":
				used++
			default:
				tiles := d == dtype.Float16 && set.Panels != nil // which are faster
				outs := k.args[1].Shape[len(k.args[1].Shape)-1]
				switch { // without kernels for them
				case strings.HasPrefix(k.name, "narrow") && (k.code == op.ConvKernelGrad || outs > set.F32.NarrowNR):
					tiles = true
				case k.code == op.ConvKernelGrad:
					tiles = tiles || set.WinogradGrads == nil
				case !set.F32.Masked:
					tiles = tiles || outs%set.F32.NR != 0
				}
				if k.code != op.ConvInputGrad && d != dtype.BFloat16 && !tiles {
					t.Errorf("%s is not computed by transforms", k.name)
				}
			}
			got := runProcs(t, p, k.args, 1)
			if !bytes.Equal(got.data, runProcs(t, p, k.args, 3).data) {
				t.Errorf("%s: other bits with 3 workers", k.name)
			}
			k.near(t, k.name, got, k.want)
		})
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
	// Powers of two: results are those of eachWinograd times their product. A sum of
	// four numbers of up to 2·large is infinite.
	const large, small = 0x1p126, 0x1p-10
	scaled := func(x array, by float64) array {
		v := x.values()
		return arrayOf(x.DType, x.Shape, func(i int) float64 { return v[i] * by })
	}
	isatest.ForEach(t, func(t *testing.T) {
		if set := gemm.Current(); set == nil || set.Depthwise == nil {
			return
		}
		eachWinograd(t, func(k *winogradCase) {
			x, w := k.args[0], k.args[1]
			for _, limit := range []struct {
				name    string
				scales  [2]float64 // 0 for arguments that are not finite
				follows bool
			}{
				{"first large", [2]float64{large, small}, false},
				{"second large", [2]float64{small, large}, true},
				{"not finite", [2]float64{}, true},
			} {
				finite := limit.scales[0] != 0
				if x.DType == dtype.Float16 && finite {
					continue // ends at 65504
				}
				what := k.name + ", " + limit.name
				g := ir.New(2)
				v := record(t, g, k.code, k.attr, param(t, g, 0, x.Type), param(t, g, 1, w.Type))
				if limit.follows {
					v = record(t, g, op.Neg, op.Attr{}, v)
				}
				g.Output(v, -1)
				p := plan(t, g)
				if name := kernelName(p); name != "winograd" && name != "winogradGrad" {
					continue
				}
				var args []array
				want, unit := k.want, 1.0
				if finite {
					args = []array{scaled(x, limit.scales[0]), scaled(w, limit.scales[1])}
					unit = large * small
				} else {
					values := x.values()
					values[3*len(values)/7], values[5*len(values)/7] = math.Inf(1), math.NaN()
					args = []array{arrayOf(x.DType, x.Shape, func(i int) float64 { return values[i] }), w}
					want = portable(t, k.code, k.attr, args...).values()
				}
				got := runProcs(t, p, args, 1)
				if !bytes.Equal(got.data, runProcs(t, p, args, 3).data) {
					t.Errorf("%s: other bits with 3 workers", what)
				}
				values, want := got.values(), slices.Clone(want)
				for i := range values {
					values[i] /= unit
					if limit.follows {
						want[i] = -want[i]
					}
					if finite && want[i]-want[i] != 0 {
						t.Fatalf("%s: element %d is %v, want a finite number", what, i, want[i])
					}
					if want[i]-want[i] != 0 { // an infinity or NaN: sums may add infinities in another order
						if values[i]-values[i] == 0 {
							t.Fatalf("%s: element %d is %v, want %v", what, i, values[i], want[i])
						}
						values[i], want[i] = 0, 0
					}
				}
				k.near(t, what, arrayOf(got.DType, got.Shape, func(i int) float64 { return values[i] }), want)
			}
		})
	})
}

// TestWinogradEpilogue: what follows gives the bits that it gives apart.
func TestWinogradEpilogue(t *testing.T) {
	isatest.SkipRace(t)
	rng := rand.New(rand.NewPCG(43, 44))
	ones := []int{1, 1}
	a := op.Attr{Stride: ones, Dilation: ones, Low: ones, High: ones}
	for i, c := range []struct {
		d        dtype.DType
		outs     int
		residual bool
	}{
		{dtype.Float32, 72, false}, {dtype.Float16, 72, false}, {dtype.BFloat16, 72, false},
		{dtype.Float32, 72, true}, {dtype.Float32, 16, false}, {dtype.Float32, 16, true}, {dtype.Float32, 13, true}, {dtype.Float16, 16, true},
		{dtype.Float16, 1080, false}, // kernels in passes
	} {
		x := op.Shape{3, 15, 16, 64}
		if c.outs > 1000 {
			x = op.Shape{1, 10, 10, 260}
		}
		args := []array{randomArray(rng, c.d, x...), randomArray(rng, c.d, 3, 3, x[3], c.outs), randomArray(rng, c.d, c.outs), randomArray(rng, c.d, x[0], x[1], x[2], c.outs)}
		var got [2]array
		for i, skip := range [][]string{nil, {"epilogue"}} {
			g := ir.New(4)
			y := record(t, g, op.Conv, a, param(t, g, 0, args[0].Type), param(t, g, 1, args[1].Type))
			y = record(t, g, op.Add, op.Attr{}, y, param(t, g, 2, args[2].Type))
			if residual := param(t, g, 3, args[3].Type); c.residual {
				y = record(t, g, op.Add, op.Attr{}, y, residual)
			}
			g.Output(record(t, g, op.Relu, op.Attr{}, y), -1)
			if err := ir.Optimize(g, ir.Options{Skip: skip}); err != nil {
				t.Fatal(err)
			}
			p, err := shared.Compile(t.Context(), g)
			if err != nil {
				t.Fatal(err)
			}
			got[i] = runProcs(t, p.(*Program), args, 2)
		}
		if !bytes.Equal(got[0].data, got[1].data) {
			t.Errorf("case %d, %v: fused and apart differ", i, c.d)
		}
	}
}
