//go:build cuda

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>

const char *mezzo_nccl_open(mezzo_nccl *l, const char *path) {
	l->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!l->library) return dlerror();
#define FIND(member, name) \
	if (!(*(void **)&l->member = dlsym(l->library, name))) { \
		dlclose(l->library); \
		return "it has no " name; \
	}
	FIND(version, "ncclGetVersion")
	FIND(error_string, "ncclGetErrorString")
	FIND(unique_id, "ncclGetUniqueId")
	FIND(init, "ncclCommInitRank")
	FIND(destroy, "ncclCommDestroy")
	FIND(abort, "ncclCommAbort")
	FIND(async_error, "ncclCommGetAsyncError")
	FIND(group_start, "ncclGroupStart")
	FIND(group_end, "ncclGroupEnd")
	FIND(send, "ncclSend")
	FIND(recv, "ncclRecv")
	FIND(all_gather, "ncclAllGather")
	FIND(all_reduce, "ncclAllReduce")
#undef FIND
	*(void **)&l->last_error = dlsym(l->library, "ncclGetLastError");
	return NULL;
}

enum { UINT8 = 1, FLOAT32 = 7, SUM = 0 };

int mezzo_nccl_version(const mezzo_nccl *l) {
	int v = 0;
	return l->version(&v) ? 0 : v;
}
const char *mezzo_nccl_error_string(const mezzo_nccl *l, int code) { return l->error_string(code); }
const char *mezzo_nccl_last_error(const mezzo_nccl *l, void *comm) { return l->last_error ? l->last_error(comm) : ""; }
int mezzo_nccl_unique_id(const mezzo_nccl *l, mezzo_nccl_id *id) { return l->unique_id(id); }
int mezzo_nccl_init(const mezzo_nccl *l, void **comm, int size, const mezzo_nccl_id *id, int rank) { return l->init(comm, size, *id, rank); }
int mezzo_nccl_destroy(const mezzo_nccl *l, void *comm) { return l->destroy(comm); }
int mezzo_nccl_abort(const mezzo_nccl *l, void *comm) { return l->abort(comm); }
int mezzo_nccl_async_error(const mezzo_nccl *l, void *comm, int *code) { return l->async_error(comm, code); }

int mezzo_nccl_all_to_all(const mezzo_nccl *l, uint64_t send, uint64_t recv, size_t bytes, int rank, int size, void *comm, uintptr_t stream) {
	int e = l->group_start();
	for (int i = 0; i < size && !e; i++) {
		if (i == rank) continue;
		e = l->send((const void *)(send + i * bytes), bytes, UINT8, i, comm, (void *)stream);
		if (!e) e = l->recv((void *)(recv + i * bytes), bytes, UINT8, i, comm, (void *)stream);
	}
	int end = l->group_end();
	return e ? e : end;
}

int mezzo_nccl_all_gather(const mezzo_nccl *l, uint64_t send, uint64_t recv, size_t bytes, void *comm, uintptr_t stream) {
	return l->all_gather((const void *)send, (void *)recv, bytes, UINT8, comm, (void *)stream);
}

int mezzo_nccl_all_reduce(const mezzo_nccl *l, uint64_t x, size_t elements, void *comm, uintptr_t stream) {
	return l->all_reduce((const void *)x, (void *)x, elements, FLOAT32, SUM, comm, (void *)stream);
}
