package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// testData writes a vocabulary and two tweets.
func testData(t *testing.T) string {
	dir := t.TempDir()
	pieces := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "positive", "negative", "neutral", "un", "##aff", "##able", "so", "!", "good", "a", "day", "##s", "ü"}
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
		strings.Repeat("a", 101): {{1, 0, 101}},
	} {
		if got := w.split(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
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
	if vocabulary != 17 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v and %d pieces, want %v and 17", got, vocabulary, want)
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
