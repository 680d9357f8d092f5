package main

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
)

// A transformer is the encoder and decoder of Vaswani et al. 2017.
type transformer struct {
	whole   *keras.Model // ([batch T], [batch T]) words → [batch T French] logits of the next word
	encoder *keras.Model // [batch T] English words → [batch T features]
	decoder *keras.Model // ([batch T] French words, [batch T features]) → [batch T French] logits
}

// size are the sizes of a transformer.
type size struct {
	english, french                int // words
	steps                          int // of the longest sentences, with their marks
	features, hidden, heads, depth int
	dropout                        float64
}

// embed gives each word a vector: its own, and the position's.
func (s size) embed(words *keras.Tensor, vocabulary int) *keras.Tensor {
	x := keras.Apply(&layers.Embedding{InputDim: vocabulary, OutputDim: s.features, MaskZero: true,
		EmbeddingsInitializer: fmt.Sprintf("random_normal(stddev=%v)", 1/math.Sqrt(float64(s.features)))}, words)
	x = keras.Apply(&positions{}, x)
	return keras.Apply(&layers.Dropout{Rate: s.dropout}, x)
}

// add is the layer normalization of a sum, x with dropout being new in it.
func (s size) add(old, x *keras.Tensor) *keras.Tensor {
	x = keras.Apply(&layers.Dropout{Rate: s.dropout}, x)
	return keras.Apply(&layers.LayerNormalization{}, keras.Apply(&layers.Add{}, old, x))
}

// attend adds what x finds in memory, or in itself up to each step if causal.
func (s size) attend(x, memory *keras.Tensor, causal bool) *keras.Tensor {
	attention := &layers.MultiHeadAttention{NumHeads: s.heads, KeyDim: s.features / s.heads, Dropout: s.dropout, UseCausalMask: causal}
	return s.add(x, keras.Apply(attention, x, memory))
}

// feedForward adds two Dense layers.
func (s size) feedForward(x *keras.Tensor) *keras.Tensor {
	h := keras.Apply(&layers.Dense{Units: s.hidden, Activation: "relu"}, x)
	return s.add(x, keras.Apply(&layers.Dense{Units: s.features}, h))
}

func (s size) transformer(seed uint64) (*transformer, error) {
	var t transformer
	english, french := keras.InputOf(keras.Int32, s.steps), keras.InputOf(keras.Int32, s.steps)

	x := s.embed(english, s.english)
	for range s.depth {
		x = s.feedForward(s.attend(x, x, false))
	}
	var err error
	if t.encoder, err = keras.NewModel(english, x); err != nil {
		return nil, err
	}
	// Its output is an input of 16-bit layers, not a result.
	t.encoder.Named("encoder").KeepOutputDType()

	memory := keras.Input(s.steps, s.features)
	y := s.embed(french, s.french)
	for range s.depth {
		y = s.attend(y, y, true)
		y = s.feedForward(s.attend(y, memory, false))
	}
	y = keras.Apply(&layers.Dense{Units: s.french, Name: "words"}, y)
	if t.decoder, err = keras.NewModel(keras.Tuple(french, memory), y); err != nil {
		return nil, err
	}
	t.decoder.Named("decoder")

	t.whole, err = keras.NewModel(keras.Tuple(english, french),
		keras.Apply(t.decoder.Layer(), french, keras.Apply(t.encoder.Layer(), english)))
	if err != nil {
		return nil, err
	}
	return &t, t.whole.SetSeed(seed)
}

// positions scales x and adds sines and cosines of the position (Vaswani et al. 2017,
// sections 3.4 and 3.5).
//
// Shapes: [batch steps features] → the same.
type positions struct {
	Name, DType string

	layers.Base
	layers.PassesMask
}

// Config returns the fields Name and DType.
func (p *positions) Config() layers.Config { return layers.Config{Name: p.Name, DType: p.DType} }

// Build checks the input.
func (p *positions) Build(in ...layers.Shape) error {
	if len(in) != 1 || len(in[0]) != 3 || in[0][1] < 1 || in[0][2] < 1 {
		return fmt.Errorf("got inputs %v, want one [batch steps features]", in)
	}
	return nil
}

// Call computes the layer on x.
func (p *positions) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	steps, features := x.Dim(1), x.Dim(2)
	table := make([]float32, steps*features)
	for i := range table {
		at, k := float64(i/features), i%features
		angle := at / math.Pow(10000, float64(k/2*2)/float64(features))
		table[i] = float32(math.Sin(angle))
		if k%2 == 1 {
			table[i] = float32(math.Cos(angle))
		}
	}
	return x.MulScalar(math.Sqrt(float64(features))).Add(keras.NewTensor(table, 1, steps, features).CastLike(x))
}

// smoothed is the cross-entropy of words with label smoothing: 1-smoothing of the
// target is the word, and smoothing is spread over all words.
type smoothed struct {
	words     int
	smoothing float64
}

// Call returns the mean over the words that the mask of the predictions keeps.
func (l *smoothed) Call(yTrue, yPred *keras.Tensor) *keras.Tensor {
	c := losses.CategoricalCrossentropy{FromLogits: true, LabelSmoothing: l.smoothing}
	return c.Call(yTrue.OneHot(l.words, keras.Float32), yPred)
}

// noam is the learning rate of Vaswani et al. 2017, section 5.3, times Factor: it grows
// linearly for Warmup steps, and then falls with the square root of the step.
//
//	Factor · features^-½ · min(step^-½, step·Warmup^-1.5)
type noam struct {
	Factor   float64
	Features int
	Warmup   int
}

// Rate is the rate after step applied steps.
func (s *noam) Rate(step *keras.Tensor) *keras.Tensor {
	n := step.Cast(keras.Float32).AddScalar(1) // the paper counts from 1
	rate := n.Rsqrt().Minimum(n.MulScalar(math.Pow(float64(s.Warmup), -1.5)))
	return rate.MulScalar(s.Factor / math.Sqrt(float64(s.Features)))
}
