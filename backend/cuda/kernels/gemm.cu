// Matrix products and convolutions by tiles. A convolution is the product of a
// matrix that has a row for each output, with the elements of its window, and
// the kernels; its gradients are products of the same elements in other orders.

// Matrix is a source whose rows, or columns, have a stride.
struct Matrix {
	u32 outer, inner;
	i64 stride;
	INLINE_MEMBER i64 at(u32 o, u32 i) const { return o < outer && i < inner ? (i64)o * stride + i : -1; }
};

// Geometry is that of a convolution, with the divisors of the numbers of pixels
// (p0, p1, p2), of elements of a window (w1, w2), of channels of a group (cg),
// and of strides.
struct Geometry {
	int i0, i1, i2, o0, o1, o2, s0, s1, s2, d0, d1, d2, l0, l1, l2;
	Divisor p0, p1, p2, w1, w2, cg, t0, t1, t2;
};
#define GEOMETRY WINDOWS, i64 cg, i64 p0, i64 p1, i64 p2, i64 f0, i64 f1, i64 f2, i64 fw1, i64 fw2, i64 fcg, i64 ft0, i64 ft1, i64 ft2
#define MAKE_GEOMETRY Geometry{(int)i0, (int)i1, (int)i2, (int)o0, (int)o1, (int)o2, (int)s0, (int)s1, (int)s2, (int)d0, (int)d1, (int)d2, (int)l0, (int)l1, (int)l2, \
	divisor(p0, f0), divisor(p1, f1), divisor(p2, f2), divisor(w1, fw1), divisor(w2, fw2), divisor(cg, fcg), divisor(s0, ft0), divisor(s1, ft1), divisor(s2, ft2)}

// Image is the input of a convolution: outer counts outputs, inner the elements
// of a window. channels is how far pixels are apart.
struct Image {
	Geometry g;
	u32 outer, inner;
	i64 channels;
	INLINE_MEMBER i64 at(u32 o, u32 i) const {
		if (o >= outer || i >= inner) return -1;
		const int z = digit(o, g.p2), y = digit(o, g.p1), x = digit(o, g.p0);
		const int c = digit(i, g.cg), e = digit(i, g.w2), b = digit(i, g.w1);
		const int p = x * g.s0 + (int)i * g.d0 - g.l0, q = y * g.s1 + b * g.d1 - g.l1, r = z * g.s2 + e * g.d2 - g.l2;
		if ((u32)p >= (u32)g.i0 || (u32)q >= (u32)g.i1 || (u32)r >= (u32)g.i2) return -1;
		return (((i64)o * g.i0 + p) * g.i1 + q) * g.i2 * channels + r * channels + c;
	}
};

// Outputs is the gradient of a convolution's result: outer counts inputs,
// inner the elements of windows that they may be, each with its channels.
struct Outputs {
	Geometry g;
	u32 outer, inner;
	i64 channels;
	INLINE_MEMBER i64 at(u32 o, u32 i) const {
		if (o >= outer || i >= inner) return -1;
		const int r = digit(o, g.p2), q = digit(o, g.p1), p = digit(o, g.p0);
		const int c = digit(i, g.cg), e = digit(i, g.w2), b = digit(i, g.w1);
		u32 x = (u32)(p + g.l0 - (int)i * g.d0), y = (u32)(q + g.l1 - b * g.d1), z = (u32)(r + g.l2 - e * g.d2);
		if ((int)x < 0 || (int)y < 0 || (int)z < 0) return -1;
		if (digit(x, g.t0) | digit(y, g.t1) | digit(z, g.t2)) return -1;
		if (x >= (u32)g.o0 || y >= (u32)g.o1 || z >= (u32)g.o2) return -1;
		return ((((i64)o * g.o0 + x) * g.o1 + y) * g.o2 + z) * channels + c;
	}
};

// Taps is the kernels by input channels: inner counts the elements of a window
// with the output channels of the group, of which there are cg.
struct Taps {
	Divisor cg;
	u32 outer, inner;
	i64 channels; // of the output
	INLINE_MEMBER i64 at(u32 o, u32 i) const {
		if (o >= outer || i >= inner) return -1;
		const u32 c = digit(i, cg);
		return ((i64)i * outer + o) * channels + c;
	}
};

// What all kernels take: the product's sizes, how it is cut into parts of per
// terms (grid y) whose results lie part apart, its operands' widths of copies,
// and where its result goes.
#define COMMON void *out, i64 type, i64 rows, i64 columns, i64 terms, i64 wide_a, i64 wide_b, i64 stride, i64 apart, i64 batches, i64 per, i64 part, const void *bias, i64 relu

// EACH_PRODUCT goes through the batch (grid z), with the block's range in p, its
// result in r.
#define EACH_PRODUCT(SIZE, BIAS_APART) \
	Range p; \
	tile_of(p, blockIdx.x, (u32)rows, (u32)columns, SIZE); \
	p.k0 = (u32)(blockIdx.y * per); \
	p.k1 = (u32)(p.k0 + per < terms ? p.k0 + per : terms); \
	for (i64 z = blockIdx.z; z < batches; z += gridDim.z) { \
		const Result r{out, type, blockIdx.y * part + z * apart, stride, (u32)rows, (u32)columns, bias, z * (BIAS_APART), relu};

template <class Arithmetic, bool AROWS, bool BROWS, class T> INLINE void matmul(const T *a, const T *b, i64 stride_a, i64 stride_b, const Box &box_a, const Box &box_b, COMMON) {
	EACH_PRODUCT(Arithmetic::R, 0)
		const Matrix sa{AROWS ? (u32)rows : p.k1, AROWS ? p.k1 : (u32)rows, stride_a}, sb{BROWS ? (u32)columns : p.k1, BROWS ? p.k1 : (u32)columns, stride_b};
		product<Arithmetic, AROWS, BROWS>(a + place(box_a, z), sa, wide_a, b + place(box_b, z), sb, wide_b, p, r);
	}
}

template <class Arithmetic, class T> INLINE void conv(const T *x, const T *y, const Geometry &g, i64 c, i64 o, i64 cg, i64 og, COMMON) {
	EACH_PRODUCT(Arithmetic::R, apart)
		product<Arithmetic, true, false>(x + z * cg, Image{g, (u32)rows, p.k1, c}, wide_a, y + z * og, Matrix{p.k1, (u32)columns, o}, wide_b, p, r);
	}
}

template <class Arithmetic, class T> INLINE void conv_input_grad(const T *x, const T *y, const Geometry &g, i64, i64 o, i64, i64 og, COMMON) {
	EACH_PRODUCT(Arithmetic::R, apart)
		product<Arithmetic, true, true>(x + z * og, Outputs{g, (u32)rows, p.k1, o}, wide_a, y + z * og, Taps{g.cg, (u32)columns, p.k1, o}, wide_b, p, r);
	}
}

template <class Arithmetic, class T> INLINE void conv_kernel_grad(const T *x, const T *y, const Geometry &g, i64 c, i64 o, i64 cg, i64 og, COMMON) {
	EACH_PRODUCT(Arithmetic::R, apart)
		product<Arithmetic, false, false>(x + z * cg, Image{g, p.k1, (u32)rows, c}, wide_a, y + z * og, Matrix{p.k1, (u32)columns, o}, wide_b, p, r);
	}
}

#define ARGUMENTS out, type, rows, columns, terms, wide_a, wide_b, stride, apart, batches, per, part, bias, relu
#define MATMUL(T, S, HOW, NAME, LAYOUT, AROWS, BROWS) \
	extern "C" __global__ void __launch_bounds__(256, 2) matmul_##NAME##_##LAYOUT##_##S(const T *a, const T *b, i64 stride_a, i64 stride_b, BOX(x), BOX(y), COMMON) { \
		matmul<HOW<T>, AROWS, BROWS>(a, b, stride_a, stride_b, MAKE_BOX(x), MAKE_BOX(y), ARGUMENTS); \
	} \
	KERNEL(matmul_##NAME##_##LAYOUT##_##S)
#define CONV(T, S, HOW, NAME, WHAT) \
	extern "C" __global__ void __launch_bounds__(256, 2) WHAT##_##NAME##_##S(const T *x, const T *y, i64 o, i64 og, i64 group, COMMON, GEOMETRY) { \
		WHAT<HOW<T>>(x, y, MAKE_GEOMETRY, c, o, group, og, ARGUMENTS); \
	} \
	KERNEL(WHAT##_##NAME##_##S)
#define PRODUCTS(T, S, HOW, NAME) \
	MATMUL(T, S, HOW, NAME, nn, true, false) \
	MATMUL(T, S, HOW, NAME, nt, true, true) \
	MATMUL(T, S, HOW, NAME, tn, false, false) \
	MATMUL(T, S, HOW, NAME, tt, false, true) \
	CONV(T, S, HOW, NAME, conv) \
	CONV(T, S, HOW, NAME, conv_input_grad) \
	CONV(T, S, HOW, NAME, conv_kernel_grad)
#define PLAIN(T, S) PRODUCTS(T, S, Plain, plain)
#define TENSOR(T, S) PRODUCTS(T, S, Tensor, tensor)

PLAIN(float, float32)
PLAIN(double, float64)
#if defined(EMU) || !defined(TENSOR_CORES)
PLAIN(f16, float16)
PLAIN(bf16, bfloat16)
#endif
#ifdef TENSOR_CORES
TENSOR(f16, float16)
TENSOR(bf16, bfloat16)
TENSOR(float, float32)
#endif
