// What ranks exchange with each other: packed into parts, added up in a tree, and
// unpacked. Addresses and places are in tables that are made with the plan.

// Piece is neighbouring elements of an array and where they lie among what is packed: from
// element at on. x is their address, behind that of the parameter other if outside is
// set. Without one, what is packed are zeros.
struct Piece { u64 x; i64 n, type, at, outside; };

// convert stores element j of x as element i of out.
INLINE void convert(void *out, i64 to, i64 i, const void *x, i64 from, i64 j) {
	if (to == FLOAT64 || from == FLOAT64) put(out, to, i, get_as(x, from, j, 0.0));
	else put(out, to, i, get_as(x, from, j, 0.0f));
}

// A block has a piece.
extern "C" __global__ void pieces_pack(void *packed, i64 type, const Piece *table, u64 other) {
	const Piece p = table[blockIdx.x];
	const void *x = (const void *)(p.outside ? p.x + other : p.x);
	for (i64 i = threadIdx.x; i < p.n; i += blockDim.x) {
		if (x) convert(packed, type, p.at + i, x, p.type, i);
		else put(packed, type, p.at + i, 0.0f);
	}
}
KERNEL(pieces_pack)
extern "C" __global__ void pieces_unpack(const void *packed, i64 type, const Piece *table, u64 other) {
	const Piece p = table[blockIdx.x];
	void *x = (void *)(p.outside ? p.x + other : p.x);
	for (i64 i = threadIdx.x; i < p.n; i += blockDim.x) convert(x, p.type, i, packed, type, p.at + i);
}
KERNEL(pieces_unpack)

// Leaf is a row of partial sums: elements from at on of what other ranks have sent, or
// of what this one sends. After it the last two sums are added up, adds times.
struct Leaf { i64 at, own, adds; };

// tree_sum adds up n elements of leaves, wide, multiplies by scale, and rounds once.
template <class T, class W> INLINE void tree_sum(void *out, i64 type, const T *others, const T *own, const Leaf *leaves, i64 count, i64 n, W scale) {
	EACH(i, n) {
		W stack[34]; // of up to 2^33 leaves
		int top = 0;
		for (i64 l = 0; l < count; l++) {
			const Leaf leaf = leaves[l];
			stack[top++] = get(leaf.own ? own : others, leaf.at + i);
			for (i64 a = leaf.adds; a > 0; a--) {
				top--;
				stack[top - 1] += stack[top];
			}
		}
		put(out, type, i, stack[0] * scale);
	}
}
#define TREE_SUM(T, S) \
	extern "C" __global__ void tree_sum_##S(void *out, i64 type, const T *others, const T *own, const Leaf *leaves, i64 count, i64 n, double scale) { \
		tree_sum(out, type, others, own, leaves, count, n, (Wide<T>::type)scale); \
	} \
	KERNEL(tree_sum_##S)
FOR_FLOATS(TREE_SUM)
