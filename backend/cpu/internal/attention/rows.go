package attention

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/reduce"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// Loops over a row of scores, in assembly where package vec has it.

func scaleRow(x []float32, by float32) {
	if v := vec.Native(); v != nil {
		v.MulScalar(x, x, by)
		return
	}
	for i := range x {
		x[i] *= by
	}
}

func addRow(x []float32, c float32) {
	if v := vec.Native(); v != nil {
		v.AddScalar(x, x, c)
		return
	}
	for i := range x {
		x[i] += c
	}
}

// scaleAddRow computes x = x·by + c, rounded once if bits must be portable, as on AVX-512.
func scaleAddRow(x []float32, by, c float32) {
	if !isa.PortableBits() {
		scaleRow(x, by)
		addRow(x, c)
		return
	}
	for i, v := range x {
		x[i] = portablemath.FMA32(v, by, c)
	}
}

func mulRow(x, by []float32) {
	if v := vec.Native(); v != nil {
		v.Mul(x, x, by[:len(x)])
		return
	}
	for i := range x {
		x[i] *= by[i]
	}
}

func maxRow(x []float32) float32 {
	if v := vec.Native(); v != nil {
		return float32(v.Max(x))
	}
	return float32(reduce.MaxRun(x))
}

// expRow computes x = by·exp(min(0, x-top)·scale) in place and returns the sum if by is 1. It
// writes 0 after x up to a whole vector: rows of scores have room for it. s is scratch
// memory.
func expRow(x []float32, scale, top, by float32, s []float32) float32 {
	switch v := vec.Current(); {
	case isa.PortableBits():
		return lanes.Exp2BelowSum(wholeRow(x, portableVector), scale*math.Log2E, top, by, s)
	case v != nil:
		whole := wholeRow(x, v.Lanes)
		s[0], s[1], s[2] = scale*math.Log2E, top, by
		v.Exp2BelowSum(whole, whole, s)
		return s[3]
	}
	for i, a := range x {
		x[i] = min(0, a-top) * scale
	}
	lanes.ExpAll(x, x)
	sum := reduce.SumRun[float32, float64](x)
	if by != 1 {
		scaleRow(x, by)
	}
	return float32(sum)
}

// portableVector is the elements of a vector of AVX-512, whose sums are those of all levels if
// bits must be portable.
const portableVector = 16

// wholeRow returns x extended to a multiple of width, filled with -∞.
func wholeRow(x []float32, width int) []float32 {
	whole := x[:tiling.RoundUp(len(x), width)]
	lanes.Fill(whole[len(x):], float32(math.Inf(-1)))
	return whole
}

// whereRow sets x[i] to v[0] where keep[i] is 0; all of v has that value.
func whereRow(x []float32, keep []byte, v []float32) {
	if s := vec.Native(); s != nil {
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

// dropout drops weights: draw i decides on weight i of [B H T S], independently of
// blocks.
type dropout struct {
	stream uint64
	bits16 bool      // draws have 16 bits
	bound  []float32 // draws from bound on keep a weight; repeated
	scale  float32   // factor of kept weights
}

func newDropout(a op.Attr) *dropout {
	bits, bound := op.DropDraw(a.DropoutRate)
	d := &dropout{a.Stream, bits == 16, make([]float32, lanes.Block), float32(a.KeepScale())}
	lanes.Fill(d.bound, float32(bound))
	return d
}

// keep writes 1 to out for each draw from lo on that keeps its weight, and 0 for the
// others. len(out) must be a multiple of 256, at most randomPart; random is scratch
// memory.
func (d *dropout) keep(out []byte, random []float32, all elementwise.Draw, lo int) {
	v := vec.Native()
	if v != nil && d.bits16 {
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
