package optimizers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// MultiOptimizer has an optimizer for each part of the weights: Keras's
// MultiOptimizer. Each optimizer has its own settings, state and learning
// rate; GlobalClipNorm limits the norm of its part.
//
//	&MultiOptimizer{OptimizerMap: OptimizerMap{
//		Default: &Adam{},
//		Entries: []OptimizerEntry{{Variables: "encoder/.*", Optimizer: &SGD{}}},
//	}}
//
// GradientAccumulationSteps must be the same for all. CurrentLearningRate
// returns the rate of Default; SetLearningRate is called on each optimizer.
type MultiOptimizer struct {
	OptimizerMap OptimizerMap
	Name         string `default:"multi_optimizer"` // starts the names of its own variables

	state
}

// OptimizerMap assigns an optimizer to each variable: from the entry whose
// Variables is the variable's path; else from the entry whose regular expression
// matches the whole path; else Default. It is an error if several expressions
// match.
type OptimizerMap struct {
	Default Optimizer // required
	Entries []OptimizerEntry
}

// OptimizerEntry assigns an optimizer to a part of the variables. Several
// entries may have the same optimizer. It must not be a LossScaleOptimizer or
// a MultiOptimizer; a LossScaleOptimizer goes around the MultiOptimizer.
type OptimizerEntry struct {
	Variables string // a path such as "encoder/dense/kernel", or a regular expression for several
	Optimizer Optimizer
}

// Optimizers lists the parts' optimizers, each once, Default last.
func (o *MultiOptimizer) Optimizers() []Optimizer {
	var all []Optimizer
	seen := map[Optimizer]bool{nil: true}
	add := func(x Optimizer) {
		if !seen[x] {
			seen[x] = true
			all = append(all, x)
		}
	}
	for _, e := range o.OptimizerMap.Entries {
		add(e.Optimizer)
	}
	add(o.OptimizerMap.Default)
	return all
}

func (o *MultiOptimizer) setup() setup {
	name := withDefaults(o).Name
	return setup{class: name, options: &options{Name: name}}
}

// check fails when the parts do not fit together, and returns the steps that
// gradients are accumulated for.
func (o *MultiOptimizer) check(where string) (window int) {
	fail := func(format string, args ...any) {
		tensor.Fail(where, "optimizer %s: "+format, append([]any{withDefaults(o).Name}, args...)...)
	}
	one := func(what string, x Optimizer) {
		if isNil(x) {
			fail("%s: got %s, want an optimizer", what, nilText(x))
		}
		switch x.(type) {
		case *LossScaleOptimizer:
			fail("%s: got a LossScaleOptimizer, want an optimizer without loss scaling; it goes around the MultiOptimizer", what)
		case *MultiOptimizer:
			fail("%s: got a MultiOptimizer, want the optimizer of one part", what)
		}
	}
	one("Default", o.OptimizerMap.Default)
	seen := map[string]bool{}
	for i, e := range o.OptimizerMap.Entries {
		one(fmt.Sprintf("Entries[%d] %q", i, e.Variables), e.Optimizer)
		if seen[e.Variables] {
			fail("Entries[%d]: got %q a second time, want each once", i, e.Variables)
		}
		seen[e.Variables] = true
		if _, err := regexp.Compile(e.Variables); err != nil {
			fail("Entries[%d]: %v", i, err)
		}
	}
	for i, x := range o.Optimizers() {
		n := 0
		if r, ok := x.(ruled); ok {
			n = r.setup().options.GradientAccumulationSteps
		}
		if i == 0 {
			window = n
		} else if n != window {
			fail("GradientAccumulationSteps: got %d and %d, want one number for all", window, n)
		}
	}
	return window
}

// of is the optimizer of a variable.
func (m OptimizerMap) of(v *tensor.Variable) Optimizer {
	var found []OptimizerEntry
	for _, e := range m.Entries {
		if e.Variables == v.Name() {
			return e.Optimizer
		}
		if regexp.MustCompile(`^(?:` + e.Variables + `)$`).MatchString(v.Name()) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 0:
		return m.Default
	case 1:
		return found[0].Optimizer
	}
	tensor.Fail("ApplyGradients", "variable %s: got %d entries that match, %q and %q, want one at most", v.Name(), len(found), found[0].Variables, found[1].Variables)
	return nil
}

// clone clones each optimizer once.
func (m OptimizerMap) clone() OptimizerMap {
	made := map[Optimizer]Optimizer{nil: nil}
	one := func(o Optimizer) Optimizer {
		if _, ok := made[o]; !ok {
			made[o] = Clone(o)
		}
		return made[o]
	}
	out := OptimizerMap{Default: one(m.Default)}
	for _, e := range m.Entries {
		out.Entries = append(out.Entries, OptimizerEntry{e.Variables, one(e.Optimizer)})
	}
	return out
}

// apply has each optimizer apply the gradients of its part; see ruled.
func (o *MultiOptimizer) apply(s setup, finite *tensor.Tensor, grads []*tensor.Tensor, vars []*tensor.Variable) (ends, ok *tensor.Tensor) {
	inFunction(s.name())
	o.check("ApplyGradients")
	g, v := pairs(o.partition, grads, vars)
	o.begin(s)
	for i := range g {
		g[i] = join(g[i].Widen().Cast(arithmetic(v[i])), o.iterations)
	}
	if finite == nil {
		norm, _ := judge(o.partition, g)
		o.norm.Assign(norm)
	}
	of := map[Optimizer][]int{}
	for i, x := range vars {
		part := o.OptimizerMap.of(x)
		of[part] = append(of[part], i)
	}
	ok = finite
	for _, part := range o.Optimizers() {
		var partGrads []*tensor.Tensor
		var partVars []*tensor.Variable
		some := false
		for _, i := range of[part] {
			partGrads, partVars = append(partGrads, grads[i]), append(partVars, vars[i])
			some = some || grads[i] != nil
		}
		switch r, is := part.(ruled); {
		case !some:
		case is:
			ends, ok = r.apply(r.setup(), finite, partGrads, partVars)
		case finite != nil:
			tensor.Predicated(finite, func() { part.ApplyGradients(partGrads, partVars) })
		default:
			part.ApplyGradients(partGrads, partVars)
		}
	}
	predicate := ok
	if ends != nil {
		predicate = both(ends, ok)
	}
	count := func() { o.iterations.Assign(o.iterations.Value().AddScalar(1)) }
	if predicate == nil {
		count()
	} else {
		tensor.Predicated(predicate, count)
	}
	return ends, ok
}

// both returns a and b; b may be nil.
func both(a, b *tensor.Tensor) *tensor.Tensor {
	if b == nil {
		return a
	}
	return a.And(b)
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *MultiOptimizer) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables returns the state of o and of each of its optimizers; see Optimizer.
func (o *MultiOptimizer) Variables() []*tensor.Variable {
	out := o.variables(o.setup())
	for _, part := range o.Optimizers() {
		out = append(out, part.Variables()...)
	}
	return out
}

// kerasVariables returns its own variables and those of the parts whose class Keras
// has.
func (o *MultiOptimizer) kerasVariables() []*tensor.Variable {
	out := o.state.kerasVariables()
	for _, part := range o.Optimizers() {
		of, _ := kerasVariables(part)
		out = append(out, of...)
	}
	return out
}

// SetLearningRate returns an error: call it on one of Optimizers.
func (o *MultiOptimizer) SetLearningRate(float64) error {
	return fmt.Errorf("optimizer %s: SetLearningRate: each part has a rate of its own; set those of Optimizers", withDefaults(o).Name)
}

// CurrentLearningRate returns the rate of Default for the next step.
func (o *MultiOptimizer) CurrentLearningRate() (float64, error) {
	if o.OptimizerMap.Default == nil {
		return 0, fmt.Errorf("optimizer %s: Default: got nil, want an optimizer", withDefaults(o).Name)
	}
	return CurrentLearningRate(o.OptimizerMap.Default)
}

// precondition calls each part's; see state.precondition.
func (o *MultiOptimizer) precondition() error {
	for _, e := range o.OptimizerMap.Entries { // Optimizers would allocate in each step
		if err := precondition(e.Optimizer); err != nil {
			return err
		}
	}
	return precondition(o.OptimizerMap.Default)
}

// FinalizeVariables calls FinalizeVariables of each optimizer.
func (o *MultiOptimizer) FinalizeVariables() error {
	return o.each(FinalizeVariables)
}

// SwapEMA calls SwapEMA of each optimizer.
func (o *MultiOptimizer) SwapEMA() error { return o.each(SwapEMA) }

func (o *MultiOptimizer) each(f func(Optimizer) error) error {
	for _, part := range o.Optimizers() {
		if err := f(part); err != nil {
			return err
		}
	}
	return nil
}

// MarshalJSON writes Keras's OptimizerMap, entries in order.
func (m OptimizerMap) MarshalJSON() ([]byte, error) {
	fallback, err := MarshalConfig(m.Default)
	if err != nil {
		return nil, err
	}
	var entries bytes.Buffer
	for i, e := range m.Entries {
		name, err := json.Marshal(e.Variables)
		if err != nil {
			return nil, err
		}
		made, err := MarshalConfig(e.Optimizer)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			entries.WriteByte(',')
		}
		fmt.Fprintf(&entries, "%s:%s", name, made)
	}
	return fmt.Appendf(nil, `{"module":"keras.optimizers","class_name":"OptimizerMap","registered_name":null,"config":{"default_optimizer":%s,"optimizer_map":{%s}}}`,
		fallback, &entries), nil
}

// UnmarshalJSON reads Keras's OptimizerMap, entries in order.
func (m *OptimizerMap) UnmarshalJSON(data []byte) error {
	var in object
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.Class != "OptimizerMap" {
		return fmt.Errorf("got an object of class %q, want OptimizerMap", in.Class)
	}
	*m = OptimizerMap{}
	var err error
	if m.Default, err = UnmarshalConfig(in.Config["default_optimizer"]); err != nil {
		return fmt.Errorf("default_optimizer: %w", err)
	}
	raw := in.Config["optimizer_map"]
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw)) // token by token: a map would lose the order
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("optimizer_map: got %s, want an object", strings.TrimSpace(string(raw)))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var made json.RawMessage
		if err := d.Decode(&made); err != nil {
			return err
		}
		o, err := UnmarshalConfig(made)
		if err != nil {
			return fmt.Errorf("optimizer_map: %v: %w", name, err)
		}
		m.Entries = append(m.Entries, OptimizerEntry{fmt.Sprint(name), o})
	}
	return nil
}
