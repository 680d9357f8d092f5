// CUDA's model of threads on a host, for tests: the sources of kernels are
// compiled as C++ with this file included first. A block's threads are fibers;
// __syncthreads and shuffles are real barriers; shared memory is poisoned, and
// a barrier that not all threads reach is reported. FAKECUDA_ORDER (0, 1 or 2)
// says in which order threads run.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

struct dim3 {
	unsigned x = 1, y = 1, z = 1;
};

#define EMU 1
#define __global__
#define __device__
#define __host__
#define __restrict__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

namespace emu {

enum State { READY, BLOCK_BARRIER, WARP_BARRIER, DONE };

// Copy is a copy_async that has not been waited for.
struct Copy {
	void *to;
	const void *from;
	size_t bytes;
	bool there;
	unsigned group;
};

struct Fiber {
	void *sp;
	char *stack;
	dim3 tid;
	State state;
	unsigned generation;
	std::vector<Copy> copies; // under way
	unsigned group; // of copies begun now
};

struct Warp {
	unsigned arrived = 0, generation = 0, live = 0;
	uint64_t slot[2][32];
	alignas(16) char board[2][32 * 64];
};

// Block is the block that runs, one at a time.
struct Block {
	std::vector<Fiber> fibers;
	std::vector<Warp> warps;
	void *main_sp;
	int current, live, waiting;
	dim3 bid, bdim, gdim;
	char *dynamic;
	void (*entry)(void **);
	void **parameters;
};

extern Block block;
extern uint64_t indices, swaps; // read by the kernel that runs, see move.cu; its atomicCAS
extern "C" void emu_switch(void **save, void *to);

inline void yield() { emu_switch(&block.fibers[block.current].sp, block.main_sp); }

inline void block_barrier() {
	block.fibers[block.current].state = BLOCK_BARRIER;
	block.waiting++;
	yield();
}

inline void warp_barrier() {
	Fiber &f = block.fibers[block.current];
	Warp &w = block.warps[block.current / 32];
	f.generation = w.generation;
	if (++w.arrived >= w.live) {
		w.arrived = 0;
		w.generation++;
		return;
	}
	f.state = WARP_BARRIER;
	yield();
}

template <class T> inline T exchange(T v, int source) {
	Warp &w = block.warps[block.current / 32];
	unsigned phase = w.generation & 1;
	uint64_t b = 0;
	memcpy(&b, &v, sizeof(T));
	w.slot[phase][block.current % 32] = b;
	warp_barrier();
	T r;
	memcpy(&r, &w.slot[phase][source & 31], sizeof(T));
	return r;
}

inline int lane() { return block.current % 32; }

// fail ends the program: a kernel did what a GPU does not allow.
void fail(const char *what);

// publish shows up to BOARD bytes of each lane to all lanes of a warp, until
// they publish something else.
enum { BOARD = 64 };
inline const char *publish(const void *v, size_t n) {
	Warp &w = block.warps[block.current / 32];
	char *board = w.board[w.generation & 1];
	memcpy(board + lane() * BOARD, v, n);
	warp_barrier();
	return board;
}

// Copies into shared memory are made when they are waited for, so that a kernel
// that does not wait reads what was there before.
inline void copy_async(void *to, const void *from, size_t bytes, bool there) {
	Fiber &f = block.fibers[block.current];
	f.copies.push_back({to, from, bytes, there, f.group});
}
inline void copy_commit() { block.fibers[block.current].group++; }
inline void copy_wait(unsigned pending) {
	Fiber &f = block.fibers[block.current];
	size_t n = 0;
	for (; n < f.copies.size() && f.copies[n].group + pending < f.group; n++) {
		const Copy &c = f.copies[n];
		if (c.there) memcpy(c.to, c.from, c.bytes);
		else memset(c.to, 0, c.bytes);
	}
	f.copies.erase(f.copies.begin(), f.copies.begin() + n);
}

// launch runs a kernel; entry calls it with parameters for the current thread.
// It returns a CUresult.
int launch(void (*entry)(void **), void **parameters, dim3 grid, dim3 block, unsigned shared);

template <class... A, size_t... I> inline void call(void (*k)(A...), void **p, std::index_sequence<I...>) {
	k(*(std::remove_reference_t<A> *)p[I]...);
}

// A kernel compiled for the host.
struct Kernel {
	const char *name;
	size_t parameters;
	int (*run)(void **, dim3, dim3, unsigned);
};

void add(Kernel k);

template <class... A> constexpr size_t count(void (*)(A...)) { return sizeof...(A); }
template <auto K, class... A> void enter_as(void (*)(A...), void **p) {
	static_assert(((sizeof(A) == 8) && ...), "parameters of kernels have 8 bytes");
	call(K, p, std::index_sequence_for<A...>{});
}
template <auto K> void enter(void **p) { enter_as<K>(K, p); }
template <auto K> int run(void **p, dim3 g, dim3 b, unsigned s) { return launch(enter<K>, p, g, b, s); }

struct Adder {
	Adder(Kernel k) { add(k); }
};

} // namespace emu

#define threadIdx (emu::block.fibers[emu::block.current].tid)
#define blockIdx (emu::block.bid)
#define blockDim (emu::block.bdim)
#define gridDim (emu::block.gdim)
#define __syncthreads() emu::block_barrier()
#define __syncwarp(...) emu::warp_barrier()

template <class T> inline T __shfl_xor_sync(unsigned, T v, int m) { return emu::exchange(v, (emu::block.current % 32) ^ m); }
template <class T> inline T __shfl_sync(unsigned, T v, int s) { return emu::exchange(v, s); }
template <class T> inline T __shfl_down_sync(unsigned, T v, int d) {
	int lane = emu::block.current % 32;
	return emu::exchange(v, lane + d < 32 ? lane + d : lane);
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
template <class T> inline T atomicCAS(T *p, T expected, T v) {
	emu::swaps++;
	T old = *p;
	if (old == expected) *p = v;
	return old;
}
template <class T> inline T atomicExch(T *p, T v) {
	T old = *p;
	*p = v;
	return old;
}
inline void __threadfence() {}

// KERNEL makes a kernel known to the fake driver.
#define KERNEL(k) static emu::Adder add_##k({#k, emu::count(k), emu::run<k>});
