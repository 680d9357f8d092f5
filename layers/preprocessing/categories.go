package preprocessing

import (
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// encoding is what layers make of categories 0 … n-1.
type encoding struct {
	mode  string
	n     int
	drops bool      // whether -1 stands for no category
	idf   []float64 // weights of the categories in mode tf_idf
}

// checkEncoding wants a mode among those allowed, and, for modes that count
// along the last axis, inputs with one besides the batch.
func checkEncoding(mode string, in []layers.Shape, allowed ...string) error {
	if !slices.Contains(allowed, mode) {
		return fmt.Errorf("OutputMode is %q, want one of %q", mode, allowed)
	}
	least := 1
	if mode == "multi_hot" || mode == "count" || mode == "tf_idf" {
		least = 2
	}
	_, err := support.Single(in[:1], least)
	return err
}

// of encodes x, int32 or int64, as d. weights, if any, are what each element
// counts. A category that is not from 0 to n-1 is an error of the step.
func (e encoding) of(x, weights *tensor.Tensor, d dtype.DType) *tensor.Tensor {
	if e.mode == "int" {
		if err := support.CheckTable("categories", e.n); err != nil {
			tensor.Fail("Call", "%w", err)
		}
		every := make([]int64, e.n) // Gather checks its indices
		for i := range every {
			every[i] = int64(i)
		}
		return tensor.New(every, e.n).Gather(x).Cast(x.DType())
	}
	if e.mode == "one_hot" && x.Rank() > 1 && x.Dim(-1) == 1 {
		x = x.Squeeze(-1)
	}
	if weights == nil {
		weights = tensor.Ones(d.Accumulator(), x.Shape()...)
	}
	var hot *tensor.Tensor
	if e.drops {
		hot = weights.ScatterAlongAxis(x.AddScalar(1), e.n+1).Slice(-1, 1, e.n+1)
	} else {
		hot = weights.ScatterAlongAxis(x, e.n)
	}
	switch e.mode {
	case "multi_hot":
		hot = hot.Max(-2)
	case "count":
		hot = hot.Sum(-2)
	case "tf_idf":
		hot = hot.Sum(-2)
		hot = hot.Mul(support.Constant(hot.DType(), e.idf, e.n))
	}
	return hot.Cast(d)
}

// CategoryEncoding encodes integer categories as vectors. A category outside 0
// … NumTokens-1 is an error of the step, which names the layer.
//
// OutputMode multi_hot has 1 for every category that occurs in the last axis
// of the input, count the number of occurrences, and one_hot a vector for each
// element. In mode count the input may be a tuple with weights of the same
// shape, which are summed instead.
//
// Shapes: multi_hot, count: [batch … n] → [batch … NumTokens]; one_hot: [batch
// …] → [batch … NumTokens], without a last axis of size 1.
type CategoryEncoding struct {
	NumTokens   int    // number of categories; required
	OutputMode  string `default:"multi_hot"` // or one_hot, count
	Name, DType string

	layers.Base
}

// Config returns the fields Name and DType.
func (c *CategoryEncoding) Config() layers.Config { return layers.Config{Name: c.Name, DType: c.DType} }

// Build checks the fields.
func (c *CategoryEncoding) Build(in ...layers.Shape) error {
	if err := support.Positive("NumTokens", c.NumTokens); err != nil {
		return err
	}
	c.SetAutocast(false) // 16-bit floats do not hold all categories
	return c.CheckInput(in...)
}

// CheckInput requires one input, or two in mode count.
func (c *CategoryEncoding) CheckInput(in ...layers.Shape) error {
	mode := layers.Defaults(*c).OutputMode
	if len(in) == 2 {
		switch {
		case mode != "count":
			return fmt.Errorf("got weights with OutputMode %q, want count for that", mode)
		case !in[0].Equal(in[1]):
			return fmt.Errorf("got categories %v and weights %v, want equal shapes", in[0], in[1])
		}
	} else if len(in) != 1 {
		return fmt.Errorf("got %d inputs, want one tensor, or a tuple of categories and weights", len(in))
	}
	return checkEncoding(mode, in, "multi_hot", "one_hot", "count")
}

// Call computes the layer on x.
func (c *CategoryEncoding) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	d := c.ComputeDType()
	parts := x.Unpack()
	var weights *tensor.Tensor
	if len(parts) > 1 {
		weights = parts[1].Cast(d.Accumulator())
	}
	return encoding{mode: layers.Defaults(*c).OutputMode, n: c.NumTokens}.of(support.Indices(parts[0]), weights, d)
}

// Discretization returns the index of the bin of each number: bin i has the
// numbers from boundary i-1, inclusive, to boundary i, exclusive; NaN is in the
// last one. Numbers are compared in float32 (float64 for float64 inputs). The result is int32 in
// OutputMode int, else that of CategoryEncoding.
//
// Shapes: int: any → the same; else as of CategoryEncoding with NumTokens the
// number of bins.
type Discretization struct {
	BinBoundaries []float64 // in order; default: from Adapt
	NumBins       int       // number of bins for Adapt
	Epsilon       *float64  `default:"0.01"` // error of the shares that Adapt allows
	OutputMode    string    `default:"int"`  // or one_hot, multi_hot, count
	Name, DType   string

	layers.Base
}

// Config returns the fields Name and DType.
func (l *Discretization) Config() layers.Config { return layers.Config{Name: l.Name, DType: l.DType} }

// Build checks the fields.
func (l *Discretization) Build(in ...layers.Shape) error {
	if len(l.BinBoundaries) == 0 {
		return fmt.Errorf("BinBoundaries is empty, want boundaries, or NumBins and Adapt before the layer is used")
	}
	if l.NumBins < 0 {
		return fmt.Errorf("NumBins is %d, want a positive number", l.NumBins)
	}
	if !slices.IsSorted(l.BinBoundaries) || math.IsNaN(l.BinBoundaries[0]) {
		return fmt.Errorf("BinBoundaries is %v, want numbers in order", l.BinBoundaries)
	}
	l.SetAutocast(false)
	return l.CheckInput(in...)
}

// CheckInput requires one input.
func (l *Discretization) CheckInput(in ...layers.Shape) error {
	if _, err := support.Single(in, 0); err != nil {
		return err
	}
	mode := layers.Defaults(*l).OutputMode
	if mode == "int" {
		return nil
	}
	return checkEncoding(mode, in, "int", "one_hot", "multi_hot", "count")
}

// Adapt sets BinBoundaries to the quantiles that divide all batches together
// into NumBins bins of equal counts, up to a share of Epsilon. They are those
// of Keras's adapt for the same batches. Call it before the layer is used.
func (l *Discretization) Adapt(batches ...*tensor.Tensor) error {
	name := layers.SnakeClass(l)
	if l.Built() && l.NumBins >= 2 {
		return fmt.Errorf("layer %s: Adapt: the layer is in use, want Adapt before that", l.Path())
	}
	q, err := l.quantiles()
	if err != nil {
		return fmt.Errorf("layer %s: Adapt: %w", name, err)
	}
	for _, x := range batches {
		data, err := x.Float64s()
		if err != nil {
			return err
		}
		q.add(data, *layers.Defaults(*l).Epsilon)
	}
	if err := q.check(); err != nil {
		return fmt.Errorf("layer %s: Adapt: %w", name, err)
	}
	return l.setBins(q)
}

// quantiles checks the fields for Adapt.
func (l *Discretization) quantiles() (*quantiles, error) {
	if l.NumBins < 2 {
		return nil, fmt.Errorf("NumBins is %d, want at least 2", l.NumBins)
	}
	if epsilon := *layers.Defaults(*l).Epsilon; !(epsilon > 0 && epsilon < 1) {
		return nil, fmt.Errorf("Epsilon is %v, want a number between 0 and 1", epsilon)
	}
	return &quantiles{}, nil
}

// setBins sets what Adapt has learned.
func (l *Discretization) setBins(q *quantiles) error {
	l.BinBoundaries = q.boundaries(l.NumBins)
	return nil
}

// Call computes the layer on x.
func (l *Discretization) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	if !x.DType().IsFloat() {
		x = x.Cast(dtype.Float32)
	}
	x = x.Cast(dtype.Promote(x.DType(), dtype.Float32))
	boundaries := support.Constant(x.DType(), l.BinBoundaries, len(l.BinBoundaries))
	below := x.ExpandDims(-1).Less(boundaries) // false for NaN, which is in the last bin
	bins := below.Not().Cast(dtype.Int32).Sum(-1)
	mode := layers.Defaults(*l).OutputMode
	if mode == "int" {
		return bins
	}
	return encoding{mode: mode, n: len(l.BinBoundaries) + 1}.of(bins, nil, l.ComputeDType())
}
