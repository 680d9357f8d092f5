package attention

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/reduce"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Loops over a row of scores, in assembly where there is some.

func scaleRow(x []float32, by float32) {
	if v := vec.Current(); v != nil {
		v.MulScalar(x, x, by)
		return
	}
	for i := range x {
		x[i] *= by
	}
}

func addRow(x []float32, c float32) {
	if v := vec.Current(); v != nil {
		v.AddScalar(x, x, c)
		return
	}
	for i := range x {
		x[i] += c
	}
}

func mulRow(x, by []float32) {
	if v := vec.Current(); v != nil {
		v.Mul(x, x, by[:len(x)])
		return
	}
	for i := range x {
		x[i] *= by[i]
	}
}

func maxRow(x []float32) float32 {
	if v := vec.Current(); v != nil {
		return float32(v.Max(x))
	}
	return float32(reduce.MaxRun(x))
}

// expRow is by times e to the power of min(0, x-top)·scale, in place, and returns the
// sum. What is behind x, up to a whole vector, is overwritten by 0: rows of scores
// have room for it. s is scratch memory.
func expRow(x []float32, scale, top, by float32, s []float32) float64 {
	if v := vec.Current(); v != nil {
		whole := wholeRow(x, v.Lanes)
		s[0], s[1], s[2] = scale*math.Log2E, top, by
		v.Exp2BelowSum(whole, whole, s)
		return float64(s[3])
	}
	for i, v := range x {
		x[i] = min(0, v-top) * scale
	}
	lanes.ExpAll(x, x)
	if by != 1 {
		scaleRow(x, by)
	}
	return reduce.SumRun[float32, float64](x)
}

// wholeRow is x up to a whole vector, with -∞ behind it.
func wholeRow(x []float32, width int) []float32 {
	whole := x[:tiling.RoundUp(len(x), width)]
	lanes.Fill(whole[len(x):], float32(math.Inf(-1)))
	return whole
}

// whereRow puts v[0] where keep is 0.
func whereRow(x []float32, keep []byte, v []float32) {
	if s := vec.Current(); s != nil {
		for len(x) > 0 {
			n := min(len(x), len(v))
			s.Where(x[:n], keep[:n], x[:n], v[:n])
			x, keep = x[n:], keep[n:]
		}
		return
	}
	for i := range x {
		if keep[i] == 0 {
			x[i] = v[0]
		}
	}
}

var hidden = func() (x [lanes.Block]float32) {
	for i := range x {
		x[i] = float32(math.Inf(-1))
	}
	return
}()

// dropout is how weights are dropped: number i of the draw decides on weight i
// of [B H T S], wherever the blocks begin.
type dropout struct {
	stream uint64
	halves bool      // numbers have 16 bits
	bound  []float32 // of those that keep a weight, repeated
	scale  float32   // of what is kept
}

func newDropout(a op.Attr) *dropout {
	bits, bound := op.DropDraw(a.DropoutRate)
	d := &dropout{a.Stream, bits == 16, make([]float32, lanes.Block), float32(a.KeepScale())}
	lanes.Fill(d.bound, float32(bound))
	return d
}

// keep writes 1 for the numbers from number lo on that are kept, 0 for the others:
// a multiple of 256, up to randomPart, which random is scratch memory for.
func (d *dropout) keep(out []byte, random []float32, all elementwise.Draw, lo int) {
	v := vec.Current()
	if v != nil && d.halves {
		all.AtLeast(lo, out, d.bound[0])
		return
	}
	random = random[:len(out)]
	all.Uniform(lo, random)
	if v != nil {
		v.LessEqual(out, d.bound[:len(out)], random)
		return
	}
	for i, x := range random {
		out[i] = lanes.Truth(x >= d.bound[0])
	}
}
