package main

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
	"github.com/mezzo-ml/mezzo/policy"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func values(t *testing.T, x *keras.Tensor) []float32 {
	t.Helper()
	v, err := x.Values()
	check(t, err)
	return v
}

// TestBLEU: scores are those of sacrebleu 2.5.1, corpus_bleu with tokenize="none" and
// smooth_method="none".
func TestBLEU(t *testing.T) {
	for _, c := range []struct {
		translations, references string // sentences between semicolons
		want                     float64
	}{
		{"le chat noir voit la fille .", "le chat noir voit la fille .", 100},
		{"the cat sat on the mat today;a b c d e f", "the cat sat on a mat yesterday;a b c d f e g h", 42.186626528367775},
		{"the the the the the the the", "the cat is on the mat the the the x", 0},
		{"a b c d e f g h i;x y z w", "a b c d e f;x y z w", 67.94478996250514},
		{"a b c;d e f g h", "a b c;d e f g h i j", 77.88007830714052},
		{";a b c d", "a;a b c d", 100 * math.Exp(-0.25)},
	} {
		text := func(s string) (out [][]string) {
			for part := range strings.SplitSeq(s, ";") {
				out = append(out, strings.Fields(part))
			}
			return out
		}
		if got := bleu(text(c.translations), text(c.references)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%q for %q: got %v, want %v", c.translations, c.references, got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int][3]string{
		1: {"one", "un", "first"}, 12: {"twelve", "douze", "twelfth"}, 16: {"sixteen", "seize", "sixteenth"},
		17: {"seventeen", "dix sept", "seventeenth"}, 20: {"twenty", "vingt", "twentieth"},
		21: {"twenty one", "vingt et un", "twenty first"}, 30: {"thirty", "trente", "thirtieth"},
		60: {"sixty", "soixante", ""}, 70: {"seventy", "soixante dix", ""},
		71: {"seventy one", "soixante et onze", ""}, 79: {"seventy nine", "soixante dix neuf", ""},
		80: {"eighty", "quatre vingts", ""}, 81: {"eighty one", "quatre vingt un", ""},
		90: {"ninety", "quatre vingt dix", ""}, 91: {"ninety one", "quatre vingt onze", ""},
		99: {"ninety nine", "quatre vingt dix neuf", ""},
	} {
		got := [3]string{englishNumber(n), frenchNumber(n)}
		if want[2] != "" {
			got[2] = ordinal(n)
		}
		if got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

// TestConjugate: the verb agrees with its person, and a pronoun stands before it.
func TestConjugate(t *testing.T) {
	see := verbs[slices.IndexFunc(verbs, func(v verb) bool { return v.base == "see" })]
	for _, c := range []struct {
		person, tense   int
		negated         bool
		before          string
		english, french string
	}{
		{third, present, false, "", "sees", "voit"},
		{third, present, true, "la", "does not see", "ne la voit pas"},
		{first, past, false, "les", "saw", "les voyais"},
		{firstPlural, past, true, "", "did not see", "ne voyions pas"},
		{second, future, false, "le", "will see", "le verrez"},
		{thirdPlural, future, true, "", "will not see", "ne verront pas"},
		{thirdPlural, present, true, "", "do not see", "ne voient pas"},
	} {
		if english, french := see.conjugate(c.person, c.tense, c.negated, c.before); english != c.english || french != c.french {
			t.Errorf("%+v: got %q, %q", c, english, french)
		}
	}
}

// TestSentences: sentences differ, are the same for the same seed, and come back from
// the vocabularies that are made of them.
func TestSentences(t *testing.T) {
	all := sentences(2000, 3)
	c := newCorpus(all, 1500)
	seen := map[string]bool{}
	for i, p := range sentences(2000, 3) {
		english := strings.Join(p.english, " ")
		if seen[english] {
			t.Fatalf("sentence %q a second time", english)
		}
		seen[english] = true
		if french := c.french.decode(c.french.encode(all[i].french)); !slices.Equal(french, p.french) || english != strings.Join(all[i].english, " ") {
			t.Fatalf("sentence %d: got %q, want %q", i, french, p.french)
		}
		for _, w := range slices.Concat(p.english, p.french) {
			if w == "" || w == "-" || strings.ContainsAny(w, "'’") {
				t.Fatalf("sentence %d: word %q in %q", i, w, p)
			}
		}
	}
	if len(c.train) != 1500 || len(c.test) != 500 {
		t.Errorf("got %d and %d sentences", len(c.train), len(c.test))
	}
}

// TestNoam: the largest rate is at the end of the warmup, features^-½·warmup^-½.
func TestNoam(t *testing.T) {
	s := &noam{Factor: 2, Features: 512, Warmup: 4000}
	for step, want := range map[float64]float64{
		0: 2 * math.Pow(512, -0.5) * math.Pow(4000, -1.5), 1999: 0.5 * 2 * math.Pow(512*4000, -0.5),
		3999: 2 * math.Pow(512*4000, -0.5), 15999: math.Pow(512*4000, -0.5),
	} {
		got, err := s.Rate(ops.Scalar(keras.Int64, step)).Item()
		check(t, err)
		if math.Abs(got/want-1) > 1e-6 { // a few roundings of float32
			t.Errorf("step %v: got %v, want %v", step, got, want)
		}
	}
}

// TestSmoothed: of three words the target gets 1-s+s/3, the others s/3; steps that are
// left out by the mask do not count.
func TestSmoothed(t *testing.T) {
	logits := keras.NewTensor([]float32{1, 2, 3, 9, 9, 9}, 1, 2, 3).WithMask(keras.NewTensor([]bool{true, false}, 1, 2))
	got, err := (&smoothed{3, 0.3}).Call(keras.NewTensor([]int32{2, 0}, 1, 2), logits).Item()
	check(t, err)
	sum := math.Log(math.Exp(1) + math.Exp(2) + math.Exp(3))
	if want := sum - 0.8*3 - 0.1*2 - 0.1*1; math.Abs(got-want) > 1e-6 {
		t.Errorf("got %v, want %v", got, want)
	}
}

// small is an untrained transformer and sentences for it.
func small(t *testing.T) (*transformer, *corpus) {
	t.Helper()
	c := newCorpus(sentences(8, 1), 4)
	s := size{len(c.english.words), len(c.french.words), c.steps, 16, 32, 2, 1, 0.1}
	m, err := s.transformer(1)
	check(t, err)
	return m, c
}

// TestMasks: no prediction depends on French words that follow; it depends on the words
// before and on the English ones.
func TestMasks(t *testing.T) {
	for _, name := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		t.Run(name, func(t *testing.T) {
			defer policy.SetGlobal(policy.SetGlobal(name))
			m, c := small(t)
			english, french, _ := c.tensors(c.train[:1])
			predict := func(m *keras.Model, x *keras.Tensor) []float32 {
				y, err := m.Predict(context.Background(), x)
				check(t, err)
				return values(t, y)
			}
			before := predict(m.whole, keras.Tuple(english, french))
			words, err := french.Int64s()
			check(t, err)
			const from = 3
			changed := make([]int32, c.steps)
			for i := range changed {
				changed[i] = int32(words[i])
				if i >= from && words[i] != padding {
					changed[i] = specials + (changed[i]+1)%5
				}
			}
			after := predict(m.whole, keras.Tuple(english, keras.NewTensor(changed, 1, c.steps)))
			n := len(c.french.words)
			if !slices.Equal(before[:from*n], after[:from*n]) {
				t.Error("predictions depend on words that follow")
			}
			if slices.Equal(before[from*n:(from+1)*n], after[from*n:(from+1)*n]) {
				t.Error("a prediction does not depend on its word")
			}
			// One more English word changes them.
			ids, err := english.Int64s()
			check(t, err)
			last := slices.Index(ids, padding)
			if last < 0 {
				t.Fatal("the sentence has no padding")
			}
			for i, id := range ids {
				changed[i] = int32(id)
			}
			changed[last] = end
			if after := predict(m.whole, keras.Tuple(keras.NewTensor(changed, 1, c.steps), french)); slices.Equal(before[:n], after[:n]) {
				t.Error("a prediction does not depend on the English words")
			}
		})
	}
}

// TestTranslate: greedy decoding finds the most probable word at each step, as the whole
// model predicts it, and more beams find nothing that is less probable.
func TestTranslate(t *testing.T) {
	for _, name := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		t.Run(name, func(t *testing.T) {
			defer policy.SetGlobal(policy.SetGlobal(name))
			m, c := small(t)
			english, _, _ := c.tensors(c.test)
			tr := m.translator(c.steps)
			greedy, err := tr.translate(context.Background(), english, 1)
			check(t, err)
			score := func(found [][]int32, best bool) (all []float64) {
				french := make([]int32, len(found)*c.steps)
				for i, ids := range found {
					copy(french[i*c.steps:], append([]int32{start}, ids...))
				}
				y, err := m.whole.Predict(context.Background(), keras.Tuple(english, keras.NewTensor(french, len(found), c.steps)))
				check(t, err)
				logs := values(t, y.WithMask(nil).LogSoftmax(-1))
				n := len(c.french.words)
				for i, ids := range found {
					h := hypothesis{words: append([]int32{start}, ids...)}
					for step, id := range ids {
						row := logs[(i*c.steps+step)*n:][:n]
						// The two programs may fuse other operations: a step of bfloat16.
						if most := slices.Max(row); best && float64(most-row[id]) > 0x1p-7*math.Abs(float64(most)) {
							t.Errorf("sentence %d, step %d: got word %d with %v, want one with %v", i, step, id, row[id], most)
						}
						h.score += float64(row[id])
					}
					all = append(all, h.normalized())
				}
				return all
			}
			one := score(greedy, true)
			wide, err := tr.translate(context.Background(), english, 4)
			check(t, err)
			better := 0
			for i, s := range score(wide, false) {
				if s > one[i]+1e-3 {
					better++
				}
				// Beam search may lose the greedy hypothesis on the way, but not by much.
				if s < 1.1*one[i] {
					t.Errorf("sentence %d: four beams have %v, one %v", i, s, one[i])
				}
			}
			if better == 0 {
				t.Error("four beams found nothing more probable than one")
			}
		})
	}
}
