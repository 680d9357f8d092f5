package main

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
)

// A translator decodes with two compiled functions.
type translator struct {
	steps  int
	encode *keras.Func[*keras.Tensor, *keras.Tensor]
	next   *keras.Func[prefixes, *keras.Tensor]
}

// prefixes are beginnings of translations, several for each sentence.
type prefixes struct {
	Memory  *keras.Tensor // [sentences T features], from encode
	English *keras.Tensor // [sentences T], for the mask of Memory
	French  *keras.Tensor // [sentences·beams T]
	Last    *keras.Tensor // int32 scalar: the step of the last word
}

func (t *transformer) translator(steps int) *translator {
	return &translator{steps,
		keras.Function(func(english *keras.Tensor) *keras.Tensor { return t.encoder.Call(english) }),
		// next returns logarithms of probabilities, [sentences·beams words].
		keras.Function(func(p prefixes) *keras.Tensor {
			beams := p.French.Dim(0) / p.English.Dim(0)
			words := p.English.NotEqual(ops.Scalar(keras.Int32, padding))
			memory := repeat(p.Memory, beams).WithMask(repeat(words, beams))
			logits := t.decoder.Call(keras.Tuple(p.French, memory)).WithMask(nil)
			return logits.Transpose(1, 0, 2).Gather(p.Last).LogSoftmax(-1)
		}),
	}
}

// repeat returns n times each sentence of x.
func repeat(x *keras.Tensor, n int) *keras.Tensor {
	s := x.Shape()
	each := append(keras.Shape{s[0], n}, s[1:]...)
	return x.ExpandDims(1).BroadcastTo(each...).Reshape(append(keras.Shape{s[0] * n}, s[1:]...)...)
}

// A hypothesis is a translation that is being made.
type hypothesis struct {
	words []int32 // from start on
	score float64 // logarithm of its probability
}

func (h hypothesis) done() bool { return h.words[len(h.words)-1] == end }

// normalized is the score divided by the length penalty of Wu et al. 2016, α = 0.6.
func (h hypothesis) normalized() float64 {
	return h.score / math.Pow(float64(5+len(h.words))/6, 0.6)
}

// translate returns translations of sentences, [n T], found by beam search. One beam is
// greedy decoding: the most probable word at each step.
func (t *translator) translate(ctx context.Context, english *keras.Tensor, beams int) ([][]int32, error) {
	memory, err := t.encode.Call(ctx, english)
	if err != nil {
		return nil, err
	}
	n := english.Dim(0)
	found := make([][]hypothesis, n)
	for i := range found {
		found[i] = []hypothesis{{words: []int32{start}}}
	}
	for step := range t.steps - 1 {
		french := make([]int32, n*beams*t.steps)
		open := false
		for i, hs := range found {
			for k, h := range hs {
				copy(french[(i*beams+k)*t.steps:], h.words)
				open = open || !h.done()
			}
		}
		if !open {
			break
		}
		next, err := t.next.Call(ctx, prefixes{memory, english, keras.NewTensor(french, n*beams, t.steps), ops.Scalar(keras.Int32, float64(step))})
		if err != nil {
			return nil, err
		}
		scores, err := next.Values()
		if err != nil {
			return nil, err
		}
		words := next.Dim(1)
		for i, hs := range found {
			var all []hypothesis
			for k, h := range hs {
				row := scores[(i*beams+k)*words:][:words]
				all = append(all, h.extend(row, beams)...)
			}
			slices.SortStableFunc(all, func(a, b hypothesis) int { return cmp.Compare(b.normalized(), a.normalized()) })
			found[i] = all[:min(beams, len(all))]
		}
	}
	out := make([][]int32, n)
	for i, hs := range found {
		out[i] = hs[0].words[1:]
	}
	return out, nil
}

// extend returns h with each of its most probable next words, or h if it has ended.
func (h hypothesis) extend(scores []float32, beams int) (longer []hypothesis) {
	if h.done() {
		return []hypothesis{h}
	}
	var best []int
	for w := range scores {
		at := len(best)
		for at > 0 && scores[best[at-1]] < scores[w] {
			at--
		}
		if best = slices.Insert(best, at, w); len(best) > beams {
			best = best[:beams]
		}
	}
	for _, w := range best {
		longer = append(longer, hypothesis{append(slices.Clone(h.words), int32(w)), h.score + float64(scores[w])})
	}
	return longer
}
