//go:build cuda

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>

const char *mezzo_lt_open(mezzo_lt *l, const char *path) {
	l->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!l->library) return dlerror();
#define FIND(member, name) \
	if (!(*(void **)&l->member = dlsym(l->library, name))) { \
		dlclose(l->library); \
		return "it has no " name; \
	}
	FIND(version, "cublasLtGetVersion")
	FIND(create, "cublasLtCreate")
	FIND(destroy, "cublasLtDestroy")
	FIND(desc_create, "cublasLtMatmulDescCreate")
	FIND(desc_set, "cublasLtMatmulDescSetAttribute")
	FIND(desc_get, "cublasLtMatmulDescGetAttribute")
	FIND(desc_destroy, "cublasLtMatmulDescDestroy")
	FIND(layout_create, "cublasLtMatrixLayoutCreate")
	FIND(layout_set, "cublasLtMatrixLayoutSetAttribute")
	FIND(layout_get, "cublasLtMatrixLayoutGetAttribute")
	FIND(layout_destroy, "cublasLtMatrixLayoutDestroy")
	FIND(preference_create, "cublasLtMatmulPreferenceCreate")
	FIND(preference_set, "cublasLtMatmulPreferenceSetAttribute")
	FIND(preference_destroy, "cublasLtMatmulPreferenceDestroy")
	FIND(heuristic, "cublasLtMatmulAlgoGetHeuristic")
	FIND(matmul, "cublasLtMatmul")
#undef FIND
	return NULL;
}


size_t mezzo_lt_version(const mezzo_lt *l) { return l->version(); }
int mezzo_lt_create(const mezzo_lt *l, void **handle) { return l->create(handle); }
int mezzo_lt_destroy(const mezzo_lt *l, void *handle) { return l->destroy(handle); }
int mezzo_lt_desc_create(const mezzo_lt *l, void **d, int compute, int scale) { return l->desc_create(d, compute, scale); }
int mezzo_lt_desc_set(const mezzo_lt *l, void *d, int attribute, uint64_t value, size_t bytes) { return l->desc_set(d, attribute, &value, bytes); }
int mezzo_lt_desc_get(const mezzo_lt *l, void *d, int attribute, uint64_t *value, size_t bytes) {
	size_t written;
	return l->desc_get(d, attribute, value, bytes, &written);
}
int mezzo_lt_layout_create(const mezzo_lt *l, void **m, int type, uint64_t rows, uint64_t columns, int64_t ld) { return l->layout_create(m, type, rows, columns, ld); }
int mezzo_lt_layout_set(const mezzo_lt *l, void *m, int attribute, uint64_t value, size_t bytes) { return l->layout_set(m, attribute, &value, bytes); }
int mezzo_lt_layout_get(const mezzo_lt *l, void *m, int attribute, uint64_t *value, size_t bytes) {
	size_t written;
	return l->layout_get(m, attribute, value, bytes, &written);
}

void mezzo_lt_free(const mezzo_lt *l, void *desc, void *a, void *b, void *d) {
	if (desc) l->desc_destroy(desc);
	if (a) l->layout_destroy(a);
	if (b) l->layout_destroy(b);
	if (d) l->layout_destroy(d);
}

enum { MAX_WORKSPACE_BYTES = 1, REDUCTION_SCHEME_MASK = 3, MIN_ALIGNMENT_A = 5, MIN_ALIGNMENT_B, MIN_ALIGNMENT_C, MIN_ALIGNMENT_D };

int mezzo_lt_heuristic(const mezzo_lt *l, void *handle, void *desc, void *a, void *b, void *d, uint64_t workspace, uint32_t schemes, const uint32_t align[3], int n, mezzo_lt_choice *choices, int *found) {
	void *p;
	int e = l->preference_create(&p);
	if (e) return e;
	e = l->preference_set(p, MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
	if (!e) e = l->preference_set(p, REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
	for (int i = 0; !e && i < 4; i++) e = l->preference_set(p, MIN_ALIGNMENT_A + i, &align[i < 2 ? i : 2], sizeof align[0]);
	if (!e) e = l->heuristic(handle, desc, a, b, d, d, p, n, choices, found);
	l->preference_destroy(p);
	return e;
}

int mezzo_lt_matmul(const mezzo_lt *l, void *handle, void *desc, int wide, uint64_t a, void *la, uint64_t b, void *lb, uint64_t addend, uint64_t d, void *ld, const mezzo_lt_choice *choice, uint64_t workspace, uintptr_t stream) {
	static const float one = 1, zero = 0;
	static const double one64 = 1, zero64 = 0;
	const void *factor = wide ? (const void *)&one64 : &one, *beta = addend ? factor : wide ? (const void *)&zero64 : &zero;
	return l->matmul(handle, desc, factor, (const void *)a, la, (const void *)b, lb, beta, (const void *)(addend ? addend : d), ld, (void *)d, ld, &choice->algo, (void *)workspace, choice->workspace, (void *)stream);
}
