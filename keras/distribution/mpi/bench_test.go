package mpi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/distribution/mpi/internal/mpitest"
)

// sizes are numbers of float32 gradients: the last is a bucket of 25 MiB.
var sizes = []int{1 << 8, 1 << 18, 25 << 18}

// timed prints the shortest times of MPI_Allreduce, and of the exchange of float32 and
// of 16-bit gradients without the sum: an all-to-all and an all-gather.
func timed(ctx context.Context, g *distribution.Group) error {
	e := g.Engine().(*engine)
	for _, n := range sizes {
		x, send, recv := make([]float32, n), make([]byte, 4*n), make([]byte, 4*n)
		var err error
		exchange := func(bytes int) {
			part := bytes / e.size
			err = errors.Join(err, e.AllToAll(ctx, send[:part*e.size], recv[:part*e.size]), e.AllGather(ctx, send[:part], recv[:part*e.size]))
		}
		var best [3]time.Duration
		for i := range 15 {
			for k, f := range []func(){func() { err = errors.Join(err, e.AllReduce(ctx, x)) }, func() { exchange(4 * n) }, func() { exchange(2 * n) }} {
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
			fmt.Printf("%d: %d %d %d\n", n, best[0], best[1], best[2])
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
				var t [3]float64
				if _, err := fmt.Sscanf(text[strings.Index(text, fmt.Sprintf("%d: ", n))+len(fmt.Sprint(n)):], ": %f %f %f", &t[0], &t[1], &t[2]); err != nil {
					b.Fatal(err, text)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(t[0]/1e3, "allreduce-µs")
				b.ReportMetric(t[1]/1e3, "float32-µs")
				b.ReportMetric(t[2]/1e3, "16bit-µs")
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
