// Reductions. An output is reduced by a block, or, where neighbouring outputs
// lie next to each other in the input, by a thread; long ones are cut into
// parts whose results another launch reduces. The tree depends on the shape
// alone, so that results have the same bits on every run.

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

template <class W> INLINE void put_reduced(void *out, i64 type, i64 i, i64 how, W v, double divisor) {
	put(out, type, i, how == MEAN ? v / (W)divisor : v);
}
INLINE void put_reduced(void *out, i64 type, i64 i, i64 how, i64 v, double divisor) {
	if (how == MEAN) put(out, type, i, (double)v / divisor);
	else put(out, type, i, v);
}

// One block for each output (grid x) and part (grid y); 256 threads.
template <class W, class T> INLINE void reduce_block(const T *in, void *out, i64 type, i64 how, i64 n, i64 per, double divisor, const Box &kept, const Box &folded) {
	i64 base = place(kept, blockIdx.x), lo = blockIdx.y * per, hi = lo + per < n ? lo + per : n;
	W v = neutral(how, W());
	for (i64 r = lo + threadIdx.x; r < hi; r += blockDim.x) v = combine(how, v, prepared(how, (W)get(in, base + place(folded, r))));
	v = block_combine(how, v);
	if (threadIdx.x == 0) put_reduced(out, type, (i64)blockIdx.y * gridDim.x + blockIdx.x, how, v, divisor);
}

// One thread for each output and part (grid y).
template <class W, class T> INLINE void reduce_thread(const T *in, void *out, i64 type, i64 how, i64 n, i64 per, double divisor, i64 outputs, const Box &kept, const Box &folded) {
	i64 o = THREAD;
	if (o >= outputs) return;
	i64 base = place(kept, o), lo = blockIdx.y * per, hi = lo + per < n ? lo + per : n;
	W v = neutral(how, W());
	for (i64 r = lo; r < hi; r++) v = combine(how, v, prepared(how, (W)get(in, base + place(folded, r))));
	put_reduced(out, type, (i64)blockIdx.y * outputs + o, how, v, divisor);
}

#define REDUCE_AS(T, S, W) \
	extern "C" __global__ void reduce_block_##S(const T *in, void *out, i64 type, i64 how, i64 n, i64 per, double divisor, BOX(k), BOX(f)) { \
		reduce_block<W>(in, out, type, how, n, per, divisor, MAKE_BOX(k), MAKE_BOX(f)); \
	} \
	KERNEL(reduce_block_##S) \
	extern "C" __global__ void reduce_thread_##S(const T *in, void *out, i64 type, i64 how, i64 n, i64 per, double divisor, i64 outputs, BOX(k), BOX(f)) { \
		reduce_thread<W>(in, out, type, how, n, per, divisor, outputs, MAKE_BOX(k), MAKE_BOX(f)); \
	} \
	KERNEL(reduce_thread_##S)
#define REDUCE(T, S) REDUCE_AS(T, S, typename Wide<T>::type)
FOR_ALL(REDUCE)
// Results of float64 are accumulated in it.
REDUCE_AS(f16, float16_wide, double)
REDUCE_AS(bf16, bfloat16_wide, double)
REDUCE_AS(float, float32_wide, double)

// The index of the largest or smallest element along an axis; NaN wins.
template <class T> INLINE void arg(const T *in, int *out, i64 smallest, i64 outer, i64 n, i64 inner) {
	EACH(o, outer * inner) {
		const i64 base = o / inner * n * inner + o % inner;
		auto best = get(in, base);
		int at = 0;
		for (i64 k = 1; k < n && !nan_wins(best); k++) {
			auto x = get(in, base + k * inner);
			if (nan_wins(x) || (smallest ? x < best : x > best)) best = x, at = (int)k;
		}
		out[o] = at;
	}
}
#define ARG(T, S) \
	extern "C" __global__ void arg_##S(const T *in, int *out, i64 smallest, i64 outer, i64 n, i64 inner) { arg(in, out, smallest, outer, n, inner); } \
	KERNEL(arg_##S)
FOR_ALL(ARG)
