package backendtest

import (
	"fmt"
	"hash/fnv"
	"iter"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Case is one operation on arguments of one element type and shape class.
type Case struct {
	Op    op.Code
	DType dtype.DType // the element type under test
	Class string      // what is particular to the shapes or values: "scalar", "row", "special"
	Attr  op.Attr
	Args  []op.Type
	Large bool // enough work to measure speed with

	fill    []fill                        // one for each argument
	derive  func(a op.Attr, args []array) // changes arguments that follow from others, or nil
	wantErr bool                          // an index is out of range: the run must fail
}

// Name is "MatMul/float16/batched".
func (c Case) Name() string { return fmt.Sprintf("%v/%v/%s", c.Op, c.DType, c.Class) }

// inputs are the types that the case's program reads: its arguments, or, of
// Param, what it is.
func (c Case) inputs() []op.Type {
	if c.Op == op.Param {
		return []op.Type{{DType: c.DType, Shape: c.Attr.Dims}}
	}
	return c.Args
}

// arguments makes the elements of the inputs, the same at every call.
func (c Case) arguments() []array {
	h := fnv.New64a()
	h.Write([]byte(c.Name()))
	r := seeded(h.Sum64())
	in := c.inputs()
	args := make([]array, len(in))
	for i, t := range in {
		args[i] = array{t, c.fill[i](r, t)}
	}
	if c.derive != nil {
		c.derive(c.Attr, args)
	}
	return args
}

// SupportedBy reports whether d has a kernel for the case, without expansion.
func (c Case) SupportedBy(d driver.Device) bool {
	t := c.Attr.DType
	if len(c.Args) > 0 {
		t = c.Args[0].DType
	}
	return d.Supports(c.Op, t)
}

// builder collects the cases of an operation on one element type.
type builder struct {
	op    op.Code
	dtype dtype.DType
	list  []Case
	err   error // of op.Infer: the operation does not take the type
}

// t is the type under test in a shape.
func (b *builder) t(shape ...int) op.Type { return op.Type{DType: b.dtype, Shape: shape} }

// add appends a case; all arguments have the same fill unless there is one
// for each.
func (b *builder) add(class string, a op.Attr, args []op.Type, fills ...fill) *Case {
	for len(fills) < len(args) {
		fills = append(fills, fills[0])
	}
	if _, err := op.Infer(b.op, a, args...); err != nil {
		b.err = fmt.Errorf("case %s: %w", class, err)
	}
	b.list = append(b.list, Case{Op: b.op, DType: b.dtype, Class: class, Attr: a, Args: args, fill: fills})
	return &b.list[len(b.list)-1]
}

// makers adds the cases of one element type. It has an entry for every operation
// that scalarCases has none for.
var makers = map[op.Code]func(*builder){}

func register(maker func(*builder), codes ...op.Code) {
	for _, c := range codes {
		makers[c] = maker
	}
}

// casesOf lists the cases of an operation on an element type; none where
// op.Infer does not take the type. It is an error when it takes the type for
// some of the cases only: then a case is wrong.
func casesOf(c op.Code, d dtype.DType) ([]Case, error) {
	maker := makers[c]
	if maker == nil {
		maker = scalarCases(c)
	}
	if maker == nil {
		return nil, fmt.Errorf("operation %v has no case in package backendtest", c)
	}
	b := &builder{op: c, dtype: d}
	maker(b)
	if b.err == nil {
		return b.list, nil
	}
	for _, k := range b.list {
		if _, err := op.Infer(c, k.Attr, k.Args...); err == nil {
			return nil, fmt.Errorf("%v takes %v in case %q but not in all: %v", c, d, k.Class, b.err)
		}
	}
	return nil, nil
}

// operations are those that have cases. An Extra is only where a Fused value is,
// and tested with it.
func operations() []op.Code {
	return slices.DeleteFunc(op.Codes(), func(c op.Code) bool { return c == op.ExtraOutput })
}

// Cases goes through the cases of all operations on all element types that
// they take, in the order of the table. Operations without a case are missing
// here; [Run] reports them.
func Cases() iter.Seq[Case] {
	return func(yield func(Case) bool) {
		for _, c := range operations() {
			for _, d := range dtype.All() {
				list, _ := casesOf(c, d)
				for _, k := range list {
					if !yield(k) {
						return
					}
				}
			}
		}
	}
}

// shapeClasses are the shapes of operations that treat every element alike.
var shapeClasses = []struct {
	name  string
	shape op.Shape
}{
	{"scalar", nil},
	{"empty", op.Shape{0}},
	{"empty3", op.Shape{3, 0, 2}},
	{"one", op.Shape{1}},
	{"odd", op.Shape{7}},
	{"unaligned", op.Shape{1023}},
	{"rank2", op.Shape{5, 33}},
	{"rank5", op.Shape{2, 1, 3, 2, 5}},
	{"large", op.Shape{70001}},
}

// broadcastClasses are pairs of shapes of which one repeats, or both.
var broadcastClasses = []struct {
	name string
	x, y op.Shape
}{
	{"row", op.Shape{5, 33}, op.Shape{33}},
	{"row2", op.Shape{5, 33}, op.Shape{1, 33}},
	{"rowLeft", op.Shape{33}, op.Shape{5, 33}},
	{"column", op.Shape{33, 5}, op.Shape{33, 1}},
	{"columnLeft", op.Shape{33, 1}, op.Shape{33, 5}},
	{"scalarRight", op.Shape{3, 7}, nil},
	{"scalarLeft", nil, op.Shape{3, 7}},
	{"oneRight", op.Shape{3, 7}, op.Shape{1, 1, 1}},
	{"both", op.Shape{4, 1, 6}, op.Shape{5, 1}},
	{"middle", op.Shape{2, 3, 4, 5}, op.Shape{3, 1, 5}},
	{"emptyRow", op.Shape{0, 3}, op.Shape{3}},
	{"emptyRepeat", op.Shape{4, 0}, op.Shape{1, 1}},
	{"largeRow", op.Shape{300, 257}, op.Shape{257}},
	{"largeColumn", op.Shape{257, 300}, op.Shape{257, 1}},
	{"largeScalar", op.Shape{70001}, nil},
}

func large(name string) bool { return len(name) >= 5 && name[:5] == "large" }
