// Package philox is the counter-based random number generator Philox4x32-10
// of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011), and the one way in which Mezzo draws from it, on every
// device and on the host.
//
// Main functions: [Block] is the generator, [Words], [Uniform] and
// [Uniform16] are the numbers of one draw.
//
// Rules: a draw is named by a seed, a counter and a stream, and number i of it
// depends on nothing else: not on how many are drawn, by how many workers, nor
// on which machine. The 64-bit seed is the key, low word first. Numbers 4b to
// 4b+3 are the four words of the block with counter words
//
//	c0 = low  32 bits of b
//	c1 = high 32 bits of b
//	c2 = low  32 bits of counter
//	c3 = low  32 bits of stream
//	     xor the high 32 bits of counter rotated left by 16
//	     xor the high 32 bits of stream  rotated left by 8
//
// and a word w is the float32 (w>>8)·2⁻²⁴, uniform in [0, 1). A 16-bit draw has
// numbers of 16 bits: 8b to 8b+7 are the 16-bit halves h of the same four words, the
// lower half first, as h·2⁻¹⁶. Draws differ as long as counter and stream stay
// below 2³². The 16-bit draw of a seed, counter and stream has the same bits as its draw
// of words, so a program must not use both.
package philox

import "math/bits"

const (
	mul0, mul1 = 0xD2511F53, 0xCD9E8D57
	weyl0      = 0x9E3779B9 // golden ratio
	weyl1      = 0xBB67AE85 // √3-1
	rounds     = 10
)

// Block returns the four random words of a counter under a key.
func Block(key [2]uint32, ctr [4]uint32) [4]uint32 {
	k0, k1 := key[0], key[1]
	c0, c1, c2, c3 := ctr[0], ctr[1], ctr[2], ctr[3]
	for range rounds {
		p, q := uint64(c0)*mul0, uint64(c2)*mul1
		c0, c1, c2, c3 = uint32(q>>32)^c1^k0, uint32(q), uint32(p>>32)^c3^k1, uint32(p)
		k0 += weyl0
		k1 += weyl1
	}
	return [4]uint32{c0, c1, c2, c3}
}

// block returns words 4b to 4b+3 of a draw.
func block(seed, counter, stream, b uint64) [4]uint32 {
	c3 := uint32(stream) ^ bits.RotateLeft32(uint32(counter>>32), 16) ^ bits.RotateLeft32(uint32(stream>>32), 8)
	return Block([2]uint32{uint32(seed), uint32(seed >> 32)}, [4]uint32{uint32(b), uint32(b >> 32), uint32(counter), c3})
}

// Words fills dst with the random words of a draw from number first on, which
// must be a multiple of 4.
func Words(seed, counter, stream, first uint64, dst []uint32) {
	for b := first / 4; len(dst) > 0; b++ {
		w := block(seed, counter, stream, b)
		dst = dst[copy(dst, w[:]):]
	}
}

// Uniform fills dst with numbers in [0, 1) of a draw, from number 0 on.
func Uniform(seed, counter, stream uint64, dst []float32) {
	UniformAt(seed, counter, stream, 0, dst)
}

// UniformAt is [Uniform] from number first on, which must be a multiple of 4.
func UniformAt(seed, counter, stream, first uint64, dst []float32) {
	for b := first / 4; len(dst) > 0; b++ {
		w := block(seed, counter, stream, b)
		n := min(len(dst), 4)
		for j := range n {
			dst[j] = float32(w[j]>>8) * 0x1p-24
		}
		dst = dst[n:]
	}
}

// Uniform16 fills dst with the numbers of a 16-bit draw, in [0, 1), from number 0 on.
func Uniform16(seed, counter, stream uint64, dst []float32) {
	Uniform16At(seed, counter, stream, 0, dst)
}

// Uniform16At is [Uniform16] from number first on, which must be a multiple of 8.
func Uniform16At(seed, counter, stream, first uint64, dst []float32) {
	for b := first / 8; len(dst) > 0; b++ {
		w := block(seed, counter, stream, b)
		n := min(len(dst), 8)
		for j := range n {
			dst[j] = float32(uint16(w[j/2]>>(j%2*16))) * 0x1p-16
		}
		dst = dst[n:]
	}
}
