// Rows whose elements lie together: softmax and layer normalization with their
// gradients. A row is of a group of threads, a warp for up to 256 elements,
// else a block of 256 threads. Up to 2048 elements are read once and kept in
// registers, 8 for each thread, 4 at a time where rows are aligned; others, and
// those of float64, are read again for each pass. Groups go through rows in an order that depends
// on the shape alone.

enum { KEPT = 8, BLOCK = 256 };

#define METHOD __device__ __forceinline__

template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T a[N]; };

// Sum and Top are what fold does over the elements of a group.
struct Sum {
	template <class W> static METHOD W of(W a, W b) { return a + b; }
};
struct Top {
	template <class W> static METHOD W of(W a, W b) { return nan_wins(a) || a > b ? a : b; }
};

// fold combines the threads' values, and gives the result to all of them.
template <int LANES, class F, class W> INLINE W fold(F f, W v) {
	for (int m = 16; m; m >>= 1) v = f.of(v, __shfl_xor_sync(0xffffffffu, v, m));
	if (LANES == 32) return v;
	__shared__ W part[BLOCK / 32];
	if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
	__syncthreads();
	v = part[0];
	for (int i = 1; i < BLOCK / 32; i++) v = f.of(v, part[i]);
	__syncthreads();
	return v;
}

// Row is the elements of a row that are this thread's: where HELD, in registers.
template <class T, int LANES, int VEC, bool HELD> struct Row {
	typedef typename Wide<T>::type W;
	const T *p;
	int n, lane;
	W v[HELD ? KEPT : 1];

	METHOD Row(const T *row, int count, int thread) : p(row), n(count), lane(thread) {
		if (!HELD) return;
		for (int j = 0; j < KEPT / VEC; j++) {
			const int k = (lane + j * LANES) * VEC;
			if (k >= n) continue;
			const Pack<T, VEC> x = *(const Pack<T, VEC> *)(p + k);
			for (int e = 0; e < VEC; e++) v[j * VEC + e] = get(x.a, e);
		}
	}
	// each calls f with the places of the elements and what number they have in
	// the thread.
	template <class F> METHOD void each(F f) const {
		if (!HELD) {
			for (int k = lane; k < n; k += LANES) f(k, 0);
			return;
		}
#pragma unroll
		for (int j = 0; j < KEPT; j++) {
			const int k = (lane + j / VEC * LANES) * VEC + j % VEC;
			if (k < n) f(k, j);
		}
	}
	METHOD W at(int k, int j) const { return HELD ? v[j] : get(p, k); }
};

// write stores what f makes of the elements of a row.
template <class O, int LANES, int VEC, bool HELD, class F> INLINE void write(O *out, int n, int lane, F f) {
	if (!HELD) {
		for (int k = lane; k < n; k += LANES) set(out, k, f(k, 0));
		return;
	}
#pragma unroll
	for (int j = 0; j < KEPT / VEC; j++) {
		const int k = (lane + j * LANES) * VEC;
		if (k >= n) continue;
		Pack<O, VEC> x;
		for (int e = 0; e < VEC; e++) set(x.a, e, f(k + e, j * VEC + e));
		*(Pack<O, VEC> *)(out + k) = x;
	}
}

// Paths of a kernel by the size of rows and whether they are aligned: macro M
// with the threads of a group, elements at a time, and whether rows are held.
#define PATHS(M) \
	if (sizeof(In) == 8) M(BLOCK, 1, false) \
	else if (n <= 32 * KEPT) { \
		if (aligned) M(32, 4, true) else M(32, 1, true) \
	} else if (n <= BLOCK * KEPT && aligned) M(BLOCK, 4, true) \
	else M(BLOCK, 1, false)

// EACH_ROW goes through the rows of a group.
#define EACH_ROW(r, LANES) \
	const int lane = threadIdx.x % LANES; \
	for (i64 r = (i64)blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES; r < rows; r += (i64)gridDim.x * (BLOCK / LANES))

template <class T, class O, int LANES, int VEC, bool HELD> INLINE void softmax_rows(const T *in, O *out, i64 logarithm, i64 rows, int n) {
	typedef typename Wide<T>::type W;
	EACH_ROW(r, LANES) {
		const Row<T, LANES, VEC, HELD> x(in + r * n, n, lane);
		const W least = neutral(MAX, W());
		W top = least, sum = 0;
		x.each([&](int k, int j) { top = Top::of(top, x.at(k, j)); });
		top = fold<LANES>(Top(), top);
		if (top == least) top = 0;
		W e[HELD ? KEPT : 1];
		x.each([&](int k, int j) {
			const W y = exp_of(x.at(k, j) - top);
			if (HELD) e[j] = y;
			sum += y;
		});
		sum = fold<LANES>(Sum(), sum);
		const W l = log_of(sum);
		write<O, LANES, VEC, HELD>(out + r * n, n, lane, [&](int k, int j) {
			if (logarithm) return x.at(k, j) - top - l;
			return (HELD ? e[j] : exp_of(x.at(k, j) - top)) / sum;
		});
	}
}

template <class T, class G, class O, int LANES, int VEC, bool HELD> INLINE void softmax_grad_rows(const T *y, const G *g, O *out, i64 rows, int n) {
	typedef typename Wide<T>::type W;
	EACH_ROW(r, LANES) {
		const Row<T, LANES, VEC, HELD> a(y + r * n, n, lane);
		const Row<G, LANES, VEC, HELD> b(g + r * n, n, lane);
		W sum = 0;
		a.each([&](int k, int j) { sum += a.at(k, j) * b.at(k, j); });
		sum = fold<LANES>(Sum(), sum);
		write<O, LANES, VEC, HELD>(out + r * n, n, lane, [&](int k, int j) { return a.at(k, j) * (b.at(k, j) - sum); });
	}
}

// Moments is the mean of a row and what its deviations are multiplied by.
template <class W> struct Moments { W mean, scale; };
template <int LANES, class R, class W> INLINE Moments<W> moments(const R &x, int n, W epsilon, i64 uncentered) {
	W mean = 0, squares = 0;
	if (!uncentered) {
		x.each([&](int k, int j) { mean += x.at(k, j); });
		mean = fold<LANES>(Sum(), mean) / (W)n;
	}
	x.each([&](int k, int j) {
		const W d = x.at(k, j) - mean;
		squares += d * d;
	});
	return {mean, 1 / sqrt_of(fold<LANES>(Sum(), squares) / (W)n + epsilon)};
}

template <class T, class O, int LANES, int VEC, bool HELD> INLINE void normalize_rows(const T *in, const typename Wide<T>::type *gain, const typename Wide<T>::type *shift, O *out, double epsilon, i64 uncentered, i64 rows, int n) {
	typedef typename Wide<T>::type W;
	EACH_ROW(r, LANES) {
		const Row<T, LANES, VEC, HELD> x(in + r * n, n, lane);
		const Moments<W> m = moments<LANES>(x, n, (W)epsilon, uncentered);
		write<O, LANES, VEC, HELD>(out + r * n, n, lane, [&](int k, int j) { return (x.at(k, j) - m.mean) * m.scale * gain[k] + shift[k]; });
	}
}

// rounded is a number as T stores it.
template <class T, class W> METHOD W rounded(W v) {
	T t[1];
	set(t, 0, v);
	return get(t, 0);
}

// add_normalize_rows is normalize_rows of what it stores before: residual plus what dropout
// leaves of in, and of a bias if there is one. Each operation rounds to T, as the chains do.
template <class T, int LANES, int VEC> INLINE void add_normalize_rows(const T *in, const T *bias, const u8 *mask, float keep, const T *residual, T *sum, const float *gain, const float *shift, T *out, float epsilon, i64 uncentered, i64 rows, int n) {
	EACH_ROW(r, LANES) {
		const Row<T, LANES, VEC, true> a(in + r * n, n, lane), b(residual + r * n, n, lane);
		write<T, LANES, VEC, true>(sum + r * n, n, lane, [&](int k, int j) {
			float v = a.at(k, j);
			if (bias) v = rounded<T>(v + get(bias, k));
			return (mask[r * n + k] ? rounded<T>(v * keep) : 0.0f) + b.at(k, j);
		});
		const Row<T, LANES, VEC, true> x(sum + r * n, n, lane); // what this thread stored
		const Moments<float> m = moments<LANES>(x, n, epsilon, uncentered);
		write<T, LANES, VEC, true>(out + r * n, n, lane, [&](int k, int j) { return (x.at(k, j) - m.mean) * m.scale * gain[k] + shift[k]; });
	}
}

// normalize_grad_rows writes the gradient by the input, if it is wanted, of the type of sums
// or where narrow of the input's, and each group's sums of the gradients by gain and shift
// to sums, 2·n for each group. Where a mask of dropout is given it stores what that leaves of
// the gradient by the input as well.
template <class T, class G, int LANES, int VEC, bool HELD> INLINE void normalize_grad_rows(const T *in, const typename Wide<T>::type *gain, const G *grad, void *out, i64 narrow, const u8 *mask, const float *keep, T *dropped, typename Wide<T>::type *sums, double epsilon, i64 uncentered, i64 rows, int n) {
	typedef typename Wide<T>::type W;
	W by_gain[HELD ? KEPT : 1], by_shift[HELD ? KEPT : 1];
	W *own = sums + ((i64)blockIdx.x * (BLOCK / LANES) + threadIdx.x / LANES) * 2 * n;
	if (HELD)
		for (int j = 0; j < KEPT; j++) by_gain[j] = by_shift[j] = 0;
	else
		for (int k = threadIdx.x; k < 2 * n; k += LANES) own[k] = 0;
	if (!HELD) __syncthreads();
	EACH_ROW(r, LANES) {
		const Row<T, LANES, VEC, HELD> x(in + r * n, n, lane);
		const Row<G, LANES, VEC, HELD> g(grad + r * n, n, lane);
		const Moments<W> m = moments<LANES>(x, n, (W)epsilon, uncentered);
		W mean = 0, along = 0;
		x.each([&](int k, int j) {
			const W d = g.at(k, j), h = (x.at(k, j) - m.mean) * m.scale;
			mean += d * gain[k];
			along += d * gain[k] * h;
			if (HELD) {
				by_gain[j] += d * h;
				by_shift[j] += d;
			} else {
				own[k] += d * h;
				own[n + k] += d;
			}
		});
		along = fold<LANES>(Sum(), along) / (W)n;
		mean = uncentered ? 0 : fold<LANES>(Sum(), mean) / (W)n;
		const auto by_input = [&](int k, int j) {
			return (g.at(k, j) * gain[k] - mean - (x.at(k, j) - m.mean) * m.scale * along) * m.scale;
		};
		if (!out) continue;
		if (sizeof(T) < sizeof(W) && narrow) write<T, LANES, VEC, HELD>((T *)out + r * n, n, lane, by_input);
		else write<W, LANES, VEC, HELD>((W *)out + r * n, n, lane, by_input);
		if (sizeof(T) < sizeof(W) && HELD && mask)
			write<T, LANES, VEC, HELD>(dropped + r * n, n, lane, [&](int k, int j) { return mask[r * n + k] ? rounded<T>(by_input(k, j)) * (W)*keep : (W)0; });
	}
	if (!HELD) return;
	for (int j = 0; j < KEPT; j++) {
		const int k = (threadIdx.x % LANES + j / VEC * LANES) * VEC + j % VEC;
		if (k < n) own[k] = by_gain[j], own[n + k] = by_shift[j];
	}
}

#define SOFTMAX_PATH(LANES, VEC, HELD) { softmax_rows<In, Out, LANES, VEC, HELD>(in, out, logarithm, rows, (int)n); }
#define NORMALIZE_PATH(LANES, VEC, HELD) { normalize_rows<In, Out, LANES, VEC, HELD>(in, gain, shift, out, epsilon, uncentered, rows, (int)n); }
#define SOFTMAX_GRAD_PATH(LANES, VEC, HELD) { softmax_grad_rows<In, Grad, Out, LANES, VEC, HELD>(y, g, out, rows, (int)n); }
#define NORMALIZE_GRAD_PATH(LANES, VEC, HELD) { normalize_grad_rows<In, Grad, LANES, VEC, HELD>(in, gain, g, out, narrow, mask, keep, dropped, sums, epsilon, uncentered, rows, (int)n); }

#define DENSE(T, S, O, SO) \
	extern "C" __global__ void __launch_bounds__(256) softmax_rows_##S##_##SO(const T *in, O *out, i64 logarithm, i64 rows, i64 n, i64 aligned) { \
		typedef T In; \
		typedef O Out; \
		PATHS(SOFTMAX_PATH) \
	} \
	KERNEL(softmax_rows_##S##_##SO) \
	extern "C" __global__ void __launch_bounds__(256) normalize_##S##_##SO(const T *in, const Wide<T>::type *gain, const Wide<T>::type *shift, O *out, double epsilon, i64 uncentered, i64 rows, i64 n, i64 aligned) { \
		typedef T In; \
		typedef O Out; \
		PATHS(NORMALIZE_PATH) \
	} \
	KERNEL(normalize_##S##_##SO)

// S is the type of the row, SO that of the gradient.
#define DENSE_GRAD(T, S, O, SO) \
	extern "C" __global__ void __launch_bounds__(256) softmax_grad_rows_##S##_##SO(const T *y, const O *g, O *out, i64 rows, i64 n, i64 aligned) { \
		typedef T In; \
		typedef O Grad; \
		typedef O Out; \
		PATHS(SOFTMAX_GRAD_PATH) \
	} \
	KERNEL(softmax_grad_rows_##S##_##SO) \
	extern "C" __global__ void __launch_bounds__(256) normalize_grad_##S##_##SO(const T *in, const Wide<T>::type *gain, const O *g, void *out, i64 narrow, const u8 *mask, const float *keep, T *dropped, Wide<T>::type *sums, double epsilon, i64 uncentered, i64 rows, i64 n, i64 aligned) { \
		typedef T In; \
		typedef O Grad; \
		PATHS(NORMALIZE_GRAD_PATH) \
	} \
	KERNEL(normalize_grad_##S##_##SO)

#define ADD_NORMALIZE(T, S) \
	extern "C" __global__ void __launch_bounds__(256) add_normalize_##S(const T *in, const T *bias, const u8 *mask, const float *keep, const T *residual, T *sum, const float *gain, const float *shift, T *out, double epsilon, i64 uncentered, i64 rows, i64 n, i64 aligned) { \
		if (n > 32 * KEPT) add_normalize_rows<T, BLOCK, 4>(in, bias, mask, *keep, residual, sum, gain, shift, out, (float)epsilon, uncentered, rows, (int)n); \
		else if (aligned) add_normalize_rows<T, 32, 4>(in, bias, mask, *keep, residual, sum, gain, shift, out, (float)epsilon, uncentered, rows, (int)n); \
		else add_normalize_rows<T, 32, 1>(in, bias, mask, *keep, residual, sum, gain, shift, out, (float)epsilon, uncentered, rows, (int)n); \
	} \
	KERNEL(add_normalize_##S)

FOR_PAIRS(DENSE)
ADD_NORMALIZE(f16, float16)
ADD_NORMALIZE(bf16, bfloat16)
FOR_PAIRS(DENSE_GRAD)
