package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/attention"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/conv"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/pooling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/recurrent"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// shapeClass is an operation on shapes for which the choice of algorithm differs.
type shapeClass struct {
	code  op.Code
	attr  op.Attr
	types [2]op.Shape
	terms int // per sum
}

// matMulClasses are products of all kinds of shapes.
func matMulClasses() (all []shapeClass) {
	for _, s := range [][3]int{{1, 70, 200}, {70, 200, 1}, {5, 9, 17}, {64, 64, 64}, {249, 1, 300}, {130, 33, 67}, {37, 2100, 40}, {30, 2101, 5}, {300, 100, 520}, {300, 5, 1}, {260, 11, 3}} {
		for trans := range 4 {
			a := op.Attr{TransA: trans&1 != 0, TransB: trans&2 != 0}
			x, y := op.Shape{s[0], s[1]}, op.Shape{s[1], s[2]}
			if a.TransA {
				slices.Reverse(x)
			}
			if a.TransB {
				slices.Reverse(y)
			}
			all = append(all, shapeClass{op.MatMul, a, [2]op.Shape{x, y}, s[1]})
		}
	}
	return append(all, shapeClass{op.MatMul, op.Attr{}, [2]op.Shape{{3, 20, 30}, {3, 30, 40}}, 30})
}

// convClasses are convolutions, or their gradients, with all kinds of windows.
func convClasses(codes ...op.Code) (all []shapeClass) {
	add := func(a op.Attr, x, w, y op.Shape) {
		n := len(w) - 2
		for _, c := range codes {
			a, types := convArguments(c, a, x, w, y)
			terms := map[op.Code]int{op.Conv: w[:n+1].Size(), op.ConvInputGrad: w[:n].Size() * w[n+1], op.ConvKernelGrad: y[:n+1].Size()}[c]
			all = append(all, shapeClass{c, a, types, terms})
		}
	}
	for r := 3; r <= 7; r++ { // words
		a := op.Attr{Stride: []int{1}, Dilation: []int{1}, Low: []int{r / 2}, High: []int{0}}
		add(a, op.Shape{2, 40, 18}, op.Shape{r, 18, 16 * (r - 2)}, op.Shape{2, 41 + r/2 - r, 16 * (r - 2)})
	}
	for _, s := range []struct{ batch, size, channels, window, outs, stride, dilation, pad, groups int }{
		{2, 12, 16, 1, 32, 1, 1, 0, 1}, {3, 8, 5, 8, 12, 1, 1, 0, 1}, {2, 14, 16, 3, 64, 1, 1, 1, 1}, {2, 14, 64, 3, 32, 1, 1, 0, 1},
		{2, 15, 32, 3, 32, 2, 1, 1, 1}, {2, 13, 8, 3, 24, 1, 2, 2, 1}, {2, 28, 1, 3, 32, 1, 1, 1, 1}, {2, 20, 3, 5, 32, 1, 1, 2, 1},
		{2, 16, 48, 3, 48, 1, 1, 1, 48}, {2, 12, 32, 3, 64, 1, 1, 1, 4}, {1, 10, 6, 3, 12, 2, 1, 1, 6}, {1, 9, 3, 2, 1, 1, 1, 0, 1},
		{3, 17, 37, 3, 5, 1, 1, 1, 1}, {2, 21, 21, 5, 3, 2, 1, 2, 1}, {1, 130, 10, 7, 2, 1, 1, 3, 1}, {40, 5, 9, 3, 2, 1, 1, 1, 1}, {1, 60, 7, 3, 17, 1, 2, 1, 1},
		{2, 14, 17, 3, 5, 1, 1, 1, 1}, {1, 12, 100, 3, 2, 1, 1, 1, 1}, {2, 21, 100, 3, 2, 2, 1, 1, 1}, {2, 15, 64, 7, 1, 3, 1, 0, 1},
		{2, 19, 4, 2, 33, 3, 1, 0, 1}, {9, 11, 66, 3, 29, 1, 1, 1, 1}, {1, 70, 1, 3, 1, 1, 1, 1, 1}, {1, 9, 2, 1, 40, 2, 1, 0, 1}, {2, 47, 9, 1, 3, 1, 1, 0, 1}, {3, 14, 35, 1, 20, 2, 1, 0, 1}, {2, 16, 35, 1, 20, 3, 1, 0, 1},
		{2, 9, 24, 5, 40, 1, 1, 0, 1}, {2, 40, 2, 3, 3, 1, 2, 2, 1}, {3, 37, 1, 5, 2, 1, 1, 2, 1},
	} {
		two := func(n int) []int { return []int{n, n} }
		a := op.Attr{Stride: two(s.stride), Dilation: two(s.dilation), Low: two(s.pad), High: two(s.pad), Groups: s.groups}
		out := (s.size+2*s.pad-(s.window-1)*s.dilation-1)/s.stride + 1
		x, w, y := op.Shape{s.batch, s.size, s.size, s.channels}, op.Shape{s.window, s.window, s.channels / s.groups, s.outs}, op.Shape{s.batch, out, out, s.outs}
		add(a, x, w, y)
	}
	return all
}

// poolClasses are poolings whose windows touch, overlap, or extend past the border.
func poolClasses() (all []shapeClass) {
	for _, s := range [][4]int{{2, 2, 0, 32}, {3, 2, 1, 40}, {3, 1, 0, 7}} {
		two := func(n int) []int { return []int{n, n} }
		a := op.Attr{Window: two(s[0]), Stride: two(s[1]), Dilation: two(1), Low: two(s[2]), High: two(s[2])}
		for _, c := range []op.Code{op.MaxPool, op.AvgPool} {
			all = append(all, shapeClass{c, a, [2]op.Shape{{2, 14, 14, s[3]}, nil}, 9})
		}
	}
	return all
}

// TestAlgorithms: every algorithm, on every class of shapes that it applies to, agrees
// with the last algorithm of its table in portable Go.
func TestAlgorithms(t *testing.T) {
	used := map[string]int{}
	families := map[string]struct {
		names   []string
		classes []shapeClass
	}{
		"matmul":    {product.Algorithms(), matMulClasses()},
		"conv":      {conv.Algorithms(), convClasses(op.Conv, op.ConvInputGrad)},
		"wgrad":     {conv.WgradAlgorithms(), convClasses(op.ConvKernelGrad)},
		"pool":      {pooling.Algorithms(), poolClasses()},
		"rnn":       {recurrent.Algorithms(), nil},        // TestScanColumns
		"attention": {attention.Algorithms(), nil},        // TestAttentionBlocks
		"int8":      {product.QuantizedAlgorithms(), nil}, // TestQuantizedAlgorithms
	}
	page, err := os.ReadFile("../../docs/debugging.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range backend.AlgorithmFamilies {
		if len(families[family].names) == 0 {
			t.Errorf("no table of %s", family)
		}
		for _, name := range append([]string{family}, families[family].names...) {
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/debugging.md does not name %s of %s", name, family)
			}
		}
	}
	compile := func(t *testing.T, c shapeClass, args []array) *Program {
		g := ir.New(len(args))
		var in []*ir.Value
		for i, x := range args {
			in = append(in, param(t, g, i, x.Type))
		}
		g.Output(record(t, g, c.code, c.attr, in...), -1)
		return plan(t, g)
	}
	isatest.ForEach(t, func(t *testing.T) {
		for family, f := range families {
			last := f.names[len(f.names)-1]
			for i, c := range f.classes {
				if isatest.Emulated() && testing.Short() && c.terms*c.types[0].Size() > 1<<20 {
					continue // the smaller ones have the same kernels
				}
				rng := rand.New(rand.NewPCG(71, uint64(i)))
				for _, d := range isatest.Floats() {
					if !isatest.InTurn(i + int(d)) {
						continue
					}
					var args []array
					for _, s := range c.types {
						if s != nil {
							args = append(args, randomArray(rng, d, s...))
						}
					}
					want := reference("last", c.code, c.attr, args, func() array {
						defer isa.Use(isa.Use(isa.Portable))
						restore := exec.Force(family, last)
						p := compile(t, c, args)
						restore()
						return runProcs(t, p, args, 1)
					}).values()
					for _, name := range f.names {
						restore := exec.Force(family, name)
						p := compile(t, c, args)
						restore()
						if got := p.choices[len(p.graph.Values)-1]; got.Algorithm != name || !slices.Equal(got.Reasons, []string{"forced"}) {
							continue // it does not apply
						}
						used[family+":"+name]++
						if s, ok := p.choices[len(p.graph.Values)-1].Kernel.(fmt.Stringer); ok && name == "taps" {
							used[s.String()]++
						}
						what := fmt.Sprintf("%s:%s of %v, %+v, %v", family, name, d, c.types, c.attr)
						// Terms are up to 4, and sums of them grow as the square root
						// of their number. Winograd's transforms lose two more bits.
						near(t, what, runProcs(t, p, args, 2), want, 16*math.Sqrt(float64(c.terms)))
					}
				}
			}
		}
	})
	for _, side := range []string{"the input", "the gradient"} {
		for _, to := range []string{"rows", "columns"} {
			if s := side + " expanded to " + to; used[s] == 0 && isa.Current() >= isa.AVX512 && !isatest.Emulated() {
				t.Errorf("no class of shapes is for wgrad:taps with %s", s)
			}
		}
	}
	for family, f := range families {
		for _, name := range f.names {
			set := gemm.Current()
			if len(f.classes) > 0 && used[family+":"+name] == 0 && !(name == "amx" && (set == nil || set.Panels == nil)) && isa.Current() >= isa.AVX512 && !isatest.Emulated() {
				t.Errorf("no class of shapes is for %s:%s", family, name)
			}
		}
	}
}

// TestPortableAlgorithms: with portable bits, algorithms that add up the products of a window one
// after the other have the same bits, so each level may have another one of them.
func TestPortableAlgorithms(t *testing.T) {
	defer backend.SetBits(backend.SetBits(backend.PortableBits))
	classes := convClasses(op.Conv, op.ConvInputGrad)
	ones := []int{1, 1}
	for _, s := range [][2]int{{130, 3}, {3, 130}, {64, 48}, {1100, 2}, {2, 1100}} { // sums in several slices
		a := op.Attr{Stride: ones, Dilation: ones, Low: ones, High: ones}
		x, w, y := op.Shape{3, 9, 11, s[0]}, op.Shape{3, 3, s[0], s[1]}, op.Shape{3, 9, 11, s[1]}
		for _, c := range []op.Code{op.Conv, op.ConvInputGrad} {
			a, types := convArguments(c, a, x, w, y)
			classes = append(classes, shapeClass{c, a, types, 9 * s[0]})
		}
	}
	used := map[string]int{}
	isatest.ForEach(t, func(t *testing.T) {
		for i, c := range classes {
			if isatest.Emulated() && testing.Short() && c.terms*c.types[0].Size() > 1<<20 {
				continue
			}
			rng := rand.New(rand.NewPCG(72, uint64(i)))
			for _, d := range isatest.Floats() {
				if !isatest.InTurn(i + int(d)) {
					continue
				}
				var args []array
				for _, s := range c.types { // weights that are not finite make NaN of padding
					at := s.Size() / 2
					args = append(args, arrayOf(d, s, func(i int) float64 {
						if i == at && len(args) == 1 {
							return math.Inf(1)
						}
						return []float64{rng.NormFloat64(), rng.NormFloat64(), math.Copysign(0, -1)}[i%3]
					}))
				}
				var want array
				for _, name := range []string{"implicit", "border", "small-channel", "planes"} {
					g := ir.New(2)
					g.Output(record(t, g, c.code, c.attr, param(t, g, 0, args[0].Type), param(t, g, 1, args[1].Type)), -1)
					restore := exec.Force("conv", name)
					p := plan(t, g)
					restore()
					if p.choices[len(p.graph.Values)-1].Algorithm != name {
						continue // it does not apply
					}
					used[name]++
					got := runProcs(t, p, args, 2)
					if name == "implicit" {
						want = got
						continue
					}
					x, y := want.values(), got.values()
					for i := range x {
						if math.Float64bits(x[i]) != math.Float64bits(y[i]) && (x[i] == x[i] || y[i] == y[i]) {
							t.Fatalf("%s of %v, %+v, %v: element %d is %v, %v by implicit", name, d, c.types, c.attr, i, y[i], x[i])
						}
					}
				}
			}
		}
	})
	if s := gemm.Products(); s != nil && s.F32.RowRuns != nil && (used["border"] == 0 || used["planes"] == 0) {
		t.Errorf("algorithms compared: %v", used)
	}
}
