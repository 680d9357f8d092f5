package hub

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/keras"
)

// ints returns the elements of an int32 tensor.
func ints(t *keras.Tensor) []int32 {
	var all []int32
	for _, v := range must(t.Int64s()) {
		all = append(all, int32(v))
	}
	return all
}

// TestGenerateGreedy compares with transformers, alone and beside another prompt.
func TestGenerateGreedy(t *testing.T) {
	for _, dir := range directories("gpt2") {
		s := expected(t, dir)
		m := must(GPT2(dir))
		prompt, want := ints(must(s.Tensor("prompt"))), ints(must(s.Tensor("greedy")))
		g := must(m.Generator(1, 0))
		for range 2 { // the second time with what the first left in the cache
			got := must(g.Generate(t.Context(), [][]int32{prompt}, GenerateOptions{MaxNewTokens: len(want) - len(prompt)}))
			if !slices.Equal(got[0], want) {
				t.Errorf("%s: got %v, want %v", dir, got[0], want)
			}
		}
		// A longer prompt, which is what was generated, and one of one token.
		g = must(m.Generator(2, len(want)))
		both := must(g.Generate(t.Context(), [][]int32{prompt[:1], want[:len(want)-2]}, GenerateOptions{}))
		if !slices.Equal(both[1], want) {
			t.Errorf("%s: got %v, want %v", dir, both[1], want)
		}
		if alone := must(must(m.Generator(1, len(want))).Generate(t.Context(), [][]int32{prompt[:1]}, GenerateOptions{})); !slices.Equal(both[0], alone[0]) {
			t.Errorf("%s: got %v beside another prompt, want %v", dir, both[0], alone[0])
		}
	}
}

// TestGenerateLogits compares logits with the cache to those of the whole text.
func TestGenerateLogits(t *testing.T) {
	for name, limit := range map[string]float64{"float32": 1e-5, "mixed_bfloat16": 0.05, "mixed_float16": 0.01} {
		under(t, name)
		m := must(NewGPT2LM(GPT2Backbone{VocabularySize: 50, NumLayers: 2, NumHeads: 2, HiddenDim: 16, IntermediateDim: 20, MaxSequenceLength: 80}))
		text := make([]int32, 70) // more than two runs of prefill
		ones := make([]int32, len(text))
		for i := range text {
			text[i], ones[i] = int32(i*i%50), 1
		}
		y := must(m.Predict(t.Context(), keras.Tuple(keras.NewTensor(text, 1, len(text)), keras.NewTensor(ones, 1, len(text)))))
		all := must(y.Unpack()[1].Float64s())
		g := must(m.Generator(1, 75))
		if err := g.begin(t.Context(), [][]int32{text}, GenerateOptions{}); err != nil {
			t.Fatal(err)
		}
		got := must(must(g.logits(t.Context())).Float64s())
		var size float64
		for _, v := range got {
			size = max(size, math.Abs(v))
		}
		for i, v := range got {
			if want := all[69*50+i]; math.Abs(v-want) > limit*size {
				t.Errorf("%s: logit %d is %v, want %v", name, i, v, want)
			}
		}
	}
}

// TestGenerateAllocs: a new token allocates nothing, greedy or drawn.
func TestGenerateAllocs(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	m := must(NewGPT2LM(GPT2Backbone{VocabularySize: 100, NumLayers: 1, NumHeads: 2, HiddenDim: 16, IntermediateDim: 20, MaxSequenceLength: 200}))
	g := must(m.Generator(2, 0))
	for _, o := range []GenerateOptions{{}, {Temperature: 0.8, TopK: 30, TopP: 0.9}, {Temperature: 1}} {
		if err := g.begin(t.Context(), [][]int32{{1}, {2, 3}}, o); err != nil {
			t.Fatal(err)
		}
		step := func() {
			if err := g.step(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			step()
		}
		if n := testing.AllocsPerRun(50, step); n != 0 {
			t.Errorf("%+v: a token allocates %v times, want 0", o, n)
		}
	}
	if n := g.next.Programs(); n != 1 {
		t.Errorf("got %d plans for a token, want 1", n)
	}
}

// logitsOf makes the bytes of logits.
func logitsOf(logits ...float32) []byte {
	b, err := keras.NewTensor(logits, len(logits)).Bytes()
	if err != nil {
		panic(err)
	}
	return b
}

// TestChoose compares the shares of drawn tokens with their probabilities.
func TestChoose(t *testing.T) {
	m := must(NewGPT2LM(GPT2Backbone{VocabularySize: 6, NumLayers: 1, NumHeads: 1, HiddenDim: 4, IntermediateDim: 4, MaxSequenceLength: 8}))
	ln := func(p float64) float32 { return float32(math.Log(p)) }
	b := logitsOf(ln(0.05), ln(0.3), ln(0.1), ln(0.4), ln(0.1), ln(0.05))
	for _, c := range []struct {
		o    GenerateOptions
		want []float64
	}{
		{GenerateOptions{}, []float64{0, 0, 0, 1, 0, 0}},
		{GenerateOptions{Temperature: 1}, []float64{0.05, 0.3, 0.1, 0.4, 0.1, 0.05}},
		{GenerateOptions{Temperature: 0.5}, []float64{0.0025 / 0.275, 0.09 / 0.275, 0.01 / 0.275, 0.16 / 0.275, 0.01 / 0.275, 0.0025 / 0.275}},
		{GenerateOptions{Temperature: 1, TopK: 3}, []float64{0, 0.375, 0.125, 0.5, 0, 0}},
		{GenerateOptions{Temperature: 1, TopP: 0.69}, []float64{0, 3 / 7.0, 0, 4 / 7.0, 0, 0}},
		{GenerateOptions{Temperature: 1, TopP: 0.71}, []float64{0, 0.375, 0.125, 0.5, 0, 0}},
		{GenerateOptions{Temperature: 1, TopK: 4, TopP: 0.4}, []float64{0, 0, 0, 1, 0, 0}},
		{GenerateOptions{Temperature: 1, TopK: 1}, []float64{0, 0, 0, 1, 0, 0}},
	} {
		g := must(m.Generator(1, 0))
		const n = 20000
		count := make([]float64, 6)
		for range n {
			count[must(g.choose(b, 0, c.o))]++
		}
		for i, p := range c.want {
			if got := count[i] / n; math.Abs(got-p) > 5*math.Sqrt(p*(1-p)/n) {
				t.Errorf("%+v: token %d has share %v, want %v", c.o, i, got, p)
			}
		}
	}
}

// TestGenerateNotFinite: logits without probabilities are errors, and a weight that is
// NaN makes one that names prompt and step.
func TestGenerateNotFinite(t *testing.T) {
	m := must(NewGPT2LM(GPT2Backbone{VocabularySize: 4, NumLayers: 1, NumHeads: 1, HiddenDim: 4, IntermediateDim: 4, MaxSequenceLength: 8}))
	g := must(m.Generator(1, 0))
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, o := range []GenerateOptions{{}, {Temperature: 1}, {Temperature: 1, TopK: 2, TopP: 0.5}} {
		for _, c := range []struct {
			logits []byte
			want   string
		}{
			{logitsOf(0, nan, 1, 2), "the logit of token 1 is NaN"},
			{logitsOf(0, 1, 2, inf), "the logit of token 3 is +Inf"},
			{logitsOf(-inf, -inf, -inf, -inf), "all logits are -Inf"},
		} {
			if token, err := g.choose(c.logits, 0, o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: got token %d, error %v, want one with %s", o, token, err, c.want)
			}
		}
		if token, err := g.choose(logitsOf(-inf, -inf, -3, -inf), 0, o); err != nil || token != 2 {
			t.Errorf("%+v: got token %d, error %v, want 2, the only one that is not -Inf", o, token, err)
		}
	}
	for _, w := range m.Weights() {
		if w.Name() == "layer_norm/beta" {
			if err := w.Set([]float64{math.NaN(), 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
		}
	}
	texts, err := g.Generate(t.Context(), [][]int32{{1, 2, 3}}, GenerateOptions{MaxNewTokens: 2})
	if want := "hub: Generate: prompt 0: step 3: the logit of token 0 is NaN, want a finite number"; err == nil || err.Error() != want {
		t.Errorf("got texts %v, error %v, want %s", texts, err, want)
	}
}

// TestGenerateSeeds: a seed gives the same text again, for each row its own.
func TestGenerateSeeds(t *testing.T) {
	m := must(NewGPT2LM(GPT2Backbone{VocabularySize: 200, NumLayers: 1, NumHeads: 1, HiddenDim: 8, IntermediateDim: 8, MaxSequenceLength: 40}))
	g := must(m.Generator(2, 0))
	texts := func(seed uint64) [][]int32 {
		return must(g.Generate(t.Context(), [][]int32{{7}, {7}}, GenerateOptions{Temperature: 1, Seed: seed}))
	}
	a, b, c := texts(1), texts(2), texts(1)
	if !slices.Equal(a[0], c[0]) || !slices.Equal(a[1], c[1]) || slices.Equal(a[0], a[1]) || slices.Equal(a[0], b[0]) {
		t.Errorf("got %v, %v and %v with the first seed again", a, b, c)
	}
	if len(a[0]) != 40 {
		t.Errorf("got %d tokens, want 40", len(a[0]))
	}
	end := a[0][5]
	short := must(g.Generate(t.Context(), [][]int32{{7}, {7}}, GenerateOptions{Temperature: 1, Seed: 1, EndToken: &end}))[0]
	if at := slices.Index(a[0][1:], end) + 2; !slices.Equal(short, a[0][:at]) {
		t.Errorf("got %v, want %v", short, a[0][:at])
	}
}

// TestGenerateErrors: what is refused.
func TestGenerateErrors(t *testing.T) {
	m := must(NewGPT2LM(GPT2Backbone{VocabularySize: 20, NumLayers: 1, NumHeads: 1, HiddenDim: 4, IntermediateDim: 4, MaxSequenceLength: 8}))
	if _, err := m.Generator(1, 9); err == nil {
		t.Error("got a generator for more tokens than the model has positions")
	}
	g := must(m.Generator(1, 0))
	for _, c := range []struct {
		prompts [][]int32
		o       GenerateOptions
	}{
		{nil, GenerateOptions{}}, {[][]int32{{}}, GenerateOptions{}}, {[][]int32{{20}}, GenerateOptions{}}, {[][]int32{{-1}}, GenerateOptions{}},
		{[][]int32{make([]int32, 8)}, GenerateOptions{}}, {[][]int32{{1}, {1}}, GenerateOptions{}},
		{[][]int32{{1}}, GenerateOptions{Temperature: -1}}, {[][]int32{{1}}, GenerateOptions{Temperature: math.NaN()}},
		{[][]int32{{1}}, GenerateOptions{TopP: 1.5}}, {[][]int32{{1}}, GenerateOptions{TopK: -1}}, {[][]int32{{1}}, GenerateOptions{MaxNewTokens: -1}},
	} {
		if _, err := g.Generate(t.Context(), c.prompts, c.o); err == nil {
			t.Errorf("%v with %+v: got no error", c.prompts, c.o)
		}
	}
}
