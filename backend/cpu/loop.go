package cpu

import (
	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// stepLoop is the kernel of Loop: a program for one step, which runs for each step on
// that step's elements of the sequences and of the result. States that are not kept,
// and elements that do not begin at a cache line, are staged in separate memory.
type stepLoop struct {
	*op.LoopBody
	step     *Program
	args     []int // positions in Run.Values
	out      int
	inputs   []loopPart // of the step
	outputs  []loopPart
	padding  [][2]int // of the result: byte ranges [from, to)
	sections op.LoopSections
	size     int // bytes of an element of the result
}

// loopPart is an input or output of a step: its bytes, and its offset in the shared
// memory, or -1 if it is used in place. A state has two offsets, for even and odd
// steps.
type loopPart struct{ bytes, stage, other int }

func newLoop(b *compiler, v *ir.Value) (exec.Kernel, error) {
	g := ir.LoopBody(v)
	if err := backend.Expand(b.program.device, g); err != nil {
		return nil, err
	}
	if err := ir.Optimize(g, ir.Options{Watch: b.Graph.Watched, Skip: backend.SkippedPasses()}); err != nil {
		return nil, err
	}
	step, err := compile(b.ctx, b.program.device, g)
	if err != nil {
		return nil, err
	}
	k := &stepLoop{LoopBody: v.Attr.Loop, step: step, out: b.At(v), size: v.Type.DType.Size()}
	var types []op.Type
	for _, a := range v.Args {
		k.args = append(k.args, b.At(a))
		types = append(types, a.Type)
	}
	k.sections = k.Sections(types)
	shared := 0
	room := func(bytes int) int {
		at := shared
		shared += tiling.RoundUp(bytes, ir.Align)
		return at
	}
	part := func(bytes int) loopPart {
		p := loopPart{bytes, -1, -1}
		if bytes%ir.Align != 0 {
			p.stage = room(bytes)
		}
		return p
	}
	for i, t := range k.Inputs(types) {
		p := loopPart{t.Bytes(), -1, -1}
		switch s := i - k.Sequences; {
		case s < 0:
			p = part(p.bytes)
		case s < k.States && (s >= k.Kept || p.bytes%ir.Align != 0):
			p.stage, p.other = room(p.bytes), room(p.bytes)
		}
		k.inputs = append(k.inputs, p)
	}
	for _, s := range k.sections.Outputs {
		k.outputs = append(k.outputs, part(s.Shape[1:].Size()*k.size))
	}
	end := 0
	for _, s := range append(append([]op.Section(nil), k.sections.States...), k.sections.Outputs...) {
		if start := s.Start * k.size; start > end {
			k.padding = append(k.padding, [2]int{end, start})
		}
		end = (s.Start + s.Shape.Size()) * k.size
	}
	k.padding = append(k.padding, [2]int{end, v.Type.Bytes()})
	b.ReserveShared(shared)
	return k, nil
}

func (k *stepLoop) Run(r *exec.Run) {
	out := r.Values[k.out]
	for _, p := range k.padding {
		clear(out[p[0]:p[1]])
	}
	for s := range k.States {
		p := &k.inputs[k.Sequences+s]
		first := r.Values[k.args[k.Sequences+s]]
		if s < k.Kept {
			before := 0
			if k.Reverse {
				before = k.Steps
			}
			copy(k.state(out, s, before), first)
		}
		if p.stage >= 0 {
			copy(r.Shared[p.stage:][:p.bytes], first)
		}
	}
	inner, err := k.step.get()
	if err != nil {
		r.Failed = err
		return
	}
	inner.Procs, inner.See, inner.Done = r.Procs, r.See, r.Done
	for i := range k.Steps {
		if r.Over() {
			inner.ForgetPacked()
			break
		}
		k.bind(r, inner, i)
		if r.Failed = k.step.values(inner); r.Failed != nil {
			k.step.put(inner)
			return
		}
		k.collect(r, i)
	}
	k.step.put(inner)
	for s := k.Kept; s < k.States; s++ {
		p := &k.inputs[k.Sequences+s]
		copy(out[k.sections.States[s].Start*k.size:], p.place(r, k.Steps))
	}
}

// values computes all values of a run and shows them to its watcher.
func (p *Program) values(r *execution) error {
	for i := range p.steps {
		s := &p.steps[i]
		if s.kernel != nil && (r.See != nil || !s.watched) {
			if s.kernel.Run(&r.Run); r.Failed != nil {
				return r.Failed
			}
		}
		if err := p.show(&r.Run, s.pos); err != nil {
			return err
		}
	}
	return nil
}

// place returns a staged state's memory before iteration i.
func (p *loopPart) place(r *exec.Run, i int) []byte {
	at := p.stage
	if i%2 == 1 {
		at = p.other
	}
	return r.Shared[at:][:p.bytes:p.bytes]
}

// state returns value i of state s in the result.
func (k *stepLoop) state(out []byte, s, i int) []byte {
	n := k.inputs[k.Sequences+s].bytes
	at := k.sections.States[s].Start*k.size + i*n
	return out[at : at+n : at+n]
}

// output returns output i of step t in the result.
func (k *stepLoop) output(out []byte, i, t int) []byte {
	n := k.outputs[i].bytes
	at := k.sections.Outputs[i].Start*k.size + t*n
	return out[at : at+n : at+n]
}

// bind binds the inputs and outputs of iteration i to their memory.
func (k *stepLoop) bind(r *exec.Run, inner *execution, i int) {
	result := r.Values[k.out]
	t, before, after := k.Place(i)
	for _, b := range k.step.binds {
		buffer, out := k.step.buffers[b.from].index, k.step.buffers[b.from].out
		var data []byte
		switch s := buffer - k.Sequences; {
		case out && buffer < k.Outputs:
			if p := &k.outputs[buffer]; p.stage >= 0 {
				data = r.Shared[p.stage:][:p.bytes:p.bytes]
			} else {
				data = k.output(result, buffer, t)
			}
		case out:
			s = buffer - k.Outputs
			if p := &k.inputs[k.Sequences+s]; p.stage >= 0 {
				data = p.place(r, i+1)
			} else {
				data = k.state(result, s, after)
			}
		case s < 0:
			p := &k.inputs[buffer]
			data = r.Values[k.args[buffer]][t*p.bytes:][:p.bytes:p.bytes]
			if p.stage >= 0 {
				copy(r.Shared[p.stage:], data)
				data = r.Shared[p.stage:][:p.bytes:p.bytes]
			}
		case s < k.States:
			if p := &k.inputs[buffer]; p.stage >= 0 {
				data = p.place(r, i)
			} else {
				data = k.state(result, s, before)
			}
		default:
			data = r.Values[k.args[buffer]]
		}
		inner.Values[b.pos] = data[:b.bytes:b.bytes]
	}
}

// collect copies the staged results of iteration i to the result.
func (k *stepLoop) collect(r *exec.Run, i int) {
	out := r.Values[k.out]
	t, _, after := k.Place(i)
	for o := range k.outputs {
		if p := &k.outputs[o]; p.stage >= 0 {
			copy(k.output(out, o, t), r.Shared[p.stage:][:p.bytes])
		}
	}
	for s := range k.Kept {
		if p := &k.inputs[k.Sequences+s]; p.stage >= 0 {
			copy(k.state(out, s, after), p.place(r, i+1))
		}
	}
}
