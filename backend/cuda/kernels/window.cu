// Pooling, and convolutions with few channels in a group, an output for each
// thread.

// Digits of an output's or input's number: channel, then space, then batch.
#define OUTPUT_OF(i, channels) \
	const i64 ch = (i) % (channels), z = (i) / (channels) % w.o2, y = (i) / (channels) / w.o2 % w.o1, x = (i) / (channels) / w.o2 / w.o1 % w.o0, image = (i) / (channels) / w.o2 / w.o1 / w.o0;
#define INPUT_OF(i) \
	const i64 ch = (i) % w.c, r = (i) / w.c % w.i2, q = (i) / w.c / w.i2 % w.i1, p = (i) / w.c / w.i2 / w.i1 % w.i0, image = (i) / w.c / w.i2 / w.i1 / w.i0;

template <class T> INLINE void direct_conv(const T *in, const T *k, void *out, i64 type, i64 o, i64 groups, const Windows &w) {
	typedef typename Wide<T>::type W;
	const i64 cg = w.c / groups, space = w.i0 * w.i1 * w.i2;
	EACH(i, w.n * w.o0 * w.o1 * w.o2 * o) {
		OUTPUT_OF(i, o)
		W sum = 0;
		EACH_TAP(w) {
			const i64 at = input(w, x, y, z, a, b, e);
			if (at < 0) continue;
			const i64 from = (image * space + at) * w.c + ch / (o / groups) * cg, tap = ((a * w.w1 + b) * w.w2 + e) * cg;
			for (i64 j = 0; j < cg; j++) sum += get(in, from + j) * get(k, (tap + j) * o + ch);
		}
		put(out, type, i, sum);
	}
}

template <class T> INLINE void direct_conv_input_grad(const T *g, const T *k, void *out, i64 type, i64 o, i64 groups, const Windows &w) {
	typedef typename Wide<T>::type W;
	const i64 cg = w.c / groups, og = o / groups, space = w.o0 * w.o1 * w.o2;
	EACH(i, w.n * w.i0 * w.i1 * w.i2 * w.c) {
		INPUT_OF(i)
		W sum = 0;
		EACH_TAP(w) {
			const i64 at = output(w, p, q, r, a, b, e);
			if (at < 0) continue;
			const i64 from = (image * space + at) * o + ch / cg * og, tap = (((a * w.w1 + b) * w.w2 + e) * cg + ch % cg) * o + ch / cg * og;
			for (i64 j = 0; j < og; j++) sum += get(g, from + j) * get(k, tap + j);
		}
		put(out, type, i, sum);
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

// best is the position of the first maximum of a window, or -1 for nothing.
template <class T> INLINE i64 best(const T *in, const Windows &w, i64 image, i64 x, i64 y, i64 z, i64 ch) {
	typedef typename Wide<T>::type W;
	i64 found = -1;
	W top = 0;
	EACH_TAP(w) {
		const i64 at = input(w, x, y, z, a, b, e);
		if (at < 0) continue;
		const W v = get(in, (image * w.i0 * w.i1 * w.i2 + at) * w.c + ch);
		if (found < 0 || (!nan_wins(top) && (v > top || nan_wins(v)))) found = at, top = v;
	}
	return found;
}

template <class T> INLINE void max_pool(const T *in, T *out, const Windows &w) {
	EACH(i, w.n * w.o0 * w.o1 * w.o2 * w.c) {
		OUTPUT_OF(i, w.c)
		const i64 at = best(in, w, image, x, y, z, ch);
		if (at >= 0) out[i] = in[(image * w.i0 * w.i1 * w.i2 + at) * w.c + ch];
		else lowest(out, i);
	}
}

template <class T> INLINE void max_pool_take(const T *in, const T *from, T *out, const Windows &w) {
	EACH(i, w.n * w.o0 * w.o1 * w.o2 * w.c) {
		OUTPUT_OF(i, w.c)
		const i64 at = best(in, w, image, x, y, z, ch);
		if (at >= 0) out[i] = from[(image * w.i0 * w.i1 * w.i2 + at) * w.c + ch];
		else zero(out, i);
	}
}

template <class T> INLINE void max_pool_grad(const T *in, const T *g, void *out, i64 type, const Windows &w) {
	typedef typename Wide<T>::type W;
	EACH(i, w.n * w.i0 * w.i1 * w.i2 * w.c) {
		INPUT_OF(i)
		W sum = 0;
		EACH_TAP(w) {
			const i64 at = output(w, p, q, r, a, b, e);
			if (at >= 0 && best(in, w, image, at / w.o2 / w.o1, at / w.o2 % w.o1, at % w.o2, ch) == (p * w.i1 + q) * w.i2 + r)
				sum += get(g, (image * w.o0 * w.o1 * w.o2 + at) * w.c + ch);
		}
		put(out, type, i, sum);
	}
}

template <class T> INLINE void avg_pool(const T *in, void *out, i64 type, const Windows &w) {
	typedef typename Wide<T>::type W;
	EACH(i, w.n * w.o0 * w.o1 * w.o2 * w.c) {
		OUTPUT_OF(i, w.c)
		W sum = 0, count = 0;
		EACH_TAP(w) {
			const i64 at = input(w, x, y, z, a, b, e);
			if (at >= 0) sum += get(in, (image * w.i0 * w.i1 * w.i2 + at) * w.c + ch), count += 1;
		}
		put(out, type, i, sum / count);
	}
}

template <class T> INLINE void avg_pool_grad(const T *g, void *out, i64 type, const Windows &w) {
	typedef typename Wide<T>::type W;
	EACH(i, w.n * w.i0 * w.i1 * w.i2 * w.c) {
		INPUT_OF(i)
		W sum = 0;
		EACH_TAP(w) {
			const i64 at = output(w, p, q, r, a, b, e);
			if (at < 0) continue;
			W count = 0;
			const i64 x = at / w.o2 / w.o1, y = at / w.o2 % w.o1, z = at % w.o2;
			for (i64 a = 0; a < w.w0; a++)
				for (i64 b = 0; b < w.w1; b++)
					for (i64 e = 0; e < w.w2; e++) count += input(w, x, y, z, a, b, e) >= 0;
			sum += get(g, (image * w.o0 * w.o1 * w.o2 + at) * w.c + ch) / count;
		}
		put(out, type, i, sum);
	}
}

#define DIRECT(T, S, k) \
	extern "C" __global__ void k##_##S(const T *x, const T *y, void *out, i64 type, i64 o, i64 groups, WINDOWS) { k(x, y, out, type, o, groups, MAKE_WINDOWS); } \
	KERNEL(k##_##S)
#define WINDOW(T, S) \
	DIRECT(T, S, direct_conv) \
	DIRECT(T, S, direct_conv_input_grad) \
	DIRECT(T, S, direct_conv_kernel_grad) \
	extern "C" __global__ void max_pool_##S(const T *in, T *out, WINDOWS) { max_pool(in, out, MAKE_WINDOWS); } \
	KERNEL(max_pool_##S) \
	extern "C" __global__ void max_pool_take_##S(const T *in, const T *from, T *out, WINDOWS) { max_pool_take(in, from, out, MAKE_WINDOWS); } \
	KERNEL(max_pool_take_##S) \
	extern "C" __global__ void max_pool_grad_##S(const T *in, const T *g, void *out, i64 type, WINDOWS) { max_pool_grad(in, g, out, type, MAKE_WINDOWS); } \
	KERNEL(max_pool_grad_##S) \
	extern "C" __global__ void avg_pool_##S(const T *in, void *out, i64 type, WINDOWS) { avg_pool(in, out, type, MAKE_WINDOWS); } \
	KERNEL(avg_pool_##S) \
	extern "C" __global__ void avg_pool_grad_##S(const T *g, void *out, i64 type, WINDOWS) { avg_pool_grad(g, out, type, MAKE_WINDOWS); } \
	KERNEL(avg_pool_grad_##S)
FOR_FLOATS(WINDOW)
