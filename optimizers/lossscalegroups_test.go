package optimizers

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// towers are two layers side by side, "head" and "body", whose gradients have the sizes
// that a test asks for.
type towers struct {
	compute dtype.DType
	v, w    *tensor.Variable // [2 2], of head and of body
}

func newTowers(compute dtype.DType) *towers {
	return &towers{compute,
		variable("head/kernel", dtype.Float32, []float64{0.5, -0.25, 1, 0.125}, 2, 2),
		variable("body/kernel", dtype.Float32, []float64{1, 0.5, -0.5, 0.25}, 2, 2)}
}

func (n *towers) Variables() []*tensor.Variable { return owner{n.v, n.w} }

// towersIn is an input and the derivatives of the loss by the elements of the towers.
type towersIn struct{ X, Head, Body *tensor.Tensor }

func (n *towers) loss(in towersIn) *tensor.Tensor {
	layer := func(path string, v *tensor.Variable) *tensor.Tensor {
		since := tensor.SequencePoint()
		y := in.X.Cast(n.compute).MatMul(v.Value().Cast(n.compute))
		tensor.Label(path, since, y)
		return y.Cast(dtype.Float32)
	}
	return layer("head", n.v).Mul(in.Head).Sum().Add(layer("body", n.w).Mul(in.Body).Sum())
}

// step is a training step with o.
func (n *towers) step(o *LossScaleOptimizer) *tensor.Func[towersIn, []*tensor.Tensor] {
	vars := n.Variables()
	return tensor.Function(func(in towersIn) []*tensor.Tensor {
		grads := o.GetUnscaledGradients(tensor.Gradients(o.GetScaledLoss(n.loss(in)), vars))
		o.ApplyGradients(grads, vars)
		return grads
	}, n, o)
}

// of is an input whose derivatives have these sizes.
func of(head, body float32) towersIn {
	m := func(x float32) *tensor.Tensor { return tensor.New([]float32{x, -0.75 * x, 0.5 * x, 0.25 * x}, 2, 2) }
	return towersIn{tensor.New([]float32{1, 2, -0.5, 0.25}, 2, 2), m(head), m(body)}
}

// gradient is that of a kernel for a derivative of that size: Xᵀ·m(size).
func gradient(size float64) []float64 {
	return []float64{size - 0.25*size, -0.75*size - 0.125*size, 2*size + 0.125*size, -1.5*size + 0.0625*size}
}

func call(t *testing.T, fn *tensor.Func[towersIn, []*tensor.Tensor], in towersIn) [][]float64 {
	t.Helper()
	grads, err := fn.Call(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float64
	for _, g := range grads {
		x, err := g.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}

// TestGroups is what Groups are for: derivatives of 2¹² need a scale below 16, and those
// of 2⁻³⁰ one of 2⁶ or more. No scale fits both in float16.
func TestGroups(t *testing.T) {
	const large, small = 0x1p12, 0x1p-30
	relative := func(got, want []float64) (worst float64) {
		for i := range want {
			worst = max(worst, math.Abs(got[i]/want[i]-1))
		}
		return worst
	}
	for _, d := range computeTypes {
		for _, scale := range []float64{8, 1 << 20} {
			n := newTowers(d)
			g := call(t, n.step(&LossScaleOptimizer{Inner: &SGD{}, InitialScale: scale}), of(large, small))
			head, body := relative(g[0], gradient(large)), relative(g[1], gradient(small))
			fits := head <= 4*d.Epsilon() && body <= 4*d.Epsilon()
			if fits != (d != dtype.Float16) {
				t.Errorf("%v, one scale %v: relative errors %v and %v", d, scale, head, body)
			}
		}
		n := newTowers(d)
		o := &LossScaleOptimizer{Inner: &SGD{LearningRate: 1}, InitialScale: 8, Groups: []LossScaleGroup{{Layers: "bod.", InitialScale: 1 << 20}}}
		g := call(t, n.step(o), of(large, small))
		if head, body := relative(g[0], gradient(large)), relative(g[1], gradient(small)); !(head <= 4*d.Epsilon() && body <= 4*d.Epsilon()) {
			t.Errorf("%v, two scales: relative errors %v and %v", d, head, body)
		}
		if r := result(t, o); !r.Applied || r.LossScale != 8 {
			t.Errorf("%v: got %+v", d, r)
		}
	}
}

// groupScales are the scales of the loss and of Groups, and the overflows of Groups.
func groupScales(t *testing.T, o *LossScaleOptimizer) (scales []float64, overflows []int64) {
	t.Helper()
	scales = append(scales, result(t, o).LossScale)
	all, err := o.GroupScales()
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range all {
		if g.Layers != o.Groups[i].Layers {
			t.Errorf("group %d: got %+v", i, g)
		}
		scales, overflows = append(scales, g.LossScale), append(overflows, g.Overflows)
	}
	return scales, overflows
}

// TestGroupOverflow: a step with an overflow is skipped as a whole, and the scale
// decreases where it was; each scale increases by its own count of good steps.
func TestGroupOverflow(t *testing.T) {
	n := newTowers(dtype.Float16)
	o := &LossScaleOptimizer{Inner: &SGD{LearningRate: 1}, InitialScale: 1024, DynamicGrowthSteps: 3, MinScale: 256,
		Groups: []LossScaleGroup{{Layers: "body", InitialScale: 4096}, {Layers: "head/?.*", InitialScale: 2048}}}
	fn := n.step(o)
	for i, c := range []struct {
		head, body float32
		scales     []float64 // of the loss, of body, of head
		overflows  []int64
	}{
		{1, 1, []float64{1024, 4096, 2048}, []int64{0, 0}},
		{1, 16, []float64{1024, 2048, 2048}, []int64{1, 0}}, // 16·4096
		{1, 16, []float64{1024, 2048, 2048}, []int64{1, 0}},
		{40, 1, []float64{1024, 2048, 1024}, []int64{1, 1}}, // 40·2048; the others count on
		{1, 1, []float64{2048, 2048, 1024}, []int64{1, 1}},  // the third good step of the loss
		{1, 1, []float64{2048, 4096, 1024}, []int64{1, 1}},
		{inf, 1, []float64{1024, 4096, 1024}, []int64{1, 1}}, // infinite before it gets into a group
		{nan, 1, []float64{512, 4096, 1024}, []int64{1, 1}},
		{1e5, 1, []float64{512, 4096, 512}, []int64{1, 2}},
		{1e5, 1, []float64{512, 4096, 256}, []int64{1, 3}},
		{1e5, 1, []float64{512, 4096, 256}, []int64{1, 4}}, // it is at MinScale
	} {
		before := snapshot(t, n.Variables())
		skips := result(t, o).SkippedSteps
		call(t, fn, of(c.head, c.body))
		scales, overflows := groupScales(t, o)
		if !reflect.DeepEqual(scales, c.scales) || !reflect.DeepEqual(overflows, c.overflows) {
			t.Errorf("step %d: got %v and %v, want %v and %v", i, scales, overflows, c.scales, c.overflows)
		}
		skipped := result(t, o).SkippedSteps > skips
		for name, now := range snapshot(t, n.Variables()) {
			if bytes.Equal(now, before[name]) != skipped {
				t.Errorf("step %d: skipped %v, but %s moved %v", i, skipped, name, !skipped)
			}
		}
	}
	if r := result(t, o); r.SkippedSteps != 7 || r.ConsecutiveSkips != 5 || r.SkipsAtFloor != 1 {
		t.Errorf("got %+v", r)
	}
}

// TestGroupOfAll: one group of everything has the bits, and the scales, of no group.
func TestGroupOfAll(t *testing.T) {
	for _, d := range computeTypes {
		var want map[string][]byte
		var wantScales []float64
		for _, groups := range [][]LossScaleGroup{nil, {{Layers: ".*"}}, {{Layers: "head|body"}}} {
			n := newTowers(d)
			o := &LossScaleOptimizer{Inner: &Adam{}, DynamicGrowthSteps: 4, Groups: groups}
			fn := n.step(o)
			var scales []float64
			for i := range 12 {
				call(t, fn, of(float32(i)*0.3, 0.1))
				all, _ := groupScales(t, o)
				scales = append(scales, all[len(all)-1])
			}
			got := snapshot(t, append(n.Variables(), o.Inner.Variables()...))
			if want == nil {
				want, wantScales = got, scales
				if d == dtype.Float16 && result(t, o).SkippedSteps == 0 {
					t.Error("no step was skipped")
				}
			}
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(scales, wantScales) {
				t.Errorf("%v, %v: other bits than without groups; scales %v, want %v", d, groups, scales, wantScales)
			}
		}
	}
}

// TestGroupsAccumulate: an overflow anywhere in a window lowers the scale of its group
// once, at the end of the window.
func TestGroupsAccumulate(t *testing.T) {
	n := newTowers(dtype.Float16)
	o := &LossScaleOptimizer{Inner: &SGD{LearningRate: 1, GradientAccumulationSteps: 2}, InitialScale: 1024, Groups: []LossScaleGroup{{Layers: "body"}}}
	fn := n.step(o)
	for i, c := range []struct {
		head, body float32
		scales     []float64
	}{
		{1, 100, []float64{1024, 1024}}, {1, 1, []float64{1024, 512}},
		{1, 1, []float64{1024, 512}}, {1, 1, []float64{1024, 512}},
		{1, 1, []float64{1024, 512}}, {100, 1, []float64{512, 512}},
		{200, 1, []float64{512, 512}}, {1, 200, []float64{512, 256}}, // both; the loss's scale is next
	} {
		call(t, fn, of(c.head, c.body))
		if scales, _ := groupScales(t, o); !reflect.DeepEqual(scales, c.scales) {
			t.Errorf("call %d: got %v, want %v", i, scales, c.scales)
		}
	}
	if r := result(t, o); r.AppliedSteps != 1 || r.SkippedSteps != 3 {
		t.Errorf("got %+v", r)
	}
}

// TestGroupsTravel: the variables of an optimizer hold all of its state.
func TestGroupsTravel(t *testing.T) {
	make := func() (*towers, *LossScaleOptimizer) {
		return newTowers(dtype.Float16), &LossScaleOptimizer{Inner: &Adam{}, DynamicGrowthSteps: 3, Groups: []LossScaleGroup{{Layers: "body"}}}
	}
	run := func(n *towers, o *LossScaleOptimizer, from, to int) {
		fn := n.step(o)
		for i := from; i < to; i++ {
			call(t, fn, of(float32(i%5), float32(i%3)))
		}
	}
	n, o := make()
	run(n, o, 0, 10)
	again, resumed := make()
	run(again, resumed, 0, 1) // it makes the variables
	from := append(n.Variables(), o.Variables()...)
	for i, v := range append(again.Variables(), resumed.Variables()...) {
		b, err := from[i].Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if v.Name() != from[i].Name() {
			t.Fatalf("variable %d: %s and %s", i, v.Name(), from[i].Name())
		}
		if err := v.SetBytes(b); err != nil {
			t.Fatal(err)
		}
	}
	run(n, o, 10, 20)
	run(again, resumed, 10, 20)
	if a, b := snapshot(t, append(n.Variables(), o.Variables()...)), snapshot(t, append(again.Variables(), resumed.Variables()...)); !reflect.DeepEqual(a, b) {
		t.Error("resumed differs from uninterrupted")
	}
	data, err := MarshalConfig(o)
	if err != nil {
		t.Fatal(err)
	}
	read, err := UnmarshalConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []Optimizer{read, Clone(o)} {
		if groups := other.(*LossScaleOptimizer).Groups; !reflect.DeepEqual(groups, o.Groups) {
			t.Errorf("got %v, want %v: %s", groups, o.Groups, data)
		}
	}
}

func TestGroupErrors(t *testing.T) {
	for want, groups := range map[string][]LossScaleGroup{
		"Groups[0]: Layers is empty, want a regular expression for the paths of layers":             {{}},
		"Groups[1]: Layers: error parsing regexp":                                                   {{Layers: "head"}, {Layers: "("}},
		"Groups[0]: InitialScale: got 0.5, want MinScale 1 … MaxScale 1.6777216e+07":                {{Layers: "head", InitialScale: 0.5}},
		`Groups[1]: the loss depends on no layer that matches "encoder"`:                            {{Layers: "head"}, {Layers: "encoder"}},
		`layer body: Groups of optimizer loss_scale_optimizer: got two that match, "b.*" and ".*y"`: {{Layers: "b.*"}, {Layers: ".*y"}},
	} {
		n := newTowers(dtype.Float16)
		_, err := n.step(&LossScaleOptimizer{Inner: &SGD{}, Groups: groups}).Call(t.Context(), of(1, 1))
		wantCause(t, want, err, want)
	}
	n, o := newTowers(dtype.Float16), &LossScaleOptimizer{Inner: &SGD{}, Groups: []LossScaleGroup{{Layers: "head"}}}
	call(t, n.step(o), of(1, 1))
	o.Groups = append(o.Groups, LossScaleGroup{Layers: "body"})
	_, err := n.step(o).Call(t.Context(), of(1, 1))
	wantCause(t, "changed", err, "Groups: got 2, want the 1 that it was first used with")

	// Gradients of another Function do not tell what has overflowed.
	n, o = newTowers(dtype.Float16), &LossScaleOptimizer{Inner: &SGD{}, Groups: []LossScaleGroup{{Layers: "head"}}}
	vars := n.Variables()
	grads, err := tensor.Function(func(in towersIn) []*tensor.Tensor {
		return o.GetUnscaledGradients(tensor.Gradients(o.GetScaledLoss(n.loss(in)), vars))
	}, n, o).Call(t.Context(), of(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	err = tensor.Function(func(g []*tensor.Tensor) struct{} {
		o.ApplyGradients(g, vars)
		return struct{}{}
	}, n, o).Run(t.Context(), grads)
	wantCause(t, "another Function", err, "with Groups, gradients must be applied in the Function that calls GetScaledLoss")
}
