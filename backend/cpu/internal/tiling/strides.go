package tiling

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Grain is how many elements a chunk has, roughly.
const Grain = 1 << 14

// RowMajor is the strides of a contiguous layout.
func RowMajor(s op.Shape) []int {
	strides := make([]int, len(s))
	n := 1
	for i, d := range slices.Backward(s) {
		strides[i] = n
		n *= d
	}
	return strides
}
