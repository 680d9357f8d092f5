// The device functions on the host, for those that PTX calls.
#include "emu.h"
#undef blockIdx

#include <string>

#include "types.h"
#include "eight.h"
#include "functions.cu"

namespace ptx {

template <class T> static T from(uint64_t u) {
	T x;
	memcpy(&x, &u, sizeof(T));
	return x;
}

template <class R, class... A, size_t... I> static uint64_t apply(R (*f)(A...), const uint64_t *a, std::index_sequence<I...>) {
	R r = f(from<A>(a[I])...);
	uint64_t u = 0;
	memcpy(&u, &r, sizeof(R));
	return u;
}

template <class R, class... A> static bool call(R (*f)(A...), const uint64_t *a, size_t n, uint64_t *result) {
	if (n != sizeof...(A)) return false;
	*result = apply(f, a, std::index_sequence_for<A...>{});
	return true;
}

bool call_host(const std::string &name, const uint64_t *args, size_t n, uint64_t *result) {
#define TRY(f) if (name == #f) return call(f, args, n, result);
	TRY(Sin_float32) TRY(Cos_float32) TRY(Tanh_float32) TRY(Erf_float32) TRY(NormalCDF_float32) TRY(Pow_float32) TRY(Mod_float32)
	TRY(Exp_float64) TRY(Expm1_float64) TRY(Log_float64) TRY(Log1p_float64) TRY(Sin_float64) TRY(Cos_float64)
	TRY(Tanh_float64) TRY(Sigmoid_float64) TRY(Erf_float64) TRY(NormalCDF_float64) TRY(NormalPDF_float64) TRY(Pow_float64) TRY(Mod_float64)
#undef TRY
	return false;
}

} // namespace ptx
