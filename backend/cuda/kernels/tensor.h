// What tiles are made with: copies into shared memory that a thread does not
// wait for, and the multiplication of small matrices by a warp on Tensor
// Cores. Both need compute capability 8.0; before that copies go through
// registers. PTX ISA 7.8, "cp.async", "ldmatrix" and "mma".

#if defined(EMU) || __CUDA_ARCH__ >= 800
#define TENSOR_CORES 1
#endif

struct alignas(8) Bytes8 { u32 x[2]; };

#ifdef EMU

typedef u8 *Shared; // an address in shared memory
INLINE Shared shared_address(void *p) { return (u8 *)p; }
// copy_async copies N bytes, or makes them zeros; both addresses are multiples
// of N.
template <int N> INLINE void copy_async(Shared to, const void *from, bool there) {
	if ((u64)to % N || (there && (u64)from % N)) emu::fail("copy_async of an address that is not aligned");
	emu::copy_async(to, from, N, there);
}
INLINE void copy_commit() { emu::copy_commit(); }
// copy_wait waits until no more than the N last groups of copies are under way.
template <int N> INLINE void copy_wait() { emu::copy_wait(N); }

// ldmatrix loads four matrices of 8 by 8 elements of 16 bits. Lane 8j+i gives
// the address of row i of matrix j, and gets elements 2(l%4) and 2(l%4)+1 of row
// l/4 of each; transposed, those of column l/4.
template <bool TRANSPOSED> INLINE void ldmatrix(u32 r[4], Shared row) {
	if ((u64)row % 16) emu::fail("ldmatrix of an address that is not aligned");
	u8 *const *rows = (u8 *const *)emu::publish(&row, sizeof row);
	const int lane = emu::lane();
	for (int j = 0; j < 4; j++) {
		u16 e[2];
		for (int h = 0; h < 2; h++) {
			const int i = TRANSPOSED ? lane % 4 * 2 + h : lane / 4, c = TRANSPOSED ? lane / 4 : lane % 4 * 2 + h;
			memcpy(&e[h], *(u8 *const *)((const char *)rows + (8 * j + i) * emu::BOARD) + 2 * c, 2);
		}
		r[j] = e[0] | (u32)e[1] << 16;
	}
}

INLINE float low_of(f16, u32 r) { return half_to_float((u16)r); }
INLINE float low_of(bf16, u32 r) { return bfloat_to_float((u16)r); }
struct Fragments { float a[8], b[4]; };
// multiply is the host's mma: K is 16 for pairs of 16 bits and 8 for float32. Each
// lane has two rows of a and two columns of b, and sums their products in order.
template <int K> INLINE void multiply(float c[4], const Fragments &mine) {
	const char *board = emu::publish(&mine, sizeof mine);
	constexpr int PAIR = K / 8;
	const int row = emu::lane() / 4, column = emu::lane() % 4 * 2;
	typedef float Four __attribute__((vector_size(16))); // of row e/2 and column e%2
	Four a[K], b[K], sum;
	for (int l = 0; l < 4; l++) { // the lanes of a row, and of a column
		const Fragments &fa = *(const Fragments *)(board + (row * 4 + l) * emu::BOARD);
		const Fragments &left = *(const Fragments *)(board + (column * 4 + l) * emu::BOARD);
		const Fragments &right = *(const Fragments *)(board + (column * 4 + 4 + l) * emu::BOARD);
		for (int half = 0; half < 2; half++)
			for (int j = 0; j < PAIR; j++) {
				const int i = (half * 4 + l) * PAIR + j;
				const float first = fa.a[2 * half * PAIR + j], second = fa.a[(1 + 2 * half) * PAIR + j];
				a[i] = Four{first, first, second, second};
				b[i] = Four{left.b[half * PAIR + j], right.b[half * PAIR + j], left.b[half * PAIR + j], right.b[half * PAIR + j]};
			}
	}
	memcpy(&sum, c, sizeof sum);
	for (int i = 0; i < K; i++) sum += a[i] * b[i];
	memcpy(c, &sum, sizeof sum);
}
template <class T> INLINE void mma16(T, float c[4], const u32 a[4], const u32 b[2]) {
	Fragments f;
	for (int i = 0; i < 4; i++) f.a[2 * i] = low_of(T(), a[i]), f.a[2 * i + 1] = low_of(T(), a[i] >> 16);
	for (int i = 0; i < 2; i++) f.b[2 * i] = low_of(T(), b[i]), f.b[2 * i + 1] = low_of(T(), b[i] >> 16);
	multiply<16>(c, f);
}
INLINE void mma8(float c[4], const u32 a[4], const u32 b[2]) {
	Fragments f = {};
	for (int i = 0; i < 4; i++) f.a[i] = float_of(a[i]);
	for (int i = 0; i < 2; i++) f.b[i] = float_of(b[i]);
	multiply<8>(c, f);
}
// tf32 rounds to 10 bits of mantissa, ties away from zero.
INLINE u32 tf32(u32 u) { return (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & ~0x1fffu; }
INLINE u32 load_shared(Shared p) { return *(u32 *)p; }

#else

typedef u32 Shared;
INLINE Shared shared_address(void *p) {
	u32 a;
	asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
	return a;
}

#ifdef TENSOR_CORES

template <int N> INLINE void copy_async(Shared to, const void *from, bool there) {
	const int n = there ? N : 0;
	if (N == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n) : "memory");
	else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(N), "r"(n) : "memory");
}
INLINE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> INLINE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

template <bool TRANSPOSED> INLINE void ldmatrix(u32 r[4], Shared row) {
	if (TRANSPOSED) asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
	else asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
#define MMA(SHAPE) asm volatile("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
INLINE void mma16(f16, float c[4], const u32 a[4], const u32 b[2]) { MMA("m16n8k16.row.col.f32.f16.f16.f32") }
INLINE void mma16(bf16, float c[4], const u32 a[4], const u32 b[2]) { MMA("m16n8k16.row.col.f32.bf16.bf16.f32") }
INLINE void mma8(float c[4], const u32 a[4], const u32 b[2]) { MMA("m16n8k8.row.col.f32.tf32.tf32.f32") }
INLINE u32 tf32(u32 u) {
	asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(float_of(u)));
	return u;
}
INLINE u32 load_shared(Shared p) {
	u32 v;
	asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(p) : "memory");
	return v;
}

#else

template <int N> INLINE void copy_async(Shared to, const void *from, bool there) {
	u32 x = 0, y = 0, z = 0, w = 0;
	if (N == 16) {
		if (there) { const Bytes16 v = *(const Bytes16 *)from; x = v.x[0], y = v.x[1], z = v.x[2], w = v.x[3]; }
		asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
	} else if (N == 8) {
		if (there) { const Bytes8 v = *(const Bytes8 *)from; x = v.x[0], y = v.x[1]; }
		asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(x), "r"(y) : "memory");
	} else {
		if (there) x = *(const u32 *)from;
		asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
	}
}
INLINE void copy_commit() {}
template <int N> INLINE void copy_wait() {}

#endif
#endif

// copy_two copies two bytes, which no copy_async does.
INLINE void copy_two(Shared to, const void *from, bool there) {
	const u16 v = there ? *(const u16 *)from : (u16)0;
#ifdef EMU
	memcpy(to, &v, 2);
#else
	asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(v) : "memory");
#endif
}
