package layertest

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// Case is a layer with the types of its inputs.
type Case struct {
	Name string
	Make func() layers.Layer
	In   []op.Type
}

// Accepts says which inputs a class accepts. All others are mistakes.
type Accepts struct {
	Least, Most int // axes of the input; Most 0: any number
	Few, Many   int // tensors; 0: one; Many 0: as Few, -1: any number
	Kind        string
}

// Values of Accepts.Kind. "" stands for all element types.
const (
	Floats   = "floats"
	Integers = "integers"
)

// MistakesOptions has what Mistakes does not know about the layers of a package.
type MistakesOptions struct {
	// Wrong returns values that a field with the value now must not have, by the
	// field's type; nil for types that Mistakes knows.
	Wrong func(now any) []any
	// Open prepares a layer with a vocabulary or bins for numbers outside of it,
	// and reports whether it accepts them.
	Open func(l layers.Layer) bool
}

// Mistakes makes all mistakes with each case: it gives each field values of its
// kind that are wrong, and the layer inputs of other ranks, numbers and types.
// Each must give an error that names the layer, the field, its value and the
// value required; none may panic with anything but *tensor.Error. Each class of
// the cases must have a row in accepted, and each row a case.
func Mistakes(t *testing.T, cases []Case, accepted map[string]Accepts, o MistakesOptions) {
	seen := map[string]bool{}
	for _, c := range cases {
		class := layers.Class(c.Make())
		seen[class] = true
		a, ok := accepted[class]
		if !ok {
			t.Errorf("class %s has no row in accepted, want what it accepts", class)
			continue
		}
		m := &mistakes{T: t, Case: c, options: o}
		m.fields()
		m.shapes(a)
		m.masks()
		m.categories()
	}
	for class := range accepted {
		if !seen[class] {
			t.Errorf("there is a row for class %s and no case", class)
		}
	}
}

// mistakes checks one case.
type mistakes struct {
	*testing.T
	Case
	options MistakesOptions
}

// symbolic returns placeholders for a batch of unknown size.
func symbolic(types []op.Type) *tensor.Tensor {
	parts := make([]*tensor.Tensor, len(types))
	for i, t := range types {
		shape := t.Shape.Clone()
		if len(shape) > 0 {
			shape[0] = op.Unknown
		}
		parts[i] = tensor.Placeholder(t.DType, shape...)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return tensor.Tuple(parts...)
}

// fails applies l to x and requires an error that names the layer and contains
// all words, whatever their case, and what was wanted.
func (m *mistakes) fails(what string, l layers.Layer, x *tensor.Tensor, words ...string) {
	m.Helper()
	err := applied(l, x)
	name := l.Config().Name
	if name == "" {
		name = layers.SnakeClass(l)
	}
	if err == nil {
		m.Errorf("%s: %s: got no error", m.Name, what)
		return
	}
	text := err.Error()
	missing := ""
	for _, w := range words {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(w)) {
			missing = w
		}
	}
	switch {
	case !strings.HasPrefix(text, "layer "+name):
		m.Errorf("%s: %s: the error does not start with the layer: %s", m.Name, what, text)
	case missing != "":
		m.Errorf("%s: %s: the error does not contain %q: %s", m.Name, what, missing, text)
	case !strings.Contains(text, "want") && !strings.Contains(text, "have ") && !strings.Contains(text, "; use "):
		m.Errorf("%s: %s: the error does not say what is wanted: %s", m.Name, what, text)
	}
}

// applied is the error of applying l to x: any panic, *tensor.Error or not.
func applied(l layers.Layer, x *tensor.Tensor) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *tensor.Error:
			err = r
		default:
			err = fmt.Errorf("PANIC %v", r)
		}
	}()
	return layers.Apply(l, layers.Pass{}, x).Err()
}

// fields sets every exported field to what it cannot be.
func (m *mistakes) fields() {
	m.Helper()
	typ := reflect.TypeOf(m.Make()).Elem()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if !f.IsExported() || f.Anonymous || f.Name == "Name" {
			continue
		}
		first := reflect.ValueOf(m.Make()).Elem().Field(i)
		if m.unused(f.Name) {
			continue
		}
		wrong, ok := m.wrongValues(f.Name, first)
		if !ok {
			m.Errorf("%s: no rule for field %s of type %v, want what is wrong for it, or that nothing is", m.Name, f.Name, f.Type)
		}
		for _, value := range wrong {
			if _, ok := f.Tag.Lookup("default"); ok && value == 0 && f.Type.Kind() == reflect.Int {
				continue // stands for the default
			}
			l := m.Make()
			to := reflect.ValueOf(l).Elem().Field(i)
			if v := reflect.ValueOf(value); !v.IsValid() {
				to.SetZero()
			} else if to.Kind() == reflect.Pointer {
				p := reflect.New(to.Type().Elem())
				p.Elem().Set(v.Convert(p.Elem().Type()))
				to.Set(p)
			} else if to.Kind() == reflect.Interface {
				to.Set(v)
			} else {
				to.Set(v.Convert(to.Type()))
			}
			words := wordsFor(f.Name)
			switch value := value.(type) {
			case nil:
			case string:
				words = append(words, fmt.Sprintf("%q", value))
			case []int:
				if len(value) > 0 {
					words = append(words, fmt.Sprint(value[0]))
				}
			case layers.Layer:
				words = append(words, layers.Class(value))
			case []layers.Layer:
			case []float64, []int64, []string: // the number of them, or one of them
			default:
				words = append(words, fmt.Sprint(value))
			}
			m.fails(fmt.Sprintf("%s = %v", f.Name, value), l, symbolic(m.In), words...)
		}
	}
}

// unused reports whether the layer has no weight that a field is about.
func (m *mistakes) unused(field string) bool {
	v := reflect.ValueOf(m.Make()).Elem()
	for prefix, switches := range map[string][]string{"Bias": {"UseBias", "BiasAxes"}, "Beta": {"Center"}, "Gamma": {"Scale"}} {
		kind, found := strings.CutPrefix(field, prefix)
		if !found || kind != "Initializer" && kind != "Regularizer" && kind != "Constraint" {
			continue
		}
		for _, name := range switches {
			switch on := v.FieldByName(name); {
			case !on.IsValid():
			case on.Kind() == reflect.String:
				return on.String() == ""
			case !on.IsNil():
				return !on.Elem().Bool()
			}
		}
	}
	return false
}

// wordsFor is how an error names a field: by its name, or what an initializer,
// regularizer or constraint is of.
func wordsFor(field string) []string {
	for _, kind := range []string{"Initializer", "Regularizer", "Constraint"} {
		if of, ok := strings.CutSuffix(field, kind); ok {
			return []string{kind, strings.Trim(snake(of), "_")}
		}
	}
	if field == "DType" {
		return []string{"policy"}
	}
	return []string{field}
}

// snake is MovingMean as moving_mean.
func snake(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// wrongValues are values that a field, which has the value now, cannot have,
// by its kind and its name; ok is false where no rule is known.
func (m *mistakes) wrongValues(name string, now reflect.Value) (wrong []any, ok bool) {
	class := layers.Class(m.Make())
	if m.options.Wrong != nil {
		if wrong := m.options.Wrong(now.Interface()); wrong != nil {
			return wrong, true
		}
	}
	switch now.Interface().(type) {
	case bool, *bool:
		return nil, true
	case string, *string:
		switch name {
		case "OOVToken", "MaskToken":
			return nil, true
		}
		return []any{"nonsense"}, true
	case int, *int:
		switch name {
		case "Axis":
			return []any{99, -99}, true
		case "FillValue": // any is stored
			return nil, true
		}
		wrong = []any{-7}
		if !slices.Contains([]string{"NumOOVIndices", "NumOps", "ValueDim"}, name) && (now.Kind() == reflect.Pointer || now.Int() != 0) {
			wrong = append(wrong, 0)
		}
		return wrong, true
	case *int64: // seeds and tokens
		return nil, true
	case float64, *float64:
		switch name {
		case "FillValue", "MaskValue": // any is stored or compared
			return nil, true
		case "Rate", "DropPathRate", "Dropout", "RecurrentDropout", "Momentum":
			return []any{-0.5, 1.5, math.NaN()}, true
		case "Stddev", "L1", "L2", "MaxValue", "Epsilon":
			if class == "Discretization" { // for Adapt
				return nil, true
			}
			return []any{-1.0, math.NaN()}, true
		case "ClipLimit", "LogitSoftCap", "MinFreq", "MaxFreq", "TopDB", "MagExp", "MinPower", "RefPower":
			return []any{-1.0, math.NaN()}, true
		case "NegativeSlope", "Threshold", "Alpha", "Scale", "Offset", "InitValues":
			return []any{math.NaN()}, true
		case "Factor":
			return []any{-1.0, 2.0, math.NaN()}, true
		}
	case []layers.Layer:
		if class == "Pipeline" { // of any layers
			return []any{nil, []layers.Layer{nil}}, true
		}
		return []any{nil, []layers.Layer{nil}, []layers.Layer{&layers.Flatten{}}}, true
	}
	if now.Type() == reflect.TypeFor[layers.Layer]() {
		if name == "BackwardLayer" || class == "TimeDistributed" {
			return nil, true
		}
		return []any{nil, &layers.Flatten{}}, true
	}
	if now.Kind() == reflect.Interface && name == "MaskValue" {
		return []any{0.5}, true
	}
	return wrongLists(class, name, now.Interface())
}

// wrongLists is wrongValues for fields that are lists of numbers or strings.
func wrongLists(class, name string, now any) (wrong []any, ok bool) {
	switch now.(type) {
	case layers.PerAxis:
		switch name {
		case "Padding", "Cropping":
			return []any{[]int{-3}, []int{1, 2, 3, 4, 5, 6, 7}}, true
		case "OutputPadding":
			return []any{[]int{-3}, []int{9}, []int{1, 2, 3, 4}}, true
		case "OutputShape":
			if class == "MultiHeadAttention" {
				return []any{[]int{0}, []int{-3}}, true
			}
			return []any{[]int{1, 2, 3, 4, 5, 6, 7}, []int{-3}}, true
		}
		return []any{[]int{0}, []int{-3}, []int{1, 2, 3, 4}}, true
	case []int:
		switch name {
		case "SharedAxes":
			return []any{[]int{99}, []int{-99}}, true
		case "Axis", "Axes", "Dims", "NoiseShape", "AttentionAxes":
			return []any{[]int{99}, []int{-99}, []int{1, 1, 1, 1, 1, 1, 1, 1}}, true
		case "TileGridSize":
			return []any{[]int{0}, []int{-3}, []int{1, 2, 3}}, true
		case "TargetShape":
			return []any{[]int{99}, []int{-99}, []int{0}}, true
		}
	case []float64:
		switch name {
		case "ValueRange":
			return []any{[]float64{1}, []float64{2, 1}, []float64{math.NaN(), 1}}, true
		case "BinBoundaries":
			return []any{[]float64{2, 1}, []float64{math.NaN()}}, true
		case "Mean":
			return []any{[]float64{math.NaN()}, []float64{1, 2, 3, 4, 5, 6, 7, 8}}, true
		case "Variance":
			return []any{[]float64{-1}, []float64{math.NaN()}}, true
		case "IDFWeights":
			return []any{[]float64{1, 2, 3, 4, 5, 6, 7, 8}}, true
		}
	case []int64:
		if name == "Vocabulary" {
			return []any{nil, []int64{5, 5}}, true
		}
	case []string:
		if name == "Vocabulary" {
			return []any{nil, []string{"a", "a"}}, true
		}
	}
	return nil, false
}

// shapes applies the layer to inputs that it does not accept.
func (m *mistakes) shapes(a Accepts) {
	m.Helper()
	few := max(a.Few, 1)
	many := a.Many
	if many == 0 {
		many = few
	}
	with := func(change func(in []op.Type) []op.Type) []op.Type {
		in := make([]op.Type, len(m.In))
		for i, t := range m.In {
			in[i] = op.Type{DType: t.DType, Shape: t.Shape.Clone()}
		}
		return change(in)
	}
	if a.Least > 0 {
		for n := range a.Least {
			x := symbolic(with(func(in []op.Type) []op.Type { in[0].Shape = in[0].Shape[:n]; return in }))
			m.fails(fmt.Sprintf("%d axes", n), m.Make(), x, x.Unpack()[0].Shape().String())
		}
	}
	if a.Most > 0 {
		x := symbolic(with(func(in []op.Type) []op.Type {
			for len(in[0].Shape) <= a.Most {
				in[0].Shape = append(in[0].Shape, 2)
			}
			return in
		}))
		m.fails(fmt.Sprintf("%d axes", a.Most+1), m.Make(), x, "[?") // layers within see less of the shape
	}
	if few > 1 {
		m.fails("one tensor", m.Make(), symbolic(m.In[:1]), "got 1 input")
	}
	if many >= 0 {
		x := symbolic(with(func(in []op.Type) []op.Type {
			for len(in) <= many {
				in = append(in, in[0])
			}
			return in
		}))
		m.fails("too many tensors", m.Make(), x, fmt.Sprintf("got %d inputs", x.Len()))
	}
	for _, d := range []dtype.DType{dtype.Bool, dtype.Int32, dtype.Float32} {
		if a.Kind == "" || a.Kind == Floats && d.IsFloat() || a.Kind == Integers && d == dtype.Int32 {
			continue
		}
		x := symbolic(with(func(in []op.Type) []op.Type {
			for i := range in {
				in[i].DType = d
			}
			return in
		}))
		m.fails("type "+d.String(), m.Make(), x, d.String())
	}
	// No batch is empty.
	empty := slices.Clone(m.In)
	parts := make([]*tensor.Tensor, len(empty))
	for i, t := range empty {
		shape := t.Shape.Clone()
		shape[0] = 0
		parts[i] = tensor.Zeros(t.DType, shape...)
	}
	x := parts[0]
	if len(parts) > 1 {
		x = tensor.Tuple(parts...)
	}
	m.fails("empty batch", m.Make(), x, parts[0].Type().String(), "batch")
	// A layer that is built requires the shapes it was built for.
	l := m.Make()
	if err := applied(l, symbolic(m.In)); err != nil {
		m.Errorf("%s: %v", m.Name, err)
		return
	}
	if len(layers.BaseOf(l).Weights()) > 0 && (a.Least > 0) && a.Kind == Floats {
		x := symbolic(with(func(in []op.Type) []op.Type { in[0].Shape = in[0].Shape[:a.Least-1]; return in }))
		m.fails("fewer axes, built", l, x, x.Unpack()[0].Shape().String())
	}
	// Axes without elements are errors or not, and no panics.
	for axis := range m.In[0].Shape {
		x := symbolic(with(func(in []op.Type) []op.Type { in[0].Shape[axis] = 0; return in }))
		if err := applied(m.Make(), x); err != nil && strings.HasPrefix(err.Error(), "PANIC") {
			m.Errorf("%s: axis %d of size 0: %v", m.Name, axis, err)
		}
	}
}

// masks attaches masks with each possible number of axes: what a layer cannot
// use is an error, not a panic with something else.
func (m *mistakes) masks() {
	m.Helper()
	for rank := range len(m.In[0].Shape) + 1 {
		x := symbolic(m.In)
		parts := slices.Clone(x.Unpack())
		parts[0] = parts[0].WithMask(tensor.Placeholder(dtype.Bool, parts[0].Shape()[:rank]...))
		if len(parts) > 1 {
			x = tensor.Tuple(parts...)
		} else {
			x = parts[0]
		}
		if err := applied(m.Make(), x); err != nil {
			m.fails(fmt.Sprintf("a mask of %d axes", rank), m.Make(), x, "mask")
		}
	}
	var err error
	func() {
		defer tensor.Catch(&err)
		x := symbolic(m.In).Unpack()[0]
		x.WithMask(tensor.Placeholder(dtype.Bool, append(x.Shape().Clone(), 2)...))
	}()
	if err == nil || !strings.Contains(err.Error(), "want") {
		m.Errorf("%s: a mask of more axes than its input: got %v, want an error", m.Name, err)
	}
}

// categories applies layers with a vocabulary, or a number of bins, to numbers
// outside of it.
func (m *mistakes) categories() {
	m.Helper()
	v := reflect.ValueOf(m.Make()).Elem()
	closed := false
	for _, field := range []string{"InputDim", "NumTokens", "NumBins", "Vocabulary"} {
		closed = closed || v.FieldByName(field).IsValid()
	}
	l := m.Make()
	if !closed || m.options.Open != nil && m.options.Open(l) {
		return
	}
	for _, id := range []float64{99, -7} {
		parts := make([]*tensor.Tensor, len(m.In))
		for i, t := range m.In {
			parts[i] = tensor.Full(t.DType, id, t.Shape...)
		}
		x := parts[0]
		if len(parts) > 1 {
			x = tensor.Tuple(parts...)
		}
		var err error
		func() {
			defer tensor.Catch(&err)
			_, err = layers.Apply(l, layers.Pass{}, x).Unpack()[0].Bytes()
		}()
		if err == nil || !strings.HasPrefix(err.Error(), "layer "+layers.SnakeClass(l)) || !strings.Contains(err.Error(), "want") {
			m.Errorf("%s: category %v: got error %v, want one that names the layer and the categories", m.Name, id, err)
		}
	}
}
