// Package tiling has the arithmetic of cutting shapes into tiles and chunks, and of
// placing buffers in scratch memory.
package tiling

import "slices"

// OffsetAt returns the offset of element i, in row-major order, of axes of the
// given sizes and strides, outermost first.
func OffsetAt(i int, dims, strides []int) int {
	at := 0
	for j, d := range slices.Backward(dims) {
		at += i % d * strides[j]
		i /= d
	}
	return at
}

// CeilDiv returns n/by, rounded up.
func CeilDiv(n, by int) int { return (n + by - 1) / by }

// RoundUp returns n rounded up to a multiple of to.
func RoundUp(n, to int) int { return CeilDiv(n, to) * to }

// Even returns the size of the parts when n is cut into equal parts, as few as
// possible, of at most most. The size is a multiple of unit.
func Even(n, most, unit int) int {
	return max(unit, RoundUp(CeilDiv(n, max(1, CeilDiv(n, most))), unit))
}

// MinChunks is the least number of chunks of a task, if its size allows.
const MinChunks = 8

// Cut returns the bounds of part i of rows. Sizes of parts differ by at most one: a
// small last part would be slow.
func Cut(i, parts, rows int) (at, end int) { return i * rows / parts, (i + 1) * rows / parts }
