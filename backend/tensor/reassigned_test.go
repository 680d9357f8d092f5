package tensor_test

import (
	"context"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

type variables []*tensor.Variable

func (vs variables) Variables() []*tensor.Variable { return vs }

// TestGradientsAfterAssign: a loss computed after an update has no gradient through the
// update, and one by a variable read before and after it is the sum, as with
// TensorFlow's tape (numbers from TensorFlow 2.21).
func TestGradientsAfterAssign(t *testing.T) {
	of := func(name string, x float64) *tensor.Variable {
		v := tensor.NewState(name, dtype.Float32, nil, nil)
		if err := v.Set([]float64{x}); err != nil {
			t.Fatal(err)
		}
		return v
	}
	w, g := of("w", 2), of("g", 3)
	type result struct{ ByW, ByG, Both *tensor.Tensor }
	step := tensor.Function(func(struct{}) result {
		old := w.Value()
		first := old.Mul(g.Value()).Square() // 36; by w 2·w·g² = 36
		w.Assign(old.Sub(tensor.Gradients(first, []*tensor.Variable{w})[0].MulScalar(0.01)))
		second := w.Value().Mul(g.Value()) // w is 1.64 now
		grads := tensor.Gradients(second, []*tensor.Variable{w, g})
		both := tensor.Gradients(old.Mul(w.Value()), []*tensor.Variable{w})[0]
		return result{grads[0], grads[1], both}
	}, variables{w})
	r, err := step.Call(context.Background(), struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		x    *tensor.Tensor
		want float64
	}{
		{"the second loss by w", r.ByW, 3},
		{"the second loss by g", r.ByG, 1.64}, // through the update it would be 1.64 + g·dw/dg = 0.92
		{"the product of both values by w", r.Both, 3.64},
	} {
		got, err := c.x.Item()
		if err != nil {
			t.Fatal(err)
		}
		if d := got - c.want; d > 1e-6 || d < -1e-6 {
			t.Errorf("%s: got gradient %v, want %v", c.name, got, c.want)
		}
	}
}
