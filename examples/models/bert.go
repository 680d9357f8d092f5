package models

import (
	"cmp"
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// BERT is the encoder of Devlin et al. 2019.
type BERT struct {
	Vocabulary   int // tokens; 0 is padding, which no token attends to
	Positions    int // longest sequence
	Types        int // kinds of segments
	Hidden       int
	Layers       int
	Heads        int
	Intermediate int
	Dropout      float64
	Stddev       float64 // of first weights; default: 0.02
	// Remat computes each layer again in the backward pass instead of keeping
	// what is inside (gradient checkpointing). Weights have other paths then.
	Remat bool
}

// BERTBase is bert-base-uncased, 109,482,240 weights, and BERTSmall the
// bert-small of Turc et al. 2019.
var (
	BERTBase  = BERT{30522, 512, 2, 768, 12, 12, 3072, 0.1, 0.02, false}
	BERTSmall = BERT{30522, 512, 2, 512, 4, 8, 2048, 0.1, 0.02, false}
)

// Encode computes tokens and types, both int32 [batch steps] and Inputs of the
// model that is being made. hidden lists what the embeddings and each layer
// put out, [batch steps Hidden], and pooled is tanh of a Dense layer on the
// first step, [batch Hidden].
func (b BERT) Encode(tokens, types *keras.Tensor) (hidden []*keras.Tensor, pooled *keras.Tensor, err error) {
	initializer := fmt.Sprintf("truncated_normal(stddev=%v)", cmp.Or(b.Stddev, 0.02))
	dense := func(units int, activation string, x *keras.Tensor) *keras.Tensor {
		return keras.Apply(&layers.Dense{Units: units, Activation: activation, KernelInitializer: initializer}, x)
	}
	dropout := func(x *keras.Tensor) *keras.Tensor { return keras.Apply(&layers.Dropout{Rate: b.Dropout}, x) }
	normalize := func(x ...*keras.Tensor) *keras.Tensor {
		sum := x[0]
		if len(x) > 1 {
			sum = keras.Apply(&layers.Add{}, x...)
		}
		return keras.Apply(&layers.LayerNormalization{Epsilon: new(1e-12)}, sum)
	}
	x := keras.Apply(&layers.Embedding{InputDim: b.Vocabulary, OutputDim: b.Hidden, EmbeddingsInitializer: initializer, MaskZero: true}, tokens)
	x = keras.Apply(&PositionEmbedding{Length: b.Positions, Initializer: initializer}, x)
	segment := keras.Apply(&layers.Embedding{InputDim: b.Types, OutputDim: b.Hidden, EmbeddingsInitializer: initializer}, types)
	x = dropout(normalize(keras.Apply(&AddTo{}, x, segment)))
	hidden = append(hidden, x)
	layer := func(x *keras.Tensor) *keras.Tensor {
		seen := keras.Apply(&layers.MultiHeadAttention{NumHeads: b.Heads, KeyDim: b.Hidden / b.Heads, Dropout: b.Dropout, KernelInitializer: initializer}, x, x)
		x = normalize(x, dropout(seen))
		inner := dense(b.Intermediate, "gelu", x)
		return normalize(x, dropout(dense(b.Hidden, "", inner)))
	}
	for range b.Layers {
		if b.Remat {
			in := keras.InputOf(x.DType(), x.Shape()[1:]...)
			m, err := keras.NewModel(in, layer(in))
			if err != nil {
				return nil, nil, err
			}
			x = keras.Apply(layers.Remat(m.Layer()), x)
		} else {
			x = layer(x)
		}
		hidden = append(hidden, x)
	}
	first := keras.Apply(&FirstStep{}, x)
	return hidden, dense(b.Hidden, "tanh", first), nil
}

// Inputs makes the Inputs of Encode for sequences of the given number of steps.
func (b BERT) Inputs(steps int) (tokens, types *keras.Tensor) {
	return keras.InputOf(keras.Int32, steps), keras.InputOf(keras.Int32, steps)
}

// Model is the encoder alone.
//
// Shapes: (tokens [batch steps], types [batch steps]) → ([batch steps Hidden],
// [batch Hidden]).
func (b BERT) Model(steps int) (*keras.Model, error) {
	tokens, types := b.Inputs(steps)
	hidden, pooled, err := b.Encode(tokens, types)
	if err != nil {
		return nil, err
	}
	return keras.NewModel(keras.Tuple(tokens, types), keras.Tuple(hidden[b.Layers], pooled))
}

// Span is the encoder with a head that says where an answer starts and where
// it ends: a Dense layer on the last two layers together.
//
// Shapes: (tokens [batch steps], types [batch steps]) → (start [batch steps],
// end [batch steps]), logits over the steps.
func (b BERT) Span(steps int) (*keras.Model, error) {
	if b.Layers < 2 {
		return nil, fmt.Errorf("BERT: Layers is %d, want at least 2 for a Span", b.Layers)
	}
	tokens, types := b.Inputs(steps)
	hidden, _, err := b.Encode(tokens, types)
	if err != nil {
		return nil, err
	}
	start, end, err := Ends(hidden, b.Dropout)
	if err != nil {
		return nil, err
	}
	return keras.NewModel(keras.Tuple(tokens, types), keras.Tuple(start, end))
}

// Ends is the head of Span on the results of an encoder's layers, of which there
// must be at least two.
func Ends(hidden []*keras.Tensor, dropout float64) (start, end *keras.Tensor, err error) {
	both := keras.Apply(&layers.Concatenate{}, hidden[len(hidden)-1], hidden[len(hidden)-2])
	both = keras.Apply(&layers.Dropout{Rate: dropout}, both)
	ends := keras.Apply(&layers.Dense{Units: 2, KernelInitializer: "random_normal(stddev=0.02)"}, both)
	ends = keras.Apply(&Unstack{}, ends)
	if ends.Err() != nil {
		return nil, nil, ends.Err()
	}
	// Layers that do nothing but name the outputs.
	start = keras.Apply(&layers.Activation{Activation: "linear", Name: "start"}, ends.Unpack()[0])
	end = keras.Apply(&layers.Activation{Activation: "linear", Name: "end"}, ends.Unpack()[1])
	return start, end, nil
}

// MACs is how many multiplications the layers need for a sequence of steps.
func (b BERT) MACs(steps int) int {
	h := b.Hidden
	return b.Layers * steps * (4*h*h + 2*h*b.Intermediate + 2*steps*h)
}

// PositionEmbedding adds to each step a learned vector of its position.
//
// Shapes: [batch steps features] → the same. Weight: embeddings
// [Length features].
type PositionEmbedding struct {
	Length      int    // longest sequence; required
	Initializer string `default:"uniform"`
	Name, DType string

	layers.Base
	layers.PassesMask
	table *layers.Weight
}

// Config returns the fields Name and DType.
func (p *PositionEmbedding) Config() layers.Config {
	return layers.Config{Name: p.Name, DType: p.DType}
}

// Build makes the table.
func (p *PositionEmbedding) Build(in ...layers.Shape) (err error) {
	if len(in) != 1 || len(in[0]) != 3 {
		return fmt.Errorf("got inputs %v, want one [batch steps features]", in)
	}
	if in[0][1] > p.Length {
		return fmt.Errorf("got %d steps, want at most Length, %d", in[0][1], p.Length)
	}
	p.table, err = p.AddWeight("embeddings", layers.Shape{p.Length, in[0][2]}, layers.Defaults(*p).Initializer)
	return err
}

// Call computes the layer on x.
func (p *PositionEmbedding) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	return x.Add(p.table.Value().Slice(0, 0, x.Dim(1)))
}

// AddTo adds a second input to the first, whose mask is that of the sum. (Add
// drops the mask when an input has none, as it does in Keras.)
//
// Shapes: (x, y of the same shape) → the same.
type AddTo struct {
	Name, DType string

	layers.Base
	layers.SetsMask
}

// Config returns the fields Name and DType.
func (a *AddTo) Config() layers.Config { return layers.Config{Name: a.Name, DType: a.DType} }

// Build checks the inputs.
func (a *AddTo) Build(in ...layers.Shape) error {
	if len(in) != 2 || len(in[0]) != len(in[1]) {
		return fmt.Errorf("got inputs %v, want two of one shape", in)
	}
	return nil
}

// Call computes the layer on a tuple.
func (a *AddTo) Call(_ layers.Pass, in *keras.Tensor) *keras.Tensor {
	x, y := in.Unpack()[0], in.Unpack()[1]
	return x.Add(y).WithMask(x.Mask())
}

// FirstStep keeps the first step of sequences.
//
// Shapes: [batch steps features] → [batch features].
type FirstStep struct {
	Name, DType string
	layers.Base
}

// Config returns the fields Name and DType.
func (f *FirstStep) Config() layers.Config { return layers.Config{Name: f.Name, DType: f.DType} }

// Build checks the input.
func (f *FirstStep) Build(in ...layers.Shape) error {
	if len(in) != 1 || len(in[0]) != 3 {
		return fmt.Errorf("got inputs %v, want one [batch steps features]", in)
	}
	return nil
}

// Call computes the layer on x.
func (f *FirstStep) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	return x.Slice(1, 0, 1).Squeeze(1)
}

// Unstack takes the last axis apart into a tuple.
//
// Shapes: [batch … n] → n times [batch …].
type Unstack struct {
	Name, DType string
	layers.Base
}

// Config returns the fields Name and DType.
func (u *Unstack) Config() layers.Config { return layers.Config{Name: u.Name, DType: u.DType} }

// Build checks the input.
func (u *Unstack) Build(in ...layers.Shape) error {
	if len(in) != 1 || len(in[0]) < 2 || in[0][len(in[0])-1] < 1 {
		return fmt.Errorf("got inputs %v, want one with a last axis of known size", in)
	}
	return nil
}

// Call computes the layer on x.
func (u *Unstack) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	parts := make([]*keras.Tensor, x.Dim(-1))
	for i := range parts {
		parts[i] = x.Slice(-1, i, i+1).Squeeze(-1)
	}
	return keras.Tuple(parts...)
}
