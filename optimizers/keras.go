package optimizers

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/optimizers/kerasstate"
)

// kerasFormat is implemented by optimizers whose state has another form in
// Keras's files.
type kerasFormat interface {
	toKeras(values map[*tensor.Variable][]byte) error
	fromKeras(values map[*tensor.Variable][]byte) error
}

func init() {
	kerasstate.Variables = kerasVariables
	kerasstate.Export = toKeras
	kerasstate.Import = fromKeras
}

// kerasVariables implements kerasstate.Variables.
func kerasVariables(o tensor.Stateful) (vs []*tensor.Variable, ok bool) {
	k, ok := o.(interface{ kerasVariables() []*tensor.Variable })
	if !ok {
		return nil, false
	}
	return k.kerasVariables(), true
}

// toKeras implements kerasstate.Export.
func toKeras(o tensor.Stateful) (map[*tensor.Variable][]byte, error) {
	values := map[*tensor.Variable][]byte{}
	vs, ok := kerasVariables(o)
	if !ok {
		return nil, fmt.Errorf("optimizer %T: Keras has no such optimizer", o)
	}
	if err := divided(o, vs); err != nil {
		return nil, err
	}
	for _, v := range vs {
		b, err := v.Bytes()
		if err != nil {
			return nil, err
		}
		values[v] = b
	}
	if k, ok := o.(kerasFormat); ok {
		if err := k.toKeras(values); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// fromKeras implements kerasstate.Import.
func fromKeras(o tensor.Stateful, values map[*tensor.Variable][]byte) error {
	vs, _ := kerasVariables(o)
	if err := divided(o, vs); err != nil {
		return err
	}
	if k, ok := o.(kerasFormat); ok {
		return k.fromKeras(values)
	}
	return nil
}

func int64Bytes(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

// windowSize returns the calls per step.
func (b *state) windowSize() int64 { return max(1, int64(b.setup.options.GradientAccumulationSteps)) }

// openCalls is how many calls of the open window count in Keras.
func (b *state) openCalls() (calls int64, err error) {
	if b.windowSize() == 1 {
		return 0, nil
	}
	bad, err := b.nonFinite.Item()
	if err != nil || bad > 0 {
		return 0, err
	}
	n, err := b.microStep.Item()
	return int64(n), err
}

// accumulators returns the accumulators of all variables.
func (b *state) accumulators() (all []*tensor.Variable) {
	for _, v := range b.known {
		if c := b.slotVariables[v][accumulatorSlot]; c != nil {
			all = append(all, c)
		}
	}
	return all
}

func (b *state) toKeras(values map[*tensor.Variable][]byte) error {
	if b.windowSize() == 1 {
		return nil
	}
	steps, err := b.Iterations()
	if err != nil {
		return err
	}
	open, err := b.openCalls()
	if err != nil {
		return err
	}
	values[b.iterations] = int64Bytes(steps*b.windowSize() + open)
	if open == 0 {
		for _, c := range b.accumulators() {
			clear(values[c])
		}
	}
	return nil
}

func (b *state) fromKeras(values map[*tensor.Variable][]byte) error {
	n := b.windowSize()
	if n == 1 || values[b.iterations] == nil {
		return nil
	}
	calls := int64(binary.LittleEndian.Uint64(values[b.iterations]))
	if calls < 0 {
		return fmt.Errorf("optimizer %s: iteration is %d, want a number of calls", b.setup.name(), calls)
	}
	if calls%n == 0 {
		for _, c := range b.accumulators() {
			for _, x := range values[c] {
				if x != 0 {
					return fmt.Errorf("optimizer %s: after %d calls no window of GradientAccumulationSteps %d is open, but %s is not 0; set GradientAccumulationSteps to that of the training which was saved",
						b.setup.name(), calls, n, c.Name())
				}
			}
		}
	}
	values[b.iterations] = int64Bytes(calls / n)
	values[b.microStep] = int64Bytes(calls % n)
	values[b.nonFinite] = int64Bytes(0)
	return nil
}

// eachState calls f with the state of each part that has variables.
func (o *MultiOptimizer) eachState(f func(kerasFormat, *state) error) error {
	for _, part := range o.Optimizers() {
		k, ok := part.(kerasFormat)
		s, own := part.(interface{ base() *state })
		if !ok || !own || len(s.base().known) == 0 {
			continue
		}
		if err := f(k, s.base()); err != nil {
			return err
		}
	}
	return nil
}

func (b *state) base() *state { return b }

func (o *MultiOptimizer) toKeras(values map[*tensor.Variable][]byte) error {
	return o.eachState(func(k kerasFormat, part *state) error {
		steps, err := o.Iterations()
		if err != nil {
			return err
		}
		open, err := part.openCalls()
		if err != nil {
			return err
		}
		values[o.iterations] = int64Bytes(steps*part.windowSize() + open)
		return k.toKeras(values)
	})
}

func (o *MultiOptimizer) fromKeras(values map[*tensor.Variable][]byte) error {
	calls, window := values[o.iterations], int64(1)
	err := o.eachState(func(k kerasFormat, part *state) error {
		window = part.windowSize()
		return k.fromKeras(values)
	})
	if err != nil || calls == nil {
		return err
	}
	values[o.iterations] = int64Bytes(int64(binary.LittleEndian.Uint64(calls)) / window)
	return nil
}

func (o *LossScaleOptimizer) toKeras(values map[*tensor.Variable][]byte) error {
	if k, ok := o.Inner.(kerasFormat); ok {
		return k.toKeras(values)
	}
	return nil
}

// fromKeras limits the scale to its bounds, and leaves it unchanged if it is Fixed. The
// counters assume that Inner applied all steps, since Keras does not count skipped
// ones.
func (o *LossScaleOptimizer) fromKeras(values map[*tensor.Variable][]byte) error {
	o.begin()
	s := withDefaults(o)
	if b := values[o.scale]; b != nil {
		scale := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		if !(scale >= 0) {
			return fmt.Errorf("optimizer %s: the loss scale is %v, want a number that is not negative", s.Name, scale)
		}
		scale = min(max(scale, s.MinScale), s.MaxScale)
		values[o.scale] = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(scale)))
		if o.Fixed {
			delete(values, o.scale)
			delete(values, o.goodSteps)
		}
	}
	if k, ok := o.Inner.(kerasFormat); ok {
		if err := k.fromKeras(values); err != nil {
			return err
		}
	}
	if in, ok := o.Inner.(interface{ base() *state }); ok && values[in.base().iterations] != nil {
		values[o.applied] = values[in.base().iterations]
		for _, v := range []*tensor.Variable{o.skipped, o.consecutive, o.atFloor} {
			values[v] = make([]byte, dtype.Int64.Size())
		}
	}
	return nil
}
