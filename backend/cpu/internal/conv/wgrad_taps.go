package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// wgradTaps is the gradient by the kernels as products over pixels of two sides, the input and
// the result's gradient. One side is expanded: for each pixel of the other side, all elements
// of a row of the window are stored side by side. So few channels make a wide operand. Either
// side can be expanded, and the expanded side can be the rows or the columns of the product:
// whichever takes the least time.
//
// If the input is expanded, an element of the window is a shift of the input:
//
//	dw[k] = Σ x[p·stride + k - low] · g[p]
//
// If the gradient is expanded, it is a shift of the gradient in the other direction. Then the
// pixels of the input are divided into classes by their residue modulo the stride. Each class
// has its own elements of the window: k = r + stride·j.
//
//	dw[r + stride·j] = Σ x[m·stride + r - low] · g[m - j]
//
// The expanded side is zero outside of its image, so an infinite pixel of the other side can
// give NaN in the gradients of elements that do not read it.
//
// Blocks of rows are distributed, by their index, over a fixed number of partial sums, each
// computed by one worker. The partial sums are added up in order at the end.
type wgradTaps struct {
	convolution
	tapSides
	set     *gemm.Set
	tiles   *gemm.Tiles
	stored  gemm.Element
	element gemm.Element // type in which both sides are packed
	classes []tapClass
	blocks  int
	sums    int
	parts   int // of the columns; each is a task
	size    int // elements of a partial sum
	plus    func(dst, a, b []float32)
	reduce  reduceTaps
	gather  gatherTaps

	atLine, atExpanded, atPlain int // offsets in scratch memory
	panelBytes                  int // of an expanded panel
}

// tapSides says which side of a gradient by the kernels is expanded, and how.
type tapSides struct {
	grads   bool // the result's gradient is expanded, else the input
	columns bool // the expanded side is the columns of the product, else the rows
}

// tapSide is one of the two operands.
type tapSide struct {
	at, channels int // position and channels
	dims         [3]int
	step         int // pixels between those that are multiplied
}

// tapClass is the elements of the window that are shifts of the same pixels.
type tapClass struct {
	taps       [2][]int // along rows and columns, in the order of the expanded side
	from       [2]int   // first row and column of the plain side
	n          [2]int   // number of rows and columns of the plain side
	off        [2]int   // the expanded side begins that many pixels before pixel 0
	cells      int      // steps of a row
	rows, cols int      // of the product
	width      int      // columns, padded
	sums       int      // offset of its elements in a partial sum
	block      int      // rows of a block
	bands      int      // blocks of an image
	group      int      // expanded rows of a residue of a block
	first      int      // index of its first block
}

// reduceTaps is the task that adds up the partial sums, and gatherTaps stores the gradient of
// an element of the window.
type (
	reduceTaps struct{ *wgradTaps }
	gatherTaps struct{ *wgradTaps }
)

const (
	reduceGrain  = 4096      // elements of a task
	pointWeights = 128       // of 1x1 windows
	pointPairs   = 24        // channels of either side, for pairs of bfloat16
	pointGrads   = 512       // pixels
	tapSumBytes  = 256 << 10 // of a partial sum; adding up larger ones takes longer than expanding a side for each worker
)

// sides returns the expanded and the plain side.
func (k *convolution) sides(grads bool) (expanded, plain tapSide) {
	x := tapSide{k.a, k.channels, k.In, k.Stride[2]}
	g := tapSide{k.b, k.outs, k.Out, 1}
	if grads {
		g.step, x.step = 1, k.Stride[2]
		return g, x
	}
	return x, g
}

// inShifts reports whether wgradTaps can compute k.
func (k *wgradGEMM) inShifts() bool {
	return k.groups == 1 && k.In[0]*k.Size[0]*k.Out[0] == 1 && k.Dilation[1] == 1 && k.Dilation[2] == 1 &&
		k.Stride[1] == k.Stride[2] && k.tiles.Unit == 1 && k.tiles.Deep == 1 && k.tiles.Inner != nil
}

// pointTaps reports whether wgradTaps is faster than a matrix product, which packs panels of
// few columns. Measured: bfloat16 takes 0.6 to 0.9 of its time, float32 of very few channels
// 0.55 to 0.75.
func (k *wgradGEMM) pointTaps() bool {
	few := k.channels*k.outs <= pointWeights
	if k.pairsOfPixels() {
		few = min(k.channels, k.outs) <= pointPairs
	}
	return few && k.Batch*k.OutSize >= pointGrads && (k.stored != gemm.BF16 || k.set.Blocks == nil) && k.inShifts() && k.shiftsPay(false)
}

// classesOf returns the classes for an expansion.
func (k *convolution) classesOf(s tapSides) []tapClass {
	if !s.grads {
		c := tapClass{n: [2]int{k.Out[1], k.Out[2]}, off: [2]int{k.Low[1], k.Low[2]}}
		for axis := range 2 {
			for i := range k.Size[axis+1] {
				c.taps[axis] = append(c.taps[axis], i)
			}
		}
		return []tapClass{c}
	}
	var all []tapClass
	stride := k.Stride[2]
	for ry := range min(stride, k.Size[1]) {
		for rx := range min(stride, k.Size[2]) {
			var c tapClass
			for axis, r := range []int{ry, rx} {
				for i := r; i < k.Size[axis+1]; i += stride {
					c.taps[axis] = append([]int{i}, c.taps[axis]...)
				}
				taps, low := len(c.taps[axis]), k.Low[axis+1]
				first := max(0, tiling.CeilDiv(low-r, stride))
				end := min(k.Out[axis+1]-1+taps, max(0, tiling.CeilDiv(k.In[axis+1]+low-r, stride)))
				c.from[axis], c.n[axis] = first*stride+r-low, max(0, end-first)
				c.off[axis] = taps - 1 - first
			}
			all = append(all, c)
		}
	}
	return all
}

// tapCost estimates the time of an expansion, in products of a vector.
func (k *wgradGEMM) tapCost(s tapSides) int {
	e, f := k.sides(s.grads)
	cost := 0
	step := 1
	if k.pairsOfPixels() {
		step = 2
	}
	for _, c := range k.classesOf(s) {
		wide := len(c.taps[1]) * e.channels
		rows, cols := wide, f.channels
		if s.columns {
			rows, cols = cols, rows
		}
		expand := 5 * tiling.CeilDiv(wide, 32) * min(k.expandedStep(s), len(c.taps[0]))
		pack := 5 * tiling.CeilDiv(f.channels, 32)
		steps := k.Batch * c.n[0] * tiling.CeilDiv(c.n[1], step)
		cost += steps * (len(c.taps[0])*max(6, rows*vectors(cols)) + expand + pack)
		if c.n[0] > 0 {
			cost += k.Batch * c.bandsOf() * len(c.taps[0]) * callCost(rows, cols)
		}
	}
	return cost
}

// callCost estimates the time of calling micro-kernels for a block of pixels, which load and
// store their tiles, in addition to that of the steps.
func callCost(rows, cols int) int {
	return 20*tiling.CeilDiv(rows, 14)*tiling.CeilDiv(cols, 32) + 3*rows*vectors(cols)
}

// bandsOf returns the number of blocks of an image.
func (c *tapClass) bandsOf() int { return tiling.CeilDiv(c.n[0], c.blockRows()) }

// blockRows returns the rows of a block.
func (c *tapClass) blockRows() int { return tiling.Even(c.n[0], max(1, blockPixels/c.n[1]), 1) }

// expandedStep returns the rows of the expanded side for a row of the plain side.
func (k *convolution) expandedStep(s tapSides) int {
	if s.grads {
		return 1
	}
	return k.Stride[2]
}

// pairsOfPixels reports whether products are on pairs of bfloat16.
func (k *wgradGEMM) pairsOfPixels() bool { return k.stored == gemm.BF16 && k.set.Pairs != nil }

// bestSides returns the expansion that takes the least time, and its cost.
func (k *wgradGEMM) bestSides() (best tapSides, cost int) {
	for _, s := range []tapSides{{false, false}, {false, true}, {true, false}, {true, true}} {
		if c := k.tapCost(s); cost == 0 || c < cost {
			best, cost = s, c
		}
	}
	return best, cost
}

// shiftsPay reports whether wgradTaps is faster than the algorithms after it in the table;
// winograd needs 4/9 of the products.
func (k *wgradGEMM) shiftsPay(winograd bool) bool {
	if !k.tiles.Masked {
		return false // the costs were measured with AVX-512
	}
	_, here := k.bestSides()
	pixels, step := k.Batch*k.OutSize, 1
	if k.pairsOfPixels() {
		step = 2
	}
	products := pixels / step * k.WindowSize
	switch {
	case winograd: // winograd computes whole tiles
		return here*10 < products*k.perGroup*2*tiling.CeilDiv(k.outs, 32)*5
	case k.inRuns(k.set):
		return here*10 < products*k.perGroup*vectors(k.outs)*9
	}
	// The algorithm "blocks" copies the input for each element of the window.
	each := max(6, k.perGroup*vectors(k.outs)) + 8*tiling.CeilDiv(k.perGroup, 32)
	others := products*each + tiling.CeilDiv(pixels, blockPixels)*k.WindowSize*callCost(k.perGroup, k.outs)
	return here*100 < others*115
}

func newWgradTaps(b *exec.Builder, v *ir.Value, g *wgradGEMM) exec.Kernel {
	k := &wgradTaps{convolution: g.convolution, set: g.set, tiles: g.set.F32, stored: g.stored, element: g.stored, plus: g.plus}
	k.tapSides, _ = g.bestSides()
	if g.pairsOfPixels() {
		k.tiles, k.element = g.set.Pairs, gemm.Pairs
	}
	k.reduce.wgradTaps, k.gather.wgradTaps = k, k
	e, f := k.sides(k.grads)
	t := k.tiles
	line, expanded, plain, panels := 0, 0, 0, 0
	for _, c := range k.classesOf(k.tapSides) {
		if c.n[0]*c.n[1] == 0 {
			c.n = [2]int{}
		}
		wide := len(c.taps[1]) * e.channels
		c.rows, c.cols = wide, f.channels
		if k.columns {
			c.rows, c.cols = c.cols, c.rows
		}
		c.width = tiling.RoundUp(c.cols, t.NR)
		c.sums, k.size = k.size, k.size+len(c.taps[0])*c.rows*c.width
		if c.n[0] > 0 {
			c.cells = tiling.CeilDiv(c.n[1], t.Step)
			c.block, c.bands = c.blockRows(), c.bandsOf()
			c.group = c.block + (len(c.taps[0])-1)/k.expandedStep(k.tapSides)
		}
		c.first, k.blocks = k.blocks, k.blocks+k.Batch*c.bands
		rows := c.group * min(k.expandedStep(k.tapSides), len(c.taps[0]))
		line = max(line, ((c.n[1]-1)*e.step+len(c.taps[1]))*e.channels*k.from.Size())
		if k.columns {
			k.panelBytes = max(k.panelBytes, 4*rows*c.cells*t.NR)
			expanded = max(expanded, tiling.CeilDiv(c.cols, t.NR))
			plain = max(plain, 4*c.block*c.cells*f.channels)
		} else {
			expanded = max(expanded, 4*rows*c.cells*wide)
			plain = max(plain, 4*c.block*c.cells*t.NR)
		}
		panels = max(panels, c.width/t.NR)
		k.classes = append(k.classes, c)
	}
	if k.columns {
		expanded *= k.panelBytes
	}
	k.sums = max(1, min(k.blocks, mostSums, sumsBytes/max(1, 4*k.size), tiling.CeilDiv(k.macs(), product.ChunkMACs)))
	if 4*k.size > tapSumBytes { // each worker computes its columns of a single sum
		k.sums = min(k.sums, tiling.CeilDiv(tiling.MinChunks, panels))
	}
	k.parts = min(panels, tiling.CeilDiv(tiling.MinChunks, k.sums))
	b.ReserveShared(4 * k.sums * k.size)
	var place tiling.Layout
	k.atLine = place.Take(line)
	k.atExpanded = place.Take(expanded)
	k.atPlain = place.Take(plain)
	k.addEpilogue(b, v, max(int(place), 4*k.channels*k.outs), k.outs)
	return k
}

// String says which side is expanded.
func (s tapSides) String() string {
	side, to := "the input", "rows"
	if s.grads {
		side = "the gradient"
	}
	if s.columns {
		to = "columns"
	}
	return side + " expanded to " + to
}

func (k *wgradTaps) Run(r *exec.Run) {
	r.Parallel(k, k.sums*k.parts, k.macs()/16)
	if k.sums > 1 {
		r.Parallel(&k.reduce, tiling.CeilDiv(k.size, reduceGrain), k.sums*k.size)
	}
	r.Parallel(&k.gather, k.WindowSize, k.WindowSize*k.channels*k.outs)
}

// sumOf returns partial sum i.
func (k *wgradTaps) sumOf(r *exec.Run, i int) []float32 {
	return lanes.ViewOf[float32](r.Shared[4*i*k.size:], k.size)
}

func (k *reduceTaps) Chunk(r *exec.Run, _ *exec.Worker, i int) {
	from, to := i*reduceGrain, min(k.size, (i+1)*reduceGrain)
	total := k.sumOf(r, 0)[from:to]
	for s := 1; s < k.sums; s++ {
		k.plus(total, total, k.sumOf(r, s)[from:to])
	}
}

func (k *gatherTaps) Chunk(r *exec.Run, w *exec.Worker, tap int) {
	e, _ := k.sides(k.grads)
	total := k.sumOf(r, 0)
	ky, kx := tap/k.Size[2], tap%k.Size[2]
	var from []float32
	x, g := 1, 1 // elements between channels of the input and of the result
	for i := range k.classes {
		c := &k.classes[i]
		y, j := indexOf(c.taps[0], ky), indexOf(c.taps[1], kx)
		if y < 0 || j < 0 {
			continue
		}
		at := c.sums + y*c.rows*c.width
		if k.columns {
			from = total[at+j*e.channels:]
		} else {
			from = total[at+j*e.channels*c.width:]
		}
		if k.columns == k.grads { // the channels of the input are the rows
			x = c.width
		} else {
			g = c.width
		}
		break
	}
	n := k.channels * k.outs
	rows := lanes.ViewOf[float32](w.Scratch, n)
	for i := range k.channels {
		row := rows[i*k.outs:][:k.outs]
		if g == 1 {
			copy(row, from[i*x:])
			continue
		}
		for j := range row {
			row[j] = from[i*x+j*g]
		}
	}
	if k.after == nil {
		putRow(&k.convolution, r, w, tap*n, rows)
		return
	}
	for i := range k.channels {
		putRow(&k.convolution, r, w, tap*n+i*k.outs, rows[i*k.outs:][:k.outs])
	}
}

// indexOf returns the index of x in list, or -1.
func indexOf(list []int, x int) int {
	for i, y := range list {
		if x == y {
			return i
		}
	}
	return -1
}

// tapBlock is some rows of an image, of a class.
type tapBlock struct {
	*tapClass
	sums     []float32
	image, y int  // the first row, among the rows of the class
	count    int  // rows
	lo, hi   int  // panels of columns
	begins   bool // its products are the first of the sums
}

func (k *wgradTaps) Chunk(r *exec.Run, w *exec.Worker, i int) {
	part := i % k.parts
	i /= k.parts
	sums := k.sumOf(r, i)
	from, to := tiling.Cut(i, k.sums, k.blocks)
	for j := range k.classes {
		c := &k.classes[j]
		b := tapBlock{tapClass: c, sums: sums}
		b.lo, b.hi = tiling.Cut(part, k.parts, c.width/k.tiles.NR)
		first, end := max(from, c.first), min(to, c.first+k.Batch*c.bands)
		if first >= end {
			for row := range len(c.taps[0]) {
				k.clear(&b, row, b.lo, b.hi)
			}
			continue
		}
		for n := first; n < end && b.lo < b.hi; n++ {
			b.begins = n == first
			b.image, b.y = (n-c.first)/c.bands, (n-c.first)%c.bands*c.block
			b.count = min(c.block, c.n[0]-b.y)
			k.addBlock(r, w, &b)
		}
	}
}

// clear clears the sums of a row of the window, in the columns of some panels.
func (k *wgradTaps) clear(b *tapBlock, row, lo, hi int) {
	for i := row * b.rows; i < (row+1)*b.rows; i++ {
		clear(b.sums[b.tapClass.sums+i*b.width:][lo*k.tiles.NR : hi*k.tiles.NR])
	}
}

// addBlock adds the products of a block to its sums.
func (k *wgradTaps) addBlock(r *exec.Run, w *exec.Worker, b *tapBlock) {
	k.expand(r, w, b)
	if k.columns {
		a, lda := k.plainRows(r, w, b)
		for panel := b.lo; panel < b.hi; panel++ {
			k.multiply(b, panel, a, lda, unsafe.Pointer(&w.Scratch[k.atExpanded+panel*k.panelBytes]), 4*k.tiles.NR)
		}
		return
	}
	for panel := b.lo; panel < b.hi; panel++ {
		p, ldb := k.plainPanel(r, w, b, panel)
		k.multiply(b, panel, unsafe.Pointer(&w.Scratch[k.atExpanded]), 4*b.rows, p, ldb)
	}
}

// expand lays out the rows of the expanded side for a block.
func (k *wgradTaps) expand(r *exec.Run, w *exec.Worker, b *tapBlock) {
	e, _ := k.sides(k.grads)
	step := k.expandedStep(k.tapSides)
	for residue := range min(step, len(b.taps[0])) {
		for i := range b.count + (len(b.taps[0])-1-residue)/step {
			if y := (b.y+i)*step + residue - b.off[0]; y >= 0 && y < e.dims[1] {
				k.expandRow(r, w, b, (b.image*e.dims[1]+y)*e.dims[2], (residue*b.group+i)*b.cells)
			}
		}
	}
}

// expandRow lays out a row of the expanded side from its first pixel, at a step.
func (k *wgradTaps) expandRow(r *exec.Run, w *exec.Worker, b *tapBlock, pixel, cell int) {
	e, _ := k.sides(k.grads)
	step := k.expandedStep(k.tapSides)
	bytes := e.channels * k.from.Size()
	n := (b.n[1]-1)*step + len(b.taps[1])
	data := r.Values[e.at][pixel*bytes:][:e.dims[2]*bytes]
	var src unsafe.Pointer
	if b.off[1] <= 0 && n-b.off[1] <= e.dims[2] {
		src = unsafe.Pointer(&data[-b.off[1]*bytes])
	} else {
		line := w.Scratch[k.atLine:][:n*bytes]
		left := min(n, max(0, b.off[1]))
		right := max(left, min(n, e.dims[2]+b.off[1]))
		clear(line[:left*bytes])
		if right > left {
			copy(line[left*bytes:right*bytes], data[(left-b.off[1])*bytes:])
		}
		clear(line[right*bytes:])
		src = unsafe.Pointer(&line[0])
	}
	nr, wide := k.tiles.NR, len(b.taps[1])*e.channels
	if k.columns {
		for panel := b.lo; panel < b.hi; panel++ {
			load := uint(1)<<min(nr, wide-panel*nr) - 1
			d := unsafe.Pointer(&w.Scratch[k.atExpanded+panel*k.panelBytes+4*cell*nr])
			k.set.Lanes[k.element](d, 4*nr, unsafe.Add(src, panel*nr*k.from.Size()), step*bytes, b.n[1], load, 1<<nr-1)
		}
		return
	}
	for c := 0; c < wide; c += 32 {
		mask := uint(1)<<min(32, wide-c) - 1
		d := unsafe.Pointer(&w.Scratch[k.atExpanded+4*(cell*wide+c)])
		k.set.Lanes[k.element](d, 4*wide, unsafe.Add(src, c*k.from.Size()), step*bytes, b.n[1], mask, mask)
	}
}

// plainAt returns the offset of a row of a block in the plain side, and the bytes between
// pixels.
func (k *wgradTaps) plainAt(b *tapBlock, f tapSide, row int) (at, pixel int) {
	y := b.from[0] + (b.y+row)*f.step
	at = ((b.image*f.dims[1]+y)*f.dims[2] + b.from[1]) * f.channels * k.from.Size()
	return at, f.step * f.channels * k.from.Size()
}

// inPlace reports whether the rows of a block have, in the plain side, the layout that
// micro-kernels read.
func (k *wgradTaps) inPlace(b *tapBlock, f tapSide) bool {
	return k.stored == gemm.F32 && f.step == 1 && b.n[1] == f.dims[2]
}

// plainRows returns the plain side of a block as the rows of the product, and the bytes
// between steps.
func (k *wgradTaps) plainRows(r *exec.Run, w *exec.Worker, b *tapBlock) (a unsafe.Pointer, lda int) {
	_, f := k.sides(k.grads)
	data := r.Values[f.at]
	if k.inPlace(b, f) {
		at, pixel := k.plainAt(b, f, 0)
		return unsafe.Pointer(&data[at]), pixel
	}
	for row := range b.count {
		at, pixel := k.plainAt(b, f, row)
		for c := 0; c < f.channels; c += 32 {
			mask := uint(1)<<min(32, f.channels-c) - 1
			d := unsafe.Pointer(&w.Scratch[k.atPlain+4*(row*b.cells*f.channels+c)])
			k.set.Lanes[k.element](d, 4*f.channels, unsafe.Pointer(&data[at+c*k.from.Size()]), pixel, b.n[1], mask, mask)
		}
	}
	return unsafe.Pointer(&w.Scratch[k.atPlain]), 4 * f.channels
}

// plainPanel returns a panel of the plain side of a block as the columns of the product, and
// the bytes between steps.
func (k *wgradTaps) plainPanel(r *exec.Run, w *exec.Worker, b *tapBlock, panel int) (p unsafe.Pointer, ldb int) {
	_, f := k.sides(k.grads)
	nr := k.tiles.NR
	first := panel * nr
	cols := min(nr, f.channels-first)
	data := r.Values[f.at]
	if cols == nr && k.inPlace(b, f) {
		at, pixel := k.plainAt(b, f, 0)
		return unsafe.Pointer(&data[at+4*first]), pixel
	}
	for row := range b.count {
		at, pixel := k.plainAt(b, f, row)
		d := unsafe.Pointer(&w.Scratch[k.atPlain+4*row*b.cells*nr])
		k.set.Lanes[k.element](d, 4*nr, unsafe.Pointer(&data[at+first*k.from.Size()]), pixel, b.n[1], 1<<cols-1, 1<<nr-1)
	}
	return unsafe.Pointer(&w.Scratch[k.atPlain]), 4 * nr
}

// multiply adds the products of a block to a panel of its sums, one row of the window after
// the other.
func (k *wgradTaps) multiply(b *tapBlock, panel int, a unsafe.Pointer, lda int, p unsafe.Pointer, ldb int) {
	t := k.tiles
	e, _ := k.sides(k.grads)
	step := k.expandedStep(k.tapSides)
	cols := min(t.NR, b.cols-panel*t.NR)
	kernels := t.Inner
	if cols <= t.NarrowNR {
		kernels = t.NarrowInner
	}
	ld, heights := 4*b.width, tiling.CeilDiv(b.rows, t.MR)
	for j := range b.taps[0] {
		// The rows of the block for which this row of the window is within the image.
		top := b.y*step + j - b.off[0]
		lo := min(b.count, tiling.CeilDiv(max(0, -top), step))
		hi := min(b.count, tiling.CeilDiv(max(0, e.dims[1]-top), step))
		if lo >= hi {
			if b.begins {
				k.clear(b, j, panel, panel+1)
			}
			continue
		}
		expanded, plain := ((j%step)*b.group+lo+j/step)*b.cells, lo*b.cells
		from, to := plain, expanded // operands of the rows and of the columns
		if !k.columns {
			from, to = expanded, plain
		}
		d := unsafe.Pointer(&b.sums[b.tapClass.sums+j*b.rows*b.width+panel*t.NR])
		for h := range heights {
			first, end := tiling.Cut(h, heights, b.rows)
			to, from := unsafe.Add(p, to*ldb), unsafe.Add(a, from*lda+4*first)
			dh := unsafe.Add(d, first*ld)
			s := dh
			if b.begins {
				s = nil
			}
			kernels[end-first]((hi-lo)*b.cells, from, lda, to, ldb, s, ld, dh, ld, 1<<cols-1)
		}
	}
}
