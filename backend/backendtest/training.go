package backendtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Sizes of the training step, odd on purpose.
const (
	trainBatch   = 31
	trainInputs  = 21
	trainHidden  = 17
	trainClasses = 5
	trainScale   = 128 // of the loss: gradients leave the subnormals of float16
	trainRate    = 0.3
)

// trainStep is a step of a classifier with one hidden layer: forward,
// cross-entropy, backward, and SGD with a skip when a gradient is not finite.
// Layers compute in d; variables and the loss are float32. Inputs 0 … 3 are
// the variables w1, b1, w2, b2, which outputs 0 … 3 may overwrite; then come
// the data and the labels. Output 4 is the loss.
func trainStep(d dtype.DType) (*ir.Graph, []op.Type) {
	types := []op.Type{
		typ(f32, trainInputs, trainHidden), typ(f32, trainHidden),
		typ(f32, trainHidden, trainClasses), typ(f32, trainClasses),
		typ(f32, trainBatch, trainInputs), typ(dtype.Int32, trainBatch),
	}
	g := ir.New(len(types))
	p := make([]*ir.Value, len(types))
	for i, t := range types {
		p[i] = param(g, i, t)
	}
	rec := func(c op.Code, a op.Attr, args ...*ir.Value) *ir.Value { return add(g, c, a, args...) }
	cast := func(v *ir.Value, to dtype.DType) *ir.Value { return rec(op.Cast, op.Attr{DType: to}, v) }
	constant := func(v float64, t op.Type) *ir.Value {
		return rec(op.Const, op.Attr{DType: t.DType, Dims: t.Shape, Value: v})
	}
	scalar := func(v float64) *ir.Value { return constant(v, typ(f32)) }

	// Forward. Each use of a weight casts it anew, as layers do.
	x := cast(p[4], d)
	hidden := rec(op.Add, op.Attr{}, rec(op.MatMul, op.Attr{}, x, cast(p[0], d)), cast(p[1], d))
	act := rec(op.Relu, op.Attr{}, hidden)
	out := rec(op.Add, op.Attr{}, rec(op.MatMul, op.Attr{}, act, cast(p[2], d)), cast(p[3], d))
	logp := rec(op.LogSoftmax, op.Attr{Axes: []int{1}}, cast(out, f32))
	picked := rec(op.TakeAlongAxis, op.Attr{}, logp, p[5])
	loss := rec(op.Neg, op.Attr{}, rec(op.Mean, op.Attr{Axes: []int{0}}, picked))

	// Backward, of scale·loss.
	ones := constant(1, typ(f32, trainBatch))
	hot := rec(op.ScatterAlongAxis, op.Attr{Size: trainClasses}, ones, p[5])
	dOut := rec(op.Mul, op.Attr{}, rec(op.Sub, op.Attr{}, rec(op.Exp, op.Attr{}, logp), hot), scalar(trainScale/trainBatch))
	dOut = cast(dOut, d)
	rows := []int{0}
	dW2 := rec(op.MatMul, op.Attr{TransA: true, DType: f32}, act, dOut)
	dB2 := rec(op.Sum, op.Attr{Axes: rows, DType: f32}, dOut)
	dAct := rec(op.MatMul, op.Attr{TransB: true}, dOut, cast(p[2], d))
	zero := constant(0, typ(d))
	dHidden := rec(op.Where, op.Attr{}, rec(op.Greater, op.Attr{}, hidden, zero), dAct, rec(op.BroadcastTo, op.Attr{Dims: dAct.Type.Shape}, zero))
	dW1 := rec(op.MatMul, op.Attr{TransA: true, DType: f32}, x, dHidden)
	dB1 := rec(op.Sum, op.Attr{Axes: rows, DType: f32}, dHidden)

	// Update.
	grads := []*ir.Value{dW1, dB1, dW2, dB2}
	var finite *ir.Value
	for i, grad := range grads {
		ok := rec(op.AllFinite, op.Attr{}, grad)
		if i == 0 {
			finite = ok
		} else {
			finite = rec(op.And, op.Attr{}, finite, ok)
		}
	}
	for i, grad := range grads {
		unscaled := rec(op.Div, op.Attr{}, grad, scalar(trainScale))
		next := rec(op.Sub, op.Attr{}, p[i], rec(op.Mul, op.Attr{}, unscaled, scalar(trainRate)))
		g.Output(rec(op.Where, op.Attr{}, finite, next, p[i]), i)
	}
	g.Output(loss, -1)
	return g, types
}

// trainingInputs are small weights and data whose labels they could learn.
func trainingInputs(types []op.Type) []array {
	in := sample(7, types...)
	in[5].data = indices(trainClasses)(seeded(7), types[5])
	return in
}

// train runs steps, feeding variables back, and returns the variables with
// the losses of the first and of the last step.
func train(d driver.Device, dt dtype.DType, o ir.Options, steps int) (vars []array, first, last float64, err error) {
	g, types := trainStep(dt)
	p, plan, err := backend.Compile(context.Background(), d, g, o)
	if err != nil {
		return nil, 0, 0, err
	}
	in := trainingInputs(types)
	for i := range steps {
		out, err := execute(context.Background(), d, p, plan, in)
		if err != nil {
			return nil, 0, 0, err
		}
		copy(in, out[:4])
		last = out[4].floats()[0]
		if i == 0 {
			first = last
		}
	}
	return in[:4], first, last, nil
}

// testTraining trains with every choice of passes that matters: all, none,
// each left out, each alone, and watched. The variables have the same bits.
func testTraining(t *testing.T, d driver.Device) {
	names := ir.OptionalPasses()
	choices := map[string]ir.Options{
		"none":  {Skip: names, Check: true},
		"watch": {Watch: true, Check: true},
		"plain": {},
	}
	for i, name := range names {
		choices["without "+name] = ir.Options{Skip: []string{name}, Check: true}
		alone := append(append([]string{}, names[:i]...), names[i+1:]...)
		choices["only "+name] = ir.Options{Skip: alone, Check: true}
	}
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		t.Run(dt.String(), func(t *testing.T) {
			const steps = 30
			want, first, last, err := train(d, dt, ir.Options{Check: true}, steps)
			if err != nil {
				t.Fatal(err)
			}
			if !(last < first/2) {
				t.Errorf("the loss went from %v to %v in %d steps, want less than half", first, last, steps)
			}
			for name, o := range choices {
				got, _, _, err := train(d, dt, o, steps)
				if err == nil {
					err = sameVariables(got, want)
				}
				if err != nil {
					t.Errorf("passes: %s: %v", name, err)
				}
			}
		})
	}
}

func sameVariables(got, want []array) error {
	for i, name := range []string{"w1", "b1", "w2", "b2"} {
		if err := sameBits(got[i], want[i]); err != nil {
			return fmt.Errorf("%s differs from training with all passes: %w", name, err)
		}
	}
	return nil
}
