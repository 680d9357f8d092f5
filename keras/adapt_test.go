package keras

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// TestAdapt: a dataset teaches what its samples would, in batches of whatever
// size, and not at all when the context ends.
func TestAdapt(t *testing.T) {
	x := NewTensor(numbers(50*3), 50, 3)
	learned := func(adapt func(l *preprocessing.Normalization) error) [][]float64 {
		l := &preprocessing.Normalization{}
		check(t, adapt(l))
		m := Sequential(l)
		check(t, m.Build(3))
		y, err := m.Predict(background, x)
		check(t, err)
		return append(weightsOf(t, m), values(t, y))
	}
	want := learned(func(l *preprocessing.Normalization) error { return l.Adapt(x) })
	for name, d := range map[string]Dataset{
		"samples": FromTensors(x, nil, nil),
		"batches": FromTensors(x, nil, nil).Batch(7).Prefetch(2),
	} {
		got := learned(func(l *preprocessing.Normalization) error { return Adapt(background, l, d) })
		for i := range want {
			wantNear(t, name, got[i], want[i], 8)
		}
	}
	ended, cancel := context.WithCancel(background)
	endless := FromGenerator(func() iter.Seq2[Batch, error] {
		return func(yield func(Batch, error) bool) {
			for n := 0; yield(Batch{X: x}, nil); n++ {
				if n == 5 {
					cancel()
				}
			}
		}
	}, true)
	if err := Adapt(ended, &preprocessing.Normalization{}, endless); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if err := Adapt(background, &preprocessing.Normalization{}, FromTensors(NewTensor([]float32{}, 0, 3), nil, nil)); !errors.Is(err, ErrEmptyDataset) {
		t.Errorf("got %v, want ErrEmptyDataset", err)
	}
	pair := FromTensors(Tuple(x, x), nil, nil)
	if err := Adapt(background, &preprocessing.Normalization{}, pair); err == nil {
		t.Error("no error for two inputs")
	}
}
