package doctor_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// lambda is a layer of a Go function.
type lambda struct {
	F           func(x *tensor.Tensor) *tensor.Tensor
	Name, DType string
	layers.Base
}

func (c *lambda) Config() layers.Config                               { return layers.Config{Name: c.Name, DType: c.DType} }
func (c *lambda) Build(...layers.Shape) error                         { return nil }
func (c *lambda) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor { return c.F(x) }

// patient is a training step with something wrong.
type patient struct {
	name, policy string
	scale        float64 // loss scale; 1: none
	build        func() (*keras.Model, error)
	batch        func() keras.Batch
	loss         losses.Loss
	prepare      func(m *keras.Model) error

	kind   doctor.Kind
	layers []string     // of the remedy
	origin tensor.TapID // the first value that goes wrong; "": not looked at
}

func normal(seed uint64, scale, offset float64, shape ...int) *keras.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	r := rand.New(rand.NewPCG(seed, 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(offset + scale*r.NormFloat64())
	}
	return keras.NewTensor(x, shape...)
}

func classes(seed uint64, n, k int) *keras.Tensor {
	r := rand.New(rand.NewPCG(seed, 9))
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(r.IntN(k))
	}
	return keras.NewTensor(x, n)
}

func dense(name string, units int, act string, x *keras.Tensor) *keras.Tensor {
	return keras.Apply(&layers.Dense{Units: units, Activation: act, Name: name}, x)
}

// large is a Dense whose weights are drawn with that standard deviation.
func large(name string, units int, stddev string, x *keras.Tensor) *keras.Tensor {
	return keras.Apply(&layers.Dense{Units: units, Name: name, KernelInitializer: "random_normal(stddev=" + stddev + ")"}, x)
}

func layerOf(name string, f func(x *tensor.Tensor) *tensor.Tensor, x ...*keras.Tensor) *keras.Tensor {
	return keras.Apply(&lambda{F: f, Name: name}, x...)
}

// tower puts f between two pairs of healthy layers and a head of ten classes.
func tower(f func(x *keras.Tensor) *keras.Tensor) func() (*keras.Model, error) {
	return func() (*keras.Model, error) {
		in := keras.Input(64)
		x := dense("in_1", 64, "relu", in)
		x = dense("in_2", 64, "tanh", x)
		x = f(x)
		x = keras.Apply(&layers.LayerNormalization{Name: "norm_out"}, x)
		x = dense("out_1", 64, "relu", x)
		x = dense("out_2", 64, "relu", x)
		x = dense("logits", 10, "", x)
		return keras.NewModel(in, x)
	}
}

func standard() keras.Batch { return keras.Batch{X: normal(1, 1, 0, 32, 64), Y: classes(2, 32, 10)} }

var crossentropy = &losses.SparseCategoricalCrossentropy{FromLogits: true}

func attention(x *tensor.Tensor) *tensor.Tensor { // of 8 positions of 8 features, without scaling
	n := x.Dim(0)
	t := x.Reshape(n, 8, 8).MulScalar(120)
	logits := t.MatMulT(t, false, true)
	return logits.Softmax(2).MatMul(t).Reshape(n, 64).MulScalar(1.0 / 120)
}

func ownNorm(x *tensor.Tensor) *tensor.Tensor {
	x = x.MulScalar(400)
	v := x.Square().MeanKeep(1)
	return x.Div(v.AddScalar(1e-3).Sqrt())
}

var patients = []patient{
	{name: "00 healthy MLP fp16", kind: doctor.Healthy, policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor { return x }), batch: standard, loss: crossentropy},
	{name: "00 healthy MLP bf16", kind: doctor.Healthy, policy: "mixed_bfloat16", scale: 1, build: tower(func(x *keras.Tensor) *keras.Tensor { return x }), batch: standard, loss: crossentropy},
	{name: "01 raw inputs of 1e5", kind: doctor.Overflow, layers: []string{"in_1"}, origin: "in_1/Cast#0", policy: "mixed_float16", scale: 32768, batch: func() keras.Batch {
		return keras.Batch{X: normal(1, 1e5, 0, 32, 64), Y: classes(2, 32, 10)}
	}, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := large("in_1", 64, "0.00001", in)
		x = dense("out_1", 64, "relu", x)
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, loss: crossentropy},
	{name: "02 activations of 1e5 in the middle", kind: doctor.Overflow, layers: []string{"ff_3"}, origin: "ff_2/MatMul#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = large("ff_1", 64, "300", x)
		x = large("ff_2", 64, "100", x) // about 2e6
		return large("ff_3", 64, "0.000001", x)
	}), batch: standard, loss: crossentropy},
	{name: "03 gated unit: a product overflows", kind: doctor.Overflow, layers: []string{"gate", "wo"}, origin: "gate/Mul#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		a, b := large("wi_0", 64, "100", x), large("wi_1", 64, "100", x)
		x = keras.Apply(&layers.Multiply{Name: "gate"}, a, b)
		return large("wo", 64, "0.00001", x)
	}), batch: standard, loss: crossentropy},
	{name: "04 residual stream grows", kind: doctor.Overflow, layers: []string{"add_2"}, origin: "block_2/MatMul#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = large("stem", 64, "2000", x) // below the limit
		y := large("block_1", 64, "0.2", x)
		x = keras.Apply(&layers.Add{Name: "add_1"}, x, y)
		y = large("block_2", 64, "0.2", x)
		x = keras.Apply(&layers.Add{Name: "add_2"}, x, y)
		return x
	}), batch: standard, loss: crossentropy},
	{name: "05 attention logits overflow", kind: doctor.Overflow, layers: []string{"attention"}, origin: "attention/MatMul#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor { return layerOf("attention", attention, x) }), batch: standard, loss: crossentropy},
	{name: "06 two additive masks of -6e4", kind: doctor.Overflow, layers: []string{"masked"}, origin: "masked/Add#1", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("masked", func(x *tensor.Tensor) *tensor.Tensor {
			n := x.Dim(0)
			t := x.Reshape(n, 8, 8)
			m := tensor.Full(x.DType(), -6e4, 8, 8)
			logits := t.MatMulT(t, false, true).Add(m).Add(m) // all masked: -1.2e5, as after padding and causal
			return logits.Softmax(2).MatMul(t).Reshape(n, 64)
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "07 own norm: squares overflow", kind: doctor.Overflow, layers: []string{"own_norm"}, origin: "own_norm/Square#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor { return layerOf("own_norm", ownNorm, x) }), batch: standard, loss: crossentropy},
	{name: "08 epsilon 1e-8 is 0", kind: doctor.FlushedConstant, layers: []string{"unit"}, origin: "unit/Div#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("unit", func(x *tensor.Tensor) *tensor.Tensor {
			return x.Div(x.Square().MeanKeep(1).AddScalar(1e-8).Sqrt())
		}, layerOf("zero_row", func(x *tensor.Tensor) *tensor.Tensor {
			k := tensor.New([]float32{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 32, 1)
			if x.Symbolic() {
				return x
			}
			return x.Mul(k.Cast(x.DType()))
		}, x))
	}), batch: standard, loss: crossentropy},
	{name: "09 exp overflows (own softplus)", kind: doctor.Overflow, layers: []string{"softplus"}, origin: "softplus/Exp#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("softplus", func(x *tensor.Tensor) *tensor.Tensor { return x.Exp().AddScalar(1).Log() }, large("wide", 64, "3", x))
	}), batch: standard, loss: crossentropy},
	{name: "10 log of a saturated sigmoid", kind: doctor.RoundedOperand, layers: []string{"log_not"}, origin: "log_not/Log#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("log_not", func(x *tensor.Tensor) *tensor.Tensor { return x.Sigmoid().Neg().AddScalar(1).Log() }, large("wide", 64, "0.9", x))
	}), batch: standard, loss: crossentropy},
	{name: "10b the same beyond float32", kind: doctor.Formula, origin: "log_not/Log#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("log_not", func(x *tensor.Tensor) *tensor.Tensor { return x.Sigmoid().Neg().AddScalar(1).Log() }, large("wide", 64, "1.5", x))
	}), batch: standard, loss: crossentropy},
	{name: "11 gradients vanish, no loss scale", kind: doctor.Underflow, layers: []string{"smaller", "logits"}, policy: "mixed_float16", scale: 1, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := dense("in_1", 64, "tanh", in)
		x = layerOf("small", func(x *tensor.Tensor) *tensor.Tensor { return x.MulScalar(1e-3) }, x)
		x = dense("mid", 64, "", x)
		x = layerOf("smaller", func(x *tensor.Tensor) *tensor.Tensor { return x.MulScalar(1e-3) }, x)
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, batch: standard, loss: crossentropy},
	{name: "11b gradients vanish only", kind: doctor.Scale, policy: "mixed_float16", scale: 1, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := dense("in_1", 64, "tanh", in)
		x = dense("in_2", 64, "tanh", x)
		return keras.NewModel(in, large("out", 10, "0.0005", x))
	}, batch: func() keras.Batch { return keras.Batch{X: normal(1, 1, 0, 32, 64), Y: normal(3, 1e-3, 0, 32, 10)} }, loss: &losses.MeanSquaredError{}},
	{name: "12 loss scale too large (raw targets)", kind: doctor.Scale, policy: "mixed_float16", scale: 32768, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := dense("in_1", 64, "relu", in)
		x = dense("in_2", 64, "relu", x)
		return keras.NewModel(in, dense("out", 1, "", x))
	}, batch: func() keras.Batch {
		return keras.Batch{X: normal(1, 1, 0, 32, 64), Y: normal(3, 3000, 6000, 32, 1)}
	}, loss: &losses.MeanSquaredError{}},
	{name: "13 NaN in the batch", kind: doctor.Given, origin: "argument 0/Param#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor { return x }), batch: func() keras.Batch {
		b := standard()
		v, _ := b.X.Values()
		v[70] = float32(math.NaN())
		return keras.Batch{X: keras.NewTensor(v, 32, 64), Y: b.Y}
	}, loss: crossentropy},
	{name: "14 infinity in a weight", kind: doctor.Given, origin: "in_2/kernel/Param#0", policy: "mixed_bfloat16", scale: 1, build: tower(func(x *keras.Tensor) *keras.Tensor { return x }), batch: standard, loss: crossentropy, prepare: func(m *keras.Model) error {
		w := m.Weights()[2].Variable
		v, err := w.Float64s()
		if err != nil {
			return err
		}
		v[5] = math.Inf(1)
		return w.Set(v)
	}},
	{name: "15 diverged: float32 overflows too", kind: doctor.Diverged, policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return large("boom_2", 64, "1e30", large("boom_1", 64, "1e30", x))
	}), batch: standard, loss: crossentropy},
	{name: "16 cancellation: 1000+x minus its mean, bf16", kind: doctor.Rounding, layers: []string{"offset", "center"}, policy: "mixed_bfloat16", scale: 1, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = layerOf("offset", func(x *tensor.Tensor) *tensor.Tensor { return x.AddScalar(1000) }, x)
		return layerOf("center", func(x *tensor.Tensor) *tensor.Tensor { return x.Sub(x.MeanKeep(1)) }, x)
	}), batch: standard, loss: crossentropy},
	{name: "17 long running sum, bf16", kind: doctor.Rounding, layers: []string{"running"}, policy: "mixed_bfloat16", scale: 1, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("running", func(x *tensor.Tensor) *tensor.Tensor {
			s := x.MulScalar(0).AddScalar(64)
			for range 200 {
				s = s.Add(x.MulScalar(0.05))
			}
			return s.AddScalar(-64)
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "18 product of eight probabilities flushes to 0", kind: doctor.Underflow, layers: []string{"power", "logarithm"}, origin: "logarithm/Log#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = layerOf("probability", func(x *tensor.Tensor) *tensor.Tensor { return x.Sigmoid().MulScalar(0.1) }, x)
		x = layerOf("power", func(x *tensor.Tensor) *tensor.Tensor { return x.Square().Square().Square() }, x)
		return layerOf("logarithm", func(x *tensor.Tensor) *tensor.Tensor { return x.AddScalar(1e-12).Log() }, x)
	}), batch: standard, loss: crossentropy},
	{name: "19 ids as floats (2909), bf16", kind: doctor.Rounding, layers: []string{"phase"}, policy: "mixed_bfloat16", scale: 1, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := layerOf("phase", func(x *tensor.Tensor) *tensor.Tensor { return x.MulScalar(0.7).Sin() }, in)
		x = dense("out_1", 64, "relu", x)
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, batch: func() keras.Batch {
		r := rand.New(rand.NewPCG(5, 5))
		v := make([]float32, 32*64)
		for i := range v {
			v[i] = float32(2000 + r.IntN(2000))
		}
		return keras.Batch{X: keras.NewTensor(v, 32, 64), Y: classes(2, 32, 10)}
	}, loss: crossentropy},
	{name: "20 two faults far apart", kind: doctor.Overflow, layers: []string{"attention", "own_norm"}, origin: "attention/MatMul#0", policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = layerOf("attention", attention, x)
		x = dense("between_1", 64, "tanh", x)
		x = dense("between_2", 64, "tanh", x)
		return layerOf("own_norm", ownNorm, x)
	}), batch: standard, loss: crossentropy},
	{name: "21 convolution sums over 65504", kind: doctor.Overflow, layers: []string{"conv_2"}, origin: "conv_2/Conv#0", policy: "mixed_float16", scale: 32768, build: func() (*keras.Model, error) {
		in := keras.Input(8, 8, 3)
		x := keras.Apply(&layers.Conv2D{Filters: 8, KernelSize: []int{3}, Name: "conv_1", KernelInitializer: "random_normal(stddev=60)"}, in)
		x = keras.Apply(&layers.Conv2D{Filters: 8, KernelSize: []int{3}, Name: "conv_2", KernelInitializer: "random_normal(stddev=60)"}, x)
		x = keras.Apply(&layers.BatchNormalization{Name: "bn"}, x)
		x = keras.Apply(&layers.Flatten{Name: "flat"}, x)
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, batch: func() keras.Batch { return keras.Batch{X: normal(1, 10, 0, 32, 8, 8, 3), Y: classes(2, 32, 10)} }, loss: crossentropy},
	{name: "22 healthy LSTM fp16", kind: doctor.Healthy, policy: "mixed_float16", scale: 32768, build: func() (*keras.Model, error) {
		in := keras.Input(12, 16)
		x := keras.Apply(&layers.LSTM{Units: 32, Name: "lstm"}, in)
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, batch: func() keras.Batch { return keras.Batch{X: normal(1, 1, 0, 32, 12, 16), Y: classes(2, 32, 10)} }, loss: crossentropy},
	{name: "23 healthy attention block bf16", kind: doctor.Healthy, policy: "mixed_bfloat16", scale: 1, build: func() (*keras.Model, error) {
		in := keras.Input(12, 32)
		y := keras.Apply(&layers.MultiHeadAttention{NumHeads: 4, KeyDim: 8, Name: "mha"}, in, in)
		x := keras.Apply(&layers.Add{Name: "add"}, in, y)
		x = keras.Apply(&layers.LayerNormalization{Name: "ln"}, x)
		x = keras.Apply(&layers.Dense{Units: 64, Activation: "gelu", Name: "ff"}, x)
		x = keras.Apply(&layers.GlobalAveragePooling1D{Name: "pool"}, x)
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, batch: func() keras.Batch { return keras.Batch{X: normal(1, 1, 0, 32, 12, 32), Y: classes(2, 32, 10)} }, loss: crossentropy},
	{name: "24 benign infinity", kind: doctor.Healthy, policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("cap", func(x *tensor.Tensor) *tensor.Tensor {
			return x.Minimum(x.MulScalar(0).AddScalar(1e4).MulScalar(100).StopGradient())
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "25 masked logarithm: 0/0 in the gradient", kind: doctor.Rounding, layers: []string{"in_1", "in_2"}, policy: "mixed_float16", scale: 32768, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("safe_log", func(x *tensor.Tensor) *tensor.Tensor {
			r := x.Relu()
			return tensor.Where(r.GreaterScalar(0), r.Log(), x)
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "26 deep, three faults", kind: doctor.Overflow, layers: []string{"fault_attention", "fault_norm_8", "fault_norm_13"}, origin: "fault_attention/MatMul#0", policy: "mixed_float16", scale: 32768, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := in
		for i := range 16 {
			y := dense(fmt.Sprintf("d%02d_a", i), 64, "tanh", x)
			y = dense(fmt.Sprintf("d%02d_b", i), 64, "", y)
			switch i {
			case 3:
				y = layerOf("fault_attention", attention, y)
			case 8, 13:
				y = layerOf(fmt.Sprintf("fault_norm_%d", i), ownNorm, y)
			}
			x = keras.Apply(&layers.Add{Name: fmt.Sprintf("d%02d_add", i)}, x, y)
			x = keras.Apply(&layers.LayerNormalization{Name: fmt.Sprintf("d%02d_ln", i)}, x)
		}
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, batch: standard, loss: crossentropy},

	// Of other faults than those that the kinds were made for.
	{name: "27 variance as a difference of squares", kind: doctor.Rounding, layers: []string{"one_pass"}, policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("one_pass", func(x *tensor.Tensor) *tensor.Tensor {
			x = x.AddScalar(30)
			mean := x.MeanKeep(1)
			variance := x.Square().MeanKeep(1).Sub(mean.Square())
			return x.Sub(mean).Div(variance.AddScalar(1e-3).Abs().Sqrt())
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "28 norm of rows of zeros", kind: doctor.Formula, policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("unit", func(x *tensor.Tensor) *tensor.Tensor {
			zero := x.Sub(x) // as of padding
			return x.Add(zero.Square().SumKeep(1).Sqrt())
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "29 squared ReLU overflows", kind: doctor.Overflow, layers: []string{"squared", "down"}, policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = large("up", 64, "150", x)
		x = layerOf("squared", func(x *tensor.Tensor) *tensor.Tensor { return x.Relu().Square() }, x)
		return large("down", 64, "0.0000001", x)
	}), batch: standard, loss: crossentropy},
	{name: "30 sum over 4096 positions overflows", kind: doctor.Overflow, layers: []string{"pooled"}, policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("pooled", func(x *tensor.Tensor) *tensor.Tensor {
			n := x.Dim(0)
			seen := x.Reshape(n, 1, 64).Sigmoid().MulScalar(40).BroadcastTo(n, 4096, 64)
			return seen.Sum(1).MulScalar(1. / 4096 / 40)
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "31 softmax without its maximum", kind: doctor.Overflow, layers: []string{"own_softmax"}, policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = large("scores", 64, "2", x)
		return layerOf("own_softmax", func(x *tensor.Tensor) *tensor.Tensor {
			e := x.Exp()
			return e.Div(e.SumKeep(1))
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "32 softmax with its maximum", kind: doctor.Healthy, policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = large("scores", 64, "2", x)
		return layerOf("own_softmax", func(x *tensor.Tensor) *tensor.Tensor {
			e := x.Sub(x.MaxKeep(1)).Exp()
			return e.Div(e.SumKeep(1))
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "33 time in seconds, bf16", kind: doctor.Rounding, layers: []string{"hour"}, policy: "mixed_bfloat16", scale: 1, batch: func() keras.Batch {
		return keras.Batch{X: normal(1, 20, 86400, 32, 64), Y: classes(2, 32, 10)}
	}, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := layerOf("hour", func(x *tensor.Tensor) *tensor.Tensor { return x.MulScalar(2 * math.Pi / 60).Sin() }, in)
		x = dense("out_1", 64, "relu", x)
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, loss: crossentropy},
	{name: "34 focal loss of a saturated probability", kind: doctor.RoundedOperand, layers: []string{"focal"}, policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = large("scores", 64, "0.8", x)
		return layerOf("focal", func(x *tensor.Tensor) *tensor.Tensor {
			q := x.Sigmoid().Neg().AddScalar(1)
			return q.Mul(q.Log())
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "35 logarithm of a softmax", kind: doctor.Formula, origin: "log_probabilities/Log#0", policy: "mixed_float16", scale: 1024, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := dense("in_1", 64, "relu", in)
		x = large("scores", 10, "4", x)
		return keras.NewModel(in, layerOf("log_probabilities", func(x *tensor.Tensor) *tensor.Tensor { return x.Softmax(1).Log() }, x))
	}, batch: standard, loss: crossentropy},
	{name: "36 clipped probability", kind: doctor.RoundedOperand, layers: []string{"entropy"}, origin: "entropy/Log#1", policy: "mixed_float16", scale: 1024, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := dense("in_1", 64, "relu", in)
		x = large("scores", 1, "3", x)
		return keras.NewModel(in, layerOf("entropy", func(x *tensor.Tensor) *tensor.Tensor {
			p := x.Sigmoid().Clip(1e-7, 1-1e-7) // to 1
			return p.Log().Add(p.Neg().AddScalar(1).Log()).Neg()
		}, x))
	}, batch: func() keras.Batch { return keras.Batch{X: normal(1, 1, 0, 32, 64), Y: normal(3, 1, 0, 32, 1)} }, loss: &losses.MeanSquaredError{}},
	{name: "37 mask of -1e9 times 0 or 1", kind: doctor.Overflow, layers: []string{"masked"}, origin: "masked/Const#2", policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("masked", func(x *tensor.Tensor) *tensor.Tensor {
			n := x.Dim(0)
			t := x.Reshape(n, 8, 8)
			keep := tensor.Iota(x.DType(), 8).LessScalar(6).Cast(x.DType())
			logits := t.MatMulT(t, false, true).Add(keep.Neg().AddScalar(1).MulScalar(-1e9))
			return logits.Softmax(2).MatMul(t).Reshape(n, 64)
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "38 recurrence that grows", kind: doctor.Overflow, layers: []string{"rnn"}, policy: "mixed_float16", scale: 1024, build: func() (*keras.Model, error) {
		in := keras.Input(40, 16)
		x := keras.Apply(&layers.SimpleRNN{Units: 32, Name: "rnn", Activation: "relu", RecurrentInitializer: "random_normal(stddev=0.35)"}, in)
		x = keras.Apply(&layers.LayerNormalization{Name: "norm"}, x)
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, batch: func() keras.Batch { return keras.Batch{X: normal(1, 1, 0, 32, 40, 16), Y: classes(2, 32, 10)} }, loss: crossentropy},
	{name: "39 quotient of nothing and an epsilon", kind: doctor.FlushedConstant, layers: []string{"dice"}, origin: "dice/Div#0", policy: "mixed_float16", scale: 1024, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := dense("in_1", 64, "relu", in)
		x = dense("mask", 64, "sigmoid", x)
		return keras.NewModel(in, layerOf("dice", func(x *tensor.Tensor) *tensor.Tensor {
			target := x.MulScalar(0) // no pixel is of the class
			both := x.Mul(target).SumKeep(1)
			return both.AddScalar(1e-8).Div(target.SumKeep(1).AddScalar(1e-8)).Add(x.MeanKeep(1))
		}, x))
	}, batch: func() keras.Batch { return keras.Batch{X: normal(1, 1, 0, 32, 64), Y: normal(3, 1, 0, 32, 1)} }, loss: &losses.MeanSquaredError{}},
	{name: "40 product of 64 probabilities", kind: doctor.Underflow, layers: []string{"likelihood"}, origin: "likelihood/Log#0", policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = layerOf("probability", func(x *tensor.Tensor) *tensor.Tensor { return x.Sigmoid().MulScalar(0.5).AddScalar(0.3) }, x)
		return layerOf("likelihood", func(x *tensor.Tensor) *tensor.Tensor {
			return x.Add(x.Prod(1).AddScalar(1e-30).Log().Reshape(x.Dim(0), 1))
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "41 distance as squares minus twice a product", kind: doctor.RoundedOperand, layers: []string{"distance"}, origin: "distance/Sqrt#0", policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("distance", func(x *tensor.Tensor) *tensor.Tensor {
			x = x.AddScalar(20)
			y := x.AddScalar(0.01)
			d := x.Square().SumKeep(1).Add(y.Square().SumKeep(1)).Sub(x.Mul(y).SumKeep(1).MulScalar(2))
			return x.Add(d.AddScalar(1e-3).Sqrt())
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "42 loaded weights beyond 65504", kind: doctor.Overflow, layers: []string{"in_2"}, origin: "in_2/Cast#0", policy: "mixed_float16", scale: 1024, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := dense("in_1", 64, "tanh", in)
		x = dense("in_2", 64, "tanh", x)
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, batch: standard, loss: crossentropy, prepare: func(m *keras.Model) error {
		w := m.Weights()[2].Variable
		v, err := w.Float64s()
		if err != nil {
			return err
		}
		v[5], v[77] = 1e5, -8e4
		return w.Set(v)
	}},
	{name: "43 exponential of 200", kind: doctor.Formula, origin: "softplus/Exp#0", policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		x = large("scores", 64, "60", x)
		return layerOf("softplus", func(x *tensor.Tensor) *tensor.Tensor { return x.Exp().Log1p() }, x)
	}), batch: standard, loss: crossentropy},
	{name: "44 NaN among the targets", kind: doctor.Given, origin: "argument 1/Param#0", policy: "mixed_float16", scale: 1024, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		return keras.NewModel(in, dense("out", 1, "", dense("in_1", 64, "relu", in)))
	}, batch: func() keras.Batch {
		y, _ := normal(3, 1, 0, 32, 1).Values()
		y[5] = float32(math.NaN())
		return keras.Batch{X: normal(1, 1, 0, 32, 64), Y: keras.NewTensor(y, 32, 1)}
	}, loss: &losses.MeanSquaredError{}},
	{name: "45 attention that sees nothing", kind: doctor.Formula, origin: "masked/Softmax#0", policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("masked", func(x *tensor.Tensor) *tensor.Tensor {
			n := x.Dim(0)
			t := x.Reshape(n, 8, 8)
			keep := tensor.Iota(x.DType(), 8).LessScalar(0) // none
			logits := tensor.Where(keep, t.MatMulT(t, false, true), tensor.Full(x.DType(), math.Inf(-1)))
			return logits.Softmax(2).MatMul(t).Reshape(n, 64)
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "46 pixels from 0 to 255", kind: doctor.Healthy, policy: "mixed_float16", scale: 32768, build: func() (*keras.Model, error) {
		in := keras.Input(12, 12, 1)
		x := keras.Apply(&layers.Conv2D{Filters: 8, KernelSize: []int{3}, Activation: "relu", Name: "conv"}, in)
		x = keras.Apply(&layers.MaxPooling2D{PoolSize: []int{2}, Name: "pool"}, x)
		x = keras.Apply(&layers.Flatten{Name: "flat"}, x)
		return keras.NewModel(in, dense("logits", 10, "", dense("fc", 64, "relu", x)))
	}, batch: func() keras.Batch {
		x, _ := normal(1, 90, 120, 32, 12, 12, 1).Values()
		for i, v := range x {
			x[i] = float32(math.Round(float64(min(max(v, 0), 255))))
		}
		return keras.Batch{X: keras.NewTensor(x, 32, 12, 12, 1), Y: classes(2, 32, 10)}
	}, loss: crossentropy},
	{name: "47 scores that are scaled after the product", kind: doctor.Overflow, layers: []string{"attention"}, origin: "attention/MatMul#0", policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("attention", func(x *tensor.Tensor) *tensor.Tensor {
			n := x.Dim(0)
			t := x.Reshape(n, 8, 8)
			return t.MatMulT(t, false, true).MulScalar(1e-4).Softmax(2).MatMul(t).Reshape(n, 64)
		}, large("wide", 64, "20", x))
	}), batch: standard, loss: crossentropy},
	{name: "48 causal mask of -Inf", kind: doctor.Healthy, policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("masked", func(x *tensor.Tensor) *tensor.Tensor {
			n := x.Dim(0)
			t := x.Reshape(n, 8, 8)
			query, key := tensor.Iota(keras.Int32, 8).Reshape(8, 1), tensor.Iota(keras.Int32, 8).Reshape(1, 8)
			logits := tensor.Where(key.LessEqual(query), t.MatMulT(t, false, true), tensor.Full(x.DType(), math.Inf(-1)))
			return logits.Softmax(2).MatMul(t).Reshape(n, 64)
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "49 label smoothing of probabilities that are 0", kind: doctor.Underflow, layers: []string{"smoothed"}, origin: "smoothed/Log#0", policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("smoothed", func(x *tensor.Tensor) *tensor.Tensor { return x.Softmax(1).Log().MulScalar(0.1) }, large("scores", 64, "0.9", x))
	}), batch: standard, loss: crossentropy},
	{name: "50 variance of constant rows", kind: doctor.FlushedConstant, layers: []string{"standardized"}, origin: "standardized/Div#0", policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("standardized", func(x *tensor.Tensor) *tensor.Tensor {
			c := x.MulScalar(0).AddScalar(3)
			d := c.Sub(c.MeanKeep(1))
			return x.Add(d.Div(d.Square().MeanKeep(1).AddScalar(1e-8).Sqrt()))
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "51 targets of 1e25", kind: doctor.Diverged, origin: "loss/mean_squared_error/Square#0", policy: "mixed_float16", scale: 32768, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		return keras.NewModel(in, dense("out", 1, "", dense("in_1", 64, "relu", in)))
	}, batch: func() keras.Batch { return keras.Batch{X: normal(1, 1, 0, 32, 64), Y: normal(3, 1e24, 1e25, 32, 1)} }, loss: &losses.MeanSquaredError{}},
	{name: "52 a loss scale of 2", kind: doctor.Scale, policy: "mixed_float16", scale: 2, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		return keras.NewModel(in, large("out", 1, "0.0001", dense("in_1", 64, "relu", in)))
	}, batch: func() keras.Batch { return keras.Batch{X: normal(1, 1, 0, 32, 64), Y: normal(3, 1e-4, 0, 32, 1)} }, loss: &losses.MeanSquaredError{}},
	{name: "53 frozen layer with weights beyond 65504", kind: doctor.Overflow, layers: []string{"frozen"}, origin: "frozen/Cast#1", policy: "mixed_float16", scale: 1024, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		frozen := &layers.Dense{Units: 64, Name: "frozen", KernelInitializer: "random_normal(stddev=20000)"}
		x := keras.Apply(frozen, in)
		frozen.SetTrainable(false)
		x = keras.Apply(&layers.LayerNormalization{Name: "norm"}, x)
		return keras.NewModel(in, dense("logits", 10, "", x))
	}, batch: standard, loss: crossentropy},
	{name: "54 NaN in the batch that the model leaves out", kind: doctor.Healthy, policy: "mixed_float16", scale: 1024, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := layerOf("impute", func(x *tensor.Tensor) *tensor.Tensor {
			return tensor.Where(x.Equal(x), x, tensor.Full(x.DType(), 0))
		}, in)
		return keras.NewModel(in, dense("logits", 10, "", dense("in_1", 64, "relu", x)))
	}, batch: func() keras.Batch {
		b := standard()
		v, _ := b.X.Values()
		v[70] = float32(math.NaN())
		return keras.Batch{X: keras.NewTensor(v, 32, 64), Y: b.Y}
	}, loss: crossentropy},
	{name: "55 cosines at a temperature of 0.01", kind: doctor.Healthy, policy: "mixed_float16", scale: 1024, build: func() (*keras.Model, error) {
		in := keras.Input(64)
		x := dense("embedding", 32, "", dense("in_1", 64, "relu", in))
		return keras.NewModel(in, layerOf("similarity", func(x *tensor.Tensor) *tensor.Tensor {
			u := x.Div(x.Square().SumKeep(1).AddScalar(1e-3).Sqrt())
			return u.MatMulT(u, false, true).MulScalar(100).Slice(1, 0, min(10, x.Dim(0)))
		}, x))
	}, batch: standard, loss: crossentropy},
	{name: "56 differences of 0.01 at 50", kind: doctor.Rounding, layers: []string{"standardized"}, policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("standardized", func(x *tensor.Tensor) *tensor.Tensor {
			y := x.MulScalar(0.01).AddScalar(50)
			d := y.Sub(y.MeanKeep(1)) // 0, as is its square, which would be below 2^-14
			return d.Div(d.Square().MeanKeep(1).AddScalar(1e-6).Sqrt())
		}, x)
	}), batch: standard, loss: crossentropy},
	{name: "57 fault in a nested model", kind: doctor.Overflow, layers: []string{"inner/own_norm"}, origin: "inner/own_norm/Square#0", policy: "mixed_float16", scale: 1024, build: func() (*keras.Model, error) {
		in, outer := keras.Input(64), keras.Input(64)
		inner, err := keras.NewModel(in, layerOf("own_norm", ownNorm, dense("before", 64, "tanh", in)))
		if err != nil {
			return nil, err
		}
		return keras.NewModel(outer, dense("logits", 10, "", keras.Apply(inner.Named("inner").Layer(), outer)))
	}, batch: standard, loss: crossentropy},
	{name: "58 shared layer with a fault", kind: doctor.Overflow, layers: []string{"own_norm"}, origin: "own_norm/Square#0", policy: "mixed_float16", scale: 1024, build: tower(func(x *keras.Tensor) *keras.Tensor {
		shared := &lambda{F: ownNorm, Name: "own_norm"}
		return keras.Apply(shared, dense("between", 64, "tanh", keras.Apply(shared, x)))
	}), batch: standard, loss: crossentropy},
	{name: "59 positions of 1000 in bf16", kind: doctor.Rounding, layers: []string{"positions"}, policy: "mixed_bfloat16", scale: 1, build: tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("positions", func(x *tensor.Tensor) *tensor.Tensor {
			return x.Add(tensor.Iota(x.DType(), 64).AddScalar(1000).Sin())
		}, x)
	}), batch: standard, loss: crossentropy},
}

func (p *patient) compiled(t *testing.T) *keras.Model {
	t.Helper()
	old := policy.SetGlobal(p.policy)
	defer policy.SetGlobal(old)
	m, err := p.build()
	if err != nil {
		t.Fatal(err)
	}
	c := keras.CompileConfig{Loss: p.loss, Optimizer: &optimizers.SGD{}}
	if p.scale > 1 {
		c.Optimizer = &optimizers.LossScaleOptimizer{Inner: c.Optimizer, InitialScale: p.scale}
	} else {
		c.AutoScaleLoss = new(false)
	}
	if err := m.Compile(c); err != nil {
		t.Fatal(err)
	}
	if p.prepare != nil {
		if err := p.prepare(m); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// check compares a report with what is known of the patient.
func (p *patient) check(t *testing.T, r *doctor.Report) {
	t.Helper()
	t.Logf("%+v\n%v", r.Before, r)
	want := policy.Map{}
	for _, l := range p.layers {
		want[l] = policy.Float32
	}
	if r.Kind != p.kind || !maps.Equal(r.Remedy.Map, want) {
		t.Errorf("got %s and the remedy %#v, want %s and %#v", r.Kind, r.Remedy.Map, p.kind, want)
	}
	if p.origin != "" && (r.Origin == nil || r.Origin.ID != p.origin) {
		t.Errorf("got the origin %+v, want %s", r.Origin, p.origin)
	}
	if len(p.layers) > 0 && !r.Remedy.Verified {
		t.Errorf("the remedy was not run")
	}
	if most := 6 + 5; p.name[:2] == "26" && r.Trials > most {
		t.Errorf("got %d runs of the step, want at most %d", r.Trials, most)
	}
}

// TestPatients examines steps with a known illness.
func TestPatients(t *testing.T) {
	for i := range patients {
		p := &patients[i]
		t.Run(p.name, func(t *testing.T) {
			r, err := doctor.Examine(t.Context(), p.compiled(t), p.batch(), doctor.Config{})
			if err != nil {
				t.Fatal(err)
			}
			p.check(t, r)
		})
	}
}
