package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// vectorProduct is a product of one row, or one column, with a matrix. Each
// element of the matrix is used once, so that reading it is all that counts:
// it is neither packed nor converted beforehand, and goes through the caches
// from end to end.
//
// The embedded product is that of a row by the matrix B of n columns, which is
// what a column becomes when both operands are transposed. A stored matrix
// whose rows run along the inner dimension gives a result for each row. Of
// another, whole rows are added up; slices of the inner dimension make sums
// that are added up at the end.
type vectorProduct struct {
	*product
	vector, matrix operandOf
	width          int // results of a chunk
	atX            int // where the scratch memory has the vector as float32
}

const (
	vectorBytes = 1 << 17 // of the matrix, for a chunk at least
	mostVector  = 1 << 16 // elements of a row: routines are not to take long
	sumCols     = 512     // of a chunk that adds up the sums of slices
	sumWidth    = 4096    // sums that stay in the first cache
)

// newVectorProduct makes the kernel of such a product, or nil.
func newVectorProduct(b *exec.Builder, v *ir.Value, set *gemm.Set, d *dims) exec.Kernel {
	if set.Dots[gemm.F32] == nil || d.batches != 1 || d.k == 0 || d.k > mostVector || d.m*d.n == 0 || d.m != 1 && d.n != 1 {
		return nil
	}
	vector, matrix, n := d.a, d.b, d.n
	if d.n == 1 {
		vector, matrix, n = d.b, d.a, d.m
		matrix.trans = !matrix.trans
	}
	if n == 1 && !matrix.trans {
		matrix.trans, matrix.stride = true, d.k // a column is a row, too
	}
	element := elementOf[matrix.dtype]
	k := &vectorProduct{
		product: &product{m: 1, n: n, k: d.k, batches: 1, slices: 1, set: set, out: b.At(v), to: v.Type.DType},
		vector:  operandOf{matrix: vector, element: element, size: element.Size()},
		matrix:  operandOf{matrix: matrix, element: element, size: element.Size()},
	}
	k.cutVector()
	k.atX = tiling.RoundUp(4*max(k.width, k.tileN), ir.Align)
	k.scratch = k.atX
	if element != gemm.F32 {
		k.scratch += 4 * k.k
	}
	b.ReserveScratch(k.scratch)
	k.store = k.convert
	if k.after = newEpilogue(b, v, 2, n); k.after != nil {
		k.store = k.storeEpilogue
		k.after.place(b, k.scratch, max(k.width, k.tileN))
	}
	if k.slices > 1 {
		k.sums.init(k.product)
		b.ReserveShared(k.slices * k.partBytes())
	}
	return k
}

// cutVector chooses chunks.
func (k *vectorProduct) cutVector() {
	size := k.matrix.size
	if k.matrix.trans {
		k.width = min(mostCols, tiling.RoundUp(max(16, vectorBytes/(k.k*size)), 4))
	} else {
		k.width = tiling.Even(k.n, sumWidth, 64)
		across := tiling.CeilDiv(k.n, k.width)
		parts := max(1, min(tiling.CeilDiv(tiling.MinChunks, across), k.k*k.width*size/vectorBytes))
		k.sliceK = tiling.RoundUp(tiling.CeilDiv(k.k, parts), 4)
		k.slices = tiling.CeilDiv(k.k, k.sliceK)
	}
	k.tileN = min(k.width, sumCols)
	if k.slices == 1 {
		k.sliceK, k.tileN = k.k, k.width
	}
	k.partLead = 4*tiling.RoundUp(k.n, 16) + rowPad
}

func (k *vectorProduct) Run(r *exec.Run) {
	r.Parallel(k, tiling.CeilDiv(k.n, k.width)*k.slices, k.n*k.k/8)
	if k.slices > 1 {
		r.Parallel(&k.sums, k.sums.chunks(), k.slices*k.n)
	}
}

// Chunk computes some of the results, or a slice's part of them.
func (k *vectorProduct) Chunk(r *exec.Run, w *exec.Worker, i int) {
	m, size := &k.matrix, k.matrix.size
	slice := i % k.slices
	t := resultTile{col: i / k.slices * k.width, rows: 1, lead: 4 * k.width, data: unsafe.Pointer(&w.Scratch[0])}
	t.cols = min(k.width, k.n-t.col)
	if k.slices > 1 {
		t.data = unsafe.Pointer(&r.Shared[slice*k.partBytes()+4*t.col])
	}
	first, end := slice*k.sliceK, min(k.k, (slice+1)*k.sliceK)
	x := unsafe.Pointer(&r.Values[k.vector.pos][(k.vector.starts[0]+first)*size])
	if m.element != gemm.F32 {
		wide := unsafe.Pointer(&w.Scratch[k.atX])
		k.set.Widen[m.element](wide, x, end-first)
		x = wide
	}
	s, lds := unsafe.Pointer(&r.Values[m.pos][m.starts[0]*size]), m.stride*size
	if m.trans {
		dots := k.set.Dots[m.element]
		for j := 0; j < t.cols; j += 4 {
			dots(unsafe.Add(t.data, 4*j), x, unsafe.Add(s, (t.col+j)*lds), lds, min(4, t.cols-j), k.k)
		}
	} else {
		clear(t.at(0))
		adds := k.set.Adds[m.element]
		for p := first; p < end; p += 4 {
			adds(t.data, unsafe.Add(x, 4*(p-first)), unsafe.Add(s, p*lds+t.col*size), lds, min(4, end-p), t.cols)
		}
	}
	if k.slices == 1 {
		k.store(r, w, t)
	}
}
