package simt

import "math"

// nan32 is the NaN that float32 instructions give, whichever they get.
const nan32 = 0x7fffffff

func getF32(u uint64) float32 { return math.Float32frombits(uint32(u)) }
func getF64(u uint64) float64 { return math.Float64frombits(u) }
func putF64(x float64) uint64 { return math.Float64bits(x) }
func putF32(x float32) uint64 {
	if x != x {
		return nan32
	}
	return uint64(math.Float32bits(x))
}

func addF32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = putF32(getF32(a[l]) + getF32(b[l]))
	}
}

func subF32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = putF32(getF32(a[l]) - getF32(b[l]))
	}
}

func mulF32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = putF32(getF32(a[l]) * getF32(b[l]))
	}
}

func addF64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = putF64(getF64(a[l]) + getF64(b[l]))
	}
}

func subF64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = putF64(getF64(a[l]) - getF64(b[l]))
	}
}

func mulF64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = putF64(getF64(a[l]) * getF64(b[l]))
	}
}

func fmaF32(d, a, b, c *lanes) {
	for l := range d {
		d[l] = putF32(fma32(getF32(a[l]), getF32(b[l]), getF32(c[l])))
	}
}

func fmaF64(d, a, b, c *lanes) {
	for l := range d {
		d[l] = putF64(math.FMA(getF64(a[l]), getF64(b[l]), getF64(c[l])))
	}
}

// fma32 is x·y+z, rounded once. The product is exact in float64; the sum is rounded to
// that first, which matters only where it lies in the middle between two float32.
func fma32(x, y, z float32) float32 {
	p, q := float64(x)*float64(y), float64(z)
	s := p + q
	u := math.Float64bits(s)
	const middle, least = 1 << 28, 1023 - 126
	if u&(2*middle-1) != middle && u>>52&0x7ff >= least {
		return float32(s)
	}
	return float32(odd(p, q))
}

// odd is p+q, rounded to odd: a second rounding to float32 gives what one gives,
// in whichever direction.
func odd(p, q float64) float64 {
	s := p + q
	t := s - p
	rest := (p - (s - t)) + (q - t)
	u := math.Float64bits(s)
	if rest != 0 && rest == rest && u&1 == 0 && s != 0 {
		if (rest > 0) == (s > 0) {
			u++
		} else {
			u--
		}
	}
	return math.Float64frombits(u)
}

// down rounds to float32 towards minus infinity, zero towards zero.
func down(x float64) float32 {
	r := float32(x)
	if float64(r) > x {
		r = math.Nextafter32(r, float32(math.Inf(-1)))
	}
	return r
}

func zero(x float64) float32 {
	if x < 0 {
		return -down(-x)
	}
	return down(x)
}

// sumDown is p+q rounded down: an exact zero of numbers with unlike signs is -0.
func sumDown(p, q float64) float32 {
	if p == -q && math.Signbit(p) != math.Signbit(q) {
		return float32(math.Copysign(0, -1))
	}
	return down(odd(p, q))
}

// flush is the .ftz of an instruction: subnormals are zeros of their sign.
func flush(x float32) float32 {
	if u := math.Float32bits(x); u&0x7f800000 == 0 {
		return math.Float32frombits(u & 0x80000000)
	}
	return x
}

// disturbed is y, rounded and moved by up to one unit in the last place, as a function
// of the bits of the operand.
func disturbed(y float64, seed uint32) float32 {
	r := float32(y)
	if float64(r) == y || r != r || math.IsInf(float64(r), 0) {
		return r
	}
	seed *= 2654435761
	switch seed >> 16 % 3 {
	case 0:
		return math.Nextafter32(r, float32(math.Inf(1)))
	case 1:
		return math.Nextafter32(r, float32(math.Inf(-1)))
	}
	return r
}

// faithful is one of the two neighbours of y, by the bits of the operand.
func faithful(y float64, seed uint32) float32 {
	r := float32(y)
	if float64(r) == y || r != r || seed*2654435761>>31 == 0 {
		return r
	}
	if float64(r) < y {
		return math.Nextafter32(r, float32(math.Inf(1)))
	}
	return math.Nextafter32(r, float32(math.Inf(-1)))
}

// exp2 is ex2.approx: relative error 2^-22. Powers of whole numbers are exact.
func exp2(x float32) float32 { return disturbed(math.Exp2(float64(x)), math.Float32bits(x)) }

// divide is div.approx.f32: two units, and zeros for the largest divisors.
func divide(x, y float32) float32 {
	if a := math.Abs(float64(y)); a > 0x1p126 && a < 0x1p128 && !math.IsInf(float64(x), 0) && x == x {
		return float32(math.Copysign(0, float64(x)*float64(y)))
	}
	return disturbed(float64(x)/float64(y), math.Float32bits(x)+math.Float32bits(y))
}

// reciprocal64 is rcp.approx.ftz.f64: of the upper half of x, the upper half.
func reciprocal64(x float64) float64 {
	u := math.Float64bits(x) &^ 0xffffffff
	if u&0x7ff0000000000000 == 0 {
		u &= 1 << 63
	}
	y := 1 / math.Float64frombits(u)
	if y != y {
		return math.Float64frombits(0x7fffffff00000000)
	}
	v := math.Float64bits(y) &^ 0xffffffff
	if v&0x7ff0000000000000 == 0 {
		v &= 1 << 63
	}
	return math.Float64frombits(v)
}

// least and most are min and max: a number where one operand is none, and -0 below 0.
func least[T float32 | float64](x, y T) T {
	switch {
	case x != x:
		return y
	case y != y:
		return x
	}
	return min(x, y)
}

func most[T float32 | float64](x, y T) T {
	switch {
	case x != x:
		return y
	case y != y:
		return x
	}
	return max(x, y)
}

func of32(f func(float64) float64) func(float32) float32 {
	return func(x float32) float32 { return float32(f(float64(x))) }
}

// signs change bits alone, also of NaNs.
func abs32(d, a, _, _ *lanes) {
	for l := range d {
		d[l] = a[l] & 0x7fffffff
	}
}

func abs64(d, a, _, _ *lanes) {
	for l := range d {
		d[l] = a[l] & 0x7fffffffffffffff
	}
}

func neg32(d, a, _, _ *lanes) {
	for l := range d {
		d[l] = a[l]&0xffffffff ^ 0x80000000
	}
}

func neg64(d, a, _, _ *lanes) {
	for l := range d {
		d[l] = a[l] ^ 1<<63
	}
}

// floats are the instructions on floats, but for conversions.
var floats = map[string]operation{
	"add.f32": {addF32, 2}, "add.rn.f32": {addF32, 2}, "sub.f32": {subF32, 2}, "sub.rn.f32": {subF32, 2}, "mul.f32": {mulF32, 2}, "mul.rn.f32": {mulF32, 2},
	"add.f64": {addF64, 2}, "add.rn.f64": {addF64, 2}, "sub.f64": {subF64, 2}, "sub.rn.f64": {subF64, 2}, "mul.f64": {mulF64, 2}, "mul.rn.f64": {mulF64, 2},
	"fma.rn.f32": {fmaF32, 3}, "fma.rn.f64": {fmaF64, 3},
	"fma.rm.f32": ternaryOp(getF32, putF32, func(x, y, z float32) float32 { return sumDown(float64(x)*float64(y), float64(z)) }),
	"fma.rz.f32": ternaryOp(getF32, putF32, func(x, y, z float32) float32 { return zero(odd(float64(x)*float64(y), float64(z))) }),
	"add.rz.f32": binaryOp(getF32, putF32, func(x, y float32) float32 { return zero(odd(float64(x), float64(y))) }),

	"div.rn.f32":  binaryOp(getF32, putF32, func(x, y float32) float32 { return x / y }),
	"div.rn.f64":  binaryOp(getF64, putF64, func(x, y float64) float64 { return x / y }),
	"rcp.rn.f32":  unaryOp(getF32, putF32, func(x float32) float32 { return 1 / x }),
	"rcp.rn.f64":  unaryOp(getF64, putF64, func(x float64) float64 { return 1 / x }),
	"sqrt.rn.f32": unaryOp(getF32, putF32, of32(math.Sqrt)),
	"sqrt.rn.f64": unaryOp(getF64, putF64, math.Sqrt),
	"min.f32":     binaryOp(getF32, putF32, least[float32]), "max.f32": binaryOp(getF32, putF32, most[float32]),
	"min.f64": binaryOp(getF64, putF64, least[float64]), "max.f64": binaryOp(getF64, putF64, most[float64]),
	"abs.f32": {abs32, 1}, "abs.f64": {abs64, 1}, "neg.f32": {neg32, 1}, "neg.f64": {neg64, 1},

	"ex2.approx.f32":     unaryOp(getF32, putF32, exp2),
	"ex2.approx.ftz.f32": unaryOp(getF32, putF32, func(x float32) float32 { return flush(exp2(flush(x))) }),
	"div.approx.f32":     binaryOp(getF32, putF32, divide),
	"rcp.approx.ftz.f32": unaryOp(getF32, putF32, func(x float32) float32 { return flush(faithful(1/float64(flush(x)), math.Float32bits(x))) }),
	"rcp.approx.ftz.f64": unaryOp(getF64, putF64, reciprocal64),
}
