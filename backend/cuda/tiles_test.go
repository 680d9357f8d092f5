//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/driver"
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

// float64s computes a graph of float64 on the CPU.
func (g *graph) float64s(in [][]float64, y *ir.Value) []float64 {
	g.Params = g.Params[:len(in)]
	n := y.Type.Shape.Size()
	g.Output(y, -1)
	d := cpu.New()
	p, _, err := backend.Compile(d, g.Graph, ir.Options{})
	if err != nil {
		g.t.Fatal(err)
	}
	var buffers []driver.Buffer
	for _, x := range append(in, make([]float64, n)) {
		data := make([]byte, 8*len(x))
		dtype.FromF64(data, x, dtype.Float64)
		b, err := d.Alloc(len(data))
		if err == nil {
			err = b.CopyIn(data)
		}
		if err != nil {
			g.t.Fatal(err)
		}
		buffers = append(buffers, b)
	}
	last := len(buffers) - 1
	if err := p.Run(context.Background(), buffers[:last], buffers[last:]); err != nil {
		g.t.Fatal(err)
	}
	data, x := make([]byte, 8*n), make([]float64, n)
	if err := buffers[last].CopyOut(data); err != nil {
		g.t.Fatal(err)
	}
	dtype.ToF64(x, data, dtype.Float64)
	return x
}

// TestConvolution: convolutions and their gradients, alone and with a bias and
// ReLU, in float32 and as TF32, are those of the CPU in float64 within the
// tolerance of their type.
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
							testConvolution(t, d, c, code, dt, follows)
						})
					}
				}
			}
		}
	}
}

func testConvolution(t *testing.T, d *Device, c convolution, code op.Code, dt dtype.DType, follows string) {
	r := rand.New(rand.NewPCG(uint64(len(c.name)), uint64(code)))
	g, y := c.graph(t, code, dt, follows)
	var in, magnitudes [][]float64
	for _, p := range g.params {
		x := numbers(r, dt, p.Shape.Size())
		in = append(in, x)
		m := make([]float64, len(x))
		for i := range m {
			m[i] = math.Abs(x[i])
		}
		magnitudes = append(magnitudes, m)
	}
	wide := func(in [][]float64) []float64 {
		g, y := c.graph(t, code, dtype.Float64, follows)
		return g.float64s(in, y)
	}
	want, magnitude := wide(in), wide(magnitudes)
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
}
