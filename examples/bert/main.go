// Command bert finds the words of a text that carry a given sentiment: a BERT
// encoder whose head says at which token the answer starts and at which it
// ends. It trains with AdamW, without decay of biases and normalizations, and
// a learning rate that falls linearly to zero.
//
// The small model learns a made-up task in about a minute on a CPU. With
// -model base and -data it is the 109-million-weight network on the tweets of
// Kaggle's tweet-sentiment-extraction, and with -weights a pretrained one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/mezzo-ml/mezzo/examples/cost"
	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/hub"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "mixed_float16", "policy: mixed_float16, mixed_bfloat16 or float32")
	modelName  = flag.String("model", "small", "model: small (2 layers of 64 features) or base (BERT base, 12 layers of 768)")
	batch      = flag.Int("batch", 32, "texts per step")
	epochs     = flag.Int("epochs", 6, "epochs")
	steps      = flag.Int("steps", 0, "steps per epoch (default: all texts)")
	seed       = flag.Uint64("seed", 0, "seed of first weights, shuffling and dropout")
	remat      = flag.Bool("remat", false, "compute each layer again in the backward pass instead of keeping it: less memory, more time")
	texts      = flag.Int("texts", 4000, "texts to make up, a tenth of them to validate on")
	weights    = flag.String("weights", "", "directory with a BERT in Hugging Face's layout (config.json, model.safetensors, vocab.txt or tokenizer.json) to start from, instead of -model; requires -data")
	layerDecay = flag.Float64("layerdecay", 1, "with -weights: the learning rate of a layer is that of the next one times this; 1 is one rate for all")
	data       = flag.String("data", "", "directory with train.csv (text, selected_text, sentiment) and, without -weights, vocab.txt of bert-base-uncased (default: made-up texts)")
)

// variant is a size of the network, the number of tokens of a text, and the
// first learning rate.
type variant struct {
	bert   models.BERT
	tokens int
	rate   float64
}

var variants = map[string]variant{
	// 0.02 is for 768 features: with 64 queries and keys begin so near to 0 that
	// attention learns nothing for many epochs.
	"small": {models.BERT{Vocabulary: vocabulary, Positions: 128, Types: 2, Hidden: 64, Layers: 2, Heads: 4, Intermediate: 256, Dropout: 0.1, Stddev: 0.08}, 40, 2e-3},
	"base":  {models.BERTBase, 128, 3e-5},
}

func main() { interrupt.Main(run) }

func run(ctx context.Context) error {
	v, ok := variants[*modelName]
	if !ok {
		return fmt.Errorf("-model is %q, want small or base", *modelName)
	}
	if _, err := policy.Parse(*policyName); err != nil {
		return err
	}
	if *weights != "" && *data == "" {
		return errors.New("-weights requires -data")
	}
	if !(*layerDecay > 0 && *layerDecay <= 1) || *layerDecay != 1 && *weights == "" {
		return fmt.Errorf("-layerdecay is %v, want more than 0 and at most 1, and -weights", *layerDecay)
	}
	policy.SetGlobal(*policyName)
	v.bert.Remat = *remat
	vocabularyDir := *data
	var pretrained hub.BertBackbone
	if *weights != "" {
		var err error
		if pretrained, err = hub.BertConfig(*weights); err != nil {
			return err
		}
		pretrained.Remat = *remat
		v.rate = variants["base"].rate
		vocabularyDir = *weights
	}
	var all []example
	if *data == "" {
		all = invent(*texts, v.tokens)
	} else {
		v.tokens = 128
		if *weights != "" {
			v.tokens = min(v.tokens, pretrained.MaxSequenceLength)
		}
		var err error
		if all, v.bert.Vocabulary, err = load(*data, vocabularyDir, v.tokens); err != nil {
			return err
		}
	}
	if len(all) < 10 {
		return fmt.Errorf("there are %d texts, want at least 10", len(all))
	}
	k := len(all) - len(all)/10
	train, test := dataset(all[:k], v.tokens), dataset(all[k:], v.tokens)

	var model *keras.Model
	var err error
	if *weights == "" {
		model, err = v.bert.Span(v.tokens)
	} else {
		model, err = span(pretrained, v.tokens)
	}
	if err != nil {
		return err
	}
	fmt.Println("Parameters:", model.CountParams())
	if err := model.SetSeed(*seed); err != nil {
		return err
	}
	if *weights != "" {
		report, err := hub.ImportWeights(*weights, model, true)
		if err != nil {
			return err
		}
		fmt.Println(report)
	}
	perEpoch := (train.Len() + *batch - 1) / *batch
	if *steps > 0 {
		perEpoch = *steps
	}
	accuracy := func() []metrics.Metric {
		return []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}}
	}
	err = model.Compile(keras.CompileConfig{
		Optimizer:     optimizer(v.rate, *epochs*perEpoch, pretrained.NumLayers, *layerDecay),
		Loss:          &losses.SparseCategoricalCrossentropy{FromLogits: true}, // of start and of end
		OutputMetrics: [][]metrics.Metric{accuracy(), accuracy()},
	})
	if err != nil {
		return err
	}
	if _, err := model.Fit(ctx, train, keras.FitConfig{
		BatchSize: *batch, Epochs: *epochs, StepsPerEpoch: *steps, Seed: *seed, Callbacks: []keras.Callback{cost.Callback()}, Checkpoint: interrupt.Checkpoint("")}); err != nil {
		return err
	}
	scores, err := model.Evaluate(ctx, test.Batch(*batch))
	if err != nil {
		return err
	}
	fmt.Println("Test loss:", scores.Get("loss"))
	exact, err := exactly(ctx, model, all[k:], v.tokens)
	if err != nil {
		return err
	}
	fmt.Println("Test answers found exactly:", exact)
	return nil
}

// span is a pretrained encoder with the head of models.BERT.Span.
func span(b hub.BertBackbone, steps int) (*keras.Model, error) {
	if b.NumLayers < 2 {
		return nil, fmt.Errorf("-weights: the model has %d layers, want at least 2", b.NumLayers)
	}
	tokens, types := keras.InputOf(keras.Int32, steps), keras.InputOf(keras.Int32, steps)
	hidden, _ := b.Encode(tokens, types, tokens) // token 0 is padding
	dropout := 0.1
	if b.Dropout != nil {
		dropout = *b.Dropout
	}
	start, end, err := models.Ends(hidden, dropout)
	if err != nil {
		return nil, err
	}
	return keras.NewModel(keras.Tuple(tokens, types), keras.Tuple(start, end))
}

// optimizer returns AdamW with a learning rate that falls from rate to 0. With decay
// below 1 each of the layers, and the embeddings, have decay times the rate of what
// follows them.
func optimizer(rate float64, steps, layers int, decay float64) optimizers.Optimizer {
	at := func(rate float64) optimizers.Optimizer {
		return &optimizers.AdamW{WeightDecay: new(0.001),
			ExcludeFromWeightDecay: []string{"bias", "gamma", "beta"},
			Schedule:               &optimizers.PolynomialDecay{InitialLearningRate: rate, DecaySteps: float64(steps), EndLearningRate: new(0.0)}}
	}
	if decay == 1 {
		return at(rate)
	}
	m := optimizers.OptimizerMap{Default: at(rate)}
	for i := layers - 1; i >= 0; i-- {
		rate *= decay
		m.Entries = append(m.Entries, optimizers.OptimizerEntry{Variables: fmt.Sprintf("transformer_layer_%d/.*", i), Optimizer: at(rate)})
	}
	m.Entries = append(m.Entries, optimizers.OptimizerEntry{Variables: "(token|position|segment)_embedding/.*|embeddings_layer_norm/.*", Optimizer: at(rate * decay)})
	return &optimizers.MultiOptimizer{OptimizerMap: m}
}

// exactly is the share of the texts whose answer the model finds from its first
// to its last token.
func exactly(ctx context.Context, model *keras.Model, all []example, tokens int) (float64, error) {
	right := 0
	for first := 0; first < len(all); first += *batch {
		part := all[first:min(first+*batch, len(all))]
		x, _ := tensors(part, tokens)
		y, err := model.Predict(ctx, x)
		if err != nil {
			return 0, err
		}
		var found [2][]int64
		for i, logits := range y.Unpack() {
			if found[i], err = logits.ArgMax(-1).Int64s(); err != nil {
				return 0, err
			}
		}
		for i, e := range part {
			if found[0][i] == int64(e.start) && found[1][i] == int64(e.end) {
				right++
			}
		}
	}
	return float64(right) / float64(len(all)), nil
}
