package metrics

import (
	"context"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

func TestAutoAccuracy(t *testing.T) {
	for name, c := range map[string]struct {
		y, p *tensor.Tensor
		want float64
	}{
		"binary":      {tensor.New([]float32{1, 0, 1}, 3, 1), tensor.New([]float32{.9, .8, .7}, 3, 1), 2. / 3},
		"sparse":      {tensor.New([]int32{1, 0}, 2), tensor.New([]float32{.1, .9, .2, .8}, 2, 2), .5},
		"categorical": {tensor.New([]float32{0, 1, 1, 0}, 2, 2), tensor.New([]float32{.1, .9, .2, .8}, 2, 2), .5},
	} {
		a := &AutoAccuracy{}
		type pair struct{ Y, P *tensor.Tensor }
		f := tensor.Function(func(in pair) struct{} { a.Update(in.Y, in.P); return struct{}{} }, a)
		for range 2 {
			if err := f.Run(context.Background(), pair{c.y, c.p}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if got, err := a.Result(); err != nil || got != c.want {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, c.want)
		}
		if a.MetricName() != "accuracy" {
			t.Errorf("%s: got name %q", name, a.MetricName())
		}
		if err := a.Reset(); err != nil {
			t.Fatal(err)
		}
		if got, _ := a.Result(); got != 0 {
			t.Errorf("%s: got %v after Reset, want 0", name, got)
		}
	}
}
