package serving

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// BenchmarkBatching: 32 clients with a row each, computed together and one by one,
// in turns. It reports rows a second of both and their ratio.
func BenchmarkBatching(b *testing.B) {
	const clients, turns = 32, 5
	for i, units := range []int{256, 512, 2048, 256, 512, 2048} {
		policy := []string{"float32", "mixed_bfloat16"}[i/3]
		b.Run(fmt.Sprintf("%s/units=%d", policy, units), func(b *testing.B) {
			in := keras.Input(784)
			x := keras.Apply(&layers.Dense{Units: units, Activation: "relu", DType: policy}, in)
			x = keras.Apply(&layers.Dense{Units: units, Activation: "relu", DType: policy}, x)
			m, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 10, Activation: "softmax", DType: policy}, x))
			if err != nil {
				b.Fatal(err)
			}
			servers := []*Server{newServer(b, m, Options{}), newServer(b, m, Options{MaxBatch: 1})}
			var row []byte
			for i := range 784 {
				row = binary.LittleEndian.AppendUint32(row, math.Float32bits(float32(i)/784))
			}
			run := func(s *Server, n int) time.Duration {
				begun := time.Now()
				var wg sync.WaitGroup
				for range clients {
					wg.Go(func() {
						for range n {
							_, err := s.Infer(b.Context(), Request{Model: "m", Inputs: []Tensor{{"", dtype.Float32, keras.Shape{1, 784}, row}}})
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return time.Since(begun)
			}
			var took [2]time.Duration
			n := 0
			for b.Loop() {
				for range turns {
					for i, s := range servers {
						took[i] += run(s, 4)
					}
					n += 4 * clients
				}
			}
			b.ReportMetric(float64(n)/took[0].Seconds(), "batched-rows/s")
			b.ReportMetric(float64(n)/took[1].Seconds(), "single-rows/s")
			b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
		})
	}
}
