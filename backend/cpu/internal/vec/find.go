package vec

import (
	"math"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// finds adds what looks for elements of rows to s.
func (l *loops) finds(s *Set) {
	s.Folds.Find = finder(l.find, s.Lanes, func(x float32) float32 { return x })
	s.F16.Find = finder(l.findF16, s.Lanes, dtype.F16ToF32)
	s.BF16.Find = finder(l.findBF16, s.Lanes, dtype.BF16ToF32)
	s.Folds.RowMax, s.F16.RowMax, s.BF16.RowMax = s.Folds.Max, s.F16.Max, s.BF16.Max
	if l.extremes != nil {
		s.F16.RowMax = l.rowMax(0x7c00, dtype.F16ToF32)
		s.BF16.RowMax = l.rowMax(0x7f80, dtype.BF16ToF32)
	}
}

// finder looks through whole vectors in assembly and then, where one has the
// element and in the rest, element by element.
func finder[T float32 | uint16](f func(x unsafe.Pointer, n int, v float32) int, lanes int, value func(T) float32) func(a []T, v float32) int {
	return func(a []T, v float32) int {
		from := 0
		if n := len(a) / lanes * lanes; n > 0 {
			from = f(data(a), n, v)
		}
		for i, x := range a[from:] {
			if value(x) == v {
				return from + i
			}
		}
		return -1
	}
}

// rowMax is the largest of 16-bit floats, of which inf is infinity. As integers
// they have the order of the numbers if all bits but the sign of negative ones
// are inverted, with NaNs beyond the infinities.
func (l *loops) rowMax(inf uint16, value func(uint16) float32) func(a []uint16) float64 {
	order := func(x uint16) int16 { return int16(x ^ uint16(int16(x)>>15)&0x7fff) } // its own inverse
	return func(a []uint16) float64 {
		most, least := int16(math.MinInt16), int16(math.MaxInt16)
		n := len(a) &^ 31
		if n > 0 {
			r := l.extremes(data(a), n)
			most, least = int16(r), int16(r>>16)
		}
		for _, x := range a[n:] {
			most, least = max(most, order(x)), min(least, order(x))
		}
		switch {
		case len(a) == 0:
			return math.Inf(-1)
		case most > int16(inf) || least < order(inf|1<<15):
			return math.NaN()
		}
		return float64(value(uint16(order(uint16(most)))))
	}
}
