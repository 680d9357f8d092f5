package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// winogradShapes are even and odd sizes, planes, one band and several, several
// images to a chunk, kernels in passes, padding and cropping, and channels that do
// not fill a panel, or only a narrow one; then windows of one axis: each length, one segment of a row and
// several, several rows to a chunk, and rows shorter than a tile.
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
	{"words", op.Shape{5, 128, 64}, op.Shape{5, 64, 128}, []int{0}, []int{0}},
	{"words of 3", op.Shape{2, 37, 72}, op.Shape{3, 72, 96}, []int{1}, []int{1}},
	{"words of 4", op.Shape{3, 50, 64}, op.Shape{4, 64, 72}, []int{1}, []int{2}},
	{"words of 6", op.Shape{3, 49, 66}, op.Shape{6, 66, 64}, []int{3}, []int{2}},
	{"words of 7", op.Shape{2, 61, 96}, op.Shape{7, 96, 80}, []int{3}, []int{3}},
	{"segments", op.Shape{1, 1201, 64}, op.Shape{5, 64, 64}, []int{4}, []int{0}},
	{"deep words", op.Shape{1, 70, 300}, op.Shape{5, 300, 96}, []int{0}, []int{0}},
	{"words in planes", op.Shape{2, 3, 40, 48}, op.Shape{1, 5, 48, 80}, []int{0, 2}, []int{0, 2}},
	{"short words", op.Shape{40, 4, 64}, op.Shape{3, 64, 64}, []int{1}, []int{1}},
	{"wide words", op.Shape{1, 40, 64}, op.Shape{5, 64, 64}, []int{9}, []int{11}},
	{"cropped words", op.Shape{2, 60, 64}, op.Shape{5, 64, 64}, []int{-3}, []int{-6}},
}

// winogradCase is a convolution of winogradShapes, or a gradient of one.
type winogradCase struct {
	name  string
	code  op.Code
	attr  op.Attr
	args  []array
	want  []float64 // what the portable kernels compute
	terms int       // of a sum
	words bool      // windows have one axis
}

// plan compiles the case, and what follows if that is not nil, for transforms: windows of one
// axis have them for shapes that do not pay, too, and gradients of a few tiles where they pay
// with tiles of 32 columns alone.
func (k *winogradCase) plan(t *testing.T, follows func(g *ir.Graph, v *ir.Value) *ir.Value) *Program {
	if k.words {
		defer exec.Force("conv", "winograd-1d")()
	}
	if set := gemm.Current(); k.code == op.ConvKernelGrad && set != nil && set.F32.NR < 32 && k.args[0].Shape.Size()/k.args[0].Shape[3] <= 100 {
		defer exec.Force("wgrad", "winograd")()
	}
	g := ir.New(2)
	v := record(t, g, k.code, k.attr, param(t, g, 0, k.args[0].Type), param(t, g, 1, k.args[1].Type))
	if follows != nil {
		v = follows(g, v)
	}
	g.Output(v, -1)
	return plan(t, g)
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
				words := s.w[:n-1].Size() == 1
				if c == op.ConvKernelGrad && words {
					continue // has no transforms for windows of one axis
				}
				what := fmt.Sprint(s.name, ", ", c, " of ", d)
				k := winogradCases[what]
				if k == nil {
					rng := rand.New(rand.NewPCG(41, uint64(i)))
					a, shapes := convArguments(c, a, s.x, s.w, y.Shape)
					k = &winogradCase{name: what, code: c, words: words, attr: a, args: []array{randomArray(rng, d, shapes[0]...), randomArray(rng, d, shapes[1]...)}}
					k.want = portable(t, c, a, k.args...).values()
					// A tile of 3x3 windows is the sum of 36 products in place of 9.
					k.terms = s.w[:n].Size() * max(s.x[n+1], s.w[n+1], y.Shape.Size()/s.w[n+1])
					winogradCases[what] = k
				}
				f(k)
			}
		}
	}
}

// alone compares the last sample with its own convolution.
func (k *winogradCase) alone(t *testing.T, all array) {
	t.Helper()
	one, last := *k, k.args[0].Shape[0]-1
	of := func(x array) array {
		s := slices.Clone(x.Shape)
		s[0] = 1
		bytes := s.Size() * x.DType.Size()
		data := exec.Aligned(bytes)
		copy(data, x.data[last*bytes:])
		return array{op.Type{DType: x.DType, Shape: s}, data}
	}
	one.args = []array{of(k.args[0]), k.args[1]}
	if k.attr.Dims != nil {
		one.attr.Dims = slices.Clone(k.attr.Dims)
		one.attr.Dims[0] = 1
	}
	if got := runProcs(t, one.plan(t, nil), one.args, 2); !bytes.Equal(got.data, of(all).data) {
		t.Errorf("%s: other bits without the other samples", k.name)
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
			p := k.plan(t, nil)
			switch d := k.args[0].DType; kernelName(p) {
			case "winograd", "winogradGrad", "winograd1D":
				used++
			default:
				tiles := d == dtype.Float16 && set.Panels != nil // which are faster
				outs := k.args[1].Shape[len(k.args[1].Shape)-1]
				switch { // without kernels for them
				case strings.HasPrefix(k.name, "narrow") && (k.code == op.ConvKernelGrad || outs > set.F32.NarrowNR):
					tiles = true
				case k.code == op.ConvKernelGrad:
					tiles = tiles || set.WinogradGrads == nil
				case !k.words:
					tiles = tiles || set.WinogradSource == nil
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
			if k.words {
				k.alone(t, got)
			}
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
				p := k.plan(t, func(g *ir.Graph, v *ir.Value) *ir.Value {
					if limit.follows {
						v = record(t, g, op.Neg, op.Attr{}, v)
					}
					return v
				})
				if name := kernelName(p); !strings.HasPrefix(name, "winograd") {
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
					if n := x.Shape[0]; k.code != op.ConvKernelGrad && 7*(n-1) > 5*n { // the last sample is finite
						other := *k
						other.name, other.args = what, args
						other.alone(t, runProcs(t, other.plan(t, nil), args, 2))
					}
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
	for i, c := range []struct {
		d              dtype.DType
		outs           int
		residual, relu bool
		words          bool // windows have one axis
	}{
		{dtype.Float32, 72, false, true, false}, {dtype.Float16, 72, false, true, false}, {dtype.BFloat16, 72, false, true, false},
		{dtype.Float32, 72, true, true, false}, {dtype.Float32, 16, false, true, false}, {dtype.Float32, 16, true, true, false},
		{dtype.Float32, 13, true, true, false}, {dtype.Float16, 16, true, true, false}, {dtype.Float32, 72, true, false, false},
		{dtype.Float16, 1080, false, true, false}, // kernels in passes
		{dtype.Float32, 72, false, true, true}, {dtype.Float32, 72, false, false, true}, {dtype.Float32, 72, true, true, true},
		{dtype.Float32, 40, true, false, true}, {dtype.Float32, 16, true, true, true}, {dtype.Float16, 72, false, true, true},
	} {
		if !isatest.InTurn(i) && c.d != dtype.BFloat16 || isatest.Emulated() && c.outs > 1000 { // passes are Go code
			continue
		}
		x, w, pad := op.Shape{3, 15, 16, 64}, []int{3, 3}, ones
		switch {
		case c.words:
			x, w, pad = op.Shape{3, 1, 75, 64}, []int{1, 5}, []int{0, 2}
		case c.outs > 1000:
			x = op.Shape{1, 10, 10, 260}
		}
		a := op.Attr{Stride: ones, Dilation: ones, Low: pad, High: pad}
		args := []array{randomArray(rng, c.d, x...), randomArray(rng, c.d, w[0], w[1], x[3], c.outs), randomArray(rng, c.d, c.outs), randomArray(rng, c.d, x[0], x[1], x[2], c.outs)}
		var got [2]array
		for i, skip := range [][]string{nil, {"epilogue"}} {
			g := ir.New(4)
			y := record(t, g, op.Conv, a, param(t, g, 0, args[0].Type), param(t, g, 1, args[1].Type))
			y = record(t, g, op.Add, op.Attr{}, y, param(t, g, 2, args[2].Type))
			if residual := param(t, g, 3, args[3].Type); c.residual {
				y = record(t, g, op.Add, op.Attr{}, y, residual)
			}
			if c.relu {
				y = record(t, g, op.Relu, op.Attr{}, y)
			}
			g.Output(y, -1)
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

// TestWinogradError: transforms lose at most two bits of float32, as docs/layers.md says. It
// compares the root mean squares of rounding errors with transforms and without.
func TestWinogradError(t *testing.T) {
	isatest.SkipRace(t)
	isatest.ForEach(t, func(t *testing.T) {
		if set := gemm.Current(); set == nil || set.Depthwise == nil || set.Ordered {
			return
		}
		for i, s := range []struct{ x, w op.Shape }{
			{op.Shape{1, 18, 18, 64}, op.Shape{3, 3, 64, 64}},
			{op.Shape{2, 126, 64}, op.Shape{3, 64, 64}},
			{op.Shape{2, 126, 64}, op.Shape{4, 64, 64}},
			{op.Shape{2, 126, 64}, op.Shape{5, 64, 64}},
			{op.Shape{2, 126, 64}, op.Shape{6, 64, 64}},
			{op.Shape{2, 126, 64}, op.Shape{7, 64, 64}},
			{op.Shape{1, 66, 512}, op.Shape{5, 512, 64}},
		} {
			for _, relu := range []bool{false, true} {
				rng := rand.New(rand.NewPCG(45, uint64(i)))
				n := len(s.w) - 2
				a := op.Attr{Stride: []int{1, 1}[:n], Dilation: []int{1, 1}[:n], Low: []int{0, 0}[:n], High: []int{0, 0}[:n]}
				normal := func(shape op.Shape) array {
					return arrayOf(dtype.Float32, shape, func(int) float64 { return rng.NormFloat64() })
				}
				x, w := normal(s.x), normal(s.w)
				if relu {
					x = arrayOf(dtype.Float32, s.x, func(i int) float64 { return max(0, x.value(i)) })
				}
				want := eval(t, op.Conv, a, x.converted(dtype.Float64), w.converted(dtype.Float64)).values()
				var errors [2]float64
				for j, force := range []string{"implicit", ""} {
					restore := func() {}
					if force != "" {
						restore = exec.Force("conv", force)
					}
					g := ir.New(2)
					g.Output(record(t, g, op.Conv, a, param(t, g, 0, x.Type), param(t, g, 1, w.Type)), -1)
					p := plan(t, g)
					restore()
					if force == "" && !strings.HasPrefix(kernelName(p), "winograd") {
						t.Errorf("%v by %v is computed by %s", s.x, s.w, kernelName(p))
					}
					for k, y := range runProcs(t, p, []array{x, w}, 1).values() {
						errors[j] += (y - want[k]) * (y - want[k])
					}
				}
				ratio := math.Sqrt(errors[1] / errors[0])
				t.Logf("%v by %v, at least 0: %v: %.2f times the error of direct sums", s.x, s.w, relu, ratio)
				if ratio > 4 {
					t.Errorf("%v by %v, at least 0: %v: %.2f times the error of direct sums", s.x, s.w, relu, ratio)
				}
			}
		}
	})
}
