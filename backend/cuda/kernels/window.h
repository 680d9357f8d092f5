// The geometry of convolutions and pooling. Axes are those of op.Conv, brought
// to three in space.

struct Windows {
	i64 n, c, i0, i1, i2, o0, o1, o2, w0, w1, w2, s0, s1, s2, d0, d1, d2, l0, l1, l2;
};
#define WINDOWS i64 n, i64 c, i64 i0, i64 i1, i64 i2, i64 o0, i64 o1, i64 o2, i64 w0, i64 w1, i64 w2, i64 s0, i64 s1, i64 s2, i64 d0, i64 d1, i64 d2, i64 l0, i64 l1, i64 l2
#define MAKE_WINDOWS Windows{n, c, i0, i1, i2, o0, o1, o2, w0, w1, w2, s0, s1, s2, d0, d1, d2, l0, l1, l2}

// input is the position in space of element (a, b, e) of the window of output
// (x, y, z), or -1 when it is padding.
INLINE i64 input(const Windows &w, i64 x, i64 y, i64 z, i64 a, i64 b, i64 e) {
	const i64 p = x * w.s0 + a * w.d0 - w.l0, q = y * w.s1 + b * w.d1 - w.l1, r = z * w.s2 + e * w.d2 - w.l2;
	return p < 0 || p >= w.i0 || q < 0 || q >= w.i1 || r < 0 || r >= w.i2 ? -1 : (p * w.i1 + q) * w.i2 + r;
}
