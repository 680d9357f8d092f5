#include "emu.h"
#undef blockIdx
#undef blockDim
#undef gridDim
#undef threadIdx

namespace emu {

Block block;
uint64_t indices, swaps;

// emu_switch saves the registers that functions keep and goes on elsewhere.
asm(R"(
	.text
	.globl emu_switch
	.type emu_switch, @function
emu_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
)");

void fail(const char *what) {
	fprintf(stderr, "fakecuda: %s\n", what);
	exit(77);
}

static void fiber_main() {
	for (;;) {
		block.entry(block.parameters);
		block.fibers[block.current].state = DONE;
		block.live--;
		Warp &w = block.warps[block.current / 32];
		w.live--;
		if (w.live && w.arrived >= w.live) {
			w.arrived = 0;
			w.generation++;
		}
		yield();
	}
}

static const size_t STACK = 64 << 10;

static void reset(Fiber &f) {
	void **top = (void **)(((uintptr_t)f.stack + STACK) & ~(uintptr_t)15);
	*--top = 0;
	*--top = (void *)fiber_main;
	for (int i = 0; i < 6; i++) *--top = 0;
	f.sp = top;
	f.state = READY;
	f.copies.clear();
	f.group = 0;
}

// permuted is the thread that comes k-th.
static int permuted(int k, int n) {
	static const char *setting = getenv("FAKECUDA_ORDER");
	static const int order = setting ? atoi(setting) : 0;
	if (order == 1) return n - 1 - k;
	if (order == 2 && n % 7919) return (int)(((uint64_t)k * 7919 + 13) % n);
	return k;
}

static int run_block(int n) {
	while (block.live) {
		bool ran = false;
		for (int k = 0; k < n; k++) {
			int i = permuted(k, n);
			Fiber &f = block.fibers[i];
			if (f.state == WARP_BARRIER && block.warps[i / 32].generation != f.generation) f.state = READY;
			if (f.state != READY) continue;
			ran = true;
			block.current = i;
			emu_switch(&block.main_sp, f.sp);
		}
		if (ran || !block.live) continue;
		if (block.waiting != block.live) {
			fprintf(stderr, "fakecuda: deadlock: of %d threads %d wait at __syncthreads, others elsewhere\n", block.live, block.waiting);
			return 719; // CUDA_ERROR_LAUNCH_FAILED
		}
		block.waiting = 0;
		for (int i = 0; i < n; i++)
			if (block.fibers[i].state == BLOCK_BARRIER) block.fibers[i].state = READY;
	}
	return 0;
}

int launch(void (*entry)(void **), void **parameters, dim3 grid, dim3 dims, unsigned shared) {
	int n = dims.x * dims.y * dims.z;
	static std::vector<char> dynamic;
	dynamic.resize(shared + 64);
	block.entry = entry;
	block.parameters = parameters;
	block.bdim = dims;
	block.gdim = grid;
	block.dynamic = (char *)(((uintptr_t)dynamic.data() + 63) & ~(uintptr_t)63);
	while ((int)block.fibers.size() < n) block.fibers.push_back({nullptr, (char *)malloc(STACK), {}, DONE, 0});
	block.warps.assign((n + 31) / 32, Warp());
	for (unsigned z = 0; z < grid.z; z++)
		for (unsigned y = 0; y < grid.y; y++)
			for (unsigned x = 0; x < grid.x; x++) {
				block.bid = {x, y, z};
				memset(block.dynamic, 0xCB, shared);
				for (Warp &w : block.warps) w.arrived = w.live = 0;
				for (int i = 0; i < n; i++) {
					Fiber &f = block.fibers[i];
					f.tid = {i % dims.x, i / dims.x % dims.y, i / (dims.x * dims.y)};
					block.warps[i / 32].live++;
					reset(f);
				}
				block.live = n;
				block.waiting = 0;
				if (int e = run_block(n)) return e;
			}
	return 0;
}

} // namespace emu
