// Package hub makes models from pretrained checkpoints: [BERT], [DistilBERT],
// [GPT2], [BERTMaskedLM] and [DistilBERTMaskedLM] from a directory in Hugging Face's layout, with config.json and
// model.safetensors. Layers and arguments have KerasHub's names. Package
// keras/hub/tokenizer reads the tokenizer of the same directory.
//
// Nothing is downloaded and nothing in a directory is run.
package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/keras/saving"
)

// settings are the fields of a config.json that change what a model computes.
// Checkpoints of DistilBERT and GPT-2 have other names for some.
type settings struct {
	ModelType string `json:"model_type"`

	VocabSize int `json:"vocab_size"`

	HiddenSize int `json:"hidden_size"`
	Dim        int `json:"dim"`
	NEmbd      int `json:"n_embd"`

	NumHiddenLayers int `json:"num_hidden_layers"`
	NLayers         int `json:"n_layers"`
	NLayer          int `json:"n_layer"`

	NumAttentionHeads int `json:"num_attention_heads"`
	NHeads            int `json:"n_heads"`
	NHead             int `json:"n_head"`

	IntermediateSize int  `json:"intermediate_size"`
	HiddenDim        int  `json:"hidden_dim"`
	NInner           *int `json:"n_inner"`

	MaxPositions int `json:"max_position_embeddings"`
	NPositions   int `json:"n_positions"`
	TypeVocab    int `json:"type_vocab_size"`

	HiddenAct          string `json:"hidden_act"`
	Activation         string `json:"activation"`
	ActivationFunction string `json:"activation_function"`

	HiddenDropout *float64 `json:"hidden_dropout_prob"`
	Dropout       *float64 `json:"dropout"`
	ResidDropout  *float64 `json:"resid_pdrop"`

	LayerNormEps     *float64 `json:"layer_norm_eps"`
	LayerNormEpsilon *float64 `json:"layer_norm_epsilon"`

	PositionType     *string `json:"position_embedding_type"`
	ScaleAttn        *bool   `json:"scale_attn_weights"`
	ScaleByIdx       bool    `json:"scale_attn_by_inverse_layer_idx"`
	IsDecoder        bool    `json:"is_decoder"`
	Cross            bool    `json:"add_cross_attention"`
	SinusoidalPos    bool    `json:"sinusoidal_pos_embds"`
	ChunkFeedForward int     `json:"chunk_size_feed_forward"`
	TieWeights       *bool   `json:"tie_word_embeddings"`
}

const maxConfig = 1 << 20 // bytes

// readConfig reads config.json of a directory.
func readConfig(dir, modelType string) (s settings, err error) {
	path := filepath.Join(dir, "config.json")
	defer func() {
		if err != nil {
			err = safeio.Short(fmt.Errorf("hub: %s: %w", path, err))
		}
	}()
	f, size, err := safeio.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	if size > maxConfig {
		return s, fmt.Errorf("got %d bytes, want at most %d", size, maxConfig)
	}
	text, err := safeio.Read(f, int(size), "bytes")
	if err == nil {
		err = safeio.JSON(text, 1<<17, 32)
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, err
	}
	if s.ModelType != modelType {
		return s, fmt.Errorf("got model_type %s, want %q", safeio.Quote(s.ModelType), modelType)
	}
	switch {
	case s.PositionType != nil && *s.PositionType != "absolute":
		err = fmt.Errorf("got position_embedding_type %s, want %q", safeio.Quote(*s.PositionType), "absolute")
	case s.IsDecoder || s.Cross:
		err = errors.New("got is_decoder or add_cross_attention, which this model does not have")
	case s.ScaleAttn != nil && !*s.ScaleAttn || s.ScaleByIdx:
		err = errors.New("got a scaling of scores that is not 1/√(features of a head)")
	}
	return s, err
}

// limits of the sizes in a config.json: far more than any model of these
// families has, and small enough that their products are sizes.
const (
	maxLayers = 1000
	maxSize   = 1 << 24
)

// sizes checks numbers of a config.json.
func sizes(of ...int) error {
	for i, n := range of {
		if n < 1 || n > maxSize || i == 0 && n > maxLayers {
			return fmt.Errorf("hub: config.json: got a size of %d, want 1 to %d, and at most %d layers", n, maxSize, maxLayers)
		}
	}
	return nil
}

// activation returns Mezzo's name of an activation of Hugging Face.
func activation(name string) (string, error) {
	switch name {
	case "gelu", "gelu_python":
		return "gelu", nil
	case "gelu_new", "gelu_fast", "gelu_pytorch_tanh":
		return "gelu(approximate=True)", nil
	case "relu", "silu", "tanh":
		return name, nil
	case "swish":
		return "silu", nil
	}
	return "", fmt.Errorf("hub: config.json: got activation %s, want gelu, gelu_new, relu, silu or tanh", safeio.Quote(name))
}

// Pretrained is a model with the weights of a checkpoint.
type Pretrained struct {
	*keras.Model
	// Report says which weights were read and which tensors of the checkpoint
	// belong to no weight, such as those of another head.
	Report saving.ImportReport
}

// BertConfig reads the sizes of a BERT from the config.json of a directory.
func BertConfig(dir string) (BertBackbone, error) {
	s, err := readConfig(dir, "bert")
	if err != nil {
		return BertBackbone{}, err
	}
	if err := sizes(s.NumHiddenLayers, s.VocabSize, s.NumAttentionHeads, s.HiddenSize, s.IntermediateSize, s.MaxPositions, s.TypeVocab); err != nil {
		return BertBackbone{}, err
	}
	act, err := activation(s.HiddenAct)
	return BertBackbone{VocabularySize: s.VocabSize, NumLayers: s.NumHiddenLayers, NumHeads: s.NumAttentionHeads, HiddenDim: s.HiddenSize,
		IntermediateDim: s.IntermediateSize, Dropout: s.HiddenDropout, MaxSequenceLength: s.MaxPositions, NumSegments: s.TypeVocab,
		Activation: act, LayerNormEpsilon: s.LayerNormEps}, err
}

// DistilBertConfig reads the sizes of a DistilBERT from the config.json of a
// directory.
func DistilBertConfig(dir string) (DistilBertBackbone, error) {
	s, err := readConfig(dir, "distilbert")
	if err != nil {
		return DistilBertBackbone{}, err
	}
	if err := sizes(s.NLayers, s.VocabSize, s.NHeads, s.Dim, s.HiddenDim, s.MaxPositions); err != nil {
		return DistilBertBackbone{}, err
	}
	act, err := activation(s.Activation)
	return DistilBertBackbone{VocabularySize: s.VocabSize, NumLayers: s.NLayers, NumHeads: s.NHeads, HiddenDim: s.Dim,
		IntermediateDim: s.HiddenDim, Dropout: s.Dropout, MaxSequenceLength: s.MaxPositions, Activation: act}, err
}

// GPT2Config reads the sizes of a GPT-2 from the config.json of a directory.
func GPT2Config(dir string) (GPT2Backbone, error) {
	s, err := readConfig(dir, "gpt2")
	if err != nil {
		return GPT2Backbone{}, err
	}
	inner := 4 * s.NEmbd
	if s.NInner != nil {
		inner = *s.NInner
	}
	if err := sizes(s.NLayer, s.VocabSize, s.NHead, s.NEmbd, inner, s.NPositions); err != nil {
		return GPT2Backbone{}, err
	}
	if s.TieWeights != nil && !*s.TieWeights {
		return GPT2Backbone{}, errors.New("hub: config.json: got tie_word_embeddings false, want logits from the table of the tokens")
	}
	act, err := activation(s.ActivationFunction)
	return GPT2Backbone{VocabularySize: s.VocabSize, NumLayers: s.NLayer, NumHeads: s.NHead, HiddenDim: s.NEmbd, IntermediateDim: inner,
		Dropout: s.ResidDropout, MaxSequenceLength: s.NPositions, Activation: act, LayerNormEpsilon: s.LayerNormEpsilon}, err
}

// BERT makes a [BertBackbone] with the weights of a directory in Hugging Face's
// layout: config.json, and model.safetensors or its shards. The global policy
// holds: weights of a mixed policy are float32.
func BERT(dir string) (*Pretrained, error) {
	b, err := BertConfig(dir)
	if err != nil {
		return nil, err
	}
	m, err := b.Model()
	if err != nil {
		return nil, err
	}
	return load(dir, m, false)
}

// DistilBERT is [BERT] for a [DistilBertBackbone].
func DistilBERT(dir string) (*Pretrained, error) {
	d, err := DistilBertConfig(dir)
	if err != nil {
		return nil, err
	}
	m, err := d.Model()
	if err != nil {
		return nil, err
	}
	return load(dir, m, false)
}

// load imports the weights of a directory.
func load(dir string, m *keras.Model, partial bool) (*Pretrained, error) {
	r, err := ImportWeights(dir, m, partial)
	if err != nil {
		return nil, err
	}
	return &Pretrained{m, r}, nil
}

// ImportWeights sets the weights of a model that was made with Encode or Model
// of a backbone from the checkpoint of a directory. With partial, weights that
// the checkpoint does not have, such as those of a new head, keep their values.
func ImportWeights(dir string, m *keras.Model, partial bool) (r saving.ImportReport, err error) {
	s, err := saving.ReadSafetensors(dir)
	if err != nil {
		return r, err
	}
	r, err = s.Import(m, saving.ImportOptions{Source: sourceIn(s), Partial: partial})
	return r, errors.Join(err, s.Close())
}

// family says where a checkpoint has the weights of a model.
type family struct {
	prefix string // before all names, in checkpoints with a head
	probe  string // a name, without prefix, that tells the family
	source func(layer, weight string) saving.Source
	head   func(layer, weight string) saving.Source // of a head, whose names have no prefix; nil: none
}

// families of checkpoints.
var families = []family{
	{"bert.", "embeddings.token_type_embeddings.weight", bertSource, bertHead},
	{"distilbert.", "transformer.layer.0.ffn.lin1.weight", distilBertSource, distilBertHead},
	{"transformer.", "h.0.attn.c_attn.weight", gpt2Source, nil},
}

// sourceIn returns where the checkpoint s has each weight.
func sourceIn(s *saving.Safetensors) func(string) saving.Source {
	for _, f := range families {
		for _, prefix := range []string{"", f.prefix} {
			if s.Has(prefix + f.probe) {
				return func(weight string) saving.Source {
					cut := strings.LastIndex(weight, "/")
					layer, weight := weight[:max(cut, 0)], weight[cut+1:]
					from := f.source(layer, weight)
					if from.Tensor != "" {
						from.Tensor = prefix + from.Tensor
					} else if f.head != nil {
						from = f.head(layer, weight)
					}
					// Checkpoints that came from TensorFlow.
					if old := strings.NewReplacer("LayerNorm.weight", "LayerNorm.gamma", "LayerNorm.bias", "LayerNorm.beta").Replace(from.Tensor); !s.Has(from.Tensor) && s.Has(old) {
						from.Tensor = old
					}
					return from
				}
			}
		}
	}
	return func(weight string) saving.Source { return saving.Source{Tensor: weight} }
}

// split returns the number of a Transformer layer and what follows its name.
func split(layer string) (number, rest string) {
	rest, ok := strings.CutPrefix(layer, "transformer_layer_")
	if !ok {
		return "", layer
	}
	number, rest, _ = strings.Cut(rest, "/")
	return number, rest
}

// linear returns the source of a weight of a Dense layer or of a projection of
// attention: kernels of torch.nn.Linear are transposed.
func linear(name, weight string) saving.Source {
	if weight == "kernel" {
		return saving.Source{Tensor: name + ".weight", Transpose: []int{1, 0}, Reshape: true}
	}
	return saving.Source{Tensor: name + "." + weight, Reshape: true}
}

// normalization returns the source of a weight of a layer normalization.
func normalization(name, weight string) saving.Source {
	return saving.Source{Tensor: name + map[string]string{"gamma": ".weight", "beta": ".bias"}[weight]}
}

func bertSource(layer, weight string) saving.Source {
	switch layer {
	case "token_embedding":
		return saving.Source{Tensor: "embeddings.word_embeddings.weight"}
	case "position_embedding":
		return saving.Source{Tensor: "embeddings.position_embeddings.weight"}
	case "segment_embedding":
		return saving.Source{Tensor: "embeddings.token_type_embeddings.weight"}
	case "embeddings_layer_norm":
		return normalization("embeddings.LayerNorm", weight)
	case "pooled_dense":
		return linear("pooler.dense", weight)
	}
	number, rest := split(layer)
	if number == "" {
		return saving.Source{}
	}
	at := "encoder.layer." + number + "."
	switch rest {
	case "self_attention_layer/query", "self_attention_layer/key", "self_attention_layer/value":
		return linear(at+"attention.self."+rest[len("self_attention_layer/"):], weight)
	case "self_attention_layer/attention_output":
		return linear(at+"attention.output.dense", weight)
	case "self_attention_layer_norm":
		return normalization(at+"attention.output.LayerNorm", weight)
	case "feedforward_intermediate_dense":
		return linear(at+"intermediate.dense", weight)
	case "feedforward_output_dense":
		return linear(at+"output.dense", weight)
	case "feedforward_layer_norm":
		return normalization(at+"output.LayerNorm", weight)
	}
	return saving.Source{}
}

// bertHead is where a checkpoint of BertForMaskedLM has the weights of a [MaskedLMHead].
func bertHead(layer, weight string) saving.Source {
	const at = "cls.predictions."
	switch layer {
	case "mlm_head/intermediate_dense":
		return linear(at+"transform.dense", weight)
	case "mlm_head/intermediate_layer_norm":
		return normalization(at+"transform.LayerNorm", weight)
	case "mlm_head":
		return saving.Source{Tensor: at + "bias"}
	}
	return saving.Source{}
}

// distilBertHead is bertHead for DistilBertForMaskedLM.
func distilBertHead(layer, weight string) saving.Source {
	switch layer {
	case "mlm_head/intermediate_dense":
		return linear("vocab_transform", weight)
	case "mlm_head/intermediate_layer_norm":
		return normalization("vocab_layer_norm", weight)
	case "mlm_head":
		return saving.Source{Tensor: "vocab_projector.bias"}
	}
	return saving.Source{}
}

func distilBertSource(layer, weight string) saving.Source {
	if layer == "embeddings_layer_norm" {
		return bertSource(layer, weight)
	}
	if table, ok := strings.CutPrefix(layer, "token_and_position_embedding/"); ok {
		return bertSource(table, weight)
	}
	number, rest := split(layer)
	if number == "" {
		return saving.Source{}
	}
	at := "transformer.layer." + number + "."
	switch rest {
	case "self_attention_layer/query":
		return linear(at+"attention.q_lin", weight)
	case "self_attention_layer/key":
		return linear(at+"attention.k_lin", weight)
	case "self_attention_layer/value":
		return linear(at+"attention.v_lin", weight)
	case "self_attention_layer/attention_output":
		return linear(at+"attention.out_lin", weight)
	case "self_attention_layer_norm":
		return normalization(at+"sa_layer_norm", weight)
	case "feedforward_intermediate_dense":
		return linear(at+"ffn.lin1", weight)
	case "feedforward_output_dense":
		return linear(at+"ffn.lin2", weight)
	case "feedforward_layer_norm":
		return normalization(at+"output_layer_norm", weight)
	}
	return saving.Source{}
}

// gpt2Source: kernels of GPT-2 lie as Keras's do, and those of query, key and
// value side by side.
func gpt2Source(layer, weight string) saving.Source {
	conv := func(name string) saving.Source {
		return saving.Source{Tensor: name + map[string]string{"kernel": ".weight", "bias": ".bias"}[weight], Reshape: true}
	}
	switch layer {
	case "token_embedding":
		return saving.Source{Tensor: "wte.weight"}
	case "position_embedding":
		return saving.Source{Tensor: "wpe.weight"}
	case "layer_norm":
		return normalization("ln_f", weight)
	}
	number, rest := split(layer)
	if number == "" {
		return saving.Source{}
	}
	at := "h." + number + "."
	switch rest {
	case "self_attention/query", "self_attention/key", "self_attention/value":
		from := conv(at + "attn.c_attn")
		from.Part = map[string]int{"query": 0, "key": 1, "value": 2}[rest[len("self_attention/"):]]
		from.Parts = 3
		if weight == "kernel" {
			from.Axis = 1
		}
		return from
	case "self_attention/attention_output":
		return conv(at + "attn.c_proj")
	case "self_attention_layer_norm":
		return normalization(at+"ln_1", weight)
	case "feedforward_intermediate_dense":
		return conv(at + "mlp.c_fc")
	case "feedforward_output_dense":
		return conv(at + "mlp.c_proj")
	case "feedforward_layer_norm":
		return normalization(at+"ln_2", weight)
	}
	return saving.Source{}
}
