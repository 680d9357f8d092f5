//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestTogether: the norms of several gradients are one launch and another that
// adds up their parts, and updates are one launch for those whose elements are
// taken four at a time and one for the others; each variable gets its own.
func TestTogether(t *testing.T) {
	d := open(t)
	defer d.Close()
	sizes := []int{5, 1028, 3, 8, 9000}
	g := &graph{Graph: ir.New(1 + 2*len(sizes)), t: t}
	rate := g.param(dtype.Float32)
	var variables, gradients []*ir.Value
	for _, n := range sizes {
		variables, gradients = append(variables, g.param(dtype.Float32, n)), append(gradients, g.param(dtype.Float32, n))
	}
	var norm *ir.Value
	for i, x := range gradients {
		// The index of the largest element keeps the chains of different gradients
		// apart, as products do in a model.
		largest := g.add(op.Cast, op.Attr{DType: dtype.Float32}, g.add(op.ArgMax, op.Attr{Axes: []int{0}}, x))
		gradients[i] = g.add(op.Add, op.Attr{}, x, largest)
		s := g.add(op.SumSquares, op.Attr{}, gradients[i])
		if norm != nil {
			s = g.add(op.Add, op.Attr{}, norm, s)
		}
		norm = s
	}
	rate = g.add(op.Div, op.Attr{}, rate, g.add(op.Sqrt, op.Attr{}, norm))
	for i, w := range variables {
		g.Output(g.add(op.Sub, op.Attr{}, w, g.add(op.Mul, op.Attr{}, gradients[i], rate)), 1+2*i)
	}
	if err := ir.Optimize(g.Graph, ir.Options{Check: true}); err != nil {
		t.Fatal(err)
	}
	program, err := d.Compile(t.Context(), g.Graph)
	if err != nil {
		t.Fatal(err)
	}
	p := program.(*Program)
	defer p.Close()
	folds := slices.DeleteFunc(slices.Clone(p.names), func(name string) bool { return !strings.HasPrefix(name, "fold_") })
	if !slices.Equal(folds, []string{"fold_arrays", "fold_parts"}) {
		t.Errorf("kernels %v, want one fold_arrays and one fold_parts", p.names)
	}
	// The chain of the rate, then the two updates.
	if n := len(p.names); p.names[n-4] != "fold_parts" || !strings.HasPrefix(p.names[n-1], "chain") {
		t.Errorf("kernels %v, want three behind the folds", p.names)
	}

	var in, out []driver.Buffer
	buffer := func(x []float64) driver.Buffer {
		data := make([]byte, 4*len(x))
		dtype.FromF64(data, x, dtype.Float32)
		b, err := d.Alloc(len(data))
		if err == nil {
			err = b.CopyIn(data)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Free() })
		return b
	}
	in = append(in, buffer([]float64{0.5}))
	var values, by [][]float64
	squares := 0.0
	for k, n := range sizes {
		w, x := make([]float64, n), make([]float64, n)
		for i := range n {
			w[i], x[i] = float64(i%7+k), float64(i%5)-2
		}
		by = append(by, slices.Clone(x))
		for i := range n { // the largest one comes at 4, or last
			by[k][i] += float64(min(4, n-1))
			squares += by[k][i] * by[k][i]
		}
		values = append(values, w)
		in = append(in, buffer(w), buffer(x))
		out = append(out, in[len(in)-2])
	}
	for range 2 {
		if err := p.Run(context.Background(), in, out); err != nil {
			t.Fatal(err)
		}
	}
	for k, n := range sizes {
		data, got := make([]byte, 4*n), make([]float64, n)
		if err := out[k].CopyOut(data); err != nil {
			t.Fatal(err)
		}
		dtype.ToF64(got, data, dtype.Float32)
		for i, x := range got {
			// Two updates; sums of squares of small integers are exact.
			want := values[k][i] - 2*0.5/math.Sqrt(squares)*by[k][i]
			if math.Abs(x-want) > 0x1p-21*(math.Abs(values[k][i])+1) {
				t.Fatalf("variable %d of %d elements: element %d is %v, want %v", k, n, i, x, want)
			}
		}
	}
}

// TestWaiting: sums over the rows of matrices are one launch, with those of a layer
// normalization, whose gradient by its input is stored in 16 bits by the kernel that
// computes it; the masks of several layers are another; and no bit is another one than of a
// plan that shows every value, in which nothing waits.
func TestWaiting(t *testing.T) {
	d := open(t)
	defer d.Close()
	const columns = 40
	rows := []int{300, 40, 12} // with 16, 8 threads and one for each column
	r := rand.New(rand.NewPCG(3, 4))
	var in [][]float64
	for _, n := range rows {
		in = append(in, numbers(r, dtype.Float16, n*columns))
	}
	in = append(in, numbers(r, dtype.Float32, columns), []float64{1, 2}, []float64{3, 4})
	build := func() (*graph, []*ir.Value) {
		g := newGraph(t)
		var sum *ir.Value
		add := func(x *ir.Value) {
			if sum != nil {
				x = g.add(op.Add, op.Attr{}, sum, x)
			}
			sum = x
		}
		var x []*ir.Value
		for _, n := range rows {
			x = append(x, g.param(dtype.Float16, n, columns))
		}
		gain, states := g.param(dtype.Float32, columns), []*ir.Value{g.param(dtype.Int64, 2), g.param(dtype.Int64, 2)}
		for _, x := range x {
			square := g.add(op.Mul, op.Attr{}, x, x)
			add(g.add(op.Sum, op.Attr{Axes: []int{0}, DType: dtype.Float32}, square))
		}
		normal := g.add(op.LayerNormGrad, op.Attr{Epsilon: 1e-3}, x[0], gain, g.add(op.Neg, op.Attr{}, x[0]))
		n := rows[0] * columns
		add(g.add(op.Result, op.Attr{Start: []int{n}, Dims: op.Shape{columns}}, normal))
		add(g.add(op.Result, op.Attr{Start: []int{n + columns}, Dims: op.Shape{columns}}, normal))
		y := g.add(op.Cast, op.Attr{DType: dtype.Float16}, g.add(op.Result, op.Attr{Dims: op.Shape{rows[0], columns}, Start: []int{0}}, normal))
		bound := g.add(op.Const, op.Attr{DType: dtype.Float32, Value: 0.3, Dims: op.Shape{}})
		zero := g.add(op.Const, op.Attr{DType: dtype.Float16, Dims: op.Shape{}})
		var masks []*ir.Value
		for i, s := range states {
			u := g.add(op.RandomUniform, op.Attr{Dims: op.Shape{rows[0], columns}, Bits: 16, Stream: uint64(i)}, s)
			masks = append(masks, g.add(op.GreaterEqual, op.Attr{}, u, bound))
		}
		// Both are read twice, as in a layer and in its gradient.
		y = g.add(op.Where, op.Attr{}, masks[0], g.add(op.Where, op.Attr{}, masks[1], y, zero), zero)
		flat := func(m *ir.Value) *ir.Value { return g.add(op.Reshape, op.Attr{Dims: op.Shape{n}}, m) }
		both := g.add(op.Cast, op.Attr{DType: dtype.Float32}, g.add(op.And, op.Attr{}, flat(masks[0]), flat(masks[1])))
		add(g.add(op.Sum, op.Attr{Axes: []int{0}}, g.add(op.Reshape, op.Attr{Dims: op.Shape{rows[0], columns}}, both)))
		return g, []*ir.Value{g.add(op.Neg, op.Attr{}, sum), g.add(op.Neg, op.Attr{}, y)}
	}
	g, outs := build()
	// In this small program arrays would share memory and wait for no others.
	got, names := g.run(d, ir.Options{Check: true, Skip: []string{"share", "multioutput"}}, in, outs...)
	for _, kernel := range []string{"reduce_columns", "random_masks", "normalize_grad_float16_float16"} {
		if n := len(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name != kernel })); n != 1 {
			t.Errorf("%d launches of %s, want 1: %v", n, kernel, names)
		}
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "reduce_thread") }) {
		t.Errorf("a sum alone: %v", names)
	}
	g, outs = build()
	want, _ := g.run(d, ir.Options{Check: true, Watch: true}, in, outs...)
	for k := range want {
		for i, x := range want[k] {
			if y := got[k][i]; x != y {
				t.Fatalf("result %d: element %d is %v, and %v in a plan that shows every value", k, i, y, x)
			}
		}
	}
}

// TestDroppedSum: a layer normalization computes the sum of a residual and of what dropout
// leaves that is its operand, and its gradient what dropout leaves of it, with the bits of
// the chains that a plan has that shows every value.
func TestDroppedSum(t *testing.T) {
	d := open(t)
	defer d.Close()
	for _, c := range []struct {
		dtype   dtype.DType
		n       int
		product bool // with a bias in the chain behind it
	}{{dtype.Float16, 40, false}, {dtype.BFloat16, 7, true}, {dtype.Float16, 520, true}} {
		const rows = 5
		r := rand.New(rand.NewPCG(5, 6))
		mask := make([]float64, rows*c.n)
		for i := range mask {
			mask[i] = float64(i % 5 % 2)
		}
		in := [][]float64{numbers(r, c.dtype, rows*c.n), numbers(r, c.dtype, c.n), mask, numbers(r, c.dtype, rows*c.n), numbers(r, c.dtype, rows*c.n),
			numbers(r, dtype.Float32, c.n), numbers(r, dtype.Float32, c.n), numbers(r, c.dtype, c.n*c.n)}
		build := func() (*graph, []*ir.Value) {
			g := newGraph(t)
			cast := func(x *ir.Value, d dtype.DType) *ir.Value { return g.add(op.Cast, op.Attr{DType: d}, x) }
			a, bias, mask := g.param(c.dtype, rows, c.n), g.param(c.dtype, c.n), g.param(dtype.Bool, rows, c.n)
			residual, by := g.param(c.dtype, rows, c.n), g.param(c.dtype, rows, c.n)
			gain, shift, w := g.param(dtype.Float32, c.n), g.param(dtype.Float32, c.n), g.param(c.dtype, c.n, c.n)
			keep := g.add(op.Const, op.Attr{DType: dtype.Float32, Value: 1.25, Dims: op.Shape{}})
			zero := g.add(op.Const, op.Attr{DType: c.dtype, Dims: op.Shape{}})
			if c.product {
				a = g.add(op.Add, op.Attr{}, g.add(op.MatMul, op.Attr{DType: c.dtype}, a, w), bias)
			}
			scaled := func(x *ir.Value) *ir.Value {
				return cast(g.add(op.Mul, op.Attr{}, cast(x, dtype.Float32), keep), c.dtype)
			}
			sum := g.add(op.Add, op.Attr{}, g.add(op.Where, op.Attr{}, mask, scaled(a), zero), residual)
			y := g.add(op.LayerNorm, op.Attr{Epsilon: 1e-3, DType: c.dtype}, sum, gain, shift)
			grad := g.add(op.LayerNormGrad, op.Attr{Epsilon: 1e-3}, sum, gain, g.add(op.Add, op.Attr{}, by, y))
			dx := cast(g.add(op.Result, op.Attr{Start: []int{0}, Dims: op.Shape{rows, c.n}}, grad), c.dtype)
			dropped := scaled(g.add(op.Where, op.Attr{}, mask, dx, zero))
			shiftGrad := g.add(op.Result, op.Attr{Start: []int{(rows + 1) * c.n}, Dims: op.Shape{c.n}}, grad)
			var outs []*ir.Value
			for _, x := range []*ir.Value{sum, y, dx, dropped, shiftGrad} {
				outs = append(outs, g.add(op.Neg, op.Attr{}, g.add(op.Transpose, op.Attr{Perm: transposed(len(x.Type.Shape))}, x))) // what lies in the arena
			}
			return g, outs
		}
		g, outs := build()
		got, names := g.run(d, ir.Options{Check: true, Skip: []string{"share"}}, in, outs...)
		want := []string{fmt.Sprint("add_normalize_", c.dtype), fmt.Sprintf("normalize_grad_%v_%v", c.dtype, c.dtype)}
		for _, kernel := range want {
			if !slices.Contains(names, kernel) {
				t.Errorf("%v: no %s: %v", c, kernel, names)
			}
		}
		if chains := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, "chain") }); len(chains) > 6 { // the gradient, five results
			t.Errorf("%v: %d chains, want at most 6: %v", c, len(chains), names)
		}
		g, outs = build()
		same, _ := g.run(d, ir.Options{Check: true, Watch: true}, in, outs...)
		for k := range same {
			for i, x := range same[k] {
				if y := got[k][i]; x != y {
					t.Fatalf("%v: result %d: element %d is %v, and %v in a plan that shows every value", c, k, i, y, x)
				}
			}
		}
	}
}

// transposed is the axes in reverse order.
func transposed(rank int) []int {
	axes := make([]int, rank)
	for i := range axes {
		axes[i] = rank - 1 - i
	}
	return axes
}
