package optimizers

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Check returns an error when a field of o is out of range, such as a
// LearningRate that is not finite. Model.Compile calls it. It returns nil for
// types of other packages.
func Check(o Optimizer) (err error) {
	defer tensor.Catch(&err)
	if isNil(o) {
		return fmt.Errorf("got %s, want an optimizer", nilText(o))
	}
	var parts []Optimizer
	switch o := o.(type) {
	case *LossScaleOptimizer:
		o.check("")
		parts = []Optimizer{o.Inner}
	case *MultiOptimizer:
		o.check("")
		parts = o.Optimizers()
	case ruled:
		s := o.setup()
		s.check("")
		if s.options.Schedule != nil {
			// At step 0: where its own numbers are found wrong.
			scheduled(s.options.Schedule, tensor.Scalar(dtype.Float32, 0))
			if err := startRate(&s); err != nil {
				return err
			}
		}
	}
	for _, p := range parts {
		if err := Check(p); err != nil {
			return err
		}
	}
	return nil
}

// startRate checks the first rate of a schedule, which may be one of a program.
func startRate(s *setup) error {
	if tensor.Recording() != 0 { // nothing has a value
		return nil
	}
	rate, err := scheduled(s.options.Schedule, tensor.New([]float32{0})).Item()
	if err != nil {
		return err
	}
	if f := notNegative("rate", rate); !f.fits() {
		return fmt.Errorf("optimizer %s: Schedule: %T: got rate %v at step 0, want %s", s.name(), s.options.Schedule, rate, f.want)
	}
	return nil
}

// isNil reports whether x, an Optimizer or a Schedule, is nil or a nil pointer.
func isNil(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// nilText describes a nil argument for messages.
func nilText(x any) string {
	if x == nil {
		return "nil"
	}
	return fmt.Sprintf("a nil %T", x)
}

// preconditioned is implemented by all optimizers of this package.
type preconditioned interface{ precondition() error }

func init() {
	tensor.RegisterPrecondition(func(o tensor.Stateful) func() error {
		if p, ok := o.(preconditioned); ok {
			return p.precondition
		}
		return nil
	})
}

// precondition returns the error of o's precondition, nil if it has none.
func precondition(o Optimizer) error {
	if p, ok := o.(preconditioned); ok && !isNil(o) {
		return p.precondition()
	}
	return nil
}

// field is a number of an optimizer with the range it must be in.
type field struct {
	name   string
	value  float64
	lo, hi float64 // inclusive
	want   string
}

// fits reports whether the number is in its range; NaN is not.
func (f field) fits() bool { return f.value >= f.lo && f.value <= f.hi }

func positive(name string, v float64) field {
	return field{name, v, math.SmallestNonzeroFloat64, math.MaxFloat32, "a positive number"}
}

func notNegative(name string, v float64) field {
	return field{name, v, 0, math.MaxFloat32, "a number that is not negative"}
}

// firstRate is the rate that a schedule begins with, or its highest.
func firstRate(name string, v float64) field {
	return field{name, v, math.SmallestNonzeroFloat32, math.MaxFloat32, "a positive number"}
}

// rate is the field LearningRate: at least the smallest number of float32, or
// negative zero; zero means the default.
func rate(v float64) field {
	least := float64(math.SmallestNonzeroFloat32)
	if v == 0 {
		least = 0
	}
	return field{"LearningRate", v, least, math.MaxFloat32, "a positive float32 number"}
}

func fraction(name string, v float64) field {
	return field{name, v, 0, math.Nextafter(1, 0), "at least 0 and less than 1"}
}

// check fails when a field makes no sense.
func (s *setup) check(where string) {
	o := s.options
	fail := func(format string, args ...any) {
		tensor.Fail(where, "optimizer %s: "+format, append([]any{s.name()}, args...)...)
	}
	fields := append([]field{
		rate(s.learningRate),
		notNegative("WeightDecay", s.weightDecay()),
		notNegative("ClipNorm", o.ClipNorm),
		notNegative("ClipValue", o.ClipValue),
		notNegative("GlobalClipNorm", o.GlobalClipNorm),
		fraction("EMAMomentum", o.EMAMomentum),
		notNegative("EMAOverwriteFrequency", float64(o.EMAOverwriteFrequency)),
		notNegative("GradientAccumulationSteps", float64(o.GradientAccumulationSteps)),
	}, s.fields...)
	for _, f := range fields {
		if !f.fits() {
			fail("%s: got %v, want %s", f.name, f.value, f.want)
		}
	}
	if o.GradientAccumulationSteps == 1 {
		fail("GradientAccumulationSteps: got 1, want 0 or at least 2")
	}
	var clips []string
	for _, f := range fields[2:5] {
		if f.value != 0 {
			clips = append(clips, f.name)
		}
	}
	if len(clips) > 1 {
		fail("got %s, want at most one of ClipNorm, ClipValue and GlobalClipNorm", strings.Join(clips, " and "))
	}
}

// matcher reports for variables whether one of the regular expressions matches their
// names. It fails if an expression is invalid; field is its origin.
func (s *setup) matcher(field string, expressions []string) func(*tensor.Variable) bool {
	var patterns []*regexp.Regexp
	for _, e := range expressions {
		re, err := regexp.Compile(e)
		if err != nil {
			tensor.Fail("ApplyGradients", "optimizer %s: %s: %v", s.name(), field, err)
		}
		patterns = append(patterns, re)
	}
	return func(v *tensor.Variable) bool {
		return slices.ContainsFunc(patterns, func(re *regexp.Regexp) bool { return re.MatchString(v.Name()) })
	}
}

// CheckGradients panics with *keras.Error unless gradients can be applied to
// vars: shapes agree, no gradient carries a loss scale, and gradients that
// passed through float16 come from a scaled loss. An Optimizer of another
// package calls it first in ApplyGradients; name is the optimizer's name in
// the error.
func CheckGradients(name string, grads []*tensor.Tensor, vars []*tensor.Variable) {
	g, v := pairs(nil, grads, vars)
	throughFloat16(g, v, "optimizer "+name, "use a LossScaleOptimizer")
}

// pairs returns the gradients that are not nil with their variables, after
// checking that they fit. p is the optimizer's partition, or nil.
func pairs(p *tensor.Partition, grads []*tensor.Tensor, vars []*tensor.Variable) (g []*tensor.Tensor, v []*tensor.Variable) {
	const where = "ApplyGradients"
	if len(grads) == 0 && len(vars) == 0 {
		tensor.Fail(where, "got 0 variables; was the model built when they were listed? call Build first, or list them inside the Function")
	}
	if len(grads) != len(vars) {
		tensor.Fail(where, "got %d gradients, want %d: one for each variable", len(grads), len(vars))
	}
	seen := map[*tensor.Variable]bool{}
	for i, x := range vars {
		switch {
		case x == nil:
			tensor.Fail(where, "variable %d is nil", i)
		case seen[x]:
			tensor.Fail(where, "variable %s is listed twice", x.Name())
		case !x.DType().IsFloat():
			tensor.Fail(where, "variable %s: got %v, want a float type", x.Name(), x.Type())
		}
		seen[x] = true
		if grads[i] == nil {
			continue
		}
		t := grads[i]
		switch {
		case t.Err() != nil:
			tensor.Fail(where, "gradient of %s: %w", x.Name(), t.Err())
		case t.IsTuple() || !t.DType().IsFloat() || !t.Shape().Equal(p.GradientShape(x.Shape())):
			tensor.Fail(where, "gradient of %s: got %v, want %v%v", x.Name(), describe(t), x.DType(), p.GradientShape(x.Shape()))
		case tensor.ScaledBy(t) != nil || tensor.GradientTagOf(t).Scaled:
			tensor.Fail(where, "gradient of %s still carries the loss scale; call GetUnscaledGradients first", x.Name())
		}
		g, v = append(g, t), append(v, x)
	}
	if len(g) == 0 {
		tensor.Fail(where, "got no gradient for any of %d variables; does the loss depend on them?", len(vars))
	}
	return g, v
}

// throughFloat16 fails if a gradient passed through float16 on its way from a loss
// without a loss scale. who is the optimizer that applies it, cure the way to scale the
// loss.
func throughFloat16(g []*tensor.Tensor, v []*tensor.Variable, who, cure string) {
	for i, t := range g {
		if m := tensor.GradientTagOf(t); m.Unscaled && m.Float16 {
			tensor.Fail("ApplyGradients", "%s: the gradient of %s passed through float16 and its loss was not scaled, so small gradients are lost; "+
				"%s, with GetScaledLoss and GetUnscaledGradients, or set AllowUnscaledLoss", who, v[i].Name(), cure)
		}
	}
}

// inFunction fails where ApplyGradients of the optimizer of a name is called
// outside of Functions.
func inFunction(name string) {
	if tensor.Recording() == 0 {
		tensor.Fail("optimizer "+name, "ApplyGradients belongs in a keras.Function that lists it and the model")
	}
}

// describe is the type of t for messages.
func describe(t *tensor.Tensor) any {
	if t.IsTuple() {
		return "a tuple"
	}
	return t.Type()
}
