//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"math"
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
