// What the libraries beside the fake driver share: its functions for them, and
// elements of the types that they compute on.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define API extern "C" __attribute__((visibility("default"))) int

// Without the driver, which need not be there for descriptions, these are null.
#pragma weak fakecuda_submit
#pragma weak fakecuda_inside

// fakecuda_submit has a call do something when a stream of the current device comes to it:
// so many floating-point operations, with operands of so many bytes.
extern "C" int fakecuda_submit(void *stream, const char *call, double operations, double bytes, std::function<int()> *work);
// fakecuda_inside reports whether memory of the device lies there.
extern "C" int fakecuda_inside(const void *p, size_t n);

enum { R32 = 0, R64 = 1, R16 = 2, RBF16 = 14, E4M3 = 28, E5M2 = 29 }; // cudaDataType

static bool eight(int type) { return type == E4M3 || type == E5M2; }
static size_t size_of(int type) { return type == R64 ? 8 : type == R32 ? 4 : eight(type) ? 1 : 2; }
// eight_bits is an 8-bit float: E5M2 is the upper half of a float16, E4M3 has
// no infinities.
static double eight_bits(uint8_t u, int type) {
	const int fraction = type == E4M3 ? 3 : 2, bias = type == E4M3 ? 7 : 15, most = (1 << (7 - fraction)) - 1;
	const int e = u >> fraction & most, m = u & ((1 << fraction) - 1);
	double x = e ? ldexp(m + (1 << fraction), e - bias - fraction) : ldexp(m, 1 - bias - fraction);
	if (type == E4M3 ? (u & 127) == 127 : e == most && m) x = NAN;
	else if (type == E5M2 && e == most) x = INFINITY;
	return u & 128 ? -x : x;
}
// Halves has the values of all float16s: the conversion is a call for most processors.
struct Halves {
	float value[1 << 16];
	Halves() {
		for (uint32_t h = 0; h < 1 << 16; h++) {
			uint16_t u = (uint16_t)h;
			_Float16 x;
			memcpy(&x, &u, 2);
			value[h] = (float)x;
		}
	}
};
static const Halves halves;
static double read(const void *p, int type, int64_t i) {
	if (eight(type)) return eight_bits(((const uint8_t *)p)[i], type);
	switch (type) {
	case R64: return ((const double *)p)[i];
	case R32: return ((const float *)p)[i];
	case R16: return halves.value[((const uint16_t *)p)[i]];
	}
	uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}
static void write(void *p, int type, int64_t i, double x) {
	float f = (float)x;
	uint32_t u;
	memcpy(&u, &f, 4);
	switch (type) {
	case R64: ((double *)p)[i] = x; break;
	case R32: ((float *)p)[i] = f; break;
	case R16: ((_Float16 *)p)[i] = (_Float16)f; break;
	default: ((uint16_t *)p)[i] = f != f ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
	}
}
// rounded is what is left of a number in a type.
static float rounded(int type, double x) {
	uint64_t to = 0;
	write(&to, type, 0, x);
	return (float)read(&to, type, 0);
}
// tf32 rounds to 10 bits of mantissa, ties away from zero.
static double tf32(double x) {
	float f = (float)x;
	uint32_t u;
	memcpy(&u, &f, 4);
	if ((u & 0x7f800000) != 0x7f800000) u = (u + 0x1000) & ~0x1fffu;
	memcpy(&f, &u, 4);
	return f;
}
