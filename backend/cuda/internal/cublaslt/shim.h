// The functions of cublasLt that Mezzo calls, found in a library that is
// loaded. Numbers and signatures are those of cublasLt.h 11.8, 12 and 13, which
// agree in all that is used here; no structure of the library is laid out by
// the caller but the two below, which have kept their size.
#ifndef MEZZO_CUBLASLT_SHIM_H
#define MEZZO_CUBLASLT_SHIM_H

#include <stddef.h>
#include <stdint.h>

typedef struct { uint64_t data[8]; } mezzo_lt_algo; // cublasLtMatmulAlgo_t

typedef struct { // cublasLtMatmulHeuristicResult_t
	mezzo_lt_algo algo;
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
} mezzo_lt_choice;

typedef struct {
	void *library;
	size_t (*version)(void);
	int (*create)(void **);
	int (*destroy)(void *);
	int (*desc_create)(void **, int compute, int scale);
	int (*desc_set)(void *, int attribute, const void *, size_t);
	int (*desc_get)(void *, int attribute, void *, size_t, size_t *);
	int (*desc_destroy)(void *);
	int (*layout_create)(void **, int type, uint64_t rows, uint64_t columns, int64_t ld);
	int (*layout_set)(void *, int attribute, const void *, size_t);
	int (*layout_get)(void *, int attribute, void *, size_t, size_t *);
	int (*layout_destroy)(void *);
	int (*preference_create)(void **);
	int (*preference_set)(void *, int attribute, const void *, size_t);
	int (*preference_destroy)(void *);
	int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int, mezzo_lt_choice *, int *);
	int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta,
		const void *c, void *lc, void *d, void *ld, const mezzo_lt_algo *, void *workspace, size_t, void *stream);
} mezzo_lt;

// mezzo_lt_open loads a library. It returns NULL, or what is wrong with it.
const char *mezzo_lt_open(mezzo_lt *, const char *path);

// The calls themselves, which Go cannot make through pointers.
size_t mezzo_lt_version(const mezzo_lt *);
int mezzo_lt_create(const mezzo_lt *, void **handle);
int mezzo_lt_destroy(const mezzo_lt *, void *handle);
int mezzo_lt_desc_create(const mezzo_lt *, void **, int compute, int scale);
int mezzo_lt_desc_set(const mezzo_lt *, void *, int attribute, uint64_t value, size_t bytes);
int mezzo_lt_desc_get(const mezzo_lt *, void *, int attribute, uint64_t *value, size_t bytes);
int mezzo_lt_layout_create(const mezzo_lt *, void **, int type, uint64_t rows, uint64_t columns, int64_t ld);
int mezzo_lt_layout_set(const mezzo_lt *, void *, int attribute, uint64_t value, size_t bytes);
int mezzo_lt_layout_get(const mezzo_lt *, void *, int attribute, uint64_t *value, size_t bytes);
void mezzo_lt_free(const mezzo_lt *, void *desc, void *a, void *b, void *d);

// mezzo_lt_heuristic asks for at most n algorithms that need no more than so
// many bytes of workspace, add up parts of a sum by one of so many schemes (a
// mask of cublasLtReductionScheme_t), and want pointers aligned to so many bytes.
int mezzo_lt_heuristic(const mezzo_lt *, void *handle, void *desc, void *a, void *b, void *d, uint64_t workspace, uint32_t schemes, const uint32_t align[3], int n, mezzo_lt_choice *, int *found);

// mezzo_lt_matmul computes d = a·b with scale 1.
int mezzo_lt_matmul(const mezzo_lt *, void *handle, void *desc, int wide, uint64_t a, void *la, uint64_t b, void *lb, uint64_t addend, uint64_t d, void *ld, const mezzo_lt_choice *, uint64_t workspace, uintptr_t stream);

#endif
