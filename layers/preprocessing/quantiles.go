package preprocessing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// quantiles is a summary of numbers by which any share of them is found within
// an error, in memory that does not grow with them: Keras's of Discretization,
// values rounded to float32 as there.
type quantiles struct {
	points []quantile // in order of the values
}

// quantile stands for weight numbers up to a value.
type quantile struct{ value, weight float64 }

// add takes in data, which it sorts. epsilon is the error of a share.
func (q *quantiles) add(data []float64, epsilon float64) {
	for i, v := range data {
		data[i] = float64(float32(v))
	}
	slices.Sort(data)
	step := max(float64(len(data))*epsilon, 1)
	for i := int(step - 1); i < len(data); i += int(step) {
		q.points = append(q.points, quantile{data[i], step})
	}
	slices.SortStableFunc(q.points, func(a, b quantile) int { return cmp.Compare(a.value, b.value) })
	q.compress(epsilon)
}

// check is an error if there are too few numbers for boundaries.
func (q *quantiles) check() error {
	if len(q.points) < 2 {
		return fmt.Errorf("got %d numbers, want at least 2", len(q.points))
	}
	return nil
}

// compress leaves the points at the shares epsilon, 2·epsilon … 1, if there
// are at least as many.
func (q *quantiles) compress(epsilon float64) {
	if float64(len(q.points))*epsilon < 1 {
		return
	}
	total := 0.0
	upTo := make([]float64, len(q.points))
	for i, p := range q.points {
		total += p.weight
		upTo[i] = total
	}
	n := int(math.Ceil(1 / epsilon))
	points := make([]quantile, n)
	before := 0.0
	for i := range points {
		weight := (epsilon + float64(i)*epsilon) * total
		k, _ := slices.BinarySearch(upTo, weight) // the first point not below it
		var value float64
		switch {
		case k == 0:
			value, weight = q.points[0].value, upTo[0]
		case k == len(upTo):
			value, weight = q.points[k-1].value, total
		default:
			at := (weight - upTo[k-1]) / (upTo[k] - upTo[k-1])
			value = q.points[k-1].value + at*(q.points[k].value-q.points[k-1].value)
		}
		points[i] = quantile{float64(float32(value)), weight - before}
		before = weight
	}
	q.points = points
}

// boundaries divides the numbers into bins of equal counts.
func (q *quantiles) boundaries(bins int) []float64 {
	q.compress(1 / float64(bins))
	all := make([]float64, 0, bins)
	for _, p := range q.points[:len(q.points)-1] {
		all = append(all, p.value)
	}
	return all
}
