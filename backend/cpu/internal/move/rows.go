package move

import (
	"math/bits"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// scatterUpdate is the kernel of ScatterUpdate. A chunk is a range of rows of the
// result and reads all indices, so that the last of equal indices wins.
type scatterUpdate struct {
	indices
	table, rows, dst int
	bytes            int  // of a row
	copies           bool // the result does not overwrite the table
	chunks, part     int
}

func NewScatterUpdate(b *exec.Builder, v *ir.Value) exec.Kernel {
	t := v.Type
	k := &scatterUpdate{
		indices: newIndices(b, v, t.Shape[0]),
		table:   b.At(v.Args[0]), rows: b.At(v.Args[2]), dst: b.At(v),
		bytes:  t.Shape[1:].Size() * t.DType.Size(),
		copies: v.Slot != v.Args[0].Slot,
	}
	k.chunks = min(8, max(1, k.limit))
	k.part = (k.limit + k.chunks - 1) / k.chunks
	return k
}

func (k *scatterUpdate) Run(r *exec.Run) {
	work := k.n * (1 + k.bytes/8)
	if k.copies {
		work += k.limit * k.bytes / 8
	}
	r.Parallel(k, k.chunks, work)
}

func (k *scatterUpdate) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	dst, rows := r.Values[k.dst], r.Values[k.rows]
	lo, hi := min(k.limit, c*k.part), min(k.limit, (c+1)*k.part)
	if k.copies {
		copy(dst[lo*k.bytes:hi*k.bytes], r.Values[k.table][lo*k.bytes:])
	}
	for i := range k.n {
		if at := k.get(r, i); at >= int64(lo) && at < int64(hi) {
			copy(dst[int(at)*k.bytes:(int(at)+1)*k.bytes], rows[i*k.bytes:])
		}
	}
}

// unique is the kernel of Unique, a hash table with open addressing.
type unique struct {
	src, dst, n int
	fill        int64
	wide        bool
	shift       int // from the hash to an index of the table
}

func NewUnique(b *exec.Builder, v *ir.Value) exec.Kernel {
	k := &unique{src: b.At(v.Args[0]), dst: b.At(v), n: v.Type.Shape[1], fill: int64(v.Attr.Padding), wide: v.Type.DType == dtype.Int64}
	// At most half full.
	k.shift = 64 - bits.Len(uint(2*k.n))
	b.ReserveShared(4 << (64 - k.shift))
	return k
}

func (k *unique) Run(r *exec.Run) {
	table := lanes.ViewOf[int32](r.Shared, 1<<(64-k.shift))
	clear(table)
	if k.wide {
		numbered(k, dtype.View[int64](r.Values[k.src]), dtype.View[int64](r.Values[k.dst]), table)
	} else {
		numbered(k, dtype.View[int32](r.Values[k.src]), dtype.View[int32](r.Values[k.dst]), table)
	}
}

// numbered numbers values by first appearance. table holds the numbers plus 1, at the
// values' hashes or after them.
func numbered[T int32 | int64](k *unique, x, dst []T, table []int32) {
	of, distinct := dst[:k.n], dst[k.n:]
	count := 0
	for i, v := range x[:k.n] {
		// Fibonacci hashing spreads consecutive values.
		h := uint64(v) * 0x9E3779B97F4A7C15 >> k.shift
		for table[h] != 0 && distinct[table[h]-1] != v {
			if h++; h == uint64(len(table)) {
				h = 0
			}
		}
		if table[h] == 0 {
			distinct[count] = v
			count++
			table[h] = int32(count)
		}
		of[i] = T(table[h] - 1)
	}
	for i := count; i < k.n; i++ {
		distinct[i] = T(k.fill)
	}
}
