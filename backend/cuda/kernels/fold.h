// What kernels that fold elements share: the reductions themselves, over the
// threads of a block too, and where the elements lie.

enum { SUM, MEAN, PROD, MAX, MIN, SUM_SQUARES, ALL_FINITE };

INLINE float neutral(i64 how, float) {
	return how == MAX ? float_of(0xff800000u) : how == MIN ? float_of(0x7f800000u) : how == PROD || how == ALL_FINITE ? 1.0f : 0.0f;
}
INLINE double neutral(i64 how, double) { return neutral(how, 0.0f); }
INLINE i64 neutral(i64 how, i64) {
	return how == MAX ? (i64)(1ull << 63) : how == MIN ? (i64)((1ull << 63) - 1) : how == PROD || how == ALL_FINITE;
}

INLINE bool nan_wins(float x) { return is_nan(x); }
INLINE bool nan_wins(double x) { return is_nan(x); }
INLINE bool nan_wins(i64) { return false; }
INLINE bool is_finite(float x) { return x - x == 0; }
INLINE bool is_finite(double x) { return x - x == 0; }
INLINE bool is_finite(i64) { return true; }

template <class W> INLINE W combine(i64 how, W a, W b) {
	switch (how) {
	case PROD: return a * b;
	case MAX: return nan_wins(a) || a > b ? a : b;
	case MIN: return nan_wins(a) || a < b ? a : b;
	case ALL_FINITE: return a != 0 && b != 0;
	}
	return a + b;
}

template <class W> INLINE W prepared(i64 how, W x) {
	return how == SUM_SQUARES ? x * x : how == ALL_FINITE ? (W)is_finite(x) : x;
}

// Box is where elements lie: digits of a number in the sizes n0…n3, the last
// one fastest, times strides.
struct Box { i64 n1, n2, n3, s0, s1, s2, s3; };
INLINE i64 place(const Box &b, i64 i) {
	i64 d3 = i % b.n3, q = i / b.n3, d2 = q % b.n2;
	q /= b.n2;
	return d3 * b.s3 + d2 * b.s2 + q % b.n1 * b.s1 + q / b.n1 * b.s0;
}
INLINE i64 near(const Box &b, u32 i) { // place of a number of 31 bits
	const u32 n3 = (u32)b.n3, n2 = (u32)b.n2, n1 = (u32)b.n1;
	u32 q = i / n3, at2, at1;
	const u32 d3 = i - q * n3;
	at2 = q, q /= n2, at2 -= q * n2;
	at1 = q, q /= n1, at1 -= q * n1;
	return d3 * b.s3 + at2 * b.s2 + at1 * b.s1 + q * b.s0;
}
#define BOX(p) i64 p##n1, i64 p##n2, i64 p##n3, i64 p##s0, i64 p##s1, i64 p##s2, i64 p##s3
#define MAKE_BOX(p) Box{p##n1, p##n2, p##n3, p##s0, p##s1, p##s2, p##s3}

template <class W> INLINE W block_combine(i64 how, W v) {
	__shared__ W part[32];
	for (int m = 16; m; m >>= 1) v = combine(how, v, __shfl_xor_sync(0xffffffffu, v, m));
	if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
	__syncthreads();
	v = part[0];
	for (u32 i = 1; i < blockDim.x / 32; i++) v = combine(how, v, part[i]);
	__syncthreads();
	return v;
}

INLINE float exp_of(float x) { return expf(x); }
INLINE double exp_of(double x) { return exp(x); }
INLINE float log_of(float x) { return logf(x); }
INLINE double log_of(double x) { return log(x); }
INLINE float sqrt_of(float x) { return sqrtf(x); }
INLINE double sqrt_of(double x) { return sqrt(x); }
