// Matrices, one behind the other, brought to another size: what is new is 0.
#define RESIZE(T, S) \
	extern "C" __global__ void resize_##S(T *out, const T *in, i64 n, i64 columns_in, i64 rows_in, i64 columns, i64 fcolumns, i64 rows, i64 frows) { \
		const Divisor c = divisor(columns, fcolumns), r = divisor(rows, frows); \
		EACH(i, n) { \
			u32 q = (u32)i; \
			const i64 x = digit(q, c), y = digit(q, r); \
			out[i] = x < columns_in && y < rows_in ? in[(q * rows_in + y) * columns_in + x] : (T)0; \
		} \
	} \
	KERNEL(resize_##S)
RESIZE(u16, 2)
RESIZE(u32, 4)
RESIZE(u64, 8)
