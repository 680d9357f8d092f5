package losses

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// The loss on a float16 head reads the logits in float32, straight from the
// product that made them, and everything it records carries its name.
func TestPlanOfHead(t *testing.T) {
	type batch struct{ X, Y *tensor.Tensor }
	kernel := tensor.NewVariable("head/kernel", dtype.Float32, tensor.Shape{4, 3}, nil)
	l := &SparseCategoricalCrossentropy{}
	f := tensor.Function(func(b batch) *tensor.Tensor {
		since := tensor.SequencePoint()
		logits := b.X.Cast(dtype.Float16).MatMul(kernel.Value().Cast(dtype.Float16))
		tensor.Label("head", since, logits)
		return l.Call(b.Y, logits.Softmax(-1).Cast(dtype.Float32))
	})
	g, err := f.Plan(batch{f32([]int{2, 4}, 1, 2, 3, 4, 5, 6, 7, 8), i32(0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range g.Values {
		switch {
		case v.Op == op.MatMul && (v.Type.DType != dtype.Float32 || v.Path != "head"):
			t.Errorf("got logits of %v by %q, want float32 by head", v.Type, v.Path)
		case v.Op == op.Softmax:
			t.Errorf("got a softmax %v, want the loss to be computed from logits", v.Type)
		case v.Op == op.TakeAlongAxis && v.Path != "loss/sparse_categorical_crossentropy":
			t.Errorf("got path %q for %v, want the loss's", v.Path, v.Op)
		}
	}
	if t.Failed() {
		t.Log(g)
	}
}

// TestCTCGraph: the graph of the loss and its gradient does not grow with the
// steps.
func TestCTCGraph(t *testing.T) {
	size := func(steps int) int {
		f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor {
			loss := (&CTC{}).Call(tensor.Ones(dtype.Int32, 2, 3), x)
			return tensor.GradientsAt(loss, x)[0]
		})
		g, err := f.Plan(tensor.Placeholder(dtype.Float32, 2, steps, 5))
		if err != nil {
			t.Fatal(err)
		}
		return len(g.Values)
	}
	if few, many := size(8), size(80); few != many {
		t.Errorf("%d values for 8 steps, %d for 80, want as many", few, many)
	}
}
