package tensor_test

import (
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// attentions are points of Attention, with each option.
func attentions() []point {
	mask := tensor.New([]bool{true, false, true, true, true, false, false, false}, 2, 1, 1, 4)
	state := tensor.New([]int64{5, 7}, 2)
	var all []point
	for _, o := range []tensor.AttentionOptions{
		{}, {Scale: 2}, {Causal: true}, {Window: 2}, {Mask: mask}, {Dropout: 0.4, State: state, Stream: 1},
		{Mask: mask, Causal: true, Dropout: 0.2, State: state},
	} {
		f := func(x []T) T { return tensor.Attention(x[0], x[1], x[2], o) }
		all = append(all, at(-1, 1, f, s(2, 3, 2, 3), s(2, 4, 2, 3), s(2, 4, 2, 2)))
	}
	grouped := func(x []T) T { return tensor.Attention(x[0], x[1], x[2], tensor.AttentionOptions{}) }
	self := func(x []T) T { return tensor.Attention(x[0], x[0], x[0], tensor.AttentionOptions{Causal: true}) }
	return append(all, at(-1, 1, grouped, s(1, 3, 4, 2), s(1, 2, 2, 2), s(1, 2, 2, 3)), at(-1, 1, self, s(1, 3, 1, 2)))
}

// attentionParts are points of what Attention and its gradient are computed by.
func attentionParts(c op.Code) []point {
	a := op.Attr{Scale: 0.7, Causal: true}
	shapes := [][]int{s(2, 3, 2, 3), s(2, 3, 1, 3), s(2, 3, 1, 2)}
	if c == op.AttentionGrad {
		shapes = append(shapes, s(2, 3, 2, 2), s(2, 2, 2, 3), s(2, 3, 2, 2))
	}
	return []point{at(-1, 1, func(x []T) T { return tensor.Record(c, a, x...) }, shapes...)}
}

// TestAttentionValues: by hand, a query that sees one key, two, and none.
func TestAttentionValues(t *testing.T) {
	x := tensor.New([]float32{1, 2, 3, 4}, 1, 2, 1, 2)
	mask := tensor.New([]bool{true, false, true, true}, 1, 1, 2, 2)
	got, err := tensor.Attention(x, x, x, tensor.AttentionOptions{Scale: 0.5, Mask: mask}).Values()
	if err != nil {
		t.Fatal(err)
	}
	// Scores of the second query are 11/2 and 25/2.
	w := 1 / (1 + math.Exp(-7))
	for i, want := range []float64{1, 2, 3*w + 1*(1-w), 4*w + 2*(1-w)} {
		if math.Abs(float64(got[i])-want) > 1e-5 {
			t.Errorf("element %d is %v, want %v", i, got[i], want)
		}
	}
	none := tensor.New([]bool{false}, 1, 1, 1, 1)
	got, err = tensor.Attention(x, x, x, tensor.AttentionOptions{Mask: none}).Values()
	if err != nil || got[0] != 0 || got[3] != 0 {
		t.Errorf("queries that see nothing get %v, %v, want zeros", got, err)
	}
}

// TestAttentionErrors: operands that do not fit are reported with their types.
func TestAttentionErrors(t *testing.T) {
	q, k := tensor.Zeros(dtype.Float32, 2, 3, 4, 5), tensor.Zeros(dtype.Float32, 2, 6, 2, 5)
	for want, f := range map[string]func(){
		"must be of one float type and have four axes": func() { tensor.Attention(q, k.Cast(dtype.Float16), k, tensor.AttentionOptions{}) },
		"want one batch size":                          func() { tensor.Attention(q, k.Slice(1, 0, 2), k, tensor.AttentionOptions{}) },
		"want a positive multiple of the 2 of key":     func() { tensor.Attention(q.Slice(2, 0, 3), k, k, tensor.AttentionOptions{}) },
		"mask bool[3] does not broadcast to scores":    func() { tensor.Attention(q, k, k, tensor.AttentionOptions{Mask: tensor.New(make([]bool, 3), 3)}) },
		"without a random state":                       func() { tensor.Attention(q, k, k, tensor.AttentionOptions{Dropout: 0.5}) },
		"want a number from 0 to 1": func() {
			tensor.Attention(q, k, k, tensor.AttentionOptions{Dropout: 2, State: tensor.New([]int64{1, 2}, 2)})
		},
		"the window is -1, want 0 or more": func() { tensor.Attention(q, k, k, tensor.AttentionOptions{Window: -1}) },
		"is neither mask nor random state": func() { tensor.Attention(q, k, k, tensor.AttentionOptions{Mask: tensor.New([]int32{1}, 1)}) },
	} {
		err := func() (err error) {
			defer tensor.Catch(&err)
			f()
			return nil
		}()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}
