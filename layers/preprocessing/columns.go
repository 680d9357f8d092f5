package preprocessing

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// Columns is part of a table: columns of equal lengths by name. A column is
//
//   - []string, or Strings of shape [n] or [n 1], of features of strings;
//   - []int, []int32, []int64, []uint8 or []bool, or a tensor of integers or bools of
//     shape [n] or [n 1], of integers and floats;
//   - []float32 or []float64, or a tensor of floats, of floats.
//
// Columns of one row may have values in place of slices, such as "age": 63.0.
// What is encoded then has no batch axis: it is a sample.
type Columns map[string]any

// column is one that was read: one of the slices has its values.
type column struct {
	strings  []string
	integers []int64
	floats   []float32
	value    bool // a value in place of a slice
}

func (c column) len() int { return len(c.strings) + len(c.integers) + len(c.floats) }

type number interface {
	~int | ~int32 | ~int64 | ~uint8 | ~float32 | ~float64
}

func converted[T, S number](from []S) []T {
	to := make([]T, len(from))
	for i, v := range from {
		to[i] = T(v)
	}
	return to
}

// numbers is a column of numbers of one type.
func numbers[S number](from []S, kind string, value bool) (column, error) {
	if kind == floatColumn {
		return column{floats: converted[float32](from), value: value}, nil
	}
	return column{integers: converted[int64](from), value: value}, nil
}

// readColumn reads a column of one of the kinds.
func readColumn(v any, kind string) (column, error) {
	switch x := v.(type) {
	case string:
		v = Strings{Data: []string{x}}
	case []string:
		v = StringsOf(x...)
	}
	if s, ok := v.(Strings); ok && kind == stringColumn {
		if err := s.check(0, 2); err != nil {
			return column{}, err
		}
		if len(s.Shape) == 2 && s.Shape[1] != 1 {
			return column{}, fmt.Errorf("got strings %v, want [n] or [n 1]", s.Shape)
		}
		return column{strings: s.Data, value: len(s.Shape) == 0}, nil
	} else if !ok && kind != stringColumn {
		if c, known, err := readNumbers(v, kind); known {
			return c, err
		}
	}
	if s, ok := v.(Strings); ok {
		return column{}, fmt.Errorf("got strings %v, want %s", s.Shape, wantedColumn[kind])
	}
	return column{}, fmt.Errorf("got %T, want %s", v, wantedColumn[kind])
}

var wantedColumn = map[string]string{stringColumn: "[]string", integerColumn: "[]int64 or other integers", floatColumn: "[]float32 or other numbers"}

// readNumbers is readColumn for numbers. known is false for other types.
func readNumbers(v any, kind string) (c column, known bool, err error) {
	switch x := v.(type) {
	case bool:
		v = []bool{x}
		c.value = true
	case int:
		c, err = numbers([]int{x}, kind, true)
		return c, true, err
	case int32:
		c, err = numbers([]int32{x}, kind, true)
		return c, true, err
	case int64:
		c, err = numbers([]int64{x}, kind, true)
		return c, true, err
	case uint8:
		c, err = numbers([]uint8{x}, kind, true)
		return c, true, err
	case float32:
		v, c.value = []float32{x}, true
	case float64:
		v, c.value = []float64{x}, true
	}
	switch x := v.(type) {
	case []bool:
		bits := make([]uint8, len(x))
		for i, on := range x {
			if on {
				bits[i] = 1
			}
		}
		c, err = numbers(bits, kind, c.value)
	case []int:
		c, err = numbers(x, kind, false)
	case []int32:
		c, err = numbers(x, kind, false)
	case []int64:
		c, err = numbers(x, kind, false)
	case []uint8:
		c, err = numbers(x, kind, false)
	case []float32:
		if kind == integerColumn {
			return c, false, nil
		}
		c.floats = x
	case []float64:
		if kind == integerColumn {
			return c, false, nil
		}
		c.floats = converted[float32](x)
	case *tensor.Tensor:
		c, err = readTensor(x, kind)
	default:
		return c, false, nil
	}
	return c, true, err
}

func readTensor(x *tensor.Tensor, kind string) (c column, err error) {
	defer tensor.Catch(&err)
	if r := x.Rank(); r > 2 || r == 2 && x.Dim(1) != 1 || kind == integerColumn && x.DType().IsFloat() {
		return c, fmt.Errorf("got %v, want %s of shape [n] or [n 1]", x.Type(), wantedColumn[kind])
	}
	c.value = x.Rank() == 0
	if kind == integerColumn {
		c.integers, err = x.Int64s()
		return c, err
	}
	data, err := x.Float64s()
	c.floats = converted[float32](data)
	return c, err
}

// read reads the columns of all features.
func (p *preparedFeatures) read(in Columns) ([]column, error) {
	all := make([]column, len(p.features))
	for i, f := range p.features {
		v, ok := in[f.name]
		if !ok {
			return nil, fmt.Errorf("there is no column %q, want one for each feature; have %q", f.name, slices.Sorted(maps.Keys(in)))
		}
		c, err := readColumn(v, f.column)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.name, err)
		}
		if first := all[0]; i > 0 && (c.len() != first.len() || c.value != first.value) {
			return nil, fmt.Errorf("column %q has %s, want %s as column %q", f.name, c.rows(), first.rows(), p.features[0].name)
		}
		all[i] = c
	}
	return all, nil
}

func (c column) rows() string {
	if c.value {
		return "a value"
	}
	return fmt.Sprintf("%d rows", c.len())
}

// Encode returns what the layer takes in a model: for each feature, sorted by
// name, its numbers, as float32 or int64, or the indices of its strings; then for
// each cross, sorted by name, the bin of each row. It does not need the layer to
// be built, and may be called by several goroutines. Columns that are no feature
// are ignored.
//
// Shapes: columns of n rows → a tuple of tensors [n 1]; values → of tensors [1].
func (s *FeatureSpace) Encode(in Columns) (*tensor.Tensor, error) {
	x, _, err := s.encode(in, false)
	if err != nil {
		return nil, fmt.Errorf("layer %s: Encode: %w", layerLabel(s), err)
	}
	return x, nil
}

// encode is Encode; with batch the result has a batch axis in any case. row is
// whether the columns have values.
func (s *FeatureSpace) encode(in Columns, batch bool) (x *tensor.Tensor, row bool, err error) {
	p, err := s.prepare()
	if err != nil {
		return nil, false, err
	}
	if err := s.Adapted(); err != nil {
		return nil, false, err
	}
	columns, err := p.read(in)
	if err != nil {
		return nil, false, err
	}
	n, row := columns[0].len(), columns[0].value
	var out []*tensor.Tensor
	add := func(shape layers.Shape, make func(layers.Shape) *tensor.Tensor) {
		if row && !batch {
			shape = shape[1:]
		}
		out = append(out, make(shape))
	}
	indices := make([][]int64, len(columns)) // of the features that crosses need
	for i, f := range p.features {
		ids, shape, err := f.encoded(columns[i], n)
		if err != nil {
			return nil, false, fmt.Errorf("feature %q: %w", f.name, err)
		}
		add(shape, func(shape layers.Shape) *tensor.Tensor {
			if ids == nil {
				return tensor.New(columns[i].floats, shape...)
			}
			return tensor.New(ids, shape...)
		})
		if slices.ContainsFunc(p.crosses, func(c *cross) bool { return slices.Contains(c.of, i) }) {
			if indices[i], err = f.indices(columns[i], ids); err != nil {
				return nil, false, fmt.Errorf("feature %q: %w", f.name, err)
			}
		}
	}
	for _, c := range p.crosses {
		bins := make([]int64, n)
		hashes := make([]uint64, len(c.of))
		for r := range bins {
			for k, i := range c.of {
				hashes[k] = uint64(indices[i][r]) // TensorFlow hashes strings, not integers
			}
			bins[r] = crossed(hashes, c.Dim)
		}
		add(layers.Shape{n, 1}, func(shape layers.Shape) *tensor.Tensor { return tensor.New(bins, shape...) })
	}
	if len(out) == 1 {
		return out[0], row, nil
	}
	return tensor.Tuple(out...), row, nil
}

// encoded returns what the feature's layer takes for a column of n rows: integers,
// or nil for the floats of the column.
func (f *feature) encoded(c column, n int) ([]int64, layers.Shape, error) {
	shape := layers.Shape{n, 1}
	text := c.strings
	encoder, ok := f.layer.(StringEncoder)
	switch {
	case f.column == floatColumn:
		return nil, shape, nil
	case !ok:
		return c.integers, shape, nil
	case f.column == integerColumn: // Hashing
		text = make([]string, n)
		for i, v := range c.integers {
			text[i] = strconv.FormatInt(v, 10)
		}
	}
	ids, err := encoder.Encode(Strings{Data: text, Shape: shape})
	if err != nil {
		return nil, nil, err
	}
	data, err := ids.Int64s()
	return data, ids.Shape(), err
}

// indexed reports whether indices computes the indices of the feature.
func (f *feature) indexed() bool {
	switch l := f.layer.(type) {
	case *StringLookup:
		return layers.Defaults(*l).OutputMode == "int"
	case *IntegerLookup:
		return layers.Defaults(*l).OutputMode == "int" && !l.Invert
	case *Hashing:
		return layers.Defaults(*l).OutputMode == "int"
	case *Discretization:
		return layers.Defaults(*l).OutputMode == "int"
	}
	return false
}

// indices returns on the host what the feature's layer returns for ids, or for the
// floats of the column.
func (f *feature) indices(c column, ids []int64) ([]int64, error) {
	out := make([]int64, c.len())
	switch l := f.layer.(type) {
	case *Discretization:
		boundaries := converted[float32](l.BinBoundaries)
		for i, v := range c.floats {
			out[i] = int64(bin(boundaries, v))
		}
	case *IntegerLookup:
		t, err := l.lookup().cached(&l.kept)
		if err != nil {
			return nil, err
		}
		for i, v := range c.integers {
			if out[i], err = t.find(v, floorMod); err != nil {
				return nil, err
			}
		}
	default:
		return ids, nil
	}
	return out, nil
}

// floorMod is the remainder with the sign of n.
func floorMod(v int64, n int) int64 { return (v%int64(n) + int64(n)) % int64(n) }

// bin is the index of the first boundary above v; NaN is above all.
func bin(boundaries []float32, v float32) int {
	if v != v {
		return len(boundaries)
	}
	i, _ := slices.BinarySearchFunc(boundaries, v, func(b, v float32) int {
		if b <= v {
			return -1
		}
		return 1
	})
	return i
}

// CallColumns calls the layer on columns, outside Functions: Encode and then the
// layer, as a call of Keras's FeatureSpace. In OutputMode dict the result is a
// tuple in the order of Names.
func (s *FeatureSpace) CallColumns(in Columns) (y *tensor.Tensor, err error) {
	defer tensor.Catch(&err)
	x, row, err := s.encode(in, true)
	if err != nil {
		return nil, fmt.Errorf("layer %s: Encode: %w", layerLabel(s), err)
	}
	if s.LayerName() == "" {
		defer layers.ClearName(s)
	}
	y = layers.Apply(s, layers.Pass{}, x)
	if !row {
		return y, nil
	}
	parts := slices.Clone(y.Unpack())
	for i, part := range parts {
		parts[i] = part.Squeeze(0)
	}
	if y.IsTuple() {
		return tensor.Tuple(parts...), nil
	}
	return parts[0], nil
}
