package tokenizer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/mezzo-ml/mezzo/keras"
)

// bertOf makes BERT's tokenizer of a few pieces.
func bertOf(t testing.TB) *Tokenizer {
	t.Helper()
	pieces := "[PAD] [UNK] [CLS] [SEP] [MASK] un ##aff ##able the day ##s ! 一 a"
	path := filepath.Join(t.TempDir(), "vocab.txt")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(pieces, " ", "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := Read(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// with is k with options.
func with(t testing.TB, k *Tokenizer, o Options) *Tokenizer {
	t.Helper()
	c, err := k.With(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEncode(t *testing.T) {
	k := bertOf(t)
	const text = "Unaffable 一dáys\x00 [MASK]!\xff"
	e := k.Encode(text)
	if want := []int32{2, 5, 6, 7, 12, 9, 10, 4, 11, 3}; !slices.Equal(e.IDs, want) {
		t.Errorf("got %v %q, want %v", e.IDs, e.Tokens, want)
	}
	var parts []string
	for _, o := range e.Offsets {
		parts = append(parts, text[o[0]:o[1]])
	}
	if want := []string{"", "Un", "aff", "able", "一", "dáy", "s", "[MASK]", "!", ""}; !slices.Equal(parts, want) {
		t.Errorf("got %q, want %q", parts, want)
	}
	if got := k.Decode(e.IDs, true); got != "unaffable 一 days!" {
		t.Errorf("got %q", got)
	}
	if id, ok := k.ID("##s"); !ok || id != 10 || k.Token(10) != "##s" || k.Token(99) != "" || k.VocabularySize() != 14 {
		t.Errorf("got %d, %v, %q, %q, %d", id, ok, k.Token(10), k.Token(99), k.VocabularySize())
	}
	bare := with(t, k, Options{NoSpecialTokens: true}).EncodePair("the", "day")
	if !slices.Equal(bare.IDs, []int32{8, 9}) || !slices.Equal(bare.Text, []int{0, 1}) {
		t.Errorf("got %+v", bare)
	}
}

func TestBatch(t *testing.T) {
	ints := func(x *keras.Tensor) []int64 {
		v, err := x.Int64s()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	k := bertOf(t)
	ids, _, mask := k.Batch("the day", "days!", "")
	if got, want := fmt.Sprint(ids.Type(), ints(ids), ints(mask)), "int32[3 5] [2 8 9 3 0 2 9 10 11 3 2 3 0 0 0] [1 1 1 1 0 1 1 1 1 1 1 1 0 0 0]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{PadTo: 8, PadLeft: true, Pad: "!"}, "[11 11 2 8 3 9 10 3] [0 0 0 0 0 1 1 1] [0 0 1 1 1 1 1 1]"},
		{Options{MaxLength: 5}, "[2 8 3 9 3] [0 0 0 1 1] [1 1 1 1 1]"},
		{Options{MaxLength: 5, Truncation: "only_first"}, "[2 3 9 10 3] [0 0 1 1 1] [1 1 1 1 1]"},
		{Options{MaxLength: 5, Truncation: "only_second", TruncateLeft: true}, "[2 8 3 10 3] [0 0 0 1 1] [1 1 1 1 1]"},
		{Options{MaxLength: 3}, "[2 3 3] [0 0 1] [1 1 1]"},
	} {
		ids, types, mask := with(t, k, c.o).BatchPairs([2]string{"the", "days"})
		if got := fmt.Sprint(ints(ids), ints(types), ints(mask)); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.o, got, c.want)
		}
	}
}

// TestOptionErrors: options that no text can be encoded with.
func TestOptionErrors(t *testing.T) {
	k := bertOf(t)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Pad: "[NONE]"}, `Pad is "[NONE]", want a token of the vocabulary`},
		{Options{Truncation: "longest"}, `Truncation is "longest", want one of ["longest_first" "only_first" "only_second"]`},
		{Options{PadTo: -1}, "PadTo is -1, want 0 or more"},
		{Options{MaxLength: -1}, "MaxLength is -1, want 0 or more"},
		{Options{MaxLength: 2}, "MaxLength is 2, want 0 or at least 3, the number of special tokens around a pair"},
	} {
		if _, err := k.With(c.o); err == nil || err.Error() != "tokenizer: With: "+c.want {
			t.Errorf("%+v: got error %v, want %s", c.o, err, c.want)
		}
	}
	if e := with(t, k, Options{MaxLength: 1, NoSpecialTokens: true}).Encode("the day"); e.Len() != 1 {
		t.Errorf("got %d tokens, want 1", e.Len())
	}
}

// TestPadID: the file's pad_id stays the default of With.
func TestPadID(t *testing.T) {
	k, err := Parse([]byte(`{"model":{"type":"WordLevel","vocab":{"[PAD]":0,"a":1,"end":2},"unk_token":"a"},"padding":{"pad_id":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := func(k *Tokenizer, id int32) *Tokenizer {
		t.Helper()
		if got := with(t, k, Options{PadTo: 2, Pad: k.options.Pad}).Encode("a"); !slices.Equal(got.IDs, []int32{1, id}) {
			t.Errorf("got %v, want padding with token %d", got.IDs, id)
		}
		return k
	}
	want(k, 2)
	other := want(with(t, k, Options{Pad: "[PAD]"}), 0)
	want(with(t, other, Options{}), 2)
}

// TestErrors: files that are broken or have parts that are not supported.
func TestErrors(t *testing.T) {
	whole, err := os.ReadFile("testdata/bert.json")
	if err != nil {
		t.Fatal(err)
	}
	change := func(old, new string) string {
		t.Helper()
		if !strings.Contains(string(whole), old) {
			t.Fatalf("the file has no %s", old)
		}
		return strings.Replace(string(whole), old, new, 1)
	}
	for _, c := range []struct{ content, within string }{
		{"", "unexpected end of JSON"},
		{"{}", "model: there is none"},
		{`{"model":{"type":"Bytes","vocab":{}}}`, `"Bytes", which is not supported`},
		{`{"model":{"type":"WordPiece","vocab":{"a":0}}}`, "no unk_token"},
		{`{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, "number -1"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`, `has "b", which is not in the vocabulary`},
		{`{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}}`, `makes "ab", which is not in the vocabulary`},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1}}`, "dropout"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}}`, "want two tokens"},
		{`{"model":{"type":"Unigram","vocab":[["a"]],"unk_id":0}}`, "want a token and a number"},
		{`{"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":1}}`, "want less than 1"},
		{change(`"BertNormalizer"`, `"Other"`), `normalizer: got type "Other"`},
		{change(`"BertPreTokenizer"`, `"Other"`), `pre_tokenizer: got type "Other"`},
		{change(`"TemplateProcessing"`, `"Other"`), `post_processor: got type "Other"`},
		{change(`"decoder":{"type":"WordPiece"`, `"decoder":{"type":"Other"`), `decoder: got type "Other"`},
		{change(`{"SpecialToken":{"id":"[CLS]"`, `{"SpecialToken":{"id":"[X]"`), "neither a text nor one of special_tokens"},
		{change(`{"id":0,"content":"[PAD]"`, `{"id":3,"content":"[PAD]"`), "has number 3, and 0 in the model's"},
		{strings.Repeat("[", 40), "nested more than"},
	} {
		if _, err := Parse([]byte(c.content)); err == nil || !strings.Contains(err.Error(), c.within) || len(err.Error()) > 600 {
			t.Errorf("%.80s: got error %v, want one with %s", c.content, err, c.within)
		}
	}
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "neither tokenizer.json nor") {
		t.Errorf("got error %v", err)
	}
}

// TestDecoders compares with what tokenizers 0.23 returns.
func TestDecoders(t *testing.T) {
	for _, c := range []struct {
		config string
		tokens []string
		want   string
	}{
		{`{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`,
			[]string{"▁▁a", "<0xE4>", "<0xB8>", "<0x80>", "<0xff>", "b", "<0xE4>"}, " a\ufffd\ufffd\ufffd\ufffdb\ufffd"},
		{`{"type":"ByteFallback"}`, []string{"<0xE4>", "<0xB8>", "<0x80>", "x"}, "一x"},
		{`{"type":"BPEDecoder","suffix":"</w>"}`, []string{"a", "b</w>", "c</w>"}, "ab c"},
		{`{"type":"ByteLevel"}`, []string{"Ġa", "ä", "¸", "Ģ", "ä", "x", "ð", "Ł", "é", "日"}, " a一\ufffdx\ufffd\ufffd日"},
		{`{"type":"WordPiece","prefix":"##","cleanup":true}`, []string{"I", "do", "not", "##s", ",", "n't"}, "I do nots,n't"},
	} {
		d, err := parseDecoder([]byte(c.config))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(d(slices.Clone(c.tokens)), ""); got != c.want {
			t.Errorf("%s: got %q, want %q", c.config, got, c.want)
		}
	}
}

// TestPreTokenizers compares with what tokenizers 0.23 returns.
func TestPreTokenizers(t *testing.T) {
	const sample = "ab--c 12, d-"
	for config, want := range map[string]string{
		`{"type":"Whitespace"}`:                                                                   `["ab" "--" "c" "12" "," "d" "-"]`,
		`{"type":"WhitespaceSplit"}`:                                                              `["ab--c" "12," "d-"]`,
		`{"type":"Digits","individual_digits":false}`:                                             `["ab--c " "12" ", d-"]`,
		`{"type":"Digits","individual_digits":true}`:                                              `["ab--c " "1" "2" ", d-"]`,
		`{"type":"Punctuation","behavior":"Contiguous"}`:                                          `["ab" "--" "c 12" "," " d" "-"]`,
		`{"type":"Split","pattern":{"String":"-"},"behavior":"Removed","invert":false}`:           `["ab" "c 12, d"]`,
		`{"type":"Split","pattern":{"String":"-"},"behavior":"Isolated","invert":false}`:          `["ab" "-" "-" "c 12, d" "-"]`,
		`{"type":"Split","pattern":{"String":"-"},"behavior":"MergedWithPrevious"}`:               `["ab-" "-" "c 12, d-"]`,
		`{"type":"Split","pattern":{"String":"-"},"behavior":"MergedWithNext"}`:                   `["ab" "-" "-c 12, d" "-"]`,
		`{"type":"Split","pattern":{"Regex":"[a-z]+"},"behavior":"Removed","invert":true}`:        `["ab" "c" "d"]`,
		`{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Punctuation"}]}`: `["ab" "-" "-" "c" "12" "," "d" "-"]`,
	} {
		f, err := parsePreTokenizer([]byte(config))
		if err != nil {
			t.Fatal(config, err)
		}
		var got []string
		for _, p := range f([]text{textOf(sample, 0)}) {
			got = append(got, p.String())
		}
		if s := fmt.Sprintf("%q", got); s != want {
			t.Errorf("%s: got %s, want %s", config, s, want)
		}
	}
}

// TestSets: each set is sorted, and right for characters that everybody knows.
func TestSets(t *testing.T) {
	all := sets()
	for name, s := range map[string]*set{"control": all.control, "chinese": all.chinese, "nonspacing": all.nonspacing, "mark": all.mark, "punctuation": all.punctuation,
		"white": all.white, "letter": all.letter, "number": all.number, "numeric": all.numeric, "wordLike": all.wordLike} {
		if len(s.edges) < 4 || !slices.IsSorted(s.edges) {
			t.Errorf("%s: got %d edges", name, len(s.edges))
		}
	}
	for r := range rune(0x800) {
		if all.letter.has(r) != unicode.IsLetter(r) || all.number.has(r) != unicode.IsNumber(r) || all.white.has(r) != unicode.IsSpace(r) {
			t.Errorf("%U: got letter %v, number %v, white %v", r, all.letter.has(r), all.number.has(r), all.white.has(r))
		}
	}
}

// FuzzEncode: tokens are in order, within the text and between characters, and
// byte-level tokens decode to the text.
func FuzzEncode(f *testing.F) {
	var all []*Tokenizer
	for _, name := range []string{"bert", "gpt2", "unigram"} {
		k, err := Read("testdata/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, k)
	}
	f.Add("Äpfel [MASK] new_word 한국어\u0301\u0345 \xff<|endoftext|>  İ")
	f.Fuzz(func(t *testing.T, s string) {
		for i, k := range all {
			e := k.Encode(s)
			for j, o := range e.Offsets {
				if o[0] > o[1] || o[1] > len(s) || e.IDs[j] < 0 || e.Mask[j] != 1 {
					t.Errorf("%q: got token %d at %v", s, e.IDs[j], o)
				}
			}
			if got := k.Decode(e.IDs, false); i == 1 && utf8.ValidString(s) && got != s {
				t.Errorf("%q: decodes to %q", s, got)
			}
		}
	})
}

// FuzzParse reads anything as a tokenizer.json: it ends without a panic, and what
// it reads makes tokens.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"bert", "gpt2", "unigram"} {
		b, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"normalizer":{"type":"Precompiled","precompiled_charsmap":"CAAAAAAAAAAAAAAAYQA="},"pre_tokenizer":{"type":"Metaspace","replacement":"▁"},"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["▁a",-1]]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := Parse(b)
		if err != nil {
			return
		}
		e := k.EncodePair("Äpfel, 12 [MASK]\u0301", "a")
		k.Decode(e.IDs, true)
		if k, err = k.With(Options{MaxLength: 3, PadTo: 5}); err != nil {
			return // there is no room for special tokens
		}
		k.Batch("a", "")
	})
}
