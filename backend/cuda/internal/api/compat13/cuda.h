/* cuda.h of CUDA 13 with the forms of five functions that gorgonia.org/cu
   calls; drivers keep exporting them. Harmless with CUDA 11.8 and 12. */
#ifndef MEZZO_COMPAT13_CUDA_H
#define MEZZO_COMPAT13_CUDA_H
#include_next <cuda.h>
#if CUDA_VERSION >= 13000
#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
CUresult cuCtxCreate_v2(CUcontext *, unsigned int, CUdevice);
#define cuCtxCreate cuCtxCreate_v2
CUresult cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUdevice);
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphGetEdges(CUgraph, CUgraphNode *, CUgraphNode *, size_t *);
#endif
#endif
