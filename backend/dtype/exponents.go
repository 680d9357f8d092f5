package dtype

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"
)

// ExponentCounter counts floats by the exponent field of the float32 that is equal to
// them: field e counts the numbers from 2^(e-127) to below 2^(e-126), of either sign,
// field 0 zeros and the subnormal numbers of float32, and field 255 infinities and
// NaNs. The zero value has counted nothing. A counter counts up to 2^32 elements.
type ExponentCounter struct {
	// Neighbouring elements often have the same exponent. Each of four is counted in a
	// table of its own, so that no count waits for the last one to be stored.
	tables [4][256]uint32
}

// Count returns the count of a field.
func (c *ExponentCounter) Count(field uint8) int {
	return int(c.tables[0][field]) + int(c.tables[1][field]) + int(c.tables[2][field]) + int(c.tables[3][field])
}

// AddF32 counts float32.
func (c *ExponentCounter) AddF32(x []float32) {
	pairs := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(x))), len(x)/2)
	x = x[len(pairs)/2*4:]
	for ; len(pairs) >= 2; pairs = pairs[2:] {
		a, b := pairs[0], pairs[1]
		c.tables[0][uint8(a>>23)]++
		c.tables[1][uint8(a>>55)]++
		c.tables[2][uint8(b>>23)]++
		c.tables[3][uint8(b>>55)]++
	}
	for _, v := range x {
		c.tables[0][uint8(math.Float32bits(v)>>23)]++
	}
}

// AddBF16 counts bfloat16.
func (c *ExponentCounter) AddBF16(x []uint16) {
	fours, x := inFours(x)
	for _, a := range fours {
		c.tables[0][uint8(a>>7)]++
		c.tables[1][uint8(a>>23)]++
		c.tables[2][uint8(a>>39)]++
		c.tables[3][uint8(a>>55)]++
	}
	for _, h := range x {
		c.tables[0][uint8(h>>7)]++
	}
}

// AddF16 counts float16.
func (c *ExponentCounter) AddF16(x []uint16) {
	const (
		fraction, mask = 10, 0x1f
		bias           = 127 - 15
		block          = 1 << 10 // elements in which subnormal numbers are looked for if there are any
	)
	var own ExponentCounter // by float16's exponent field
	for small := 0; len(x) > 0; {
		part := x[:min(len(x), block)]
		x = x[len(part):]
		fours, rest := inFours(part)
		for _, a := range fours {
			own.tables[0][uint8(a>>10)&mask]++
			own.tables[1][uint8(a>>26)&mask]++
			own.tables[2][uint8(a>>42)&mask]++
			own.tables[3][uint8(a>>58)&mask]++
		}
		for _, h := range rest {
			own.tables[0][uint8(h>>10)&mask]++
		}
		was := small
		if small = own.Count(0); small == was {
			continue
		}
		zeros := CountZeros16(part)
		c.tables[0][0] += uint32(zeros)
		if zeros == small-was {
			continue
		}
		for _, h := range part {
			if a := h & 0x7fff; a != 0 && a < 1<<fraction { // a·2^-24
				c.tables[0][bias-fraction+bits.Len16(a)]++
			}
		}
	}
	for f := uint8(1); f < mask; f++ {
		c.tables[0][f+bias] += uint32(own.Count(f))
	}
	c.tables[0][255] += uint32(own.Count(mask))
}

// inFours returns groups of four elements, and the rest.
func inFours(x []uint16) (fours []uint64, rest []uint16) {
	fours = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(x))), len(x)/4)
	return fours, x[4*len(fours):]
}

// Add counts the elements of data, of a float type of up to 32 bits.
func (c *ExponentCounter) Add(data []byte, d DType) {
	switch d {
	case Float32:
		c.AddF32(View[float32](data))
	case BFloat16:
		c.AddBF16(View[uint16](data))
	case Float16:
		c.AddF16(View[uint16](data))
	default:
		panic(fmt.Errorf("dtype: ExponentCounter.Add: got %v, want float16, bfloat16 or float32", d))
	}
}

// CountZeros32 returns the number of zeros of either sign. Its loop has no branch on
// data.
func CountZeros32(x []float32) int {
	n := uint32(0)
	for _, v := range x {
		n += (math.Float32bits(v)&0x7fffffff - 1) >> 31
	}
	return int(n)
}

// CountZeros16 is CountZeros32 for float16 and bfloat16.
func CountZeros16(x []uint16) int {
	n := uint32(0)
	for _, h := range x {
		n += (uint32(h&0x7fff) - 1) >> 31
	}
	return int(n)
}
