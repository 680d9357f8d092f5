package saving_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// TestCallArguments: arguments of calls are where Keras has them, and are read
// from there.
func TestCallArguments(t *testing.T) {
	ids, mask := keras.InputOf(keras.Int32, 3), keras.InputOf(keras.Bool, 3, 3)
	embedding := &layers.ReversibleEmbedding{InputDim: 5, OutputDim: 4}
	x := keras.Apply(embedding, ids)
	attention := &layers.MultiHeadAttention{NumHeads: 2, KeyDim: 2}
	y := keras.Apply(layers.With(attention, layers.Args{UseCausalMask: true}), x, x)
	y = keras.Apply(&layers.Add{}, y, keras.Apply(attention, y, x))
	y = keras.Apply(&layers.GroupQueryAttention{HeadDim: 2, NumQueryHeads: 2, NumKeyValueHeads: 1, UseAttentionMask: true}, y, y, mask)
	y = keras.Apply(&layers.Attention{UseCausalMask: true}, y, y)
	m, err := keras.NewModel(keras.Tuple(ids, mask), keras.Apply(layers.With(embedding, layers.Args{Reverse: true}), y))
	if err != nil {
		t.Fatal(err)
	}
	text, err := saving.ToJSON(m)
	if err != nil {
		t.Fatal(err)
	}
	for want, n := range map[string]int{`"kwargs":{"use_causal_mask":true}`: 2, `"kwargs":{"reverse":true}`: 1, `"kwargs":{"attention_mask":{`: 1,
		`"use_attention_mask"`: 0, `"use_causal_mask":false`: 0} {
		if got := strings.Count(string(text), want); got != n {
			t.Errorf("got %s %d times, want %d, in %s", want, got, n, text)
		}
	}
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(path, m); err != nil {
		t.Fatal(err)
	}
	read, err := saving.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	in := keras.Tuple(keras.NewTensor([]int32{1, 4, 0, 2, 2, 3}, 2, 3), keras.NewTensor([]int32{1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1}, 2, 3, 3).Cast(keras.Bool))
	want, err := m.Call(in).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read.Call(in).Bytes(); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the model that was read computes something else, %v", err)
	}
	stack := keras.Sequential(&layers.Embedding{InputDim: 5, OutputDim: 4}, layers.With(embedding, layers.Args{Reverse: true}))
	if err := stack.BuildOn(keras.InputOf(keras.Int32, 3)); err != nil {
		t.Fatal(err)
	}
	const wrong = "layer reversible_embedding: it is called with arguments in a Sequential model, which Keras cannot; wire it with NewModel"
	if _, err := saving.ToJSON(stack); err == nil || err.Error() != wrong {
		t.Errorf("got error %v, want %s", err, wrong)
	}
}
