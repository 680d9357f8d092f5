package tensor

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Blocks gives parts of a backward pass loss scales of their own. A tag of [TagScaled]
// with a method Blocks() Blocks that does not return nil has them. Gradients of tensors
// in block 0, which are the loss, variables and what no layer of another block recorded,
// carry the scale of the tag. Where a gradient leaves a block for another one, Gradients
// multiplies it by the ratio of their scales; results of Gradients are those of block 0.
type Blocks interface {
	// Block is the number of the block of tensors that the layer at path recorded.
	// Gradients calls it for each tensor that the loss depends on.
	Block(path string) int
	// Cross returns g, a gradient with the scale of block from, with that of block to. g
	// is float32 if it is to become a 16-bit gradient, and so is the result. Calls are in
	// the order of the backward pass.
	Cross(g *Tensor, from, to int) *Tensor
	// Overflows is a float32 vector with a number for each call of Cross, 0 if that
	// gradient was finite and positive if not; nil if there was none.
	Overflows() *Tensor
	// SetOverflows replaces the vector by its sum over all ranks.
	SetOverflows(sum *Tensor)
}

// BlocksOf lists the Blocks of the loss scales that tensors, which may be nil, carry or
// carried before they were unscaled, each once.
func BlocksOf(ts ...*Tensor) (all []Blocks) {
	add := func(by any) {
		if b := blocksOf(by); b != nil && !slices.Contains(all, b) {
			all = append(all, b)
		}
	}
	for _, t := range ts {
		if t == nil {
			continue
		}
		add(t.scaled)
		for _, by := range GradientTagOf(t).UnscaledBy {
			add(by)
		}
	}
	return all
}

// blocksOf are the Blocks of a tag, nil if it has none.
func blocksOf(tag any) Blocks {
	if tag, ok := tag.(interface{ Blocks() Blocks }); ok {
		return tag.Blocks()
	}
	return nil
}

// block is the number of the block of t, 0 without blocks.
func block(b Blocks, t *Tensor) int {
	if b == nil || len(t.sources()) == 0 {
		return 0
	}
	return b.Block(t.path)
}

// cross is b.Cross, g itself within a block. A 16-bit gradient is rounded once, after
// its scale has changed.
func cross(b Blocks, g *Tensor, from, to int) *Tensor {
	if from == to {
		return g
	}
	d := g.typ.DType
	if g.op == op.Cast && g.args[0].typ.DType == dtype.Float32 && d.Is16() {
		g = g.args[0]
	}
	return b.Cross(g.Widen(), from, to).Cast(d)
}
