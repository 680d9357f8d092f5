package tensorboard

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras/exponents"
)

// parts is how many buckets a histogram has (TensorFlow: tf.summary.histogram).
const parts = 30

// buckets are equal parts of the range of values. All of one value are one
// bucket around it.
func buckets(values []float32) []Bucket {
	low, high, n := math.Inf(1), math.Inf(-1), 0
	for _, v := range values {
		if x := float64(v); finite(x) {
			low, high = min(low, x), max(high, x)
			n++
		}
	}
	switch {
	case n == 0:
		return nil
	case low == high:
		return []Bucket{{low - 0.5, high + 0.5, float64(n)}}
	}
	all := make([]Bucket, parts)
	width := (high - low) / parts
	for i := range all {
		all[i].Left, all[i].Right = low+float64(i)*width, low+float64(i+1)*width
	}
	all[parts-1].Right = high
	for _, v := range values {
		if x := float64(v); finite(x) {
			all[min(int((x-low)/width), parts-1)].Count++
		}
	}
	return all
}

// binades are the powers of 2 of a histogram, at least those of float16.
func binades(h *exponents.Histogram) []Bucket {
	first, last, ok := h.Range()
	if !ok {
		return nil
	}
	l := exponents.LimitsOf(dtype.Float16)
	var all []Bucket
	for e := min(first, l.Subnormal); e <= max(last, l.Overflow-1); e++ {
		all = append(all, Bucket{float64(e), float64(e + 1), float64(h.Binade(e))})
	}
	return all
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
