// Operations that move elements: by their size, or by rows of bytes.

// Digits is a box of up to 8 sizes, the last one fastest, with strides.
#define DIGITS i64 n0, i64 n1, i64 n2, i64 n3, i64 n4, i64 n5, i64 n6, i64 n7, i64 s0, i64 s1, i64 s2, i64 s3, i64 s4, i64 s5, i64 s6, i64 s7
#define DIGIT(k) at += q % n##k * s##k, q /= n##k;
#define PLACE(i) i64 q = (i), at = offset; DIGIT(7) DIGIT(6) DIGIT(5) DIGIT(4) DIGIT(3) DIGIT(2) DIGIT(1) at += q * s0;

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
	KERNEL(distribute_##S) \
	extern "C" __global__ void fill_##S(T *out, i64 n, u64 v) { \
		EACH(i, n) out[i] = (T)v; \
	} \
	KERNEL(fill_##S)
MOVE(u8, 1)
MOVE(u16, 2)
MOVE(u32, 4)
MOVE(u64, 8)

extern "C" __global__ void iota(void *out, i64 type, i64 n, i64 row) {
	EACH(i, n) {
		if (type == FLOAT64) put(out, type, i, (double)(i % row));
		else if (type == FLOAT32 || type == FLOAT16 || type == BFLOAT16) put(out, type, i, (float)(i % row));
		else put(out, type, i, i % row);
	}
}
KERNEL(iota)

// index reads an index of 32 or 64 bits, and reports one that is out of range.
INLINE i64 index(const void *p, i64 wide, i64 i, i64 limit, Fault *fault, i64 value) {
	const i64 k = wide ? ((const i64 *)p)[i] : (i64)((const int *)p)[i];
	if (k >= 0 && k < limit) return k;
	report(fault, value, i, k);
	return -1;
}

#define INDEXED(T, S) \
	/* rows of x at the indices; a row has width elements */ \
	extern "C" __global__ void gather_##S(T *out, const T *x, const void *idx, i64 wide, i64 n, i64 width, i64 limit, Fault *fault, i64 value) { \
		EACH(i, n * width) { \
			const i64 k = index(idx, wide, i / width, limit, fault, value); \
			out[i] = k < 0 ? (T)0 : x[k * width + i % width]; \
		} \
	} \
	KERNEL(gather_##S) \
	/* one element of the last axis for each index */ \
	extern "C" __global__ void take_along_##S(T *out, const T *x, const void *idx, i64 wide, i64 n, i64 width, i64 limit, Fault *fault, i64 value) { \
		EACH(i, n) { \
			const i64 k = index(idx, wide, i, limit, fault, value); \
			out[i] = k < 0 ? (T)0 : x[i * limit + k]; \
		} \
	} \
	KERNEL(take_along_##S) \
	/* zeros but for one element of the last axis */ \
	extern "C" __global__ void put_along_##S(T *out, const T *x, const void *idx, i64 wide, i64 n, i64 width, i64 limit, Fault *fault, i64 value) { \
		EACH(i, n * limit) { \
			const i64 k = index(idx, wide, i / limit, limit, fault, value); \
			out[i] = k == i % limit ? x[i / limit] : (T)0; \
		} \
	} \
	KERNEL(put_along_##S)
INDEXED(u8, 1)
INDEXED(u16, 2)
INDEXED(u32, 4)
INDEXED(u64, 8)

// scatter_add adds row i of x at index i. The thread of the first row with an
// index adds all of them up in order, so that the bits are always the same.
template <class T> INLINE void scatter_add(T *out, const T *x, i64 type, const void *idx, i64 wide, i64 n, i64 width, i64 limit, Fault *fault, i64 value) {
	EACH(i, n * width) {
		const i64 row = i / width, column = i % width, k = index(idx, wide, row, limit, fault, value);
		bool first = k >= 0;
		for (i64 j = 0; j < row && first; j++) first = k != (wide ? ((const i64 *)idx)[j] : (i64)((const int *)idx)[j]);
		if (!first) continue;
		auto sum = get(x, i);
		for (i64 j = row + 1; j < n; j++)
			if (k == (wide ? ((const i64 *)idx)[j] : (i64)((const int *)idx)[j])) sum += get(x, j * width + column);
		put(out, type, k * width + column, sum);
	}
}
#define SCATTER(T, S) \
	extern "C" __global__ void scatter_add_##S(T *out, const T *x, i64 type, const void *idx, i64 wide, i64 n, i64 width, i64 limit, Fault *fault, i64 value) { \
		scatter_add(out, x, type, idx, wide, n, width, limit, fault, value); \
	} \
	KERNEL(scatter_add_##S)
FOR_ALL(SCATTER)

// unique numbers indices by first appearance: out is [2 n], see op.Unique.
// firsts, of n elements, has where each index appears first.
INLINE i64 index_at(const void *p, i64 wide, i64 i) { return wide ? ((const i64 *)p)[i] : (i64)((const int *)p)[i]; }
extern "C" __global__ void unique_firsts(i64 *firsts, const void *idx, i64 wide, i64 n) {
	EACH(i, n) {
		const i64 k = index_at(idx, wide, i);
		i64 j = 0;
		while (index_at(idx, wide, j) != k) j++;
		firsts[i] = j;
	}
}
KERNEL(unique_firsts)
extern "C" __global__ void unique(void *out, i64 type, const i64 *firsts, const void *idx, i64 wide, i64 n, i64 none) {
	EACH(i, n) {
		i64 rank = 0, all = 0;
		for (i64 j = 0; j < n; j++) {
			const bool first = firsts[j] == j;
			rank += first && j < firsts[i];
			all += first;
		}
		put(out, type, i, rank);
		if (firsts[i] == i) put(out, type, n + rank, index_at(idx, wide, i));
		if (i >= all) put(out, type, n + i, none);
	}
}
KERNEL(unique)

// put_rows writes rows over those of a table at indices in range; of equal
// ones the last counts. It does nothing after a fault.
#define PUT_ROWS(T, S) \
	extern "C" __global__ void put_rows_##S(T *out, const T *x, const void *idx, i64 wide, i64 n, i64 width, i64 limit, const Fault *fault) { \
		if (fault->flag) return; \
		EACH(i, n * width) { \
			const i64 row = i / width, k = index_at(idx, wide, row); \
			bool last = k >= 0 && k < limit; \
			for (i64 j = row + 1; j < n && last; j++) last = index_at(idx, wide, j) != k; \
			if (last) out[k * width + i % width] = x[i]; \
		} \
	} \
	KERNEL(put_rows_##S)
PUT_ROWS(u8, 1)
PUT_ROWS(u16, 2)
PUT_ROWS(u32, 4)
PUT_ROWS(u64, 8)
