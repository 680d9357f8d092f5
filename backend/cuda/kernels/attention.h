// What the kernels of attention are made of. A block of 4 warps has 64 rows,
// 16 of each warp, and goes through tiles of columns: rows are queries and
// columns keys, or the other way round. A matrix of scores is in registers as
// mma has it: a lane has elements e of blocks n of 8 columns, of rows lane/4 and
// lane/4+8. Features are taken in chunks, which lie in shared memory by rows, in
// pieces of 16 bytes that are permuted: piece c of row r lies at c^(r%8).

enum { ATTENTION_ROWS = 64, ATTENTION_COLUMNS = 32, ATTENTION_THREADS = 128 };

// Features is how many features a chunk has.
template <class T> struct Features { enum { count = 64, bytes = count * (int)sizeof(T) }; };

template <class T> INLINE u32 spot(u32 row, u32 f) {
	const u32 size = sizeof(T);
	return row * Features<T>::bytes + (f * size / 16 ^ (row & 7)) * 16 + f * size % 16;
}

// fetch begins to copy R rows of a chunk, which are stride apart, into shared
// memory, 1<<wide bytes at a time. There are so many rows and features; beyond
// them are zeros.
template <class T, int R> INLINE void fetch(Shared tile, const T *base, int stride, int rows, int features, int wide) {
	const u32 size = sizeof(T), bytes = Features<T>::bytes;
#ifndef EMU
#pragma unroll 1
#endif
	for (u32 i = threadIdx.x; i < (R * bytes) >> wide; i += ATTENTION_THREADS) {
		const u32 row = (i << wide) / bytes, f = (i << wide) % bytes / size;
		const bool there = (int)row < rows && (int)f < features;
		const T *from = there ? base + (i64)row * stride + f : base;
		const Shared to = tile + spot<T>(row, f);
		if (wide == 4) copy_async<16>(to, from, there);
		else if (wide == 3) copy_async<8>(to, from, there);
		else if (wide == 2) copy_async<4>(to, from, there);
		else copy_two(to, from, there);
	}
}
INLINE void fetched() {
	copy_commit();
	copy_wait<0>();
	__syncthreads();
}

// Scalar is the arithmetic of every GPU and of all types. dots adds the products
// of a warp's rows of a with the rows of b to s; apply adds that of the matrix p
// with the rows of b to out.
template <class T> struct Scalar {
	typedef typename Wide<T>::type W;

	template <int M> static INLINE_MEMBER void dots(W (&s)[M][4], const u8 *a, const u8 *b) {
		const u32 lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#ifndef EMU
#pragma unroll 1
#endif
		for (u32 f = 0; f < Features<T>::count; f++) {
			const W x = get((const T *)(a + spot<T>(row, f)), 0), y = get((const T *)(a + spot<T>(row + 8, f)), 0);
#pragma unroll
			for (int n = 0; n < M; n++)
				for (u32 e = 0; e < 2; e++) {
					const W z = get((const T *)(b + spot<T>(n * 8 + lane % 4 * 2 + e, f)), 0);
					s[n][e] += x * z;
					s[n][2 + e] += y * z;
				}
		}
	}
	template <int M, int O> static INLINE_MEMBER void apply(W (&out)[O][4], const W (&p)[M][4], const u8 *b) {
		const u32 lane = threadIdx.x % 32;
#pragma unroll
		for (int n = 0; n < M; n++)
#ifndef EMU
#pragma unroll 1
#endif
			for (u32 j = 0; j < 8; j++) {
				const int from = (int)(lane / 4 * 4 + j / 2);
				const W x = __shfl_sync(0xffffffffu, j % 2 ? p[n][1] : p[n][0], from), y = __shfl_sync(0xffffffffu, j % 2 ? p[n][3] : p[n][2], from);
#pragma unroll
				for (int o = 0; o < O; o++)
					for (u32 e = 0; e < 2; e++) {
						const W z = get((const T *)(b + spot<T>(n * 8 + j, o * 8 + lane % 4 * 2 + e)), 0);
						out[o][e] += x * z;
						out[o][2 + e] += y * z;
					}
			}
	}
};

#ifdef TENSOR_CORES

INLINE u32 pair(f16, float x, float y) { return float_to_half(x) | (u32)float_to_half(y) << 16; }
INLINE u32 pair(bf16, float x, float y) { return float_to_bfloat(x) | (u32)float_to_bfloat(y) << 16; }

// Warps is the arithmetic of Tensor Cores; p is rounded to the operands' type.
template <class T> struct Warps {
	template <int M> static INLINE_MEMBER void dots(float (&s)[M][4], const u8 *a, const u8 *b) {
		const Shared at = shared_address((void *)a), bt = shared_address((void *)b);
		const u32 lane = threadIdx.x % 32, i = lane % 8, j = lane / 8, row = threadIdx.x / 32 * 16 + j % 2 * 8 + i;
#pragma unroll
		for (u32 f = 0; f < Features<T>::count; f += 16) {
			u32 x[4], y[4];
			ldmatrix<false>(x, at + spot<T>(row, f + j / 2 * 8));
#pragma unroll
			for (u32 n = 0; n < M; n += 2) {
				ldmatrix<false>(y, bt + spot<T>(n * 8 + j / 2 * 8 + i, f + j % 2 * 8));
				mma16(T(), s[n], x, y);
				mma16(T(), s[n + 1], x, y + 2);
			}
		}
	}
	template <int M, int O> static INLINE_MEMBER void apply(float (&out)[O][4], const float (&p)[M][4], const u8 *b) {
		const Shared bt = shared_address((void *)b);
		const u32 lane = threadIdx.x % 32, i = lane % 8, j = lane / 8;
#pragma unroll
		for (int n = 0; n < M; n += 2) {
			const u32 x[4] = {pair(T(), p[n][0], p[n][1]), pair(T(), p[n][2], p[n][3]), pair(T(), p[n + 1][0], p[n + 1][1]), pair(T(), p[n + 1][2], p[n + 1][3])};
#pragma unroll
			for (u32 o = 0; o < O; o += 2) {
				u32 y[4];
				ldmatrix<true>(y, bt + spot<T>(n * 8 + j % 2 * 8 + i, o * 8 + j / 2 * 8));
				mma16(T(), out[o], x, y);
				mma16(T(), out[o + 1], x, y + 2);
			}
		}
	}
};

// float is multiplied as TF32. The columns of p are terms in the order in which
// lanes have them.
template <> struct Warps<float> {
	template <int M> static INLINE_MEMBER void dots(float (&s)[M][4], const u8 *a, const u8 *b) {
		const Shared at = shared_address((void *)a), bt = shared_address((void *)b);
		const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, row = threadIdx.x / 32 * 16 + g;
#ifndef EMU
#pragma unroll 2
#endif
		for (u32 f = 0; f < Features<float>::count; f += 8) {
			u32 x[4], y[2];
			for (u32 e = 0; e < 4; e++) x[e] = tf32(load_shared(at + spot<float>(row + e % 2 * 8, f + t + e / 2 * 4)));
#pragma unroll
			for (u32 n = 0; n < M; n++) {
				for (u32 e = 0; e < 2; e++) y[e] = tf32(load_shared(bt + spot<float>(n * 8 + g, f + t + e * 4)));
				mma8(s[n], x, y);
			}
		}
	}
	template <int M, int O> static INLINE_MEMBER void apply(float (&out)[O][4], const float (&p)[M][4], const u8 *b) {
		const Shared bt = shared_address((void *)b);
		const u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
		for (u32 n = 0; n < M; n++) {
			const u32 x[4] = {tf32(bits(p[n][0])), tf32(bits(p[n][2])), tf32(bits(p[n][1])), tf32(bits(p[n][3]))};
#pragma unroll
			for (u32 o = 0; o < O; o++) {
				u32 y[2];
				for (u32 e = 0; e < 2; e++) y[e] = tf32(load_shared(bt + spot<float>(n * 8 + t * 2 + e, o * 8 + g)));
				mma8(out[o], x, y);
			}
		}
	}
};

#endif

// Attention is the parameters of all kernels: op.AttentionSizes has the names.
template <class T> struct Attention {
	typedef typename Wide<T>::type W;
	const T *q, *k, *v;
	const u8 *mask; // with strides m0…m3
	i64 m0, m1, m2, m3;
	const u64 *state;
	i64 stream;
	bool halves; // numbers have 16 bits
	float bound; // of those that keep a weight
	W keep, sign, factor; // scores are products times sign and factor
	int causal, window;
	int queries, keys, heads, key_heads, features, value_features;
	int wide_q, wide_v;

	// places of the first features
	INLINE_MEMBER i64 query(i64 batch, i64 head, i64 t) const { return ((batch * queries + t) * heads + head) * features; }
	INLINE_MEMBER i64 result(i64 batch, i64 head, i64 t) const { return ((batch * queries + t) * heads + head) * value_features; }
	INLINE_MEMBER i64 key(i64 batch, i64 head, i64 s) const { return ((batch * keys + s) * key_heads + head) * features; }
	INLINE_MEMBER i64 value(i64 batch, i64 head, i64 s) const { return ((batch * keys + s) * key_heads + head) * value_features; }
	INLINE_MEMBER i64 row(i64 batch, i64 head, i64 t) const { return (batch * heads + head) * queries + t; }

	INLINE_MEMBER bool seen(i64 batch, i64 head, int t, int s) const {
		if (t >= queries || s >= keys || (causal && s > t) || (window && (t - s >= window || s - t >= window))) return false;
		return !mask || mask[batch * m0 + head * m1 + t * m2 + s * m3];
	}
	// kept reports whether a weight is not dropped.
	INLINE_MEMBER bool kept(i64 row, int s) const {
		const u64 number = (u64)(row * keys + s), i = halves ? number / 2 : number;
		u32 w[4];
		random_block(Random{state[0], state[1], (u64)stream}, (i64)(i / 4), w);
		const u32 word = i & 2 ? i & 1 ? w[3] : w[2] : i & 1 ? w[1] : w[0];
		return uniform(halves ? upper_half(word, (u32)number) : word) >= bound;
	}
	// drawn has a bit for each of a lane's scores of a tile, in bit 4·n+e as marks has them:
	// whether its number keeps it. 8 neighbouring keys of a query have one block of numbers:
	// lanes that have them each compute some of the blocks, and tell the others. T0 is the
	// lane's first query, S0 the first key of its block of 8.
	template <bool ROWS> INLINE_MEMBER u32 drawn(i64 batch, i64 head, int t0, int s0) const {
		const u32 lane = threadIdx.x % 32, own = ROWS ? lane / 4 : lane % 4; // among those that share blocks
		const u32 word = ROWS ? own / 2 : own, all = ROWS ? 8 : 4; // lanes
		const i64 first = row(batch, head, t0) * keys + s0;
		u32 drawn = 0;
#ifndef EMU
#pragma unroll 1
#endif
		for (u32 j = 0; j < 2; j++) { // each lane computes two of the blocks
			u32 w[4];
			{
				// Block i is of element 4·n+e: ROWS: i; else i%2 says which row, i/2 which n.
				const u32 i = 2 * own + j;
				const int t = ROWS ? (int)(i / 4 * 8 + i % 2) : (int)(i % 2 * 8), s = ROWS ? (int)(i % 4 / 2 * 8) : (int)(i / 2 * 8);
				random_block(Random{state[0], state[1], (u64)stream}, (first + (i64)t * keys + s) / 8, w);
			}
#ifndef EMU
#pragma unroll 1
#endif
			for (u32 o = 0; o < all; o++) {
				const int source = (int)(ROWS ? o * 4 + lane % 4 : (lane & ~3u) + o);
				const u32 i = 2 * o + j;
				const u32 a = __shfl_sync(0xffffffffu, w[0], source), b = __shfl_sync(0xffffffffu, w[1], source);
				const u32 c = __shfl_sync(0xffffffffu, w[2], source), d = __shfl_sync(0xffffffffu, w[3], source);
				const u32 x = word & 2 ? word & 1 ? d : c : word & 1 ? b : a;
				if (ROWS) {
					if (uniform(upper_half(x, own)) >= bound) drawn |= 1u << i;
				} else {
					if (uniform(upper_half(x, 0)) >= bound) drawn |= 1u << (i / 2 * 4 + i % 2 * 2);
					if (uniform(upper_half(x, 1)) >= bound) drawn |= 2u << (i / 2 * 4 + i % 2 * 2);
				}
			}
		}
		return drawn;
	}
	// marks has a bit for each of a lane's scores of a tile, element e of block n
	// in bit 4·n+e: whether it is seen, and, of those seen, whether it is kept. T0
	// and S0 are the lane's first query and key; keys go along rows if ROWS.
	template <bool ROWS> INLINE_MEMBER void marks(u32 &see, u32 &keeps, i64 batch, i64 head, int t0, int s0) const {
		see = keeps = 0xffff;
		const int down = 8, across = ATTENTION_COLUMNS - 7; // the furthest
		const int t1 = t0 + (ROWS ? across : down), s1 = s0 + (ROWS ? down : across);
		if (!mask && !state && t1 < queries && s1 < keys && (!causal || s1 <= t0) && (!window || (t1 - s0 < window && s1 - t0 < window))) return;
		see = keeps = 0;
		const int own = (int)(threadIdx.x % 32 / (ROWS ? 4 : 1) % (ROWS ? 8 : 4)) * (ROWS ? 1 : 2); // of the keys of a block
#ifdef TENSOR_CORES
		const bool together = state && halves && keys % 8 == 0 && (s0 - own) % 8 == 0;
#else
		const bool together = false; // registers are few
#endif
		const u32 kept_together = together ? drawn<ROWS>(batch, head, t0, s0 - own) : 0;
#ifndef EMU
#pragma unroll 1
#endif
		for (int i = 0; i < ATTENTION_COLUMNS / 2; i++) {
			const int row = i % 4 / 2 * 8, column = i / 4 * 8 + i % 2, t = t0 + (ROWS ? column : row), s = s0 + (ROWS ? row : column);
			if (!seen(batch, head, t, s)) continue;
			see |= 1u << i;
			if (!state || (together ? kept_together >> i & 1 : kept(this->row(batch, head, t), s))) keeps |= 1u << i;
		}
	}
	// Keys that some query from t to t+63 sees, and queries that see some key from
	// s to s+63, lie between these.
	INLINE_MEMBER int first_key(int t) const { return window && t >= window ? t - window + 1 : 0; }
	INLINE_MEMBER int last_key(int t) const {
		t += ATTENTION_ROWS;
		int n = causal && t < keys ? t : keys;
		if (window && t - 1 + window < n) n = t - 1 + window;
		return n;
	}
	INLINE_MEMBER int first_query(int s) const { return causal ? s : window && s >= window ? s - window + 1 : 0; }
	INLINE_MEMBER int last_query(int s) const {
		s += ATTENTION_ROWS;
		return window && s - 1 + window < queries ? s - 1 + window : queries;
	}
};
#define ATTENTION(T) \
	const T *q, const T *k, const T *v, const u8 *mask, i64 m0, i64 m1, i64 m2, i64 m3, const u64 *state, i64 stream, i64 bits, double bound, double keep, double sign, double factor, \
		i64 causal, i64 window, i64 queries, i64 keys, i64 heads, i64 key_heads, i64 features, i64 value_features, i64 wide_q, i64 wide_v
#define MAKE_ATTENTION(T) \
	Attention<T>{q, k, v, mask, m0, m1, m2, m3, state, stream, bits == 16, (float)bound, (Wide<T>::type)keep, (Wide<T>::type)sign, (Wide<T>::type)factor, (int)causal, (int)window, \
		(int)queries, (int)keys, (int)heads, (int)key_heads, (int)features, (int)value_features, (int)wide_q, (int)wide_v}
