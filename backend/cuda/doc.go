// Package cuda is the device "cuda": NVIDIA GPUs of compute capability 7.0 and
// newer, through gorgonia.org/cu. It exists in programs built with the tag
// cuda for Linux on x86-64, which needs a C compiler and cuda.h; such a program
// starts on every machine, and says in the error of backend.Open("cuda") why
// there is no device.
//
// Main types: Device opens and compiles, Buffer is memory of the GPU,
// Program is a compiled plan: a list of kernel calls on fixed addresses.
//
// Rules:
//
//   - Element-wise chains are kernels that package ptx writes, everything else
//     are those of package kernels.
//   - From the second run with the same buffers on, a run is the launch of a
//     captured graph.
//   - Reductions have a fixed tree and no atomic addition of floats: the same
//     bits on every run.
//   - 16-bit floats are computed on as float32 and rounded once.
//   - Kernels from Graph.Commit on do nothing once an index has been found out
//     of range: a run that fails has changed no input.
package cuda
