package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/hub/tokenizer"
)

// example is a text as the network sees it: [CLS] sentiment [SEP] text [SEP],
// and the places in it of the first and the last token of the answer.
type example struct {
	tokens     []int32
	start, end int32
}

// question is how many tokens come before the text.
const question = 3

// tensors makes inputs and targets of examples: tokens and segments, 0 for the
// sentiment and 1 for the text, padded with 0.
func tensors(all []example, tokens int) (x, y *keras.Tensor) {
	n := len(all)
	ids, kinds := make([]int32, n*tokens), make([]int32, n*tokens)
	starts, ends := make([]int32, n), make([]int32, n)
	for i, e := range all {
		copy(ids[i*tokens:(i+1)*tokens], e.tokens)
		for j := question; j < len(e.tokens); j++ {
			kinds[i*tokens+j] = 1
		}
		starts[i], ends[i] = e.start, e.end
	}
	return keras.Tuple(keras.NewTensor(ids, n, tokens), keras.NewTensor(kinds, n, tokens)),
		keras.Tuple(keras.NewTensor(starts, n), keras.NewTensor(ends, n))
}

func dataset(all []example, tokens int) *keras.Pipeline {
	x, y := tensors(all, tokens)
	return keras.FromTensors(x, y, nil)
}

// The vocabulary of made-up texts: special tokens, three sentiments, and words,
// of which the first ones are positive, the next ones negative.
const (
	cls = 1 + iota
	sep
	positive
	negative
	neutral
	words
	charged    = 20 // words of each sentiment
	vocabulary = 300
)

// invent makes up n texts with one run of positive words and one of negative
// words among others. The answer is the run that the sentiment asks for, or
// the whole text for neutral. Text i is the same however many are made.
func invent(n, tokens int) []example {
	all := make([]example, n)
	for i := range all {
		rng := rand.New(rand.NewPCG(uint64(i), 4))
		length := tokens - question - 1 - rng.IntN(tokens/3)
		text := make([]int32, length)
		for j := range text {
			text[j] = int32(words + 2*charged + rng.IntN(vocabulary-words-2*charged))
		}
		half := length / 2
		var first, last [2]int
		order := rng.IntN(2)
		for part := range 2 {
			sentiment := (part + order) % 2
			size := 1 + rng.IntN(4)
			at := part*half + rng.IntN(half-size)
			first[sentiment], last[sentiment] = at, at+size-1
			for j := at; j < at+size; j++ {
				text[j] = int32(words + sentiment*charged + rng.IntN(charged))
			}
		}
		asked := rng.IntN(3)
		from, to := 0, length-1
		if asked < 2 {
			from, to = first[asked], last[asked]
		}
		all[i] = example{
			tokens: slices.Concat([]int32{cls, int32(positive + asked), sep}, text, []int32{sep}),
			start:  int32(question + from), end: int32(question + to),
		}
	}
	return all
}

// load reads train.csv of a directory. Lines without a text, or whose
// selected_text is not part of it, are passed over. The tokenizer is that of the
// directory vocabulary.
func load(dir, vocabulary string, tokens int) (all []example, size int, err error) {
	w, err := tokenizer.Read(vocabulary)
	if err != nil {
		return nil, 0, fmt.Errorf("-data: %w", err)
	}
	if w, err = w.With(tokenizer.Options{NoSpecialTokens: true}); err != nil {
		return nil, 0, fmt.Errorf("-data: %w", err)
	}
	special := map[string]int32{}
	for _, s := range []string{"[CLS]", "[SEP]", "[UNK]", "positive", "negative", "neutral"} {
		id, ok := w.ID(s)
		if !ok {
			return nil, 0, fmt.Errorf("-data: the vocabulary in %s has no %s", vocabulary, s)
		}
		special[s] = id
	}
	path := filepath.Join(dir, "train.csv")
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("-data: %w", err)
	}
	defer f.Close()
	r := csv.NewReader(bufio.NewReader(f))
	header, err := r.Read()
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	column := map[string]int{}
	for _, name := range []string{"text", "selected_text", "sentiment"} {
		if column[name] = slices.Index(header, name); column[name] < 0 {
			return nil, 0, fmt.Errorf("%s: it has no column %s; have %q", path, name, header)
		}
	}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, w.VocabularySize(), nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", path, err)
		}
		text, answer := record[column["text"]], strings.TrimSpace(record[column["selected_text"]])
		sentiment, known := special[record[column["sentiment"]]]
		at := strings.Index(text, answer)
		if !known || answer == "" || at < 0 {
			continue
		}
		pieces := w.Encode(text)
		e := example{tokens: []int32{special["[CLS]"], sentiment, special["[SEP]"]}, start: -1}
		for i, id := range pieces.IDs[:min(pieces.Len(), tokens-question-1)] {
			e.tokens = append(e.tokens, id)
			if p := pieces.Offsets[i]; p[0] < at+len(answer) && p[1] > at {
				if e.start < 0 {
					e.start = int32(question + i)
				}
				e.end = int32(question + i)
			}
		}
		if e.start < 0 { // cut off
			continue
		}
		e.tokens = append(e.tokens, special["[SEP]"])
		all = append(all, e)
	}
}
