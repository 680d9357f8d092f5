package plot

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// ticks marks an axis at multiples of 1, 2 or 5 times a power of ten, four to
// eight of them, with labels that differ.
type ticks struct {
	whole bool // of whole numbers, such as epochs
}

// Ticks implements plot.Ticker.
func (t ticks) Ticks(lo, hi float64) []plot.Tick {
	step := stepOf((hi - lo) / 6)
	if t.whole {
		step = max(step, 1)
	}
	format := labels(lo, hi, step)
	var all []plot.Tick
	for k := math.Ceil(lo/step - 1e-9); k*step <= hi+1e-9*step; k++ {
		all = append(all, plot.Tick{Value: k * step, Label: format(k * step)})
	}
	return all
}

// stepOf is the least of 1, 2 and 5 times a power of ten that is not below x.
func stepOf(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= x*(1-1e-9) {
			return n * power
		}
	}
	return 10 * power
}

// labels returns how numbers from lo to hi are written so that those that are a
// step apart differ: with decimals, or with an exponent where those would be
// many.
func labels(lo, hi, step float64) func(float64) string {
	largest := math.Max(math.Abs(lo), math.Abs(hi))
	places := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	if largest >= 1e6 || largest < 1e-3 {
		digits := int(math.Floor(math.Log10(largest)) - math.Floor(math.Log10(step)+1e-9))
		return func(x float64) string {
			if math.Abs(x) < step/2 {
				return "0"
			}
			return strconv.FormatFloat(x, 'e', max(digits, 0), 64)
		}
	}
	return func(x float64) string {
		if math.Abs(x) < step/2 {
			x = 0 // rather than -0
		}
		return strconv.FormatFloat(x, 'f', places, 64)
	}
}

// spread is the range that an axis shows of numbers from lo to hi: some around
// them where they are one.
func spread(lo, hi float64) (float64, float64) {
	switch {
	case hi-lo > 1e-9*math.Max(math.Abs(lo), math.Abs(hi)):
		return lo, hi
	case lo == 0 && hi == 0:
		return -1, 1
	}
	by := 0.1 * math.Max(math.Abs(lo), math.Abs(hi))
	return lo - by, hi + by
}
