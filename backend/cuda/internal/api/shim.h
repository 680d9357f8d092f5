// What Mezzo needs of the driver API beyond gorgonia.org/cu.
#ifndef MEZZO_CUDA_SHIM_H
#define MEZZO_CUDA_SHIM_H

#include <cuda.h>
#include <stdint.h>

// The most parameters that a kernel has.
#define MEZZO_MAX_PARAMETERS 512

// mezzo_launch is a kernel call: its parameters are words[first] to
// words[first+count-1] of the list, each of 8 bytes.
typedef struct {
	uintptr_t function;
	uint32_t grid[3], block[3], shared;
	uint32_t first, count;
} mezzo_launch;

// mezzo_cuda_open loads the library and calls cuInit. It returns cuInit's
// result, or -1 when no library was found; then *tried says where it looked.
int mezzo_cuda_open(const char *library, const char **tried);

// mezzo_cuda_launch calls kernels one after the other on a stream. On failure
// *failed is the number of the call.
CUresult mezzo_cuda_launch(const mezzo_launch *list, int n, uint64_t *words, uintptr_t stream, int *failed);

#endif
