package optimizers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// SetPartition divides the slots of o among the ranks of p (ZeRO, stage 1; PyTorch:
// ZeroRedundancyOptimizer): each rank keeps the slots of its part of each variable,
// computes the update of this part, and receives the other parts of the new weights.
// Weights have the same bits as without. Call it before the first step. Moving averages of
// weights stay whole. A nil p, or one of one rank, divides nothing. Slots that are there
// already must be the same on all ranks.
//
// All ranks give ApplyGradients the same gradients. If p is Scattered they give it their
// parts of the gradients; then accumulated gradients are divided, too. An optimizer that
// clips by norms needs whole ones: see NeedsWholeGradients.
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
	if p != nil && p.Scattered && s.clipsByNorm() {
		return fmt.Errorf("optimizer %s: it clips gradients by their norms, and needs whole ones; got parts that ranks have scattered", s.name())
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
	if o.partition = p; p != nil && p.Ranks() == 1 {
		o.partition = nil
	}
	return o.each(func(part Optimizer) error { return SetPartition(part, p) })
}

// NeedsWholeGradients reports whether o computes more of a gradient than its elements: it
// clips by the norm, or is no optimizer of this package.
func NeedsWholeGradients(o Optimizer) bool {
	switch x := o.(type) {
	case *LossScaleOptimizer:
		return NeedsWholeGradients(x.Inner)
	case *MultiOptimizer:
		return slices.ContainsFunc(x.Optimizers(), NeedsWholeGradients)
	case ruled:
		s := x.setup()
		return s.clipsByNorm()
	}
	return true
}

func (s *setup) clipsByNorm() bool { return s.options.ClipNorm != 0 || s.options.GlobalClipNorm != 0 }

// division is the partition of the slots, or nil.
func (b *state) division() *tensor.Partition { return b.partition }

// partitionOf is the partition of an optimizer's slots, or nil.
func partitionOf(o Optimizer) *tensor.Partition {
	if r, ok := o.(ruled); ok {
		return r.division()
	}
	return nil
}

// judge returns the norm of all gradients and whether all are finite: if ranks have their
// parts, they add up the squares and the parts that are not.
func judge(p *tensor.Partition, g []*tensor.Tensor) (norm, finite *tensor.Tensor) {
	if p == nil || !p.Scattered {
		return globalNorm(g), AllFinite(g)
	}
	sums := p.Sum(tensor.Concat(0, sumOfAll(g).Reshape(1), AllFinite(g).Not().Cast(dtype.Float32).Reshape(1)))
	return sums.Slice(0, 0, 1).Reshape().Sqrt(), sums.Slice(0, 1, 2).Reshape().Equal(tensor.Scalar(dtype.Float32, 0))
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
