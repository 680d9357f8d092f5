// Package stringhash holds the two hash functions of strings that Keras's
// preprocessing layers use, so that a string falls into the same bin here as
// there. Neither is for secrets.
//
// Rules: the functions are pure, allocate nothing, and read strings as bytes.
package stringhash

import (
	"encoding/binary"
	"math/bits"
)

const (
	k0 = 0xc3a5c85c97cb3127
	k1 = 0xb492b66fbe98f273
	k2 = 0x9ae16a3b2f90404f
)

// Farm64 is FarmHash's Fingerprint64 (Pike et al. 2014), whose values do not
// change between versions: TensorFlow's hash of strings without a salt.
func Farm64(s string) uint64 {
	n := uint64(len(s))
	switch {
	case n == 0:
		return k2
	case n <= 16:
		return upTo16(s)
	case n <= 32:
		mul := k2 + n*2
		a, b := word(s, 0)*k1, word(s, 8)
		c, d := word(s, n-8)*mul, word(s, n-16)*k2
		return mix(rotate(a+b, 43)+rotate(c, 30)+d, a+rotate(b+k2, 18)+c, mul)
	case n <= 64:
		return upTo64(s)
	}
	const seed = 81
	x := seed*k2&(1<<64-1) + word(s, 0)
	y := uint64(seed*k1&(1<<64-1) + 113)
	z := shift(y*k2+113) * k2
	var v, w [2]uint64
	at, end := uint64(0), (n-1)/64*64
	for ; at < end; at += 64 {
		x, y, z = block(s, at, x, y, z, &v, &w, k1, 1)
	}
	mul := k1 + (z&0xff)<<1
	w[0] += (n - 1) & 63
	v[0] += w[0]
	w[0] += v[0]
	x, y, z = block(s, n-64, x, y, z, &v, &w, mul, 9)
	return mix(mix(v[0], w[0], mul)+shift(y)*k0+z, mix(v[1], w[1], mul)+x, mul)
}

// block takes in the 64 bytes from at on. The last block, which may overlap the
// one before, has another multiplier and times.
func block(s string, at, x, y, z uint64, v, w *[2]uint64, mul, times uint64) (uint64, uint64, uint64) {
	x = rotate(x+y+v[0]+word(s, at+8), 37) * mul
	y = rotate(y+v[1]+word(s, at+48), 42) * mul
	x ^= w[1] * times
	y += v[0]*times + word(s, at+40)
	z = rotate(z+w[0], 33) * mul
	*v = weak(s, at, v[1]*mul, x+w[0])
	*w = weak(s, at+32, z+w[1], y+word(s, at+16))
	return z, y, x
}

func upTo16(s string) uint64 {
	n := uint64(len(s))
	switch {
	case n >= 8:
		mul := k2 + n*2
		a, b := word(s, 0)+k2, word(s, n-8)
		return mix(rotate(b, 37)*mul+a, (rotate(a, 25)+b)*mul, mul)
	case n >= 4:
		mul := k2 + n*2
		return mix(n+half(s, 0)<<3, half(s, n-4), mul)
	}
	y := uint64(s[0]) + uint64(s[n>>1])<<8
	z := n + uint64(s[n-1])<<2
	return shift(y*k2^z*k0) * k2
}

func upTo64(s string) uint64 {
	n := uint64(len(s))
	mul := k2 + n*2
	a, b := word(s, 0)*k2, word(s, 8)
	c, d := word(s, n-8)*mul, word(s, n-16)*k2
	y := rotate(a+b, 43) + rotate(c, 30) + d
	z := mix(y, a+rotate(b+k2, 18)+c, mul)
	e, f := word(s, 16)*mul, word(s, 24)
	g, h := (y+word(s, n-32))*mul, (z+word(s, n-24))*mul
	return mix(rotate(e+f, 43)+rotate(g, 30)+h, e+rotate(f+a, 18)+g, mul)
}

// weak is a quick hash of the 32 bytes from at on and two seeds.
func weak(s string, at, a, b uint64) [2]uint64 {
	a += word(s, at)
	b = rotate(b+a+word(s, at+24), 21)
	c := a
	a += word(s, at+8) + word(s, at+16)
	b += rotate(a, 44)
	return [2]uint64{a + word(s, at+24), b + c}
}

// mix is a hash of two words, after Murmur.
func mix(u, v, mul uint64) uint64 {
	a := shift((u ^ v) * mul)
	return shift((v^a)*mul) * mul
}

func shift(v uint64) uint64 { return v ^ v>>47 }

// rotate rotates to the right.
func rotate(v uint64, by int) uint64 { return bits.RotateLeft64(v, -by) }

// word and half read little-endian numbers. Compilers make one load of them.
func word(s string, at uint64) uint64 { return half(s, at) | half(s, at+4)<<32 }

func half(s string, at uint64) uint64 {
	b := s[at : at+4]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24
}

// Cat64 is a fingerprint of two: TensorFlow's FingerprintCat64.
func Cat64(a, b uint64) uint64 {
	const mul = 0xc6a4a7935bd1e995
	r := (a ^ mul ^ shift(b*mul)*mul) * mul
	return shift(shift(r) * mul)
}

// Sip64 is SipHash-2-4 under a key (Aumasson and Bernstein 2012): TensorFlow's
// hash of strings with a salt.
func Sip64(key [2]uint64, s string) uint64 {
	v := sip{
		key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
		key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573,
	}
	last := uint64(len(s)) << 56
	for ; len(s) >= 8; s = s[8:] {
		v.take(word(s, 0))
	}
	var tail [8]byte
	copy(tail[:], s)
	v.take(last | binary.LittleEndian.Uint64(tail[:]))
	v[2] ^= 0xff
	for range 4 {
		v.round()
	}
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// sip is the state of SipHash.
type sip [4]uint64

func (v *sip) take(m uint64) {
	v[3] ^= m
	v.round()
	v.round()
	v[0] ^= m
}

func (v *sip) round() {
	v[0] += v[1]
	v[2] += v[3]
	v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
	v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
	v[0] = bits.RotateLeft64(v[0], 32)
	v[2] += v[1]
	v[0] += v[3]
	v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
	v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
	v[2] = bits.RotateLeft64(v[2], 32)
}
