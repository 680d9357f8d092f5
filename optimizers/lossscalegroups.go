package optimizers

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// LossScaleGroup gives a part of a model a loss scale of its own:
//
//	&LossScaleOptimizer{Inner: &Adam{}, Groups: []LossScaleGroup{{Layers: "encoder"}}}
//
// Gradients in these layers carry the group's scale instead of the loss's. Where they
// enter and leave the group they are multiplied by the ratio of the scales, in float32.
// Gradients of weights leave it too, so they all carry the scale of the loss, and the
// lines of a training loop stay as they are.
//
// A step in which any gradient is not finite is skipped as a whole, as without groups:
// half of a step is a step in another direction. Only the scale of the group in which
// the first value of the backward pass overflowed decreases; if that was outside of all
// groups, the scale of the loss does. Each scale counts good steps of its own.
// DynamicGrowthSteps, Growth, Backoff, MinScale, MaxScale and Fixed are those of the
// optimizer. With data parallelism the first overflow of the backward passes of all ranks
// counts, so scales are the same on all of them.
type LossScaleGroup struct {
	// Layers is a regular expression that matches the whole path of a layer; layers
	// inside of it belong to the group, too. A layer may be in one group at most, and
	// each group must have one; required.
	Layers       string
	InitialScale float64 // default: the optimizer's
}

// GroupScale is the state of a LossScaleGroup.
type GroupScale struct {
	Layers    string
	LossScale float64 // of the next step
	Overflows int64   // steps that were skipped because of this group
}

// groupScale is the state of one of Groups.
type groupScale struct {
	given     string // Layers
	layers    *regexp.Regexp
	scale     *tensor.Variable // float32
	goodSteps *tensor.Variable // int64: good steps since the scale changed
	overflows *tensor.Variable // int64
	pending   *tensor.Variable // int64: 1 if it has overflowed in this window of accumulation
}

// scaleBlocks are Groups as blocks of the backward pass of one loss: block i+1 is group i.
type scaleBlocks struct {
	of     *LossScaleOptimizer
	in     uint64           // the recording
	scales []*tensor.Tensor // of block 0, the loss, and those of Groups
	found  map[string]int   // blocks by path
	finite []crossing       // in the order of the backward pass
}

// A crossing is a gradient that left a block.
type crossing struct {
	from   int
	finite *tensor.Tensor // bool scalar: it was finite before its scale changed, on all ranks
}

// checkGroups fails when Groups make no sense, or were changed after the first use.
func (o *LossScaleOptimizer) checkGroups(s *LossScaleOptimizer, fail func(format string, args ...any)) {
	for i, g := range s.Groups {
		what := fmt.Sprintf("Groups[%d]", i)
		if g.Layers == "" {
			fail("%s: Layers is empty, want a regular expression for the paths of layers", what)
		}
		if _, err := regexp.Compile(g.Layers); err != nil {
			fail("%s: Layers: %v", what, err)
		}
		if f := (field{"InitialScale", g.InitialScale, s.MinScale, s.MaxScale, fmt.Sprintf("MinScale %v … MaxScale %v", s.MinScale, s.MaxScale)}); g.InitialScale != 0 && !f.fits() {
			fail("%s: InitialScale: got %v, want %s", what, g.InitialScale, f.want)
		}
	}
	if o.scale != nil && len(o.groups) != len(s.Groups) {
		fail("Groups: got %d, want the %d that it was first used with", len(s.Groups), len(o.groups))
	}
}

// beginGroups makes the variables of Groups.
func (o *LossScaleOptimizer) beginGroups(s *LossScaleOptimizer, state func(name string, d dtype.DType, first float64) *tensor.Variable) {
	for i, g := range s.Groups {
		layers, err := regexp.Compile("^(?:" + g.Layers + ")(?:/.*)?$")
		if err != nil {
			tensor.Fail("", "optimizer %s: Groups[%d]: Layers: %v", s.Name, i, err)
		}
		name := fmt.Sprintf("groups/%d/", i)
		o.groups = append(o.groups, &groupScale{
			given:     g.Layers,
			layers:    layers,
			scale:     state(name+"loss_scale", dtype.Float32, or(g.InitialScale, s.InitialScale)),
			goodSteps: state(name+"good_steps", dtype.Int64, 0),
			overflows: state(name+"overflows", dtype.Int64, 0),
			pending:   state(name+"pending_overflow", dtype.Int64, 0),
		})
	}
}

// blocks are the blocks of a loss with this scale, nil without Groups.
func (o *LossScaleOptimizer) blocks(scale *tensor.Tensor) *scaleBlocks {
	if len(o.groups) == 0 {
		return nil
	}
	b := &scaleBlocks{of: o, in: tensor.Recording(), scales: []*tensor.Tensor{scale}, found: map[string]int{"": 0}}
	for _, g := range o.groups {
		b.scales = append(b.scales, g.scale.Value())
	}
	return b
}

// Block implements tensor.Blocks.
func (b *scaleBlocks) Block(path string) int {
	if i, known := b.found[path]; known {
		return i
	}
	block := 0
	for i, g := range b.of.groups {
		switch {
		case !g.layers.MatchString(path):
		case block == 0:
			block = i + 1
		default:
			tensor.Fail("Gradients", "layer %s: Groups of optimizer %s: got two that match, %q and %q, want one at most",
				path, withDefaults(b.of).Name, b.of.groups[block-1].given, g.given)
		}
	}
	b.found[path] = block
	return block
}

// Cross implements tensor.Blocks.
func (b *scaleBlocks) Cross(g *tensor.Tensor, from, to int) *tensor.Tensor {
	b.finite = append(b.finite, crossing{from, g.AllFinite()})
	return g.Mul(b.scales[to].Div(b.scales[from]).CastLike(g))
}

// Overflows implements tensor.Blocks.
func (b *scaleBlocks) Overflows() *tensor.Tensor {
	if len(b.finite) == 0 {
		return nil
	}
	var each []*tensor.Tensor
	for _, c := range b.finite {
		each = append(each, c.finite.Not().Cast(dtype.Float32))
	}
	return tensor.Stack(0, each...)
}

// SetOverflows implements tensor.Blocks: all ranks lower the scale of the block in which
// the first gradient overflowed on any of them.
func (b *scaleBlocks) SetOverflows(sum *tensor.Tensor) {
	for i := range b.finite {
		b.finite[i].finite = sum.Slice(0, i, i+1).Reshape().LessEqual(tensor.Scalar(dtype.Float32, 0))
	}
}

// losses returns what is known of the losses that grads are of.
func (o *LossScaleOptimizer) losses(s *LossScaleOptimizer, grads []*tensor.Tensor) (all []*scaleBlocks) {
	if len(o.groups) == 0 {
		return nil
	}
	for _, g := range grads {
		for _, by := range tensor.GradientTagOf(g).UnscaledBy {
			if tag, ok := by.(*lossScale); ok && tag.by == o && tag.blocks.in == tensor.Recording() && !slices.Contains(all, tag.blocks) {
				all = append(all, tag.blocks)
			}
		}
	}
	if all == nil && !s.AllowUnscaledLoss {
		tensor.Fail("ApplyGradients", "optimizer %s: with Groups, gradients must be applied in the Function that calls GetScaledLoss", s.Name)
	}
	for i, g := range s.Groups {
		met := all == nil
		for _, b := range all {
			for _, block := range b.found {
				met = met || block == i+1
			}
		}
		if !met {
			tensor.Fail("ApplyGradients", "optimizer %s: Groups[%d]: the loss depends on no layer that matches %q", s.Name, i, g.Layers)
		}
	}
	return all
}

// overflowed says which groups have overflowed, bool scalars: those that the first
// gradient that is not finite has left, for each loss. What leaves a block later may have
// come into it so. With accumulate it says so of all calls since the last update.
func (o *LossScaleOptimizer) overflowed(losses []*scaleBlocks, accumulate bool) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(o.groups))
	no := tensor.Scalar(dtype.Bool, 0)
	for i := range out {
		out[i] = no
	}
	for _, b := range losses {
		before := tensor.Scalar(dtype.Bool, 1) // all gradients before were finite
		for _, c := range b.finite {
			if c.from > 0 {
				out[c.from-1] = out[c.from-1].Or(before.And(c.finite.Not()))
			}
			before = before.And(c.finite)
		}
	}
	if !accumulate {
		return out
	}
	for i, g := range o.groups {
		out[i] = out[i].Or(g.pending.Value().GreaterScalar(0))
		g.pending.Assign(out[i].Cast(dtype.Int64))
	}
	return out
}

// GroupScales returns the state of each of Groups, in their order.
func (o *LossScaleOptimizer) GroupScales() ([]GroupScale, error) {
	o.begin()
	out := make([]GroupScale, len(o.groups))
	for i, g := range o.groups {
		scale, err := g.scale.Item()
		if err != nil {
			return nil, err
		}
		overflows, err := g.overflows.Item()
		if err != nil {
			return nil, err
		}
		out[i] = GroupScale{g.given, scale, int64(overflows)}
	}
	return out, nil
}
