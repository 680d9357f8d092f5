// The functions of NCCL that Mezzo calls, found in a library that is loaded. Signatures
// are those of nccl.h 2.11 and later.
#ifndef MEZZO_NCCL_SHIM_H
#define MEZZO_NCCL_SHIM_H

#include <stddef.h>
#include <stdint.h>

typedef struct { char bytes[128]; } mezzo_nccl_id; // ncclUniqueId

typedef struct {
	void *library;
	int (*version)(int *);
	const char *(*error_string)(int);
	const char *(*last_error)(void *); // NULL before 2.13
	int (*unique_id)(mezzo_nccl_id *);
	int (*init)(void **, int size, mezzo_nccl_id, int rank);
	int (*destroy)(void *);
	int (*abort)(void *);
	int (*async_error)(void *, int *);
	int (*group_start)(void);
	int (*group_end)(void);
	int (*send)(const void *, size_t, int type, int peer, void *comm, void *stream);
	int (*recv)(void *, size_t, int type, int peer, void *comm, void *stream);
	int (*all_gather)(const void *, void *, size_t, int type, void *comm, void *stream);
	int (*all_reduce)(const void *, void *, size_t, int type, int op, void *comm, void *stream);
} mezzo_nccl;

// mezzo_nccl_open loads a library. It returns NULL, or what is wrong with it.
const char *mezzo_nccl_open(mezzo_nccl *, const char *path);

// The calls themselves, which Go cannot make through pointers.
int mezzo_nccl_version(const mezzo_nccl *);
const char *mezzo_nccl_error_string(const mezzo_nccl *, int code);
const char *mezzo_nccl_last_error(const mezzo_nccl *, void *comm);
int mezzo_nccl_unique_id(const mezzo_nccl *, mezzo_nccl_id *);
int mezzo_nccl_init(const mezzo_nccl *, void **comm, int size, const mezzo_nccl_id *, int rank);
int mezzo_nccl_destroy(const mezzo_nccl *, void *comm);
int mezzo_nccl_abort(const mezzo_nccl *, void *comm);
int mezzo_nccl_async_error(const mezzo_nccl *, void *comm, int *code);

// mezzo_nccl_all_to_all sends bytes at send + i*bytes to rank i and receives them at recv
// + i*bytes, for all other ranks than its own.
int mezzo_nccl_all_to_all(const mezzo_nccl *, uint64_t send, uint64_t recv, size_t bytes, int rank, int size, void *comm, uintptr_t stream);

int mezzo_nccl_all_gather(const mezzo_nccl *, uint64_t send, uint64_t recv, size_t bytes, void *comm, uintptr_t stream);

// mezzo_nccl_all_reduce adds up float32 in place.
int mezzo_nccl_all_reduce(const mezzo_nccl *, uint64_t x, size_t elements, void *comm, uintptr_t stream);

#endif
