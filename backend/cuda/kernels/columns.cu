// Sums down the columns of matrices [outer rows columns]: the moments that batch
// normalization takes, and what its gradient takes. A block has a tile of
// columns and a segment of the rows (grid y); its threads have a column each,
// and rows that are as far apart as there are threads to a column. Segments are
// joined by a warp for each column. All orders depend on the shape alone.

enum { AT_ONCE = 8 }; // rows that a thread reads before it computes

// Spread is numbers by how many there are, their mean, and the sum of the
// squares of what they deviate from it. Chan, Golub, LeVeque, "Updating formulae
// and a pairwise algorithm for computing sample variances" (1979).
template <class W> struct Spread {
	W n, mean, squares;
	INLINE_MEMBER void join(const Spread &b) {
		if (b.n == 0) return;
		if (n == 0) {
			*this = b;
			return;
		}
		const W all = n + b.n, share = b.n / all, d = b.mean - mean;
		mean += d * share;
		squares += b.squares + d * d * (n * share);
		n = all;
	}
	INLINE_MEMBER W first() const { return n > 0 ? mean : mean / n; }
	INLINE_MEMBER W second() const { return squares / n; }
};

// Twin is two sums.
template <class W> struct Twin {
	W a, b;
	INLINE_MEMBER void join(const Twin &x) {
		a += x.a;
		b += x.b;
	}
	INLINE_MEMBER W first() const { return a; }
	INLINE_MEMBER W second() const { return b; }
};

// Place is the column of a thread and its first row; rows end at last. across is
// how many columns a block has, a power of two.
struct Place {
	i64 outer, column, first, last;
	int lane, down;
	bool there;
	INLINE_MEMBER Place(i64 rows, i64 columns, i64 across, i64 per) {
		const i64 tiles = (columns + across - 1) / across;
		outer = blockIdx.x / tiles;
		column = blockIdx.x % tiles * across + threadIdx.x % across;
		lane = (int)(threadIdx.x / across);
		down = (int)(blockDim.x / across);
		first = (i64)blockIdx.y * per;
		last = first + per < rows ? first + per : rows;
		there = column < columns;
	}
};

// finish_columns joins what the threads of a column have. The sums of the only segment
// are the result, those of all columns and then the second ones; of several they
// are parts.
template <class S, class W> INLINE void finish_columns(S s, const Place &p, i64 columns, i64 all, int across, W *out) {
	__shared__ S part[256];
	part[threadIdx.x] = s;
	for (int h = p.down / 2; h > 0; h /= 2) {
		__syncthreads();
		if (p.lane < h) {
			s.join(part[threadIdx.x + h * across]);
			part[threadIdx.x] = s;
		}
	}
	if (p.lane || !p.there) return;
	W *to = out + (i64)blockIdx.y * 2 * all + p.outer * columns + p.column;
	to[0] = s.first();
	to[all] = s.second();
}

// all is how many columns there are in all matrices.
template <class T> INLINE void column_moments(const T *x, typename Wide<T>::type *out, i64 rows, i64 columns, i64 all, i64 across, i64 per) {
	typedef typename Wide<T>::type W;
	const Place p(rows, columns, across, per);
	const T *from = x + p.outer * rows * columns + p.column;
	Spread<W> s{0, 0, 0};
	for (i64 r = p.first + p.lane; p.there && r < p.last; r += (i64)AT_ONCE * p.down) {
		W v[AT_ONCE], n = 0, sum = 0, squares = 0;
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			const bool in = r + (i64)i * p.down < p.last;
			v[i] = in ? get(from, (r + (i64)i * p.down) * columns) : 0;
			n += in;
			sum += v[i];
		}
		const W mean = sum / n;
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			const W d = v[i] - mean;
			if (r + (i64)i * p.down < p.last) squares += d * d;
		}
		s.join(Spread<W>{n, mean, squares});
	}
	finish_columns(s, p, columns, all, (int)across, out);
}

template <class T, class G> INLINE void centered_sums(const T *x, const typename Wide<T>::type *center, const G *g, typename Wide<T>::type *out, i64 rows, i64 columns, i64 all, i64 across, i64 per) {
	typedef typename Wide<T>::type W;
	const Place p(rows, columns, across, per);
	const i64 base = p.outer * rows * columns + p.column;
	const W c = p.there ? center[p.outer * columns + p.column] : 0;
	Twin<W> s{0, 0};
	for (i64 r = p.first + p.lane; p.there && r < p.last; r += (i64)AT_ONCE * p.down) {
		W v[AT_ONCE], w[AT_ONCE];
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			const bool in = r + (i64)i * p.down < p.last;
			const i64 at = base + (r + (i64)i * p.down) * columns;
			v[i] = in ? get(x, at) : c;
			w[i] = in ? (W)get(g, at) : 0;
		}
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			s.a += w[i];
			s.b += w[i] * (v[i] - c);
		}
	}
	finish_columns(s, p, columns, all, (int)across, out);
}

// shuffled is what another lane has, or nothing.
template <class W> INLINE Spread<W> shuffled(const Spread<W> &s, int from, bool there) {
	const Spread<W> o{__shfl_sync(0xffffffffu, s.n, from), __shfl_sync(0xffffffffu, s.mean, from), __shfl_sync(0xffffffffu, s.squares, from)};
	return there ? o : Spread<W>{0, 0, 0};
}
template <class W> INLINE Twin<W> shuffled(const Twin<W> &s, int from, bool there) {
	const Twin<W> o{__shfl_sync(0xffffffffu, s.a, from), __shfl_sync(0xffffffffu, s.b, from)};
	return there ? o : Twin<W>{0, 0};
}

// join_columns joins the segments: lane l of a warp takes segments l, l+32, ….
template <class S, class W, class F> INLINE void join_columns(const W *parts, W *out, i64 all, i64 segments, F read) {
	const i64 column = THREAD / 32;
	const int lane = threadIdx.x % 32;
	S s{};
	for (i64 i = lane; i < segments && column < all; i += 32) {
		const W *p = parts + i * 2 * all + column;
		s.join(read(i, p[0], p[all]));
	}
	for (int m = 16; m; m >>= 1) s.join(shuffled(s, lane + m < 32 ? lane + m : lane, lane + m < 32));
	if (lane || column >= all) return;
	out[column] = s.first();
	out[all + column] = s.second();
}

#define COLUMN_MOMENTS(T, S) \
	extern "C" __global__ void __launch_bounds__(256) column_moments_##S(const T *x, Wide<T>::type *out, i64 rows, i64 columns, i64 all, i64 across, i64 per) { \
		column_moments(x, out, rows, columns, all, across, per); \
	} \
	KERNEL(column_moments_##S)
FOR_FLOATS(COLUMN_MOMENTS)

#define CENTERED_SUMS(T, S, G, SG) \
	extern "C" __global__ void __launch_bounds__(256) centered_sums_##S##_##SG(const T *x, const Wide<T>::type *center, const G *g, Wide<T>::type *out, i64 rows, i64 columns, i64 all, i64 across, i64 per) { \
		centered_sums(x, center, g, out, rows, columns, all, across, per); \
	} \
	KERNEL(centered_sums_##S##_##SG)
FOR_PAIRS(CENTERED_SUMS)

#define JOIN_COLUMNS(W, S) \
	extern "C" __global__ void __launch_bounds__(256) join_moments_##S(const W *parts, W *out, i64 all, i64 segments, i64 rows, i64 per) { \
		join_columns<Spread<W>>(parts, out, all, segments, [&](i64 i, W mean, W variance) { \
			const W n = (W)((i + 1) * per < rows ? per : rows - i * per); \
			return Spread<W>{n, mean, variance * n}; \
		}); \
	} \
	KERNEL(join_moments_##S) \
	extern "C" __global__ void __launch_bounds__(256) join_sums_##S(const W *parts, W *out, i64 all, i64 segments) { \
		join_columns<Twin<W>>(parts, out, all, segments, [](i64, W a, W b) { return Twin<W>{a, b}; }); \
	} \
	KERNEL(join_sums_##S)
JOIN_COLUMNS(float, float32)
JOIN_COLUMNS(double, float64)
