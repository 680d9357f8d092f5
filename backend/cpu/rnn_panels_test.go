package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestScanFloat16NotFinite: infinities and NaN in the kernels, inputs and initial
// outputs of a float16 scan, and in the gradients passed to its gradient, give the same
// results on tile registers as float32 arithmetic with the same cell functions, for any
// number of workers. Other elements are unaffected.
func TestScanFloat16NotFinite(t *testing.T) {
	const steps, batch, units, features = 3, 40, 20, 11
	for _, cell := range []op.Cell{op.TanhCell, op.LSTMCell, op.GRUCell, op.GRUBeforeCell} {
		s := &op.Scan{Cell: cell, Product: true}
		grad := &op.Scan{Cell: cell, Steps: true, Weights: true, Features: true}
		wide := cell.Gates() * units
		forward := []op.Shape{{steps, batch, features}, {units, wide}, {batch, units}}
		if cell.HasState() {
			forward = append(forward, op.Shape{batch, units})
		}
		if cell.HasBias() {
			forward = append(forward, op.Shape{units})
		}
		forward = append(forward, op.Shape{features, wide}, op.Shape{wide})
		flat := grad.Sections(steps, batch, units).Elements
		backward := []op.Shape{{flat}, {units, wide}, {steps, batch, units}, {steps, batch, features}, {features, wide}}
		for _, special := range []float64{0, math.Inf(1), math.NaN()} {
			for operand := range 3 {
				checkScanNotFinite(t, fmt.Sprintf("%v, %v in operand %d", cell, special, operand), op.RNN, op.Attr{Scan: s}, forward, operand, special)
				checkScanNotFinite(t, fmt.Sprintf("gradient of %v, %v in operand %d", cell, special, operand), op.RNNGrad,
					op.Attr{Scan: grad, Dims: op.Shape{steps, batch, units, features}}, backward, operand, special)
			}
		}
	}
}

// checkScanNotFinite compares the results of the AVX-512 levels for a special value in
// an operand.
func checkScanNotFinite(t *testing.T, what string, c op.Code, a op.Attr, shapes []op.Shape, operand int, special float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, uint64(operand)))
	var args []array
	for i, shape := range shapes {
		at := -1
		if i == operand && special != 0 {
			at = rng.IntN(shape.Size())
		}
		args = append(args, arrayOf(dtype.Float16, shape, func(i int) float64 {
			if x := (rng.Float64() - 0.5) / 8; i != at {
				return x
			}
			return special
		}))
	}
	var want []float64
	isatest.ForEach(t, func(t *testing.T) {
		if isa.Current() < isa.AVX512 {
			return // differs in functions of infinities
		}
		g := ir.New(len(args))
		var vals []*ir.Value
		for i, a := range args {
			vals = append(vals, param(t, g, i, a.Type))
		}
		v := record(t, g, c, a, vals...)
		g.Output(v, -1)
		p := plan(t, g)
		first := bytes.Clone(runProcs(t, p, args, 1).data)
		if !bytes.Equal(first, runProcs(t, p, args, 3).data) {
			t.Errorf("%s: other bits with 3 workers", what)
		}
		got := array{v.Type, first}.values()
		if want == nil {
			want = slices.Clone(got)
		}
		// Results are rounded to float16 at each step, and kernels are so small that a
		// difference in one step matters less in the next. Sums are over all rows.
		const tol = 4 * 0x1p-11
		for i, g := range got {
			if w := want[i]; g != w && !(g != g && w != w) && !(math.Abs(g-w) <= tol*max(1, math.Abs(w))) {
				t.Fatalf("%s: element %d is %v, want %v", what, i, g, w)
			}
		}
	})
}
