package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// wgradGEMM is the gradient of a convolution by its kernels (wgrad) on the micro-kernels of
// package gemm. For each element of the window it is a product over all pixels: of the
// transposed input, shifted by the element, with the result's gradient.
//
// Pixels are cut into blocks of rows. The input of a block is copied so that its pixels have
// the order of the gradient's. If channels are few, an element of the window has few rows of a
// tile; then the elements of a row of the window, which are adjacent in the input, make one
// tile, and a block is computed pixel row by pixel row.
//
// The blocks are distributed, by their index, over a fixed number of partial sums, each
// computed by one worker. The partial sums are added up in order at the end.
type wgradGEMM struct {
	convolution
	bf16Split
	set    *gemm.Set
	tiles  *gemm.Tiles
	stored gemm.Element // of operands
	direct bool         // blocks are computed pixel row by pixel row
	perTap bool         // the input is copied for each element of the window, else for each column of the window

	block  int // rows of a block
	blocks int
	sums   int
	parts  int // of the columns; each is a task
	width  int // columns of a group's sums, padded
	panels int // of a group
	finish addSums
	base   int // offset of the partial sums in shared memory

	plus                 func(dst, a, b []float32)
	tapRows              int // rows of an element of the window in a group's sums, padded
	atA, atPairs, atB    int // offsets in scratch memory
	boxRows, boxCols     int // of the copied input, if it is computed row by row
	stageRows            int // rows copied at a time, otherwise
	panelBytes, sumBytes int
}

// addSums is the task that adds up the partial sums of a row of the result.
type addSums struct{ *wgradGEMM }

const (
	blockPixels = 256 // of a block, roughly: a panel of the gradient stays in L1
	smallImage  = 64  // of an image: a block has several images of fewer pixels
	mostSums    = 16
	sumsBytes   = 8 << 20 // of all partial sums, which are read and written once more
)

// inTiles reports whether k is computed on tile registers.
func (k *wgradGEMM) inTiles() bool {
	t := k.set.Blocks
	if t == nil || t.Runs[0] == nil || k.Batch*k.OutSize < t.Deep*t.Step {
		return false
	}
	return k.stored == gemm.BF16 || k.stored == gemm.F16 && k.set.Panels != nil && !k.small()
}

// small reports whether channels are so few that wgradSide computes k. It splits no float16,
// for which float32 arithmetic is faster then: 1.2 to 1.3 times, measured.
func (k *wgradGEMM) small() bool {
	return k.groups == 1 && k.Size[1]*k.Size[2]*k.perGroup <= sideRows
}

// newWgradGEMM makes the kernel that computes k on tile registers.
func newWgradGEMM(b *exec.Builder, v *ir.Value, k *wgradGEMM) exec.Kernel {
	k.tiles = k.set.Blocks
	if k.small() {
		return newWgradSide(b, v, k)
	}
	return newWgradTiles(b, v, k)
}

// byBlocks makes the kernel that computes k block by block of pixels, or row by row.
func (k *wgradGEMM) byBlocks(b *exec.Builder, v *ir.Value) exec.Kernel {
	if k.inRuns(k.set) {
		return newWgradRows(b, v, k)
	}
	return k.newBlocks(b, v)
}

// newBlocks makes the kernel that computes k block by block of pixels.
func (k *wgradGEMM) newBlocks(b *exec.Builder, v *ir.Value) exec.Kernel {
	set, row := k.set, k.Size[2]*k.perGroup
	k.direct = !set.Ordered && k.groups == 1 && k.Dilation[2] == 1 && (row <= k.tiles.MR || k.perGroup <= 2)
	if !k.direct && k.stored == gemm.BF16 && set.Pairs != nil && k.Batch*k.OutSize >= set.Pairs.Step {
		k.tiles = set.Pairs
	}
	t := k.tiles
	k.tapRows = tiling.RoundUp(k.perGroup, t.Unit)
	k.perTap = k.Stride[1] != 1 || k.Out[1]*k.Out[2] < smallImage
	plane := k.Out[1]
	if k.perTap && !k.direct {
		plane = k.Batch * k.Out[0] * k.Out[1]
	}
	k.block = tiling.Even(plane, max(1, blockPixels/k.Out[2]), 1)
	k.blocks = tiling.CeilDiv(k.Batch*k.Out[0]*k.Out[1], plane) * tiling.CeilDiv(plane, k.block)
	k.width = k.outsPerGroup
	if !t.Masked {
		k.width = tiling.RoundUp(k.width, t.NR)
	}
	k.panels = tiling.CeilDiv(k.outsPerGroup, t.NR)
	k.sumBytes = 4 * k.groups * k.WindowSize * k.tapRows * k.width
	all := k.sumBytes
	if set.Ordered { // without the padding, which depends on the level
		all = 4 * k.groups * k.WindowSize * k.perGroup * k.outsPerGroup
	}
	k.sums = max(1, min(k.blocks, mostSums, sumsBytes/max(1, all), tiling.CeilDiv(k.macs(), product.ChunkMACs)))
	k.parts = min(k.panels, tiling.CeilDiv(tiling.MinChunks, k.sums))
	k.finish.wgradGEMM = k
	b.ReserveShared(product.FlagBytes + k.sums*k.sumBytes)
	k.addEpilogue(b, v, k.layout(), k.outs)
	return k
}

// cells returns the number of steps over n pixels.
func (k *wgradGEMM) cells(n int) int {
	return tiling.RoundUp(tiling.CeilDiv(n, k.tiles.Step), k.tiles.Deep)
}

// bytes returns the size of an element of the copied input.
func (k *wgradGEMM) bytes() int {
	if k.tiles.Step > 1 {
		return 2
	}
	return 4
}

// layout places everything in scratch memory and returns its size.
func (k *wgradGEMM) layout() int {
	pixels := k.block * k.Out[2]
	need := 0
	take := func(n int) int {
		at := need
		need += tiling.RoundUp(n, 64)
		return at
	}
	if k.direct {
		k.boxRows = (k.block-1)*k.Stride[1] + (k.Size[1]-1)*k.Dilation[1] + 1
		k.boxCols = (k.Out[2]-1)*k.Stride[2] + k.Size[2]
		k.atA = take(4 * k.boxRows * k.boxCols * k.channels)
	} else {
		k.stageRows = k.block
		if !k.perTap {
			k.stageRows += (k.Size[1] - 1) * k.Dilation[1]
		}
		k.atA = take(k.stageRows * k.Out[2] * k.channels * k.bytes())
		if k.tiles.Step > 1 {
			k.atPairs = take(4 * k.cells(pixels) * k.channels)
		}
	}
	k.panelBytes = 4 * k.cells(pixels) * k.tiles.NR
	k.atB = take(k.panelBytes * k.groups * k.panels)
	return need
}

func (k *wgradGEMM) Run(r *exec.Run) {
	r.Parallel(k, k.sums*k.parts, k.macs()/16)
	r.Parallel(&k.finish, k.WindowSize*k.perGroup, k.sums*k.WindowSize*k.perGroup*k.outs)
}

// sumsOf returns partial sum i, which is in shared memory after the flag of bf16Split.
func (k *wgradGEMM) sumsOf(r *exec.Run, i int) []byte {
	return r.Shared[k.base+product.FlagBytes+i*k.sumBytes:][:k.sumBytes]
}

func (k *addSums) Chunk(r *exec.Run, w *exec.Worker, row int) {
	for g := range k.groups {
		at := ((g*k.WindowSize+row/k.perGroup)*k.tapRows + row%k.perGroup) * k.width
		sum := lanes.ViewOf[float32](k.sumsOf(r, 0)[4*at:], k.outsPerGroup)
		for s := 1; s < k.sums; s++ {
			more := lanes.ViewOf[float32](k.sumsOf(r, s)[4*at:], len(sum))
			k.plus(sum, sum, more)
		}
		putRow(&k.convolution, r, w, row*k.outs+g*k.outsPerGroup, sum)
	}
}

// pixelBlock is a block of rows of the result whose products are being added.
type pixelBlock struct {
	row, rows int // counted over all images
	sums      unsafe.Pointer
	lo, hi    int              // panels of each group
	prefetch  [2]prefetchRange // operands of the next block
}

func (k *wgradGEMM) Chunk(r *exec.Run, w *exec.Worker, i int) {
	part := i % k.parts
	i /= k.parts
	var b pixelBlock
	b.lo, b.hi = tiling.Cut(part, k.parts, k.panels)
	sums := k.sumsOf(r, i)
	b.sums = unsafe.Pointer(&sums[0])
	k.begin(sums, &b)
	plane := k.Out[1]
	if k.perTap && !k.direct {
		plane = k.Batch * k.Out[0] * k.Out[1]
	}
	perPlane := tiling.CeilDiv(plane, k.block)
	first, end := tiling.Cut(i, k.sums, k.blocks)
	for j := first; j < end; j++ {
		y := j % perPlane * k.block
		b.row, b.rows = j/perPlane*plane+y, min(k.block, plane-y)
		if !k.inPlace() {
			k.packGrads(r, w, &b)
		}
		if k.direct {
			k.byRows(r, w, &b)
		} else {
			k.byTaps(r, w, &b)
		}
	}
}

// begin clears the columns of the sums to which a worker adds.
func (k *wgradGEMM) begin(sums []byte, b *pixelBlock) {
	rows := k.groups * k.WindowSize * k.tapRows
	lo, hi := 4*b.lo*k.tiles.NR, min(4*k.width, 4*b.hi*k.tiles.NR)
	for row := range rows {
		clear(sums[4*row*k.width+lo : 4*row*k.width+hi])
	}
}

// packGrads packs the gradients of a block's pixels, panel by panel.
func (k *wgradGEMM) packGrads(r *exec.Run, w *exec.Worker, b *pixelBlock) {
	element, nr, size := k.stored, k.tiles.NR, k.from.Size()
	if k.tiles.Step > 1 {
		element = gemm.Pairs
	}
	src := unsafe.Pointer(unsafe.SliceData(r.Values[k.b]))
	for g := range k.groups {
		for p := b.lo; p < b.hi; p++ {
			lanes := min(nr, k.outsPerGroup-p*nr)
			at := (b.row*k.Out[2]*k.outs + g*k.outsPerGroup + p*nr) * size
			pixels := b.rows * k.Out[2]
			used, cells := tiling.CeilDiv(pixels, k.tiles.Step), k.cells(pixels)
			clear(unsafe.Slice((*float32)(unsafe.Add(k.grads(w, g, p), 4*nr*used)), nr*(cells-used)))
			k.set.Lanes[element](k.grads(w, g, p), 4*nr, unsafe.Add(src, at), k.outs*size,
				pixels, 1<<lanes-1, 1<<nr-1)
		}
	}
}

// inPlace reports whether micro-kernels read the gradients in place: they have the layout of
// packed ones.
func (k *wgradGEMM) inPlace() bool {
	return k.direct && k.stored == gemm.F32 && k.outs == k.tiles.NR
}

// grads returns the gradients of a block for a panel. A pixel, or a pair of pixels, has the
// width of a panel.
func (k *wgradGEMM) grads(w *exec.Worker, group, panel int) unsafe.Pointer {
	return unsafe.Pointer(&w.Scratch[k.atB+(group*k.panels+panel)*k.panelBytes])
}

// add adds the products of a panel to rows of a group's sums, from the given row on.
func (k *wgradGEMM) add(b *pixelBlock, group, row, rows, panel, cells int, a unsafe.Pointer, lda int, grads unsafe.Pointer) {
	t := k.tiles
	cols := min(t.NR, k.outsPerGroup-panel*t.NR)
	kernels := t.Inner
	if cols <= t.NarrowNR {
		kernels = t.NarrowInner
	}
	ld := 4 * k.width
	d := unsafe.Add(b.sums, (group*k.WindowSize*k.tapRows+row)*ld+4*panel*t.NR)
	units := tiling.CeilDiv(rows, t.Unit)
	heights := tiling.CeilDiv(units*t.Unit, t.MR)
	for h := range heights {
		lo, hi := tiling.Cut(h, heights, units)
		lo, hi = lo*t.Unit, hi*t.Unit
		dh := unsafe.Add(d, lo*ld)
		kernels[hi-lo](cells, unsafe.Add(a, 4*lo), lda, grads, 4*t.NR, dh, ld, dh, ld, 1<<cols-1)
	}
}

// byTaps adds the products of a block, one element of the window after the other.
func (k *wgradGEMM) byTaps(r *exec.Run, w *exec.Worker, b *pixelBlock) {
	cells := k.cells(b.rows * k.Out[2])
	pixel := k.channels * k.bytes()
	for kz := range k.Size[0] {
		for kx := range k.Size[2] {
			for ky := range k.Size[1] {
				if k.perTap || ky == 0 {
					k.stage(r, w, b, kz, ky, kx)
				}
				a, lda := unsafe.Pointer(&w.Scratch[k.atA]), pixel
				if !k.perTap {
					a = unsafe.Add(a, ky*k.Dilation[1]*k.Out[2]*pixel)
				}
				tap := (kz*k.Size[1]+ky)*k.Size[2] + kx
				if k.tiles.Step > 1 {
					pairs := unsafe.Pointer(&w.Scratch[k.atPairs])
					for c := 0; c < k.channels; c += 32 {
						lanes := uint(1)<<min(32, k.channels-c) - 1
						k.set.Lanes[gemm.Pairs](unsafe.Add(pairs, 4*c), 4*k.channels, unsafe.Add(a, 2*c), pixel, b.rows*k.Out[2], lanes, lanes)
					}
					a, lda = pairs, 4*k.channels
				}
				for g := range k.groups {
					for p := b.lo; p < b.hi; p++ {
						k.add(b, g, tap*k.tapRows, k.perGroup, p, cells, unsafe.Add(a, 4*g*k.perGroup), lda, k.grads(w, g, p))
					}
				}
			}
		}
	}
}

// stage copies the pixels of the input that an element of the window reads, or a column of
// elements.
func (k *wgradGEMM) stage(r *exec.Run, w *exec.Worker, b *pixelBlock, kz, ky, kx int) {
	rowBytes := k.Out[2] * k.channels * k.bytes()
	rows := b.rows
	if !k.perTap {
		rows += k.stageRows - k.block
	}
	image, oz, oy := window.SplitRow(b.row, k.Out)
	for j := range rows {
		if k.perTap {
			image, oz, oy = window.SplitRow(b.row+j, k.Out)
		}
		z, ok := k.At(0, oz, kz)
		y := oy*k.Stride[1] + ky*k.Dilation[1] - k.Low[1]
		if !k.perTap {
			y += j
		}
		row := w.Scratch[k.atA+j*rowBytes:][:rowBytes]
		if !ok || y < 0 || y >= k.In[1] {
			clear(row)
			continue
		}
		k.line(r, row, (image*k.In[0]+z)*k.In[1]+y, kx*k.Dilation[2]-k.Low[2], k.Stride[2], k.Out[2])
	}
}

// line copies n pixels of a row of the input from pixel x on, step apart, with zeros for
// pixels outside of the image.
func (k *wgradGEMM) line(r *exec.Run, dst []byte, row, x, step, n int) {
	data, size, pixel := r.Values[k.a], k.from.Size(), k.channels*k.bytes()
	left := min(n, max(0, tiling.CeilDiv(-x, step)))
	right := max(left, min(n, tiling.CeilDiv(k.In[2]-x, step)))
	clear(dst[:left*pixel])
	clear(dst[right*pixel : n*pixel])
	run, times := right-left, 1 // pixels of a run
	if step > 1 {
		run, times = 1, right-left
	}
	if run == 0 {
		return
	}
	for i := range times {
		from := (row*k.In[2] + x + (left+i)*step) * k.channels * size
		to := dst[(left+i)*pixel:]
		if k.bytes() == size {
			copy(to[:run*pixel], data[from:])
		} else {
			k.set.Widen[k.stored](unsafe.Pointer(&to[0]), unsafe.Pointer(&data[from]), run*k.channels)
		}
	}
}

// byRows adds the products of a block pixel row by pixel row. The elements of a row of the
// window, and their channels, are the rows of tiles.
func (k *wgradGEMM) byRows(r *exec.Run, w *exec.Worker, b *pixelBlock) {
	image, oz, oy := window.SplitRow(b.row, k.Out)
	pixel := 4 * k.channels
	line := k.boxCols * pixel
	rows := (b.rows-1)*k.Stride[1] + (k.Size[1]-1)*k.Dilation[1] + 1
	for kz := range k.Size[0] {
		z, ok := k.At(0, oz, kz)
		if !ok {
			continue
		}
		for j := range rows {
			row := w.Scratch[k.atA+j*line:][:line]
			if y := oy*k.Stride[1] + j - k.Low[1]; y < 0 || y >= k.In[1] {
				clear(row)
			} else {
				k.line(r, row, (image*k.In[0]+z)*k.In[1]+y, -k.Low[2], 1, k.boxCols)
			}
		}
		for ky := range k.Size[1] {
			tap := (kz*k.Size[1] + ky) * k.Size[2]
			for p := b.lo; p < b.hi; p++ {
				grads := k.grads(w, 0, p)
				if k.inPlace() {
					grads = unsafe.Pointer(&r.Values[k.b][4*b.row*k.Out[2]*k.outs])
				}
				for y := range b.rows {
					a := unsafe.Pointer(&w.Scratch[k.atA+(y*k.Stride[1]+ky*k.Dilation[1])*line])
					k.add(b, 0, tap*k.tapRows, k.Size[2]*k.perGroup, p, k.Out[2], a, k.Stride[2]*pixel, unsafe.Add(grads, 4*y*k.Out[2]*k.tiles.NR))
				}
			}
		}
	}
}
