// Package api is the CUDA driver API as Mezzo uses it: gorgonia.org/cu for
// what that offers, a few C functions for pinned memory, graphs and lists of
// launches, and the functions of libcuda.so.1 resolved at run time.
//
// Nothing of it is linked to a library of NVIDIA: a program built with the tag
// cuda starts everywhere, and [Open] says why there is no device. To build
// needs a C compiler and cuda.h of CUDA 11.8 or 12 (CUDA 13: through the
// directory compat13, CGO_CFLAGS=-I.../compat13).
//
// There is no thread of its own: who calls locks the goroutine to its thread
// and makes the device's context current, which is what [Device.Do] does.
package api
