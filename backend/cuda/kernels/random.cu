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

// random_mask reports of numbers of 16 bits which ones are not less than a bound.
extern "C" __global__ void random_mask(u8 *out, const u64 *state, i64 n, u64 stream, const float *bound) {
	const Random from{state[0], state[1], stream};
	const float least = *bound;
	EACH(b, (n + 7) / 8) {
		u32 w[4];
		random_block(from, b, w);
		u64 bits = 0;
		for (int j = 0; j < 8; j++) bits |= (u64)(uniform(upper_half(w[j / 2], j)) >= least) << (8 * j);
		if (8 * b + 8 <= n) ((u64 *)out)[b] = bits;
		else
			for (int j = 0; 8 * b + j < n; j++) out[8 * b + j] = (u8)(bits >> (8 * j));
	}
}
KERNEL(random_mask)
