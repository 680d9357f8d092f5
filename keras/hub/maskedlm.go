package hub

import (
	"errors"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// MaskedLMHead predicts the tokens at some positions of sequences (KerasHub's layer of
// this name; Devlin et al. 2018): a Dense layer, a layer normalization, and products with
// the table of TokenEmbedding, plus a bias.
//
// Shapes: (sequence [batch steps features], mask_positions int32 or int64 [batch masks])
// → logits [batch masks vocabulary]; without mask_positions [batch steps vocabulary]. A
// position outside of the sequence is an error of the run. Weights:
// intermediate_dense/kernel [features features] and bias, intermediate_layer_norm/gamma
// and beta, output_bias [vocabulary]; the table belongs to TokenEmbedding.
type MaskedLMHead struct {
	TokenEmbedding         *layers.ReversibleEmbedding // required; of the same model
	IntermediateActivation string                      `default:"relu"`
	Activation             string                      `default:"linear"`
	LayerNormEpsilon       *float64                    `default:"1e-05"`
	KernelInitializer      string                      `default:"glorot_uniform"`
	BiasInitializer        string                      `default:"zeros"`
	Name, DType            string

	layers.Base
	dense, norm, activation layers.Layer
	bias                    *layers.Weight
}

// Config returns the fields Name and DType.
func (h *MaskedLMHead) Config() layers.Config { return layers.Config{Name: h.Name, DType: h.DType} }

// Build makes the layers within and the bias.
func (h *MaskedLMHead) Build(in ...layers.Shape) (err error) {
	c := layers.Defaults(*h)
	if err := h.CheckInput(in...); err != nil {
		return err
	}
	if c.TokenEmbedding == nil {
		return errors.New("TokenEmbedding is nil, want the layer whose table the logits are products with")
	}
	n := in[0][2]
	if n != c.TokenEmbedding.OutputDim {
		return fmt.Errorf("got %d features, want those of TokenEmbedding, %d", n, c.TokenEmbedding.OutputDim)
	}
	h.dense = &layers.Dense{Units: n, Activation: c.IntermediateActivation, KernelInitializer: c.KernelInitializer, BiasInitializer: c.BiasInitializer}
	h.norm = &layers.LayerNormalization{Epsilon: c.LayerNormEpsilon}
	h.activation = &layers.Activation{Activation: c.Activation}
	h.AddLayer("intermediate_dense", h.dense)
	h.AddLayer("intermediate_layer_norm", h.norm)
	h.AddLayer("activation", h.activation)
	h.bias, err = h.AddWeight("output_bias", layers.Shape{c.TokenEmbedding.InputDim}, c.BiasInitializer)
	return err
}

// CheckInput requires a sequence, and perhaps positions.
func (h *MaskedLMHead) CheckInput(in ...layers.Shape) error {
	if len(in) < 1 || len(in) > 2 || len(in[0]) != 3 || len(in) == 2 && len(in[1]) != 2 {
		return fmt.Errorf("got inputs %v, want [batch steps features], and [batch masks] for positions", in)
	}
	return nil
}

// Call computes the layer on x.
func (h *MaskedLMHead) Call(p layers.Pass, in *keras.Tensor) *keras.Tensor {
	all := in.Unpack()
	x := all[0]
	if len(all) == 2 {
		x = stepsAt(x, all[1])
	}
	x = layers.Apply(h.norm, p, layers.Apply(h.dense, p, x))
	logits := layers.Apply(layers.With(h.TokenEmbedding, layers.Args{Reverse: true}), p, x)
	return layers.Apply(h.activation, p, logits.Add(h.bias.Value().Cast(logits.DType())))
}

// stepsAt returns the steps of x at positions, [batch masks features].
func stepsAt(x, positions *keras.Tensor) *keras.Tensor {
	if d := positions.DType(); d != dtype.Int32 && d != dtype.Int64 {
		tensor.Fail("Call", "got positions %v, want int32 or int64", positions.Type())
	}
	s, n := x.Shape(), positions.Dim(1)
	if x.Symbolic() || positions.Symbolic() {
		return tensor.Placeholder(x.DType(), s[0], n, s[2])
	}
	// A position outside of its sequence would be inside of another one.
	steps := tensor.Scalar(positions.DType(), float64(s[1]))
	inside := positions.Less(steps).And(positions.GreaterEqual(tensor.Scalar(positions.DType(), 0)))
	first := tensor.Iota(positions.DType(), s[0]).MulScalar(float64(s[1])).ExpandDims(1)
	rows := tensor.Where(inside, positions.Add(first), tensor.Scalar(positions.DType(), -1))
	return x.Reshape(s[0]*s[1], s[2]).Gather(rows.Reshape(s[0]*n)).Reshape(s[0], n, s[2])
}

// MaskedLM makes the encoder with a [MaskedLMHead] and random weights (KerasHub:
// BertMaskedLM, without its preprocessor).
//
// Shapes: (token_ids, segment_ids, padding_mask) int32 [batch steps] each, mask_positions
// int32 [batch masks] → logits [batch masks VocabularySize].
func (b BertBackbone) MaskedLM() (*keras.Model, error) {
	b = layers.Defaults(b)
	tokens, segments, padding, positions := sequence("token_ids"), sequence("segment_ids"), sequence("padding_mask"), sequence("mask_positions")
	hidden, table := b.encode(tokens, segments, padding)
	logits := keras.Apply(&MaskedLMHead{Name: "mlm_head", TokenEmbedding: table, IntermediateActivation: b.Activation, LayerNormEpsilon: b.LayerNormEpsilon,
		KernelInitializer: bertInit}, hidden[b.NumLayers], positions)
	return keras.NewModel(keras.Tuple(tokens, segments, padding, positions), logits)
}

// MaskedLM makes the encoder with a [MaskedLMHead] and random weights (KerasHub:
// DistilBertMaskedLM, without its preprocessor).
//
// Shapes: (token_ids, padding_mask) int32 [batch steps] each, mask_positions int32 [batch
// masks] → logits [batch masks VocabularySize].
func (d DistilBertBackbone) MaskedLM() (*keras.Model, error) {
	d = layers.Defaults(d)
	tokens, padding, positions := sequence("token_ids"), sequence("padding_mask"), sequence("mask_positions")
	hidden, table := d.encode(tokens, padding)
	logits := keras.Apply(&MaskedLMHead{Name: "mlm_head", TokenEmbedding: table, IntermediateActivation: d.Activation, LayerNormEpsilon: d.LayerNormEpsilon,
		KernelInitializer: bertInit}, hidden[d.NumLayers], positions)
	return keras.NewModel(keras.Tuple(tokens, padding, positions), logits)
}

// BERTMaskedLM makes the model of [BertBackbone.MaskedLM] with the weights of a directory
// in Hugging Face's layout, such as those of transformers' BertForMaskedLM; see [BERT].
func BERTMaskedLM(dir string) (*Pretrained, error) {
	b, err := BertConfig(dir)
	if err != nil {
		return nil, err
	}
	if err := tied(dir, "bert"); err != nil {
		return nil, err
	}
	m, err := b.MaskedLM()
	if err != nil {
		return nil, err
	}
	return load(dir, m, false)
}

// DistilBERTMaskedLM is [BERTMaskedLM] for DistilBertForMaskedLM.
func DistilBERTMaskedLM(dir string) (*Pretrained, error) {
	d, err := DistilBertConfig(dir)
	if err != nil {
		return nil, err
	}
	if err := tied(dir, "distilbert"); err != nil {
		return nil, err
	}
	m, err := d.MaskedLM()
	if err != nil {
		return nil, err
	}
	return load(dir, m, false)
}

// tied is an error for a checkpoint whose logits have a matrix of their own.
func tied(dir, modelType string) error {
	s, err := readConfig(dir, modelType)
	if err == nil && s.TieWeights != nil && !*s.TieWeights {
		err = errors.New("hub: config.json: got tie_word_embeddings false, want logits from the table of the tokens")
	}
	return err
}
