package tiling

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Grain is about the number of elements per chunk.
const Grain = 1 << 14

// RowMajor returns the strides of a contiguous layout.
func RowMajor(s op.Shape) []int {
	strides := make([]int, len(s))
	n := 1
	for i, d := range slices.Backward(s) {
		strides[i] = n
		n *= d
	}
	return strides
}
