// Pooling, and convolutions with few channels in a group, an output for each
// thread. Blocks have images (grid y): numbers within one have 31 bits.

// Frame is a geometry in 32 bits, with the divisors of what threads go through: channels
// and the last two axes in space; and of the strides.
struct Frame {
	int c, i0, i1, i2, o0, o1, o2, w0, w1, w2, s0, s1, s2, d0, d1, d2, l0, l1, l2;
	Divisor channels, n1, n2, t0, t1, t2;
};
#define FRAME WINDOWS, i64 through, i64 m1, i64 m2, i64 fc, i64 f1, i64 f2, i64 ft0, i64 ft1, i64 ft2
#define MAKE_FRAME Frame{(int)c, (int)i0, (int)i1, (int)i2, (int)o0, (int)o1, (int)o2, (int)w0, (int)w1, (int)w2, (int)s0, (int)s1, (int)s2, (int)d0, (int)d1, (int)d2, (int)l0, (int)l1, (int)l2, \
	divisor(through, fc), divisor(m1, f1), divisor(m2, f2), divisor(s0, ft0), divisor(s1, ft1), divisor(s2, ft2)}

// EACH_OF goes through the elements of an image, with their digits.
#define EACH_OF(count) \
	for (i64 image = blockIdx.y; image < images; image += gridDim.y) \
		for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)(count); i += gridDim.x * blockDim.x)
#define DIGITS_OF(i, x, y, z, ch) \
	u32 rest_ = (i); \
	const int ch = digit(rest_, w.channels), z = digit(rest_, w.n2), y = digit(rest_, w.n1), x = rest_;

// EACH_INPUT goes through the elements (a, b, e) of the window of output (x, y, z) that
// are in the input, at a position in space.
#define EACH_INPUT(x, y, z, at) \
	for (int a = 0; a < w.w0; a++) \
		if (const int p_ = x * w.s0 + a * w.d0 - w.l0; (u32)p_ < (u32)w.i0) \
			for (int b = 0; b < w.w1; b++) \
				if (const int q_ = y * w.s1 + b * w.d1 - w.l1; (u32)q_ < (u32)w.i1) \
					for (int e = 0; e < w.w2; e++) \
						if (const int r_ = z * w.s2 + e * w.d2 - w.l2, at = (p_ * w.i1 + q_) * w.i2 + r_; (u32)r_ < (u32)w.i2)

// output_of is the output whose window has a position as element a along an axis, or -1.
INLINE int output_of(int position, int a, int low, int dilation, const Divisor &stride, int outputs) {
	const int x = position + low - a * dilation;
	if (x < 0) return -1;
	const u32 q = quotient(x, stride);
	return q * stride.d == (u32)x && q < (u32)outputs ? (int)q : -1;
}
// EACH_OUTPUT goes through the outputs (x, y, z) in whose windows position (p, q, r) is
// element (a, b, e).
#define EACH_OUTPUT(p, q, r, x, y, z) \
	for (int a = 0; a < w.w0; a++) \
		if (const int x = output_of(p, a, w.l0, w.d0, w.t0, w.o0); x >= 0) \
			for (int b = 0; b < w.w1; b++) \
				if (const int y = output_of(q, b, w.l1, w.d1, w.t1, w.o1); y >= 0) \
					for (int e = 0; e < w.w2; e++) \
						if (const int z = output_of(r, e, w.l2, w.d2, w.t2, w.o2); z >= 0)

// The positions of an image.
#define INPUTS ((i64)w.i0 * w.i1 * w.i2)
#define OUTPUTS ((i64)w.o0 * w.o1 * w.o2)

template <class T> INLINE void direct_conv(const T *in, const T *k, void *out, i64 type, i64 o, i64 groups, i64 images, const Frame &w) {
	typedef typename Wide<T>::type W;
	const int cg = w.c / groups, og = o / groups;
	EACH_OF(OUTPUTS * o) {
		DIGITS_OF(i, x, y, z, ch)
		W sum = 0;
		EACH_INPUT(x, y, z, at) {
			const i64 from = (image * INPUTS + at) * w.c + ch / og * cg, tap = (i64)((a * w.w1 + b) * w.w2 + e) * cg;
			for (int j = 0; j < cg; j++) sum += get(in, from + j) * get(k, (tap + j) * o + ch);
		}
		put(out, type, image * OUTPUTS * o + i, sum);
	}
}

template <class T> INLINE void direct_conv_input_grad(const T *g, const T *k, void *out, i64 type, i64 o, i64 groups, i64 images, const Frame &w) {
	typedef typename Wide<T>::type W;
	const int cg = w.c / groups, og = o / groups;
	EACH_OF(INPUTS * w.c) {
		DIGITS_OF(i, p, q, r, ch)
		const int group = ch / cg, own = ch - group * cg;
		W sum = 0;
		EACH_OUTPUT(p, q, r, x, y, z) {
			const i64 from = (image * OUTPUTS + (x * w.o1 + y) * w.o2 + z) * o + group * og, tap = ((i64)((a * w.w1 + b) * w.w2 + e) * cg + own) * o + group * og;
			for (int j = 0; j < og; j++) sum += get(g, from + j) * get(k, tap + j);
		}
		put(out, type, image * INPUTS * w.c + i, sum);
	}
}

template <class T> INLINE void direct_conv_kernel_grad(const T *in, const T *g, void *out, i64 type, i64 o, i64 groups, const Windows &w) {
	typedef typename Wide<T>::type W;
	const i64 cg = w.c / groups, og = o / groups;
	EACH(i, w.w0 * w.w1 * w.w2 * cg * o) {
		const i64 ch = i % o, j = i / o % cg, e = i / o / cg % w.w2, b = i / o / cg / w.w2 % w.w1, a = i / o / cg / w.w2 / w.w1;
		double sum = 0; // of very many
		for (i64 image = 0; image < w.n; image++)
			for (i64 x = 0; x < w.o0; x++)
				for (i64 y = 0; y < w.o1; y++) {
					W row = 0;
					for (i64 z = 0; z < w.o2; z++) {
						const i64 at = input(w, x, y, z, a, b, e);
						if (at >= 0) row += get(in, (image * w.i0 * w.i1 * w.i2 + at) * w.c + ch / og * cg + j) * get(g, (((image * w.o0 + x) * w.o1 + y) * w.o2 + z) * o + ch);
					}
					sum += row;
				}
		put(out, type, i, sum);
	}
}

// best is the position of the first maximum of a window, or -1 for nothing; in is a
// channel of an image.
template <class T> INLINE int best(const T *in, const Frame &w, int x, int y, int z) {
	typedef typename Wide<T>::type W;
	int found = -1;
	W top = 0;
	EACH_INPUT(x, y, z, at) {
		const W v = get(in, (i64)at * w.c);
		if (found < 0 || (!nan_wins(top) && (v > top || nan_wins(v)))) found = at, top = v;
	}
	return found;
}

template <class T> INLINE void max_pool(const T *in, T *out, i64 images, const Frame &w) {
	EACH_OF(OUTPUTS * w.c) {
		DIGITS_OF(i, x, y, z, ch)
		const T *from = in + image * INPUTS * w.c + ch;
		const int at = best(from, w, x, y, z);
		const i64 to = image * OUTPUTS * w.c + i;
		if (at >= 0) out[to] = from[(i64)at * w.c];
		else lowest(out, to);
	}
}

template <class T> INLINE void max_pool_take(const T *in, const T *from, T *out, i64 images, const Frame &w) {
	EACH_OF(OUTPUTS * w.c) {
		DIGITS_OF(i, x, y, z, ch)
		const i64 channel = image * INPUTS * w.c + ch, to = image * OUTPUTS * w.c + i;
		const int at = best(in + channel, w, x, y, z);
		if (at >= 0) out[to] = from[channel + (i64)at * w.c];
		else zero(out, to);
	}
}

// max_pool_grad: where windows overlap an input finds those that it is the maximum of;
// max_pool_spread: where they do not, a window writes all of its inputs. With relu the
// gradient is that of a ReLU before the pooling: of inputs that are not above 0 it is 0.
template <class T> INLINE void max_pool_grad(const T *in, const T *g, void *out, i64 type, i64 relu, i64 images, const Frame &w) {
	typedef typename Wide<T>::type W;
	EACH_OF(INPUTS * w.c) {
		DIGITS_OF(i, p, q, r, ch)
		const T *from = in + image * INPUTS * w.c + ch;
		const int own = (p * w.i1 + q) * w.i2 + r;
		W sum = 0;
		if (!relu || get(from, (i64)own * w.c) > 0)
			EACH_OUTPUT(p, q, r, x, y, z)
				if (best(from, w, x, y, z) == own) sum += get(g, (image * OUTPUTS + (x * w.o1 + y) * w.o2 + z) * w.c + ch);
		put(out, type, image * INPUTS * w.c + i, sum);
	}
}
template <class T> INLINE void max_pool_spread(const T *in, const T *g, void *out, i64 type, i64 relu, i64 images, const Frame &w) {
	typedef typename Wide<T>::type W;
	EACH_OF(OUTPUTS * w.c) {
		DIGITS_OF(i, x, y, z, ch)
		const i64 channel = image * INPUTS * w.c + ch;
		const int found = best(in + channel, w, x, y, z);
		const W v = !relu || (found >= 0 && get(in, channel + (i64)found * w.c) > 0) ? get(g, image * OUTPUTS * w.c + i) : (W)0;
		EACH_INPUT(x, y, z, at) put(out, type, channel + (i64)at * w.c, at == found ? v : (W)0);
	}
}

// Four channels that lie together, for which a thread finds its place once: w counts them
// as one.
template <class T> struct alignas(4 * sizeof(T)) Four { T v[4]; };
template <class T> struct Best {
	int found[4];
	typename Wide<T>::type top[4];
	Four<T> kept;
};
template <class T> INLINE void best_of_four(const Four<T> *in, const Frame &w, int x, int y, int z, Best<T> &m) {
	typedef typename Wide<T>::type W;
	for (int k = 0; k < 4; k++) m.found[k] = -1, m.top[k] = 0, lowest(m.kept.v, k);
	EACH_INPUT(x, y, z, at) {
		const Four<T> f = in[(i64)at * w.c];
		for (int k = 0; k < 4; k++) {
			const W v = get(f.v, k);
			if (m.found[k] < 0 || (!nan_wins(m.top[k]) && (v > m.top[k] || nan_wins(v)))) m.found[k] = at, m.top[k] = v, m.kept.v[k] = f.v[k];
		}
	}
}
template <class T> INLINE void max_pool_four(const Four<T> *in, Four<T> *out, i64 images, const Frame &w) {
	EACH_OF(OUTPUTS * w.c) {
		DIGITS_OF(i, x, y, z, ch)
		Best<T> m;
		best_of_four(in + image * INPUTS * w.c + ch, w, x, y, z, m);
		out[image * OUTPUTS * w.c + i] = m.kept;
	}
}
template <class T> INLINE void max_pool_spread_four(const Four<T> *in, const Four<T> *g, Four<T> *out, i64 relu, i64 images, const Frame &w) {
	EACH_OF(OUTPUTS * w.c) {
		DIGITS_OF(i, x, y, z, ch)
		const i64 channel = image * INPUTS * w.c + ch;
		Best<T> m;
		best_of_four(in + channel, w, x, y, z, m);
		const Four<T> v = g[image * OUTPUTS * w.c + i];
		for (int k = 0; k < 4; k++)
			if (relu && !(m.top[k] > 0)) m.found[k] = -1;
		EACH_INPUT(x, y, z, at) {
			Four<T> o;
			for (int k = 0; k < 4; k++) {
				zero(o.v, k);
				if (at == m.found[k]) o.v[k] = v.v[k];
			}
			out[channel + (i64)at * w.c] = o;
		}
	}
}

template <class T> INLINE void avg_pool(const T *in, void *out, i64 type, i64 images, const Frame &w) {
	typedef typename Wide<T>::type W;
	EACH_OF(OUTPUTS * w.c) {
		DIGITS_OF(i, x, y, z, ch)
		const T *from = in + image * INPUTS * w.c + ch;
		W sum = 0;
		int count = 0;
		EACH_INPUT(x, y, z, at) sum += get(from, (i64)at * w.c), count++;
		put(out, type, image * OUTPUTS * w.c + i, sum / (W)count);
	}
}

// inside is how many elements of the window of output x are in the input, along an axis.
INLINE int inside(int x, int stride, int dilation, int low, int window, int inputs) {
	int n = 0;
	for (int a = 0; a < window; a++) n += (u32)(x * stride + a * dilation - low) < (u32)inputs;
	return n;
}

template <class T> INLINE void avg_pool_grad(const T *g, void *out, i64 type, i64 images, const Frame &w) {
	typedef typename Wide<T>::type W;
	EACH_OF(INPUTS * w.c) {
		DIGITS_OF(i, p, q, r, ch)
		W sum = 0;
		EACH_OUTPUT(p, q, r, x, y, z) {
			const int count = inside(x, w.s0, w.d0, w.l0, w.w0, w.i0) * inside(y, w.s1, w.d1, w.l1, w.w1, w.i1) * inside(z, w.s2, w.d2, w.l2, w.w2, w.i2);
			sum += get(g, (image * OUTPUTS + (x * w.o1 + y) * w.o2 + z) * w.c + ch) / (W)count;
		}
		put(out, type, image * INPUTS * w.c + i, sum);
	}
}

#define DIRECT(T, S, k) \
	extern "C" __global__ void k##_##S(const T *x, const T *y, void *out, i64 type, i64 o, i64 groups, FRAME) { k(x, y, out, type, o, groups, n, MAKE_FRAME); } \
	KERNEL(k##_##S)
#define WINDOW(T, S) \
	DIRECT(T, S, direct_conv) \
	DIRECT(T, S, direct_conv_input_grad) \
	extern "C" __global__ void direct_conv_kernel_grad_##S(const T *x, const T *y, void *out, i64 type, i64 o, i64 groups, WINDOWS) { direct_conv_kernel_grad(x, y, out, type, o, groups, MAKE_WINDOWS); } \
	KERNEL(direct_conv_kernel_grad_##S) \
	extern "C" __global__ void max_pool_##S(const T *in, T *out, FRAME) { max_pool(in, out, n, MAKE_FRAME); } \
	KERNEL(max_pool_##S) \
	extern "C" __global__ void max_pool_take_##S(const T *in, const T *from, T *out, FRAME) { max_pool_take(in, from, out, n, MAKE_FRAME); } \
	KERNEL(max_pool_take_##S) \
	extern "C" __global__ void max_pool_grad_##S(const T *in, const T *g, void *out, i64 type, i64 relu, FRAME) { max_pool_grad(in, g, out, type, relu, n, MAKE_FRAME); } \
	KERNEL(max_pool_grad_##S) \
	extern "C" __global__ void max_pool_spread_##S(const T *in, const T *g, void *out, i64 type, i64 relu, FRAME) { max_pool_spread(in, g, out, type, relu, n, MAKE_FRAME); } \
	KERNEL(max_pool_spread_##S) \
	extern "C" __global__ void avg_pool_##S(const T *in, void *out, i64 type, FRAME) { avg_pool(in, out, type, n, MAKE_FRAME); } \
	KERNEL(avg_pool_##S) \
	extern "C" __global__ void avg_pool_grad_##S(const T *g, void *out, i64 type, FRAME) { avg_pool_grad(g, out, type, n, MAKE_FRAME); } \
	KERNEL(avg_pool_grad_##S)
FOR_FLOATS(WINDOW)
#define FOURS(T, S) \
	extern "C" __global__ void max_pool_four_##S(const Four<T> *in, Four<T> *out, FRAME) { max_pool_four(in, out, n, MAKE_FRAME); } \
	KERNEL(max_pool_four_##S) \
	extern "C" __global__ void max_pool_spread_four_##S(const Four<T> *in, const Four<T> *g, Four<T> *out, i64 relu, FRAME) { max_pool_spread_four(in, g, out, relu, n, MAKE_FRAME); } \
	KERNEL(max_pool_spread_four_##S)
FOURS(f16, float16) FOURS(bf16, bfloat16) FOURS(float, float32)
