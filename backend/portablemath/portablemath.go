// Package portablemath has elementary functions of float64 that return the same bits on
// every processor.
//
// Functions of package math do not: some are assembly on one architecture and Go on
// another, and the compiler fuses x*y + z into one operation where the processor has it.
// The functions here are those of Go's package math, with the same algorithms and errors
// below one unit in the last place or little more. Each product is converted to float64
// explicitly, which by the language's specification keeps the compiler from fusing it.
// Square roots, rounding and conversions are exact in package math.
//
// Whoever computes a number on the host that a model's bits depend on must use these:
// initial weights, constants of optimizers, portable kernels.
package portablemath
