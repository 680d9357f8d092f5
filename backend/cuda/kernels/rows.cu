// Softmax, its logarithm and its gradient along any axis: one block of 256
// threads for each row, whose elements lie inner apart. dense.cu has rows whose
// elements lie together.

template <class T> INLINE void softmax(const T *in, void *out, i64 type, i64 logarithm, i64 n, i64 inner) {
	typedef typename Wide<T>::type W;
	const i64 base = (i64)blockIdx.x / inner * n * inner + blockIdx.x % inner;
	W top = neutral(MAX, W());
	for (i64 k = threadIdx.x; k < n; k += blockDim.x) top = combine(MAX, top, get(in, base + k * inner));
	top = block_combine(MAX, top);
	if (top == neutral(MAX, W())) top = 0;
	W sum = 0;
	for (i64 k = threadIdx.x; k < n; k += blockDim.x) sum += exp_of(get(in, base + k * inner) - top);
	sum = block_combine(SUM, sum);
	const W l = log_of(sum);
	for (i64 k = threadIdx.x; k < n; k += blockDim.x) {
		const i64 i = base + k * inner;
		const W x = get(in, i) - top;
		put(out, type, i, logarithm ? x - l : exp_of(x) / sum);
	}
}

template <class T> INLINE void softmax_grad(const T *y, const void *g, i64 g_type, void *out, i64 type, i64 n, i64 inner) {
	typedef typename Wide<T>::type W;
	const i64 base = (i64)blockIdx.x / inner * n * inner + blockIdx.x % inner;
	W sum = 0;
	for (i64 k = threadIdx.x; k < n; k += blockDim.x) sum += get(y, base + k * inner) * get_as(g, g_type, base + k * inner, W());
	sum = block_combine(SUM, sum);
	for (i64 k = threadIdx.x; k < n; k += blockDim.x) {
		const i64 i = base + k * inner;
		put(out, type, i, get(y, i) * (get_as(g, g_type, i, W()) - sum));
	}
}

#define ROWS(T, S) \
	extern "C" __global__ void softmax_##S(const T *in, void *out, i64 type, i64 logarithm, i64 n, i64 inner) { softmax(in, out, type, logarithm, n, inner); } \
	KERNEL(softmax_##S) \
	extern "C" __global__ void softmax_grad_##S(const T *y, const void *g, i64 g_type, void *out, i64 type, i64 n, i64 inner) { softmax_grad(y, g, g_type, out, type, n, inner); } \
	KERNEL(softmax_grad_##S)
FOR_FLOATS(ROWS)
