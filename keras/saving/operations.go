package saving

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// isOperation reports whether o is an operation of keras.ops and no layer. Keras keeps
// both in the graphs of models, some under the same class names, such as Add.
func isOperation(o *object) bool {
	return strings.HasPrefix(o.Module, "keras.src.ops.") || o.Module == "keras.ops" || strings.HasPrefix(o.Module, "keras.ops.")
}

// operation is one call of an operation of keras.ops, such as x + 1, as a layer: it is
// computed here and written to files as it was read.
type operation struct {
	Module, Class string         // of Keras
	Settings      map[string]any // its config, without the name
	Args          []any          // of the call, where an operand stands for a tensor
	Kwargs        map[string]any
	Name, DType   string

	layers.Base
}

// operand is the number of an operation's input.
type operand int

// Config implements layers.Layer.
func (o *operation) Config() layers.Config { return layers.Config{Name: o.Name, DType: o.DType} }

// ClassName returns Keras's class, for summaries.
func (o *operation) ClassName() string { return o.Class }

// Build implements layers.Layer.
func (o *operation) Build(...layers.Shape) error {
	o.SetAutocast(false) // operations compute in the types of their operands
	return nil
}

// CheckInput implements layers.InputChecker: operations accept what their function does.
func (o *operation) CheckInput(...layers.Shape) error { return nil }

// Call implements layers.Layer.
func (o *operation) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	f := functions[o.Class]
	in := x.Unpack()
	c := call{class: o.Class, values: map[string]any{}}
	for name, v := range o.Settings {
		c.values[name] = given(v, in)
	}
	for i, v := range o.Args {
		if f.rest {
			c.operands = append(c.operands, given(v, in))
		} else {
			c.values[f.params[i]] = given(v, in)
		}
	}
	for name, v := range o.Kwargs {
		c.values[name] = given(v, in)
	}
	return f.compute(c)
}

// given is an argument with tensors in place of the operands in it.
func given(v any, in []*keras.Tensor) any {
	switch v := v.(type) {
	case operand:
		return in[v]
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = given(x, in)
		}
		return out
	}
	return v
}

// operationOf makes the layer of an operation for one of its calls, and lists the
// tensors that it is called with.
func operationOf(o *object, name string, n inbound) (*operation, []key, error) {
	f, ok := functions[o.Class]
	if !ok {
		return nil, nil, fmt.Errorf("layer %s: operation %s of keras.ops is not supported; want one of %q", safeio.Text(name), safeio.Quote(o.Class), slices.Sorted(maps.Keys(functions)))
	}
	made := &operation{Module: o.Module, Class: o.Class, Settings: map[string]any{}, Kwargs: map[string]any{}, Name: name}
	var in []key
	var err error
	fail := func(err error) (*operation, []key, error) {
		return nil, nil, fmt.Errorf("layer %s: operation %s: %w", safeio.Text(name), o.Class, err)
	}
	for _, field := range slices.Sorted(maps.Keys(o.Config)) {
		if field == "name" {
			continue
		}
		if made.Settings[field], err = parameter(o.Config[field], nil); err != nil {
			return fail(fmt.Errorf("field %s: %w", safeio.Quote(field), err))
		}
	}
	if !f.rest && len(n.Args) > len(f.params) {
		return fail(fmt.Errorf("got %d arguments, want at most %q", len(n.Args), f.params))
	}
	for i, v := range n.Args {
		v, err := parameter(v, &in)
		if err != nil {
			return fail(fmt.Errorf("argument %d: %w", i, err))
		}
		made.Args = append(made.Args, v)
	}
	for _, field := range slices.Sorted(maps.Keys(n.Kwargs)) {
		if made.Kwargs[field], err = parameter(n.Kwargs[field], &in); err != nil {
			return fail(fmt.Errorf("argument %s: %w", safeio.Quote(field), err))
		}
	}
	for _, all := range []map[string]any{made.Settings, made.Kwargs} {
		for field, v := range all {
			if v != nil && v != false && !slices.Contains(f.params, field) && !slices.Contains(ignored, field) {
				return fail(fmt.Errorf("argument %s is not supported, want one of %q", safeio.Quote(field), f.params))
			}
		}
	}
	if len(in) == 0 {
		return fail(fmt.Errorf("the call has no tensors of the model"))
	}
	return made, in, nil
}

// ignored are arguments of operations that change no result.
var ignored = []string{"flash_attention", "sorted", "sparse"}

// What stands in an argument for values that JSON does not have.
type (
	sliced   struct{ start, stop, step any } // Python's slice
	ellipsis struct{}                        // …
	literal  struct {                        // a constant tensor
		typ   op.Type
		value []float64
		raw   map[string]any // as Keras wrote it
	}
)

// parameter reads an argument of an operation. Tensors of the model are appended to in,
// nil where there can be none.
func parameter(v any, in *[]key) (any, error) {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			var err error
			if out[i], err = parameter(x, in); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		config, _ := v["config"].(map[string]any)
		switch v["class_name"] {
		case "__keras_tensor__":
			k, err := keyFrom(config["keras_history"])
			if err != nil || in == nil {
				return nil, fmt.Errorf("got a tensor where none can be, error %v", err)
			}
			*in = append(*in, k)
			return operand(len(*in) - 1), nil
		case "__slice__":
			return sliced{config["start"], config["stop"], config["step"]}, nil
		case "__ellipsis__":
			return ellipsis{}, nil
		case "__tensor__", "__numpy__":
			return arrayFrom(v, config)
		}
		return nil, fmt.Errorf("got an argument of class %s, want numbers, texts, slices and tensors", safeio.Text(v["class_name"]))
	}
	return v, nil
}

// arrayFrom reads a constant tensor.
func arrayFrom(raw, config map[string]any) (literal, error) {
	a := literal{raw: raw}
	name, _ := config["dtype"].(string)
	d, err := dtype.Parse(name)
	if err != nil {
		return a, fmt.Errorf("a constant tensor: %w", err)
	}
	var shape op.Shape
	for v := config["value"]; ; {
		list, ok := v.([]any)
		if !ok {
			break
		}
		shape = append(shape, len(list))
		if len(list) == 0 {
			break
		}
		v = list[0]
	}
	a.typ = op.Type{DType: d, Shape: shape}
	if a.value, err = elementsOf(config["value"], shape, nil); err != nil {
		return a, fmt.Errorf("a constant tensor: %w", err)
	}
	return a, a.typ.Check()
}

// elementsOf appends the numbers in lists of a shape within one another.
func elementsOf(v any, shape op.Shape, to []float64) ([]float64, error) {
	if len(shape) == 0 {
		switch v := v.(type) {
		case bool:
			if v {
				return append(to, 1), nil
			}
			return append(to, 0), nil
		case json.Number:
			x, err := v.Float64()
			return append(to, x), err
		}
		return nil, fmt.Errorf("got %s, want a number", safeio.Text(v))
	}
	list, ok := v.([]any)
	if !ok || len(list) != shape[0] {
		return nil, fmt.Errorf("got lists of unequal lengths")
	}
	for _, x := range list {
		var err error
		if to, err = elementsOf(x, shape[1:], to); err != nil {
			return nil, err
		}
	}
	return to, nil
}

// written is an argument of an operation as Keras writes it, with refs for the operands.
func written(v any, refs []any) any {
	switch v := v.(type) {
	case operand:
		return refs[v]
	case sliced:
		return map[string]any{"class_name": "__slice__", "config": map[string]any{"start": v.start, "stop": v.stop, "step": v.step}}
	case ellipsis:
		return map[string]any{"class_name": "__ellipsis__", "config": map[string]any{}}
	case literal:
		return v.raw
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = written(x, refs)
		}
		return out
	}
	return v
}

// object is the operation in Keras's form.
func (o *operation) object() *object {
	out := &object{Module: o.Module, Class: o.Class, Config: map[string]any{"name": o.LayerName()}, RegisteredName: o.Class}
	for name, v := range o.Settings {
		out.Config[name] = written(v, nil)
	}
	return out
}

// inbound is the call of the operation on the tensors refs.
func (o *operation) inbound(refs []any) inbound {
	args, _ := written(o.Args, refs).([]any)
	n := inbound{Args: args, Kwargs: map[string]any{}}
	for name, v := range o.Kwargs {
		n.Kwargs[name] = written(v, refs)
	}
	return n
}

// call is one call of an operation.
type call struct {
	class    string
	values   map[string]any // by the names of Keras's parameters
	operands []any          // of a function that takes any number of them
}

func (c call) fail(format string, args ...any) {
	tensor.Fail(c.class, "%w", fmt.Errorf(format, args...))
}

// tensorOf is an argument as a tensor. Numbers have type of, unless they are fractions and
// that is none of floats.
func (c call) tensorOf(v any, of dtype.DType) *keras.Tensor {
	switch v := v.(type) {
	case *keras.Tensor:
		return v
	case literal:
		return constantOf(v.typ, v.value)
	case bool:
		x := 0.0
		if v {
			x = 1
		}
		if of == dtype.Invalid {
			of = dtype.Bool
		}
		return tensor.Full(of, x)
	case json.Number:
		x, err := v.Float64()
		if err != nil {
			c.fail("got %s, want a number", safeio.Text(v))
		}
		return tensor.Full(c.typeOf(v, of), x)
	case []any:
		d := dtype.Invalid
		shape, all := op.Shape{}, any(v)
		for {
			list, ok := all.([]any)
			if !ok || len(list) == 0 {
				break
			}
			shape, all = append(shape, len(list)), list[0]
		}
		x, err := elementsOf(v, shape, nil)
		if err != nil {
			c.fail("%v", err)
		}
		d = dtype.Int32
		var visit func(v any)
		visit = func(v any) {
			if list, ok := v.([]any); ok {
				for _, x := range list {
					visit(x)
				}
			} else {
				d = dtype.Promote(d, c.typeOf(v, dtype.Int32))
			}
		}
		visit(v)
		return constantOf(op.Type{DType: d, Shape: shape}, x)
	}
	c.fail("got %s, want a tensor or a number", safeio.Text(v))
	return nil
}

// typeOf is the type of a number in an operation on tensors of type of.
func (c call) typeOf(v any, of dtype.DType) dtype.DType {
	n, ok := v.(json.Number)
	switch {
	case ok && strings.ContainsAny(n.String(), ".eE") && !of.IsFloat():
		return dtype.Float32
	case of == dtype.Invalid || of == dtype.Bool && ok:
		return dtype.Int32
	}
	return of
}

func constantOf(t op.Type, values []float64) *keras.Tensor {
	return tensor.New(values, t.Shape...).Cast(t.DType)
}

// tensor is the argument of that name.
func (c call) tensor(name string) *keras.Tensor { return c.tensorOf(c.values[name], dtype.Invalid) }

// floats is the argument of that name as floats.
func (c call) floats(name string) *keras.Tensor {
	x := c.tensor(name)
	return x.Cast(dtype.Promote(x.DType(), floor(x.DType())))
}

// floor is the least type of floats for x of a type: operations such as exp make floats
// of integers.
func floor(d dtype.DType) dtype.DType {
	if d.IsFloat() {
		return d
	}
	return dtype.Float32
}

// together are arguments in the type that all have in common. Numbers take that of the
// tensors.
func (c call) together(all ...any) []*keras.Tensor {
	d := dtype.Invalid
	for _, v := range all {
		var t dtype.DType
		switch v := v.(type) {
		case *keras.Tensor:
			t = v.DType()
		case literal:
			t = v.typ.DType
		default:
			continue
		}
		if d = dtype.Promote(d, t); d == dtype.Invalid {
			d = t
		}
	}
	out := make([]*keras.Tensor, len(all))
	for i, v := range all {
		out[i] = c.tensorOf(v, d)
		if d == dtype.Invalid {
			d = out[i].DType()
		}
		d = dtype.Promote(d, out[i].DType())
	}
	for i, t := range out {
		out[i] = t.Cast(d)
	}
	return out
}

// pair are the arguments x1 and x2 in one type.
func (c call) pair() (x, y *keras.Tensor) {
	all := c.together(c.values["x1"], c.values["x2"])
	return all[0], all[1]
}

// list is an argument that is a list of tensors, in one type.
func (c call) list(name string) []*keras.Tensor {
	all, ok := c.values[name].([]any)
	if !ok {
		all = []any{c.values[name]}
	}
	if len(all) == 0 {
		c.fail("%s is empty, want at least one tensor", name)
	}
	return c.together(all...)
}

// has reports whether there is an argument that is not None.
func (c call) has(name string) bool { return c.values[name] != nil }

func (c call) number(name string, otherwise float64) float64 {
	switch v := c.values[name].(type) {
	case nil:
		return otherwise
	case json.Number:
		if x, err := v.Float64(); err == nil {
			return x
		}
	case bool:
		if v {
			return 1
		}
		return 0
	}
	c.fail("%s is %s, want a number", name, safeio.Text(c.values[name]))
	return 0
}

// whole reads an integer that is a size or an axis.
func (c call) whole(v any) int {
	n, ok := v.(json.Number)
	i, err := n.Int64()
	if !ok || err != nil || i < -1<<40 || i > 1<<40 {
		c.fail("got %s, want an integer", safeio.Text(v))
	}
	return int(i)
}

func (c call) integer(name string, otherwise int) int {
	if !c.has(name) {
		return otherwise
	}
	return c.whole(c.values[name])
}

func (c call) flag(name string) bool { return c.values[name] == true }

func (c call) text(name, otherwise string) string {
	if s, ok := c.values[name].(string); ok {
		return s
	}
	if c.has(name) {
		c.fail("%s is %s, want a text", name, safeio.Text(c.values[name]))
	}
	return otherwise
}

// integers is a list of integers, or one of them.
func (c call) integers(name string) []int {
	all, ok := c.values[name].([]any)
	if !ok {
		all = []any{c.values[name]}
	}
	out := make([]int, len(all))
	for i, v := range all {
		out[i] = c.whole(v)
	}
	return out
}

// axis is an axis of x.
func (c call) axis(x *keras.Tensor, name string, otherwise int) int {
	return c.checked(x, c.integer(name, otherwise))
}

func (c call) checked(x *keras.Tensor, axis int) int {
	a, err := x.Shape().Axis(axis)
	if err != nil {
		c.fail("%w", err)
	}
	return a
}

// axes are those of an argument axis, all of x where it is None.
func (c call) axes(x *keras.Tensor) []int {
	if !c.has("axis") {
		all := make([]int, x.Rank())
		for i := range all {
			all[i] = i
		}
		return all
	}
	all := c.integers("axis")
	for i, a := range all {
		all[i] = c.checked(x, a)
	}
	return all
}

// dtype is an argument that names an element type.
func (c call) dtype(otherwise dtype.DType) dtype.DType {
	name := c.text("dtype", "")
	if name == "" {
		return otherwise
	}
	d, err := dtype.Parse(name)
	if err != nil {
		c.fail("dtype: %w", err)
	}
	return d
}
