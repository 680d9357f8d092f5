// Random numbers: the definition is that of package philox.

// Random is where numbers come from: four of them from each block, or eight of
// 16 bits.
struct Random { u64 seed, counter, stream; };
INLINE void random_block(const Random &from, i64 block, u32 w[4]) {
	const u32 high = (u32)(from.counter >> 32), above = (u32)(from.stream >> 32);
	u32 k0 = (u32)from.seed, k1 = (u32)(from.seed >> 32);
	u32 c0 = (u32)block, c1 = (u32)((u64)block >> 32), c2 = (u32)from.counter;
	u32 c3 = (u32)from.stream ^ (high << 16 | high >> 16) ^ (above << 8 | above >> 24);
#ifndef EMU
#pragma unroll 1
#endif
	for (int r = 0; r < 10; r++) {
		const u64 p = (u64)c0 * 0xD2511F53u, q = (u64)c2 * 0xCD9E8D57u;
		c0 = (u32)(q >> 32) ^ c1 ^ k0;
		c2 = (u32)(p >> 32) ^ c3 ^ k1;
		c1 = (u32)q;
		c3 = (u32)p;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	w[0] = c0, w[1] = c1, w[2] = c2, w[3] = c3;
}
// upper_half is a word with half i % 2 of w above zeros, whose number has 16 bits.
INLINE u32 upper_half(u32 w, u32 i) { return i & 1 ? w & 0xffff0000u : w << 16; }
INLINE float uniform(u32 w) { return (float)(w >> 8) * 0x1p-24f; }
