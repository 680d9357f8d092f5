package ir

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Retyping says in which types [Graph.Retype] records values again. The zero value
// records them as they are.
type Retyping struct {
	// Least returns the narrowest float type in which the operation of v may read
	// its operands and store its result: narrower ones become this type, wider
	// ones stay. Invalid keeps the types of v. Nil is Invalid for every value.
	Least func(v *Value) dtype.DType

	// Forced takes decisions from the original: which way a comparison goes, where
	// a maximum lies, to which integer a float is rounded. Without it a ReLU whose
	// input is near 0 may fall the other way in a wider type, which is a large
	// error of the gradient and no error of the arithmetic. Loops decide again:
	// expand them first.
	Forced bool

	// Path is put in front of the paths of the new values.
	Path string
}

// Retype appends to g, for each of values, a value with the same operation whose
// operands are those recorded again, its twin, and returns the twins. Values must
// be in topological order and hold no Fused one. Values that need no change are their
// own twins.
//
// Casts between float types that have nothing to do any more disappear, as do
// RoundE4M3 and RoundE5M2 under a Least; a constant is as exact as it was
// written. Operations that only move elements follow the type of their operand
// unless Least says otherwise. The body of a Loop is recorded again, too.
//
// Every other use of the same mechanism goes through here: a shadow (all in
// float32 or float64), a remedy (some values in float32).
func (g *Graph) Retype(values []*Value, r Retyping) (twins map[*Value]*Value, err error) {
	t := retyper{Retyping: r, g: g, twins: make(map[*Value]*Value, len(values)), casts: map[castOf]*Value{}}
	if r.Forced {
		t.stored = storedOperands(values)
	}
	for _, v := range values {
		twin, err := t.record(v)
		if err != nil {
			return nil, fmt.Errorf("ir: %s in other types: %w", v.Describe(), err)
		}
		t.twins[v] = twin
	}
	return t.twins, nil
}

// RetypeAlone appends v's operation in types of at least least on v's own operands:
// what v would be if only v itself were computed in the wider type. It returns v
// where that changes nothing.
func (g *Graph) RetypeAlone(v *Value, least dtype.DType, path string) (*Value, error) {
	all := func(*Value) dtype.DType { return least }
	t := retyper{Retyping: Retyping{Least: all, Path: path}, g: g, twins: map[*Value]*Value{}, casts: map[castOf]*Value{}}
	alone, err := t.record(v)
	if err != nil {
		return nil, fmt.Errorf("ir: %s in other types: %w", v.Describe(), err)
	}
	return alone, nil
}

// retyper records values again.
type retyper struct {
	Retyping
	g     *Graph
	twins map[*Value]*Value
	casts map[castOf]*Value // made so far

	stored map[*Value]bool // operands of more than element-wise operations; nil unless Forced
}

// storedOperands returns the operands of values that are no element-wise operations. Such
// an operand is in memory, whatever is fused.
func storedOperands(values []*Value) map[*Value]bool {
	stored := map[*Value]bool{}
	for _, v := range values {
		if v.Op.Info().Class != op.Elementwise {
			for _, a := range v.Args {
				stored[a] = true
			}
		}
	}
	return stored
}

// positive reports whether v is the decision of a ReLU's gradient: a > 0 for an operand a
// in memory.
func (r *retyper) positive(v *Value) bool {
	if v.Op != op.Greater || !r.stored[v.Args[0]] {
		return false
	}
	zero := v.Args[1]
	return zero.Op == op.Const && zero.Attr.Data == nil && zero.Attr.Value == 0
}

// castOf is a value in another type.
type castOf struct {
	v *Value
	d dtype.DType
}

// narrower reports whether d is a float type with fewer bits than least.
func narrower(d, least dtype.DType) bool {
	return least != dtype.Invalid && d.IsFloat() && d.Size() < least.Size()
}

// widen returns d, or least if d is narrower.
func widen(d, least dtype.DType) dtype.DType {
	if narrower(d, least) {
		return least
	}
	return d
}

// twin is what stands for v, which is v itself unless it was recorded again.
func (r *retyper) twin(v *Value) *Value {
	if t := r.twins[v]; t != nil {
		return t
	}
	return v
}

// record returns the twin of v.
func (r *retyper) record(v *Value) (*Value, error) {
	least := dtype.Invalid
	if r.Least != nil {
		least = r.Least(v)
	}
	d := v.Type.DType
	if x := v.Args; r.Forced && r.positive(v) && narrower(x[0].Type.DType, least) {
		// The twin makes the decision again, from the same operand, so that it fuses with
		// what reads it: a shared one would be stored.
		a, err := r.cast(x[0], least)
		if err != nil {
			return nil, err
		}
		zero, err := r.exact(x[1], least)
		if err != nil {
			return nil, err
		}
		return r.add(v.Op, v.Attr, v.Path, a, zero)
	}
	if r.Forced && (!d.IsFloat() || decides(v.Op)) {
		return r.cast(v, widen(d, least))
	}
	switch {
	case v.Op == op.Const && v.Attr.Data == nil && narrower(d, least):
		return r.exact(v, least)
	case v.Op.Info().Class == op.Leaf:
		return r.cast(v, widen(d, least))
	case v.Op == op.Cast && d.IsFloat():
		if twin := r.twin(v.Args[0]); twin != v.Args[0] || narrower(d, least) {
			return r.cast(twin, widen(d, least))
		}
		return v, nil
	case (v.Op == op.RoundE4M3 || v.Op == op.RoundE5M2) && least != dtype.Invalid:
		return r.cast(r.twin(v.Args[0]), widen(d, least))
	}
	args := slices.Clone(v.Args)
	for i, a := range v.Args {
		var err error
		if args[i], err = r.operand(v, i, least); err != nil {
			return nil, fmt.Errorf("operand %s: %w", a.Describe(), err)
		}
	}
	attr := v.Attr
	attr.DType = widen(attr.DType, least)
	if attr.Loop != nil {
		var err error
		if attr.Loop, err = retypeLoop(attr.Loop, typesOf(args), least); err != nil {
			return nil, err
		}
	}
	if slices.Equal(args, v.Args) && attr.DType == v.Attr.DType && (attr.Loop == nil || least == dtype.Invalid) {
		return v, nil
	}
	return r.add(v.Op, attr, v.Path, args...)
}

// operand is argument i of v, recorded again under least.
func (r *retyper) operand(v *Value, i int, least dtype.DType) (*Value, error) {
	a := v.Args[i]
	d := a.Type.DType
	switch {
	case !d.IsFloat():
		return r.twin(a), nil
	case r.Forced && i == 0 && (v.Op == op.MaxPoolGrad || v.Op == op.MaxPoolGradGrad):
		return r.cast(a, widen(d, least)) // it says where the maxima are
	case least == dtype.Invalid && follows(v, i):
		return r.twin(a), nil
	case a.Op == op.Const && a.Attr.Data == nil && narrower(d, least):
		return r.exact(a, least)
	}
	return r.cast(r.twin(a), widen(d, least))
}

// decides reports whether an operation with a float result jumps, so that an error
// of its operand is none of the result or the whole of it.
func decides(c op.Code) bool {
	return c == op.Sign || c == op.Floor || c == op.Ceil || c == op.Round
}

// follows reports whether the result of v has the type of argument i, whatever that
// is.
func follows(v *Value, i int) bool {
	info := v.Op.Info()
	return info.Class == op.Movement && (v.Op == op.Barrier || info.Args == 1 || i == 0 && v.Op != op.ScatterUpdate && v.Op != op.Concat)
}

// exact is a constant in another type: as it was written, not as it was rounded.
func (r *retyper) exact(v *Value, d dtype.DType) (*Value, error) {
	at := castOf{v, d}
	if c := r.casts[at]; c != nil {
		return c, nil
	}
	attr := v.Attr
	attr.DType = d
	c, err := r.add(op.Const, attr, v.Path)
	r.casts[at] = c
	return c, err
}

// cast is v as another type, or v.
func (r *retyper) cast(v *Value, d dtype.DType) (*Value, error) {
	if v.Type.DType == d {
		return v, nil
	}
	at := castOf{v, d}
	if c := r.casts[at]; c != nil {
		return c, nil
	}
	c, err := r.add(op.Cast, op.Attr{DType: d}, v.Path, v)
	r.casts[at] = c
	return c, err
}

func (r *retyper) add(c op.Code, a op.Attr, path string, args ...*Value) (*Value, error) {
	t, err := op.Infer(c, a, typesOf(args)...)
	if err != nil {
		return nil, err
	}
	return r.g.Add(c, a, t, r.Path+path, args...), nil
}

func typesOf(values []*Value) []op.Type {
	types := make([]op.Type, len(values))
	for i, v := range values {
		types[i] = v.Type
	}
	return types
}

// retypeLoop is l for arguments of types t, its values in at least least.
func retypeLoop(l *op.LoopBody, t []op.Type, least dtype.DType) (*op.LoopBody, error) {
	out := *l
	out.Code, out.Results = nil, nil
	types := l.Inputs(t) // of the values of out
	at := make([]int, len(types), len(types)+len(l.Code))
	for i := range at {
		at[i] = i
	}
	emit := func(in op.LoopInstr) (int, error) {
		args := make([]op.Type, len(in.Args))
		for i, a := range in.Args {
			args[i] = types[a]
		}
		ty, err := op.Infer(in.Op, in.Attr, args...)
		if err != nil {
			return 0, fmt.Errorf("in the loop: %v: %w", in.Op, err)
		}
		out.Code, types = append(out.Code, in), append(types, ty)
		return len(types) - 1, nil
	}
	cast := func(n int, d dtype.DType, path string) (int, error) {
		if types[n].DType == d {
			return n, nil
		}
		return emit(op.LoopInstr{Op: op.Cast, Attr: op.Attr{DType: d}, Args: []int{n}, Path: path})
	}
	for _, in := range l.Code {
		args := make([]int, len(in.Args))
		for i, a := range in.Args {
			var err error
			if args[i], err = cast(at[a], widen(types[at[a]].DType, least), in.Path); err != nil {
				return nil, err
			}
		}
		in.Args = args
		in.Attr.DType = widen(in.Attr.DType, least)
		n, err := 0, error(nil)
		switch {
		case in.Op == op.Cast && in.Attr.DType.IsFloat():
			n, err = cast(args[0], in.Attr.DType, in.Path)
		case (in.Op == op.RoundE4M3 || in.Op == op.RoundE5M2) && least != dtype.Invalid:
			n = args[0]
		default:
			if in.Attr.Loop != nil {
				inner := make([]op.Type, len(args))
				for i, a := range args {
					inner[i] = types[a]
				}
				if in.Attr.Loop, err = retypeLoop(in.Attr.Loop, inner, least); err != nil {
					return nil, err
				}
			}
			n, err = emit(in)
		}
		if err != nil {
			return nil, err
		}
		at = append(at, n)
	}
	for _, k := range l.Results {
		n, err := cast(at[k], widen(types[at[k]].DType, least), "")
		if err != nil {
			return nil, err
		}
		out.Results = append(out.Results, n)
	}
	return &out, nil
}
