package keras

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestMasksInModels: a mask that a layer makes reaches the layers behind it
// and the outputs, on Inputs and when the model runs, through nested models and
// under a mixed policy.
func TestMasksInModels(t *testing.T) {
	for _, policy := range []string{"float32", "mixed_float16"} {
		ids := InputOf(Int32, tensor.Unknown)
		embed, err := NewModel(ids, Apply(&layers.Dense{Units: 4, DType: policy},
			Apply(&layers.Embedding{InputDim: 5, OutputDim: 4, MaskZero: true, DType: policy}, ids)))
		check(t, err)
		in := InputOf(Int32, tensor.Unknown)
		x := Apply(embed.Layer(), in)
		x = Apply(&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 2, DType: policy}, x, x)
		out := Apply(&layers.Dense{Units: 2, DType: policy}, x)
		if m := out.Mask(); m == nil || !m.Shape().Equal(tensor.Shape{-1, -1}) {
			t.Fatalf("%s: got mask %v on Inputs, want bool[? ?]", policy, m)
		}
		flat := Apply(&layers.Reshape{TargetShape: []int{1, 2}}, Apply(&layers.Dense{Units: 2, DType: policy}, Input(2)))
		if flat.Mask() != nil {
			t.Errorf("%s: got mask %v, want none", policy, flat.Mask())
		}
		m, err := NewModel(in, out)
		check(t, err)
		var mask *Tensor
		f := tensor.Function(func(ids *Tensor) []*Tensor {
			y := m.Call(ids)
			if mask = y.Mask(); mask == nil {
				tensor.Fail("Call", "got no mask, want one")
			}
			return []*Tensor{y, mask}
		}, m)
		first, err := f.Call(background, tensor.New([]int32{1, 2, 0, 3, 0, 0}, 2, 3))
		check(t, err)
		got, err := first[1].Int64s()
		check(t, err)
		for i, want := range []int64{1, 1, 0, 1, 0, 0} {
			if got[i] != want {
				t.Errorf("%s: mask: got %v, want [1 1 0 1 0 0]", policy, got)
				break
			}
		}
		if first[0].DType() != Float32 {
			t.Errorf("%s: got %v, want float32", policy, first[0].Type())
		}
		// Padding changes nothing: the same sentences without it.
		second, err := f.Call(background, tensor.New([]int32{1, 2, 3, 0}, 2, 2))
		check(t, err)
		a, errA := first[0].Values()
		b, errB := second[0].Values()
		check(t, errA)
		check(t, errB)
		for i, pair := range [][2]float32{{a[0], b[0]}, {a[1], b[1]}, {a[2], b[2]}, {a[3], b[3]}, {a[6], b[4]}, {a[7], b[5]}} {
			if pair[0] != pair[1] {
				t.Errorf("%s: element %d: got %v with padding, want %v as without", policy, i, pair[0], pair[1])
			}
		}
	}
}

// TestAttentionTrains: a model of an embedding with padding, masked attention
// and a spectrally normalized head learns, under each policy, and a step that
// overflows moves nothing, the normalized kernel included.
func TestAttentionTrains(t *testing.T) {
	ids := tensor.New([]int32{1, 2, 0, 0, 3, 1, 4, 0, 2, 2, 3, 1, 4, 0, 0, 0}, 4, 4)
	for _, p := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		underPolicy(t, p)
		in := InputOf(Int32, 4)
		x := Apply(&layers.Embedding{InputDim: 5, OutputDim: 8, MaskZero: true}, in)
		y := Apply(&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 4, Dropout: 0.1}, x, x)
		y = Apply(&layers.LayerNormalization{}, Apply(&layers.Add{}, x, y))
		y = Apply(&layers.Flatten{}, y)
		head := &layers.SpectralNormalization{Layer: &layers.Dense{Units: 1}}
		m, err := NewModel(in, Apply(head, y))
		check(t, err)
		var o optimizers.Optimizer = &optimizers.SGD{LearningRate: 0.02}
		if p == "mixed_float16" { // a scale that is too large at first
			o = &optimizers.LossScaleOptimizer{Inner: o, InitialScale: 1 << 20}
		}
		check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: o}))
		b := Batch{X: ids, Y: NewTensor([]float32{3, -3, 3, -3}, 4, 1)}
		check(t, m.ready(b))
		var first, last float64
		before := bits(t, variables(variablesOf(m.Weights())))
		skipped := false
		for step := range 40 {
			logs, err := m.TrainOnBatch(background, b)
			check(t, err)
			last = logs.Get("loss")
			if step == 0 {
				first = last
			}
			after := bits(t, variables(variablesOf(m.Weights())))
			if p == "mixed_float16" {
				r, err := m.StepResult()
				check(t, err)
				if skipped = skipped || !r.Applied; r.Applied == same(before, after) {
					t.Errorf("%s: step %d: applied is %v, weights moved is %v", p, step, r.Applied, !same(before, after))
				}
			}
			before = after
		}
		if !(last < first/2) {
			t.Errorf("%s: got a loss of %v after %v, want less than half of it", p, last, first)
		}
		if p == "mixed_float16" && !skipped {
			t.Errorf("%s: no step was skipped: this model does not overflow", p)
		}
	}
}

// TestMaskReachesLoss: padding has no part in the loss of a model whose layers
// mask it.
func TestMaskReachesLoss(t *testing.T) {
	for _, p := range []string{"float32", "mixed_float16"} {
		underPolicy(t, p)
		m := Sequential(&layers.Masking{}, &layers.Dense{Units: 1, UseBias: new(false), KernelInitializer: "ones"})
		check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.SGD{}}))
		x, y := NewTensor([]float32{1, 2, 0, 3, 0, 0}, 2, 3, 1), NewTensor([]float32{2, 4, 500, 6, 500, 500}, 2, 3, 1)
		logs, err := m.TrainOnBatch(background, Batch{X: x, Y: y})
		check(t, err)
		// Errors 1, 2 and 3 of the three steps that count.
		if got, want := logs.Get("loss"), float64(1+4+9)/3; got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%s: got a loss of %v, want %v", p, got, want)
		}
	}
}
