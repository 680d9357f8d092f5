package layers_test

import (
	"context"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

// vector is a case of Keras's own unit tests, whose numbers are given there.
type vector struct {
	name      string
	layer     layers.Layer
	in        []*tensor.Tensor
	mask      []bool // of the first input, [batch steps]
	calls     int    // default: 1; the last is compared
	want      [][]float64
	tolerance float64 // default: 1e-5
}

// arange is 0, 1, 2 … times factor.
func arange(factor float64, shape ...int) *tensor.Tensor {
	data := make([]float32, tensor.Shape(shape).Size())
	for i := range data {
		data[i] = float32(float64(i) * factor)
	}
	return tensor.New(data, shape...)
}

// each repeats every number n times: for n equal units.
func each(n int, v ...float64) []float64 {
	var out []float64
	for _, x := range v {
		for range n {
			out = append(out, x)
		}
	}
	return out
}

func (v *vector) check(t *testing.T) {
	t.Helper()
	x := v.in[0]
	if v.mask != nil {
		x = x.WithMask(tensor.New(v.mask, x.Dim(0), x.Dim(1)))
	}
	if len(v.in) > 1 {
		x = tensor.Tuple(append([]*tensor.Tensor{x}, v.in[1:]...)...)
	}
	if err := apply(v.layer, layers.Pass{}, layertest.Symbols(x)); err != nil {
		t.Fatal(err)
	}
	// What is computed outside of the Function is as good as an argument.
	run := tensor.Function(func(struct{}) []*tensor.Tensor {
		return layers.Apply(v.layer, layers.Pass{}, x).Unpack()
	}, layers.BaseOf(v.layer))
	var got []*tensor.Tensor
	for range max(v.calls, 1) {
		var err error
		if got, err = run.Call(context.Background(), struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	if v.tolerance == 0 {
		v.tolerance = 1e-5
	}
	for i, want := range v.want {
		if want == nil {
			continue
		}
		data, err := got[i].Float64s()
		if err != nil {
			t.Fatal(err)
		}
		if len(data) != len(want) {
			t.Fatalf("result %d: got %v, want %v", i, data, want)
		}
		for j, w := range want {
			if !(math.Abs(data[j]-w) <= v.tolerance*(1+math.Abs(w))) {
				t.Errorf("result %d, element %d: got %v, want %v", i, j, data[j], w)
			}
		}
	}
}

// first are the initializers of vectors 1 to 23.
const firstKernel, firstRecurrent, firstBias = "constant(0.01)", "constant(0.02)", "constant(0.03)"

func lstm(units int, change ...func(l *layers.LSTM)) *layers.LSTM {
	l := &layers.LSTM{Units: units, KernelInitializer: firstKernel, RecurrentInitializer: firstRecurrent, BiasInitializer: firstBias}
	for _, f := range change {
		f(l)
	}
	return l
}

func gru(units int, change ...func(g *layers.GRU)) *layers.GRU {
	g := &layers.GRU{Units: units, KernelInitializer: firstKernel, RecurrentInitializer: firstRecurrent, BiasInitializer: firstBias}
	for _, f := range change {
		f(g)
	}
	return g
}

func simple(units int, change ...func(s *layers.SimpleRNN)) *layers.SimpleRNN {
	s := &layers.SimpleRNN{Units: units, KernelInitializer: firstKernel, RecurrentInitializer: firstRecurrent, BiasInitializer: firstBias}
	for _, f := range change {
		f(s)
	}
	return s
}

// TestRecurrentVectors are the numbers that Keras's tests of recurrent layers
// assert.
func TestRecurrentVectors(t *testing.T) {
	type ts = []*tensor.Tensor
	x72, x24a, x24b, h := arange(1, 3, 6, 4), arange(1, 2, 3, 4), arange(1, 2, 4, 3), arange(1, 2, 2)
	lstmMask := []bool{true, true, true, false, true, true, false, false}
	lateMask := []bool{false, true, true, true, false, false, true, true}
	gapMask := []bool{true, true, false, true, true, false, false, true}
	lstmBack, gruBack := func(l *layers.LSTM) { l.GoBackwards = true }, func(g *layers.GRU) { g.GoBackwards = true }
	lstmAll, gruAll := func(l *layers.LSTM) { l.ReturnSequences = true }, func(g *layers.GRU) { g.ReturnSequences = true }
	both := func(l layers.Layer, mode string) *layers.Bidirectional {
		return &layers.Bidirectional{Layer: l, MergeMode: mode}
	}
	for _, v := range []vector{
		{name: "1 LSTM", layer: lstm(3), in: ts{x72}, want: [][]float64{each(3, 0.6288687, 0.86899155, 0.9460773)}},
		{name: "2 backwards", layer: lstm(3, lstmBack), in: ts{x72}, want: [][]float64{each(3, 0.35622165, 0.74789524, 0.8872726)}},
		{name: "2 backwards, unrolled", layer: lstm(3, lstmBack, func(l *layers.LSTM) { l.Unroll = true }), in: ts{x72},
			want: [][]float64{each(3, 0.35622165, 0.74789524, 0.8872726)}},
		{name: "3 forget bias", layer: lstm(3, func(l *layers.LSTM) { l.UnitForgetBias = new(false) }), in: ts{x72},
			want: [][]float64{each(3, 0.57019705, 0.8661914, 0.9459622)}},
		{name: "4 no bias", layer: lstm(3, func(l *layers.LSTM) { l.UseBias = new(false) }), in: ts{x72},
			want: [][]float64{each(3, 0.54986924, 0.86226785, 0.9443936)}},
		{name: "5 stateful", layer: lstm(4, func(l *layers.LSTM) { l.Stateful = true }), in: ts{x24a}, calls: 2,
			want: [][]float64{each(4, 0.3124785, 0.6863672)}},
		{name: "6 states", layer: lstm(2), in: ts{x24b, h, h}, want: [][]float64{{0.20574439, 0.3558822, 0.64930826, 0.66276}}},
		{name: "6 states, backwards", layer: lstm(2, lstmBack), in: ts{x24b, h, h}, want: [][]float64{{0.13281618, 0.2790356, 0.5839337, 0.5992567}}},
		{name: "7 mask", layer: lstm(2), in: ts{x24b}, mask: lstmMask, want: [][]float64{each(2, 0.11755939, 0.28556206)}},
		{name: "7 mask, steps", layer: lstm(2, lstmAll), in: ts{x24b}, mask: lstmMask,
			want: [][]float64{each(2, 0.0158891, 0.05552048, 0.11755939, 0.11755939, 0.14185596, 0.28556206, 0.28556206, 0.28556206)}},
		{name: "7 mask, zeros", layer: lstm(2, lstmAll, func(l *layers.LSTM) { l.ZeroOutputForMask = true }), in: ts{x24b}, mask: lstmMask,
			want: [][]float64{each(2, 0.0158891, 0.05552048, 0.11755939, 0, 0.14185596, 0.28556206, 0, 0)}},
		{name: "8 mask, backwards", layer: lstm(2, lstmBack), in: ts{x24b}, mask: lateMask, want: [][]float64{each(2, 0.15341201, 0.3844719)}},
		{name: "9 GRU", layer: gru(3), in: ts{x72}, want: [][]float64{each(3, 0.5217289, 0.6371659, 0.39384964)}},
		{name: "10 backwards", layer: gru(3, gruBack), in: ts{x72}, want: [][]float64{each(3, 0.24406259, 0.611516, 0.3928808)}},
		{name: "11 reset before", layer: gru(3, func(g *layers.GRU) { g.ResetAfter = new(false) }), in: ts{x72},
			want: [][]float64{each(3, 0.51447755, 0.6426879, 0.40208298)}},
		{name: "12 no bias", layer: gru(3, func(g *layers.GRU) { g.UseBias = new(false) }), in: ts{x72},
			want: [][]float64{each(3, 0.49988455, 0.64701194, 0.4103359)}},
		{name: "13 stateful", layer: gru(4, func(g *layers.GRU) { g.Stateful = true }), in: ts{x24a}, calls: 2,
			want: [][]float64{each(4, 0.29542392, 0.5885018)}},
		{name: "14 states", layer: gru(2), in: ts{x24b, h}, want: [][]float64{{0.23774096, 0.33508456, 0.83659905, 1.0227708}}},
		{name: "14 states, backwards", layer: gru(2, gruBack), in: ts{x24b, h}, want: [][]float64{{0.13486053, 0.23261218, 0.78257304, 0.9691353}}},
		{name: "15 mask", layer: gru(2), in: ts{x24b}, mask: gapMask, want: [][]float64{each(2, 0.19393763, 0.30818558)}},
		{name: "15 mask, steps", layer: gru(2, gruAll), in: ts{x24b}, mask: gapMask,
			want: [][]float64{each(2, 0.03606692, 0.09497581, 0.09497581, 0.19393763, 0.16051409, 0.16051409, 0.16051409, 0.30818558)}},
		{name: "15 mask, zeros", layer: gru(2, gruAll, func(g *layers.GRU) { g.ZeroOutputForMask = true }), in: ts{x24b}, mask: gapMask,
			want: [][]float64{each(2, 0.03606692, 0.09497581, 0, 0.19393763, 0.16051409, 0, 0, 0.30818558)}},
		{name: "16 SimpleRNN", layer: simple(4), in: ts{x24a}, want: [][]float64{each(4, 0.405432, 0.73605347)}},
		{name: "16 backwards", layer: simple(4, func(s *layers.SimpleRNN) { s.GoBackwards = true }), in: ts{x24a},
			want: [][]float64{each(4, 0.11144729, 0.5528889)}},
		{name: "17 mask", layer: simple(4), in: ts{x24b}, mask: gapMask, want: [][]float64{each(4, 0.32951632, 0.61799484)}},
		{name: "17 mask, backwards", layer: simple(4, func(s *layers.SimpleRNN) { s.GoBackwards = true }), in: ts{x24b}, mask: gapMask,
			want: [][]float64{each(4, 0.07376196, 0.43645123)}},
		{name: "17 mask, steps", layer: simple(2, func(s *layers.SimpleRNN) { s.ReturnSequences = true }), in: ts{x24b}, mask: gapMask,
			want: [][]float64{each(2, 0.0599281, 0.15122814, 0.15122814, 0.32394567, 0.3969304, 0.3969304, 0.3969304, 0.608085)}},
		{name: "18 both directions", layer: both(simple(2), ""), in: ts{x24a}, want: [][]float64{each(2, 0.39687276, 0.10004295, 0.7237238, 0.53391594)}},
		{name: "18 mean", layer: both(simple(2), "ave"), in: ts{x24a}, want: [][]float64{each(2, 0.24845785, 0.6288199)}},
		{name: "18 product", in: ts{x24a}, layer: &layers.Bidirectional{Layer: simple(2), MergeMode: "mul", BackwardLayer: simple(2, func(s *layers.SimpleRNN) {
			s.KernelInitializer, s.BiasInitializer, s.GoBackwards = "constant(0.03)", "constant(0.01)", true
		})}, want: [][]float64{each(2, 0.08374989, 0.6740834)}},
		{name: "19 sum of steps", layer: both(gru(2, gruAll), "sum"), in: ts{x24a},
			want: [][]float64{each(2, 0.20937867, 0.34462988, 0.40290534, 0.59829646, 0.6734641, 0.6479671)}},
		{name: "20 mask, both", layer: both(gru(2), ""), in: ts{x24b}, mask: gapMask,
			want: [][]float64{each(2, 0.19393763, 0.11669192, 0.30818558, 0.28380975)}},
		{name: "21 stateful, both", layer: both(lstm(2, func(l *layers.LSTM) { l.Stateful = true }), ""), in: ts{x24b}, calls: 2,
			want: [][]float64{each(2, 0.26234663, 0.16959146, 0.6137073, 0.5381646)}},
		{name: "21 states, both", layer: both(lstm(2), ""), in: ts{x24b, h, arange(2, 2, 2), arange(3, 2, 2), arange(4, 2, 2)},
			want: [][]float64{{0.20794602, 0.4577124, 0.14046375, 0.48191673, 0.6682636, 0.6711909, 0.60943645, 0.60950446}}},
		{name: "22 last states, both", layer: both(lstm(2, func(l *layers.LSTM) { l.ReturnState = true }), ""), in: ts{x24b},
			want: [][]float64{each(2, 0.1990008, 0.12659755, 0.52335435, 0.44717982), nil, each(2, 0.35567185, 1.0492687)}},
		{name: "23 ConvLSTM2D", in: ts{arange(0.01, 2, 3, 4, 4, 5)}, layer: &layers.ConvLSTM2D{Filters: 2, KernelSize: layers.PerAxis{3},
			KernelInitializer: firstKernel, RecurrentInitializer: firstRecurrent, BiasInitializer: firstBias},
			want: [][]float64{each(2, 0.48694518, 0.50237733, 0.5461202, 0.5598283, 0.8661607, 0.86909103, 0.8774414, 0.8800861)}},
	} {
		t.Run(v.name, func(t *testing.T) { v.check(t) })
	}
}

// TestResetState: after ResetState a stateful layer begins anew (vector 5).
func TestResetState(t *testing.T) {
	l := lstm(4, func(l *layers.LSTM) { l.Stateful = true })
	v := vector{layer: l, in: []*tensor.Tensor{arange(1, 2, 3, 4)}, calls: 2, want: [][]float64{each(4, 0.3124785, 0.6863672)}}
	for range 2 {
		v.check(t)
		if err := l.ResetState(); err != nil {
			t.Fatal(err)
		}
	}
}
