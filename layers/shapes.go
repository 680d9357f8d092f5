package layers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// single returns the shape of a layer's only input, which must have at least
// rank axes.
func single(in []Shape, rank int) (Shape, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("got %d inputs, want one tensor", len(in))
	}
	if len(in[0]) < rank {
		return nil, fmt.Errorf("input %v has %d axes, want at least %d", in[0], len(in[0]), rank)
	}
	return in[0], nil
}

// lastAxis returns the size of the last axis of a layer's only input, which
// must be known.
func lastAxis(in []Shape) (int, error) {
	s, err := single(in, 2)
	if err != nil {
		return 0, err
	}
	return knownAxis(s, len(s)-1)
}

// knownAxis returns the size of an axis that weights depend on.
func knownAxis(s Shape, axis int) (int, error) {
	a, err := s.Axis(axis)
	if err != nil {
		return 0, err
	}
	if s[a] == tensor.Unknown {
		return 0, fmt.Errorf("axis %d of input %v has no size, want one: weights depend on it", axis, s)
	}
	return s[a], nil
}

// unknowns counts the axes whose size is not known yet.
func unknowns(s Shape) (n int) {
	for _, d := range s {
		if d == tensor.Unknown {
			n++
		}
	}
	return n
}

// normalAxes resolves negative axes of a field Axis and returns them in order.
func normalAxes(s Shape, axes []int) ([]int, error) {
	out := make([]int, len(axes))
	for i, axis := range axes {
		a, err := s.Axis(axis)
		if err != nil {
			return nil, fmt.Errorf("Axis is %v, want axes of input %v", axes, s)
		}
		out[i] = a
	}
	slices.Sort(out)
	if len(slices.Compact(slices.Clone(out))) < len(out) {
		return nil, fmt.Errorf("Axis is %v, want each axis of input %v once", axes, s)
	}
	return out, nil
}

// along returns the shape that a weight over axes broadcasts with: the sizes
// of s on the axes, 1 elsewhere.
func along(s Shape, axes []int) Shape {
	out := make(Shape, len(s))
	for i, d := range s {
		out[i] = 1
		if slices.Contains(axes, i) {
			out[i] = d
		}
	}
	return out
}
