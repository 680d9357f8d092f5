// im2col_S: for each output of a convolution a row with the elements of its window, tap by
// tap. Where a window reaches out of the input they are zeros, as is what a row has behind
// the last tap. Sizes are in words of S bytes: c of a pixel, row of a row. A warp makes a
// row, and divides for its position once.
struct Lines {
	i64 rows, row, c, taps;
	Divisor channels, w1, w2, o0, o1, o2;
};
#define LINES i64 rows, i64 row, i64 taps, i64 fc, i64 fw1, i64 fw2, i64 fo0, i64 fo1, i64 fo2
#define MAKE_LINES Lines{rows, row, c, taps, divisor(c, fc), divisor(w1, fw1), divisor(w2, fw2), divisor(o0, fo0), divisor(o1, fo1), divisor(o2, fo2)}

template <class T> INLINE void im2col(T *out, const T *in, const T &zero, const Lines &l, const Windows &w) {
	const int warps = (int)blockDim.x / 32;
	const int i0 = (int)w.i0, i1 = (int)w.i1, i2 = (int)w.i2, d0 = (int)w.d0, d1 = (int)w.d1, d2 = (int)w.d2;
	for (i64 r = (i64)blockIdx.x * warps + threadIdx.x / 32; r < l.rows; r += (i64)gridDim.x * warps) {
		u32 image = (u32)r;
		const int z = (int)digit(image, l.o2), y = (int)digit(image, l.o1), x = (int)digit(image, l.o0);
		const int p0 = x * (int)w.s0 - (int)w.l0, p1 = y * (int)w.s1 - (int)w.l1, p2 = z * (int)w.s2 - (int)w.l2;
		const T *from = in + (i64)image * i0 * i1 * i2 * l.c;
		T *to = out + r * l.row;
		for (u32 i = threadIdx.x % 32; i < (u32)l.row; i += 32) {
			u32 tap = i;
			const u32 channel = digit(tap, l.channels);
			bool inside = tap < (u32)l.taps;
			const int q2 = p2 + (int)digit(tap, l.w2) * d2, q1 = p1 + (int)digit(tap, l.w1) * d1, q0 = p0 + (int)tap * d0;
			inside = inside && (u32)q0 < (u32)i0 && (u32)q1 < (u32)i1 && (u32)q2 < (u32)i2;
			to[i] = inside ? from[(i64)((q0 * i1 + q1) * i2 + q2) * l.c + channel] : zero;
		}
	}
}
#define IM2COL(T, S) \
	extern "C" __global__ void im2col_##S(T *out, const T *in, WINDOWS, LINES) { im2col(out, in, T{}, MAKE_LINES, MAKE_WINDOWS); } \
	KERNEL(im2col_##S)
IM2COL(u16, 2)
IM2COL(u32, 4)
IM2COL(u64, 8)
IM2COL(Bytes16, 16)
