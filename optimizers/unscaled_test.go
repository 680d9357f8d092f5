package optimizers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// network is a product of two weights, computed in a type of 16 bits or in
// float32 from float32 weights: dense layers under a policy.
type network struct {
	compute dtype.DType
	v, w    *tensor.Variable // [2 2]
}

func newNetwork(compute dtype.DType) *network {
	return &network{compute,
		variable("v", dtype.Float32, []float64{0.5, -0.25, 1, 0.125}, 2, 2),
		variable("w", dtype.Float32, []float64{1, 0.5, -0.5, 0.25}, 2, 2)}
}

func (n *network) Variables() []*tensor.Variable { return owner{n.v, n.w} }

// call computes the network on x, [2 2].
func (n *network) call(x *tensor.Tensor) *tensor.Tensor {
	h := x.Cast(n.compute).MatMul(n.v.Value().Cast(n.compute)).Relu()
	return h.MatMul(n.w.Value().Cast(n.compute))
}

// loss is a float32 scalar.
func (n *network) loss(x *tensor.Tensor) *tensor.Tensor { return n.call(x).Widen().Square().Mean() }

// penalty is an L2 regularization of the float32 weights.
func (n *network) penalty() *tensor.Tensor {
	return n.v.Value().SumSquares().Add(n.w.Value().SumSquares()).MulScalar(0.01)
}

// step runs f twice in a Function that lists all.
func step(t *testing.T, f func(x *tensor.Tensor), all ...tensor.Stateful) error {
	t.Helper()
	fn := tensor.Function(func(x *tensor.Tensor) struct{} {
		f(x)
		return struct{}{}
	}, all...)
	for range 2 {
		if err := fn.Run(t.Context(), tensor.New([]float32{1, 2, 3, 4}, 2, 2)); err != nil {
			return err
		}
	}
	return nil
}

var computeTypes = []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16}

// wantCause checks that err holds want, or that there is none if want is "".
func wantCause(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: got %v\nwant %q", what, err, want)
	}
}

// TestUnscaledLoss: gradients of a loss that was not scaled are an error of a
// LossScaleOptimizer under every type, and of other optimizers where they
// passed through float16; AllowUnscaledLoss takes them.
func TestUnscaledLoss(t *testing.T) {
	const (
		never   = "the loss whose gradient of v is given was not scaled; compute gradients from GetScaledLoss and give them to GetUnscaledGradients, or set AllowUnscaledLoss"
		through = "the gradient of v passed through float16 and its loss was not scaled, so small gradients are lost; "
	)
	for _, d := range computeTypes {
		for _, allow := range []bool{false, true} {
			for name, make := range map[string]func() Optimizer{
				"scaled":  func() Optimizer { return &LossScaleOptimizer{Inner: &Adam{}, AllowUnscaledLoss: allow} },
				"foreign": func() Optimizer { return &LossScaleOptimizer{Inner: &foreign{SGD{}}, AllowUnscaledLoss: allow} },
				"plain":   func() Optimizer { return &Adam{AllowUnscaledLoss: allow} },
				"accumulating": func() Optimizer {
					return &SGD{AllowUnscaledLoss: allow, GradientAccumulationSteps: 2}
				},
				"multi": func() Optimizer {
					part := &SGD{AllowUnscaledLoss: allow}
					return &MultiOptimizer{OptimizerMap: OptimizerMap{Default: part, Entries: []OptimizerEntry{{"w", &Adam{}}}}}
				},
			} {
				n, o := newNetwork(d), make()
				want := ""
				_, scales := o.(*LossScaleOptimizer)
				switch {
				case scales && !allow:
					want = never
				case d == dtype.Float16 && name == "multi": // the part of w has not the option
					want = strings.Replace(through, "of v", "of w", 1)
				case d == dtype.Float16 && !allow:
					want = through
				}
				what := fmt.Sprintf("%v, %s, allowed %v", d, name, allow)
				vars := n.Variables()
				wantCause(t, what, step(t, func(x *tensor.Tensor) { o.ApplyGradients(tensor.Gradients(n.loss(x), vars), vars) }, n, o), want)

				// So it is with what was done to the gradients in between.
				wantCause(t, what+", clipped", step(t, func(x *tensor.Tensor) {
					g, _ := ClipByGlobalNorm(tensor.Gradients(n.loss(x), vars), 1)
					o.ApplyGradients(g, vars)
				}, n, o), want)
				if scales || allow {
					continue
				}
				// Gradients that another Function returned have passed the same way.
				grads := tensor.Function(func(x *tensor.Tensor) []*tensor.Tensor { return tensor.Gradients(n.loss(x), vars) }, n)
				g, err := grads.Call(t.Context(), tensor.New([]float32{1, 2, 3, 4}, 2, 2))
				if err != nil {
					t.Fatal(err)
				}
				apply := tensor.Function(func(g []*tensor.Tensor) struct{} {
					o.ApplyGradients(g, vars)
					return struct{}{}
				}, n, o)
				wantCause(t, what+", of a Function", apply.Run(t.Context(), g), want)
			}
		}
	}
}

// TestScaledInAnotherFunction: what still carries a loss scale when a Function
// returns it carries it in the next one.
func TestScaledInAnotherFunction(t *testing.T) {
	for _, d := range computeTypes {
		n, o := newNetwork(d), &LossScaleOptimizer{Inner: &SGD{}}
		vars := n.Variables()
		grads := tensor.Function(func(x *tensor.Tensor) []*tensor.Tensor {
			return tensor.Gradients(o.GetScaledLoss(n.loss(x)), vars)
		}, n, o)
		g, err := grads.Call(t.Context(), tensor.New([]float32{1, 2, 3, 4}, 2, 2))
		if err != nil {
			t.Fatal(err)
		}
		var unmarked []*tensor.Tensor // of the same types
		for _, x := range g {
			b, err := x.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			unmarked = append(unmarked, tensor.FromBytes(x.Type(), b))
		}
		for want, f := range map[string]func(g []*tensor.Tensor){
			"gradient of v still carries the loss scale; call GetUnscaledGradients first":                              func(g []*tensor.Tensor) { o.Inner.ApplyGradients(g, vars) },
			"gradient 0 was scaled in another Function; call GetUnscaledGradients in the one that calls GetScaledLoss": func(g []*tensor.Tensor) { o.GetUnscaledGradients(g) },
		} {
			fn := tensor.Function(func(g []*tensor.Tensor) struct{} {
				f(g)
				return struct{}{}
			}, n, o)
			_ = fn.Run(t.Context(), unmarked) // a plan for others must not serve these
			wantCause(t, d.String(), fn.Run(t.Context(), g), want)
		}
	}
}

// TestScaledLossesWork: what has a loss scale, or needs none, is no error under
// any type.
func TestScaledLossesWork(t *testing.T) {
	for _, d := range computeTypes {
		n := newNetwork(d)
		vars := n.Variables()
		o := &LossScaleOptimizer{Inner: &Adam{}}
		plain := &SGD{}
		sum := owner{variable("sum_v", dtype.Float32, make([]float64, 4), 2, 2), variable("sum_w", dtype.Float32, make([]float64, 4), 2, 2)}
		unscaled := func(loss *tensor.Tensor) []*tensor.Tensor {
			return o.GetUnscaledGradients(tensor.Gradients(o.GetScaledLoss(loss), vars))
		}
		added := func(a, b []*tensor.Tensor) (out []*tensor.Tensor) {
			for i := range a {
				out = append(out, a[i].Add(b[i]))
			}
			return out
		}
		inner := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor { return n.loss(x) }, n)
		for name, f := range map[string]func(x *tensor.Tensor){
			"plainly":               func(x *tensor.Tensor) { o.ApplyGradients(unscaled(n.loss(x)), vars) },
			"with a penalty":        func(x *tensor.Tensor) { o.ApplyGradients(unscaled(n.loss(x).Add(n.penalty())), vars) },
			"of the penalty":        func(x *tensor.Tensor) { o.ApplyGradients(unscaled(n.penalty()), vars) },
			"of the penalty, plain": func(x *tensor.Tensor) { plain.ApplyGradients(tensor.Gradients(n.penalty(), vars), vars) },
			"clipped":               func(x *tensor.Tensor) { o.ApplyGradients(ClipByNorm(unscaled(n.loss(x)), 0.1), vars) },
			"two losses":            func(x *tensor.Tensor) { o.ApplyGradients(added(unscaled(n.loss(x)), unscaled(n.loss(x.Neg()))), vars) },
			"a penalty that is not": func(x *tensor.Tensor) {
				o.ApplyGradients(added(unscaled(n.loss(x)), tensor.Gradients(n.penalty(), vars)), vars)
			},
			"in a nested Function": func(x *tensor.Tensor) { y, _ := inner.Call(t.Context(), x); o.ApplyGradients(unscaled(y), vars) },
			"computed again": func(x *tensor.Tensor) {
				o.ApplyGradients(unscaled(tensor.Remat(func() *tensor.Tensor { return n.loss(x) })), vars)
			},
			"zeros": func(x *tensor.Tensor) {
				o.ApplyGradients([]*tensor.Tensor{tensor.Zeros(dtype.Float32, 2, 2), nil}, vars)
			},
			"one without a gradient": func(x *tensor.Tensor) { g := unscaled(n.loss(x)); g[1] = nil; o.ApplyGradients(g, vars) },
			"one of zeros": func(x *tensor.Tensor) {
				g := unscaled(n.loss(x))
				g[1] = tensor.Zeros(dtype.Float32, 2, 2)
				o.ApplyGradients(g, vars)
			},
			"added up in variables": func(x *tensor.Tensor) {
				for i, g := range unscaled(n.loss(x)) {
					sum[i].Assign(sum[i].Value().Add(g))
				}
				o.ApplyGradients([]*tensor.Tensor{sum[0].Value(), sum[1].Value()}, vars)
			},
			"added up in variables before": func(x *tensor.Tensor) {
				o.ApplyGradients([]*tensor.Tensor{sum[0].Value(), sum[1].Value()}, vars)
				for i, g := range unscaled(n.loss(x)) {
					sum[i].Assign(sum[i].Value().Add(g))
				}
			},
			"a gradient penalty": func(x *tensor.Tensor) { // scaled and unscaled on its own, and then part of the loss
				g := o.GetUnscaledGradients(tensor.GradientsAt(o.GetScaledLoss(n.loss(x)), x))[0]
				o.ApplyGradients(unscaled(n.loss(x).Add(g.SumSquares())), vars)
			},
			"a gradient penalty that is not scaled": func(x *tensor.Tensor) {
				g := tensor.GradientsAt(n.loss(x), x)[0]
				o.ApplyGradients(unscaled(n.loss(x).Add(g.SumSquares())), vars)
			},
			"through a step of its own": func(x *tensor.Tensor) { // model-agnostic meta-learning
				g := tensor.Gradients(n.loss(x), vars)
				fast := &network{d, n.v, n.w}
				moved := x.MatMul(fast.v.Value().Sub(g[0].MulScalar(0.1)))
				o.ApplyGradients(unscaled(moved.MatMul(fast.w.Value().Sub(g[1].MulScalar(0.1))).Square().Mean()), vars)
			},
			"an adversarial example": func(x *tensor.Tensor) {
				x = x.Add(tensor.GradientsAt(n.loss(x), x)[0].Sign().MulScalar(0.1))
				o.ApplyGradients(unscaled(n.loss(x)), vars)
			},
			"a float32 network on what a float16 one is not sure of": func(x *tensor.Tensor) {
				student := &network{dtype.Float32, n.v, n.w}
				x = x.Add(tensor.GradientsAt(n.loss(x), x)[0].Sign().MulScalar(0.1))
				plain.ApplyGradients(tensor.Gradients(student.loss(x), vars), vars)
			},
			"a frozen float16 network": func(x *tensor.Tensor) {
				head := n.call(x).StopGradient().Cast(dtype.Float32).MatMul(n.w.Value())
				plain.ApplyGradients(tensor.Gradients(head.Square().Mean(), owner{n.w}), owner{n.w})
			},
			"float32 weights, float16 data": func(x *tensor.Tensor) {
				plain.ApplyGradients(tensor.Gradients(x.Cast(d).Cast(dtype.Float32).MatMul(n.v.Value()).Sum(), owner{n.v}), owner{n.v})
			},
		} {
			if err := step(t, f, n, o, plain, sum); err != nil {
				t.Errorf("%v, %s: %v", d, name, err)
			}
		}
	}
}

// TestTwoScalers: two LossScaleOptimizers around one optimizer are an error
// where one applies what the other has scaled, or both apply in one step; one
// of them for both losses follows the overflow of either.
func TestTwoScalers(t *testing.T) {
	const (
		another = "was scaled by another LossScaleOptimizer, second, whose scale would not follow from it; scale all losses of a step with the one that applies their gradients"
		both    = "optimizer adam: two LossScaleOptimizers around it apply gradients in one step, loss_scale_optimizer and second; use one, and its GetScaledLoss for each loss"
	)
	for _, d := range computeTypes {
		n, adam := newNetwork(d), &Adam{}
		vars := n.Variables()
		first, second := &LossScaleOptimizer{Inner: adam}, &LossScaleOptimizer{Inner: adam, Name: "second"}
		gradients := func(o *LossScaleOptimizer, loss *tensor.Tensor) []*tensor.Tensor {
			return o.GetUnscaledGradients(tensor.Gradients(o.GetScaledLoss(loss), vars))
		}
		for name, c := range map[string]struct {
			want string
			f    func(x *tensor.Tensor)
		}{
			"summed": {"the gradient of v " + another, func(x *tensor.Tensor) {
				a, b := gradients(first, n.loss(x)), gradients(second, n.loss(x.Neg()))
				first.ApplyGradients([]*tensor.Tensor{a[0].Add(b[0]), a[1].Add(b[1])}, vars)
			}},
			"a weight each": {"the gradient of w " + another, func(x *tensor.Tensor) {
				a, b := gradients(first, n.loss(x)), gradients(second, n.loss(x.Neg()))
				first.ApplyGradients([]*tensor.Tensor{a[0], b[1]}, vars)
			}},
			"exchanged": {"the gradient of v " + another, func(x *tensor.Tensor) { first.ApplyGradients(gradients(second, n.loss(x)), vars) }},
			"one after the other": {both, func(x *tensor.Tensor) {
				a, b := gradients(first, n.loss(x)), gradients(second, n.loss(x.Neg()))
				first.ApplyGradients(a, vars)
				second.ApplyGradients(b, vars)
			}},
			"in steps of their own": {"", func(x *tensor.Tensor) { first.ApplyGradients(gradients(first, n.loss(x)), vars) }},
			"of their own too":      {"", func(x *tensor.Tensor) { second.ApplyGradients(gradients(second, n.loss(x)), vars) }},
		} {
			wantCause(t, fmt.Sprint(d, ", ", name), step(t, c.f, n, first, second), c.want)
		}
	}
	// The gradient of the second loss overflows at scales of 2¹⁰ and more.
	n := newNetwork(dtype.Float16)
	vars := n.Variables()
	o := &LossScaleOptimizer{Inner: &SGD{LearningRate: 1e-6}}
	fn := tensor.Function(func(x *tensor.Tensor) struct{} {
		var grads []*tensor.Tensor
		for i, loss := range []*tensor.Tensor{n.loss(x), n.loss(x).MulScalar(64)} {
			for j, g := range o.GetUnscaledGradients(tensor.Gradients(o.GetScaledLoss(loss), vars)) {
				if i == 0 {
					grads = append(grads, g)
				} else {
					grads[j] = grads[j].Add(g)
				}
			}
		}
		o.ApplyGradients(grads, vars)
		return struct{}{}
	}, n, o)
	for range 20 {
		if err := fn.Run(t.Context(), tensor.New([]float32{1, 2, 3, 4}, 2, 2)); err != nil {
			t.Fatal(err)
		}
	}
	r := result(t, o)
	if r.LossScale < 2 || r.LossScale > 1<<10 || r.SkippedSteps > 14 || r.ConsecutiveSkips != 0 || !r.Applied {
		t.Errorf("one for both losses: got %+v, want a scale that fits, and steps that are applied", r)
	}
}
