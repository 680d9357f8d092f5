// The element types in device code, without headers of CUDA: NVRTC compiles
// this text as it is. With EMU defined it is C++ for the host.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifdef EMU
#define INLINE static inline
#define INLINE_MEMBER inline
INLINE u32 bits(float x) { u32 u; memcpy(&u, &x, 4); return u; }
INLINE float float_of(u32 u) { float x; memcpy(&x, &u, 4); return x; }
INLINE u64 bits64(double x) { u64 u; memcpy(&u, &x, 8); return u; }
INLINE double double_of(u64 u) { double x; memcpy(&x, &u, 8); return x; }
struct Halves { // of all halves: the conversion is a call for most processors
	float value[1 << 16];
	Halves() {
		for (u32 h = 0; h < 1 << 16; h++) {
			_Float16 x;
			memcpy(&x, &h, 2);
			value[h] = (float)x;
		}
	}
};
static const Halves halves;
INLINE float half_to_float(u16 h) { return halves.value[h]; }
INLINE u16 float_to_half(float f) { _Float16 x = (_Float16)f; u16 h; memcpy(&h, &x, 2); return h; }
#else
#define INLINE static __device__ __forceinline__
#define INLINE_MEMBER __device__ __forceinline__
INLINE u32 bits(float x) { return __float_as_uint(x); }
INLINE float float_of(u32 u) { return __uint_as_float(u); }
INLINE u64 bits64(double x) { return (u64)__double_as_longlong(x); }
INLINE double double_of(u64 u) { return __longlong_as_double((long long)u); }
INLINE float half_to_float(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
INLINE u16 float_to_half(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
#endif

INLINE float bfloat_to_float(u16 h) { return float_of((u32)h << 16); }
INLINE u16 float_to_bfloat(float f) {
#if !defined(EMU) && __CUDA_ARCH__ >= 800
	u16 h;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
	return h;
#else
	u32 u = bits(f);
	if ((u & 0x7fffffffu) > 0x7f800000u) return (u16)(u >> 16 | 0x40);
	return (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
#endif
}

INLINE bool is_nan(float x) { return (bits(x) & 0x7fffffffu) > 0x7f800000u; }
INLINE bool is_nan(double x) { return (bits64(x) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }

// Element types in memory, and in which a kernel computes: wide.
struct f16 { u16 v; };
struct bf16 { u16 v; };
struct boolean { u8 v; };

template <class T> struct Wide { typedef i64 type; };
template <> struct Wide<f16> { typedef float type; };
template <> struct Wide<bf16> { typedef float type; };
template <> struct Wide<float> { typedef float type; };
template <> struct Wide<double> { typedef double type; };

template <class T> INLINE typename Wide<T>::type get(const T *p, i64 i) { return p[i]; }
INLINE float get(const f16 *p, i64 i) { return half_to_float(p[i].v); }
INLINE float get(const bf16 *p, i64 i) { return bfloat_to_float(p[i].v); }
INLINE i64 get(const boolean *p, i64 i) { return p[i].v != 0; }

// Numbers of the types as package dtype has them.
enum { BOOL = 1, UINT8, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64 };

// put stores a result as one of the types.
template <class W> INLINE void put(void *p, i64 type, i64 i, W v) {
	switch (type) {
	case BOOL: ((u8 *)p)[i] = v != 0; break;
	case UINT8: ((u8 *)p)[i] = (u8)(i64)v; break;
	case INT32: ((int *)p)[i] = (int)(i64)v; break;
	case INT64: ((i64 *)p)[i] = (i64)v; break;
	case FLOAT16: ((u16 *)p)[i] = float_to_half((float)v); break;
	case BFLOAT16: ((u16 *)p)[i] = float_to_bfloat((float)v); break;
	case FLOAT32: ((float *)p)[i] = (float)v; break;
	case FLOAT64: ((double *)p)[i] = (double)v; break;
	}
}

// get_as reads an element of a type that is a parameter.
template <class W> INLINE W get_as(const void *p, i64 type, i64 i, W) {
	switch (type) {
	case BOOL: return (W)(((const u8 *)p)[i] != 0);
	case UINT8: return (W)((const u8 *)p)[i];
	case INT32: return (W)((const int *)p)[i];
	case INT64: return (W)((const i64 *)p)[i];
	case FLOAT16: return (W)half_to_float(((const u16 *)p)[i]);
	case BFLOAT16: return (W)bfloat_to_float(((const u16 *)p)[i]);
	case FLOAT32: return (W)((const float *)p)[i];
	}
	return (W)((const double *)p)[i];
}

// Fault is where kernels report an index out of range: flag stops the kernels
// that overwrite inputs, value says who met it first, position and got are the
// first index of those.
struct Fault { u32 flag, lock; i64 value, position, got; };

INLINE void report(Fault *fault, i64 value, i64 position, i64 got) {
	volatile Fault *f = fault;
	if (f->flag) { // another one may be enough: of many threads few take the lock
		__threadfence();
		if (f->value != value || f->position <= position) return;
	}
	for (bool done = false; !done;) {
		if (atomicCAS(&fault->lock, 0u, 1u)) continue;
		if (!f->flag || (f->value == value && position < f->position)) {
			f->value = value;
			f->position = position;
			f->got = got;
			__threadfence(); // before the flag, which is read without the lock
			f->flag = 1;
		}
		__threadfence();
		atomicExch(&fault->lock, 0u);
		done = true;
	}
}

// Divisor divides numbers below 2^31 by what is known when a plan is made: see
// Reciprocal in package ptx. code has the factor, and above it the shift.
struct Divisor { u32 d, magic, shift; };
INLINE Divisor divisor(i64 d, i64 code) { return Divisor{(u32)d, (u32)code, (u32)((u64)code >> 32)}; }
INLINE u32 quotient(u32 x, const Divisor &v) { return (__umulhi(x, v.magic) + x) >> v.shift; }
// digit takes the last digit off x.
INLINE u32 digit(u32 &x, const Divisor &v) {
	const u32 q = quotient(x, v), r = x - q * v.d;
	x = q;
	return r;
}
// split makes a row and a column of i; the code is 0 where 31 bits are too few.
INLINE void split(i64 i, i64 width, i64 code, i64 &row, i64 &column) {
	if (code) {
		u32 q = (u32)i;
		column = digit(q, divisor(width, code));
		row = q;
	} else {
		row = i / width;
		column = i % width;
	}
}

// Bytes16 are moved together.
struct alignas(16) Bytes16 { u32 x[4]; };

#define THREAD ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define EACH(i, n) for (i64 i = THREAD; i < (n); i += (i64)gridDim.x * blockDim.x)

#ifndef EMU
#define KERNEL(name)
#endif

// FOR_FLOATS and FOR_ALL write a macro for each type, with its name.
#define FOR_FLOATS(M) M(f16, float16) M(bf16, bfloat16) M(float, float32) M(double, float64)
#define FOR_ALL(M) FOR_FLOATS(M) M(boolean, bool) M(u8, uint8) M(int, int32) M(i64, int64)

// FOR_PAIRS writes a macro for each pair of types of which one is that of an
// operand and the other that of a result or gradient.
#define FOR_PAIRS(M) \
	M(f16, float16, f16, float16) M(f16, float16, float, float32) \
	M(bf16, bfloat16, bf16, bfloat16) M(bf16, bfloat16, float, float32) \
	M(float, float32, float, float32) M(float, float32, f16, float16) M(float, float32, bf16, bfloat16) \
	M(double, float64, double, float64)

// lowest and zero store -∞ and 0.
INLINE void lowest(f16 *p, i64 i) { p[i].v = 0xfc00; }
INLINE void lowest(bf16 *p, i64 i) { p[i].v = 0xff80; }
INLINE void lowest(float *p, i64 i) { p[i] = float_of(0xff800000u); }
INLINE void lowest(double *p, i64 i) { p[i] = (double)float_of(0xff800000u); }
INLINE void zero(f16 *p, i64 i) { p[i].v = 0; }
INLINE void zero(bf16 *p, i64 i) { p[i].v = 0; }
template <class T> INLINE void zero(T *p, i64 i) { p[i] = 0; }

// set stores a result in the type of an array.
INLINE void set(f16 *p, int i, float v) { p[i].v = float_to_half(v); }
INLINE void set(bf16 *p, int i, float v) { p[i].v = float_to_bfloat(v); }
INLINE void set(float *p, int i, float v) { p[i] = v; }
INLINE void set(double *p, int i, double v) { p[i] = v; }
