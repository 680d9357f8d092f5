package cpu

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestQuantizedAlgorithms: every algorithm of products of 8-bit integers that the processor
// has gives the bits of portable Go, with any number of workers, at sizes where blocking
// changes.
func TestQuantizedAlgorithms(t *testing.T) {
	used := map[string]int{}
	isatest.ForEach(t, func(t *testing.T) {
		for _, s := range [][3]int{{1, 129, 300}, {11, 64, 33}, {12, 64, 33}, {37, 1000, 70}, {300, 1100, 40}, {65, 5, 600}} {
			m, k, n := s[0], s[1], s[2]
			rng := rand.New(rand.NewPCG(5, uint64(m)))
			for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
				scales := arrayOf(d, op.Shape{n}, func(i int) float64 { return 1 + float64(i%7) })
				args := []array{randomArray(rng, d, m, k), randomArray(rng, dtype.Int8, k, n), scales}
				compute := func(name string, procs int) (array, exec.Choice) {
					defer exec.Force("int8", name)()
					g := ir.New(len(args))
					var in []*ir.Value
					for i, x := range args {
						in = append(in, param(t, g, i, x.Type))
					}
					g.Output(record(t, g, op.QuantizedMatMul, op.Attr{}, in...), -1)
					p := plan(t, g)
					return runProcs(t, p, args, procs), p.choices[len(p.graph.Values)-1]
				}
				want, _ := compute("portable", 1)
				for _, name := range product.QuantizedAlgorithms() {
					has := slices.ContainsFunc(gemm.AllBytes(), func(b *gemm.Bytes) bool { return b.Algorithm == name })
					got, choice := compute(name, 2)
					if forced := choice.Algorithm == name && slices.Equal(choice.Reasons, []string{"forced"}); forced != has {
						t.Fatalf("%s on %v: the choice is %v", name, isa.Current(), choice)
					}
					used[choice.Algorithm]++
					if !bytes.Equal(got.data, want.data) {
						t.Fatalf("%s", fmt.Sprintf("%s of %v %v has other bits than portable Go", name, s, d))
					}
				}
			}
		}
	})
	for _, b := range gemm.AllBytes() {
		if used[b.Algorithm] == 0 {
			t.Errorf("no product for %s", b.Algorithm)
		}
	}
}
