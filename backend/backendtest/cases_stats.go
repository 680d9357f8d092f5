package backendtest

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() { register(statsCases, op.Stats) }

// magnitudes are numbers of all magnitudes of float32 and beyond both ends, and zeros.
var magnitudes = each(func(r *rand.Rand) float64 {
	if r.IntN(50) == 0 {
		return 0
	}
	return math.Ldexp(1-2*r.Float64(), r.IntN(300)-160)
}, smallInt)

func statsCases(b *builder) {
	references := []dtype.DType{b.dtype}
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float64} {
		if d != b.dtype {
			references = append(references, d)
		}
	}
	for _, d := range references {
		to := ""
		if d != b.dtype {
			to = suffix(d)
		}
		for _, s := range shapeClasses {
			args := []op.Type{b.t(s.shape...), {DType: d, Shape: s.shape}}
			b.add(s.name+to, op.Attr{}, args, numbers).Large = large(s.name)
			b.add(s.name+"Magnitudes"+to, op.Attr{}, args, magnitudes).Large = large(s.name)
			b.add(s.name+"Bits"+to, op.Attr{}, args, bits).Large = large(s.name)
		}
		args := func(shape ...int) []op.Type { return []op.Type{b.t(shape...), {DType: d, Shape: shape}} }
		// Pairs of special values: each with itself and with others.
		b.add("special"+to, op.Attr{}, args(65), special)
		b.add("specials"+to, op.Attr{}, args(3001), special, rotated)
		b.add("zeros"+to, op.Attr{}, args(1500), constant(0))
		b.add("flushed"+to, op.Attr{}, args(1500), values(0, 1, math.Copysign(0, -1), 2), values(0x1p-30, 1, math.Inf(1), 0, 3))
		b.add("nothing"+to, op.Attr{}, args(1500), constant(math.NaN()), constant(math.Inf(-1)))
		b.add("largest"+to, op.Attr{}, args(1500), constant(min(b.dtype.Max(), math.MaxFloat32)), constant(-min(d.Max(), math.MaxFloat32)))
		if b.dtype.Is16() {
			b.add("all"+to, op.Attr{}, args(1<<16), allBits16, magnitudes)
		}
	}
}

// rotated is special, seven places further.
func rotated(r *rand.Rand, t op.Type) []byte {
	data := special(r, t)
	at := min(len(data), 7*t.DType.Size())
	return slices.Concat(data[at:], data[:at])
}
