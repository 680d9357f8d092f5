package simt

import "math/bits"

// vector computes an instruction without memory for all lanes of a warp: lanes that
// are not active compute something that is dropped.
type vector func(d, a, b, c *lanes)

// operation is an instruction that is a vector: the function and its operands.
type operation struct {
	f    vector
	args int
}

// Loops with a call for each lane, for instructions that are rare.

func unaryOp[A, D any](get func(uint64) A, put func(D) uint64, f func(A) D) operation {
	return operation{func(d, a, _, _ *lanes) {
		for l := range d {
			d[l] = put(f(get(a[l])))
		}
	}, 1}
}

func binaryOp[T any](get func(uint64) T, put func(T) uint64, f func(x, y T) T) operation {
	return operation{func(d, a, b, _ *lanes) {
		for l := range d {
			d[l] = put(f(get(a[l]), get(b[l])))
		}
	}, 2}
}

func ternaryOp[T any](get func(uint64) T, put func(T) uint64, f func(x, y, z T) T) operation {
	return operation{func(d, a, b, c *lanes) {
		for l := range d {
			d[l] = put(f(get(a[l]), get(b[l]), get(c[l])))
		}
	}, 3}
}

// How the types lie in registers.
func getU16(u uint64) uint16 { return uint16(u) }
func putU16(x uint16) uint64 { return uint64(x) }
func getU32(u uint64) uint32 { return uint32(u) }
func putU32(x uint32) uint64 { return uint64(x) }
func getS32(u uint64) int32  { return int32(u) }
func putS32(x int32) uint64  { return uint64(uint32(x)) }
func getU64(u uint64) uint64 { return u }
func putU64(x uint64) uint64 { return x }
func getS64(u uint64) int64  { return int64(u) }
func putS64(x int64) uint64  { return uint64(x) }

// unsigned and signed are what divisions and comparisons of values need.
type unsigned interface{ ~uint16 | ~uint32 | ~uint64 }
type signed interface{ ~int16 | ~int32 | ~int64 }

// A division by zero gives ones, and the smallest number by -1 itself: the manual
// leaves the first open.
func quotient[T unsigned](x, y T) T {
	if y == 0 {
		return ^T(0)
	}
	return x / y
}

func remainder[T unsigned](x, y T) T {
	if y == 0 {
		return x
	}
	return x % y
}

func quotientSigned[T signed](x, y T) T {
	if y == 0 {
		return -1
	}
	return x / y
}

func remainderSigned[T signed](x, y T) T {
	if y == 0 {
		return x
	}
	return x % y
}

func absolute[T signed](x T) T {
	if x < 0 {
		return -x
	}
	return x
}

func negate[T signed](x T) T { return -x }

func smaller[T unsigned | signed](x, y T) T { return min(x, y) }
func larger[T unsigned | signed](x, y T) T  { return max(x, y) }

func move64(d, a, _, _ *lanes) { *d = *a }

func move32(d, a, _, _ *lanes) {
	for l := range d {
		d[l] = a[l] & 0xffffffff
	}
}

func move16(d, a, _, _ *lanes) {
	for l := range d {
		d[l] = a[l] & 0xffff
	}
}

func add32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = (a[l] + b[l]) & 0xffffffff
	}
}

func add64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] + b[l]
	}
}

func sub32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = (a[l] - b[l]) & 0xffffffff
	}
}

func sub64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] - b[l]
	}
}

func mul32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = (a[l] * b[l]) & 0xffffffff
	}
}

func mul64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] * b[l]
	}
}

func mulWideU32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = (a[l] & 0xffffffff) * (b[l] & 0xffffffff)
	}
}

func mulWideS32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = uint64(int64(int32(a[l])) * int64(int32(b[l])))
	}
}

func mulHiU32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = (a[l] & 0xffffffff) * (b[l] & 0xffffffff) >> 32
	}
}

func mad32(d, a, b, c *lanes) {
	for l := range d {
		d[l] = (a[l]*b[l] + c[l]) & 0xffffffff
	}
}

func mad64(d, a, b, c *lanes) {
	for l := range d {
		d[l] = a[l]*b[l] + c[l]
	}
}

func and64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] & b[l]
	}
}

func or64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] | b[l]
	}
}

func or32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = (a[l] | b[l]) & 0xffffffff
	}
}

func and32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] & b[l] & 0xffffffff
	}
}

func xor64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] ^ b[l]
	}
}

func xor32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = (a[l] ^ b[l]) & 0xffffffff
	}
}

// Shifts by more than the width give zero, or the sign: Go's do the same for counts
// of 32 bits.
func shl32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = uint64(uint32(a[l]) << uint32(b[l]))
	}
}

func shl64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] << uint32(b[l])
	}
}

func shrU32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] & 0xffffffff >> uint32(b[l])
	}
}

func shrU64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = a[l] >> uint32(b[l])
	}
}

// permute is prmt.b32: each nibble of the selector chooses a byte of a and b, or
// spreads its sign.
func permute(a, b, selector uint32) uint32 {
	all := uint64(b)<<32 | uint64(a)
	var r uint32
	for i := range 4 {
		s := selector >> (4 * i) & 15
		u := uint32(all>>(8*(s&7))) & 255
		if s > 7 {
			u = uint32(int8(u)>>7) & 255
		}
		r |= u << (8 * i)
	}
	return r
}

// insert is bfi: count bits of x go into y at a position. Both are of 8 bits.
func insert(x, y uint64, position, count, size uint) uint64 {
	position, count = position&255, count&255
	if position >= size {
		return y
	}
	mask := uint64(1)<<min(count, size-position) - 1
	return y&^(mask<<position) | x&mask<<position
}

// integers are the instructions on integers and bits.
var integers = map[string]operation{
	"mov.u64": {move64, 1}, "mov.s64": {move64, 1}, "mov.b64": {move64, 1}, "mov.f64": {move64, 1},
	"mov.u32": {move32, 1}, "mov.s32": {move32, 1}, "mov.b32": {move32, 1}, "mov.f32": {move32, 1},
	"mov.u16": {move16, 1}, "mov.s16": {move16, 1}, "mov.b16": {move16, 1},

	"add.s32": {add32, 2}, "add.u32": {add32, 2}, "add.s64": {add64, 2}, "add.u64": {add64, 2},
	"sub.s32": {sub32, 2}, "sub.u32": {sub32, 2}, "sub.s64": {sub64, 2}, "sub.u64": {sub64, 2},
	"mul.lo.s32": {mul32, 2}, "mul.lo.u32": {mul32, 2}, "mul.lo.s64": {mul64, 2}, "mul.lo.u64": {mul64, 2},
	"mul.wide.u32": {mulWideU32, 2}, "mul.wide.s32": {mulWideS32, 2}, "mul.hi.u32": {mulHiU32, 2},
	"mul.wide.u16": {func(d, a, b, _ *lanes) {
		for l := range d {
			d[l] = (a[l] & 0xffff) * (b[l] & 0xffff)
		}
	}, 2},
	"mul.hi.u64": binaryOp(getU64, putU64, func(x, y uint64) uint64 { hi, _ := bits.Mul64(x, y); return hi }),
	"mad.lo.s32": {mad32, 3}, "mad.lo.u32": {mad32, 3}, "mad.lo.s64": {mad64, 3}, "mad.lo.u64": {mad64, 3},
	"mad.wide.u32": {func(d, a, b, c *lanes) {
		for l := range d {
			d[l] = (a[l]&0xffffffff)*(b[l]&0xffffffff) + c[l]
		}
	}, 3},

	"div.u32": binaryOp(getU32, putU32, quotient[uint32]), "div.u64": binaryOp(getU64, putU64, quotient[uint64]),
	"div.s32": binaryOp(getS32, putS32, quotientSigned[int32]), "div.s64": binaryOp(getS64, putS64, quotientSigned[int64]),
	"rem.u32": binaryOp(getU32, putU32, remainder[uint32]), "rem.u64": binaryOp(getU64, putU64, remainder[uint64]),
	"rem.s32": binaryOp(getS32, putS32, remainderSigned[int32]), "rem.s64": binaryOp(getS64, putS64, remainderSigned[int64]),
	"min.u32": binaryOp(getU32, putU32, smaller[uint32]), "max.u32": binaryOp(getU32, putU32, larger[uint32]),
	"min.s32": binaryOp(getS32, putS32, smaller[int32]), "max.s32": binaryOp(getS32, putS32, larger[int32]),
	"min.u64": binaryOp(getU64, putU64, smaller[uint64]), "max.u64": binaryOp(getU64, putU64, larger[uint64]),
	"min.s64": binaryOp(getS64, putS64, smaller[int64]), "max.s64": binaryOp(getS64, putS64, larger[int64]),
	"abs.s32": unaryOp(getS32, putS32, absolute[int32]), "abs.s64": unaryOp(getS64, putS64, absolute[int64]),
	"neg.s32": unaryOp(getS32, putS32, negate[int32]), "neg.s64": unaryOp(getS64, putS64, negate[int64]),

	"and.b64": {and64, 2}, "or.b64": {or64, 2}, "xor.b64": {xor64, 2},
	"and.b32": {and32, 2}, "or.b32": {or32, 2}, "xor.b32": {xor32, 2},
	"and.b16": binaryOp(getU16, putU16, func(x, y uint16) uint16 { return x & y }),
	"or.b16":  binaryOp(getU16, putU16, func(x, y uint16) uint16 { return x | y }),
	"xor.b16": binaryOp(getU16, putU16, func(x, y uint16) uint16 { return x ^ y }),
	"not.b16": unaryOp(getU16, putU16, func(x uint16) uint16 { return ^x }),
	"not.b32": unaryOp(getU32, putU32, func(x uint32) uint32 { return ^x }),
	"not.b64": unaryOp(getU64, putU64, func(x uint64) uint64 { return ^x }),
	"shl.b32": {shl32, 2}, "shl.b64": {shl64, 2}, "shr.u32": {shrU32, 2}, "shr.b32": {shrU32, 2}, "shr.u64": {shrU64, 2}, "shr.b64": {shrU64, 2},
	"shr.s32": {func(d, a, b, _ *lanes) {
		for l := range d {
			d[l] = uint64(uint32(int32(a[l]) >> uint32(b[l])))
		}
	}, 2},
	"shr.s64": {func(d, a, b, _ *lanes) {
		for l := range d {
			d[l] = uint64(int64(a[l]) >> uint32(b[l]))
		}
	}, 2},
	"shr.u16": {func(d, a, b, _ *lanes) {
		for l := range d {
			d[l] = a[l] & 0xffff >> uint32(b[l])
		}
	}, 2},
	"shl.b16": {func(d, a, b, _ *lanes) {
		for l := range d {
			d[l] = a[l] << uint32(b[l]) & 0xffff
		}
	}, 2},
	"clz.b32":  unaryOp(getU32, putU32, func(x uint32) uint32 { return uint32(bits.LeadingZeros32(x)) }),
	"clz.b64":  unaryOp(getU64, putU32, func(x uint64) uint32 { return uint32(bits.LeadingZeros64(x)) }),
	"prmt.b32": ternaryOp(getU32, putU32, permute),

	// Addresses of global memory are generic ones; others get and lose their window.
	"cvta.to.global.u64": {move64, 1}, "cvta.global.u64": {move64, 1},
	"cvta.shared.u64": {window(sharedWindow), 1}, "cvta.local.u64": {window(localWindow), 1},
	"cvta.to.shared.u64": {noWindow, 1}, "cvta.to.local.u64": {noWindow, 1},
}

func window(base uint64) vector {
	return func(d, a, _, _ *lanes) {
		for l := range d {
			d[l] = a[l] | base
		}
	}
}

func noWindow(d, a, _, _ *lanes) {
	for l := range d {
		d[l] = a[l] &^ windowMask
	}
}
