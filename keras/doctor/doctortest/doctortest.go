// Package doctortest, without compatibility promise, checks that the doctor raises no
// false alarm: layers and models that train well are healthy under every policy.
package doctortest

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Policies are those under which layers are examined.
var Policies = []string{"float32", "mixed_float16", "mixed_bfloat16", "mixed_float8"}

const steps = 10

var all = flag.Bool("healthy", false, "examine every layer under every policy, not one in five")

// Layers trains each case between two Dense layers, for ten steps under each policy, and
// examines every step. The result of the layer is multiplied by scale between. Without
// the flag -healthy it takes one in five of the cases and policies.
func Layers(t *testing.T, scale float64, cases []layertest.Case) {
	t.Helper()
	for i, c := range cases {
		for j, p := range Policies {
			if !*all && (i+j)%5 != 0 {
				continue
			}
			t.Run(c.Name+"/"+p, func(t *testing.T) {
				defer policy.SetGlobal(policy.SetGlobal(p))
				m, of := model(t, scale, c)
				if m == nil {
					return
				}
				random := rand.New(rand.NewPCG(uint64(i), 17))
				x := make([]*keras.Tensor, len(c.In))
				for i, in := range c.In {
					x[i] = numbers(random, in)
				}
				y := make([]*keras.Tensor, len(of))
				for i, out := range of {
					y[i] = numbers(random, out)
				}
				batch := keras.Batch{X: join(x), Y: join(y)}
				train(t, m, func(int) keras.Batch { return batch }, steep[c.Name+"/"+p])
			})
		}
	}
}

// steep are cases in which the doctor is right: a hue is a quotient of differences of
// channels, which turns errors of 3 % from 8-bit products before it into 80 % of a gradient.
var steep = map[string]bool{"augment, channels_last, RandomColorJitter/mixed_float8": true}

// Train trains a compiled model for ten steps and examines every one before.
func Train(t *testing.T, m *keras.Model, batch func(step int) keras.Batch) {
	t.Helper()
	train(t, m, batch, false)
}

// train is Train. Where the layer is steep, errors may be amplified.
func train(t *testing.T, m *keras.Model, batch func(step int) keras.Batch, steep bool) {
	t.Helper()
	for step := range steps {
		b := batch(step)
		r, err := doctor.Examine(t.Context(), m, b, doctor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != doctor.Healthy && !(steep && r.Kind == doctor.Rounding) {
			t.Fatalf("step %d: %+v %v", step, r.Before, r)
		}
		if _, err := m.TrainOnBatch(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// model is a compiled model with the layer of a case, and the types of its targets. It
// is nil if the layer has no result that a loss could be of.
func model(t *testing.T, scale float64, c layertest.Case) (*keras.Model, []op.Type) {
	t.Helper()
	var in, x []*keras.Tensor
	for _, typ := range c.In {
		s := keras.InputOf(typ.DType, typ.Shape[1:]...)
		in = append(in, s)
		if typ.DType.IsFloat() && len(typ.Shape) > 1 {
			s = keras.Apply(&layers.Dense{Units: typ.Shape[len(typ.Shape)-1]}, s)
		}
		x = append(x, s)
	}
	y := keras.Apply(c.Make(), x...)
	var out []*keras.Tensor
	var of []op.Type
	for _, o := range y.Unpack() {
		if typ := o.Type(); typ.DType.IsFloat() {
			shape := typ.Shape.Clone()
			if last := len(shape) - 1; last > 0 {
				o = keras.Apply(&preprocessing.Rescaling{Scale: scale}, o)
				o = keras.Apply(&layers.Dense{Units: 3}, o)
				shape[last] = 3
			}
			out = append(out, o)
			shape[0] = c.In[0].Shape[0]
			of = append(of, op.Type{DType: dtype.Float32, Shape: shape})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	m, err := keras.NewModel(join(in), join(out))
	if err != nil {
		t.Fatal(err)
	}
	err = m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.SGD{LearningRate: 0.001}})
	if err != nil {
		t.Fatal(err)
	}
	return m, of
}

func join(x []*keras.Tensor) *keras.Tensor {
	if len(x) == 1 {
		return x[0]
	}
	return keras.Tuple(x...)
}

// numbers are normal floats, or integers from 0 to 2.
func numbers(random *rand.Rand, of op.Type) *keras.Tensor {
	if !of.DType.IsFloat() {
		x := make([]int32, of.Shape.Size())
		for i := range x {
			x[i] = int32(random.IntN(3))
		}
		return keras.NewTensor(x, of.Shape...).Cast(of.DType)
	}
	x := make([]float32, of.Shape.Size())
	for i := range x {
		x[i] = float32(random.NormFloat64())
	}
	return keras.NewTensor(x, of.Shape...).Cast(of.DType)
}
