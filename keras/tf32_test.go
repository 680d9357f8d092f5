package keras

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// underTF32 turns TensorFloat-32 on until the test ends.
func underTF32(t *testing.T) {
	policy.SetTF32(true)
	t.Cleanup(func() { policy.SetTF32(false) })
}

// nearestTF32 is x with 10 bits of fraction: it is exact in x's exponent.
func nearestTF32(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) || math.Abs(x) >= 0x1p100 {
		return x
	}
	_, e := math.Frexp(x)
	return math.Ldexp(math.RoundToEven(math.Ldexp(x, 11-e)), e-11)
}

// TestTF32Operands: a product rounds its operands to 10 bits of fraction, and keeps
// what is not finite or very large.
func TestTF32Operands(t *testing.T) {
	var xs []float32
	for _, x := range numbers(600) {
		xs = append(xs, x, x*1e-30, x*1e20, 1+x)
	}
	xs = append(xs, 0, 1, 1+0x1p-10, 1+0x1p-11+0x1p-20, 1-0x1p-12, -1.0001, 0x1p-126, 0x1p-140, 0x1p99, 3.3e38, -3.3e38,
		float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()))
	x := tensor.New(xs, len(xs), 1)
	f := Function(func(x *Tensor) *Tensor { return x.MatMul(tensor.Ones(Float32, 1, 1)) })
	call := func() []float64 {
		y, err := f.Call(background, x)
		check(t, err)
		return values(t, y)
	}
	for i, got := range call() {
		if want := float64(xs[i]); got != want && !math.IsNaN(want) {
			t.Fatalf("without TF32: %v became %v", want, got)
		}
	}
	underTF32(t) // the Function is compiled again
	for i, got := range call() {
		x := float64(xs[i])
		want := nearestTF32(x)
		tie := math.Abs(x-got) == math.Abs(x-want)
		if got != want && !(tie && nearestTF32(got) == got) && !(math.IsNaN(x) && math.IsNaN(got)) {
			t.Errorf("%v became %v, want %v", x, got, want)
		}
	}
	half := tensor.New(xs[:100], 100, 1).Cast(Float16)
	if got, want := values(t, half.MatMul(tensor.Ones(Float16, 1, 1))), values(t, half); !slices.Equal(got, want) {
		t.Error("float16 has other products under TF32")
	}
	double := tensor.New([]float64{1 + 0x1p-40}, 1, 1)
	if got := values(t, double.MatMul(tensor.Ones(Float64, 1, 1))); got[0] != 1+0x1p-40 {
		t.Errorf("float64: got %v", got)
	}
}

// TestTF32Products: products and convolutions with their gradients have the bits of
// float32 ones of rounded operands; turned off again they have those of before.
func TestTF32Products(t *testing.T) {
	x, w := tensor.New(numbers(2*7*7*3), 2, 7, 7, 3), tensor.New(numbers(3*3*3*5), 3, 3, 3, 5)
	a, b := tensor.New(numbers(20*33), 20, 33), tensor.New(numbers(33*17), 33, 17)
	round := func(x *Tensor) *Tensor {
		var v []float32
		for _, x := range values(t, x) {
			v = append(v, float32(nearestTF32(x)))
		}
		return tensor.New(v, x.Shape()...)
	}
	for name, c := range map[string]struct {
		operands [2]*Tensor
		f        func(x, y *Tensor) *Tensor
	}{
		"MatMul":          {[2]*Tensor{a, b}, func(x, y *Tensor) *Tensor { return x.MatMul(y) }},
		"MatMul and bias": {[2]*Tensor{a, b}, func(x, y *Tensor) *Tensor { return x.MatMul(y).AddScalar(0.3).Relu() }},
		"Conv":            {[2]*Tensor{x, w}, func(x, y *Tensor) *Tensor { return x.Conv(y, tensor.ConvOptions{}) }},
	} {
		call := func(x, y *Tensor) []float64 {
			z, err := Function(func(in []*Tensor) *Tensor { return c.f(in[0], in[1]) }).Call(background, []*Tensor{x, y})
			check(t, err)
			return values(t, z)
		}
		plain := call(c.operands[0], c.operands[1])
		want := call(round(c.operands[0]), round(c.operands[1]))
		policy.SetTF32(true)
		got, again := call(c.operands[0], c.operands[1]), call(c.operands[0], c.operands[1])
		policy.SetTF32(false)
		if !slices.Equal(got, want) || !slices.Equal(again, want) {
			t.Errorf("%s: other bits than float32 with rounded operands", name)
		}
		if slices.Equal(got, plain) {
			t.Errorf("%s: nothing was rounded", name)
		}
		if !slices.Equal(call(c.operands[0], c.operands[1]), plain) {
			t.Errorf("%s: other bits than before once it is off", name)
		}
	}
}

// TestTF32Training: whole steps of networks with each kind of product differ from
// float32, and from float64 by no more than operands of 11 significant bits explain;
// two runs have the same bits.
func TestTF32Training(t *testing.T) {
	models := map[string]func() (*Model, *Tensor){
		"dense": func() (*Model, *Tensor) {
			return Sequential(&layers.Dense{Units: 24, Activation: "tanh"}, &layers.Dense{Units: 3}), tensor.New(numbers(8*12), 8, 12)
		},
		"convolution": func() (*Model, *Tensor) {
			return Sequential(&layers.Conv2D{Filters: 6, KernelSize: []int{3, 3}, Activation: "tanh"}, &layers.Flatten{}, &layers.Dense{Units: 3}), tensor.New(numbers(8*6*6*2), 8, 6, 6, 2)
		},
		"attention": func() (*Model, *Tensor) {
			in := Input(9, 8)
			x := Apply(&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 8}, in, in)
			x = Apply(&layers.Flatten{}, x)
			m, err := NewModel(in, Apply(&layers.Dense{Units: 3}, x))
			check(t, err)
			return m, tensor.New(numbers(8*9*8), 8, 9, 8)
		},
		"recurrent": func() (*Model, *Tensor) {
			return Sequential(&layers.LSTM{Units: 10}, &layers.Dense{Units: 3}), tensor.New(numbers(8*9*4), 8, 9, 4)
		},
	}
	y := tensor.New([]int32{0, 1, 2, 0, 1, 2, 0, 1}, 8)
	train := func(name, under string) []float64 {
		underPolicy(t, under)
		m, x := models[name]()
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.SGD{LearningRate: 0.1}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}))
		for range 3 {
			check(t, m.TrainStep(background, Batch{X: x, Y: y}))
		}
		var all []float64
		for _, w := range m.Weights() {
			v, err := w.Float64s()
			check(t, err)
			all = append(all, v...)
		}
		return all
	}
	for name := range models {
		exact, single := train(name, "float64"), train(name, "float32")
		policy.SetTF32(true)
		rounded, again := train(name, "float32"), train(name, "float32")
		double := train(name, "float64")
		policy.SetTF32(false)
		if slices.Equal(rounded, single) || !slices.Equal(rounded, again) {
			t.Errorf("%s: TF32 changed the weights: %v, the same twice: %v", name, !slices.Equal(rounded, single), slices.Equal(rounded, again))
		}
		if !slices.Equal(double, exact) {
			t.Errorf("%s: float64 has other bits under TF32", name)
		}
		for i, x := range exact {
			// Weights of at most 1 have moved by some tenths, by sums of products whose
			// operands have an error of 2⁻¹¹.
			if math.Abs(rounded[i]-x) > 8*0x1p-11 {
				t.Errorf("%s: weight %d is %v, in float64 %v", name, i, rounded[i], x)
			}
		}
	}
}

// TestTF32Effective: Effective says what runs, and only when it does.
func TestTF32Effective(t *testing.T) {
	const text = "float32: float32 (operands rounded to TensorFloat-32)"
	if got := policy.EffectiveText(); strings.Contains(got, text) {
		t.Errorf("by default: %s", got)
	}
	underTF32(t)
	if got := policy.EffectiveText(); !strings.Contains(got, text) {
		t.Errorf("got %s, want %s in it", got, text)
	}
}
