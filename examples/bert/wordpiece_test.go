package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// testData writes a vocabulary and two tweets.
func testData(t *testing.T) string {
	dir := t.TempDir()
	pieces := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "positive", "negative", "neutral", "un", "##aff", "##able", "so", "!", "good", "a", "day", "##s", "u", "creme", "##и"}
	files := map[string]string{
		"vocab.txt": strings.Join(pieces, "\n") + "\n",
		"train.csv": "textID,text,selected_text,sentiment\n1,So unaffable! a good day,good day,positive\n2,,,neutral\n3,\"a day, so\",a day,negative\n",
	}
	for name, s := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWordPiece(t *testing.T) {
	w, err := readVocabulary(filepath.Join(testData(t), "vocab.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]piece{
		"":                       nil,
		" \t\n":                  nil,
		"So  unaffable!!":        {{10, 0, 2}, {7, 4, 6}, {8, 6, 9}, {9, 9, 13}, {11, 13, 14}, {11, 14, 15}},
		"days DAYS dayz":         {{14, 0, 3}, {15, 3, 4}, {14, 5, 8}, {15, 8, 9}, {1, 10, 14}},
		"Ü ü\x80ü":               {{16, 0, 2}, {16, 3, 5}, {16, 6, 8}},
		"CRÈME cre\u0300me":      {{17, 0, 6}, {17, 7, 14}},
		"u\u0308\u0304s ay":      {{16, 0, 5}, {15, 5, 6}, {1, 7, 9}},
		"dayй \u0301":            {{14, 0, 3}, {18, 3, 5}},
		strings.Repeat("a", 101): {{1, 0, 101}},
	} {
		if got := w.split(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// TestPlain: letters of every script that the table has, and Hangul, which it
// has not.
func TestPlain(t *testing.T) {
	for word, want := range map[string]string{
		"": "", "\u0301": "", "Été": "ete", "Ångström": "angstrom", "Việt": "viet", "ΆΈὮ": "αεω", "Йод": "иод", "ß": "ß", "İ": "i",
		"한": "\u1112\u1161\u11ab", "가": "\u1100\u1161", "が": "か", "ø": "ø",
	} {
		got, from := plain(word)
		if got != want || len(from) != len(want)+1 || from[len(want)] != len(word) {
			t.Errorf("%q: got %q at %v, want %q", word, got, from, want)
		}
	}
	for letter, base := range withoutAccent {
		if _, again := withoutAccent[base]; again || unicode.Is(unicode.Mn, base) {
			t.Errorf("%q becomes %q, want a letter without accents", letter, base)
		}
	}
}

// FuzzWordPiece wants pieces in order, within the text, and between runes.
func FuzzWordPiece(f *testing.F) {
	w := &wordPiece{ids: map[string]int32{"[UNK]": 0, "a": 1, "##a": 2, "##é": 3, "!": 4}, longest: 4}
	f.Add("aa éa! \u0301a\xff 한a")
	f.Fuzz(func(t *testing.T, text string) {
		end := 0
		for _, p := range w.split(text) {
			if p.start < end || p.end <= p.start || p.end > len(text) {
				t.Errorf("%q: got a piece from %d to %d after one to %d", text, p.start, p.end, end)
			}
			end = p.end
		}
	})
}

func TestLoad(t *testing.T) {
	got, vocabulary, err := load(testData(t), 10)
	if err != nil {
		t.Fatal(err)
	}
	want := []example{
		// The text is cut to six tokens: so un ##aff ##able ! a; the answer of
		// the first tweet is beyond them.
		{[]int32{2, 5, 3, 13, 14, 1, 10, 3}, 3, 4},
	}
	if vocabulary != 19 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v and %d pieces, want %v and 19", got, vocabulary, want)
	}
	if _, _, err := load(t.TempDir(), 10); err == nil || !strings.HasPrefix(err.Error(), "-data: ") {
		t.Errorf("an empty directory: got %v", err)
	}
}

// TestInvent checks that answers are what the sentiment asks for.
func TestInvent(t *testing.T) {
	for i, e := range invent(200, 40) {
		text := e.tokens[question : len(e.tokens)-1]
		if len(e.tokens) > 40 || e.tokens[0] != cls || e.tokens[2] != sep || e.tokens[len(e.tokens)-1] != sep {
			t.Fatalf("%d: got tokens %v", i, e.tokens)
		}
		asked := int(e.tokens[1]) - positive
		if asked == 2 {
			if e.start != question || int(e.end) != question+len(text)-1 {
				t.Errorf("%d: got %d to %d, want the whole text", i, e.start, e.end)
			}
			continue
		}
		for j, word := range e.tokens[question : len(e.tokens)-1] {
			inside := int32(j+question) >= e.start && int32(j+question) <= e.end
			if of := int(word) >= words+asked*charged && int(word) < words+(asked+1)*charged; of != inside {
				t.Errorf("%d: token %d is %d, the answer goes from %d to %d", i, j+question, word, e.start, e.end)
			}
		}
	}
}
