// Attention and its gradient. Scores are never in memory: each kernel computes
// them again, tile by tile. A block has a chunk (grid y) of the features of its
// result, and all of those of the scores.

// chunks is how many chunks features are cut into; order numbers them such that
// the one of this block comes last and stays in shared memory.
template <class T> INLINE int chunks(int features) { return features <= Features<T>::count ? 1 : (features + Features<T>::count - 1) / Features<T>::count; }
INLINE int order(int i, int n) { return (int)((blockIdx.y + 1 + i) % n); }

template <class W, int M> INLINE void clear(W (&s)[M][4]) {
	for (int n = 0; n < M; n++)
		for (int e = 0; e < 4; e++) s[n][e] = 0;
}

// The first row and column of a lane's elements: element e of block n is e/2·8
// rows and n·8+e%2 columns further.
INLINE int own_row() { return (int)(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4); }
INLINE int own_column() { return (int)(threadIdx.x % 4 * 2); }

INLINE float largest(float) { return float_of(0x7f7fffffu); }
INLINE double largest(double) { return double_of(0x7fefffffffffffffull); }

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
// and b are where tiles of them lie; fixed says that the rows of left do.
template <class T, class A, int M> INLINE void scores(typename Wide<T>::type (&s)[M][4], const Operand<T> &left, const Operand<T> &right, int row, int column, u8 *a, u8 *b, bool fixed) {
	const int n = chunks<T>(left.features);
	clear(s);
	for (int i = 0; i < n; i++) {
		if (i > 0) __syncthreads();
		if (n > 1 || !fixed) left.template load<ATTENTION_ROWS>(a, row, order(i, n));
		right.template load<8 * M>(b, column, order(i, n));
		fetched();
		A::template dots<M>(s, a, b);
	}
}

template <class T, class A> INLINE void attention_forward(const Attention<T> &p, typename Wide<T>::type *out) {
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
	clear(y);
	const int first = p.first_key(t0) / (8 * N) * (8 * N), last = p.last_key(t0);
	for (int s0 = first; s0 < last; s0 += 8 * N) {
		W s[N][4], next[2] = {top[0], top[1]}, part[2] = {0, 0}, scale[2];
		__syncthreads();
		value.template load<8 * N>(memory + TILE + SIDE, s0, blockIdx.y);
		scores<T, A, N>(s, query, key, t0, s0, memory, memory + TILE, s0 > first);
		u32 see, keeps;
		p.template marks<false>(see, keeps, batch, head, t0 + own_row(), s0 + own_column());
#pragma unroll
		for (int n = 0; n < N; n++)
			for (int e = 0; e < 4; e++) {
				s[n][e] = see >> (4 * n + e) & 1 ? s[n][e] * p.factor : least;
				next[e / 2] = larger(next[e / 2], s[n][e]);
			}
		for (int i = 0; i < 2; i++) {
			next[i] = between(larger, next[i]);
			scale[i] = next[i] == least ? (W)1 : exp_of(top[i] - next[i]);
			top[i] = next[i];
		}
#pragma unroll
		for (int n = 0; n < N; n++)
			for (int e = 0; e < 4; e++) {
				const W w = s[n][e] == least ? (W)0 : exp_of(s[n][e] - top[e / 2]);
				part[e / 2] += w;
				s[n][e] = keeps >> (4 * n + e) & 1 ? w * p.keep : 0;
			}
		for (int i = 0; i < 2; i++) sum[i] = sum[i] * scale[i] + between(plus, part[i]);
#pragma unroll
		for (int o = 0; o < O; o++)
			for (int e = 0; e < 4; e++) y[o][e] *= scale[e / 2];
		A::template apply<N, O>(y, s, memory + TILE + SIDE);
	}
	const i64 results = (i64)(gridDim.x / tiles) * p.queries * p.value_features;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int t = t0 + own_row() + 8 * i;
		if (t >= p.queries) continue;
		const bool none = sum[i] == 0;
		if (blockIdx.y == 0 && threadIdx.x % 4 == 0) out[results + p.row(batch, head, t)] = none ? largest(W()) : top[i] + log_of(sum[i]);
		store_row(out + p.result(batch, head, t), y, 2 * i, p.value_features, none ? (W)1 : 1 / sum[i]);
	}
}

// Grad is what the gradients are made of, besides the operands.
template <class T> struct Grad {
	typedef typename Wide<T>::type W;
	const T *y, *g;
	const W *logs;
	W *means; // of each row, y·g
};

// through_weight makes of a score and the gradient w by its weight that weight,
// with dropout, and the gradient by the score, but for the factor.
template <class T, class W> INLINE void through_weight(const Attention<T> &p, W &score, W &w, W log, W mean, bool seen, bool kept) {
	const W weight = seen ? exp_of(score * p.factor - log) : 0;
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
	W log[2] = {0, 0}, mean[2] = {0, 0}, dq[O][4];
	clear(dq);
	for (int i = 0; i < 2; i++) {
		const int t = t0 + own_row() + 8 * i;
		if (t < p.queries) {
			log[i] = grad.logs[p.row(batch, head, t)];
			for (int f = threadIdx.x % 4; f < p.value_features; f += 4) mean[i] += get(grad.y, p.result(batch, head, t) + f) * get(grad.g, p.result(batch, head, t) + f);
		}
		mean[i] = between([](W a, W b) { return a + b; }, mean[i]);
		if (t < p.queries && blockIdx.y == 0 && threadIdx.x % 4 == 0) grad.means[p.row(batch, head, t)] = mean[i];
	}
	const int first = p.first_key(t0) / (8 * N) * (8 * N), last = p.last_key(t0);
	for (int s0 = first; s0 < last; s0 += 8 * N) {
		W s[N][4], w[N][4];
		__syncthreads();
		scores<T, A, N>(w, by, value, t0, s0, memory + TILE, memory + 2 * TILE + SIDE, s0 > first);
		scores<T, A, N>(s, query, key, t0, s0, memory, memory + 2 * TILE, s0 > first);
		u32 see, keeps;
		p.template marks<false>(see, keeps, batch, head, t0 + own_row(), s0 + own_column());
#pragma unroll
		for (int n = 0; n < N; n++)
			for (int e = 0; e < 4; e++) through_weight(p, s[n][e], w[n][e], log[e / 2], mean[e / 2], see >> (4 * n + e) & 1, keeps >> (4 * n + e) & 1);
		A::template apply<N, O>(dq, w, memory + 2 * TILE);
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int t = t0 + own_row() + 8 * i;
		if (t < p.queries) store_row(out + p.query(batch, head, t), dq, 2 * i, p.features, p.factor);
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
			scores<T, A, N>(w, value, by, s0, t0, memory + TILE, memory + 2 * TILE + SIDE, begun);
			scores<T, A, N>(s, key, query, s0, t0, memory, memory + 2 * TILE, begun);
			begun = true;
			u32 see, keeps;
			p.template marks<true>(see, keeps, batch, head, t0 + own_column(), s0 + own_row());
			// A lane has the logarithm and the mean of one of the 32 queries.
			const int own = t0 + (int)(threadIdx.x % 32);
			const W logs = own < p.queries ? grad.logs[p.row(batch, head, own)] : 0, means = own < p.queries ? grad.means[p.row(batch, head, own)] : 0;
#pragma unroll
			for (int n = 0; n < N; n++)
				for (int e = 0; e < 2; e++) {
					const int bit = 4 * n + e, from = own_column() + 8 * n + e;
					const W log = __shfl_sync(0xffffffffu, logs, from), mean = __shfl_sync(0xffffffffu, means, from);
					through_weight(p, s[n][e], w[n][e], log, mean, see >> bit & 1, keeps >> bit & 1);
					through_weight(p, s[n][e + 2], w[n][e + 2], log, mean, see >> (bit + 2) & 1, keeps >> (bit + 2) & 1);
				}
			A::template apply<N, O>(dv, s, memory + 2 * TILE + SIDE);
			A::template apply<N, O>(dk, w, memory + 2 * TILE);
		}
	}
#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int s = s0 + own_row() + 8 * i;
		if (s >= p.keys) continue;
		store_row(by_key + p.key(batch, group, s), dk, 2 * i, p.features, p.factor);
		store_row(by_value + p.value(batch, group, s), dv, 2 * i, p.value_features, (W)1);
	}
}

#define ATTENTIONS(T, S, A, NAME) \
	extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 3) attention_forward_##NAME##_##S(ATTENTION(T), Wide<T>::type *out) { \
		attention_forward<T, A<T>>(MAKE_ATTENTION(T), out); \
	} \
	KERNEL(attention_forward_##NAME##_##S) \
	extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 3) attention_query_grad_##NAME##_##S(ATTENTION(T), const T *y, const T *g, const Wide<T>::type *logs, Wide<T>::type *means, T *out) { \
		attention_query_grad<T, A<T>>(MAKE_ATTENTION(T), Grad<T>{y, g, logs, means}, out); \
	} \
	KERNEL(attention_query_grad_##NAME##_##S) \
	extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2) attention_key_grad_##NAME##_##S(ATTENTION(T), const T *g, const Wide<T>::type *logs, Wide<T>::type *means, T *by_key, T *by_value) { \
		attention_key_grad<T, A<T>>(MAKE_ATTENTION(T), Grad<T>{nullptr, g, logs, means}, by_key, by_value); \
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
