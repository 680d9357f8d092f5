package tensor

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Shape lists the sizes of the axes; see op.Shape.
type Shape = op.Shape

// Unknown is the size of a batch axis that is not known yet.
const Unknown = op.Unknown

// Tensor is an array of one element type: data, or the recipe to compute it.
// Its elements do not change once made; of batches and of results of Functions
// whose memory was handed back see [Tensor.Release]. A Tensor is used by one
// goroutine at a time until it is computed.
type Tensor struct {
	op       op.Code
	symbolic bool        // depends on an Input: has no data, ever
	stop     bool        // gradients end here
	autocast dtype.DType // recorded under Autocast, and not painted yet

	attr op.Attr
	args []*Tensor
	typ  op.Type
	seq  uint64 // recording order: arguments come before results, but for the one of a ShardMean
	path string // recorder's path

	data     *storage  // elements, once computed
	variable *Variable // the variable this is the value of, for leaves
	assigned *Variable // the variable this is the value of, after an assignment in the recording
	argument int       // position among a Function's arguments, -1 for others

	trace    *trace       // the recording it belongs to, nil outside a Function
	scaled   any          // the scaler whose loss scale is in it; see TagScaled
	gradient *GradientTag // see GradientTag
	mask     *Tensor      // see Mask
	segment  *segment     // see Remat
	custom   *custom      // see WithGradient

	parts  []*Tensor // a tuple's tensors; the other fields are unused then
	err    error     // a broken tensor: the error that made it
	origin any       // see SetOrigin
	home   *freeList // where Release returns it to
}

// storage is memory of a device that a tensor or variable holds.
type storage struct {
	buf    driver.Buffer
	device driver.Device
	lease  *lease // nil: the memory belongs to no Pool
}

var sequence atomic.Uint64

// Error is the panic of recording an invalid operation.
type Error struct {
	Path string // the layer, or "" outside layers
	Op   string // the operation or method
	Err  error
}

func (e *Error) Error() string {
	var s strings.Builder
	if e.Path != "" {
		fmt.Fprintf(&s, "layer %s: ", e.Path)
	}
	if e.Op != "" {
		fmt.Fprintf(&s, "%s: ", e.Op)
	}
	s.WriteString(e.Err.Error())
	return s.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Fail panics with an *Error. Code that records reports invalid arguments with it.
func Fail(where, format string, args ...any) {
	panic(&Error{Op: where, Err: fmt.Errorf(format, args...)})
}

// Catch turns a panic with *Error into an error; other panics pass through.
// Use it deferred at a border between recording and the rest of a program.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case *Error:
		*err = r
	default:
		panic(r)
	}
}

// Broken returns a tensor that stands for a failed construction. Operations on it are
// broken too and do not panic; Err returns the error.
func Broken(err error) *Tensor { return &Tensor{err: err, argument: -1} }

// Err is the error that broke t, or nil.
func (t *Tensor) Err() error { return t.err }

// Tuple groups tensors into one value, for layers and models with several
// inputs or outputs. Tuples do not nest, and no operation takes them.
func Tuple(ts ...*Tensor) *Tensor {
	t := &Tensor{parts: ts, argument: -1}
	for _, p := range ts {
		switch {
		case p == nil:
			Fail("Tuple", "a tensor is nil")
		case p.err != nil:
			return p
		case p.parts != nil:
			Fail("Tuple", "tuples do not nest")
		}
	}
	return t
}

// Unpack returns the tensors of a tuple, or t alone.
func (t *Tensor) Unpack() []*Tensor {
	if t.parts != nil {
		return t.parts
	}
	return []*Tensor{t}
}

// IsTuple reports whether t groups several tensors.
func (t *Tensor) IsTuple() bool { return t.parts != nil }

// Len is the number of parts of a tuple, 1 for others.
func (t *Tensor) Len() int {
	if t.parts != nil {
		return len(t.parts)
	}
	return 1
}

// Placeholder returns a symbolic tensor: it has a type but never data. Models
// are built on it. Axes may be Unknown.
func Placeholder(dt dtype.DType, shape ...int) *Tensor {
	t := op.Type{DType: dt, Shape: Shape(shape).Clone()}
	if err := t.Check(); err != nil {
		return Broken(err)
	}
	return &Tensor{op: op.Param, typ: t, seq: sequence.Add(1), symbolic: true, argument: -1}
}

// Symbolic reports whether t depends on a Placeholder.
func (t *Tensor) Symbolic() bool {
	if t.parts != nil {
		for _, p := range t.parts {
			if p.Symbolic() {
				return true
			}
		}
	}
	return t.symbolic
}

// IsRecorded reports whether t is part of the recording of a Function.
func IsRecorded(t *Tensor) bool { return t.trace != nil }

// SetOrigin attaches the origin of a symbolic tensor, for code that builds models;
// OriginOf returns it.
func SetOrigin(t *Tensor, o any) { t.origin = o }

// OriginOf returns the origin that SetOrigin attached, or nil.
func OriginOf(t *Tensor) any { return t.origin }

// Type is the element type and shape.
func (t *Tensor) Type() op.Type { return t.typ }

// DType is the element type; Invalid for broken tensors and tuples.
func (t *Tensor) DType() dtype.DType { return t.typ.DType }

// Shape lists the sizes of the axes. It must not be changed.
func (t *Tensor) Shape() Shape { return t.typ.Shape }

// Rank is the number of axes.
func (t *Tensor) Rank() int { return len(t.typ.Shape) }

// Dim is the size of an axis; negative ones count from the end.
func (t *Tensor) Dim(axis int) int {
	a, err := t.typ.Shape.Axis(axis)
	if err != nil {
		Fail("Dim", "%v", err)
	}
	return t.typ.Shape[a]
}

// Path tells which layer recorded t: "dense_1", "dense_1/grad"; "" for none.
func (t *Tensor) Path() string { return t.path }

// OpOf is the operation that t is the result of.
func OpOf(t *Tensor) op.Code { return t.op }

// TagScaled returns t with a tag: the optimizer by has scaled it. Everything computed
// from it, gradients included, has the tag too, until Untag. Optimizers refuse tensors
// with the tag.
func TagScaled(t *Tensor, by any) *Tensor {
	u := t.record(op.Identity, op.Attr{}, t)
	u.scaled, u.gradient = by, nil
	return u
}

// ScaledBy returns the by of TagScaled, nil if t has no such tag.
func ScaledBy(t *Tensor) any { return t.scaled }

// Untag returns t without the tag of TagScaled. Its GradientTag records that by has
// unscaled it.
func Untag(t *Tensor, by any) *Tensor {
	u := t.record(op.Identity, op.Attr{}, t)
	u.scaled, u.gradient = nil, &GradientTag{UnscaledBy: []any{by}}
	return u
}

// Label sets the path of the tensors that ts are computed from, that were recorded
// after since (see SequencePoint), and that have no path yet.
func Label(path string, since uint64, ts ...*Tensor) {
	seen := map[*Tensor]bool{} // tensors with a path may read tensors without: a layer with layers in it
	var walk func(t *Tensor)
	walk = func(t *Tensor) {
		if t == nil || t.seq <= since || seen[t] {
			return
		}
		seen[t] = true
		if t.op != op.Param && t.path == "" {
			t.path = path
		}
		for _, a := range t.args {
			walk(a)
		}
	}
	for _, t := range ts {
		if t == nil {
			continue
		}
		for _, p := range t.Unpack() {
			walk(p)
			if p.trace != nil {
				for _, v := range p.trace.assigned {
					walk(v.bound)
				}
			}
		}
	}
}

// SequencePoint returns the number of tensors recorded so far, for Label.
func SequencePoint() uint64 { return sequence.Load() }

// describe is String without elements.
func (t *Tensor) describe() string {
	if t.parts != nil {
		return fmt.Sprintf("a tuple of %d tensors", len(t.parts))
	}
	return t.typ.String()
}

// record writes an operation down.
func (t *Tensor) record(c op.Code, a op.Attr, args ...*Tensor) *Tensor {
	return Record(c, a, args...)
}

// Record writes down operation c on args, and computes it at once in eager
// mode. It panics with *Error when the arguments do not fit.
func Record(c op.Code, a op.Attr, args ...*Tensor) *Tensor {
	r := &Tensor{op: c, attr: a, args: args, argument: -1}
	var buf [4]op.Type
	types := buf[:0]
	for _, x := range args {
		switch {
		case x == nil:
			Fail(c.String(), "an argument is nil")
		case x.err != nil:
			return x
		case x.parts != nil:
			Fail(c.String(), "an argument is a tuple of %d tensors; use Unpack", len(x.parts))
		}
		types = append(types, x.typ)
		r.symbolic = r.symbolic || x.symbolic
		if x.scaled != nil {
			r.scaled = x.scaled
		}
		r.gradient = r.gradient.with(x.gradient)
		if x.trace != nil {
			switch {
			case x.trace.done:
				Fail(c.String(), "an argument was recorded by a Function that has returned; return it from the Function instead")
			case r.trace != nil && r.trace != x.trace:
				Fail(c.String(), "the arguments belong to two Functions")
			}
			r.trace = x.trace
		}
	}
	var err error
	if r.typ, err = op.Infer(c, a, types...); err != nil {
		panic(&Error{Op: c.String(), Err: err})
	}
	if r.trace != nil {
		r.autocast = r.trace.autocast
	}
	r.seq = sequence.Add(4) // with room for what paint adds in front
	if !r.typ.DType.IsFloat() {
		r.scaled, r.gradient = nil, nil // a comparison, a count or an index is not larger for it
	}
	if eager() && len(args) > 0 && !r.symbolic && r.typ.Shape.Known() && (r.trace == nil || r.trace.eager) {
		r.compute()
	}
	return r
}

// compute computes t at once, for eager mode.
func (t *Tensor) compute() {
	err := Eval(context.Background(), t)
	if err == nil && backend.DebugFromEnv().NaN {
		err = t.checkFinite()
	}
	if err != nil {
		panic(&Error{Op: t.op.String(), Err: err})
	}
}

// eager reports whether MEZZO_DEBUG asks for each operation to run at once.
func eager() bool { return backend.DebugFromEnv().Eager }
