// Attention and its gradient. Scores are never in memory: each kernel computes
// them again, tile by tile. A block has a chunk (grid y) of the features of its
// result, and all of those of the scores.

// chunks is how many chunks features are cut into.
template <class T> INLINE int chunks(int features) { return features <= Features<T>::count ? 1 : (features + Features<T>::count - 1) / Features<T>::count; }

template <class W, int M> INLINE void clear(W (&s)[M][4]) {
	for (int n = 0; n < M; n++)
		for (int e = 0; e < 4; e++) s[n][e] = 0;
}

// The first row and column of a lane's elements: element e of block n is e/2·8
// rows and n·8+e%2 columns further.
INLINE int own_row() { return (int)(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4); }
INLINE int own_column() { return (int)(threadIdx.x % 4 * 2); }

// between combines what the four lanes of a row have.
template <class F, class W> INLINE W between(F f, W v) {
	v = f(v, __shfl_xor_sync(0xffffffffu, v, 1));
	return f(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

// Operand is a side of the scores: matrices of rows by features, of which tiles
// begin at base.
template <class T> struct Operand {
	const T *base;
	int stride, rows, features, wide;
	// load begins to copy R rows of a chunk.
	template <int R> INLINE_MEMBER void load(u8 *tile, int row, int chunk) const {
		const int f = chunk * Features<T>::count;
		fetch<T, R>(shared_address(tile), base + (i64)row * stride + f, stride, rows - row, features - f, wide);
	}
};

// store_row stores a row of a result, of so many features, times a factor: elements
// e and e+1 of its blocks.
template <class T, class W, int O> INLINE void store_row(T *out, const W (&x)[O][4], int e, int features, W factor) {
	const int f = (int)blockIdx.y * 8 * O + own_column();
	out += f;
#pragma unroll
	for (int o = 0; o < O; o++) {
		if (f + 8 * o < features) set(out, 8 * o, x[o][e] * factor);
		if (f + 8 * o + 1 < features) set(out, 8 * o + 1, x[o][e + 1] * factor);
	}
}

// scores are the products of rows of left and right, from row and column on. a
// and b are where tiles of them lie; fixed says that the rows of left do. The chunk
// of this block stays in b if it is wanted. Sums are formed in the same order
// in all kernels and blocks: weights are computed again from the same scores.
template <class T, class A, int M> INLINE void scores(typename Wide<T>::type (&s)[M][4], const Operand<T> &left, const Operand<T> &right, int row, int column, u8 *a, u8 *b, bool fixed, bool wanted) {
	const int n = chunks<T>(left.features);
	clear(s);
	for (int i = 0; i < n; i++) {
		if (i > 0) __syncthreads();
		if (n > 1 || !fixed) left.template load<ATTENTION_ROWS>(a, row, i);
		right.template load<8 * M>(b, column, i);
		fetched();
		A::template dots<M>(s, a, b);
	}
	if (wanted && (int)blockIdx.y + 1 < n) {
		__syncthreads();
		right.template load<8 * M>(b, column, (int)blockIdx.y);
		fetched();
	}
}

// The result is of the type of the statistics, or where narrow of the operands'; 0 is not
// wanted.
template <class T, class A> INLINE void attention_forward(const Attention<T> &p, void *out, i64 narrow, typename Wide<T>::type *statistics) {
	typedef typename Wide<T>::type W;
	enum { N = ATTENTION_COLUMNS / 8, O = Features<T>::count / 8, TILE = ATTENTION_ROWS * Features<T>::bytes, SIDE = 8 * N * Features<T>::bytes };
	alignas(128) __shared__ u8 memory[TILE + 2 * SIDE];
	const int tiles = (p.queries + ATTENTION_ROWS - 1) / ATTENTION_ROWS, t0 = (int)(blockIdx.x % tiles) * ATTENTION_ROWS;
	const i64 head = blockIdx.x / tiles % p.heads, batch = blockIdx.x / tiles / p.heads, group = head / (p.heads / p.key_heads);
	const Operand<T> query{p.q + p.query(batch, head, 0), p.heads * p.features, p.queries, p.features, p.wide_q};
	const Operand<T> key{p.k + p.key(batch, group, 0), p.key_heads * p.features, p.keys, p.features, p.wide_q};
	const Operand<T> value{p.v + p.value(batch, group, 0), p.key_heads * p.value_features, p.keys, p.value_features, p.wide_v};
	const auto larger = [](W a, W b) { return a > b ? a : b; };
	const auto plus = [](W a, W b) { return a + b; };
	const W least = neutral(MAX, W());
	W top[2] = {least, least}, sum[2] = {0, 0}, y[O][4];
	u32 any = 0; // of what the lane's queries see
	clear(y);
	const int first = p.first_key(t0) / (8 * N) * (8 * N), last = p.last_key(t0);
	for (int s0 = first; s0 < last; s0 += 8 * N) {
		W s[N][4], next[2] = {top[0], top[1]}, part[2] = {0, 0}, scale[2];
		__syncthreads();
		value.template load<8 * N>(memory + TILE + SIDE, s0, blockIdx.y);
		scores<T, A, N>(s, query, key, t0, s0, memory, memory + TILE, s0 > first, false);
		u32 see, keeps;
		p.template marks<false>(see, keeps, batch, head, t0 + own_row(), s0 + own_column());
		any |= see;
#pragma unroll
		for (int n = 0; n < N; n++)
			for (int e = 0; e < 4; e++) {
				s[n][e] = see >> (4 * n + e) & 1 ? s[n][e] * p.sign : least;
				next[e / 2] = larger(next[e / 2], s[n][e]);
			}
		for (int i = 0; i < 2; i++) {
			next[i] = between(larger, next[i]);
			scale[i] = next[i] == least ? (W)1 : exp_of((top[i] - next[i]) * p.factor);
			top[i] = next[i];
		}
#pragma unroll
		for (int n = 0; n < N; n++)
			for (int e = 0; e < 4; e++) {
				const W w = s[n][e] == least ? (W)0 : exp_of((s[n][e] - top[e / 2]) * p.factor);
				part[e / 2] += w;
				s[n][e] = keeps >> (4 * n + e) & 1 ? w * p.keep : 0;
			}
		for (int i = 0; i < 2; i++) sum[i] = sum[i] * scale[i] + between(plus, part[i]);
#pragma unroll
		for (int o = 0; o < O; o++)
			for (int e = 0; e < 4; e++) y[o][e] *= scale[e / 2];
		A::template apply<N, O>(y, s, memory + TILE + SIDE);
	}
	const i64 rows = (i64)(gridDim.x / tiles) * p.queries;
	any = between([](u32 a, u32 b) { return a | b; }, any);
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int t = t0 + own_row() + 8 * i;
		if (t >= p.queries) continue;
		const bool none = !(any & (i ? 0xccccu : 0x3333u));
		const W inverse = none ? (W)0 : 1 / sum[i]; // of infinities that is infinite or a NaN
		if (statistics && blockIdx.y == 0 && threadIdx.x % 4 == 0) {
			const i64 row = p.row(batch, head, t);
			statistics[row] = none ? (W)0 : top[i];
			statistics[rows + row] = inverse;
		}
		const i64 at = p.result(batch, head, t);
		if (!out) continue;
		if (sizeof(T) < sizeof(W) && narrow) store_row((T *)out + at, y, 2 * i, p.value_features, none ? (W)1 : inverse);
		else store_row((W *)out + at, y, 2 * i, p.value_features, none ? (W)1 : inverse);
	}
}

// Grad is what the gradients are made of, besides the operands.
template <class T> struct Grad {
	typedef typename Wide<T>::type W;
	const T *y, *g;
	const W *tops, *inverses; // of each row: the largest product, and 1 over the sum
	W *means;                 // y·g
};

// through_weight makes of a score and the gradient w by its weight that weight,
// with dropout, and the gradient by the score, but for the factor.
template <class T, class W> INLINE void through_weight(const Attention<T> &p, W &score, W &w, W top, W inverse, W mean, bool seen, bool kept) {
	const W below = score * p.sign - top;
	const W weight = seen ? exp_of((below > 0 ? (W)0 : below) * p.factor) * inverse : 0;
	w = seen ? weight * ((kept ? w * p.keep : 0) - mean) : 0;
	score = kept ? weight * p.keep : 0;
}

template <class T, class A> INLINE void attention_query_grad(const Attention<T> &p, const Grad<T> &grad, T *out) {
	typedef typename Wide<T>::type W;
	enum { N = ATTENTION_COLUMNS / 8, O = Features<T>::count / 8, TILE = ATTENTION_ROWS * Features<T>::bytes, SIDE = 8 * N * Features<T>::bytes };
	alignas(128) __shared__ u8 memory[2 * TILE + 2 * SIDE];
	const int tiles = (p.queries + ATTENTION_ROWS - 1) / ATTENTION_ROWS, t0 = (int)(blockIdx.x % tiles) * ATTENTION_ROWS;
	const i64 head = blockIdx.x / tiles % p.heads, batch = blockIdx.x / tiles / p.heads, group = head / (p.heads / p.key_heads);
	const Operand<T> query{p.q + p.query(batch, head, 0), p.heads * p.features, p.queries, p.features, p.wide_q};
	const Operand<T> key{p.k + p.key(batch, group, 0), p.key_heads * p.features, p.keys, p.features, p.wide_q};
	const Operand<T> value{p.v + p.value(batch, group, 0), p.key_heads * p.value_features, p.keys, p.value_features, p.wide_v};
	const Operand<T> by{grad.g + p.result(batch, head, 0), p.heads * p.value_features, p.queries, p.value_features, p.wide_v};
	const Operand<T> result{grad.y + p.result(batch, head, 0), p.heads * p.value_features, p.queries, p.value_features, p.wide_v};
	W top[2] = {0, 0}, inverse[2] = {0, 0}, mean[2] = {0, 0}, dq[O][4];
	// What weights get on average is computed as what each of them gets is, as the
	// diagonal of products: so both are the same number where the result is a value,
	// and a query with one weight of 1 has no gradient.
	for (int c = 0; c < ATTENTION_ROWS; c += 8 * N) {
		W w[N][4];
		__syncthreads();
		scores<T, A, N>(w, by, result, t0, t0 + c, memory + TILE, memory + 2 * TILE + SIDE, c > 0, false);
#pragma unroll
		for (int n = 0; n < N; n++)
			for (int e = 0; e < 4; e++)
				if (c + own_column() + 8 * n + e % 2 == own_row() + e / 2 * 8) mean[e / 2] = w[n][e];
	}
	for (int i = 0; i < 2; i++) {
		const int t = t0 + own_row() + 8 * i;
		mean[i] = between([](W a, W b) { return a + b; }, mean[i]); // three have 0
		if (t >= p.queries) continue;
		const i64 row = p.row(batch, head, t);
		top[i] = grad.tops[row];
		inverse[i] = grad.inverses[row];
		if (blockIdx.y == 0 && threadIdx.x % 4 == 0) grad.means[row] = mean[i];
	}
	clear(dq); // not before: registers
	const int first = p.first_key(t0) / (8 * N) * (8 * N), last = p.last_key(t0);
	for (int s0 = first; s0 < last; s0 += 8 * N) {
		W s[N][4], w[N][4];
		__syncthreads();
		scores<T, A, N>(w, by, value, t0, s0, memory + TILE, memory + 2 * TILE + SIDE, s0 > first, false);
		scores<T, A, N>(s, query, key, t0, s0, memory, memory + 2 * TILE, s0 > first, true);
		u32 see, keeps;
		p.template marks<false>(see, keeps, batch, head, t0 + own_row(), s0 + own_column());
#pragma unroll
		for (int n = 0; n < N; n++)
			for (int e = 0; e < 4; e++) through_weight(p, s[n][e], w[n][e], top[e / 2], inverse[e / 2], mean[e / 2], see >> (4 * n + e) & 1, keeps >> (4 * n + e) & 1);
		A::template apply<N, O>(dq, w, memory + 2 * TILE);
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int t = t0 + own_row() + 8 * i;
		if (t < p.queries) store_row(out + p.query(batch, head, t), dq, 2 * i, p.features, p.sign * p.factor);
	}
}

template <class T, class A> INLINE void attention_key_grad(const Attention<T> &p, const Grad<T> &grad, T *by_key, T *by_value) {
	typedef typename Wide<T>::type W;
	enum { N = ATTENTION_COLUMNS / 8, O = Features<T>::count / 8, TILE = ATTENTION_ROWS * Features<T>::bytes, SIDE = 8 * N * Features<T>::bytes };
	alignas(128) __shared__ u8 memory[2 * TILE + 2 * SIDE];
	const int tiles = (p.keys + ATTENTION_ROWS - 1) / ATTENTION_ROWS, s0 = (int)(blockIdx.x % tiles) * ATTENTION_ROWS, each = p.heads / p.key_heads;
	const i64 group = blockIdx.x / tiles % p.key_heads, batch = blockIdx.x / tiles / p.key_heads;
	const Operand<T> key{p.k + p.key(batch, group, 0), p.key_heads * p.features, p.keys, p.features, p.wide_q};
	const Operand<T> value{p.v + p.value(batch, group, 0), p.key_heads * p.value_features, p.keys, p.value_features, p.wide_v};
	W dk[O][4], dv[O][4];
	clear(dk);
	clear(dv);
	const int first = p.first_query(s0) / (8 * N) * (8 * N), last = p.last_query(s0);
	bool begun = false;
	for (i64 head = group * each; head < (group + 1) * each; head++) {
		const Operand<T> query{p.q + p.query(batch, head, 0), p.heads * p.features, p.queries, p.features, p.wide_q};
		const Operand<T> by{grad.g + p.result(batch, head, 0), p.heads * p.value_features, p.queries, p.value_features, p.wide_v};
		for (int t0 = first; t0 < last; t0 += 8 * N) {
			W s[N][4], w[N][4];
			__syncthreads();
			scores<T, A, N>(w, value, by, s0, t0, memory + TILE, memory + 2 * TILE + SIDE, begun, true);
			scores<T, A, N>(s, key, query, s0, t0, memory, memory + 2 * TILE, begun, true);
			begun = true;
			u32 see, keeps;
			p.template marks<true>(see, keeps, batch, head, t0 + own_column(), s0 + own_row());
			// A lane has the numbers of one of the 32 queries.
			const int own = t0 + (int)(threadIdx.x % 32);
			const i64 row = p.row(batch, head, own);
			const bool there = own < p.queries;
			const W tops = there ? grad.tops[row] : 0, inverses = there ? grad.inverses[row] : 0, means = there ? grad.means[row] : 0;
#pragma unroll
			for (int n = 0; n < N; n++)
				for (int e = 0; e < 2; e++) {
					const int bit = 4 * n + e, from = own_column() + 8 * n + e;
					const W top = __shfl_sync(0xffffffffu, tops, from), inverse = __shfl_sync(0xffffffffu, inverses, from), mean = __shfl_sync(0xffffffffu, means, from);
					through_weight(p, s[n][e], w[n][e], top, inverse, mean, see >> bit & 1, keeps >> bit & 1);
					through_weight(p, s[n][e + 2], w[n][e + 2], top, inverse, mean, see >> (bit + 2) & 1, keeps >> (bit + 2) & 1);
				}
			A::template apply<N, O>(dv, s, memory + 2 * TILE + SIDE);
			A::template apply<N, O>(dk, w, memory + 2 * TILE);
		}
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int s = s0 + own_row() + 8 * i;
		if (s >= p.keys) continue;
		store_row(by_key + p.key(batch, group, s), dk, 2 * i, p.features, p.sign * p.factor);
		store_row(by_value + p.value(batch, group, s), dv, 2 * i, p.value_features, (W)1);
	}
}

#define ATTENTIONS(T, S, A, NAME) \
	extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 3) attention_forward_##NAME##_##S(ATTENTION(T), void *out, i64 narrow, Wide<T>::type *statistics) { \
		attention_forward<T, A<T>>(MAKE_ATTENTION(T), out, narrow, statistics); \
	} \
	KERNEL(attention_forward_##NAME##_##S) \
	extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 3) attention_query_grad_##NAME##_##S(ATTENTION(T), const T *y, const T *g, const Wide<T>::type *tops, const Wide<T>::type *inverses, Wide<T>::type *means, T *out) { \
		attention_query_grad<T, A<T>>(MAKE_ATTENTION(T), Grad<T>{y, g, tops, inverses, means}, out); \
	} \
	KERNEL(attention_query_grad_##NAME##_##S) \
	extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2) attention_key_grad_##NAME##_##S(ATTENTION(T), const T *g, const Wide<T>::type *tops, const Wide<T>::type *inverses, Wide<T>::type *means, T *by_key, T *by_value) { \
		attention_key_grad<T, A<T>>(MAKE_ATTENTION(T), Grad<T>{nullptr, g, tops, inverses, means}, by_key, by_value); \
	} \
	KERNEL(attention_key_grad_##NAME##_##S)
#define SCALAR(T, S) ATTENTIONS(T, S, Scalar, plain)
#define WARPS(T, S) ATTENTIONS(T, S, Warps, tensor)

SCALAR(float, float32)
#if defined(EMU) || !defined(TENSOR_CORES)
SCALAR(f16, float16)
SCALAR(bf16, bfloat16)
#endif
#ifdef TENSOR_CORES
WARPS(f16, float16)
WARPS(bf16, bfloat16)
WARPS(float, float32)
#endif
