// An interpreter of the PTX that package ptx writes: straight code, jumps,
// loads and stores, and calls of functions that exist on the host.
#pragma once

#include "emu.h"

#include <map>
#include <string>
#include <vector>

namespace ptx {

struct Operand {
	int slot = -1; // a register; -1: the constant
	uint64_t value = 0;
};

struct Instruction {
	std::string text; // for errors
	std::vector<std::string> op; // "setp", "lt", "u32"
	int guard = -1; // register of the condition
	bool unless = false;
	std::vector<Operand> args;
	int slot[6]; // of the arguments; constants have slots behind the registers
	std::string name; // of the function called, or the label jumped to
	int target = -1;
	int kind = 0;
	int type = 0, from = 0; // the last two parts of op: of a conversion, its source and its result
	int how = 0; // of a comparison
	int rounding = 0;
	int width = 1; // elements of a load or store
	bool saturate = false;
};

struct Entry {
	std::string name;
	std::vector<std::string> parameters;
	std::vector<Instruction> code;
	int slots = 0; // of registers
	std::vector<uint64_t> constants = {0}; // in the slots behind these; absent arguments are the first
};

// parse reads the kernels of a module. On failure error says why.
bool parse(const char *text, std::map<std::string, Entry> &entries, std::string &error);

// run runs a kernel; it returns a CUresult.
int run(const Entry &e, void **parameters, dim3 grid, dim3 block);

} // namespace ptx
