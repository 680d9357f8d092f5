package keras

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
)

// TestPredictFromGoroutines: several goroutines may call Predict, also the first
// time, when the model is built and its prediction compiled.
func TestPredictFromGoroutines(t *testing.T) {
	x := NewTensor([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 2, 4)
	for range 8 {
		m := Sequential(&layers.Dense{Units: 3, Activation: "relu"}, &layers.Dense{Units: 2})
		all := make([][]float64, 16)
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() {
				y, err := m.Predict(context.Background(), x)
				if err != nil {
					t.Error(err)
					return
				}
				defer y.Release()
				if all[i], err = y.Float64s(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i, y := range all {
			if len(y) != 4 || !slices.Equal(y, all[0]) {
				t.Errorf("goroutine %d got %v, the first one %v", i, y, all[0])
			}
		}
	}
}
