// What every element-wise operation means on every type: the functions that
// package ptx writes into the kernels of fused chains. 16-bit floats are
// computed on as float32 and rounded after each operation; bool and uint8 come
// as 32-bit numbers.

#ifdef EMU
#define FUNCTION extern "C"
#else
#define FUNCTION extern "C" __device__
#endif

// Conversions from memory and to it.
FUNCTION float load_float16(u32 h) { return half_to_float((u16)h); }
FUNCTION u32 store_float16(float f) { return float_to_half(f); }
FUNCTION float load_bfloat16(u32 h) { return bfloat_to_float((u16)h); }
FUNCTION u32 store_bfloat16(float f) { return float_to_bfloat(f); }
FUNCTION u32 store_e4m3(float f) { return float_to_e4m3(f); }
FUNCTION u32 store_e5m2(float f) { return float_to_e5m2(f); }
FUNCTION u32 load_bool(u32 x) { return x != 0; }
FUNCTION float round_float16(float f) { return half_to_float(float_to_half(f)); }
FUNCTION float round_bfloat16(float f) { return bfloat_to_float(float_to_bfloat(f)); }

// 8-bit floats: x rounded to a fraction of so many bits, with least for the
// exponent of smaller numbers. Adding a number whose last bit is the result's
// cuts there. What is not finite becomes NaN.
INLINE float round8(float x, int fraction, int least, float largest) {
	float a = fabsf(x);
	if (!(a - a == 0)) return float_of(0x7fc00000);
	int exponent = (int)(bits(a) >> 23) - 127;
	float c = float_of((u32)((exponent < least ? least : exponent) - fraction + 23 + 127) << 23);
	return a >= largest ? copysignf(largest, x) : copysignf(a + c - c, x);
}
INLINE double round8(double x, int fraction, int least, double largest) {
	double a = fabs(x);
	if (!(a - a == 0)) return double_of(0x7ff8000000000000ull);
	int exponent = (int)(bits64(a) >> 52) - 1023;
	double c = double_of((u64)((exponent < least ? least : exponent) - fraction + 52 + 1023) << 52);
	return a >= largest ? copysign(largest, x) : copysign(a + c - c, x);
}

// Arithmetic of floats.
#define FLOATS(T, S, abs, floor, ceil, rint, sqrt, exp, expm1, log, log1p, sin, cos, tanh, erf, erfc, pow, fmod) \
	FUNCTION T Neg_##S(T x) { return -x; } \
	FUNCTION T Abs_##S(T x) { return abs(x); } \
	FUNCTION T Sign_##S(T x) { return is_nan(x) ? x : (T)((x > 0) - (x < 0)); } \
	FUNCTION T Exp_##S(T x) { return exp(x); } \
	FUNCTION T Expm1_##S(T x) { return expm1(x); } \
	FUNCTION T Log_##S(T x) { return log(x); } \
	FUNCTION T Log1p_##S(T x) { return log1p(x); } \
	FUNCTION T Sqrt_##S(T x) { return sqrt(x); } \
	FUNCTION T Rsqrt_##S(T x) { return 1 / sqrt(x); } \
	FUNCTION T Reciprocal_##S(T x) { return 1 / x; } \
	FUNCTION T Square_##S(T x) { return x * x; } \
	FUNCTION T Sin_##S(T x) { return sin(x); } \
	FUNCTION T Cos_##S(T x) { return cos(x); } \
	FUNCTION T Tanh_##S(T x) { return tanh(x); } \
	FUNCTION T Sigmoid_##S(T x) { T e = exp(-abs(x)); return (x < 0 ? e : 1) / (1 + e); } \
	FUNCTION T Softplus_##S(T x) { return (x > 0 ? x : 0) + log1p(exp(-abs(x))); } \
	FUNCTION T Relu_##S(T x) { return x > 0 || is_nan(x) ? x : 0; } \
	FUNCTION T Erf_##S(T x) { return erf(x); } \
	FUNCTION T NormalCDF_##S(T x) { return erfc(x * (T)-0.70710678118654752) / 2; } \
	FUNCTION T NormalPDF_##S(T x) { return exp(x * x / -2) * (T)0.39894228040143268; } \
	FUNCTION T Floor_##S(T x) { return floor(x); } \
	FUNCTION T Ceil_##S(T x) { return ceil(x); } \
	FUNCTION T Round_##S(T x) { return rint(x); } \
	FUNCTION T RoundE4M3_##S(T x) { return round8(x, 3, -6, (T)448); } \
	FUNCTION T RoundE5M2_##S(T x) { return round8(x, 2, -14, (T)57344); } \
	FUNCTION u32 IsFinite_##S(T x) { return x - x == 0; } \
	FUNCTION T Add_##S(T x, T y) { return x + y; } \
	FUNCTION T Sub_##S(T x, T y) { return x - y; } \
	FUNCTION T Mul_##S(T x, T y) { return x * y; } \
	FUNCTION T Div_##S(T x, T y) { return x / y; } \
	FUNCTION T Mod_##S(T x, T y) { T r = fmod(x, y); return r != 0 && (r < 0) != (y < 0) ? r + y : r; } \
	FUNCTION T Pow_##S(T x, T y) { return pow(x, y); } \
	FUNCTION T Maximum_##S(T x, T y) { return is_nan(x) || x > y ? x : y; } \
	FUNCTION T Minimum_##S(T x, T y) { return is_nan(x) || x < y ? x : y; }

FLOATS(float, float32, fabsf, floorf, ceilf, rintf, sqrtf, expf, expm1f, logf, log1pf, sinf, cosf, tanhf, erff, erfcf, powf, fmodf)
FLOATS(double, float64, fabs, floor, ceil, rint, sqrt, exp, expm1, log, log1p, sin, cos, tanh, erf, erfc, pow, fmod)

// Integers wrap; those of 8 bits are cut after each operation.
#define INTEGERS(T, U, S, CUT) \
	FUNCTION T Neg_##S(T x) { return (T)(0 - (U)x) CUT; } \
	FUNCTION T Abs_##S(T x) { return x < 0 ? (T)(0 - (U)x) : x; } \
	FUNCTION T Sign_##S(T x) { return (x > 0) - (x < 0); } \
	FUNCTION T Square_##S(T x) { return (T)((U)x * (U)x) CUT; } \
	FUNCTION T Relu_##S(T x) { return x > 0 ? x : 0; } \
	FUNCTION T Add_##S(T x, T y) { return (T)((U)x + (U)y) CUT; } \
	FUNCTION T Sub_##S(T x, T y) { return (T)((U)x - (U)y) CUT; } \
	FUNCTION T Mul_##S(T x, T y) { return (T)((U)x * (U)y) CUT; } \
	FUNCTION T Div_##S(T x, T y) { return y == 0 ? 0 : y == (T)-1 ? (T)(0 - (U)x) : x / y; } \
	FUNCTION T Mod_##S(T x, T y) { \
		if (y == 0 || y == (T)-1) return 0; \
		T r = x % y; \
		return r != 0 && (r < 0) != (y < 0) ? r + y : r; \
	} \
	FUNCTION T Maximum_##S(T x, T y) { return x > y ? x : y; } \
	FUNCTION T Minimum_##S(T x, T y) { return x < y ? x : y; }

INTEGERS(int, u32, int32, )
INTEGERS(i64, u64, int64, )
FUNCTION u32 Neg_uint8(u32 x) { return (0 - x) & 255; }
FUNCTION u32 Abs_uint8(u32 x) { return x; }
FUNCTION u32 Sign_uint8(u32 x) { return x != 0; }
FUNCTION u32 Square_uint8(u32 x) { return x * x & 255; }
FUNCTION u32 Relu_uint8(u32 x) { return x; }
FUNCTION u32 Add_uint8(u32 x, u32 y) { return (x + y) & 255; }
FUNCTION u32 Sub_uint8(u32 x, u32 y) { return (x - y) & 255; }
FUNCTION u32 Mul_uint8(u32 x, u32 y) { return x * y & 255; }
FUNCTION u32 Div_uint8(u32 x, u32 y) { return y == 0 ? 0 : x / y; }
FUNCTION u32 Mod_uint8(u32 x, u32 y) { return y == 0 ? 0 : x % y; }
FUNCTION u32 Maximum_uint8(u32 x, u32 y) { return x > y ? x : y; }
FUNCTION u32 Minimum_uint8(u32 x, u32 y) { return x < y ? x : y; }

FUNCTION u32 Not_bool(u32 x) { return !x; }
FUNCTION u32 Add_bool(u32 x, u32 y) { return x | y; }
FUNCTION u32 Sub_bool(u32 x, u32 y) { return x ^ y; }
FUNCTION u32 Mul_bool(u32 x, u32 y) { return x & y; }
FUNCTION u32 And_bool(u32 x, u32 y) { return x & y; }
FUNCTION u32 Or_bool(u32 x, u32 y) { return x | y; }
FUNCTION u32 Maximum_bool(u32 x, u32 y) { return x | y; }
FUNCTION u32 Minimum_bool(u32 x, u32 y) { return x & y; }

#define COMPARISONS(T, S) \
	FUNCTION u32 Equal_##S(T x, T y) { return x == y; } \
	FUNCTION u32 NotEqual_##S(T x, T y) { return x != y; } \
	FUNCTION u32 Less_##S(T x, T y) { return x < y; } \
	FUNCTION u32 LessEqual_##S(T x, T y) { return x <= y; } \
	FUNCTION u32 Greater_##S(T x, T y) { return x > y; } \
	FUNCTION u32 GreaterEqual_##S(T x, T y) { return x >= y; } \
	FUNCTION T Where_##S(u32 c, T x, T y) { return c ? x : y; }

FUNCTION u32 IsFinite_int32(int) { return 1; }
FUNCTION u32 IsFinite_int64(i64) { return 1; }
FUNCTION u32 IsFinite_uint8(u32) { return 1; }
FUNCTION u32 IsFinite_bool(u32) { return 1; }

COMPARISONS(float, float32)
COMPARISONS(double, float64)
COMPARISONS(int, int32)
COMPARISONS(i64, int64)
COMPARISONS(u32, uint8)
COMPARISONS(u32, bool)

// Casts saturate, cut towards zero and take NaN to 0, as dtype says. Those to
// 16-bit floats are made of these and a rounding, but for float64, which is
// rounded to odd first so that the two roundings are one.
INLINE float to_odd(double x) {
	float f = (float)x;
	if ((double)f == x || is_nan(x) || f - f != 0) return f;
	u32 u = bits(f);
	bool beyond = (f < 0 ? -(double)f : (double)f) > (x < 0 ? -x : x);
	return float_of((beyond ? u - 1 : u) | 1);
}
INLINE int clamp32(i64 x) { return x < -2147483648ll ? -2147483647 - 1 : x > 2147483647ll ? 2147483647 : (int)x; }
INLINE u32 clamp8(i64 x) { return x < 0 ? 0 : x > 255 ? 255 : (u32)x; }
INLINE i64 whole(double x) {
	if (is_nan(x)) return 0;
	if (x >= 9223372036854775808.0) return 0x7fffffffffffffffll;
	if (x < -9223372036854775808.0) return -0x7fffffffffffffffll - 1;
	return (i64)x;
}

FUNCTION double Cast_float32_float64(float x) { return x; }
FUNCTION int Cast_float32_int32(float x) { return clamp32(whole(x)); }
FUNCTION i64 Cast_float32_int64(float x) { return whole(x); }
FUNCTION u32 Cast_float32_uint8(float x) { return clamp8(whole(x)); }
FUNCTION u32 Cast_float32_bool(float x) { return x != 0; }
FUNCTION float Cast_float64_float32(double x) { return (float)x; }
FUNCTION float Cast_float64_odd(double x) { return to_odd(x); }
FUNCTION int Cast_float64_int32(double x) { return clamp32(whole(x)); }
FUNCTION i64 Cast_float64_int64(double x) { return whole(x); }
FUNCTION u32 Cast_float64_uint8(double x) { return clamp8(whole(x)); }
FUNCTION u32 Cast_float64_bool(double x) { return x != 0; }
FUNCTION float Cast_int32_float32(int x) { return (float)x; }
FUNCTION double Cast_int32_float64(int x) { return x; }
FUNCTION float Cast_int32_odd(int x) { return to_odd((double)x); }
FUNCTION i64 Cast_int32_int64(int x) { return x; }
FUNCTION u32 Cast_int32_uint8(int x) { return clamp8(x); }
FUNCTION u32 Cast_int32_bool(int x) { return x != 0; }
FUNCTION float Cast_int64_float32(i64 x) { return (float)x; }
FUNCTION double Cast_int64_float64(i64 x) { return (double)x; }
FUNCTION float Cast_int64_odd(i64 x) {
	// 64 bits do not fit a float64: what is cut off sticks in the last bit.
	u64 a = x < 0 ? 0 - (u64)x : (u64)x;
	if (a >> 52) a = (a & ~2047ull) | ((a & 2047) ? 2048 : 0);
	return to_odd(x < 0 ? -(double)a : (double)a);
}
FUNCTION int Cast_int64_int32(i64 x) { return clamp32(x); }
FUNCTION u32 Cast_int64_uint8(i64 x) { return clamp8(x); }
FUNCTION u32 Cast_int64_bool(i64 x) { return x != 0; }
FUNCTION float Cast_uint8_float32(u32 x) { return (float)x; }
FUNCTION double Cast_uint8_float64(u32 x) { return x; }
FUNCTION int Cast_uint8_int32(u32 x) { return (int)x; }
FUNCTION i64 Cast_uint8_int64(u32 x) { return x; }
FUNCTION u32 Cast_uint8_bool(u32 x) { return x != 0; }
FUNCTION float Cast_bool_float32(u32 x) { return (float)x; }
FUNCTION double Cast_bool_float64(u32 x) { return x; }
FUNCTION int Cast_bool_int32(u32 x) { return (int)x; }
FUNCTION i64 Cast_bool_int64(u32 x) { return x; }
FUNCTION u32 Cast_bool_uint8(u32 x) { return x; }
