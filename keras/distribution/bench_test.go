package distribution_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// wire is an engine with a network of some bytes per second, which needs no processor:
// calls take so much longer.
type wire struct {
	distribution.Engine
	speed float64
	state *network
}

// network is the time of a rank's network. Calls of a group wait for each other.
type network struct {
	free time.Time     // when it has sent everything
	took time.Duration // by all calls
}

func (w wire) wait(bytes int) {
	d := time.Duration(float64(bytes) * float64(w.Size()-1) / float64(w.Size()) / w.speed * 1e9)
	w.state.took += d
	// A sleep that lasts too long shortens the next one, as long as calls follow each other.
	if now := time.Now(); now.Sub(w.state.free) > time.Millisecond {
		w.state.free = now
	}
	w.state.free = w.state.free.Add(d)
	time.Sleep(time.Until(w.state.free))
}

func (w wire) AllToAll(ctx context.Context, send, recv []byte) error {
	defer w.wait(len(recv))
	return w.Engine.AllToAll(ctx, send, recv)
}

func (w wire) AllGather(ctx context.Context, send, recv []byte) error {
	defer w.wait(len(recv))
	return w.Engine.AllGather(ctx, send, recv)
}

// reserve reserves a thread for each of two ranks, as the engine mpi does, and returns GOMAXPROCS,
// which package testing resets before each benchmark.
var reserve = sync.OnceValue(func() int {
	driver.ReserveThread()
	driver.ReserveThread()
	return runtime.GOMAXPROCS(0)
})

// BenchmarkOverlap reports, of a step of 784-4096-4096-10 on two ranks of 1024 rows and one
// thread each, how long the exchange of gradients takes on networks of some speeds, and how
// long the step waits for it: by how much AllReduceDone takes longer than on a network that
// takes no time.
func BenchmarkOverlap(b *testing.B) {
	for _, policy := range []string{"float32", "mixed_bfloat16"} {
		for _, mib := range []int{1, 5, 25, 100} {
			for _, speed := range []float64{1e9, 3e9} {
				b.Run(fmt.Sprintf("%s/%dMiB/%.0fGBps", policy, mib, speed/1e9), func(b *testing.B) {
					runtime.GOMAXPROCS(reserve())
					var waits, exchanges []float64
					for range b.N {
						without, _, err := exposed(b.Context(), policy, mib<<20, 1e18)
						if err != nil {
							b.Fatal(err)
						}
						with, exchange, err := exposed(b.Context(), policy, mib<<20, speed)
						if err != nil {
							b.Fatal(err)
						}
						waits, exchanges = append(waits, with-without), append(exchanges, exchange)
					}
					slices.Sort(waits)
					slices.Sort(exchanges)
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(exchanges[b.N/2], "exchange-ms")
					b.ReportMetric(waits[b.N/2], "waits-ms")
				})
			}
		}
	}
}

// exposed returns the medians over some steps of the time in AllReduceDone, and of the time that
// the network takes, in ms.
func exposed(ctx context.Context, policy string, bucket int, speed float64) (done, exchange float64, err error) {
	err = distribution.Local(ctx, 2, func(ctx context.Context, g *distribution.Group) error {
		w := wire{g.Engine(), speed, &network{}}
		g = distribution.NewGroup(w)
		m := keras.Sequential(
			&layers.Dense{Units: 4096, Activation: "relu", DType: policy},
			&layers.Dense{Units: 4096, Activation: "relu", DType: policy},
			&layers.Dense{Units: 10, DType: policy},
		)
		c := keras.CompileConfig{Optimizer: &optimizers.SGD{}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true},
			Distribution: &distribution.DataParallel{Group: g, BucketBytes: bucket}}
		if err := m.Compile(c); err != nil {
			return err
		}
		const rows, steps = 2048, 5
		batch := keras.Batch{X: tensor.New(make([]float32, rows*784), rows, 784), Y: tensor.New(make([]int32, rows), rows)}
		var waits, exchanges []float64
		for i := range 1 + steps {
			if err := g.Barrier(); err != nil {
				return err
			}
			w.state.took = 0
			var text bytes.Buffer
			if err := m.Trace(ctx, batch, &text); err != nil {
				return err
			}
			if i == 0 {
				continue
			}
			var trace struct {
				TraceEvents []struct {
					Name string
					Dur  float64 // µs
				}
			}
			if err := json.Unmarshal(text.Bytes(), &trace); err != nil {
				return err
			}
			sum, exchange := 0.0, w.state.took.Seconds()*1e3
			for _, e := range trace.TraceEvents {
				if strings.HasSuffix(e.Name, "AllReduceDone") {
					sum += e.Dur
				}
			}
			all, err := g.Gather([]byte(fmt.Sprint(sum / 1e3)))
			if err != nil {
				return err
			}
			least := math.Inf(1) // the rank that is behind the other one waits for the network alone
			for _, s := range all {
				x, err := strconv.ParseFloat(string(s), 64)
				if err != nil {
					return err
				}
				least = min(least, x)
			}
			waits, exchanges = append(waits, least), append(exchanges, exchange)
		}
		slices.Sort(waits)
		slices.Sort(exchanges)
		if g.Rank() == 0 {
			done, exchange = waits[steps/2], exchanges[steps/2]
		}
		return nil
	})
	return done, exchange, err
}

// still is an engine of rank 0 of 2 whose calls move nothing.
type still struct{ distribution.Engine }

func (still) Name() string                                       { return "still" }
func (still) Rank() int                                          { return 0 }
func (still) Size() int                                          { return 2 }
func (still) AllToAll(_ context.Context, _, _ []byte) error      { return nil }
func (still) AllGather(_ context.Context, _, _ []byte) error     { return nil }
func (still) Broadcast(_ context.Context, _ []byte, _ int) error { return nil }
func (still) Barrier(context.Context) error                      { return nil }

// BenchmarkPack times what a rank does for an exchange besides moving bytes: packing,
// adding up and unpacking. Each of the three handles all gradients, or a half of those of
// two ranks; bytes are three times those of the gradients.
func BenchmarkPack(b *testing.B) {
	for _, wire := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
		for _, n := range []int{1 << 18, 25 << 18} {
			b.Run(fmt.Sprintf("%v/%d", wire, 4*n), func(b *testing.B) {
				dp := &distribution.DataParallel{Group: distribution.NewGroup(still{}), Wire: wire}
				f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor { return dp.AllReduce([]*tensor.Tensor{x})[0] })
				x := tensor.New(make([]float32, n), n)
				b.SetBytes(int64(3 * 4 * n))
				for b.Loop() {
					y, err := f.Call(b.Context(), x)
					if err != nil {
						b.Fatal(err)
					}
					y.Release()
				}
			})
		}
	}
}
