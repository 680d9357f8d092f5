// Random numbers.

extern "C" __global__ void random_uniform(float *out, const u64 *state, i64 n, u64 stream) {
	const Random from{state[0], state[1], stream};
	EACH(b, (n + 3) / 4) {
		u32 w[4];
		random_block(from, b, w);
		for (int j = 0; j < 4; j++)
			if (4 * b + j < n) out[4 * b + j] = uniform(w[j]);
	}
}
KERNEL(random_uniform)
extern "C" __global__ void random_halves(float *out, const u64 *state, i64 n, u64 stream) {
	const Random from{state[0], state[1], stream};
	EACH(b, (n + 7) / 8) {
		u32 w[4];
		random_block(from, b, w);
		for (int j = 0; j < 8; j++)
			if (8 * b + j < n) out[8 * b + j] = uniform(upper_half(w[j / 2], j));
	}
}
KERNEL(random_halves)

// mask_block reports of 8 numbers of 16 bits which ones are not less than a bound.
INLINE void mask_block(u8 *out, const Random &from, i64 b, i64 n, float least) {
	u32 w[4];
	random_block(from, b, w);
	u64 bits = 0;
	for (int j = 0; j < 8; j++) bits |= (u64)(uniform(upper_half(w[j / 2], j)) >= least) << (8 * j);
	if (8 * b + 8 <= n) ((u64 *)out)[b] = bits;
	else
		for (int j = 0; 8 * b + j < n; j++) out[8 * b + j] = (u8)(bits >> (8 * j));
}

extern "C" __global__ void random_mask(u8 *out, const u64 *state, i64 n, u64 stream, const float *bound) {
	const Random from{state[0], state[1], stream};
	const float least = *bound;
	EACH(b, (n + 7) / 8) mask_block(out, from, b, n, least);
}
KERNEL(random_mask)

// random_masks is random_mask for up to 16 arrays. A block has 2048 elements of one of
// them, which it finds by the number of the first block of each.
struct Mask {
	u64 out; // address
	i64 n, stream;
	u64 bound; // address
	i64 first;
};
#define EACH_STATE(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14)

extern "C" __global__ void random_masks(const Mask *list, i64 count
#define PARAMETER(i) , const u64 *s##i
	EACH_STATE(PARAMETER) PARAMETER(15)) {
	int at = 0;
	while (at + 1 < count && list[at + 1].first <= blockIdx.x) at++;
	const u64 *state = s15;
#define CHOOSE(i) if (at == i) state = s##i;
	EACH_STATE(CHOOSE)
	const Mask m = list[at];
	const i64 b = ((i64)blockIdx.x - m.first) * blockDim.x + threadIdx.x;
	if (8 * b < m.n) mask_block((u8 *)m.out, Random{state[0], state[1], (u64)m.stream}, b, m.n, *(const float *)m.bound);
}
KERNEL(random_masks)
