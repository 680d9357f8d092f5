package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/distribution/mpi/internal/mpitest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// sizes are numbers of float32 gradients: the last is a bucket of 25 MiB.
var sizes = []int{1 << 8, 1 << 18, 25 << 18}

// timed prints the shortest times of MPI_Allreduce; of the exchange of float32 and of 16-bit
// gradients without the sum, an all-to-all and an all-gather; and of the programs of both,
// which pack, exchange, add up and unpack.
func timed(ctx context.Context, g *distribution.Group) error {
	e := g.Engine().(*engine)
	for _, n := range sizes {
		x, send, recv := make([]float32, n), make([]byte, 4*n), make([]byte, 4*n)
		var err error
		exchange := func(bytes int) {
			part := bytes / e.size
			err = errors.Join(err, e.AllToAll(ctx, send[:part*e.size], recv[:part*e.size]), e.AllGather(ctx, send[:part], recv[:part*e.size]))
		}
		in := tensor.New(x, n)
		program := func(wire dtype.DType) func() {
			dp := &distribution.DataParallel{Group: g, Wire: wire, BucketBytes: 25 << 20}
			f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor { return dp.AllReduce([]*tensor.Tensor{x})[0] })
			return func() {
				y, e := f.Call(ctx, in)
				if err = errors.Join(err, e); e == nil {
					y.Release()
				}
			}
		}
		var best [5]time.Duration
		calls := []func(){func() { err = errors.Join(err, e.AllReduce(ctx, x)) }, func() { exchange(4 * n) }, func() { exchange(2 * n) }, program(dtype.Float32), program(dtype.BFloat16)}
		for i := range 15 {
			for k, f := range calls {
				err = errors.Join(err, e.Barrier(ctx))
				began := time.Now()
				f()
				if took := time.Since(began); i == 0 || took < best[k] {
					best[k] = took
				}
			}
		}
		if err != nil {
			return err
		}
		if e.rank == 0 {
			fmt.Printf("%d: %d %d %d %d %d\n", n, best[0], best[1], best[2], best[3], best[4])
		}
	}
	// A call that moves nothing, on this rank alone: what Go adds.
	if e.size == 1 {
		const calls = 20_000
		began := time.Now()
		for range calls {
			if err := e.Barrier(ctx); err != nil {
				return err
			}
		}
		engine := time.Since(began)
		began = time.Now()
		for range calls {
			if err := e.lib.Barrier(e.world); err != nil {
				return err
			}
		}
		fmt.Printf("call: %d %d\n", engine/calls, time.Since(began)/calls)
	}
	return nil
}

// BenchmarkExchange reports times of 2 ranks, and of a call of one.
func BenchmarkExchange(b *testing.B) {
	for _, m := range mpitest.Launchers(b) {
		text := launch(b, m, "timed", 2).Text
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/%d", m.Name, 4*n), func(b *testing.B) {
				var t [5]float64
				if _, err := fmt.Sscanf(text[strings.Index(text, fmt.Sprintf("%d: ", n))+len(fmt.Sprint(n)):], ": %f %f %f %f %f", &t[0], &t[1], &t[2], &t[3], &t[4]); err != nil {
					b.Fatal(err, text)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(t[0]/1e3, "allreduce-µs")
				b.ReportMetric(t[1]/1e3, "float32-µs")
				b.ReportMetric(t[2]/1e3, "16bit-µs")
				b.ReportMetric(t[3]/1e3, "program-µs")
				b.ReportMetric(t[4]/1e3, "16bit-program-µs")
			})
		}
		b.Run(m.Name+"/call", func(b *testing.B) {
			text := launch(b, m, "timed", 1).Text
			var engine, library float64
			if _, err := fmt.Sscanf(text[max(0, strings.Index(text, "call: ")):], "call: %f %f", &engine, &library); err != nil {
				b.Fatal(err, text)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(engine, "engine-ns")
			b.ReportMetric(library, "library-ns")
		})
	}
}

// stepRows is the batch of a rank in BenchmarkStep.
const stepRows = 1024

// step prints the median and the shortest time of a training step of a network with 20
// million weights under the policy MEZZO_TEST_POLICY: with a Distribution if parallel is
// set, else of each rank by itself, at the same time.
func step(ctx context.Context, g *distribution.Group, parallel bool) error {
	policy := os.Getenv("MEZZO_TEST_POLICY")
	m := keras.Sequential(
		&layers.Dense{Units: 4096, Activation: "relu", DType: policy},
		&layers.Dense{Units: 4096, Activation: "relu", DType: policy},
		&layers.Dense{Units: 10, DType: policy},
	)
	c := keras.CompileConfig{Optimizer: &optimizers.SGD{}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}
	rows := stepRows
	if parallel {
		c.Distribution = &distribution.DataParallel{Group: g}
		rows *= g.Size()
	}
	if err := m.Compile(c); err != nil {
		return err
	}
	x, y := make([]float32, rows*784), make([]int32, rows)
	for i := range x {
		x[i] = float32(i%13) / 13
	}
	for i := range y {
		y[i] = int32(i % 10)
	}
	b := keras.Batch{X: tensor.New(x, rows, 784), Y: tensor.New(y, rows)}
	var took []time.Duration
	for i := range 7 {
		if err := g.Barrier(); err != nil {
			return err
		}
		began := time.Now()
		if err := m.TrainStep(ctx, b); err != nil {
			return err
		}
		if i > 1 {
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	if g.Rank() == 0 {
		fmt.Printf("step: %d %d\n", took[len(took)/2], took[0])
	}
	return nil
}

// BenchmarkStep reports the times of a step on ranks of one core each: of one rank without
// and with a Distribution, and of two ranks that do not exchange gradients, and do.
func BenchmarkStep(b *testing.B) {
	m := mpitest.Launchers(b)[0]
	for _, policy := range []string{"float32", "mixed_bfloat16"} {
		b.Run(m.Name+"/"+policy, func(b *testing.B) {
			for _, c := range []struct {
				name, role string
				ranks      int
			}{{"alone", "step", 1}, {"parallel", "step-parallel", 1}, {"2-alone", "step", 2}, {"2-parallel", "step-parallel", 2}} {
				text := launch(b, m, c.role, c.ranks, "GOMAXPROCS=1", "MEZZO_TEST_POLICY="+policy).Text
				var median, least float64
				if _, err := fmt.Sscanf(text[max(0, strings.Index(text, "step: ")):], "step: %f %f", &median, &least); err != nil {
					b.Fatal(err, text)
				}
				b.ReportMetric(median/1e6, c.name+"-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
