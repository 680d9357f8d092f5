// Matrices of numbers that 8-bit floats have, stored as those: as they lie, and
// with rows for columns. Their sizes are multiples of 16.

// quad is four neighbours, of which the first is a multiple of four, as bytes.
INLINE u32 quad(const u8 *p, i64 at, i64) { return ((const u32 *)p)[at / 4]; }
template <class T> INLINE u32 quad(const T *p, i64 at, i64 e5m2) {
	alignas(8) T x[4];
	((u64 *)x)[0] = ((const u64 *)(p + at))[0];
	if (sizeof(T) == 4) ((u64 *)x)[sizeof(T) / 4] = ((const u64 *)(p + at))[1];
	u32 q = 0;
	for (int i = 0; i < 4; i++) q |= (e5m2 ? float_to_e5m2(get(x, i)) : float_to_e4m3(get(x, i))) << 8 * i;
	return q;
}

#define PACK(T, S) \
	extern "C" __global__ void eight_##S(u32 *out, const T *in, i64 n, i64 e5m2) { \
		EACH(i, n / 4) out[i] = quad(in, 4 * i, e5m2); \
	} \
	KERNEL(eight_##S)
PACK(f16, float16)
PACK(bf16, bfloat16)
PACK(float, float32)

// turn_eight goes through tiles of 64 by 64 bytes. Rows of a tile are 17 words long,
// so that the bytes of a column lie in banks of their own.
template <class T> INLINE void turn_eight(u32 *out, const T *in, i64 rows, i64 columns, i64 e5m2) {
	alignas(4) __shared__ u8 tile[64 * 68];
	const i64 row = (i64)blockIdx.y * 64, column = (i64)blockIdx.x * 64;
	for (u32 k = threadIdx.x; k < 64 * 16; k += blockDim.x) {
		const u32 r = k / 16, c = k % 16 * 4;
		if (row + r < rows && column + c < columns) *(u32 *)(tile + r * 68 + c) = quad(in, (row + r) * columns + column + c, e5m2);
	}
	__syncthreads();
	for (u32 k = threadIdx.x; k < 64 * 16; k += blockDim.x) {
		const u32 c = k / 16, r = k % 16 * 4;
		if (row + r >= rows || column + c >= columns) continue;
		const u8 *from = tile + r * 68 + c;
		out[((column + c) * rows + row + r) / 4] = from[0] | (u32)from[68] << 8 | (u32)from[136] << 16 | (u32)from[204] << 24;
	}
}
#define TURN(T, S) \
	extern "C" __global__ void eight_turned_##S(u32 *out, const T *in, i64 rows, i64 columns, i64 e5m2) { turn_eight(out, in, rows, columns, e5m2); } \
	KERNEL(eight_turned_##S)
TURN(u8, uint8)
TURN(f16, float16)
TURN(bf16, bfloat16)
TURN(float, float32)
