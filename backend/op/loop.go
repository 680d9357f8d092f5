package op

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// LoopBody is a step of [Loop], as in JAX's and ONNX's scan. The operation's arguments
// are sequences, whose first axis is the steps, initial states, and values that are the
// same at every step.
//
// Values of the body are numbered: element t of each sequence, each state, the constant
// values, then the results of Code.
type LoopBody struct {
	Steps     int
	Sequences int         // number of sequences
	States    int         // number of states, after the sequences
	Kept      int         // number of states, the first ones, whose values at every step are results
	Outputs   int         // results of a step besides the next states
	Reverse   bool        // from the last step to the first
	Code      []LoopInstr // in order
	Results   []int       // the outputs, then the next states
}

// LoopInstr is an operation of a [LoopBody].
type LoopInstr struct {
	Op   Code
	Attr Attr
	Args []int
	Stop bool   // blocks gradients
	Path string // layer that recorded it, for messages; "": the loop's
}

// LoopSections are the parts of Loop's result. They begin at multiples of loopAlign
// elements, with zeros between them.
type LoopSections struct {
	States   []Section // kept [T+1 …]: before the first step and after each; others: the last value
	Outputs  []Section // [T …]: in the order of the sequences
	Elements int       // total
}

// loopAlign is a multiple of the cache line for elements of any size.
const loopAlign = 64

// String prints the body in the syntax of golden files.
func (l *LoopBody) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "steps=%d sequences=%d states=%d", l.Steps, l.Sequences, l.States)
	if l.Kept > 0 {
		fmt.Fprintf(&s, " kept=%d", l.Kept)
	}
	if l.Reverse {
		s.WriteString(" reverse")
	}
	s.WriteString(" {")
	for i, in := range l.Code {
		if i > 0 {
			s.WriteString("; ")
		}
		s.WriteString(in.Op.String())
		for j, a := range in.Args {
			s.WriteByte("( "[min(j, 1)])
			fmt.Fprintf(&s, "%%%d", a)
		}
		if len(in.Args) > 0 {
			s.WriteByte(')')
		}
		if a := in.Attr.String(); a != "" {
			s.WriteString(" " + a)
		}
	}
	fmt.Fprintf(&s, "} %v", l.Results)
	return s.String()
}

// appendKey appends an unambiguous encoding of the body.
func (l *LoopBody) appendKey(k []byte) []byte {
	put := func(n ...int) {
		for _, x := range n {
			k = binary.AppendVarint(k, int64(x))
		}
	}
	flag := func(on bool) int {
		if on {
			return 1
		}
		return 0
	}
	put(l.Steps, l.Sequences, l.States, l.Kept, l.Outputs, flag(l.Reverse), len(l.Code))
	for _, in := range l.Code {
		put(int(in.Op), flag(in.Stop), len(in.Args))
		put(in.Args...)
		k = in.Attr.AppendKey(k)
	}
	put(len(l.Results))
	put(l.Results...)
	return k
}

// Inputs returns the types of the values that the body begins with, for arguments of
// types t.
func (l *LoopBody) Inputs(t []Type) []Type {
	all := append([]Type(nil), t...)
	for i := range l.Sequences {
		all[i].Shape = t[i].Shape[1:]
	}
	return all
}

// infer gives the type of the results, after checking the body.
func (l *LoopBody) infer(t []Type) (dtype.DType, error) {
	if l.Sequences < 0 || l.States < 0 || len(t) < l.Sequences+l.States || l.Kept < 0 || l.Kept > l.States || l.Steps < 0 ||
		l.Outputs < 0 || len(l.Results) != l.Outputs+l.States || len(l.Results) == 0 {
		return 0, fmt.Errorf("got %d arguments and %d results for %d sequences, %d states and %d outputs", len(t), len(l.Results), l.Sequences, l.States, l.Outputs)
	}
	for i, x := range t {
		if !x.Shape.Known() {
			return 0, fmt.Errorf("argument %d is %v, want one of known shape", i, x)
		}
		if i < l.Sequences && (len(x.Shape) == 0 || x.Shape[0] != l.Steps) {
			return 0, fmt.Errorf("sequence %d is %v, want a first axis of %d steps", i, x, l.Steps)
		}
	}
	all := l.Inputs(t)
	for i, in := range l.Code {
		var args []Type
		for _, a := range in.Args {
			if a < 0 || a >= len(all) {
				return 0, fmt.Errorf("instruction %d: value %d does not come before it", i, a)
			}
			args = append(args, all[a])
		}
		ty, err := Infer(in.Op, in.Attr, args...)
		if err != nil {
			return 0, fmt.Errorf("instruction %d: %v: %w", i, in.Op, err)
		}
		all = append(all, ty)
	}
	first := Type{}
	for i, r := range l.Results {
		if r < 0 || r >= len(all) {
			return 0, fmt.Errorf("result %d is value %d of %d", i, r, len(all))
		}
		x := all[r]
		switch s := i - l.Outputs; {
		case i == 0:
			first = x
		case x.DType != first.DType:
			return 0, fmt.Errorf("result %d is %v, want %v as the others", i, x, first.DType)
		case s >= 0 && !x.Equal(t[l.Sequences+s]):
			return 0, fmt.Errorf("state %d becomes %v, want %v as it was", s, x, t[l.Sequences+s])
		}
	}
	if l.Outputs == 0 && !first.Equal(t[l.Sequences]) {
		return 0, fmt.Errorf("state 0 becomes %v, want %v as it was", first, t[l.Sequences])
	}
	return first.DType, nil
}

// shapes returns the shapes of outputs and next states. The body must be valid.
func (l *LoopBody) shapes(t []Type) []Shape {
	all := l.Inputs(t)
	for _, in := range l.Code {
		var args []Type
		for _, a := range in.Args {
			args = append(args, all[a])
		}
		ty, _ := Infer(in.Op, in.Attr, args...)
		all = append(all, ty)
	}
	var s []Shape
	for _, r := range l.Results {
		s = append(s, all[r].Shape)
	}
	return s
}

// Sections places the parts of Loop's result, for arguments of types t that Infer has
// accepted.
func (l *LoopBody) Sections(t []Type) (p LoopSections) {
	at := 0
	place := func(shape ...int) Section {
		s := section(&at, shape...)
		at = (at + loopAlign - 1) / loopAlign * loopAlign
		return s
	}
	shapes := l.shapes(t)
	for i, s := range shapes[l.Outputs:] {
		if i < l.Kept {
			s = append(Shape{l.Steps + 1}, s...)
		}
		p.States = append(p.States, place(s...))
	}
	for _, s := range shapes[:l.Outputs] {
		p.Outputs = append(p.Outputs, place(append(Shape{l.Steps}, s...)...))
	}
	p.Elements = at
	return p
}

// Place returns the time step of iteration i, and the positions of a kept state before
// and after it.
func (l *LoopBody) Place(i int) (t, before, after int) {
	if l.Reverse {
		t = l.Steps - 1 - i
		return t, t + 1, t
	}
	return i, i, i + 1
}

func inferLoop(a Attr, t []Type) (Type, error) {
	if a.Loop == nil {
		return Type{}, fmt.Errorf("no body given")
	}
	d, err := a.Loop.infer(t)
	if err != nil {
		return Type{}, err
	}
	return Type{d, Shape{a.Loop.Sections(t).Elements}}, nil
}

// expandLoop records the body once for each step.
func expandLoop(r Recorder, a Attr, args []Ref) Ref {
	l := a.Loop
	types := make([]Type, len(args))
	for i, x := range args {
		types[i] = r.TypeOf(x)
	}
	at := l.Sections(types)
	states := append([]Ref(nil), args[l.Sequences:l.Sequences+l.States]...)
	kept := make([][]Ref, l.Kept)
	for i := range kept {
		kept[i] = make([]Ref, l.Steps+1)
		_, before, _ := l.Place(0)
		if l.Steps == 0 {
			before = 0
		}
		kept[i][before] = states[i]
	}
	outputs := make([][]Ref, l.Outputs)
	for i := range outputs {
		outputs[i] = make([]Ref, l.Steps)
	}
	for i := range l.Steps {
		t, _, after := l.Place(i)
		var values []Ref
		for _, x := range args[:l.Sequences] {
			values = append(values, elementOf(r, x, t))
		}
		values = append(append(values, states...), args[l.Sequences+l.States:]...)
		for _, in := range l.Code {
			var operands []Ref
			for _, v := range in.Args {
				operands = append(operands, values[v])
			}
			values = append(values, r.Record(in.Op, in.Attr, operands...))
		}
		for k := range outputs {
			outputs[k][t] = values[l.Results[k]]
		}
		for k := range states {
			states[k] = values[l.Results[l.Outputs+k]]
			if k < l.Kept {
				kept[k][after] = states[k]
			}
		}
	}
	// The sections in order, with zeros between them.
	var flat []Ref
	d, end := dtype.Invalid, 0
	add := func(s Section, parts ...Ref) {
		for _, x := range parts {
			d = r.TypeOf(x).DType
		}
		if s.Start > end {
			flat = append(flat, r.Record(Const, Attr{DType: d, Dims: Shape{s.Start - end}}))
		}
		for _, x := range parts {
			flat = append(flat, r.Record(Reshape, Attr{Dims: Shape{r.TypeOf(x).Shape.Size()}}, x))
		}
		end = s.Start + s.Shape.Size()
	}
	for i, s := range at.States {
		if i < l.Kept {
			add(s, kept[i]...)
		} else {
			add(s, states[i])
		}
	}
	for i, s := range at.Outputs {
		add(s, outputs[i]...)
	}
	if d == dtype.Invalid { // no steps, no outputs
		d, _ = l.infer(types)
	}
	add(Section{Start: at.Elements})
	return r.Record(Concat, Attr{Axes: []int{0}}, flat...)
}

// elementOf returns element i of the first axis of x.
func elementOf(r Recorder, x Ref, i int) Ref {
	s := r.TypeOf(x).Shape
	a := Attr{Start: make([]int, len(s)), Limit: s.Clone(), Stride: make([]int, len(s))}
	for k := range s {
		a.Stride[k] = 1
	}
	a.Start[0], a.Limit[0] = i, i+1
	return r.Record(Reshape, Attr{Dims: s[1:]}, r.Record(Slice, a, x))
}
