// Command translate trains a transformer (Vaswani et al. 2017) to translate English
// sentences into French: an encoder and a decoder, label smoothing, and the paper's
// schedule of learning rates. A grammar makes the sentences. It prints the loss of
// other sentences and their BLEU score for mixed precision beside float32.
//
//	go run ./examples/translate
//	go run ./examples/translate -policies mixed_bfloat16 -beams 4
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policies = flag.String("policies", "float32,mixed_float16", "policies to train under, one after the other, between commas")
	seeds    = flag.Int("seeds", 1, "trainings under each policy, with different first weights, order of sentences and dropout")
	pairs    = flag.Int("pairs", 12000, "sentences to train on")
	tests    = flag.Int("tests", 500, "other sentences to translate")
	epochs   = flag.Int("epochs", 4, "epochs")
	batch    = flag.Int("batch", 64, "sentences per step")
	features = flag.Int("features", 64, "features of a word; a multiple of 4, the number of heads")
	depth    = flag.Int("layers", 2, "layers of the encoder and of the decoder")
	factor   = flag.Float64("rate", 1, "the learning rate is this times that of the paper's schedule")
	warmup   = flag.Int("warmup", 400, "steps in which the learning rate grows")
	beams    = flag.Int("beams", 1, "translations that are kept at each step; 1 is greedy decoding")
	examples = flag.Int("examples", 3, "translations to print")
)

const (
	heads     = 4
	dropout   = 0.1
	smoothing = 0.1
)

func main() { interrupt.Main(run) }

func run(ctx context.Context) error {
	names := strings.Split(*policies, ",")
	for _, p := range names {
		if _, err := policy.Parse(p); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"seeds", *seeds}, {"pairs", *pairs}, {"tests", *tests}, {"epochs", *epochs}, {"batch", *batch}, {"features", *features}, {"layers", *depth}, {"warmup", *warmup}, {"beams", *beams}} {
		if f.value < 1 {
			return fmt.Errorf("-%s is %d, want 1 or more", f.name, f.value)
		}
	}
	if *features%heads != 0 {
		return fmt.Errorf("-features is %d, want a multiple of %d", *features, heads)
	}
	c := newCorpus(sentences(*pairs+*tests, 0), *pairs)
	s := size{len(c.english.words), len(c.french.words), c.steps, *features, 4 * *features, heads, *depth, dropout}
	fmt.Printf("%d English and %d French words, sentences of up to %d\n", s.english-specials, s.french-specials, c.steps-1)

	var lines [][]string // translations under the last policy
	for _, name := range names {
		policy.SetGlobal(name)
		var all [3][]float64
		var skipped int64
		for seed := range *seeds {
			r, err := train(ctx, c, s, uint64(seed))
			if err != nil {
				return err
			}
			for i, x := range []float64{r.loss, r.bleu, r.exact} {
				all[i] = append(all[i], x)
			}
			skipped += r.skipped
			lines = r.translations
		}
		fmt.Printf("%-15s test loss %s, BLEU %s, exact %s %%, skipped steps %d\n", name, mean(all[0]), mean(all[1]), mean(all[2]), skipped)
	}
	for i := range min(*examples, len(lines)) {
		fmt.Printf("\n%s\n%s\n", strings.Join(c.test[i].english, " "), strings.Join(lines[i], " "))
	}
	return nil
}

// A result is what a training has led to.
type result struct {
	loss, bleu, exact float64 // exact: percent of the translations that are the reference
	skipped           int64
	translations      [][]string
}

// train trains under the global policy and translates the test sentences.
func train(ctx context.Context, c *corpus, s size, seed uint64) (r result, err error) {
	t, err := s.transformer(seed)
	if err != nil {
		return r, err
	}
	err = t.whole.Compile(keras.CompileConfig{
		// The paper's Adam.
		Optimizer: &optimizers.Adam{Beta2: 0.98, Epsilon: 1e-9, Schedule: &noam{*factor, s.features, *warmup}},
		Loss:      &smoothed{s.french, smoothing},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		return r, err
	}
	if _, err = t.whole.Fit(ctx, c.dataset(c.train), keras.FitConfig{BatchSize: *batch, Epochs: *epochs, Seed: seed, Verbose: keras.VerbositySilent}); err != nil {
		return r, err
	}
	if scaler, ok := t.whole.Optimizer().(*optimizers.LossScaleOptimizer); ok {
		step, err := scaler.Result()
		if err != nil {
			return r, err
		}
		r.skipped = step.SkippedSteps
	}
	scores, err := t.whole.Evaluate(ctx, c.dataset(c.test).Batch(*batch))
	if err != nil {
		return r, err
	}
	r.loss = scores.Get("loss")

	translator := t.translator(c.steps)
	var references [][]string
	for part := range slices.Chunk(c.test, 100) {
		english, _, _ := c.tensors(part)
		found, err := translator.translate(ctx, english, *beams)
		if err != nil {
			return r, err
		}
		for i, ids := range found {
			text := c.french.decode(ids)
			if slices.Equal(text, part[i].french) {
				r.exact += 100 / float64(len(c.test))
			}
			r.translations, references = append(r.translations, text), append(references, part[i].french)
		}
	}
	r.bleu = bleu(r.translations, references)
	return r, nil
}

// mean is the mean of xs and, of several, their standard deviation.
func mean(xs []float64) string {
	m, d := 0.0, 0.0
	for _, x := range xs {
		m += x / float64(len(xs))
	}
	if len(xs) == 1 {
		return fmt.Sprintf("%.4g", m)
	}
	for _, x := range xs {
		d += (x - m) * (x - m) / float64(len(xs)-1)
	}
	return fmt.Sprintf("%.4g ± %.2g", m, math.Sqrt(d))
}

// A corpus is sentences to train and to test on.
type corpus struct {
	train, test     []pair
	english, french *vocabulary
	steps           int // of the longest sentence, with its mark
}

// newCorpus takes the first n pairs to train on.
func newCorpus(all []pair, n int) *corpus {
	c := &corpus{train: all[:n], test: all[n:]}
	for _, p := range all {
		c.steps = max(c.steps, len(p.english)+1, len(p.french)+1)
	}
	c.english = newVocabulary(func(yield func([]string) bool) {
		for _, p := range all {
			yield(p.english)
		}
	})
	c.french = newVocabulary(func(yield func([]string) bool) {
		for _, p := range all {
			yield(p.french)
		}
	})
	return c
}

// tensors returns what the network reads and is to predict, each [n T]: English words,
// French words from start on, and French words up to end.
func (c *corpus) tensors(all []pair) (english, french, next *keras.Tensor) {
	n := len(all)
	x, y, z := make([]int32, n*c.steps), make([]int32, n*c.steps), make([]int32, n*c.steps)
	for i, p := range all {
		at := i * c.steps
		copy(x[at:], append(c.english.encode(p.english), end))
		ids := c.french.encode(p.french)
		copy(y[at:], append([]int32{start}, ids...))
		copy(z[at:], append(ids, end))
	}
	return keras.NewTensor(x, n, c.steps), keras.NewTensor(y, n, c.steps), keras.NewTensor(z, n, c.steps)
}

func (c *corpus) dataset(all []pair) *keras.Pipeline {
	english, french, next := c.tensors(all)
	return keras.FromTensors(keras.Tuple(english, french), next, nil)
}
