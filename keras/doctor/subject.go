package doctor

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// subject is a step that is examined.
type subject interface {
	// run runs the step beside itself, and sample does on a few samples.
	run(ctx context.Context, o tensor.BesideOptions) (*tensor.Taps, error)
	sample(ctx context.Context, o tensor.BesideOptions) (*tensor.Taps, error)

	// under runs it under a map of policies with another loss scale. scaled says
	// whether it has one then.
	under(ctx context.Context, at policy.Map, scale float64) (taps *tensor.Taps, scaled bool, err error)

	// settled runs it with the delayed scales of 8-bit products that scales has, by
	// variable, and puts into scales those of the step after it. Taps are nil where
	// there are no copies of the model to run.
	settled(ctx context.Context, scales map[string][]float64, scale float64) (*tensor.Taps, error)

	// statistics are the model's variables that no gradient changes.
	statistics() []*keras.Variable

	// unitsOf lists what a map of policies can be of.
	unitsOf(taps *tensor.Taps) []unit
}

// unit is a layer, or an operation outside of layers.
type unit struct {
	name     string // the path of a layer, the TapID of an operation
	computes dtype.DType
	float8   bool
	policy   string // of a layer
}

// operation reports whether a unit is an operation: it has no path.
func operation(name string) bool { return strings.HasPrefix(name, "/") }

// modelStep is the training step of a model.
type modelStep struct {
	model    *keras.Model
	compiled keras.CompileConfig
	batch    keras.Batch
}

func (s *modelStep) run(ctx context.Context, o tensor.BesideOptions) (*tensor.Taps, error) {
	return s.model.Beside(ctx, s.batch, o)
}

func (s *modelStep) statistics() []*keras.Variable { return s.model.NonTrainableVariables() }

func (s *loopStep) statistics() []*keras.Variable { return s.model.NonTrainableVariables() }

func (s *functionStep) statistics() []*keras.Variable { return nil }

// sample takes two samples or more: float64 products are slow, so fewer for large
// models.
func (s *modelStep) sample(ctx context.Context, o tensor.BesideOptions) (*tensor.Taps, error) {
	weights := 1
	for _, v := range s.model.TrainableVariables() {
		weights += v.Shape().Size()
	}
	return s.model.Beside(ctx, head(s.batch, max(2, 1<<26/weights)), o)
}

func (s *modelStep) unitsOf(*tensor.Taps) []unit { return layersOf(s.model) }

// under makes a copy of the model, compiled with this loss scale if it computes in
// float16.
func (s *modelStep) under(ctx context.Context, at policy.Map, scale float64) (taps *tensor.Taps, scaled bool, err error) {
	m, scaled, err := s.copy(at, scale)
	if err != nil {
		return nil, false, err
	}
	taps, err = m.Beside(ctx, s.batch, tensor.BesideOptions{All: true})
	return taps, scaled, err
}

// copy is a compiled copy of the model under a map.
func (s *modelStep) copy(at policy.Map, scale float64) (m *keras.Model, scaled bool, err error) {
	m, err = s.model.CloneUnder("", orEmpty(at), true)
	if err != nil {
		return nil, false, err
	}
	c := s.compiled
	c.Optimizer = cmp.Or[optimizers.Optimizer](c.Optimizer, &optimizers.SGD{})
	scaled, err = compileCopy(m, c, func(inner optimizers.Optimizer) *optimizers.LossScaleOptimizer {
		return &optimizers.LossScaleOptimizer{Inner: inner, InitialScale: scale, MinScale: min(1, scale), MaxScale: max(scale, math.Exp2(largestScale))}
	})
	return m, scaled, err
}

func (s *modelStep) settled(ctx context.Context, scales map[string][]float64, scale float64) (taps *tensor.Taps, err error) {
	m, _, err := s.copy(nil, scale)
	if err != nil {
		return nil, err
	}
	var delayed []*keras.Variable
	for _, v := range m.Variables() {
		if delayedScale(v) {
			delayed = append(delayed, v)
			if x := scales[v.Name()]; x != nil {
				if err := v.Set(x); err != nil {
					return nil, err
				}
			}
		}
	}
	if taps, err = m.Beside(ctx, s.batch, tensor.BesideOptions{All: true}); err != nil {
		return nil, err
	}
	if _, err := m.TrainOnBatch(ctx, s.batch); err != nil {
		return nil, err
	}
	for _, v := range delayed {
		if scales[v.Name()], err = v.Float64s(); err != nil {
			return nil, err
		}
	}
	return taps, nil
}

// delayedScale reports whether a variable is one of those that the next step scales
// operands of 8-bit products with: a scale, or the magnitudes that it comes from.
func delayedScale(v *keras.Variable) bool {
	name := v.Name()[strings.LastIndexByte(v.Name(), '/')+1:]
	for _, of := range []string{"inputs", "kernel", "outputs_grad"} {
		if name == of+"_scale" || name == of+"_amax_history" {
			return true
		}
	}
	return false
}

func (s *functionStep) settled(context.Context, map[string][]float64, float64) (*tensor.Taps, error) {
	return nil, nil
}

// orEmpty is at, or an empty map: CloneUnder reads the global map instead of nil.
func orEmpty(at policy.Map) policy.Map {
	if at == nil {
		return policy.Map{}
	}
	return at
}

// compileCopy compiles a copy of a model that c is of, without metrics and with an
// optimizer of its own, which scale wraps if a layer computes in float16.
func compileCopy(m *keras.Model, c keras.CompileConfig, scale func(inner optimizers.Optimizer) *optimizers.LossScaleOptimizer) (scaled bool, err error) {
	c.Metrics, c.OutputMetrics, c.WeightedMetrics, c.OutputWeightedMetrics = nil, nil, nil, nil
	c.Outputs = maps.Clone(c.Outputs)
	for name, o := range c.Outputs {
		o.Metrics, o.WeightedMetrics = nil, nil
		c.Outputs[name] = o
	}
	switch o := c.Optimizer.(type) {
	case nil:
		c.Optimizer = &optimizers.RMSprop{} // Compile's default
	case *optimizers.LossScaleOptimizer:
		c.Optimizer = optimizers.Clone(o.Inner)
	default:
		c.Optimizer = optimizers.Clone(o)
	}
	if scaled = computesInFloat16(m.Layers()); scaled {
		c.Optimizer = scale(c.Optimizer)
	} else {
		c.AutoScaleLoss = new(false) // a layer may cast to float16 whatever its policy
	}
	return scaled, m.Compile(c)
}

func computesInFloat16(ls []layers.Layer) bool {
	return slices.ContainsFunc(ls, func(l layers.Layer) bool {
		b := layers.BaseOf(l)
		inner := keras.ModelOf(l)
		return inner != nil && computesInFloat16(inner.Layers()) || inner == nil && (b.ComputeDType() == dtype.Float16 || b.Policy().Auto == dtype.Float16) || computesInFloat16(b.Sublayers())
	})
}

// head is the first n samples of a batch.
func head(b keras.Batch, n int) keras.Batch {
	cut := func(t *keras.Tensor) *keras.Tensor {
		if t == nil {
			return nil
		}
		parts := slices.Clone(t.Unpack())
		for i, p := range parts {
			if p.Rank() > 0 && p.Dim(0) > n {
				parts[i] = p.Slice(0, 0, n)
			}
		}
		if t.IsTuple() {
			return tensor.Tuple(parts...)
		}
		return parts[0]
	}
	return keras.Batch{X: cut(b.X), Y: cut(b.Y), Weight: cut(b.Weight)}
}

// layersOf lists the layers of a model, those of inner models instead of them.
func layersOf(m *keras.Model) (all []unit) {
	for _, l := range m.Layers() {
		if inner := keras.ModelOf(l); inner != nil {
			all = append(all, layersOf(inner)...)
			continue
		}
		base := layers.BaseOf(l)
		p := base.Policy()
		computes := p.Compute
		if p.Auto != dtype.Invalid {
			computes = p.Auto
		}
		all = append(all, unit{base.Path(), computes, p.Float8, p.Name})
	}
	return all
}

// loopStep is a step of a custom loop that can be made for copies of its model.
type loopStep struct {
	functionStep // of the model itself
	model        *keras.Model
	beside       func(ctx context.Context, m *keras.Model, scaler *optimizers.LossScaleOptimizer, o tensor.BesideOptions) (*tensor.Taps, error)
}

func (s *loopStep) unitsOf(taps *tensor.Taps) []unit {
	all := layersOf(s.model)
	for _, u := range s.functionStep.unitsOf(taps) {
		if operation(u.name) {
			all = append(all, u)
		}
	}
	return all
}

// under makes a step for a copy of the model. Operations outside of layers are promoted.
func (s *loopStep) under(ctx context.Context, at policy.Map, scale float64) (taps *tensor.Taps, scaled bool, err error) {
	ofLayers, promoted := policy.Map{}, map[tensor.TapID]bool{}
	for name, p := range at {
		if operation(name) {
			promoted[tensor.TapID(name)] = true
		} else {
			ofLayers[name] = p
		}
	}
	m, err := s.model.CloneUnder("", ofLayers, true)
	if err != nil {
		return nil, false, err
	}
	var scaler *optimizers.LossScaleOptimizer
	if s.scaler != nil {
		scaler = optimizers.Clone(s.scaler).(*optimizers.LossScaleOptimizer)
		scaler.InitialScale, scaler.MinScale, scaler.MaxScale = scale, min(1, scale), max(scale, math.Exp2(largestScale))
	}
	o := tensor.BesideOptions{All: true}
	if len(promoted) > 0 {
		o.Promote = func(t *tensor.Tap) dtype.DType {
			if promoted[t.ID] {
				return dtype.Float32
			}
			return t.Type.DType
		}
	}
	taps, err = s.beside(ctx, m, scaler, o)
	return taps, scaler != nil, err
}

// functionStep is a step of a custom loop.
type functionStep struct {
	beside func(ctx context.Context, o tensor.BesideOptions) (*tensor.Taps, error)
	scaler *optimizers.LossScaleOptimizer
}

func (s *functionStep) run(ctx context.Context, o tensor.BesideOptions) (*tensor.Taps, error) {
	return s.beside(ctx, o)
}

func (s *functionStep) sample(ctx context.Context, o tensor.BesideOptions) (*tensor.Taps, error) {
	return s.beside(ctx, o)
}

// unitsOf lists all that record 16-bit values. Layers are those of the deepest paths:
// what is in a layer is one of its own.
func (s *functionStep) unitsOf(taps *tensor.Taps) (all []unit) {
	at := map[string]int{}
	for i := range taps.Values {
		t := &taps.Values[i]
		if t.Op == op.Param {
			continue
		}
		name := unitName(t)
		k, ok := at[name]
		if !ok {
			k = len(all)
			at[name] = k
			all = append(all, unit{name: name})
		}
		switch {
		case t.Op == op.RoundE4M3 || t.Op == op.RoundE5M2:
			all[k].float8 = true
		case t.Type.DType == dtype.BFloat16 || t.Type.DType == dtype.Float16 && all[k].computes != dtype.BFloat16:
			all[k].computes = t.Type.DType
		}
	}
	return all
}

// unitName is the layer that recorded a value, or the value outside of layers.
func unitName(t *tensor.Tap) string {
	if name := strings.TrimSuffix(t.Path, "/grad"); name != "" {
		return name
	}
	return string(t.ID)
}

// under computes units in float32 that a map has, and sets the loss scale meanwhile.
func (s *functionStep) under(ctx context.Context, at policy.Map, scale float64) (taps *tensor.Taps, scaled bool, err error) {
	o := tensor.BesideOptions{All: true, Promote: func(t *tensor.Tap) dtype.DType {
		if _, ok := at[unitName(t)]; ok {
			return dtype.Float32
		}
		return t.Type.DType
	}}
	if s.scaler == nil {
		taps, err = s.beside(ctx, o)
		return taps, false, err
	}
	before, err := s.scaler.SetLossScale(scale)
	if err != nil {
		return nil, true, err
	}
	defer func() {
		if _, e := s.scaler.SetLossScale(before); err == nil {
			err = e
		}
	}()
	taps, err = s.beside(ctx, o)
	return taps, true, err
}
