// Package simt executes PTX on the host, for tests on machines without a GPU:
// the very text that the driver would compile, warp by warp, with shared memory,
// barriers, shuffles, ldmatrix, mma.sync and cp.async.
//
// [Parse] reads a module, [Module.Kernel] decodes one of its kernels into an array
// of instructions with numbered registers, and [Kernel.Run] runs a grid. The blocks of
// a grid are spread over goroutines; the threads of a block are lanes of warps that
// run one after the other from barrier to barrier.
//
// A warp computes an instruction for all its lanes at once. Where lanes diverge,
// those at the lowest address run first, so that they meet again where paths join.
// Instructions that need several lanes (shfl.sync, bar.warp.sync, mma.sync,
// ldmatrix, bar.sync) wait for them, as independent thread scheduling does.
//
// A run fails with a [Fault], which names the kernel, the line of PTX, block and
// thread, where a GPU would fail or give undefined results:
//
//   - an access of global, shared or local memory outside of what is allocated, or
//     not aligned (shared variables have gaps between them);
//   - shared memory that is read before it is written, or that two threads access
//     without a barrier between them, at least one of them writing;
//   - what cp.async still copies is read or overwritten;
//   - a shuffle from a lane that does not take part, lanes of a mask that never
//     come, barriers that not all threads reach, or at different places;
//   - a loop without an end.
//
// Arithmetic is that of the PTX manual: rounding, subnormals, saturation and
// canonical NaNs. The result of an approximate instruction (ex2.approx, rcp.approx,
// div.approx) differs from the rounded one by up to the manual's error, by a
// fixed function of the operand, because no code may depend on its last bits.
// mma.sync adds products one by one in float32, in the order of k; the hardware's
// order and rounding are not documented.
//
// Instructions are those that NVRTC makes of Mezzo's kernels and package ptx
// writes; any other is an error that names it. Not modelled: time, caches, weak
// memory between blocks, and the compiler of the driver, which may contract
// multiplications and additions without .rn.
package simt
