package tensor

import (
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
}

// BlocksOf returns the Blocks of the loss scale that t carries, nil if all of it is one.
func BlocksOf(t *Tensor) Blocks {
	if tag, ok := t.scaled.(interface{ Blocks() Blocks }); ok {
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
