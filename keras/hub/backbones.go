package hub

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// BertBackbone has the arguments of KerasHub's class of this name.
type BertBackbone struct {
	VocabularySize    int
	NumLayers         int
	NumHeads          int
	HiddenDim         int
	IntermediateDim   int
	Dropout           *float64 `default:"0.1"`
	MaxSequenceLength int      `default:"512"` // longest sequence
	NumSegments       int      `default:"2"`

	// KerasHub's activation is the approximate gelu, and that of bert-base-uncased
	// the exact one.
	Activation       string   `default:"gelu(approximate=True)"`
	LayerNormEpsilon *float64 `default:"1e-12"`
	Remat            bool     // compute each layer again in the backward pass instead of keeping its values
}

// bertInit is the initializer of the first weights.
const bertInit = "truncated_normal(stddev=0.02)"

// sequence returns an int32 Input of sequences of any length.
func sequence(name string) *keras.Tensor {
	return keras.Named(name, keras.InputOf(keras.Int32, tensor.Unknown))
}

// Model makes the encoder with random weights.
//
// Shapes: (token_ids, segment_ids, padding_mask), int32 [batch steps] each →
// (sequence_output [batch steps HiddenDim], pooled_output [batch HiddenDim]).
// padding_mask is 0 for steps that no step attends to.
func (b BertBackbone) Model() (*keras.Model, error) {
	tokens, segments, padding := sequence("token_ids"), sequence("segment_ids"), sequence("padding_mask")
	hidden, pooled := b.Encode(tokens, segments, padding)
	return keras.NewModel(keras.Tuple(tokens, segments, padding), keras.Tuple(hidden[len(hidden)-1], pooled))
}

// Encode applies the encoder to Inputs of a model that is being made. hidden
// lists the results of the embeddings and of each layer.
func (b BertBackbone) Encode(tokens, segments, padding *keras.Tensor) (hidden []*keras.Tensor, pooled *keras.Tensor) {
	b = layers.Defaults(b)
	hidden, _ = b.encode(tokens, segments, padding)
	first := keras.Apply(&FirstToken{Name: "cls_token"}, hidden[b.NumLayers])
	pooled = keras.Apply(&layers.Dense{Name: "pooled_dense", Units: b.HiddenDim, Activation: "tanh", KernelInitializer: bertInit}, first)
	return hidden, pooled
}

// encode is Encode without the pooled output, and returns the table of the tokens.
func (b BertBackbone) encode(tokens, segments, padding *keras.Tensor) (hidden []*keras.Tensor, table *layers.ReversibleEmbedding) {
	table = &layers.ReversibleEmbedding{Name: "token_embedding", InputDim: b.VocabularySize, OutputDim: b.HiddenDim, EmbeddingsInitializer: bertInit}
	x := keras.Apply(table, tokens)
	positions := keras.Apply(&PositionEmbedding{Name: "position_embedding", SequenceLength: b.MaxSequenceLength, Initializer: bertInit}, x)
	kinds := keras.Apply(&layers.Embedding{Name: "segment_embedding", InputDim: b.NumSegments, OutputDim: b.HiddenDim, EmbeddingsInitializer: bertInit}, segments)
	x = keras.Apply(&layers.Add{Name: "embeddings_add"}, x, positions, kinds)
	return encoder(x, padding, b), table
}

// encoder applies what BERT and DistilBERT do with their embeddings.
func encoder(x, padding *keras.Tensor, b BertBackbone) (hidden []*keras.Tensor) {
	x = keras.Apply(&layers.LayerNormalization{Name: "embeddings_layer_norm", Epsilon: b.LayerNormEpsilon}, x)
	x = keras.Apply(&layers.Dropout{Name: "embeddings_dropout", Rate: *b.Dropout}, x)
	hidden = append(hidden, x)
	for i := range b.NumLayers {
		layer := layers.Layer(&TransformerEncoder{Name: fmt.Sprintf("transformer_layer_%d", i), IntermediateDim: b.IntermediateDim, NumHeads: b.NumHeads,
			Dropout: *b.Dropout, Activation: b.Activation, LayerNormEpsilon: b.LayerNormEpsilon, KernelInitializer: bertInit})
		if b.Remat {
			layer = layers.Remat(layer)
		}
		x = keras.Apply(layer, x, padding)
		hidden = append(hidden, x)
	}
	return hidden
}

// DistilBertBackbone has the arguments of KerasHub's class of this name. Its
// activation is the exact gelu.
type DistilBertBackbone struct {
	VocabularySize    int
	NumLayers         int
	NumHeads          int
	HiddenDim         int
	IntermediateDim   int
	Dropout           *float64 `default:"0.1"`
	MaxSequenceLength int      `default:"512"` // longest sequence
	Activation        string   `default:"gelu"`
	LayerNormEpsilon  *float64 `default:"1e-12"`
	Remat             bool     // compute each layer again in the backward pass instead of keeping its values
}

// Model makes the encoder with random weights.
//
// Shapes: (token_ids, padding_mask), int32 [batch steps] each → [batch steps
// HiddenDim].
func (d DistilBertBackbone) Model() (*keras.Model, error) {
	tokens, padding := sequence("token_ids"), sequence("padding_mask")
	hidden := d.Encode(tokens, padding)
	return keras.NewModel(keras.Tuple(tokens, padding), hidden[len(hidden)-1])
}

// Encode applies the encoder to Inputs of a model that is being made. It lists
// the results of the embeddings and of each layer.
func (d DistilBertBackbone) Encode(tokens, padding *keras.Tensor) (hidden []*keras.Tensor) {
	hidden, _ = layers.Defaults(d).encode(tokens, padding)
	return hidden
}

// encode is Encode, and returns the table of the tokens.
func (d DistilBertBackbone) encode(tokens, padding *keras.Tensor) (hidden []*keras.Tensor, table *layers.ReversibleEmbedding) {
	both := &TokenAndPositionEmbedding{Name: "token_and_position_embedding", VocabularySize: d.VocabularySize, SequenceLength: d.MaxSequenceLength,
		EmbeddingDim: d.HiddenDim, EmbeddingsInitializer: bertInit}
	x := keras.Apply(both, tokens)
	hidden = encoder(x, padding, BertBackbone{NumLayers: d.NumLayers, NumHeads: d.NumHeads, HiddenDim: d.HiddenDim, IntermediateDim: d.IntermediateDim,
		Dropout: d.Dropout, Activation: d.Activation, LayerNormEpsilon: d.LayerNormEpsilon, Remat: d.Remat})
	return hidden, both.tokens
}

// GPT2Backbone has the arguments of KerasHub's class of this name.
type GPT2Backbone struct {
	VocabularySize    int
	NumLayers         int
	NumHeads          int
	HiddenDim         int
	IntermediateDim   int
	Dropout           *float64 `default:"0.1"`
	MaxSequenceLength int      `default:"1024"` // longest sequence
	Activation        string   `default:"gelu(approximate=True)"`
	LayerNormEpsilon  *float64 `default:"1e-05"`
	Remat             bool     // compute each layer again in the backward pass instead of keeping its values
}

// gpt2 has the layers of a GPT-2, for generation.
type gpt2 struct {
	config    GPT2Backbone
	tokens    *layers.ReversibleEmbedding
	positions *PositionEmbedding
	layers    []*TransformerDecoder
	norm      *layers.LayerNormalization
}

// Model makes the network with random weights. Logits are products with the
// table of the tokens.
//
// Shapes: (token_ids, padding_mask), int32 [batch steps] each →
// (sequence_output [batch steps HiddenDim], logits [batch steps
// VocabularySize]).
func (g GPT2Backbone) Model() (*keras.Model, error) {
	m, _, err := g.model()
	return m, err
}

func (g GPT2Backbone) model() (*keras.Model, *gpt2, error) {
	g = layers.Defaults(g)
	const init = "random_normal(stddev=0.02)"
	n := &gpt2{
		config:    g,
		tokens:    &layers.ReversibleEmbedding{Name: "token_embedding", InputDim: g.VocabularySize, OutputDim: g.HiddenDim, EmbeddingsInitializer: "random_normal(stddev=0.01)"},
		positions: &PositionEmbedding{Name: "position_embedding", SequenceLength: g.MaxSequenceLength, Initializer: init},
		norm:      &layers.LayerNormalization{Name: "layer_norm", Epsilon: g.LayerNormEpsilon},
	}
	tokens, padding := sequence("token_ids"), sequence("padding_mask")
	x := keras.Apply(n.tokens, tokens)
	x = keras.Apply(&layers.Add{Name: "embeddings_add"}, x, keras.Apply(n.positions, x))
	x = keras.Apply(&layers.Dropout{Name: "embeddings_dropout", Rate: *g.Dropout}, x)
	for i := range g.NumLayers {
		d := &TransformerDecoder{Name: fmt.Sprintf("transformer_layer_%d", i), IntermediateDim: g.IntermediateDim, NumHeads: g.NumHeads,
			Dropout: *g.Dropout, Activation: g.Activation, LayerNormEpsilon: g.LayerNormEpsilon, KernelInitializer: init, NormalizeFirst: true}
		n.layers = append(n.layers, d)
		layer := layers.Layer(d)
		if g.Remat {
			layer = layers.Remat(layer)
		}
		x = keras.Apply(layer, x, padding)
	}
	x = keras.Apply(n.norm, x)
	logits := keras.Apply(layers.With(n.tokens, layers.Args{Reverse: true}), x)
	m, err := keras.NewModel(keras.Tuple(tokens, padding), keras.Tuple(x, logits))
	return m, n, err
}

// FirstToken returns the first step of sequences.
//
// Shapes: [batch steps features] → [batch features].
type FirstToken struct {
	Name, DType string
	layers.Base
}

// Config returns the fields Name and DType.
func (f *FirstToken) Config() layers.Config { return layers.Config{Name: f.Name, DType: f.DType} }

// Build checks the input.
func (f *FirstToken) Build(in ...layers.Shape) error {
	if len(in) != 1 || len(in[0]) != 3 {
		return fmt.Errorf("got inputs %v, want one [batch steps features]", in)
	}
	return nil
}

// Call computes the layer on x.
func (f *FirstToken) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	if x.Dim(1) < 0 {
		return x.Mean(1) // of a model that is being built
	}
	return x.Slice(1, 0, 1).Squeeze(1)
}
