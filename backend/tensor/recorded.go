package tensor

import (
	"context"

	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Recorded is the recording of a Function for arguments of given types, before any
// pass: for exporting it to other formats.
type Recorded struct {
	Graph    *ir.Graph       // its outputs are the results of the function
	Inputs   []RecordedInput // of Graph.Params, in their order
	Assigned []*Variable     // variables that the function assigns
}

// RecordedInput says where an input of a recording comes from.
type RecordedInput struct {
	Argument int       // number of the argument, or -1
	Variable *Variable // the variable whose value it is, or nil
	Data     *Tensor   // else: a tensor that was computed outside
}

// Recorded records the function for arguments of these types and returns the recording.
// It compiles and runs nothing, so the arguments may be Placeholders of known shape.
// 16-bit copies of weights are casts in it.
func (fn *Func[In, Out]) Recorded(in In) (r *Recorded, err error) {
	defer Catch(&err)
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.take(&in)
	var out Out
	err = fn.core.record(context.Background(), false, func(tr *trace) { out = fn.symbolic(tr, in) }, func(tr *trace) error {
		results := fn.out.tensors(nil, ptr(&out))
		for _, t := range results {
			if t.err != nil {
				return t.err
			}
		}
		paint(results...)
		c := newCapture(tr)
		c.roots(results...)
		for _, t := range results {
			c.output(t, -1)
		}
		r = &Recorded{Graph: c.graph, Assigned: tr.assigned}
		for i, s := range c.sources {
			in := RecordedInput{Argument: s.argument, Variable: s.variable}
			if s.data != nil {
				in.Data = fromStorage(c.graph.Params[i].Type, s.data)
			}
			r.Inputs = append(r.Inputs, in)
		}
		return nil
	})
	return r, err
}
