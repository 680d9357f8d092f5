package optimizers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// SetPartition divides the slots of o among the ranks of p (ZeRO, stage 1; PyTorch:
// ZeroRedundancyOptimizer): each rank keeps the slots of its part of each variable,
// computes the update of this part, and receives the other parts of the new weights. All
// ranks give ApplyGradients the same gradients; weights have the same bits as without.
// Call it before the first step. Moving averages of weights and accumulated gradients stay
// whole. A nil p, or one of one rank, divides nothing. Slots that are there already must
// be the same on all ranks.
//
// It returns an error unless o is an optimizer of this package whose updates are
// element-wise: SGD, RMSprop, Adam, AdamW, Adamax, Nadam, Adagrad, Adadelta, Ftrl, Lion,
// and MultiOptimizer and LossScaleOptimizer around these.
func SetPartition(o Optimizer, p *tensor.Partition) error {
	if d, ok := o.(interface {
		divide(p *tensor.Partition) error
	}); ok && !isNil(o) {
		return d.divide(p)
	}
	switch r, ok := o.(ruled); {
	case isNil(o):
		return fmt.Errorf("SetPartition: got %s, want an optimizer", nilText(o))
	case ok:
		return r.divideAs(r.setup(), p)
	case p == nil:
		return nil
	}
	return fmt.Errorf("optimizer %T: its slots cannot be divided among ranks (ZeroRedundancy): it is no optimizer of this package", o)
}

// divideAs is SetPartition for a class.
func (b *state) divideAs(s setup, p *tensor.Partition) error {
	if p != nil && !s.elementwise {
		return fmt.Errorf("optimizer %s: its slots cannot be divided among ranks (ZeroRedundancy): an update depends on other elements of the variable; "+
			"use an element-wise one, such as AdamW, or leave ZeroRedundancy out", s.name())
	}
	if p != nil && p.Ranks() == 1 {
		p = nil
	}
	b.partition = p
	if p == nil || b.iterations == nil {
		return nil
	}
	whole := map[string]bool{}
	for _, slot := range slices.Concat(b.groups()...) {
		whole[slot.name] = slot.whole
	}
	for _, slots := range b.slotVariables { // of a training before, as in a file
		for name, v := range slots {
			if of, _ := v.Partition(); of == nil && !whole[name] {
				slots[name] = p.PartOf(v)
			}
		}
	}
	return nil
}

// divide is SetPartition of Inner.
func (o *LossScaleOptimizer) divide(p *tensor.Partition) error {
	if err := o.errNoInner(); err != nil {
		return err
	}
	return SetPartition(o.Inner, p)
}

// divide is SetPartition of each part.
func (o *MultiOptimizer) divide(p *tensor.Partition) error {
	return o.each(func(part Optimizer) error { return SetPartition(part, p) })
}

// divided returns an error if a variable is a part of a slot.
func divided(o tensor.Stateful, vs []*tensor.Variable) error {
	for _, v := range vs {
		if p, _ := v.Partition(); p != nil {
			return fmt.Errorf("optimizer %T: its slots are divided among %d ranks (ZeroRedundancy), so that no rank can save or load them alone; "+
				"use FitConfig.Checkpoint, or leave WithOptimizer out", o, p.Ranks())
		}
	}
	return nil
}
