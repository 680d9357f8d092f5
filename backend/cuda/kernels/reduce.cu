// Reductions. An output is reduced by a block, or, where neighbouring outputs
// lie next to each other in the input, by a thread; long ones are cut into
// parts whose results another launch reduces. The tree depends on the shape
// alone, so that results have the same bits on every run.

template <class W> INLINE void put_reduced(void *out, i64 type, i64 i, i64 how, W v, double divisor) {
	put(out, type, i, how == MEAN ? v / (W)divisor : v);
}
INLINE void put_reduced(void *out, i64 type, i64 i, i64 how, i64 v, double divisor) {
	if (how == MEAN) put(out, type, i, (double)v / divisor);
	else put(out, type, i, v);
}

// folded folds elements lo, lo+step … before hi of an output that begins at in. Where
// they lie along one axis no place is computed, and sums load four side by side.
#ifdef EMU
#define ROLLED
#else
#define ROLLED _Pragma("unroll 1")
#endif
template <bool ADDS, class W, class T> INLINE W folded(const T *in, i64 how, i64 lo, i64 hi, i64 step, i64 n, const Box &f) {
	W v = neutral(how, W());
	i64 r = lo;
	if (f.n3 >= n) {
		const i64 d = step * f.s3;
		const T *p = in + lo * f.s3;
		if (ADDS) {
			ROLLED
			for (; r + 3 * step < hi; r += 4 * step, p += 4 * d) {
				const W a = get(p, 0), b = get(p, d), c = get(p, 2 * d), e = get(p, 3 * d);
				v = v + a + b + c + e;
			}
		}
		ROLLED
		for (; r < hi; r += step, p += d) v = ADDS ? v + (W)get(p, 0) : combine(how, v, prepared(how, (W)get(p, 0)));
		return v;
	}
	ROLLED
	for (; r < hi; r += step) {
		const W x = get(in, n < 1ll << 31 ? near(f, (u32)r) : place(f, r));
		v = ADDS ? v + x : combine(how, v, prepared(how, x));
	}
	return v;
}
template <class W, class T> INLINE W fold_from(const T *in, i64 how, i64 lo, i64 hi, i64 step, i64 n, const Box &f) {
	return how <= MEAN ? folded<true, W>(in, how, lo, hi, step, n, f) : folded<false, W>(in, how, lo, hi, step, n, f);
}

// One block for each output (grid x) and part (grid y); 256 threads.
template <class W, class T> INLINE void reduce_block(const T *in, void *out, i64 type, i64 how, i64 n, i64 per, double divisor, const Box &kept, const Box &f) {
	const i64 lo = blockIdx.y * per, hi = lo + per < n ? lo + per : n;
	const W v = block_combine(how, fold_from<W>(in + place(kept, blockIdx.x), how, lo + threadIdx.x, hi, blockDim.x, n, f));
	if (threadIdx.x == 0) put_reduced(out, type, (i64)blockIdx.y * gridDim.x + blockIdx.x, how, v, divisor);
}

// A block has 32 neighbouring outputs, each with 8 or 16 lanes of threads that fold every
// so many elements of it, or 256 with one; and a part (grid y).
template <class W, class T> INLINE void reduce_thread(const T *in, void *out, i64 type, i64 how, i64 n, i64 per, double divisor, i64 outputs, i64 lanes, const Box &kept, const Box &f) {
	__shared__ W parts[512];
	const u32 across = lanes == 1 ? 256 : 32, lane = threadIdx.x / across, column = threadIdx.x % across;
	const i64 o = (i64)blockIdx.x * across + column, lo = blockIdx.y * per, hi = lo + per < n ? lo + per : n;
	W v = neutral(how, W());
	if (o < outputs) v = fold_from<W>(in + place(kept, o), how, lo + lane, hi, lanes, n, f);
	if (lanes > 1) {
		parts[threadIdx.x] = v;
		__syncthreads();
		if (lane) return;
		for (u32 k = 1; k < lanes; k++) v = combine(how, v, parts[k * 32 + column]);
	}
	if (o < outputs) put_reduced(out, type, (i64)blockIdx.y * outputs + o, how, v, divisor);
}

#define REDUCE_AS(T, S, W) \
	extern "C" __global__ void reduce_block_##S(const T *in, void *out, i64 type, i64 how, i64 n, i64 per, double divisor, BOX(k), BOX(f)) { \
		reduce_block<W>(in, out, type, how, n, per, divisor, MAKE_BOX(k), MAKE_BOX(f)); \
	} \
	KERNEL(reduce_block_##S) \
	extern "C" __global__ void __launch_bounds__(512) reduce_thread_##S(const T *in, void *out, i64 type, i64 how, i64 n, i64 per, double divisor, i64 outputs, i64 lanes, BOX(k), BOX(f)) { \
		reduce_thread<W>(in, out, type, how, n, per, divisor, outputs, lanes, MAKE_BOX(k), MAKE_BOX(f)); \
	} \
	KERNEL(reduce_thread_##S)
#define REDUCE(T, S) REDUCE_AS(T, S, typename Wide<T>::type)
FOR_ALL(REDUCE)
// Results of float64 are accumulated in it.
REDUCE_AS(f16, float16_wide, double)
REDUCE_AS(bf16, bfloat16_wide, double)
REDUCE_AS(float, float32_wide, double)

// Reductions of reduce_thread, of many matrices at once: for each column the elements of
// the rows. A block has 32 columns of one of them, which it finds by the number of the
// first block of each, and 16 lanes of threads, of which it uses as many as that kernel has.
struct Columns {
	u64 in, out; // addresses
	i64 type, to, how, n, stride, outputs, lanes, first;
	double divisor;
};

template <class T> INLINE float fold_column(const Columns &c, i64 o, u32 lane) {
	return fold_from<float>((const T *)c.in + o, c.how, lane, c.n, c.lanes, c.n, Box{1, 1, c.n, 0, 0, 0, c.stride});
}

extern "C" __global__ void __launch_bounds__(512) reduce_columns(const Columns *list, i64 count) {
	__shared__ float parts[512];
	i64 lo = 0, hi = count; // the last one that begins with this block or before
	while (hi - lo > 1) {
		const i64 middle = (lo + hi) / 2;
		if (list[middle].first <= blockIdx.x) lo = middle;
		else hi = middle;
	}
	const Columns &c = list[lo];
	const u32 lane = threadIdx.x / 32, column = threadIdx.x % 32;
	const i64 o = ((i64)blockIdx.x - c.first) * 32 + column;
	float v = neutral(c.how, 0.0f);
	if (o < c.outputs && lane < c.lanes) v = c.type == FLOAT16 ? fold_column<f16>(c, o, lane) : c.type == BFLOAT16 ? fold_column<bf16>(c, o, lane) : fold_column<float>(c, o, lane);
	parts[threadIdx.x] = v;
	__syncthreads();
	if (lane) return;
	for (u32 k = 1; k < c.lanes; k++) v = combine(c.how, v, parts[k * 32 + column]);
	if (o < c.outputs) put_reduced((void *)c.out, c.to, o, c.how, v, c.divisor);
}
KERNEL(reduce_columns)

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

// Folds of whole arrays, of many at once: what an optimizer wants of each
// gradient. A block has a part of one of the arrays, which it finds by the number
// of the first block of each; another launch has a warp for each array, that adds
// up its parts. Where all have one part alone, the first one is enough.
struct Whole {
	u64 in, out; // addresses, less what all have in common
	i64 n, type, how, first, parts, to;
};
enum { WHOLE_PART = 8192, WHOLE_AT_ONCE = 8 };

template <class T> INLINE float fold_part(const T *in, i64 how, i64 n) {
	float v = neutral(how, 0.0f);
	for (i64 i = threadIdx.x; i < n; i += 256 * WHOLE_AT_ONCE) {
		float x[WHOLE_AT_ONCE];
#pragma unroll
		for (int j = 0; j < WHOLE_AT_ONCE; j++) x[j] = i + 256 * j < n ? get(in, i + 256 * j) : 0;
#pragma unroll
		for (int j = 0; j < WHOLE_AT_ONCE; j++) v = combine(how, v, prepared(how, x[j]));
	}
	return block_combine(how, v);
}

extern "C" __global__ void __launch_bounds__(256) fold_arrays(const Whole *arrays, i64 count, float *parts, u64 in, u64 out) {
	i64 lo = 0, hi = count; // the last array that begins with this block or before
	while (hi - lo > 1) {
		const i64 middle = (lo + hi) / 2;
		if (arrays[middle].first <= blockIdx.x) lo = middle;
		else hi = middle;
	}
	const Whole &a = arrays[lo];
	const i64 from = (blockIdx.x - a.first) * WHOLE_PART, n = a.n - from < WHOLE_PART ? a.n - from : WHOLE_PART;
	const u64 at = in + a.in;
	const float v = a.type == FLOAT16 ? fold_part((const f16 *)at + from, a.how, n) : a.type == BFLOAT16 ? fold_part((const bf16 *)at + from, a.how, n) : fold_part((const float *)at + from, a.how, n);
	if (threadIdx.x) return;
	if (parts) parts[blockIdx.x] = v;
	else put((void *)(out + a.out), a.to, 0, v);
}
KERNEL(fold_arrays)

extern "C" __global__ void __launch_bounds__(256) fold_parts(const Whole *arrays, i64 count, const float *parts, u64 out) {
	const i64 i = THREAD / 32;
	if (i >= count) return;
	const Whole &a = arrays[i];
	float v = neutral(a.how, 0.0f);
	for (i64 j = threadIdx.x % 32; j < a.parts; j += 32) v = combine(a.how, v, parts[a.first + j]);
	for (int m = 16; m; m >>= 1) v = combine(a.how, v, __shfl_xor_sync(0xffffffffu, v, m));
	if (threadIdx.x % 32 == 0) put((void *)(out + a.out), a.to, 0, v);
}
KERNEL(fold_parts)
