// Products of matrices by tiles in shared memory: 256 threads compute a tile of
// the result. Where an element of an operand lies is up to a source, so that
// convolutions are products, too, of matrices that exist nowhere.
//
// Three tiles of each operand are under way or in use at once, each 64 bytes
// deep. A tile lies as its source does in memory, by rows (along k) or by
// columns, in chunks of 16 bytes that are permuted such that the threads of a
// warp read from all banks: chunk c of row r lies at c^(r/2%4), of column k of
// 16 bits at c^(k%8), of 32 bits at c^(k%4*2).

enum { STAGES = 3, DEPTH_BYTES = 64, THREADS = 256 };

// offset is where an element lies in a tile of R rows.
template <class T, int R, bool ROWS> INLINE u32 offset(u32 r, u32 k) {
	const u32 size = sizeof(T);
	if (ROWS) return r * DEPTH_BYTES + ((k * size / 16 ^ (r >> 1 & 3)) * 16) + k * size % 16;
	const u32 mix = size == 2 ? k & 7 : size == 4 ? (k & 3) * 2 : 0;
	return k * R * size + ((r * size / 16 ^ mix) * 16) + r * size % 16;
}

// load copies a tile from row r0 and column k0 on, 1<<wide bytes at a time,
// which lie together in the source.
template <class T, int R, bool ROWS, class Source> INLINE void load(Shared tile, const T *base, const Source &s, u32 r0, u32 k0, i64 wide) {
	const u32 size = sizeof(T), depth = DEPTH_BYTES / size, inner = (ROWS ? depth : R) * size;
#ifndef EMU
#pragma unroll 1
#endif
	for (u32 i = threadIdx.x; i < (R * DEPTH_BYTES) >> wide; i += THREADS) {
		const u32 o = (i << wide) / inner, e = (i << wide) % inner / size;
		const i64 at = ROWS ? s.at(r0 + o, k0 + e) : s.at(k0 + o, r0 + e);
		const Shared to = tile + (ROWS ? offset<T, R, ROWS>(o, e) : offset<T, R, ROWS>(e, o));
		const T *from = at < 0 ? base : base + at;
		if (wide == 4) copy_async<16>(to, from, at >= 0);
		else if (wide == 3) copy_async<8>(to, from, at >= 0);
		else if (wide == 2) copy_async<4>(to, from, at >= 0);
		else copy_two(to, from, at >= 0);
	}
}

// Result is where a product goes: element (row, column) to
// first + row·stride + column, as one of the types. What follows it is rounded
// as if it were computed apart: a bias, whose element of column 0 is
// bias_first, then an activation.
struct Result {
	void *out;
	i64 type, first, stride;
	u32 rows, columns;
	const void *bias;
	i64 bias_first, relu;
};

INLINE float rounded(i64 type, float x) { return type == FLOAT16 ? half_to_float(float_to_half(x)) : type == BFLOAT16 ? bfloat_to_float(float_to_bfloat(x)) : x; }
INLINE double rounded(i64, double x) { return x; }
template <class W> INLINE W float_at(const void *p, i64 type, i64 i, W) {
	if (type == FLOAT16) return (W)half_to_float(((const u16 *)p)[i]);
	if (type == BFLOAT16) return (W)bfloat_to_float(((const u16 *)p)[i]);
	return type == FLOAT32 ? (W)((const float *)p)[i] : (W)((const double *)p)[i];
}
template <class W> INLINE void put_float(void *p, i64 type, i64 i, W v) {
	if (type == FLOAT16) ((u16 *)p)[i] = float_to_half((float)v);
	else if (type == BFLOAT16) ((u16 *)p)[i] = float_to_bfloat((float)v);
	else if (type == FLOAT32) ((float *)p)[i] = (float)v;
	else ((double *)p)[i] = (double)v;
}

template <class W> INLINE void finish(const Result &r, u32 row, u32 column, W v) {
	if (row >= r.rows || column >= r.columns) return;
	if (r.bias) v = rounded(r.type, v) + float_at(r.bias, r.type, r.bias_first + column, W());
	if (r.relu && v < 0) v = 0;
	put_float(r.out, r.type, r.first + row * r.stride + column, v);
}

// Plain is the arithmetic of every GPU: tiles of 64 by 64, and 4 by 4 sums of
// each thread, 16 rows and columns apart.
template <class T> struct Plain {
	enum { R = 64 };
	typedef typename Wide<T>::type W;
	W sum[4][4];

	INLINE_MEMBER void clear() {
		for (int i = 0; i < 4; i++)
			for (int j = 0; j < 4; j++) sum[i][j] = 0;
	}
	template <bool AROWS, bool BROWS> INLINE_MEMBER void multiply(const u8 *a, const u8 *b, Shared, Shared) {
		const u32 t = threadIdx.x;
#ifndef EMU
#pragma unroll 2
#endif
		for (u32 k = 0; k < DEPTH_BYTES / sizeof(T); k++) {
			W x[4], y[4];
			for (u32 i = 0; i < 4; i++) x[i] = get((const T *)(a + offset<T, R, AROWS>(t / 16 + 16 * i, k)), 0);
			for (u32 i = 0; i < 4; i++) y[i] = get((const T *)(b + offset<T, R, BROWS>(t % 16 + 16 * i, k)), 0);
			for (int i = 0; i < 4; i++)
				for (int j = 0; j < 4; j++) sum[i][j] += x[i] * y[j];
		}
	}
	// store goes through shared memory, which can be indexed, for there to be one
	// place that finishes an element.
	INLINE_MEMBER void store(const Result &r, u32 row, u32 column, u8 *memory) {
		const u32 t = threadIdx.x;
		W *own = (W *)memory + t;
		for (int i = 0; i < 4; i++)
			for (int j = 0; j < 4; j++) own[(i * 4 + j) * THREADS] = sum[i][j];
#ifndef EMU
#pragma unroll 1
#endif
		for (u32 e = 0; e < 16; e++) finish(r, row + t / 16 + e / 4 * 16, column + t % 16 + e % 4 * 16, own[e * THREADS]);
	}
	enum { STORE_BYTES = 16 * THREADS * (int)sizeof(W) };
};

#ifdef TENSOR_CORES

// products multiplies 64 rows of A, from row a0 on, with 32 columns of B, from
// b0 on, over 32 bytes along k. A warp does it together.
template <bool AROWS, bool BROWS, class T> INLINE void products(T, float sum[4][4][4], Shared a, Shared b, u32 a0, u32 b0, u32 k, u32 lane) {
	u32 x[4][4], y[2][4];
	const u32 i = lane % 8, j = lane / 8;
	for (u32 f = 0; f < 4; f++)
		ldmatrix<!AROWS>(x[f], a + (AROWS ? offset<T, 128, AROWS>(a0 + f * 16 + j % 2 * 8 + i, k + j / 2 * 8) : offset<T, 128, AROWS>(a0 + f * 16 + j % 2 * 8, k + j / 2 * 8 + i)));
	for (u32 f = 0; f < 2; f++)
		ldmatrix<!BROWS>(y[f], b + (BROWS ? offset<T, 128, BROWS>(b0 + f * 16 + j / 2 * 8 + i, k + j % 2 * 8) : offset<T, 128, BROWS>(b0 + f * 16 + j / 2 * 8, k + j % 2 * 8 + i)));
	for (int m = 0; m < 4; m++)
		for (int n = 0; n < 4; n++) mma16(T(), sum[m][n], x[m], y[n / 2] + n % 2 * 2);
}
template <bool AROWS, bool BROWS> INLINE void products(float, float sum[4][4][4], Shared a, Shared b, u32 a0, u32 b0, u32 k, u32 lane) {
	u32 x[4][4], y[4][2];
	const u32 g = lane / 4, t = lane % 4;
	for (u32 f = 0; f < 4; f++)
		for (u32 e = 0; e < 4; e++) x[f][e] = tf32(load_shared(a + offset<float, 128, AROWS>(a0 + f * 16 + g + e % 2 * 8, k + t + e / 2 * 4)));
	for (u32 f = 0; f < 4; f++)
		for (u32 e = 0; e < 2; e++) y[f][e] = tf32(load_shared(b + offset<float, 128, BROWS>(b0 + f * 8 + g, k + t + e * 4)));
	for (int m = 0; m < 4; m++)
		for (int n = 0; n < 4; n++) mma8(sum[m][n], x[m], y[n]);
}

// Tensor is the arithmetic of Tensor Cores: tiles of 128 by 128, of which each
// of 8 warps computes 64 by 32. float is multiplied as TF32.
template <class T> struct Tensor {
	enum { R = 128 };
	float sum[4][4][4];

	INLINE_MEMBER void clear() {
		for (int i = 0; i < 4; i++)
			for (int j = 0; j < 4; j++)
				for (int e = 0; e < 4; e++) sum[i][j][e] = 0;
	}
	template <bool AROWS, bool BROWS> INLINE_MEMBER void multiply(const u8 *, const u8 *, Shared a, Shared b) {
		const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, step = 32 / sizeof(T);
		for (u32 k = 0; k < 2; k++) products<AROWS, BROWS>(T(), sum, a, b, warp / 4 * 64, warp % 4 * 32, k * step, lane);
	}
	// store goes through shared memory, 32 rows of a warp at a time, for
	// neighbouring lanes to write neighbouring elements.
	INLINE_MEMBER void store(const Result &r, u32 row, u32 column, u8 *memory) {
		const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
		float *own = (float *)memory + warp * 32 * PITCH;
		for (u32 half = 0; half < 2; half++) {
			for (u32 i = 0; i < 2; i++)
				for (u32 j = 0; j < 4; j++)
					for (u32 e = 0; e < 4; e++) own[(i * 16 + lane / 4 + e / 2 * 8) * PITCH + j * 8 + lane % 4 * 2 + e % 2] = sum[half * 2 + i][j][e];
			__syncwarp();
#ifndef EMU
#pragma unroll 1
#endif
			for (u32 k = 0; k < 32; k++) finish(r, row + warp / 4 * 64 + half * 32 + k, column + warp % 4 * 32 + lane, own[k * PITCH + lane]);
			__syncwarp();
		}
	}
	enum { PITCH = 33, STORE_BYTES = 8 * 32 * PITCH * 4 };
};

#endif

// Range is the part of a product that a block computes: the tile from a row
// and a column on, of the terms k0 to k1.
struct Range { u32 row, column, k0, k1; };

// tile_of numbers tiles such that those that run at a time share operands: 8
// tiles of rows with one of columns after the other.
INLINE void tile_of(Range &p, u32 i, u32 rows, u32 columns, u32 size) {
	const u32 down = (rows + size - 1) / size, across = (columns + size - 1) / size, group = 8 * across;
	const u32 first = i / group * 8, height = down - first < 8 ? down - first : 8;
	p.row = (first + i % group % height) * size;
	p.column = i % group / height * size;
}

// product computes a tile. AROWS and BROWS say that the sources have elements
// along k next to each other.
template <class Arithmetic, bool AROWS, bool BROWS, class T, class A, class B> INLINE void product(const T *a, const A &sa, i64 wide_a, const T *b, const B &sb, i64 wide_b, const Range &p, const Result &r) {
	enum { R = Arithmetic::R, TILE_BYTES = R * DEPTH_BYTES, DEPTH = DEPTH_BYTES / (int)sizeof(T) };
	alignas(128) __shared__ u8 memory[2 * STAGES * TILE_BYTES < Arithmetic::STORE_BYTES ? Arithmetic::STORE_BYTES : 2 * STAGES * TILE_BYTES];
	const Shared tiles = shared_address(memory);
	Arithmetic sums;
	sums.clear();
	const int steps = (int)((p.k1 - p.k0 + DEPTH - 1) / DEPTH);
	for (int step = 1 - STAGES; step < steps; step++) {
		if (step >= 0) {
			copy_wait<STAGES - 2>();
			__syncthreads();
		}
		const int next = step + STAGES - 1;
		if (next < steps) {
			const u32 stage = (u32)next % STAGES * 2 * TILE_BYTES, k = p.k0 + next * DEPTH;
			load<T, R, AROWS>(tiles + stage, a, sa, p.row, k, wide_a);
			load<T, R, BROWS>(tiles + stage + TILE_BYTES, b, sb, p.column, k, wide_b);
		}
		copy_commit();
		if (step >= 0) {
			const u32 stage = (u32)step % STAGES * 2 * TILE_BYTES;
			sums.template multiply<AROWS, BROWS>(memory + stage, memory + stage + TILE_BYTES, tiles + stage, tiles + stage + TILE_BYTES);
		}
	}
	copy_wait<0>();
	__syncthreads();
	sums.store(r, p.row, p.column, memory);
	__syncthreads();
}
