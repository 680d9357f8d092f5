package layers

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Embedding returns rows of a table by index. Indices are integers from 0 to
// InputDim-1, in an integer type or a float type, which is cast to int32.
// Another index is an error of the step that names the layer. Rows are rounded
// once, from the variable type to the compute type. SGD without momentum and
// Adagrad update only the rows that were read; see package optimizers.
//
// Shapes: [batch …] → [batch … OutputDim]. Weight: embeddings [InputDim
// OutputDim]. Quantized to int8 (see [Quantize]) embeddings is int8, and there is
// embeddings_scale [InputDim]. With MaskZero the result has a mask that hides index 0.
type Embedding struct {
	InputDim              int    // number of rows; required
	OutputDim             int    // size of a row; required
	EmbeddingsInitializer string `default:"uniform"` // between ±0.05
	EmbeddingsRegularizer string
	EmbeddingsConstraint  string
	ActivityRegularizer   string
	MaskZero              bool // whether index 0 is padding: the mask is false there
	Name, DType           string

	Base
	SetsMask
	embeddings *Weight
	quantized  *quantized // nil: not its policy
}

// Config returns the fields Name and DType.
func (e *Embedding) Config() Config { return Config{e.Name, e.DType} }

// Build makes the table.
func (e *Embedding) Build(in ...Shape) (err error) {
	c := Defaults(*e)
	if err := e.CheckInput(in...); err != nil {
		return err
	}
	if e.policy.Int8 {
		e.embeddings, err = e.addTable(c.InputDim, c.OutputDim, "zeros", "", "", c.ActivityRegularizer, Int8())
	} else {
		e.embeddings, err = e.addTable(c.InputDim, c.OutputDim, c.EmbeddingsInitializer, c.EmbeddingsRegularizer, c.EmbeddingsConstraint, c.ActivityRegularizer)
	}
	if err == nil {
		e.quantized, err = e.addQuantized(e.embeddings, Shape{c.InputDim})
	}
	return err
}

// addTable makes the weight of an embedding with these fields.
func (b *Base) addTable(inputDim, outputDim int, initializer, regularizer, constraint, activityRegularizer string, more ...WeightOption) (*Weight, error) {
	if err := support.Positive("InputDim", inputDim); err != nil {
		return nil, err
	}
	if err := support.Positive("OutputDim", outputDim); err != nil {
		return nil, err
	}
	if err := b.SetActivityRegularizer(activityRegularizer); err != nil {
		return nil, err
	}
	b.SetAutocast(false) // 16-bit floats do not hold all indices
	return b.AddWeight("embeddings", Shape{inputDim, outputDim}, initializer, append(more, Regularizer(regularizer), Constraint(constraint))...)
}

// CheckInput requires one input.
func (e *Embedding) CheckInput(in ...Shape) error {
	_, err := support.Single(in, 1)
	return err
}

// Call computes the layer on x.
func (e *Embedding) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	if e.quantized == nil {
		return lookUp(x, e.embeddings, e.ComputeDType(), e.MaskZero)
	}
	x = support.Indices(x)
	rows := lookUp(x, e.embeddings, e.ComputeDType(), e.MaskZero)
	return rows.Div(e.quantized.scale.Value().Gather(x).ExpandDims(-1)).WithMask(rows.Mask())
}

// lookUp reads rows of a table as d. If maskZero, the result has a mask that is false
// for indices of 0.
func lookUp(x *tensor.Tensor, table *Weight, d dtype.DType, maskZero bool) *tensor.Tensor {
	x = support.Indices(x)
	y := table.Variable.Value().Gather(x).Cast(d)
	if !maskZero {
		return y
	}
	return y.WithMask(x.NotEqual(tensor.Scalar(x.DType(), 0)))
}

// Masking makes a mask that is false at the places, on all axes but the last,
// where every feature is MaskValue, and sets what is there to 0.
//
// Shapes: [batch … features] → the same; mask [batch …].
type Masking struct {
	MaskValue   float64
	Name, DType string

	Base
	SetsMask
}

// Config returns the fields Name and DType.
func (m *Masking) Config() Config { return Config{m.Name, m.DType} }

// Build checks the input.
func (m *Masking) Build(in ...Shape) error { return m.CheckInput(in...) }

// CheckInput requires at least two axes.
func (m *Masking) CheckInput(in ...Shape) error {
	_, err := support.Single(in, 2)
	return err
}

// Call computes the layer on x. MaskValue is rounded to the compute type as x
// is.
func (m *Masking) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	keep := x.NotEqual(tensor.Scalar(x.DType(), m.MaskValue)).Max(-1)
	zero := tensor.Scalar(x.DType(), 0)
	return tensor.Where(keep.ExpandDims(-1), x, zero).WithMask(keep)
}
