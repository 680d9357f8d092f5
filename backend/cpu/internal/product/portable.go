package product

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// matmul is a blocked matrix product after Goto and van de Geijn, "Anatomy of high-performance
// matrix multiplication" (2008). The result is cut into tiles. A worker takes a tile, goes
// through the inner dimension in steps, and for each step packs a block of both operands into
// panels in the layout of the micro-kernel: converted to the lane type, transposed if
// necessary, padded with zeros.
//
// The sums of a step are computed in registers and added to a tile of accumulators, which is
// rounded to the result's type once, at the end. The length of a step depends on the inner
// dimension alone, so each element has a fixed order of additions.
type matmul[T lanes.Real] struct {
	m, n, k int
	batches int
	step    int // of the inner dimension
	tileM   int
	tileN   int
	tiles   [2]int // tiles down, across
	kernel  *microKernel[T]

	a, b  matrix
	out   int
	to    dtype.DType
	after *elementwise.Epilogue // or nil
}

// microKernel computes c += Σ a·b over k: the panel a has rows elements for each k, the panel
// b has cols elements, and c is a tile whose rows are ld elements apart.
type microKernel[T lanes.Real] struct {
	rows, cols int
	run        func(k int, a, b, c []T, ld int)
}

var (
	kernelF32 = &microKernel[float32]{2, 4, kernel2x4[float32]}
	kernelF64 = &microKernel[float64]{2, 4, kernel2x4[float64]}
)

const (
	maxStep = 256 // a panel of the second operand stays in L1
	maxTile = 256
)

func makeMatMul[T lanes.Real](b *exec.Builder, v *ir.Value, mk *microKernel[T]) exec.Kernel {
	d := productDims(b, v)
	k := &matmul[T]{
		m: d.m, n: d.n, k: d.k, batches: d.batches,
		kernel: mk, out: b.At(v), to: v.Type.DType, a: d.a, b: d.b,
	}
	steps := max(1, (k.k+maxStep-1)/maxStep)
	k.step = max(1, (k.k+steps-1)/steps)
	k.tile()
	scratch := lanes.SizeOf[T]() * (k.tileM*k.step + k.step*k.tileN + k.tileM*k.tileN + max(k.step, k.tileM, k.tileN))
	b.ReserveScratch(scratch)
	if k.after = elementwise.NewEpilogue(b, v, 2, k.n); k.after != nil {
		k.after.Place(b, scratch, k.tileN)
	}
	return k
}

// tile decides the tiles: large enough to pay for packing, small enough that there are several
// for each worker of a large machine, if there is enough work.
func (k *matmul[T]) tile() {
	up := func(n, to int) int { return (n + to - 1) / to * to }
	mr, nr := k.kernel.rows, k.kernel.cols
	k.tileM, k.tileN = min(maxTile, up(max(k.m, 1), mr)), min(maxTile, up(max(k.n, 1), nr))
	const least = 1 << 17 // multiplications that make a tile worth while
	count := func() int { return (k.m + k.tileM - 1) / k.tileM * ((k.n + k.tileN - 1) / k.tileN) }
	for count()*k.batches < 16 && k.tileM*k.tileN*k.k >= 2*least {
		if k.tileM > k.tileN {
			k.tileM = up(k.tileM/2, mr)
		} else {
			k.tileN = up(k.tileN/2, nr)
		}
		if k.tileM <= 4*mr && k.tileN <= 4*nr {
			break
		}
	}
	k.tiles = [2]int{(k.m + k.tileM - 1) / k.tileM, (k.n + k.tileN - 1) / k.tileN}
}

func (k *matmul[T]) Run(r *exec.Run) {
	n := k.batches * k.tiles[0] * k.tiles[1]
	r.Parallel(k, n, k.batches*k.m*k.n*max(k.k, 1))
}

func (k *matmul[T]) Chunk(r *exec.Run, w *exec.Worker, i int) {
	across := i % k.tiles[1]
	down := i / k.tiles[1] % k.tiles[0]
	batch := i / (k.tiles[1] * k.tiles[0])
	row, col := down*k.tileM, across*k.tileN
	rows, cols := min(k.tileM, k.m-row), min(k.tileN, k.n-col)

	scratch := w.Scratch
	take := func(n int) []T {
		s := lanes.ViewOf[T](scratch, n)
		scratch = scratch[n*lanes.SizeOf[T]():]
		return s
	}
	c := take(k.tileM * k.tileN)
	pa, pb := take(k.tileM*k.step), take(k.step*k.tileN)
	conv := take(max(k.step, k.tileM, k.tileN))
	clear(c)

	a, b := r.Values[k.a.pos], r.Values[k.b.pos]
	mr, nr := k.kernel.rows, k.kernel.cols
	for p := 0; p < k.k; p += k.step {
		depth := min(k.step, k.k-p)
		// Rows of the first operand and columns of the second are the lanes.
		pack(pa, a, &k.a, k.a.starts[batch], row, rows, p, depth, mr, k.a.trans, conv)
		if k.m <= min(2, mr) {
			k.thin(c, pa, pb, b, k.b.starts[batch], col, cols, p, depth, conv)
			continue
		}
		pack(pb, b, &k.b, k.b.starts[batch], col, cols, p, depth, nr, !k.b.trans, conv)
		for j := 0; j < cols; j += nr {
			panel := pb[j*depth : (j+nr)*depth]
			for i := 0; i < rows; i += mr {
				k.kernel.run(depth, pa[i*depth:(i+mr)*depth], panel, c[i*k.tileN+j:], k.tileN)
			}
		}
	}
	if k.after != nil {
		k.storeEpilogue(r, w, c, batch*k.m+row, col, rows, cols)
		return
	}
	size := k.to.Size()
	out := r.Values[k.out][(batch*k.m*k.n+row*k.n+col)*size:]
	for i := range rows {
		lanes.StoreReal(out[i*k.n*size:][:cols*size], c[i*k.tileN:][:cols], k.to)
	}
}

// storeEpilogue stores the accumulators c of a tile through the epilogue.
func (k *matmul[T]) storeEpilogue(r *exec.Run, w *exec.Worker, c []T, row, col, rows, cols int) {
	e := k.after
	strip, size := e.Strip(cols), e.Operands[0].DType.Size()
	for i := 0; i < rows; i += strip {
		n := min(strip, rows-i)
		product := e.Rows(w, n*cols)
		for j := range n {
			elementwise.PutProduct(e, product[j*cols*size:][:cols*size], c[(i+j)*k.tileN:][:cols])
		}
		e.Apply(r, w, (row+i)*k.n+col, n*cols, k.tileN, product)
	}
}

// pack packs rows or columns [first, first+count) of a matrix, for depth elements of the inner
// dimension from p on, in panels of width lanes: indexed by panel, inner dimension, lane. It
// packs columns of the stored matrix if across is set, else rows. The unused lanes of the last
// panel are zero.
func pack[T lanes.Real](dst []T, data []byte, m *matrix, start, first, count, p, depth, width int, across bool, conv []T) {
	panels := (count + width - 1) / width
	if count%width != 0 {
		clear(dst[(panels-1)*width*depth : panels*width*depth])
	}
	size := m.dtype.Size()
	if across {
		for i := range depth {
			at := (start + (p+i)*m.stride + first) * size
			src := lanes.RealView(data[at:at+count*size], m.dtype, conv)
			to := dst[i*width:]
			for len(src) > width {
				copy(to[:width], src)
				src, to = src[width:], to[width*depth:]
			}
			copy(to, src)
		}
		return
	}
	for lane := range count {
		at := (start + (first+lane)*m.stride + p) * size
		src := lanes.RealView(data[at:at+depth*size], m.dtype, conv)
		to := dst[lane/width*width*depth+lane%width:]
		to = to[:(len(src)-1)*width+1]
		for i, x := range src {
			to[i*width] = x
		}
	}
}

// kernel2x4 is the portable micro-kernel: eight accumulators leave registers for the operands
// on every processor, and two steps at a time halve the cost of the loop.
func kernel2x4[T lanes.Real](k int, a, b, c []T, ld int) {
	var c00, c01, c02, c03, c10, c11, c12, c13 T
	a, b = a[:2*k], b[:4*k]
	for len(a) >= 4 && len(b) >= 8 {
		p, q := (*[4]T)(a), (*[8]T)(b)
		x, y := p[0], p[1]
		z := q[0]
		c00 += T(x * z)
		c10 += T(y * z)
		z = q[1]
		c01 += T(x * z)
		c11 += T(y * z)
		z = q[2]
		c02 += T(x * z)
		c12 += T(y * z)
		z = q[3]
		c03 += T(x * z)
		c13 += T(y * z)
		x, y = p[2], p[3]
		z = q[4]
		c00 += T(x * z)
		c10 += T(y * z)
		z = q[5]
		c01 += T(x * z)
		c11 += T(y * z)
		z = q[6]
		c02 += T(x * z)
		c12 += T(y * z)
		z = q[7]
		c03 += T(x * z)
		c13 += T(y * z)
		a, b = a[4:], b[8:]
	}
	if len(a) >= 2 && len(b) >= 4 {
		x, y := a[0], a[1]
		c00 += T(x * b[0])
		c10 += T(y * b[0])
		c01 += T(x * b[1])
		c11 += T(y * b[1])
		c02 += T(x * b[2])
		c12 += T(y * b[2])
		c03 += T(x * b[3])
		c13 += T(y * b[3])
	}
	add4(c, c00, c01, c02, c03)
	add4(c[ld:], c10, c11, c12, c13)
}

func add4[T lanes.Real](c []T, x0, x1, x2, x3 T) {
	c = c[:4]
	c[0] += x0
	c[1] += x1
	c[2] += x2
	c[3] += x3
}

// thin adds to c the product of one or two packed rows with a block of the second operand in
// place: packing the block would take longer than the product. The sums are in the order of
// the micro-kernel's; sums has room for a row of them.
func (k *matmul[T]) thin(c, pa, sums []T, data []byte, start, col, cols, p, depth int, conv []T) {
	size, width := k.b.dtype.Size(), k.kernel.rows
	for row := range k.m {
		sums := sums[:cols]
		clear(sums)
		if !k.b.trans {
			for i := range depth {
				at := (start + (p+i)*k.b.stride + col) * size
				x := pa[i*width+row]
				for j, y := range lanes.RealView(data[at:at+cols*size], k.b.dtype, conv) {
					sums[j] += T(x * y)
				}
			}
		} else {
			for j := range sums {
				at := (start + (col+j)*k.b.stride + p) * size
				sum := T(0)
				for i, y := range lanes.RealView(data[at:at+depth*size], k.b.dtype, conv) {
					sum += T(pa[i*width+row] * y)
				}
				sums[j] = sum
			}
		}
		for j, x := range sums {
			c[row*k.tileN+j] += x
		}
	}
}
