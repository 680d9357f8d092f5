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

// RoundUp returns the least multiple of to that is not below n.
func RoundUp(n, to int) int { return CeilDiv(n, to) * to }

// Even returns the size of the parts when n is cut into as few equal parts of at
// most most as possible. The size is a multiple of unit.
func Even(n, most, unit int) int {
	return max(unit, RoundUp(CeilDiv(n, max(1, CeilDiv(n, most))), unit))
}

// MinChunks is the number of chunks that a task is cut into at least, where its size allows.
const MinChunks = 8

// Cut returns part i when rows are cut into parts whose sizes differ by one at
// most: a small last part would be slow.
func Cut(i, parts, rows int) (at, end int) { return i * rows / parts, (i + 1) * rows / parts }
