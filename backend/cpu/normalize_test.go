package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestLayerNormLevels runs normalizations and their gradients at every level: they
// agree with the expansion in float64, have the same bits for any number of workers,
// and stay within their memory.
func TestLayerNormLevels(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for i, s := range [][2]int{{1, 1}, {5, 3}, {900, 67}, {130, 768}, {3, 20011}} {
				if !isatest.InTurn(i + int(d)) {
					continue
				}
				x, gain, shift := randomArray(rng, d, s[0], s[1]), randomArray(rng, dtype.Float32, s[1]), randomArray(rng, dtype.Float32, s[1])
				g := randomArray(rng, d, s[0], s[1])
				for _, uncentered := range []bool{false, true} {
					a := op.Attr{Epsilon: 1e-3, Uncentered: uncentered}
					what := fmt.Sprintf("%v %v %v", d, s, uncentered)
					rel, _ := d.Tolerance()
					want := evalExpanded(t, op.LayerNorm, a, x.converted(dtype.Float64), gain.converted(dtype.Float64), shift.converted(dtype.Float64))
					checkExpanded(t, what, op.LayerNorm, a, []array{x, gain, shift}, want, want.Shape.Size(), rel)
					want = evalExpanded(t, op.LayerNormGrad, a, x.converted(dtype.Float64), gain.converted(dtype.Float64), g.converted(dtype.Float64))
					// Sums of up to 900 products of magnitude 4.
					rel, _ = dtype.Float32.Tolerance()
					checkExpanded(t, what+" gradient", op.LayerNormGrad, a, []array{x, gain, g}, want, want.Shape.Size(), 4*rel)
				}
			}
		}
	})
}

// TestLayerNormGradNaN: a gain that is a NaN of any bits gives NaNs in all rows, also
// where 16-bit results are rounded without a check for NaNs.
func TestLayerNormGradNaN(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 8))
		for _, d := range []dtype.DType{dtype.BFloat16, dtype.Float16} {
			for _, bits := range []uint32{0x7fffffff, 0xffffffff, 0x7f800001} {
				const rows, features = 3, 67
				x, gain := randomArray(rng, d, rows, features), randomArray(rng, dtype.Float32, features)
				dtype.View[uint32](gain.data)[20] = bits
				got := eval(t, op.LayerNormGrad, op.Attr{Epsilon: 1e-3}, x, gain, x).values()
				for i, v := range got[:rows*features] {
					if v == v {
						t.Fatalf("%v with a gain of bits %#x: element %d is %v", d, bits, i, v)
					}
				}
			}
		}
	})
}

// TestColumnLevels does the same for moments and sums of columns: with and without
// several rows per unit, overlapping vectors, segments, and operands of two types.
func TestColumnLevels(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, s := range [][3]int{{1, 1, 1}, {2, 9000, 3}, {3, 77, 16}, {2, 700, 67}, {1, 40, 2055}, {40, 5, 10}} {
				x, g, center := randomArray(rng, d, s[:]...), randomArray(rng, d, s[:]...), randomArray(rng, dtype.Float32, s[0], s[2])
				wide := func(c op.Code, args ...array) array {
					for i, a := range args {
						args[i] = a.converted(dtype.Float64)
					}
					return evalExpanded(t, c, op.Attr{}, args...)
				}
				n := 2 * s[0] * s[2]
				rel, _ := dtype.Float32.Tolerance()
				checkExpanded(t, fmt.Sprintf("Moments of %v %v", d, s), op.Moments, op.Attr{}, []array{x}, wide(op.Moments, x), n, rel)
				for _, g := range []array{g, g.converted(dtype.Float32)} {
					what := fmt.Sprintf("BatchNormReduce of %v and %v %v", d, g.DType, s)
					checkExpanded(t, what, op.BatchNormReduce, op.Attr{}, []array{x, center, g}, wide(op.BatchNormReduce, x, center, g), n, rel)
				}
			}
		}
	})
}

// TestExp2Sum: powers of two are within three units in the last place for normal
// results, 0 below them, NaN for NaN.
func TestExp2Sum(t *testing.T) {
	forEachVectors(t, func(t *testing.T) {
		v := vec.Current()
		if v == nil {
			return
		}
		rng := rand.New(rand.NewPCG(3, 4))
		x := make([]float32, 1<<14)
		for i := range x {
			x[i] = 260*rng.Float32() - 130
		}
		x[0], x[1], x[2], x[3] = 0, float32(math.Inf(-1)), float32(math.NaN()), 127.5
		got, s := make([]float32, len(x)), []float32{1, 0, 0}
		v.Exp2Sum(got, x, s)
		for i, e := range x {
			want := math.Exp2(float64(e))
			switch {
			case e != e:
				if got[i] == got[i] {
					t.Errorf("2^NaN is %v", got[i])
				}
			case e < -126:
				if got[i] != 0 {
					t.Errorf("2^%v is %v, want 0", e, got[i])
				}
			case want > math.MaxFloat32:
				if !math.IsInf(float64(got[i]), 1) {
					t.Errorf("2^%v is %v, want infinity", e, got[i])
				}
			case math.Abs(float64(got[i])-want) > 3*0x1p-23*want:
				t.Errorf("2^%v is %v, want %v", e, got[i], want)
			}
		}
	})
}
