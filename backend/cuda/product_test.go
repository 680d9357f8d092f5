//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/cublaslt"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// graph records operations.
type graph struct {
	*ir.Graph
	t      *testing.T
	params []op.Type
}

func newGraph(t *testing.T) *graph { return &graph{Graph: ir.New(8), t: t} }

func (g *graph) add(c op.Code, a op.Attr, args ...*ir.Value) *ir.Value {
	types := make([]op.Type, len(args))
	for i, x := range args {
		types[i] = x.Type
	}
	out, err := op.Infer(c, a, types...)
	if err != nil {
		g.t.Fatal(err)
	}
	return g.Add(c, a, out, "test", args...)
}

func (g *graph) param(d dtype.DType, shape ...int) *ir.Value {
	g.params = append(g.params, op.Type{DType: d, Shape: shape})
	return g.add(op.Param, op.Attr{Index: len(g.params) - 1, Dims: shape, DType: d})
}

// run compiles the graph, whose inputs are numbers, runs it twice, the second
// time from a captured graph, and returns the outputs with the names of the
// kernels called.
func (g *graph) run(d *Device, o ir.Options, in [][]float64, outs ...*ir.Value) ([][]float64, []string) {
	t := g.t
	g.Params = g.Params[:len(in)]
	for _, v := range outs {
		g.Output(v, -1)
	}
	var types []op.Type
	for _, v := range outs {
		types = append(types, v.Type)
	}
	o.Packs = func(c op.Code) bool { return !d.SplitsResults(c) } // as backend.Compile does
	if err := ir.Optimize(g.Graph, o); err != nil {
		t.Fatal(err)
	}
	program, err := d.Compile(t.Context(), g.Graph)
	if err != nil {
		t.Fatal(err)
	}
	p := program.(*Program)
	defer p.Close()
	buffer := func(data []byte) driver.Buffer {
		b, err := d.Alloc(len(data))
		if err == nil {
			err = b.CopyIn(data)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var inputs, outputs []driver.Buffer
	for i, x := range in {
		data := make([]byte, g.params[i].Bytes())
		dtype.FromF64(data, x, g.params[i].DType)
		inputs = append(inputs, buffer(data))
	}
	for _, ty := range types {
		outputs = append(outputs, buffer(make([]byte, ty.Bytes())))
	}
	var results [2][][]float64
	for i := range results {
		if err := p.Run(context.Background(), inputs, outputs); err != nil {
			t.Fatal(err)
		}
		for k, ty := range types {
			data, x := make([]byte, ty.Bytes()), make([]float64, ty.Shape.Size())
			if err := outputs[k].CopyOut(data); err != nil {
				t.Fatal(err)
			}
			dtype.ToF64(x, data, ty.DType)
			results[i] = append(results[i], x)
		}
	}
	for k := range results[0] {
		for i, x := range results[0][k] {
			if y := results[1][k][i]; math.Float64bits(x) != math.Float64bits(y) {
				t.Fatalf("output %d: element %d is %v when called and %v from a captured graph", k, i, x, y)
			}
		}
	}
	for _, b := range append(inputs, outputs...) {
		b.Free()
	}
	return results[0], p.names
}

// numbers are n numbers of a type, of both signs.
func numbers(r *rand.Rand, d dtype.DType, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.Float64()*2 - 1
	}
	data := make([]byte, n*d.Size())
	dtype.FromF64(data, x, d)
	dtype.ToF64(x, data, d)
	return x
}

// matrix is the reference: products of [batch m k] and [batch k n], with the
// magnitude of their terms.
func matrix(a, b []float64, batch, m, n, k int, transA, transB, oneB bool) (sum, magnitude []float64) {
	for z := range batch {
		for i := range m {
			for j := range n {
				s, g := 0.0, 0.0
				for l := range k {
					ai, bi := z*m*k+i*k+l, z*k*n+l*n+j
					if transA {
						ai = z*m*k + l*m + i
					}
					if transB {
						bi = z*k*n + j*k + l
					}
					if oneB {
						bi -= z * k * n
					}
					s += a[ai] * b[bi]
					g += math.Abs(a[ai] * b[bi])
				}
				sum, magnitude = append(sum, s), append(magnitude, g)
			}
		}
	}
	return sum, magnitude
}

// what may follow a product of a type, in a test.
var followings = []string{"", "bias", "relu", "bias relu", "mask", "scaled"}

// TestProduct: products of every layout with all that may follow them, by the
// library where there is one, are those of float64 within the tolerance of
// their type; passes do not matter.
func TestProduct(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite has products, too")
	}
	d := open(t)
	defer d.Close()
	for _, exact := range []bool{true, false} {
		d.settings = settings{tf32: !exact, epilogue: !exact, autotune: true}
		for _, dt := range dtype.Floats() {
			for _, s := range []struct {
				batch, m, n, k       int
				transA, transB, oneB bool
			}{
				{1, 33, 17, 65, false, false, false}, {1, 33, 17, 65, true, false, false},
				{1, 16, 24, 40, false, true, false}, {1, 7, 3, 1, true, true, false},
				{3, 5, 8, 6, false, false, false}, {3, 5, 7, 6, true, true, false}, {4, 6, 10, 9, false, true, true},
				{2, 5, 8, 6, true, false, true}, {1, 140, 150, 70, false, false, false}, {1, 20, 12, 2000, true, false, false},
			} {
				for _, f := range followings {
					t.Run(fmt.Sprintf("exact=%v/%v/%+v/%s", exact, dt, s, f), func(t *testing.T) {
						testProduct(t, d, dt, s.batch, s.m, s.n, s.k, s.transA, s.transB, s.oneB, f)
					})
				}
			}
		}
	}
}

func testProduct(t *testing.T, d *Device, dt dtype.DType, batch, m, n, k int, transA, transB, oneB bool, follows string) {
	r := rand.New(rand.NewPCG(uint64(m), uint64(len(follows))))
	g := newGraph(t)
	shape := func(rows, columns int, transposed, one bool) []int {
		if transposed {
			rows, columns = columns, rows
		}
		if batch == 1 || one {
			return []int{rows, columns}
		}
		return []int{batch, rows, columns}
	}
	a := g.param(dt, shape(m, k, transA, false)...)
	b := g.param(dt, shape(k, n, transB, oneB)...)
	y := g.add(op.MatMul, op.Attr{TransA: transA, TransB: transB}, a, b)
	in := [][]float64{numbers(r, dt, a.Type.Shape.Size()), numbers(r, dt, b.Type.Shape.Size())}
	want, tolerance := matrix(in[0], in[1], batch, m, n, k, transA, transB, oneB)
	eps := map[dtype.DType]float64{dtype.Float64: 0x1p-53, dtype.Float32: 0x1p-24, dtype.Float16: 0x1p-11, dtype.BFloat16: 0x1p-8}[dt]
	for i := range tolerance {
		// sums of k terms, each rounded, of operands that TF32 rounds to 11 bits
		acc := min(eps, 0x1p-24) * float64(k+2)
		if dt == dtype.Float32 && d.tf32() {
			acc += 0x1p-10
		}
		tolerance[i] = tolerance[i]*acc + eps*math.Abs(want[i]) + 0x1p-24*eps
	}
	relu := func() {
		y = g.add(op.Relu, op.Attr{}, y)
		for i := range want {
			want[i] = max(0, want[i])
		}
	}
	switch follows {
	case "bias", "bias relu":
		x := g.param(dt, n)
		y = g.add(op.Add, op.Attr{}, y, x)
		in = append(in, numbers(r, dt, n))
		for i := range want {
			want[i] += in[2][i%n]
			tolerance[i] += eps * (math.Abs(want[i]) + math.Abs(in[2][i%n]))
		}
		if follows != "bias" {
			relu()
		}
	case "relu":
		relu()
	case "mask": // the gradient of relu
		x := g.param(dt, y.Type.Shape...)
		zero := g.add(op.Const, op.Attr{DType: dt})
		y = g.add(op.Where, op.Attr{}, g.add(op.Greater, op.Attr{}, x, zero), y, zero)
		in = append(in, numbers(r, dt, len(want)))
		for i := range want {
			if in[2][i] <= 0 {
				want[i], tolerance[i] = 0, 0
			}
		}
	case "scaled": // in another type
		x := g.param(dtype.Float32)
		y = g.add(op.Div, op.Attr{}, g.add(op.Cast, op.Attr{DType: dtype.Float32}, y), x)
		in = append(in, []float64{4})
		for i := range want {
			want[i] /= 4
		}
		if eps < 0x1p-24 { // float64 rounded to float32
			for i := range want {
				tolerance[i] += 0x1p-24 * math.Abs(want[i])
			}
		}
	}
	got, names := g.run(d, ir.Options{Check: true}, in, y)
	for i, x := range got[0] {
		if !(math.Abs(x-want[i]) <= tolerance[i]) {
			t.Fatalf("element %d: got %v, want %v ± %v (kernels %v)", i, x, want[i], tolerance[i], names)
		}
	}
	library := slices.Contains(names, "cublasLtMatmul")
	if has := d.lt.handle != nil; library != has {
		unexpected(t, "kernels %v, want the library: %v", names, has)
	}
	if how, _ := d.arithmetic(dt); !library && !strings.HasPrefix(names[0], "matmul_"+how+"_") {
		unexpected(t, "kernels %v, want the arithmetic %s", names, how)
	}
	inside := follows == "bias" || follows == "relu" || follows == "bias relu"
	if library && inside && (d.settings.epilogue || !dt.Is16() || follows == "relu") && len(names) != 1 {
		unexpected(t, "kernels %v, want a call of the library alone", names)
	}
}

// TestReluKeepsNaN: an algorithm that turns NaNs into zeros is not chosen.
func TestReluKeepsNaN(t *testing.T) {
	d := open(t)
	defer d.Close()
	g := newGraph(t)
	x, w := g.param(dtype.Float32, 3, 4), g.param(dtype.Float32, 4, 8)
	in := [][]float64{numbers(rand.New(rand.NewPCG(1, 2)), dtype.Float32, 12), numbers(rand.New(rand.NewPCG(3, 4)), dtype.Float32, 32)}
	in[0][5] = math.NaN()
	got, _ := g.run(d, ir.Options{}, in, g.add(op.Relu, op.Attr{}, g.add(op.MatMul, op.Attr{}, x, w)))
	for i, y := range got[0] {
		if (y != y) != (i/8 == 1) {
			t.Errorf("element %d is %v", i, y)
		}
	}
}

// TestReluOfMaximum: where every algorithm turns NaNs into zeros, the library still adds
// the bias, and a kernel follows it.
func TestReluOfMaximum(t *testing.T) {
	if os.Getenv("FAKECUDA_RELU") == "" {
		fakeOnly(t)
		again(t, "TestReluOfMaximum", "FAKECUDA_RELU=max")
		return
	}
	d := open(t)
	defer d.Close()
	d.settings.epilogue = true
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Float16} {
		g := newGraph(t)
		x, w, bias := g.param(dt, 3, 8), g.param(dt, 8, 8), g.param(dt, 8)
		var in [][]float64
		for i, n := range []int{24, 64, 8} {
			in = append(in, numbers(rand.New(rand.NewPCG(1, uint64(i))), dt, n))
		}
		in[0][9] = math.NaN()
		got, names := g.run(d, ir.Options{}, in, g.add(op.Relu, op.Attr{}, g.add(op.Add, op.Attr{}, g.add(op.MatMul, op.Attr{}, x, w), bias)))
		if !slices.Equal(names, []string{"cublasLtMatmul", "chain_0"}) {
			t.Errorf("kernels %v, want a product and a chain", names)
		}
		sums, _ := matrix(in[0], in[1], 1, 3, 8, 8, false, false, false)
		for i, y := range got[0] {
			want := max(0, sums[i]+in[2][i%8]) // max keeps NaN
			if (y != y) != (want != want) || math.Abs(y-want) > 0x1p-9*(1+math.Abs(want)) {
				t.Errorf("%v: element %d is %v, want %v", dt, i, y, want)
			}
		}
	}
	added := 0
	for p, m := range d.lt.chosen {
		if p.Bias && m != nil {
			added++
			if p.Activation != cublaslt.NoActivation {
				t.Errorf("%+v is computed by the library", p)
			}
		}
	}
	if added != 2 {
		t.Errorf("the library adds %d biases, want 2", added)
	}
}

// TestOwnProducts runs the suite's contractions without the library, with the
// threads of a block in other orders, and as on a GPU whose Tensor Cores are
// not used.
func TestOwnProducts(t *testing.T) {
	fakeOnly(t)
	if os.Getenv("MEZZO_CUDA_LIBS") == "-" {
		t.Skip("runs itself without the library")
	}
	t.Parallel()
	products := "^(TestProduct|TestReluKeepsNaN|TestConformance)$/^(exact.*|MatMul|Training)$"
	for _, c := range []struct{ name, tests, env string }{
		{"short", "TestConvolution|TestReluKeepsNaN|TestConformance/^(Sum|Softmax|MatMul|Conv|Max|ScatterAdd|Unique|Training)", "FAKECUDA_ORDER=2"},
		{"order 0", products, "FAKECUDA_ORDER=0"},
		{"order 1", "^(TestProduct|TestConvolution)$", "FAKECUDA_ORDER=1"},
		{"order 2", "^(TestProduct|TestConvolution)$", "FAKECUDA_ORDER=2"},
		{"old GPU", "^(TestProduct|TestConvolution)$", "FAKECUDA_CAPABILITY=75"},
	} {
		if testing.Short() != (c.name == "short") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run="+c.tests, fmt.Sprint("-test.short=", testing.Short()))
			cmd.Env = append(os.Environ(), "MEZZO_CUDA_LIBS=-", "MEZZO_CUDA_TEST=gpu", c.env)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestSettings: a setting that is neither 0 nor 1 is an error that names it.
func TestSettings(t *testing.T) {
	t.Setenv("MEZZO_TF32", "yes")
	if _, err := readSettings(); err == nil || err.Error() != `cuda: MEZZO_TF32: got "yes", want 0 or 1` {
		t.Errorf("got %v", err)
	}
}

// TestAddedProduct: a matrix is added to a product by the library, which rounds once; where
// every operation has to round, and where the matrix is another one of its size, by a chain.
func TestAddedProduct(t *testing.T) {
	d := open(t)
	defer d.Close()
	if d.lt.handle == nil {
		lacks(t, d.lt.missing)
	}
	const m, k, n = 8, 24, 16
	for _, c := range []struct {
		dtype    dtype.DType
		epilogue bool
		alone    bool // a call of the library alone
	}{{dtype.Float16, true, true}, {dtype.Float16, false, false}, {dtype.Float32, false, true}} {
		d.settings.epilogue = c.epilogue
		r := rand.New(rand.NewPCG(7, 8))
		x, y, z := numbers(r, c.dtype, m*k), numbers(r, c.dtype, k*n), numbers(r, c.dtype, m*n)
		g := newGraph(t)
		a, w, residual := g.param(c.dtype, m, k), g.param(c.dtype, k, n), g.param(c.dtype, m, n)
		sum := g.add(op.Add, op.Attr{}, residual, g.add(op.MatMul, op.Attr{DType: c.dtype}, a, w))
		got, names := g.run(d, ir.Options{}, [][]float64{x, y, z}, sum)
		if alone := slices.Equal(names, []string{"cublasLtMatmul"}); alone != c.alone {
			unexpected(t, "%v: kernels %v", c, names)
		}
		eps := 0x1p-20
		if c.dtype.Is16() {
			eps = 0x1p-9
		}
		for i := range m {
			for j := range n {
				want := z[i*n+j]
				for l := range k {
					want += x[i*k+l] * y[l*n+j]
				}
				if y := got[0][i*n+j]; math.Abs(y-want) > eps*k {
					t.Fatalf("%v: element %d %d is %v, want %v", c, i, j, y, want)
				}
			}
		}
	}
}
