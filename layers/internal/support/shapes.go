// Package support is what the packages of layers share: checks of fields and of
// inputs, the axes of images and other fields, and windows that slide over them.
package support

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// CheckAxes wants one input with the number of axes that the layer was built
// for, and the given sizes of some of them.
func CheckAxes(in []tensor.Shape, built tensor.Shape, axes []int, sizes tensor.Shape) error {
	s, err := Single(in, 1)
	if err != nil {
		return err
	}
	if len(s) != len(built) {
		return fmt.Errorf("input %v has %d axes, want %d as in %v", s, len(s), len(built), built)
	}
	for i, a := range axes {
		if s[a] != sizes[i] {
			return fmt.Errorf("axis %d of input %v is %d, want %d", a, s, s[a], sizes[i])
		}
	}
	return nil
}

// SizedAxis is the size of an axis of pixels, which must be known.
func SizedAxis(s tensor.Shape, axis int) (int, error) {
	switch n := s[axis]; {
	case n == tensor.Unknown:
		return 0, fmt.Errorf("axis %d of input %v has no size, want one", axis, s)
	case n == 0:
		return 0, fmt.Errorf("axis %d of input %v is empty, want pixels", axis, s)
	default:
		return n, nil
	}
}

// Single returns the shape of a layer's only input, which must have at least
// rank axes.
func Single(in []tensor.Shape, rank int) (tensor.Shape, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("got %d inputs, want one tensor", len(in))
	}
	if len(in[0]) < rank {
		return nil, fmt.Errorf("input %v has %d axes, want at least %d", in[0], len(in[0]), rank)
	}
	return in[0], nil
}

// LastAxis returns the size of the last axis of a layer's only input, which
// must be known.
func LastAxis(in []tensor.Shape) (int, error) {
	s, err := Single(in, 2)
	if err != nil {
		return 0, err
	}
	return KnownAxis(s, len(s)-1)
}

// KnownAxis returns the size of an axis that weights depend on.
func KnownAxis(s tensor.Shape, axis int) (int, error) {
	a, err := s.Axis(axis)
	if err != nil {
		return 0, err
	}
	if s[a] == tensor.Unknown {
		return 0, fmt.Errorf("axis %d of input %v has no size, want one: weights depend on it", axis, s)
	}
	return s[a], nil
}

// Unknowns counts the axes whose size is not known yet.
func Unknowns(s tensor.Shape) (n int) {
	for _, d := range s {
		if d == tensor.Unknown {
			n++
		}
	}
	return n
}

// NormalAxes resolves negative axes of a field Axis and returns them in order.
func NormalAxes(s tensor.Shape, axes []int) ([]int, error) {
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

// Along returns the shape that a weight over axes broadcasts with: the sizes
// of s on the axes, 1 elsewhere.
func Along(s tensor.Shape, axes []int) tensor.Shape {
	out := make(tensor.Shape, len(s))
	for i, d := range s {
		out[i] = 1
		if slices.Contains(axes, i) {
			out[i] = d
		}
	}
	return out
}
