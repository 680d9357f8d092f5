package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// ReversibleEmbedding is an Embedding that can also be called in reverse, to
// predict the indices that it embeds (Press and Wolf 2016):
//
//	hidden := keras.Apply(embedding, tokens)
//	logits := keras.Apply(layers.With(embedding, layers.Args{Reverse: true}), hidden)
//
// In reverse it multiplies by the transposed table, or by another matrix
// without TieWeights. Products of 16-bit operands are summed in float32 and
// rounded once.
//
// Shapes: as of Embedding; in reverse [batch … OutputDim] → [batch …
// InputDim]. Weights: embeddings [InputDim OutputDim]; without TieWeights also
// reverse_embeddings [OutputDim InputDim].
type ReversibleEmbedding struct {
	InputDim              int    // number of rows; required
	OutputDim             int    // size of a row; required
	TieWeights            *bool  `default:"true"`    // whether both directions have one matrix
	EmbeddingsInitializer string `default:"uniform"` // between ±0.05
	EmbeddingsRegularizer string
	EmbeddingsConstraint  string
	ActivityRegularizer   string
	MaskZero              bool    // whether index 0 is padding: the mask is false there
	ReverseDtype          string  // float type that the way back computes in and its result has; default: the compute type
	LogitSoftCap          float64 // limits logits to ±LogitSoftCap: tanh(logits/LogitSoftCap)·LogitSoftCap; default: no limit
	Name, DType           string

	Base
	SetsMask
	embeddings, reverse *Weight
	reverseType         dtype.DType
}

// Config returns the fields Name and DType.
func (e *ReversibleEmbedding) Config() Config { return Config{e.Name, e.DType} }

// TakesArgs implements ArgsTaker.
func (e *ReversibleEmbedding) TakesArgs() []string { return []string{"Reverse"} }

// Build makes the table.
func (e *ReversibleEmbedding) Build(in ...Shape) (err error) {
	c := Defaults(*e)
	if !(c.LogitSoftCap >= 0) {
		return fmt.Errorf("LogitSoftCap is %v, want a positive number", c.LogitSoftCap)
	}
	e.reverseType = e.ComputeDType()
	if c.ReverseDtype != "" {
		e.reverseType, err = dtype.Parse(c.ReverseDtype)
		if err != nil || !e.reverseType.IsFloat() {
			return fmt.Errorf("ReverseDtype is %q, want a float type", c.ReverseDtype)
		}
	}
	if err := e.CheckInput(in...); err != nil {
		return err
	}
	e.embeddings, err = e.addTable(c.InputDim, c.OutputDim, c.EmbeddingsInitializer, c.EmbeddingsRegularizer, c.EmbeddingsConstraint, c.ActivityRegularizer)
	if err != nil || *c.TieWeights {
		return err
	}
	e.reverse, err = e.AddWeight("reverse_embeddings", Shape{c.OutputDim, c.InputDim}, c.EmbeddingsInitializer)
	return err
}

// CheckInput requires one input.
func (e *ReversibleEmbedding) CheckInput(in ...Shape) error {
	_, err := support.Single(in, 1)
	return err
}

// Call computes the layer on x.
func (e *ReversibleEmbedding) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	if !p.Reverse {
		return lookUp(x, e.embeddings, e.ComputeDType(), e.MaskZero)
	}
	support.CheckFloats(x)
	if x.Rank() < 2 || x.Dim(-1) != e.OutputDim {
		tensor.Fail("Call", "got %v in reverse, want vectors of %d numbers", x.Type(), e.OutputDim)
	}
	d := e.reverseType
	y := support.OverLast(x.Cast(d), e.InputDim, func(x *tensor.Tensor) *tensor.Tensor {
		if e.reverse != nil {
			return x.MatMul(e.reverse.Variable.Value().Cast(d))
		}
		return x.MatMulT(e.embeddings.Variable.Value().Cast(d), false, true)
	})
	if e.LogitSoftCap > 0 {
		y = y.Cast(d.Accumulator()).DivScalar(e.LogitSoftCap).Tanh().MulScalar(e.LogitSoftCap).Cast(d)
	}
	return y
}
