// 8-bit floats of numbers that they have: nothing is left to round.
INLINE u32 float_to_e4m3(float x) {
	const u32 a = bits(x) & 0x7fffffffu, sign = bits(x) >> 24 & 0x80;
	if (a > 0x7f800000u) return sign | 0x7f;
	if (a < 0x3c800000u) return sign | (u32)(float_of(a) * 512); // below 2^-6: multiples of 2^-9
	return sign | ((a >> 20) - ((127 - 7) << 3));
}
INLINE u32 float_to_e5m2(float x) { return (u32)float_to_half(x) >> 8; } // the upper half of a float16
