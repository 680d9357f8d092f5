package hub

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// GPT2LM is a GPT-2 that generates text. Its model is as
// [GPT2Backbone.Model] makes it.
type GPT2LM struct {
	Pretrained
	net *gpt2
}

// GPT2 makes a [GPT2LM] with the weights of a directory in Hugging Face's
// layout; see [BERT].
func GPT2(dir string) (*GPT2LM, error) {
	g, err := GPT2Config(dir)
	if err != nil {
		return nil, err
	}
	m, net, err := g.model()
	if err != nil {
		return nil, err
	}
	p, err := load(dir, m, false)
	if err != nil {
		return nil, err
	}
	return &GPT2LM{*p, net}, nil
}

// NewGPT2LM makes a [GPT2LM] with random weights.
func NewGPT2LM(g GPT2Backbone) (*GPT2LM, error) {
	m, net, err := g.model()
	if err != nil {
		return nil, err
	}
	return &GPT2LM{Pretrained{Model: m}, net}, nil
}

// cache holds the keys and values of the steps so far, and says where those of
// this step go.
type cache struct {
	keys, values  *keras.Variable
	batch, length int
	rows          *keras.Tensor // int32 [batch·steps]: rows of keys and values that this step writes
	visible       *keras.Tensor // bool [batch 1 steps length]: steps that this step sees
}

// step computes the layer on x, [batch steps features], after the steps in c.
func (a *CachedMultiHeadAttention) step(x *keras.Tensor, c *cache) *keras.Tensor {
	var p layers.Pass
	q, k, v := layers.Apply(a.query, p, x), layers.Apply(a.key, p, x), layers.Apply(a.value, p, x)
	n := a.NumHeads * a.keyDim
	steps := c.rows.Dim(0)
	all := func(v *keras.Variable, new *keras.Tensor) *keras.Tensor {
		v.AssignRows(c.rows, new.Reshape(steps, n))
		return v.Value().Reshape(c.batch, c.length, a.NumHeads, a.keyDim)
	}
	y := tensor.Attention(q, all(c.keys, k), all(c.values, v), tensor.AttentionOptions{Scale: a.scale(), Mask: c.visible})
	return layers.Apply(a.out, p, y)
}

// prefill is the number of tokens of a prompt that one run of a plan takes in.
const prefill = 32

// Generator generates text for a fixed number of prompts at a time, with a
// cache of keys and values of fixed size. It compiles two plans, one for
// prompts and one for a new token; a new token allocates nothing. It is for one
// goroutine at a time.
type Generator struct {
	batch, length int
	vocabulary    int
	caches        []*cache
	take          *keras.Func[stepIn, *keras.Tensor] // tokens of prompts
	next          *keras.Func[stepIn, *keras.Tensor] // one token, to logits
	in, many      stepIn
	write         [2]func(dst []byte) error // of tokens and at

	// State of a generation.
	tokens  []int32 // last token of each row
	at      []int32 // its position
	random  []*rand.PCG
	choices []choice
}

// stepIn are tokens [batch steps] and their positions; a position of length is
// that of padding.
type stepIn struct{ Tokens, Positions *keras.Tensor }

// choice is a token that may be next, with its logit or probability.
type choice struct {
	token int32
	p     float32
}

// Generator returns a generator for batch prompts at a time, whose texts,
// prompts included, have at most length tokens; 0 is the model's longest.
func (g *GPT2LM) Generator(batch, length int) (*Generator, error) {
	c := g.net.config
	if length == 0 {
		length = c.MaxSequenceLength
	}
	if batch < 1 || length < 2 || length > c.MaxSequenceLength {
		return nil, fmt.Errorf("hub: Generator: got %d prompts of up to %d tokens, want at least 1 of 2 to %d", batch, length, c.MaxSequenceLength)
	}
	r := &Generator{batch: batch, length: length, vocabulary: c.VocabularySize,
		tokens: make([]int32, batch), at: make([]int32, batch), choices: make([]choice, c.VocabularySize)}
	n := c.HiddenDim
	for i, l := range g.net.layers {
		d := l.ComputeDType()
		state := func(what string) *keras.Variable {
			return keras.NewState(fmt.Sprintf("generator/%s_%d", what, i), d, keras.Shape{batch * length, n}, nil)
		}
		r.caches = append(r.caches, &cache{keys: state("keys"), values: state("values"), batch: batch, length: length})
	}
	r.take = keras.Function(func(in stepIn) *keras.Tensor {
		return g.net.step(r, in).Slice(0, 0, 1).Slice(1, 0, 1).Slice(2, 0, 1)
	}, r)
	r.next = keras.Function(func(in stepIn) *keras.Tensor {
		x := layers.Apply(g.net.norm, layers.Pass{}, g.net.step(r, in))
		logits := layers.Apply(layers.With(g.net.tokens, layers.Args{Reverse: true}), layers.Pass{}, x)
		return logits.Widen().Reshape(batch, r.vocabulary)
	}, r)
	zeros := func(steps int) stepIn {
		return stepIn{keras.NewTensor(make([]int32, batch*steps), batch, steps), keras.NewTensor(make([]int32, batch*steps), batch, steps)}
	}
	r.in, r.many = zeros(1), zeros(prefill)
	for i, from := range [][]int32{r.tokens, r.at} {
		r.write[i] = func(dst []byte) error { return put(dst, 1, func(row, _ int) int32 { return from[row] }) }
	}
	for range batch {
		r.random = append(r.random, rand.NewPCG(0, 0))
	}
	return r, nil
}

// Variables implements [keras.Stateful]: the cache.
func (r *Generator) Variables() []*keras.Variable {
	var all []*keras.Variable
	for _, c := range r.caches {
		all = append(all, c.keys, c.values)
	}
	return all
}

// step computes the layers on tokens that follow those in r's cache.
func (n *gpt2) step(r *Generator, in stepIn) *keras.Tensor {
	steps := in.Tokens.Dim(1)
	last := tensor.Scalar(dtype.Int32, float64(r.length-1))
	first := tensor.Iota(dtype.Int32, r.batch).MulScalar(float64(r.length)).ExpandDims(1)
	inside := in.Positions.LessEqual(last)
	none := tensor.Full(dtype.Int32, float64(r.batch*r.length), r.batch, steps)
	rows := tensor.Where(inside, in.Positions.Add(first), none).Reshape(r.batch * steps)
	visible := tensor.Iota(dtype.Int32, r.length).Reshape(1, 1, r.length).LessEqual(in.Positions.ExpandDims(2)).ExpandDims(1)
	x := layers.Apply(n.tokens, layers.Pass{}, in.Tokens)
	at := n.positions.at(in.Positions.Minimum(last).Reshape(r.batch*steps)).Reshape(r.batch, steps, n.config.HiddenDim)
	x = x.Add(at)
	for i, l := range n.layers {
		c := r.caches[i]
		c.rows, c.visible = rows, visible
		x = l.step(x, c)
		c.rows, c.visible = nil, nil
	}
	return x
}

// GenerateOptions says how the next token is chosen.
type GenerateOptions struct {
	MaxNewTokens int     // tokens to generate; default: as many as fit
	Temperature  float64 // divides the logits; 0: always the most probable token, and the rest is not used
	TopK         int     // choose among so many most probable tokens; 0: all
	TopP         float64 // choose among the fewest tokens with this probability together; 0: all
	Seed         uint64  // of the choices; each prompt of a batch has random numbers of its own
	EndToken     *int32  // ends a text; default: none
}

// check returns what is wrong with the options.
func (o GenerateOptions) check() error {
	switch {
	case o.MaxNewTokens < 0:
		return fmt.Errorf("MaxNewTokens is %d, want 0 or more", o.MaxNewTokens)
	case !(o.Temperature >= 0) || math.IsInf(o.Temperature, 0):
		return fmt.Errorf("Temperature is %v, want 0 or a positive number", o.Temperature)
	case o.TopK < 0:
		return fmt.Errorf("TopK is %d, want 0 or more", o.TopK)
	case !(o.TopP >= 0 && o.TopP <= 1):
		return fmt.Errorf("TopP is %v, want a number from 0 to 1", o.TopP)
	}
	return nil
}

// Generate continues prompts and returns them with what was generated, up to
// and with EndToken. There must be as many as the generator has rows; they may
// have different lengths. Logits that are NaN or +Inf are an error, which names the
// prompt, the step (the position of the next token, from 0) and the logit.
func (r *Generator) Generate(ctx context.Context, prompts [][]int32, o GenerateOptions) ([][]int32, error) {
	texts := make([][]int32, len(prompts))
	for i, p := range prompts {
		texts[i] = slices.Clone(p)
	}
	done := make([]bool, len(prompts))
	left := len(prompts)
	for tokens, err := range r.Tokens(ctx, prompts, o) {
		if err != nil {
			return nil, err
		}
		for i, t := range tokens {
			if done[i] {
				continue
			}
			texts[i] = append(texts[i], t)
			if o.EndToken != nil && t == *o.EndToken || len(texts[i]) == r.length || o.MaxNewTokens > 0 && len(texts[i]) == len(prompts[i])+o.MaxNewTokens {
				done[i] = true
				left--
			}
		}
		if left == 0 {
			break
		}
	}
	return texts, nil
}

// Tokens continues prompts, and yields the next token of each as soon as it is
// chosen. The slice is used again for the following tokens. The iterator ends
// after MaxNewTokens or when the longest text is full; EndToken does not end it.
// Rows that are full yield 0.
func (r *Generator) Tokens(ctx context.Context, prompts [][]int32, o GenerateOptions) iter.Seq2[[]int32, error] {
	return func(yield func([]int32, error) bool) {
		if err := r.begin(ctx, prompts, o); err != nil {
			yield(nil, err)
			return
		}
		for i := 0; o.MaxNewTokens == 0 || i < o.MaxNewTokens; i++ {
			if int(slices.Min(r.at)) >= r.length-1 {
				return
			}
			if err := r.step(ctx, o); err != nil {
				yield(nil, err)
				return
			}
			if !yield(r.tokens, nil) {
				return
			}
		}
	}
}

// begin takes the prompts in, but for their last tokens.
func (r *Generator) begin(ctx context.Context, prompts [][]int32, o GenerateOptions) error {
	if err := o.check(); err != nil {
		return fmt.Errorf("hub: Generate: %w", err)
	}
	if len(prompts) != r.batch {
		return fmt.Errorf("hub: Generate: got %d prompts, want %d", len(prompts), r.batch)
	}
	longest := 0
	for i, p := range prompts {
		if len(p) == 0 || len(p) >= r.length {
			return fmt.Errorf("hub: Generate: prompt %d has %d tokens, want 1 to %d", i, len(p), r.length-1)
		}
		for _, t := range p {
			if t < 0 || int(t) >= r.vocabulary {
				return fmt.Errorf("hub: Generate: prompt %d has token %d, want tokens below %d", i, t, r.vocabulary)
			}
		}
		longest = max(longest, len(p)-1)
		r.tokens[i], r.at[i] = p[len(p)-1], int32(len(p)-1)
		*r.random[i] = *rand.NewPCG(o.Seed, uint64(i))
	}
	for from := 0; from < longest; from += prefill {
		tokens := func(row, step int) int32 {
			if at := from + step; at < len(prompts[row])-1 {
				return prompts[row][at]
			}
			return 0
		}
		positions := func(row, step int) int32 {
			if at := from + step; at < len(prompts[row])-1 {
				return int32(at)
			}
			return int32(r.length)
		}
		err := errors.Join(
			tensor.Overwrite(r.many.Tokens, func(dst []byte) error { return put(dst, prefill, tokens) }),
			tensor.Overwrite(r.many.Positions, func(dst []byte) error { return put(dst, prefill, positions) }))
		if err != nil {
			return err
		}
		if err := r.take.Run(ctx, r.many); err != nil {
			return err
		}
	}
	return nil
}

// put writes int32 elements [rows steps].
func put(dst []byte, steps int, value func(row, step int) int32) error {
	for i := range len(dst) / 4 {
		binary.NativeEndian.PutUint32(dst[4*i:], uint32(value(i/steps, i%steps)))
	}
	return nil
}

// step computes the logits after the last tokens and chooses the next ones.
func (r *Generator) step(ctx context.Context, o GenerateOptions) error {
	y, err := r.logits(ctx)
	if err != nil {
		return err
	}
	defer y.Release()
	b, err := tensor.HostBytes(y)
	if err != nil {
		if b, err = y.Bytes(); err != nil { // of a device with memory of its own
			return err
		}
	}
	for i := range r.tokens {
		if int(r.at[i]) >= r.length-1 {
			r.tokens[i] = 0
			continue
		}
		token, err := r.choose(b[4*i*r.vocabulary:4*(i+1)*r.vocabulary], i, o)
		if err != nil {
			return fmt.Errorf("hub: Generate: prompt %d: step %d: %w", i, r.at[i]+1, err)
		}
		r.tokens[i] = token
		r.at[i]++
	}
	return nil
}

// logits computes the logits after the last tokens, [batch vocabulary].
func (r *Generator) logits(ctx context.Context) (*keras.Tensor, error) {
	if err := errors.Join(tensor.Overwrite(r.in.Tokens, r.write[0]), tensor.Overwrite(r.in.Positions, r.write[1])); err != nil {
		return nil, err
	}
	return r.next.Call(ctx, r.in)
}

// choose returns the next token of a row by its logits. NaN, +Inf and logits that
// are all -Inf are errors: there is no probability to choose by. A single -Inf is a
// token that is never chosen.
func (r *Generator) choose(logits []byte, row int, o GenerateOptions) (int32, error) {
	logit := func(i int) float32 { return math.Float32frombits(binary.NativeEndian.Uint32(logits[4*i:])) }
	best, most := 0, float32(math.Inf(-1))
	for i := range r.vocabulary {
		v := logit(i)
		if v != v || v > math.MaxFloat32 {
			return 0, fmt.Errorf("the logit of token %d is %v, want a finite number", i, v)
		}
		if v > most {
			best, most = i, v
		}
	}
	if math.IsInf(float64(most), -1) {
		return 0, errors.New("all logits are -Inf, want a finite number")
	}
	if o.Temperature == 0 || o.TopK == 1 {
		return int32(best), nil
	}
	all := r.choices[:0]
	for i := range r.vocabulary {
		all = append(all, choice{int32(i), logit(i)})
	}
	if o.TopK > 0 && o.TopK < len(all) {
		all = largest(all, o.TopK)
	}
	var sum float64
	for i := range all {
		p := portablemath.Exp(float64(all[i].p-most) / o.Temperature)
		all[i].p = float32(p)
		sum += p
	}
	if o.TopP > 0 && o.TopP < 1 {
		all, sum = nucleus(all, sum, o.TopP)
	}
	// 53 random bits.
	u := float64(r.random[row].Uint64()>>11) / (1 << 53) * sum
	for _, c := range all {
		if u -= float64(c.p); u < 0 {
			return c.token, nil
		}
	}
	return int32(best), nil // for what rounding left over
}

// largest moves the k choices of the largest p to the front, in descending
// order, and of equal ones those of the smallest tokens.
func largest(all []choice, k int) []choice {
	// A heap of the k largest so far, the smallest of them first.
	heap := all[:k]
	down := func(i int) {
		for {
			child := 2*i + 1
			if child >= k {
				return
			}
			if child+1 < k && descending(heap[child+1], heap[child]) > 0 {
				child++
			}
			if descending(heap[child], heap[i]) <= 0 {
				return
			}
			heap[i], heap[child] = heap[child], heap[i]
			i = child
		}
	}
	for i := k/2 - 1; i >= 0; i-- {
		down(i)
	}
	for i := k; i < len(all); i++ {
		if descending(all[i], heap[0]) < 0 {
			heap[0], all[i] = all[i], heap[0]
			down(0)
		}
	}
	slices.SortFunc(heap, descending)
	return heap
}

// nucleus returns the fewest choices that have together the share p of sum, in
// descending order, and their sum.
func nucleus(all []choice, sum, p float64) ([]choice, float64) {
	// Choices below this have less than 1-p of the sum together.
	least := float32((1 - p) * sum / float64(len(all)))
	kept := all[:0]
	for _, c := range all {
		if c.p >= least {
			kept = append(kept, c)
		}
	}
	slices.SortFunc(kept, descending)
	var have float64
	for i, c := range kept {
		if have += float64(c.p); have >= p*sum {
			return kept[:i+1], have
		}
	}
	return kept, have
}

// descending orders choices by p, and equal ones by token.
func descending(a, b choice) int {
	return cmp.Or(cmp.Compare(b.p, a.p), cmp.Compare(a.token, b.token))
}
