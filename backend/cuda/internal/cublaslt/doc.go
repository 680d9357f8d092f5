// Package cublaslt multiplies matrices with NVIDIA's cublasLt, a library that
// is loaded when there is one: nothing is linked, and no header of it is
// needed.
//
// Main types: Library is the loaded library, Handle what it holds for a
// device, Problem a product of matrices, Matmul how it is computed.
package cublaslt
