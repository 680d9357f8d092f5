// Matrix products where no library has one: tiles of 64 by 64 in shared
// memory, 4 by 4 sums in the registers of each of 256 threads.

enum { TILE = 64, DEPTH = 16 };

template <class T> INLINE void matmul(const T *a, const T *b, void *out, i64 type, i64 m, i64 n, i64 k, i64 am, i64 ak, i64 bk, i64 bn, i64 z, const Box &batch_a, const Box &batch_b) {
	typedef typename Wide<T>::type W;
	__shared__ W ta[DEPTH][TILE + 4];
	__shared__ W tb[DEPTH][TILE + 4];
	a += place(batch_a, z);
	b += place(batch_b, z);
	const i64 row = (i64)blockIdx.x * TILE, column = (i64)blockIdx.y * TILE;
	const int t = threadIdx.x, tm = t / 16 * 4, tn = t % 16 * 4;
	W sum[4][4];
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) sum[i][j] = 0;
	for (i64 k0 = 0; k0 < k; k0 += DEPTH) {
		for (int e = t; e < TILE * DEPTH; e += 256) {
			// neighbouring threads read along the axis that is contiguous
			const int ai = ak == 1 ? e / DEPTH : e % TILE, aj = ak == 1 ? e % DEPTH : e / TILE;
			ta[aj][ai] = row + ai < m && k0 + aj < k ? get(a, (row + ai) * am + (k0 + aj) * ak) : (W)0;
			const int bi = bn == 1 ? e / TILE : e % DEPTH, bj = bn == 1 ? e % TILE : e / DEPTH;
			tb[bi][bj] = column + bj < n && k0 + bi < k ? get(b, (k0 + bi) * bk + (column + bj) * bn) : (W)0;
		}
		__syncthreads();
		for (int d = 0; d < DEPTH; d++)
			for (int i = 0; i < 4; i++)
				for (int j = 0; j < 4; j++) sum[i][j] += ta[d][tm + i] * tb[d][tn + j];
		__syncthreads();
	}
	const i64 base = z * m * n;
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++)
			if (row + tm + i < m && column + tn + j < n) put(out, type, base + (row + tm + i) * n + column + tn + j, sum[i][j]);
}

#define MATMUL(T, S) \
	extern "C" __global__ void __launch_bounds__(256) matmul_##S(const T *a, const T *b, void *out, i64 type, i64 m, i64 n, i64 k, i64 am, i64 ak, i64 bk, i64 bn, i64 batches, BOX(x), BOX(y)) { \
		for (i64 z = blockIdx.z; z < batches; z += gridDim.z) matmul(a, b, out, type, m, n, k, am, ak, bk, bn, z, MAKE_BOX(x), MAKE_BOX(y)); \
	} \
	KERNEL(matmul_##S)
FOR_FLOATS(MATMUL)
