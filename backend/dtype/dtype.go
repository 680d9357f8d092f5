// Package dtype defines the element types of tensors: their names, sizes,
// ranges and precision, which of two types holds the other, and how a value
// is converted from one to another.
//
// The main type is DType. The 16-bit types are float16 (IEEE 754 binary16:
// 5 exponent bits, 10 fraction bits; scalar type Half) and bfloat16 (float32
// cut to 8 exponent bits and 7 fraction bits; scalar type BFloat).
//
// Rules of every conversion in the package:
//
//   - to a floating-point type: round to nearest, ties to even, in one
//     rounding from the source value; beyond the largest finite value is an
//     infinity; results may be subnormal; a NaN stays a NaN, made quiet
//     whenever bits of its payload are dropped;
//   - floating-point to integer: truncate toward zero; a value outside the
//     range, infinities included, becomes the nearer end of it; NaN becomes 0;
//   - integer to a narrower integer: a value outside the range becomes the
//     nearer end of it;
//   - to bool: a value other than zero, NaN included, is true;
//   - from bool: false is 0 and true is 1.
//
// In memory an element takes Size bytes, little-endian; a bool is one byte,
// written as 0 or 1 and read as true when it is not 0.
package dtype

import (
	"fmt"
	"math"
	"strings"
)

// DType is the type of a tensor's elements. The zero value is Invalid.
type DType uint8

// The element types, in order of promotion but for Float16 and BFloat16, of
// which neither holds the other, and Int8, which is last because kernels of
// devices know the others by their numbers.
const (
	Invalid DType = iota
	Bool
	Uint8
	Int32
	Int64
	Float16
	BFloat16
	Float32
	Float64
	Int8
	count
)

// info holds what the methods of a DType report.
type info struct {
	name       string
	size       int
	float, int bool
	// fraction is the number of stored fraction bits of a float and maxExp
	// and minExp its exponents, for |x| in [2^e, 2^(e+1)).
	fraction, maxExp, minExp int
	// max is the largest finite value.
	max float64
}

var infos = [count]info{
	Invalid:  {name: "invalid"},
	Bool:     {name: "bool", size: 1, max: 1},
	Uint8:    {name: "uint8", size: 1, int: true, max: math.MaxUint8},
	Int8:     {name: "int8", size: 1, int: true, max: math.MaxInt8},
	Int32:    {name: "int32", size: 4, int: true, max: math.MaxInt32},
	Int64:    {name: "int64", size: 8, int: true, max: math.MaxInt64},
	Float16:  {name: "float16", size: 2, float: true, fraction: 10, maxExp: 15, minExp: -14, max: 65504},
	BFloat16: {name: "bfloat16", size: 2, float: true, fraction: 7, maxExp: 127, minExp: -126, max: 0x1.fep127},
	Float32:  {name: "float32", size: 4, float: true, fraction: 23, maxExp: 127, minExp: -126, max: math.MaxFloat32},
	Float64:  {name: "float64", size: 8, float: true, fraction: 52, maxExp: 1023, minExp: -1022, max: math.MaxFloat64},
}

// info answers for a value outside the constants as for Invalid.
func (d DType) info() *info {
	if d >= count {
		d = Invalid
	}
	return &infos[d]
}

// Parse returns the type of that name: "bool", "uint8", "int8", "int32",
// "int64", "float16", "bfloat16", "float32" or "float64".
func Parse(name string) (DType, error) {
	for _, d := range All() {
		if d.String() == name {
			return d, nil
		}
	}
	names := make([]string, 0, count)
	for _, d := range All() {
		names = append(names, d.String())
	}
	return Invalid, fmt.Errorf("dtype: got %q, want one of %s", name, strings.Join(names, ", "))
}

// All returns every type but Invalid, in order of promotion.
func All() []DType {
	return []DType{Bool, Uint8, Int8, Int32, Int64, Float16, BFloat16, Float32, Float64}
}

// Floats returns the floating-point types, in the order of the constants.
func Floats() []DType { return []DType{Float16, BFloat16, Float32, Float64} }

// String returns the name that Parse reads, "invalid" for Invalid.
func (d DType) String() string {
	if d >= count {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return infos[d].name
}

// Size returns the bytes of one element, 0 for Invalid.
func (d DType) Size() int { return d.info().size }

// Bits returns the bits of one element in memory, 8 for Bool.
func (d DType) Bits() int { return 8 * d.info().size }

// IsFloat reports whether d is a floating-point type.
func (d DType) IsFloat() bool { return d.info().float }

// IsInt reports whether d is Uint8, Int8, Int32 or Int64; Bool is not an integer.
func (d DType) IsInt() bool { return d.info().int }

// Is16 reports whether d is Float16 or BFloat16.
func (d DType) Is16() bool { return d == Float16 || d == BFloat16 }

// Exponents returns the exponents e of the largest and of the smallest normal
// values, |x| in [2^e, 2^(e+1)): 15 and -14 for Float16. It returns 0, 0 for a
// type that is not floating-point.
func (d DType) Exponents() (max, min int) {
	in := d.info()
	return in.maxExp, in.minExp
}

// Max returns the largest finite value: 65504 for Float16, 1 for Bool, 2^63
// (the float64 nearest to 2^63-1) for Int64, 0 for Invalid.
func (d DType) Max() float64 { return d.info().max }

// SmallestNormal returns the smallest positive value of full precision,
// 2^-14 for Float16; 1 for integers and Bool, 0 for Invalid.
func (d DType) SmallestNormal() float64 { return d.power(d.info().minExp) }

// SmallestSubnormal returns the smallest positive value, 2^-24 for Float16;
// 1 for integers and Bool, 0 for Invalid.
func (d DType) SmallestSubnormal() float64 {
	return d.power(d.info().minExp - d.info().fraction)
}

// Epsilon returns the distance from 1 to the next value above it, 2^-10 for
// Float16; 1 for integers, and for Bool, which have no fraction; 0 for Invalid.
func (d DType) Epsilon() float64 { return d.power(-d.info().fraction) }

// power returns 2^exp, or 0 for an Invalid d.
func (d DType) power(exp int) float64 {
	if d.Size() == 0 {
		return 0
	}
	return math.Ldexp(1, exp)
}

// reassociation is the error, in epsilons of the accumulator, allowed to a
// sum taken in another order: rounding errors of half an epsilon add up as the
// square root of the number of terms, so 16 covers a thousand of them.
const reassociation = 16

// Tolerance returns how far a result of type d may lie from a reference
// computed from the same, already rounded, operands:
//
//	|got - want| <= abs + rel*|want|
//
// The tolerances of tests all come from here; a test that chains n rounded
// results multiplies by n, and one whose operands have magnitude m, not 1,
// multiplies abs by m.
//
//   - Float16, BFloat16: rel is 2 epsilons. Kernels work in float32 and round
//     once, so a result and a rounded reference may fall on neighbouring
//     values, one epsilon apart; the second is for one rounded intermediate.
//   - Float32, Float64: rel is 16 epsilons, the reassociation of a thousand
//     terms, there being no wider accumulator.
//   - abs, for sums that cancel, is the same 16 epsilons of the Accumulator
//     type, the error of terms of magnitude 1, plus the spacing of
//     subnormals of d.
//   - integers and Bool: 0, 0; they are exact.
func (d DType) Tolerance() (rel, abs float64) {
	if !d.IsFloat() {
		return 0, 0
	}
	abs = reassociation*d.Accumulator().Epsilon() + d.SmallestSubnormal()
	if d.Is16() {
		return 2 * d.Epsilon(), abs
	}
	return reassociation * d.Epsilon(), abs
}

// Round returns the value x has once stored as d and read back as float32, by
// the rules of the package. It panics for Invalid.
func (d DType) Round(x float32) float32 {
	switch d {
	case Bool:
		if x != 0 {
			return 1
		}
		return 0
	case Uint8:
		return float32(truncate(x, uint8Range))
	case Int8:
		return float32(truncate(x, int8Range))
	case Int32:
		return float32(truncate(x, int32Range))
	case Int64:
		return float32(truncate(x, int64Range))
	case Float16:
		return F16ToF32(F16FromF32(x))
	case BFloat16:
		return BF16ToF32(BF16FromF32(x))
	case Float32, Float64:
		return x
	}
	panic(unknown(d))
}

// Accumulator returns the type in which sums of d are taken: Float32 for
// Float16, BFloat16 and Float32, Float64 for Float64, Int64 for integers and
// Bool, Invalid for Invalid.
func (d DType) Accumulator() DType {
	switch d {
	case Float16, BFloat16, Float32:
		return Float32
	case Float64:
		return Float64
	case Bool, Uint8, Int8, Int32, Int64:
		return Int64
	}
	return Invalid
}

// Widens reports whether every value of d is exactly a value of to, so that
// a cast from d to to and back changes nothing. A type widens to itself.
// Invalid neither widens nor is widened to.
func (d DType) Widens(to DType) bool {
	if d.Size() == 0 || to.Size() == 0 {
		return false
	}
	if d == to {
		return true
	}
	switch d {
	case Bool:
		return true
	case Uint8: // eight bits: the significand of BFloat16 exactly
		return to != Bool && to != Int8
	case Int8:
		return to != Bool && to != Uint8
	case Int32:
		return to == Int64 || to == Float64
	case Float16, BFloat16:
		return to == Float32 || to == Float64
	case Float32:
		return to == Float64
	}
	return false
}

// Promote returns the type of an operation on an a and a b, the least upper
// bound of the two in
//
//	bool < uint8, int8 < int32 < int64 < float16, bfloat16 < float32 < float64
//
// as JAX and Keras promote: an integer with a float takes the float's type,
// whatever the widths, float16 with bfloat16 takes float32, and uint8 with int8
// takes int32 (theirs is int16, which Mezzo does not have). It is
// commutative, associative and idempotent. With an Invalid it is Invalid.
func Promote(a, b DType) DType {
	switch {
	case a.Size() == 0 || b.Size() == 0:
		return Invalid
	case a != b && a.Is16() && b.Is16():
		return Float32
	case a == Int8 || b == Int8:
		switch other := a + b - Int8; other {
		case Bool, Int8:
			return Int8
		case Uint8:
			return Int32
		default:
			return other
		}
	}
	return max(a, b)
}

// MarshalText returns the name of d. It is an error for Invalid.
func (d DType) MarshalText() ([]byte, error) {
	if d.Size() == 0 {
		return nil, unknown(d)
	}
	return []byte(d.String()), nil
}

// UnmarshalText sets d from a name, as Parse. On an error d is unchanged.
func (d *DType) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// unknown is the error for a DType that no element can have.
func unknown(d DType) error {
	return fmt.Errorf("dtype: got %v, want a type of elements", d)
}
