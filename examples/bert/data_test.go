package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/policy"
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

func TestLoad(t *testing.T) {
	dir := testData(t)
	got, vocabulary, err := load(dir, dir, 10)
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
	if _, _, err := load(dir, t.TempDir(), 10); err == nil || !strings.HasPrefix(err.Error(), "-data: ") {
		t.Errorf("an empty directory: got %v", err)
	}
}

// TestWeights fine-tunes a small checkpoint on a few tweets, with one learning rate
// and with one for each layer.
func TestWeights(t *testing.T) {
	dir := testData(t)
	for _, name := range []string{"config.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join("../../keras/hub/testdata/bert", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	csv := "textID,text,selected_text,sentiment\n" + strings.Repeat("1,So unaffable! a good day,good day,positive\n", 12)
	if err := os.WriteFile(filepath.Join(dir, "train.csv"), []byte(csv), 0o600); err != nil {
		t.Fatal(err)
	}
	old := policy.Global().Name
	defer policy.SetGlobal(old)
	*weights, *data, *epochs, *batch = dir, dir, 1, 4
	defer func() { *weights, *data, *epochs, *batch, *layerDecay = "", "", 6, 32, 1 }()
	for _, *layerDecay = range []float64{1, 0.8} {
		if err := run(t.Context()); err != nil {
			t.Errorf("-layerdecay %v: %v", *layerDecay, err)
		}
	}
	if *data = ""; run(t.Context()) == nil {
		t.Error("-weights without -data: got no error")
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
