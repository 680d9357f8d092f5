// Operations that move elements: by their size, or by rows of bytes.

// Digits is a box of up to 8 sizes, the last one fastest, with strides and divisors,
// of which the last rank are in use; outer is the stride of the first of them.
#define DIGITS i64 rank, i64 outer, i64 n1, i64 n2, i64 n3, i64 n4, i64 n5, i64 n6, i64 n7, i64 s1, i64 s2, i64 s3, i64 s4, i64 s5, i64 s6, i64 s7, i64 f1, i64 f2, i64 f3, i64 f4, i64 f5, i64 f6, i64 f7
#define DIGIT(k) if (k > 8 - rank) at += (i64)digit(q, divisor(n##k, f##k)) * s##k;
#define LONG_DIGIT(k) if (k > 8 - rank) at += p % n##k * s##k, p /= n##k;
// PLACE is where element i of n lies.
#define PLACE(i) \
	i64 at = offset; \
	if (n < 1ll << 31) { \
		u32 q = (u32)(i); \
		DIGIT(7) DIGIT(6) DIGIT(5) DIGIT(4) DIGIT(3) DIGIT(2) DIGIT(1) at += q * outer; \
	} else { \
		i64 p = (i); \
		LONG_DIGIT(7) LONG_DIGIT(6) LONG_DIGIT(5) LONG_DIGIT(4) LONG_DIGIT(3) LONG_DIGIT(2) LONG_DIGIT(1) at += p * outer; \
	}

// transpose makes matrices [rows columns] of ones whose columns lie ld apart, by tiles
// in shared memory: 32 by 32 elements of a block of 256 threads. A matrix is from apart
// in the argument and rows·columns in the result.
enum { TILE = 32 };
template <class T> INLINE void transpose(T *out, const T *in, i64 rows, i64 columns, i64 across, i64 ld, i64 apart, i64 matrices) {
	__shared__ T tile[TILE][TILE + 1];
	const i64 r0 = blockIdx.x / across * TILE, c0 = blockIdx.x % across * TILE;
	const u32 x = threadIdx.x % TILE, y = threadIdx.x / TILE;
	for (i64 m = blockIdx.z; m < matrices; m += gridDim.z) {
		for (u32 k = y; k < TILE; k += 8)
			if (r0 + x < rows && c0 + k < columns) tile[k][x] = in[m * apart + (c0 + k) * ld + r0 + x];
		__syncthreads();
		for (u32 k = y; k < TILE; k += 8)
			if (r0 + k < rows && c0 + x < columns) out[(m * rows + r0 + k) * columns + c0 + x] = tile[x][k];
		__syncthreads();
	}
}

// collect reads element i of the result where the box says, distribute writes
// element i of the argument there.
#define MOVE(T, S) \
	extern "C" __global__ void collect_##S(T *out, const T *in, i64 n, i64 offset, DIGITS) { \
		EACH(i, n) { PLACE(i) out[i] = in[at]; } \
	} \
	KERNEL(collect_##S) \
	extern "C" __global__ void distribute_##S(T *out, const T *in, i64 n, i64 offset, DIGITS) { \
		EACH(i, n) { PLACE(i) out[at] = in[i]; } \
	} \
	KERNEL(distribute_##S)
#define FILL(T, S) \
	extern "C" __global__ void transpose_##S(T *out, const T *in, i64 rows, i64 columns, i64 across, i64 ld, i64 apart, i64 matrices) { \
		transpose(out, in, rows, columns, across, ld, apart, matrices); \
	} \
	KERNEL(transpose_##S) \
	extern "C" __global__ void fill_##S(T *out, i64 n, u64 v) { \
		EACH(i, n) out[i] = (T)v; \
	} \
	KERNEL(fill_##S)
#define MOVE_AND_FILL(T, S) MOVE(T, S) FILL(T, S)
MOVE_AND_FILL(u8, 1)
MOVE_AND_FILL(u16, 2)
MOVE_AND_FILL(u32, 4)
MOVE_AND_FILL(u64, 8)
MOVE(Bytes16, 16)

extern "C" __global__ void iota(void *out, i64 type, i64 n, i64 row) {
	EACH(i, n) {
		if (type == FLOAT64) put(out, type, i, (double)(i % row));
		else if (type == FLOAT32 || type == FLOAT16 || type == BFLOAT16) put(out, type, i, (float)(i % row));
		else put(out, type, i, i % row);
	}
}
KERNEL(iota)

// index reads an index of 32 or 64 bits, and reports one that is out of range.
#ifdef EMU
#define COUNT_INDEX emu::indices++; // the fake driver says how many a kernel reads
#else
#define COUNT_INDEX
#endif
INLINE i64 index_at(const void *p, i64 wide, i64 i) {
	COUNT_INDEX
	return wide ? ((const i64 *)p)[i] : (i64)((const int *)p)[i];
}
INLINE i64 key_at(const i64 *keys, i64 i) { // of those that are sorted
	COUNT_INDEX
	return keys[i];
}
INLINE i64 index(const void *p, i64 wide, i64 i, i64 limit, Fault *fault, i64 value) {
	const i64 k = index_at(p, wide, i);
	if (k >= 0 && k < limit) return k;
	report(fault, value, i, k);
	return -1;
}

// rows of x at the indices; a row has width elements
#define GATHER(T, S) \
	extern "C" __global__ void gather_##S(T *out, const T *x, const void *idx, i64 wide, i64 n, i64 width, i64 limit, Fault *fault, i64 value, i64 code) { \
		EACH(i, n * width) { \
			i64 row, column; \
			split(i, width, code, row, column); \
			const i64 k = index(idx, wide, row, limit, fault, value); \
			out[i] = k < 0 ? T{} : x[k * width + column]; \
		} \
	} \
	KERNEL(gather_##S)
#define INDEXED(T, S) \
	GATHER(T, S) \
	/* one element of the last axis for each index */ \
	extern "C" __global__ void take_along_##S(T *out, const T *x, const void *idx, i64 wide, i64 n, i64 width, i64 limit, Fault *fault, i64 value) { \
		EACH(i, n) { \
			const i64 k = index(idx, wide, i, limit, fault, value); \
			out[i] = k < 0 ? (T)0 : x[i * limit + k]; \
		} \
	} \
	KERNEL(take_along_##S) \
	/* zeros but for one element of the last axis */ \
	extern "C" __global__ void put_along_##S(T *out, const T *x, const void *idx, i64 wide, i64 n, i64 width, i64 limit, Fault *fault, i64 value, i64 code) { \
		EACH(i, n * limit) { \
			i64 row, column; \
			split(i, limit, code, row, column); \
			const i64 k = index(idx, wide, row, limit, fault, value); \
			out[i] = k == column ? x[row] : (T)0; \
		} \
	} \
	KERNEL(put_along_##S)
INDEXED(u8, 1)
INDEXED(u16, 2)
INDEXED(u32, 4)
INDEXED(u64, 8)
GATHER(Bytes16, 16)

// What has to do with equal indices has them sorted: keys are the indices in their
// order, at their positions, equal ones in the order of those. Tiles of up to SORTED
// indices are sorted in shared memory, then merged two by two: an element's place is
// its own in its run, and how many of the other run come before it.
enum { SORTED = 2048 };
INLINE bool before(i64 a, u32 i, i64 b, u32 j) { return a < b || (a == b && i < j); }

// sort_tiles sorts tiles of count indices, a power of two.
extern "C" __global__ void __launch_bounds__(256) sort_tiles(const void *idx, i64 wide, i64 n, i64 count, i64 *keys, u32 *at) {
	__shared__ i64 key[SORTED];
	__shared__ u32 from[SORTED];
	const i64 base = blockIdx.x * count;
	for (u32 i = threadIdx.x; i < count; i += 256) {
		const bool there = base + i < n;
		key[i] = there ? index_at(idx, wide, base + i) : (i64)(~0ull >> 1);
		from[i] = there ? (u32)(base + i) : ~0u;
	}
	__syncthreads();
	for (u32 size = 2; size <= count; size *= 2) // a bitonic sort
		for (u32 stride = size / 2; stride; stride /= 2) {
			for (u32 t = threadIdx.x; t < count / 2; t += 256) {
				const u32 i = 2 * t - (t & (stride - 1)), j = i + stride;
				const i64 a = key[i], b = key[j];
				const u32 p = from[i], q = from[j];
				if (before(b, q, a, p) != ((i & size) != 0)) key[i] = b, key[j] = a, from[i] = q, from[j] = p;
			}
			__syncthreads();
		}
	for (u32 i = threadIdx.x; i < count && base + i < n; i += 256) keys[base + i] = key[i], at[base + i] = from[i];
}
KERNEL(sort_tiles)

// sort_merge merges runs of 1<<log indices.
extern "C" __global__ void sort_merge(const i64 *keys, const u32 *at, i64 n, i64 log, i64 *to_keys, u32 *to_at) {
	EACH(i, n) {
		const i64 run = i >> log, other = (run ^ 1) << log, key = key_at(keys, i);
		const u32 from = at[i];
		const i64 start = other < n ? other : n, end = other + (1ll << log);
		i64 lo = start, hi = end < n ? end : n;
		while (lo < hi) {
			const i64 middle = (lo + hi) / 2;
			if (before(key_at(keys, middle), at[middle], key, from)) lo = middle + 1;
			else hi = middle;
		}
		const i64 to = (run >> 1 << (log + 1)) + (i - (run << log)) + (lo - start);
		to_keys[to] = key, to_at[to] = from;
	}
}
KERNEL(sort_merge)

// scatter_add adds row i of x at index i, rows of one index in the order of their
// positions. A block has the rows of a sorted index that is the first of its kind, and
// some of the columns.
template <class T> INLINE void scatter_add(T *out, const T *x, i64 type, const i64 *keys, const u32 *at, i64 n, i64 width, i64 limit, Fault *fault, i64 value) {
	const i64 i = blockIdx.x, k = key_at(keys, i);
	if (k < 0 || k >= limit) {
		if (threadIdx.x == 0 && blockIdx.y == 0) report(fault, value, at[i], k);
		return;
	}
	if (i && key_at(keys, i - 1) == k) return;
	for (i64 column = (i64)blockIdx.y * blockDim.x + threadIdx.x; column < width; column += (i64)gridDim.y * blockDim.x) {
		auto sum = get(x, at[i] * width + column);
		i64 j = i + 1;
		for (; j + 3 < n && key_at(keys, j + 3) == k; j += 4) { // loads side by side, sums in order
			const auto a = get(x, at[j] * width + column), b = get(x, at[j + 1] * width + column), c = get(x, at[j + 2] * width + column), d = get(x, at[j + 3] * width + column);
			sum = sum + a + b + c + d;
		}
		for (; j < n && key_at(keys, j) == k; j++) sum += get(x, at[j] * width + column);
		put(out, type, k * width + column, sum);
	}
}
#define SCATTER(T, S) \
	extern "C" __global__ void scatter_add_##S(T *out, const T *x, i64 type, const i64 *keys, const u32 *at, i64 n, i64 width, i64 limit, Fault *fault, i64 value) { \
		scatter_add(out, x, type, keys, at, n, width, limit, fault, value); \
	} \
	KERNEL(scatter_add_##S)
FOR_ALL(SCATTER)

// unique numbers indices by first appearance: out is [2 n], see op.Unique. firsts has
// where the index at each position appears first, and ranks how many indices appear
// first before a position, then all.
extern "C" __global__ void unique_firsts(u32 *firsts, const i64 *keys, const u32 *at, i64 n) {
	EACH(i, n) {
		const i64 key = key_at(keys, i);
		i64 lo = 0, hi = i; // the first one that is not less
		while (lo < hi) {
			const i64 middle = (lo + hi) / 2;
			if (key_at(keys, middle) < key) lo = middle + 1;
			else hi = middle;
		}
		firsts[at[i]] = at[lo];
	}
}
KERNEL(unique_firsts)
extern "C" __global__ void __launch_bounds__(256) unique_ranks(u32 *ranks, const u32 *firsts, i64 n) {
	__shared__ u32 counts[256];
	const i64 per = (n + 255) / 256, from = threadIdx.x * per < n ? threadIdx.x * per : n, to = from + per < n ? from + per : n;
	u32 count = 0;
	for (i64 j = from; j < to; j++) count += firsts[j] == j;
	counts[threadIdx.x] = count;
	__syncthreads();
	u32 rank = 0;
	for (u32 t = 0; t < threadIdx.x; t++) rank += counts[t];
	for (i64 j = from; j < to; j++) {
		ranks[j] = rank;
		rank += firsts[j] == j;
	}
	if (threadIdx.x == 255) ranks[n] = rank;
}
KERNEL(unique_ranks)
extern "C" __global__ void unique(void *out, i64 type, const u32 *firsts, const u32 *ranks, const void *idx, i64 wide, i64 n, i64 none) {
	const i64 all = ranks[n];
	EACH(i, n) {
		const i64 rank = ranks[firsts[i]];
		put(out, type, i, rank);
		if (firsts[i] == i) put(out, type, n + rank, index_at(idx, wide, i));
		if (i >= all) put(out, type, n + i, none);
	}
}
KERNEL(unique)

// put_rows writes rows over those of a table at indices in range; of equal
// ones the last counts. It does nothing after a fault.
#define PUT_ROWS(T, S) \
	extern "C" __global__ void put_rows_##S(T *out, const T *x, const i64 *keys, const u32 *at, i64 n, i64 width, i64 limit, const Fault *fault, i64 code) { \
		if (fault->flag) return; \
		EACH(i, n * width) { \
			i64 row, column; \
			split(i, width, code, row, column); \
			const i64 k = key_at(keys, row); \
			if (k >= 0 && k < limit && (row + 1 == n || key_at(keys, row + 1) != k)) out[k * width + column] = x[at[row] * width + column]; \
		} \
	} \
	KERNEL(put_rows_##S)
PUT_ROWS(u8, 1)
PUT_ROWS(u16, 2)
PUT_ROWS(u32, 4)
PUT_ROWS(u64, 8)
