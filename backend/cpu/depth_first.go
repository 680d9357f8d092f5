package cpu

import (
	"slices"
	"sync"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// depthFirst computes consecutive values of a prediction sample by sample, in the step of the
// first. A worker takes a sample through all of them before the next one, in memory of its
// own, which stays in L2: layer by layer, the activations of a batch would go through L3.
//
// What computes a sample is a program for a batch of one. So the bits of a sample do not
// depend on the batch that it is in.
type depthFirst struct {
	sample   *Program
	inputs   []sampleBuffer // of the sample program
	outputs  []sampleBuffer
	samples  int
	work     int // element operations
	mu       sync.Mutex
	versions []versionOf
}

// sampleBuffer is the value whose memory is an input or output of the sample program: a part
// of these bytes for each sample, or all of it if bytes is 0.
type sampleBuffer struct{ pos, bytes int }

// versionOf is an input of the sample program that all samples share, and its position there.
type versionOf struct{ pos, outer int }

// depthFirstEnd is the remaining step of a value that a depthFirst has computed.
type depthFirstEnd struct{}

func (depthFirstEnd) Run(*exec.Run) {}

// deepWeights is the size of a convolution's kernels, in bytes, up to which reading them for
// each sample costs less than what is saved: they stay in L2, with the activations of a sample.
const deepWeights = 128 << 10

// runDepthFirst groups values into depthFirsts. Runs that are watched compute them one by one.
func (b *compiler) runDepthFirst(g *ir.Graph) error {
	if !backend.DepthFirst() || g.Watched || g.Commit < len(g.Values) {
		return nil
	}
	steps := b.program.steps
	at := map[*ir.Value]int{} // steps
	for i := range steps {
		at[g.Values[steps[i].pos]] = i
	}
	for i := 0; i < len(g.Values); i++ {
		c := chainOf(g, i)
		for len(c.values) > 1 && !c.settle(b.Builder, g) {
			c.values = c.values[:len(c.values)-1]
		}
		if !c.pays() {
			continue
		}
		k, err := b.newDepthFirst(g, c)
		if err != nil {
			return err
		}
		for j, v := range c.values {
			s := &steps[at[v]]
			if s.alone == nil {
				s.alone = s.kernel
			}
			s.kernel = depthFirstEnd{}
			if j == 0 {
				s.kernel = k
			}
			s.watched = false
			i = b.At(v)
		}
	}
	return nil
}

// sampleChain is consecutive values that can be computed sample by sample: the values from
// outside that they read, by sample or as a whole, and those of them that others read.
type sampleChain struct {
	samples int
	values  []*ir.Value
	inputs  []sampleInput
	outputs []*ir.Value
}

// sampleInput is a value, of which the sample program reads a sample or all.
type sampleInput struct {
	value *ir.Value
	whole bool
}

// convolves reports whether v is a convolution, of floats or of integers.
func convolves(v *ir.Value) bool { return v.Op == op.Conv || v.Op == op.QuantizedConv }

// chainOf returns the longest chain that begins with value i, which is empty unless that is a
// convolution.
func chainOf(g *ir.Graph, i int) *sampleChain {
	c := &sampleChain{}
	if v := g.Values[i]; !convolves(v) || len(v.Type.Shape) == 0 || v.Type.Shape[0] < 2 {
		return c
	}
	c.samples = g.Values[i].Type.Shape[0]
	for _, v := range g.Values[i:] {
		if v.Op == op.Param || v.Op == op.Const {
			continue
		}
		if !c.takes(v) {
			break
		}
		c.values = append(c.values, v)
	}
	return c
}

// takes reports whether v can be computed sample by sample after the values of the chain.
func (c *sampleChain) takes(v *ir.Value) bool {
	if s := v.Type.Shape; len(s) == 0 || s[0] != c.samples || v.Split || v.Concurrent || v.WrittenByArg() {
		return false
	}
	switch {
	case convolves(v):
		if c.has(v.Args[1]) || v.Args[1].Type.Bytes() > deepWeights {
			return false
		}
	case v.Op == op.MaxPool || v.Op == op.AvgPool:
	case v.Op == op.Mean || v.Op == op.Sum || v.Op == op.Max:
		if slices.Contains(v.Attr.Axes, 0) {
			return false
		}
	case v.Op.Info().Class == op.Elementwise:
		if v.Op == op.ExtraOutput || v.Attr.Body != nil && len(v.Attr.Body.ExtraOutputs) > 0 {
			return false
		}
	default:
		return false
	}
	// Operands that all samples share must not be computed by the chain.
	for i, a := range v.Args {
		if c.has(a) && c.whole(v, i) {
			return false
		}
	}
	return true
}

func (c *sampleChain) has(v *ir.Value) bool { return slices.Contains(c.values, v) }

// whole reports whether all samples read the same argument i of v.
func (c *sampleChain) whole(v *ir.Value, i int) bool {
	if i == 0 && v.Op.Info().Class != op.Elementwise {
		return false
	}
	s := v.Args[i].Type.Shape
	return convolves(v) && i == 1 || len(s) < len(v.Type.Shape) || s[0] != c.samples
}

// settle finds the inputs and outputs of the chain, and reports whether it can be computed
// sample by sample: samples begin at cache lines, and nothing is written over an input while
// other samples read it.
func (c *sampleChain) settle(b *exec.Builder, g *ir.Graph) bool {
	c.inputs, c.outputs = nil, nil
	for _, v := range c.values {
		for i, a := range v.Args {
			in := sampleInput{a, c.whole(v, i)}
			switch {
			case c.has(a) || slices.Contains(c.inputs, in):
				continue
			case b.Produced[a] != nil || b.CastOf[a] != nil || !in.whole && !c.aligned(a):
				return false
			}
			c.inputs = append(c.inputs, in)
		}
	}
	read := map[*ir.Value]bool{}
	for _, v := range g.Outputs {
		read[v] = true
	}
	for _, v := range g.Values {
		if !c.has(v) {
			for _, a := range v.Args {
				read[a] = true
			}
		}
	}
	for _, v := range c.values {
		if !read[v] {
			continue
		}
		if !c.aligned(v) || v.Slot.Place != ir.Arena && v.Slot.Place != ir.Output {
			return false
		}
		for _, in := range c.inputs {
			if a := in.value; a.Slot.Place == ir.Arena && v.Slot.Place == ir.Arena && a.Slot.Offset < v.Slot.Offset+v.Type.Bytes() && v.Slot.Offset < a.Slot.Offset+a.Type.Bytes() {
				return false
			}
		}
		c.outputs = append(c.outputs, v)
	}
	return true
}

func (c *sampleChain) aligned(v *ir.Value) bool { return v.Type.Bytes()/c.samples%ir.Align == 0 }

// pays reports whether there is more than one value that is large, and few are read later.
func (c *sampleChain) pays() bool {
	large := 0
	for _, v := range c.values {
		switch v.Op {
		case op.Conv, op.QuantizedConv, op.MaxPool, op.AvgPool:
			large++
		}
	}
	return large > 1 && 2*len(c.outputs) <= len(c.values)
}

// newDepthFirst compiles the program of a sample.
func (b *compiler) newDepthFirst(g *ir.Graph, c *sampleChain) (*depthFirst, error) {
	k := &depthFirst{samples: c.samples}
	sub := ir.New(len(c.inputs))
	one := func(t op.Type) op.Type {
		t.Shape = slices.Clone(t.Shape)
		t.Shape[0] = 1
		return t
	}
	params := map[sampleInput]*ir.Value{}
	for i, in := range c.inputs {
		t, bytes := in.value.Type, 0
		if !in.whole {
			t, bytes = one(t), t.Bytes()/c.samples
		}
		params[in] = sub.Add(op.Param, op.Attr{Index: i, DType: t.DType, Dims: t.Shape}, t, in.value.Path)
		k.inputs = append(k.inputs, sampleBuffer{b.At(in.value), bytes})
	}
	values := map[*ir.Value]*ir.Value{}
	for _, v := range c.values {
		args := make([]*ir.Value, len(v.Args))
		for i, a := range v.Args {
			if args[i] = values[a]; args[i] == nil {
				args[i] = params[sampleInput{a, c.whole(v, i)}]
			}
		}
		values[v] = sub.Add(v.Op, v.Attr, one(v.Type), v.Path, args...)
		k.work += v.Type.Shape.Size()
		if convolves(v) {
			k.work += v.Type.Shape.Size() * v.Args[1].Type.Shape[:len(v.Args[1].Type.Shape)-1].Size() / 16
		}
	}
	for _, v := range c.outputs {
		sub.Output(values[v], -1)
		k.outputs = append(k.outputs, sampleBuffer{b.At(v), v.Type.Bytes() / c.samples})
	}
	// The values are those of an optimized graph; only memory is assigned anew.
	skip := slices.DeleteFunc(ir.OptionalPasses(), func(p string) bool {
		return p == "share" && !slices.Contains(backend.SkippedPasses(), p)
	})
	if err := ir.Optimize(sub, ir.Options{Skip: skip}); err != nil {
		return nil, err
	}
	var err error
	if k.sample, err = compile(b.ctx, b.program.device, sub); err != nil {
		return nil, err
	}
	for _, bind := range k.sample.binds {
		if buffer := k.sample.buffers[bind.from]; !buffer.out && k.inputs[buffer.index].bytes == 0 {
			k.versions = append(k.versions, versionOf{bind.pos, k.inputs[buffer.index].pos})
		}
	}
	for pos, choice := range k.sample.choices {
		v := sub.Values[pos]
		for outer, inner := range values {
			if inner == v {
				choice.Algorithm = "sample by sample, " + choice.Algorithm
				b.Choices[b.At(outer)] = choice
			}
		}
	}
	return k, nil
}

// Run computes as many samples at a time as there are workers. The remaining ones, and all if
// there are fewer than workers, are computed by several workers each.
func (k *depthFirst) Run(r *exec.Run) {
	alone := k.samples
	if k.samples > r.Procs {
		alone -= k.samples % r.Procs
	}
	r.Parallel(k, alone, k.work)
	for i := alone; i < k.samples && r.Failed == nil; i++ {
		k.compute(r, 0, i, r.Procs)
	}
}

// Chunk computes sample i.
func (k *depthFirst) Chunk(r *exec.Run, w *exec.Worker, i int) {
	k.compute(r, w.ID(), i, max(1, r.Procs/k.samples))
}

// compute computes sample i with at most so many workers.
func (k *depthFirst) compute(r *exec.Run, worker, i, procs int) {
	inner, err := k.sample.getFor(worker)
	if err == nil {
		inner.Procs, inner.Done = procs, r.Done
		k.bind(r, inner, i)
		if err = k.sample.values(inner); r.Over() {
			inner.ForgetPacked()
		}
		k.sample.put(inner)
	}
	if err != nil {
		k.mu.Lock()
		r.Failed = err
		k.mu.Unlock()
	}
}

// bind binds the inputs and outputs of the sample program to the memory of sample i.
func (k *depthFirst) bind(r *exec.Run, inner *execution, i int) {
	for _, b := range k.sample.binds {
		buffer := k.sample.buffers[b.from]
		of := k.inputs
		if buffer.out {
			of = k.outputs
		}
		s := of[buffer.index]
		data := r.Values[s.pos][i*s.bytes:]
		inner.Values[b.pos] = data[:b.bytes:b.bytes]
	}
	for _, v := range k.versions {
		inner.Version[v.pos] = r.Version[v.outer]
	}
}
