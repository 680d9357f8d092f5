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
