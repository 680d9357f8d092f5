// Random numbers: the definition is that of package philox.

extern "C" __global__ void random_uniform(float *out, const u64 *state, i64 n, u64 stream) {
	const u64 seed = state[0], counter = state[1];
	const u32 high = (u32)(counter >> 32), above = (u32)(stream >> 32);
	EACH(b, (n + 3) / 4) {
		u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
		u32 c0 = (u32)b, c1 = (u32)((u64)b >> 32), c2 = (u32)counter;
		u32 c3 = (u32)stream ^ (high << 16 | high >> 16) ^ (above << 8 | above >> 24);
		for (int r = 0; r < 10; r++) {
			const u64 p = (u64)c0 * 0xD2511F53u, q = (u64)c2 * 0xCD9E8D57u;
			c0 = (u32)(q >> 32) ^ c1 ^ k0;
			c2 = (u32)(p >> 32) ^ c3 ^ k1;
			c1 = (u32)q;
			c3 = (u32)p;
			k0 += 0x9E3779B9u;
			k1 += 0xBB67AE85u;
		}
		const u32 w[4] = {c0, c1, c2, c3};
		for (int j = 0; j < 4; j++)
			if (4 * b + j < n) out[4 * b + j] = (float)(w[j] >> 8) * 0x1p-24f;
	}
}
KERNEL(random_uniform)
