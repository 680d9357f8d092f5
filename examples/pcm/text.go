package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
)

// steps is the length of the sequences that a text is cut into. Each starts with empty
// states.
const steps = 32

// maxText bounds a text, in bytes.
const maxText = 64 << 20

// readText returns the text of a file, in lower case, with a space for each white space.
func readText(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxText:
		return nil, fmt.Errorf("%s: the text has more than %d bytes", name, maxText)
	}
	text = bytes.Join(bytes.Fields(bytes.ToLower(text)), []byte(" "))
	if len(text) < 20*steps {
		return nil, fmt.Errorf("%s: the text has %d characters, want %d or more", name, len(text), 20*steps)
	}
	return text, nil
}

// sentences are n sentences of a toy language. A verb agrees with its subject, which may
// be some words before.
func sentences(n int, seed uint64) []byte {
	draw := rand.New(rand.NewPCG(seed, 0))
	pick := func(words string) string {
		all := strings.Fields(words)
		return all[draw.IntN(len(all))]
	}
	// subject returns a noun with what is said of it, and the ending of its verb.
	subject := func() (words, ending string) {
		noun := pick("cat dog bird farmer miller painter neighbour")
		words, ending = pick("the a every")+" "+noun, "s"
		if draw.IntN(2) == 0 {
			words, ending = pick("the two three many")+" "+noun+"s", ""
		}
		return words, ending
	}
	verb := func() string { return pick("see follow hear draw find remember") }
	var b strings.Builder
	for range n {
		words, ending := subject()
		object, _ := subject()
		b.WriteString(words)
		if draw.IntN(3) == 0 {
			other, _ := subject()
			fmt.Fprintf(&b, " that %s%s %s", verb(), ending, other)
		}
		fmt.Fprintf(&b, " %s%s %s. ", verb(), ending, object)
	}
	return []byte(b.String())
}

// alphabet lists the characters of a text, in order.
func alphabet(text []byte) []byte {
	all := slices.Clone(text)
	slices.Sort(all)
	return slices.Compact(all)
}

// sequences cuts a text into sequences of steps characters: X is [steps] numbers in the
// alphabet, Y the numbers of the characters behind them. What is left at the end is not
// used.
func sequences(text, alphabet []byte) *keras.Pipeline {
	number := map[byte]int32{}
	for i, c := range alphabet {
		number[c] = int32(i)
	}
	n := (len(text) - 1) / steps
	x, y := make([]int32, n*steps), make([]int32, n*steps)
	for i := range x {
		x[i], y[i] = number[text[i]], number[text[i+1]]
	}
	return keras.FromTensors(keras.NewTensor(x, n, steps), keras.NewTensor(y, n, steps), nil)
}

// textData returns the first nine tenths of a text to train on and the last tenth, and
// the size of its alphabet.
func textData(text []byte) (train, test *keras.Pipeline, characters int) {
	letters := alphabet(text)
	cut := len(text) * 9 / 10
	return sequences(text[:cut], letters), sequences(text[cut:], letters), len(letters)
}
