package backendtest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// fill makes the elements of an argument. The generator is seeded by the name
// of the case, so a failure comes again.
type fill func(r *rand.Rand, t op.Type) []byte

// each builds a fill from one that makes an element, float or not.
func each(f func(r *rand.Rand) float64, i func(r *rand.Rand, d dtype.DType) int64) fill {
	return func(r *rand.Rand, t op.Type) []byte {
		a := newArray(t)
		n := t.Shape.Size()
		if t.DType.IsFloat() {
			v := make([]float64, n)
			for k := range v {
				v[k] = f(r)
			}
			dtype.FromF64(a.data, v, t.DType)
			return a.data
		}
		v := make([]int64, n)
		for k := range v {
			v[k] = i(r, t.DType)
		}
		dtype.FromI64(a.data, v, t.DType)
		return a.data
	}
}

// smallInt is in -9 … 9, or 0 … 9 for uint8.
func smallInt(r *rand.Rand, d dtype.DType) int64 {
	if d == dtype.Uint8 {
		return r.Int64N(10)
	}
	if d == dtype.Bool {
		return r.Int64N(2)
	}
	return r.Int64N(19) - 9
}

// fewInt is in -1 … 1, or 0 … 1.
func fewInt(r *rand.Rand, d dtype.DType) int64 {
	if d == dtype.Bool || d == dtype.Uint8 {
		return r.Int64N(2)
	}
	return r.Int64N(3) - 1
}

func uniform(lo, hi float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return lo + (hi-lo)*r.Float64() }
}

var (
	// numbers of magnitude 1 and of both signs.
	numbers = each(uniform(-2, 2), smallInt)
	// positive numbers away from 0.
	positive = each(uniform(0.1, 4), func(r *rand.Rand, d dtype.DType) int64 { return max(1, smallInt(r, d)) })
	// few values, so that many are equal.
	few = each(func(r *rand.Rand) float64 { return float64(r.IntN(5) - 2) }, fewInt)
	// eighths: quotients, their floors and products with them are exact or far
	// from an integer in every float type.
	eighths = each(func(r *rand.Rand) float64 { return float64(r.IntN(129)-64) / 8 }, smallInt)
	// nearOne: long products stay in range.
	nearOne = each(func(r *rand.Rand) float64 { return (1 - 2*float64(r.IntN(2))) * (0.9 + 0.2*r.Float64()) },
		func(r *rand.Rand, d dtype.DType) int64 { return int64(r.IntN(2)) })
	// logits spread as those of a confident classifier.
	logits = each(uniform(-30, 30), smallInt)
)

// random bit patterns of the type: all magnitudes, NaN and infinities among
// them.
func bits(r *rand.Rand, t op.Type) []byte {
	a := newArray(t)
	for i := range a.data {
		a.data[i] = byte(r.Uint32())
	}
	if t.DType == dtype.Bool {
		for i := range a.data {
			a.data[i] &= 1
		}
	}
	return a.data
}

// allBits16 are all 65,536 values of a 16-bit type.
func allBits16(_ *rand.Rand, t op.Type) []byte {
	a := newArray(t)
	for i := range t.Shape.Size() {
		binary.LittleEndian.PutUint16(a.data[2*i:], uint16(i))
	}
	return a.data
}

// constant is v everywhere.
func constant(v float64) fill {
	return func(_ *rand.Rand, t op.Type) []byte { return filled(t.DType, t.Shape.Size(), v) }
}

// values repeats a list.
func values(list ...float64) fill {
	return func(_ *rand.Rand, t op.Type) []byte {
		v := make([]float64, t.Shape.Size())
		for i := range v {
			v[i] = list[i%len(list)]
		}
		a := newArray(t)
		dtype.FromF64(a.data, v, t.DType)
		return a.data
	}
}

// indices are in 0 … n-1, with repetitions.
func indices(n int) fill {
	return func(r *rand.Rand, t op.Type) []byte {
		v := make([]int64, t.Shape.Size())
		for i := range v {
			v[i] = r.Int64N(int64(n))
		}
		a := newArray(t)
		dtype.FromI64(a.data, v, t.DType)
		return a.data
	}
}

// special is the list of special values of the type, repeated.
func special(_ *rand.Rand, t op.Type) []byte {
	if t.DType.IsFloat() {
		return values(specialFloats(t.DType)...)(nil, t)
	}
	list := specialInts(t.DType)
	v := make([]int64, t.Shape.Size())
	for i := range v {
		v[i] = list[i%len(list)]
	}
	a := newArray(t)
	dtype.FromI64(a.data, v, t.DType)
	return a.data
}

// specialFloats has, besides zeros, infinities, NaN and the ends of the type's
// range, the ties of rounding to each 16-bit type and the neighbours of the
// integer types' ends.
func specialFloats(d dtype.DType) []float64 {
	list := []float64{
		0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1),
		1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3, -7, 0.1, -10,
		d.Max(), -d.Max(), d.SmallestNormal(), -d.SmallestNormal(),
		d.SmallestSubnormal(), -d.SmallestSubnormal(), d.SmallestNormal() / 2,
		d.SmallestNormal() - d.SmallestSubnormal(), 1 + d.Epsilon(), 1 - d.Epsilon()/2, d.Epsilon(),
		127.5, 128.5, 255.5, 256, -0.75, 1e10, -1e10,
		0x1p31, -0x1p31, 0x1p31 - 1, 0x1p63, -0x1p63, -0x1p64,
	}
	for _, h := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32} {
		half, sub := h.Epsilon()/2, h.SmallestSubnormal()
		over := h.Max() * (1 + h.Epsilon()/4)
		list = append(list,
			1+half, 1+3*half, // ties: down to even, up to even
			math.Nextafter(1+half, 2), math.Nextafter(1+half, 0),
			sub/2, sub*3/2, math.Nextafter(sub/2, 1), // ties of subnormals
			over, math.Nextafter(over, 0), // tie between the largest value and infinity
		)
	}
	return list
}

func specialInts(d dtype.DType) []int64 {
	lo, hi := bound(d, false), bound(d, true)
	if d == dtype.Bool {
		return []int64{0, 1}
	}
	list := []int64{0, 1, 2, 7, 100, lo, lo + 1, hi, hi - 1, hi / 2}
	if lo < 0 {
		list = append(list, -1, -2, -7, -100, lo/2)
	}
	if d == dtype.Int64 { // rounding to float32, float64 and back
		list = append(list, 1<<24+1, 1<<53+1, -(1<<53 + 1), 1<<31, 1<<32+5, 1<<40+1<<28, 1<<40+1<<28+1)
	}
	return list
}
func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
