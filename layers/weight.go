package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/constraints"
	"github.com/mezzo-ml/mezzo/layers/initializers"
	"github.com/mezzo-ml/mezzo/layers/regularizers"
)

// Weight is a variable of a layer.
type Weight struct {
	*tensor.Variable
	local       string // name within the layer
	compute     dtype.DType
	wanted      bool // trainable unless its layer is frozen
	regularizer regularizers.Regularizer
}

// Value returns the weight in its layer's compute type. w.Variable.Value()
// returns it in the variable's type.
func (w *Weight) Value() *tensor.Tensor { return w.Variable.Value().Cast(w.compute) }

// ComputeDType is the type of Value.
func (w *Weight) ComputeDType() dtype.DType { return w.compute }

// Regularization returns the weight's penalty as a float32 scalar, nil without
// a regularizer.
func (w *Weight) Regularization() *tensor.Tensor {
	if w.regularizer == nil {
		return nil
	}
	return w.regularizer(w.Variable.Value())
}

// WeightOption is an option of AddWeight.
type WeightOption func(*weightSpec)

type weightSpec struct {
	regularizer, constraint            string
	nonTrainable, statistic, keepDType bool
	element                            dtype.DType // of integers, else Invalid
	adjust                             func(first []float64)
}

// Regularizer adds a penalty on the weight to the loss, by Keras name: "l2",
// "l1(0.001)".
func Regularizer(spec string) WeightOption { return func(s *weightSpec) { s.regularizer = spec } }

// Constraint projects the weight after each update, by Keras name:
// "max_norm(3)".
func Constraint(spec string) WeightOption { return func(s *weightSpec) { s.constraint = spec } }

// NonTrainable makes the weight one that no optimizer updates.
func NonTrainable() WeightOption {
	return func(s *weightSpec) { s.nonTrainable = true }
}

// Statistic makes the weight one that the forward pass assigns and no
// optimizer updates. A skipped step does not change it.
func Statistic() WeightOption {
	return func(s *weightSpec) { s.nonTrainable, s.statistic = true, true }
}

// KeepDType makes Value return the weight in float32 (in float64 under a
// float64 policy), whatever the compute type: for gains and statistics of
// normalization.
func KeepDType() WeightOption {
	return func(s *weightSpec) { s.keepDType = true }
}

// BytesOf returns copies of the elements of weights, little-endian. If a
// training is running, all are of the same moment between two steps.
func BytesOf(ws []*Weight) ([][]byte, error) { return tensor.BytesOf(variablesOf(ws)...) }

// SetBytesOf assigns the elements of all weights between two steps. If a size
// does not fit, it returns an error and nothing changes.
func SetBytesOf(ws []*Weight, data [][]byte) error { return tensor.SetBytesOf(variablesOf(ws), data) }

func variablesOf(ws []*Weight) []*tensor.Variable {
	vs := make([]*tensor.Variable, len(ws))
	for i, w := range ws {
		vs[i] = w.Variable
	}
	return vs
}

// Integer makes the weight an int32 that is not trainable, such as a count.
func Integer() WeightOption {
	return func(s *weightSpec) { s.nonTrainable, s.element = true, dtype.Int32 }
}

// Int8 makes the weight an int8 that is not trainable: a quantized matrix.
func Int8() WeightOption {
	return func(s *weightSpec) { s.nonTrainable, s.element = true, dtype.Int8 }
}

// adjusted changes the initial value.
func adjusted(f func(first []float64)) WeightOption {
	return func(s *weightSpec) { s.adjust = f }
}

// AddWeight returns a new weight in the policy's variable type. initializer is
// a Keras name such as "glorot_uniform" or "random_normal(stddev=0.02)". The
// initial value depends on the weight's path and the model's seed alone. Call
// it in Build.
func (b *Base) AddWeight(name string, s Shape, initializer string, options ...WeightOption) (*Weight, error) {
	var want weightSpec
	for _, o := range options {
		o(&want)
	}
	init, err := initializers.Get(initializer)
	if err != nil {
		return nil, fmt.Errorf("weight %s: %w", name, err)
	}
	w := &Weight{local: name, compute: b.policy.Compute, wanted: !want.nonTrainable}
	if w.regularizer, err = regularizers.Get(want.regularizer); err != nil {
		return nil, fmt.Errorf("weight %s: %w", name, err)
	}
	store := b.policy.Variable
	if want.keepDType {
		store = dtype.Promote(store, dtype.Float32)
		w.compute = store
	}
	if want.element != dtype.Invalid {
		store, w.compute = want.element, want.element
	}
	shape := s.Clone()
	if err := (op.Type{DType: store, Shape: shape}).Check(); err != nil {
		return nil, fmt.Errorf("weight %s: %w", name, err)
	}
	w.Variable = tensor.NewVariable(b.Path()+"/"+name, store, shape, func(dst []float64) error {
		err := init(dst, shape, b.key(name))
		if err == nil && want.adjust != nil {
			want.adjust(dst)
		}
		return err
	})
	w.SetTrainable(w.wanted && !b.frozen)
	w.SetStatistic(want.statistic)
	project, err := constraints.Get(want.constraint)
	if err != nil {
		return nil, fmt.Errorf("weight %s: %w", name, err)
	}
	w.SetConstraint(project)
	b.weights = append(b.weights, w)
	return w, nil
}

// AddState returns a new variable of zeros, in the policy's variable type,
// that the layer keeps from call to call, such as the state of a stateful RNN.
// It is not a weight: Keras's files do not contain it. A skipped step does not
// change it.
func (b *Base) AddState(s Shape) *tensor.Variable {
	v := tensor.NewState(fmt.Sprintf("%s/state_%d", b.Path(), len(b.memory)), b.policy.Variable, s, nil)
	v.SetStatistic(true)
	b.memory = append(b.memory, v)
	return v
}

// AddRandomState returns a new state of random numbers, for
// tensor.RandomUniform: int64 [2], a seed and a counter. If seed is nil the
// seed is derived from the path and the model's seed. Call it in Build; use
// NextState in Call.
func (b *Base) AddRandomState(seed *int64) *tensor.Variable {
	i := len(b.states)
	local := fmt.Sprintf("seed_generator_%d", i)
	v := tensor.NewState(b.Path()+"/"+local, dtype.Int64, Shape{2}, func(dst []float64) error {
		// 53 bits: initial values pass through float64.
		dst[0] = float64(b.key(local) >> 11)
		if seed != nil {
			dst[0] = float64(*seed)
		}
		return nil
	})
	v.SetStatistic(true) // a skipped step moves nothing
	b.states = append(b.states, v)
	return v
}

// inStep reports whether a call on x is part of a step, so that v may be
// assigned: x is recorded by a Function, or v is, where x was computed before.
func inStep(x *tensor.Tensor, v *tensor.Variable) bool {
	return !x.Symbolic() && (tensor.IsRecorded(x) || tensor.IsRecorded(v.Value()))
}

// NextState returns the random state for this call and advances v, so that the
// next step draws other numbers. While a model is being built it does not
// advance v. Each shard of a batch draws its own numbers (tensor.Shard): n·of+i for
// step n and shard i of of.
func NextState(v *tensor.Variable, x *tensor.Tensor) *tensor.Tensor {
	now := v.Value()
	if inStep(x, v) {
		v.Assign(now.Add(tensor.New([]int64{0, 1}, 2)))
	}
	if i, of := tensor.ShardIndex(); of > 1 {
		now = now.Mul(tensor.New([]int64{1, int64(of)}, 2)).Add(tensor.New([]int64{0, int64(i)}, 2))
	}
	return now
}
