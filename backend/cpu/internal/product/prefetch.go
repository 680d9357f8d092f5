package product

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// While a panel of the result is computed, micro-kernels prefetch to L2 the memory that is
// needed next: the next panel of the second operand, and the operands and the result of an
// epilogue. The hardware prefetcher does not find these: rows are a few cache lines long and
// far apart.

// prefetches lists the memory that is needed after the panel of tile t that begins with its
// column j, for depth steps of the inner dimension from p on: the next panel of B, if B is
// shared or is being packed, and the memory of the epilogue.
func (k *stripe) prefetches(f *exec.PrefetchList, r *exec.Run, t Tile, batch, j, p, depth int, packs bool) {
	f.N, f.Next = 0, 0
	nr, col := k.tiles.NR, t.Col+j+k.tiles.NR
	switch b := &k.b; {
	case k.Pack.B >= BShared && j+nr < t.Cols:
		panel := 4 * nr * k.cells(k.k)
		at := ((t.Col-k.col+j)/nr+1)*panel + 4*nr*k.cells(p)
		stride := exec.PrefetchPiece
		if tiling.CeilDiv(t.Rows, k.tiles.MR) >= 8 {
			stride /= 2
		}
		f.Add(k.sharedB(r), at, stride, 4*nr*k.cells(depth)/stride)
	case packs && col < k.N && b.trans && b.stride == depth:
		f.Add(r.Values[b.pos], (b.starts[batch]+p+col*b.stride)*b.size, exec.PrefetchPiece, min(nr, k.N-col)*depth*b.size/exec.PrefetchPiece)
	case packs && col < k.N && !b.trans:
		f.Add(r.Values[b.pos], (b.starts[batch]+p*b.stride+col)*b.size, b.stride*b.size, depth)
	}
	if k.After != nil && k.Slices.N == 1 {
		k.After.Prefetches(f, r, t.Row*k.N+t.Col+j, k.N, t.Rows)
	}
}
