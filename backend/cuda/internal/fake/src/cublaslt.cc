// A libcublasLt.so.12 for tests on machines without a GPU: products by three
// loops, put on the fake driver's streams. Descriptions are checked as the real
// library does, and every problem has three algorithms, of which the second one
// wants workspace and makes zeros of NaNs in an activation, and the third fails.
// Before them comes one that adds up two halves of a sum in the type of the result,
// where a preference permits that. With FAKECUDA_RELU=max all of them make zeros of
// NaNs, since ReLU is the larger one of a number and 0.
#include <cstdlib>
#include <map>

#include <vector>

#include "library.h"

enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { COMPUTE32 = 68, COMPUTE64 = 70, COMPUTE_TF32 = 77 };
enum { COMPUTE_TYPE = 0, TRANSA = 3, TRANSB = 4, EPILOGUE = 7, BIAS_POINTER = 8, A_SCALE = 17, AMAX = 21, FAST = 25, BIAS_TYPE = 26 };

struct Desc {
	int compute;
	std::map<int, uint64_t> attributes;
};
struct Layout {
	int type;
	uint64_t rows, columns;
	int64_t ld;
	int32_t batch = 1;
	int64_t stride = 0;
};
struct Algo {
	uint64_t number, unused[7];
};
enum { HALVES = 73 };
struct Choice {
	Algo algo;
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
};

extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return 120205; }
API cublasLtCreate(void **h) { *h = malloc(1); return SUCCESS; }
API cublasLtDestroy(void *h) { free(h); return SUCCESS; }
API cublasLtMatmulDescCreate(void **d, int compute, int scale) {
	if (compute == COMPUTE64 ? scale != R64 : scale != R32) return INVALID_VALUE;
	*d = new Desc{compute, {{COMPUTE_TYPE, (uint64_t)compute}, {EPILOGUE, 1}}};
	return SUCCESS;
}
API cublasLtMatmulDescDestroy(void *d) { delete (Desc *)d; return SUCCESS; }
API cublasLtMatmulDescSetAttribute(void *d, int a, const void *v, size_t n) {
	uint64_t u = 0;
	if (n != (a == BIAS_POINTER || (a >= A_SCALE && a <= AMAX) ? 8 : a == FAST ? 1 : 4)) return INVALID_VALUE;
	memcpy(&u, v, n);
	((Desc *)d)->attributes[a] = u;
	return SUCCESS;
}
API cublasLtMatmulDescGetAttribute(void *d, int a, void *v, size_t n, size_t *written) {
	memcpy(v, &((Desc *)d)->attributes[a], *written = n);
	return SUCCESS;
}
API cublasLtMatrixLayoutCreate(void **l, int type, uint64_t rows, uint64_t columns, int64_t ld) {
	if (ld < (int64_t)rows) return INVALID_VALUE;
	*l = new Layout{type, rows, columns, ld};
	return SUCCESS;
}
API cublasLtMatrixLayoutDestroy(void *l) { delete (Layout *)l; return SUCCESS; }
API cublasLtMatrixLayoutSetAttribute(void *l, int a, const void *v, size_t n) {
	if (a == 5 && n == 4) memcpy(&((Layout *)l)->batch, v, 4);
	else if (a == 6 && n == 8) memcpy(&((Layout *)l)->stride, v, 8);
	else return INVALID_VALUE;
	return SUCCESS;
}
API cublasLtMatrixLayoutGetAttribute(void *l, int a, void *v, size_t n, size_t *written) {
	*written = n;
	if (a == 0 && n == 4) memcpy(v, &((Layout *)l)->type, 4);
	else if (a == 5 && n == 4) memcpy(v, &((Layout *)l)->batch, 4);
	else if (a == 6 && n == 8) memcpy(v, &((Layout *)l)->stride, 8);
	else return INVALID_VALUE;
	return SUCCESS;
}
struct Preference {
	uint64_t workspace = 0;
	uint32_t schemes = 7; // of reduction: 1 in place, 2 in the compute type, 4 in the type of the result
};
API cublasLtMatmulPreferenceCreate(void **p) { *p = new Preference; return SUCCESS; }
API cublasLtMatmulPreferenceDestroy(void *p) { delete (Preference *)p; return SUCCESS; }
API cublasLtMatmulPreferenceSetAttribute(void *p, int a, const void *v, size_t n) {
	if (n != (a == 1 ? 8 : 4)) return INVALID_VALUE;
	if (a == 1) memcpy(&((Preference *)p)->workspace, v, 8);
	if (a == 3) memcpy(&((Preference *)p)->schemes, v, 4);
	return SUCCESS;
}

// fits reports whether the matrices are those of a product d = f(a)·f(b).
static int fits(const Desc &desc, const Layout &a, const Layout &b, const Layout &d) {
	auto get = [&](int k) { auto i = desc.attributes.find(k); return i == desc.attributes.end() ? 0 : i->second; };
	const uint64_t m = get(TRANSA) ? a.columns : a.rows, k = get(TRANSA) ? a.rows : a.columns;
	const uint64_t l = get(TRANSB) ? b.columns : b.rows, n = get(TRANSB) ? b.rows : b.columns;
	if (m != d.rows || n != d.columns || k != l || (a.type != b.type && !(eight(a.type) && eight(b.type))) || a.batch != d.batch || b.batch != d.batch) return INVALID_VALUE;
	const bool wide = a.type == R64;
	if (wide != (desc.compute == COMPUTE64) || (desc.compute == COMPUTE_TF32 && a.type != R32)) return NOT_SUPPORTED;
	const uint64_t epilogue = get(EPILOGUE);
	if (eight(a.type)) { // on Hopper, and on Ada from CUDA 12 on
		const char *s = getenv("FAKECUDA_CAPABILITY");
		if ((s && atoi(s) < 89) || !get(TRANSA) || get(TRANSB) || (a.type == E5M2 && b.type == E5M2)) return NOT_SUPPORTED;
		if (m % 16 || n % 16 || k % 16 || eight(d.type) || d.type == R64 || (d.type == R32 && epilogue & 4)) return NOT_SUPPORTED;
	} else if (get(A_SCALE) || get(FAST) || (d.type != a.type && !(size_of(a.type) == 2 && d.type == R32))) return NOT_SUPPORTED;
	if (epilogue != 1 && epilogue != 2 && epilogue != 4 && epilogue != 6) return NOT_SUPPORTED;
	if (epilogue & 4 && ((int)get(BIAS_TYPE) != d.type || !get(BIAS_POINTER))) return NOT_SUPPORTED;
	return SUCCESS;
}

API cublasLtMatmulAlgoGetHeuristic(void *, void *desc, void *a, void *b, void *, void *d, void *preference, int wanted, Choice *list, int *found) {
	*found = 0;
	if (int e = fits(*(Desc *)desc, *(Layout *)a, *(Layout *)b, *(Layout *)d)) return e;
	const Preference &p = *(Preference *)preference;
	const size_t workspace[3] = {0, 1000, 256};
	for (int i = -1; i < 3 && *found < wanted; i++) {
		if (i < 0 ? !(p.schemes & 5) || size_of(((Layout *)d)->type) != 2 : workspace[i] > p.workspace) continue;
		Choice &c = list[(*found)++];
		memset(&c, 0, sizeof c);
		c.algo.number = i < 0 ? HALVES : 70 + i;
		c.workspace = i < 0 ? 0 : workspace[i];
	}
	return SUCCESS;
}

API cublasLtMatmul(void *, void *desc, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta, const void *c, void *lc,
	void *d, void *ld, const Algo *algo, void *workspace, size_t bytes, void *stream) {
	const Desc m = *(Desc *)desc;
	const Layout x = *(Layout *)la, y = *(Layout *)lb, z = *(Layout *)ld;
	if (int e = fits(m, x, y, z)) return e;
	if (!algo || algo->number < 70 || algo->number > HALVES) return INVALID_VALUE;
	if (algo->number == 72) return NOT_SUPPORTED;
	const size_t needed = algo->number == 71 ? 1000 : 0;
	if (bytes < needed || (needed && ((uintptr_t)workspace % 16 || !fakecuda_inside(workspace, needed)))) return INVALID_VALUE;
	auto extent = [](const Layout &l) { return ((l.batch - 1) * l.stride + (l.columns - 1) * l.ld + l.rows) * size_of(l.type); };
	if (!fakecuda_inside(a, extent(x)) || !fakecuda_inside(b, extent(y)) || !fakecuda_inside(d, extent(z))) return INVALID_VALUE;
	auto get = [&](int k) { auto i = m.attributes.find(k); return i == m.attributes.end() ? 0 : i->second; };
	const bool ta = get(TRANSA), tb = get(TRANSB), tf = m.compute == COMPUTE_TF32;
	const uint64_t epilogue = get(EPILOGUE);
	const void *bias = epilogue & 4 ? (const void *)get(BIAS_POINTER) : nullptr;
	if (bias && !fakecuda_inside(bias, z.rows * size_of(z.type))) return INVALID_VALUE;
	const float *scale = (const float *)get(A_SCALE);
	if (scale && !fakecuda_inside(scale, sizeof *scale)) return INVALID_VALUE;
	if (eight(x.type) && ((uintptr_t)a % 16 || (uintptr_t)b % 16 || (uintptr_t)d % 16)) return NOT_SUPPORTED;
	static const char *relu = getenv("FAKECUDA_RELU");
	const bool wide = m.compute == COMPUTE64, keeps = algo->number != 71 && !(relu && !strcmp(relu, "max")), halves = algo->number == HALVES;
	const double factor = wide ? *(double *)beta : *(float *)beta;
	if ((wide ? *(double *)alpha : *(float *)alpha) != 1 || (factor != 0 && factor != 1)) return NOT_SUPPORTED;
	const void *addend = factor ? c : nullptr;
	if (addend && (epilogue != 1 || eight(x.type) || lc != ld || !fakecuda_inside(c, extent(z)))) return NOT_SUPPORTED;
	std::function<int()> work = [=] {
		const int64_t k = ta ? x.rows : x.columns, rows = z.rows, columns = z.columns;
		if (needed) memset(workspace, 0xff, needed);
		std::vector<double> left(rows * k), right(columns * k); // read once
		for (int64_t g = 0; g < z.batch; g++) {
			for (int64_t l = 0; l < k; l++) {
				for (int64_t i = 0; i < rows; i++) {
					double p = read(a, x.type, g * x.stride + (ta ? l + i * x.ld : i + l * x.ld));
					left[i * k + l] = tf ? tf32(p) : p;
				}
				for (int64_t j = 0; j < columns; j++) {
					double q = read(b, y.type, g * y.stride + (tb ? j + l * y.ld : l + j * y.ld));
					right[j * k + l] = tf ? tf32(q) : q;
				}
			}
			for (int64_t j = 0; j < columns; j++)
				for (int64_t i = 0; i < rows; i++) {
					const double *p = &left[i * k], *q = &right[j * k];
					double sum = 0;
					float first = 0, narrow = 0; // sums of sixteen bits and of float32
					if (wide)
						for (int64_t l = 0; l < k; l++) sum += p[l] * q[l];
					else
						for (int64_t l = 0; l < k; l++) {
							if (halves && l == k / 2) first = rounded(z.type, narrow), narrow = 0;
							narrow += (float)(p[l] * q[l]);
						}
					if (!wide) sum = halves ? rounded(z.type, first + rounded(z.type, narrow)) : narrow;
					if (scale) sum = (float)sum * *scale;
					if (bias) sum = wide ? sum + read(bias, z.type, i) : (double)((float)sum + (float)read(bias, z.type, i));
					if (addend) sum = wide ? sum + read(addend, z.type, g * z.stride + i + j * z.ld) : (double)((float)sum + (float)read(addend, z.type, g * z.stride + i + j * z.ld));
					if (epilogue & 2 && (keeps ? sum < 0 : !(sum > 0))) sum = 0;
					write(d, z.type, g * z.stride + i + j * z.ld, sum);
				}
		}
		return 0;
	};
	const double k = ta ? x.rows : x.columns;
	return fakecuda_submit(stream, "cublasLtMatmul", 2.0 * z.batch * z.rows * z.columns * k, extent(x) + extent(y) + extent(z) * (addend ? 2 : 1), &work) ? 14 : SUCCESS;
}
