package vec

import (
	"math"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
)

// PairSums is sums over pairs of numbers x and y, and the largest |x-y|.
type PairSums struct{ SquaredErrors, SquaresX, SquaresY, Products, LargestError float64 }

// Add adds a pair.
func (s *PairSums) Add(x, y float64) {
	d := x - y
	s.SquaredErrors += float64(d * d)
	s.SquaresX += float64(x * x)
	s.SquaresY += float64(y * y)
	s.Products += float64(x * y)
	s.LargestError = max(s.LargestError, math.Abs(d))
}

// SumPairs is [Set.PairSums] in Go, for any length. It adds in two chains.
func SumPairs(x, y []float32) PairSums {
	var a, b PairSums
	y = y[:len(x)]
	i := 0
	for ; i+1 < len(x); i += 2 {
		a.Add(float64(x[i]), float64(y[i]))
		b.Add(float64(x[i+1]), float64(y[i+1]))
	}
	if i < len(x) {
		a.Add(float64(x[i]), float64(y[i]))
	}
	return PairSums{a.SquaredErrors + b.SquaredErrors, a.SquaresX + b.SquaresX, a.SquaresY + b.SquaresY, a.Products + b.Products, max(a.LargestError, b.LargestError)}
}

// PairMagnitudes is the largest magnitudes of finite numbers x and y, the smallest
// that are not 0, infinity if there is none, the numbers of zeros, and how often both
// are 0.
type PairMagnitudes struct {
	Largest, Smallest [2]float32
	Zeros             [2]int
	BothZero          int
}

// MagnitudesOfPairs compares bits, without a branch on data.
func MagnitudesOfPairs(x, y []float32) PairMagnitudes {
	const infinity = 0x7f800000
	var mostX, mostY, zerosX, zerosY, both uint32
	leastX, leastY := uint32(infinity-1), uint32(infinity-1)
	y = y[:len(x)]
	for i, v := range x {
		a, b := math.Float32bits(v)&0x7fffffff, math.Float32bits(y[i])&0x7fffffff
		mostX, mostY = max(mostX, a), max(mostY, b)
		a, b = a-1, b-1 // of 0 the largest of all
		leastX, leastY = min(leastX, a), min(leastY, b)
		zerosX, zerosY, both = zerosX+a>>31, zerosY+b>>31, both+(a&b)>>31
	}
	return PairMagnitudes{
		Largest:  [2]float32{math.Float32frombits(mostX), math.Float32frombits(mostY)},
		Smallest: [2]float32{math.Float32frombits(leastX + 1), math.Float32frombits(leastY + 1)},
		Zeros:    [2]int{int(zerosX), int(zerosY)}, BothZero: int(both),
	}
}

// FieldsBlock is how many elements Set.Magnitudes and Set.CountFields take at most.
const FieldsBlock = 4032

// StatsScratch is the bytes of scratch memory of PairSums, Magnitudes and CountFields.
const StatsScratch = 8 * Line

// stats adds what compares a value with its reference to s. The results of the
// assembly are vectors, a line apart, whose lanes are joined here. They lie in memory
// of the caller, as all that is given to a function in a table escapes.
func (l *loops) stats(s *Set) {
	const line64, line32 = Line / 8, Line / 4
	s.PairSums = func(scratch []byte, x, y []float32) PairSums {
		r := unsafe.Slice((*float64)(data(scratch[:StatsScratch])), 5*line64)
		l.pairSums(data(r), data(x), data(y[:len(x)]), len(x)&^15)
		var p PairSums
		for i := range s.Lanes / 2 {
			p.SquaredErrors += r[i]
			p.SquaresX += r[line64+i]
			p.SquaresY += r[2*line64+i]
			p.Products += r[3*line64+i]
			p.LargestError = max(p.LargestError, r[4*line64+i])
		}
		return p
	}
	s.Magnitudes = func(scratch, fields []byte, x []float32) (largest, smallest uint32) {
		r := unsafe.Slice((*uint32)(data(scratch[:StatsScratch])), 2*line32)
		l.magnitudes(data(r), data(fields[:len(x)]), data(x), len(x)&^63)
		smallest--
		for i := range s.Lanes {
			largest, smallest = max(largest, r[i]), min(smallest, r[line32+i])
		}
		return largest, smallest + 1
	}
	s.CountFields = l.countEight
	if l.countFieldsWide != nil && isa.HasBitMatrices() {
		s.CountFields = l.countWide
	}
}

// countEight is Set.CountFields with countFields.
func (l *loops) countEight(scratch []byte, counts *[256]uint32, fields []byte, low, high uint8) int {
	r := (*[8]uint64)(data(scratch[:StatsScratch]))
	counted := 0
	for first := int(high) - 7; first > int(low)-8; first -= 8 {
		l.countFields(data(r[:]), data(fields), len(fields)&^63, first)
		counted += addCounts(counts, first, r[:])
	}
	return counted
}

// countWide is Set.CountFields with countFieldsWide.
func (l *loops) countWide(scratch []byte, counts *[256]uint32, fields []byte, low, high uint8) int {
	const block = 31 * 64
	r := (*[32]uint64)(data(scratch[:StatsScratch]))
	counted := 0
	for len(fields) > 0 {
		n := min(len(fields), block)
		for first := int(high) - 31; first > int(low)-32; first -= 32 {
			l.countFieldsWide(data(r[:]), data(fields), n&^63, first)
			counted += addCounts(counts, first, r[:])
		}
		fields = fields[n:]
	}
	return counted
}

// addCounts adds how often first and the numbers after it occur, but for 0 and what
// is below, and returns the sum.
func addCounts(counts *[256]uint32, first int, found []uint64) int {
	from := max(0, 1-first)
	to := counts[first+from:]
	n := 0
	for k, v := range found[from:] {
		to[k] += uint32(v)
		n += int(v)
	}
	return n
}
