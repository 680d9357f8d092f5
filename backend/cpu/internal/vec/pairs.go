package vec

import "math"

// PairSums is sums over pairs of numbers x and y, and the largest |x-y|.
type PairSums struct{ SquaredErrors, SquaresX, SquaresY, Products, LargestError float64 }

// Add adds a pair.
func (s *PairSums) Add(x, y float64) {
	d := x - y
	s.SquaredErrors += d * d
	s.SquaresX += x * x
	s.SquaresY += y * y
	s.Products += x * y
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

// MagnitudesOfPairs is [Set.PairMagnitudes] in Go, for any length. It compares bits,
// without a branch on data.
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

// PairScratch is the bytes of scratch memory of PairSums and PairMagnitudes.
const PairScratch = 7 * Line

// pairs adds what compares a value with its reference to s. The results of the
// assembly are vectors, a line apart, whose lanes are joined here. They lie in memory
// of the caller, as all that is given to a function in a table escapes.
func (l *loops) pairs(s *Set) {
	const line64, line32 = Line / 8, Line / 4
	s.PairSums = func(scratch []float64, x, y []float32) PairSums {
		r := scratch[:5*line64]
		l.pairSums(data(r), data(x), data(y[:len(x)]), len(x)&^15)
		var sums [5]float64
		for i := range s.Lanes / 2 {
			for k := range 4 {
				sums[k] += r[k*line64+i]
			}
			sums[4] = max(sums[4], r[4*line64+i])
		}
		// The root of a square that is neither too large nor too small is the number,
		// to the bit.
		return PairSums{sums[0], sums[1], sums[2], sums[3], math.Sqrt(sums[4])}
	}
	s.PairMagnitudes = func(scratch []float32, x, y []float32) (m PairMagnitudes) {
		r := scratch[:7*line32]
		l.pairMagnitudes(data(r), data(x), data(y[:len(x)]), len(x)&^15)
		for k := range 2 {
			m.Smallest[k] = r[(2+k)*line32]
			for i := range s.Lanes {
				m.Largest[k], m.Smallest[k] = max(m.Largest[k], r[k*line32+i]), min(m.Smallest[k], r[(2+k)*line32+i])
				m.Zeros[k] += int(math.Float32bits(r[(4+k)*line32+i]))
			}
		}
		for i := range s.Lanes {
			m.BothZero += int(math.Float32bits(r[6*line32+i]))
		}
		return m
	}
}
