//go:build cuda

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *library;
static char tried[1024];

static int no_library(void) { return CUDA_ERROR_NO_DEVICE; }
static int no_function(void) { return CUDA_ERROR_NOT_SUPPORTED; }

// mezzo_cuda_resolve finds a function of the driver. Names that newer drivers
// have only as name_v2 took the same arguments before.
__attribute__((visibility("hidden"))) void *mezzo_cuda_resolve(const char *name) {
	if (!library) return (void *)no_library;
	void *f = dlsym(library, name);
	if (!f) {
		char v2[128];
		snprintf(v2, sizeof v2, "%s_v2", name);
		f = dlsym(library, v2);
	}
	return f ? f : (void *)no_function;
}

// cuInit succeeds without doing anything: package cu calls it when the
// program starts, and would end a program that wants to run on the processor.
CUresult cuInit(unsigned int flags) {
	(void)flags;
	return CUDA_SUCCESS;
}

static int try_open(const char *path) {
	size_t n = strlen(tried);
	snprintf(tried + n, sizeof tried - n, "%s%s", n ? ", " : "", path);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *why = library ? NULL : dlerror();
	if (why && !strstr(why, "No such file")) { // it is there, but does not load
		n = strlen(tried);
		snprintf(tried + n, sizeof tried - n, " (%s)", why);
	}
	return library != NULL;
}

int mezzo_cuda_open(const char *path, const char **where) {
	static const char *usual[] = {
		"libcuda.so.1",
		"/usr/local/nvidia/lib64/libcuda.so.1",
		"/usr/local/nvidia/lib/libcuda.so.1",
		"/usr/lib/wsl/lib/libcuda.so.1",
	};
	*where = tried;
	tried[0] = 0;
	if (path[0]) {
		try_open(path);
	} else {
		for (size_t i = 0; i < sizeof usual / sizeof *usual && !try_open(usual[i]); i++);
	}
	if (!library) return -1;
	CUresult (*init)(unsigned int) = (CUresult (*)(unsigned int))dlsym(library, "cuInit");
	return init ? (int)init(0) : (int)CUDA_ERROR_NOT_SUPPORTED;
}

CUresult mezzo_cuda_launch(const mezzo_launch *list, int n, uint64_t *words, uintptr_t stream, int *failed) {
	void *parameters[MEZZO_MAX_PARAMETERS];
	for (int i = 0; i < n; i++) {
		const mezzo_launch *l = &list[i];
		for (uint32_t k = 0; k < l->count; k++) parameters[k] = &words[l->first + k];
		CUresult e = cuLaunchKernel((CUfunction)l->function, l->grid[0], l->grid[1], l->grid[2],
			l->block[0], l->block[1], l->block[2], l->shared, (CUstream)stream, parameters, NULL);
		if (e) {
			*failed = i;
			return e;
		}
	}
	return CUDA_SUCCESS;
}
