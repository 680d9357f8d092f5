package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestSoftmaxLevels runs softmaxes and their gradients over rows of whole vectors and
// others at every level: they agree with the expansion in float64 and have the same
// bits for any number of workers.
func TestSoftmaxLevels(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(31, 32))
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, s := range [][2]int{{5, 17}, {300, 64}, {37, 67}, {3, 5003}} {
				x, g := randomArray(rng, d, s[0], s[1]), randomArray(rng, d, s[0], s[1])
				rel, _ := d.Tolerance()
				for _, c := range []op.Code{op.Softmax, op.LogSoftmax} {
					a := op.Attr{Axes: []int{1}}
					want := evalExpanded(t, c, a, x.converted(dtype.Float64))
					checkExpanded(t, fmt.Sprint(c, x.Type), c, a, []array{x}, want, want.Shape.Size(), rel)
					a.DType = dtype.Float32 // rows of one type to rows of another
					want = evalExpanded(t, c, op.Attr{Axes: []int{1}}, x.converted(dtype.Float64))
					checkExpanded(t, fmt.Sprint(c, x.Type, " to float32"), c, a, []array{x}, want, want.Shape.Size(), rel)
				}
				a := op.Attr{Axes: []int{1}}
				want := evalExpanded(t, op.SoftmaxGrad, a, x.converted(dtype.Float64), g.converted(dtype.Float64))
				// The sum of up to 5003 products of numbers below 2 has the rounding
				// error of its largest partial sums, some tens.
				checkExpanded(t, fmt.Sprint(op.SoftmaxGrad, x.Type), op.SoftmaxGrad, a, []array{x, g}, want, want.Shape.Size(), 16*rel)
			}
		}
	})
}

// TestLargeRows: results that are stored non-temporally have the bits of small ones.
func TestLargeRows(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(33, 34))
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
			for _, width := range []int{1024, 1001} {
				if isatest.Emulated() && testing.Short() && width == 1024 {
					continue // 1001 has tails
				}
				const few = 3
				small := randomArray(rng, d, few, width)
				rows := lanes.NonTemporalBytes/(width*d.Size()) + few
				data := exec.Aligned(rows * width * d.Size())
				exec.Repeat(data, copy(data, small.data))
				large := array{op.Type{DType: d, Shape: op.Shape{rows, width}}, data}
				gain, shift := randomArray(rng, dtype.Float32, width), randomArray(rng, dtype.Float32, width)
				for _, c := range []struct {
					code op.Code
					attr op.Attr
					args func(x array) []array
				}{
					{op.Softmax, op.Attr{Axes: []int{1}}, func(x array) []array { return []array{x} }},
					{op.LogSoftmax, op.Attr{Axes: []int{1}}, func(x array) []array { return []array{x} }},
					{op.SoftmaxGrad, op.Attr{Axes: []int{1}}, func(x array) []array { return []array{x, x} }},
					{op.LayerNorm, op.Attr{Epsilon: 1e-3}, func(x array) []array { return []array{x, gain, shift} }},
					{op.LayerNormGrad, op.Attr{Epsilon: 1e-3}, func(x array) []array { return []array{x, gain, x} }},
				} {
					want := eval(t, c.code, c.attr, c.args(small)...)
					got := eval(t, c.code, c.attr, c.args(large)...)
					size := few * width * got.DType.Size()
					for row := 0; row+few <= rows; row += few * 97 {
						at := row * width * got.DType.Size()
						if !bytes.Equal(got.data[at:at+size], want.data[:size]) {
							t.Fatalf("%v of %v: rows from %d on differ from those of %v", c.code, large.Type, row, small.Type)
						}
					}
				}
			}
		}
	})
}

// TestFarMoments: the variance of a row does not cancel if its mean, or only its first
// element, is many standard deviations from 0.
func TestFarMoments(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		const n = 1000
		for _, first := range []float64{100, -300} {
			rng := rand.New(rand.NewPCG(35, 36))
			x := arrayOf(dtype.Float32, op.Shape{1, n}, func(i int) float64 {
				if i == 0 {
					return first
				}
				return 100 + rng.Float64()
			})
			var mean, variance float64
			for _, v := range x.values() {
				mean += v / n
			}
			for _, v := range x.values() {
				variance += (v - mean) * (v - mean) / n
			}
			p := lanes.NewRows(x.Type, n, dtype.Float32)
			m, v := p.MomentsOf(dtype.View[float32](x.data), x.data, false, make([]float32, lanes.PassNumbers))
			// Sums of up to 16 squares per lane, each rounded, and a shift of up to 4
			// standard deviations, whose square is subtracted from 17 times the
			// variance.
			if tol := 17 * 16 * 0x1p-24; math.Abs(m-mean) > tol || math.Abs(v-variance) > tol*variance {
				t.Errorf("first element %v: mean %v, variance %v, want %v, %v", first, m, v, mean, variance)
			}
		}
	})
}
