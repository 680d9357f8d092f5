//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// convolution is a case of TestConvolution.
type convolution struct {
	name                      string
	x, w                      op.Shape
	stride, dilation, padding int
	groups                    int
}

// Channels are multiples of 8, of 4 and of nothing, for copies of every width.
var convolutions = []convolution{
	{name: "sequence", x: op.Shape{2, 19, 8}, w: op.Shape{3, 8, 12}, stride: 1, dilation: 2, padding: 2, groups: 1},
	{name: "image", x: op.Shape{4, 20, 21, 12}, w: op.Shape{3, 3, 12, 20}, stride: 1, dilation: 1, padding: 1, groups: 1},
	{name: "odd", x: op.Shape{2, 9, 8, 3}, w: op.Shape{3, 2, 3, 7}, stride: 2, dilation: 1, padding: 1, groups: 1},
	{name: "groups", x: op.Shape{2, 7, 6, 32}, w: op.Shape{3, 3, 16, 16}, stride: 2, dilation: 1, padding: 0, groups: 2},
	{name: "few", x: op.Shape{2, 7, 6, 6}, w: op.Shape{3, 3, 1, 6}, stride: 1, dilation: 1, padding: 1, groups: 6},
	{name: "cube", x: op.Shape{1, 5, 4, 6, 10}, w: op.Shape{2, 3, 2, 10, 9}, stride: 2, dilation: 1, padding: 1, groups: 1},
}

// graph records the convolution or a gradient of it on a type, and what
// follows; it returns the kinds of its inputs too: x, kernels or gradient, then bias.
func (c convolution) graph(t *testing.T, code op.Code, d dtype.DType, follows string) (*graph, *ir.Value) {
	g := newGraph(t)
	n := len(c.x) - 2
	list := func(v int) []int {
		l := make([]int, n)
		for i := range l {
			l[i] = v
		}
		return l
	}
	a := op.Attr{Stride: list(c.stride), Dilation: list(c.dilation), Low: list(c.padding), High: list(c.padding), Groups: c.groups}
	out, err := op.Infer(op.Conv, a, op.Type{DType: d, Shape: c.x}, op.Type{DType: d, Shape: c.w})
	if err != nil {
		t.Fatal(err)
	}
	first, second := c.x, c.w
	switch code {
	case op.ConvInputGrad:
		first, a.Dims = out.Shape, c.x
	case op.ConvKernelGrad:
		second, a.Dims = out.Shape, c.w
	}
	y := g.add(code, a, g.param(d, first...), g.param(d, second...))
	if follows == "bias relu" {
		y = g.add(op.Relu, op.Attr{}, g.add(op.Add, op.Attr{}, y, g.param(d, y.Type.Shape[n+1])))
	}
	return g, y
}

// reference computes the convolution or a gradient of it: what each element of
// the input, the kernels and the result have to do with each other is the same
// for all three. magnitude sums up the sizes of the terms.
func (c convolution) reference(code op.Code, out op.Shape, first, second []float64) (sum, magnitude []float64) {
	three := func(s op.Shape) [3]int { // the axes in space
		r := [3]int{1, 1, 1}
		copy(r[3-(len(s)-2):], s[1:len(s)-1])
		return r
	}
	i, o, w := three(c.x), three(out), three(append(op.Shape{1}, c.w[:len(c.w)-1]...))
	channels, features := c.x[len(c.x)-1], out[len(out)-1]
	cg, og := channels/c.groups, features/c.groups
	size := map[op.Code]int{op.Conv: out.Size(), op.ConvInputGrad: c.x.Size(), op.ConvKernelGrad: c.w.Size()}[code]
	sum, magnitude = make([]float64, size), make([]float64, size)
	for position := range c.x[0] * o[0] * o[1] * o[2] {
		for tap := range w[0] * w[1] * w[2] {
			at, q, t := 0, position, tap
			in := [3]int{}
			inside := true
			for d := 2; d >= 0; d-- {
				in[d] = q%o[d]*c.stride + t%w[d]*c.dilation - c.padding
				if 3-d > len(c.x)-2 { // an axis that the case has not
					in[d] = 0
				}
				inside = inside && in[d] >= 0 && in[d] < i[d]
				q, t = q/o[d], t/w[d]
			}
			if !inside {
				continue
			}
			at = ((q*i[0]+in[0])*i[1]+in[1])*i[2] + in[2]
			for k := range features {
				for l := range cg {
					xi, wi, yi := at*channels+k/og*cg+l, (tap*cg+l)*features+k, position*features+k
					var product float64
					to := 0
					switch code {
					case op.Conv:
						product, to = first[xi]*second[wi], yi
					case op.ConvInputGrad:
						product, to = first[yi]*second[wi], xi
					case op.ConvKernelGrad:
						product, to = first[xi]*second[yi], wi
					}
					sum[to] += product
					magnitude[to] += math.Abs(product)
				}
			}
		}
	}
	return sum, magnitude
}

// TestConvolution: convolutions and their gradients by our own kernels, alone and with a bias and
// ReLU, in float32 and as TF32, are those of float64 within the tolerance of
// their type.
func TestConvolution(t *testing.T) {
	d := open(t)
	defer d.Close()
	for _, exact := range []bool{true, false} {
		d.settings = settings{tf32: !exact}
		for _, dt := range dtype.Floats() {
			if testing.Short() && (exact || dt != dtype.Float32) {
				continue // the suite has those
			}
			for _, c := range convolutions {
				for _, code := range []op.Code{op.Conv, op.ConvInputGrad, op.ConvKernelGrad} {
					for _, follows := range []string{"", "bias relu"} {
						t.Run(fmt.Sprintf("exact=%v/%v/%v/%s/%s", exact, dt, code, c.name, follows), func(t *testing.T) {
							names := testConvolution(t, d, c, code, dt, follows)
							how, _ := d.arithmetic(dt)
							kernel := "_" + how + "_" + dt.String()
							if c.name == "few" {
								kernel, how = "_"+dt.String(), "direct"
							}
							if !strings.HasSuffix(names[0], kernel) || how == "direct" && !strings.HasPrefix(names[0], how) {
								t.Errorf("kernels %v, want %s", names, kernel)
							}
							if follows != "" && how != "direct" && len(names) != 1 && !strings.Contains(names[1], "reduce") {
								t.Errorf("kernels %v, want one", names)
							}
						})
					}
				}
			}
		}
	}
}

// testConvolution compares a convolution with the reference, and returns the
// names of the kernels that computed it.
func testConvolution(t *testing.T, d *Device, c convolution, code op.Code, dt dtype.DType, follows string) []string {
	r := rand.New(rand.NewPCG(uint64(len(c.name)), uint64(code)))
	g, y := c.graph(t, code, dt, follows)
	var in [][]float64
	for _, p := range g.params {
		in = append(in, numbers(r, dt, p.Shape.Size()))
	}
	result := map[op.Code]op.Shape{op.Conv: y.Type.Shape, op.ConvInputGrad: g.params[0].Shape, op.ConvKernelGrad: g.params[1].Shape}[code]
	want, magnitude := c.reference(code, result, in[0], in[1])
	if follows != "" {
		for i := range want {
			b := in[2][i%len(in[2])]
			want[i], magnitude[i] = max(0, want[i]+b), magnitude[i]+math.Abs(b)
		}
	}
	eps := map[dtype.DType]float64{dtype.Float64: 0x1p-53, dtype.Float32: 0x1p-24, dtype.Float16: 0x1p-11, dtype.BFloat16: 0x1p-8}[dt]
	terms := 1 // that a sum has at most
	for _, p := range g.params {
		terms = max(terms, p.Shape.Size())
	}
	sums := min(eps, 0x1p-24) * float64(terms+2)
	if dt == dtype.Float32 && d.tf32() {
		sums += 0x1p-10 // two operands rounded to 11 bits
	}
	got, names := g.run(d, ir.Options{Check: true}, in, y)
	for i, x := range got[0] {
		if tolerance := magnitude[i] * (sums + 3*eps); !(math.Abs(x-want[i]) <= tolerance) {
			t.Fatalf("element %d: got %v, want %v ± %v (kernels %v)", i, x, want[i], tolerance, names)
		}
	}
	return names
}
