// The interpreter of PTX, which is in Go (package simt): tests may set it, and the
// driver then runs all kernels by it.
#ifndef MEZZO_FAKE_INTERPRETER_H
#define MEZZO_FAKE_INTERPRETER_H
#include <stdint.h>

typedef struct {
	void *start;
	uint64_t bytes;
} mezzo_fake_memory;

typedef struct {
	uint64_t module;
	char *name;
	uint32_t grid[3], block[3], shared;
	uint64_t *parameters;
	int count;
	uint64_t generation; // of the allocations: equal ones are the same
	mezzo_fake_memory *memory; // by address
	int allocations;
	uint64_t instructions, swaps; // results
} mezzo_fake_launch;

// The functions return a CUresult.
typedef struct {
	int (*load)(char *text, uint64_t *module);
	void (*unload)(uint64_t module);
	int (*run)(mezzo_fake_launch *);
} mezzo_fake_interpreter;

#endif
