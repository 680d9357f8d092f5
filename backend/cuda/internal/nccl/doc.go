// Package nccl exchanges memory of GPUs with NVIDIA's NCCL, a library that is loaded
// when there is one: nothing is linked, and no header of it is needed.
//
// Main types: Library is the loaded library, Comm a rank's connection with the others.
package nccl
