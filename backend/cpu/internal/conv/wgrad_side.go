package conv

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// wgradSide is a wgradGEMM for few channels on the micro-kernels for tile registers (AMX),
// which read A from a list of block addresses: all elements of a plane of the window are the
// rows of one product. The inner dimension is pixels, so the input is transposed: once for all
// elements of the window, to a row of all pixels for each channel, in which an element of the
// window is an offset. For that, the rows of the result's gradient are padded with zeros to
// the pixels of the input's rows. (So an infinite pixel of the input can give NaN in the
// gradients of elements of the window that do not read it.)
//
// With strides, the pixels of each residue have their own rows.
type wgradSide struct {
	*wgradGEMM
	packed  []sidePlace // offsets of the elements of a plane of the window
	across  []int       // residues of the stride
	down    []int
	pitch   int     // pixels from a row to the next
	rows    int     // of the input that a band reads, for a residue
	steps   int     // of a plane of a block
	pixels  int     // of a plane, in a row of the transposed input
	planes  int     // of a block
	bands   int     // of a plane
	places  []int64 // offsets of steps
	lda     int     // bytes from a row of the transposed input to the next
	atStage int     // offsets in scratch memory
	atInput int
	atPairs int
	atSide  int
}

// sidePlace is the offset of an element of the window in the transposed input.
type sidePlace struct{ residue, shift int }

const (
	sideRows  = 48        // channels times elements of a plane of the window, at most
	sideSteps = 16        // of a block: packed gradients that stay in L1
	sideBytes = 512 << 10 // of the transposed input, in L2 with everything else
)

func newWgradSide(b *exec.Builder, v *ir.Value, k *wgradGEMM) exec.Kernel {
	c := &wgradSide{wgradGEMM: k}
	t := k.tiles
	var most [2]int
	residues := [2][]int{}
	place := func(axis, i int) (residue, shift int) {
		d := i * k.Dilation[axis+1]
		r := slices.Index(residues[axis], d%k.Stride[axis+1])
		if r < 0 {
			r = len(residues[axis])
			residues[axis] = append(residues[axis], d%k.Stride[axis+1])
		}
		most[axis] = max(most[axis], d/k.Stride[axis+1])
		return r, d / k.Stride[axis+1]
	}
	for y := range k.Size[1] {
		place(0, y)
	}
	for x := range k.Size[2] {
		place(1, x)
	}
	c.down, c.across = residues[0], residues[1]
	c.pitch = tiling.RoundUp(k.Out[2]+most[1], 2)
	for y := range k.Size[1] {
		for x := range k.Size[2] {
			ry, qy := place(0, y)
			rx, qx := place(1, x)
			c.packed = append(c.packed, sidePlace{ry*len(c.across) + rx, qy*c.pitch + qx})
		}
	}
	shape := func(band, planes int) int {
		c.rows = band + most[0]
		c.steps = tiling.CeilDiv((band-1)*c.pitch+k.Out[2], cellElements)
		c.pixels = tiling.RoundUp(max(c.rows*c.pitch, cellElements*c.steps+most[0]*c.pitch+most[1]), cellElements)
		c.lda = 2*planes*c.pixels + product.RowPad
		if c.lda%128 == 0 {
			c.lda += product.RowPad
		}
		return len(c.down) * len(c.across) * k.channels * c.lda
	}
	k.tapRows, k.width = k.perGroup, tiling.RoundUp(k.outsPerGroup, t.NR)
	k.panels = tiling.CeilDiv(k.outsPerGroup, t.NR)
	// The last rows that kernels take for a plane extend into the next plane's, and beyond the
	// last.
	k.sumBytes = 4 * ((k.Size[0]-1)*c.planeRows() + tiling.RoundUp(c.planeRows(), t.Unit)) * k.width
	k.block, c.planes = k.Out[1], 1
	for k.block > 1 && (shape(k.block, 1) > sideBytes || c.steps > 3*sideSteps) {
		k.block = tiling.CeilDiv(k.block, 2)
	}
	k.block = tiling.Even(k.Out[1], k.block, 1)
	if k.block == k.Out[1] {
		shape(k.block, 1)
		for (c.planes+1)*c.steps <= sideSteps && shape(k.block, c.planes+1) <= sideBytes && k.Batch*k.Out[0] >= 4*(c.planes+1) {
			c.planes++
		}
	}
	shape(k.block, c.planes)
	for i := range c.planes {
		for s := range c.steps {
			c.places = append(c.places, int64(2*(i*c.pixels+s*cellElements)))
		}
	}
	c.bands = tiling.CeilDiv(k.Out[1], k.block)
	k.blocks = tiling.CeilDiv(k.Batch*k.Out[0], c.planes) * c.bands

	k.sums = max(1, min(k.blocks, mostSums, sumsBytes/max(1, k.sumBytes), tiling.CeilDiv(k.macs(), product.ChunkMACs<<4)))
	k.sums = tiling.CeilDiv(k.blocks, tiling.CeilDiv(k.blocks, k.sums))
	k.parts = min(k.panels, tiling.CeilDiv(tiling.MinChunks/2, k.sums)) // each part transposes the input
	k.finish.wgradGEMM = k
	b.ReserveShared(product.FlagBytes + k.sums*k.sumBytes)
	k.addEpilogue(b, v, c.layout(), k.outs)
	return c
}

// layout places everything in scratch memory and returns its size.
func (k *wgradSide) layout() int {
	need := 0
	take := func(n int) int {
		at := need
		need += tiling.RoundUp(n, 64)
		return at
	}
	k.atStage = take(2 * k.pixels * k.channels)
	// Kernels take whole units of rows.
	k.atInput = take((len(k.down)*len(k.across)*k.channels + k.tiles.MR) * k.lda)
	k.atPairs = take(2 * k.pixels / 4 * 64)
	k.panelBytes = 4 * k.planes * k.steps * k.tiles.Deep * k.tiles.NR
	k.atB = take(k.panelBytes * tiling.CeilDiv(k.panels, k.parts))
	k.atSide = take(tiling.RoundUp(k.planeRows(), k.tiles.Unit) * k.lda)
	return need
}

// planeRows returns the rows of the product for a plane of the window.
func (k *wgradSide) planeRows() int { return len(k.packed) * k.perGroup }

func (k *wgradSide) Run(r *exec.Run) {
	r.Parallel(k, k.sums*k.parts, k.macs()/16)
	r.Parallel(&k.finish, k.WindowSize*k.perGroup, k.sums*k.WindowSize*k.perGroup*k.outs)
}

func (k *wgradSide) Chunk(r *exec.Run, w *exec.Worker, i int) {
	part := i % k.parts
	i /= k.parts
	var b pixelBlock
	b.lo, b.hi = tiling.Cut(part, k.parts, k.panels)
	b.sums = unsafe.Pointer(&k.sumsOf(r, i)[0])
	runtime.LockOSThread()
	k.tiles.Begin()
	first, end := tiling.Cut(i, k.sums, k.blocks)
	for j := first; j < end; j++ {
		plane, y := j/k.bands*k.planes, j%k.bands*k.block
		planes, rows := min(k.planes, k.Batch*k.Out[0]-plane), min(k.block, k.Out[1]-y)
		k.packPlanes(r, w, &b, plane, planes, y, rows)
		for kz := range k.Size[0] {
			for p := range planes {
				k.transposePlane(r, w, kz, p, plane+p, y)
			}
			k.addPlanes(w, &b, kz, planes, j == first)
		}
	}
	k.tiles.End()
	runtime.UnlockOSThread()
}

// packPlanes packs the gradients of a block, with zeros for the pixels between rows and after
// the last row.
func (k *wgradSide) packPlanes(r *exec.Run, w *exec.Worker, b *pixelBlock, plane, planes, y, rows int) {
	nr, src := k.tiles.NR, unsafe.Pointer(unsafe.SliceData(r.Values[k.b]))
	line, used := 4*nr*k.pitch/2, tiling.CeilDiv(k.Out[2], 2)
	all := 4 * nr * k.steps * k.tiles.Deep
	for p := b.lo; p < b.hi; p++ {
		lanes := min(nr, k.outs-p*nr)
		for i := range planes {
			d := k.gradsOf(w, b, p, i*k.steps)
			for j := range rows {
				at := ((plane+i)*k.Out[1]+y+j)*k.Out[2]*k.outs + p*nr
				to := unsafe.Add(d, j*line)
				k.set.Lanes[gemm.Pairs](to, 4*nr, unsafe.Add(src, 2*at), 2*k.outs, k.Out[2], 1<<lanes-1, 1<<nr-1)
				if j < rows-1 {
					clear(unsafe.Slice((*byte)(unsafe.Add(to, 4*nr*used)), line-4*nr*used))
				}
			}
			behind := (rows-1)*line + 4*nr*used
			clear(unsafe.Slice((*byte)(unsafe.Add(d, behind)), all-behind))
		}
	}
}

// gradsOf returns the packed gradients of a step.
func (k *wgradSide) gradsOf(w *exec.Worker, b *pixelBlock, panel, step int) unsafe.Pointer {
	at := k.atB + (panel-b.lo)*k.panelBytes + 4*step*k.tiles.Deep*k.tiles.NR
	return unsafe.Pointer(&w.Scratch[at])
}

// transposePlane transposes the input of a plane of a block.
func (k *wgradSide) transposePlane(r *exec.Run, w *exec.Worker, kz, p, plane, y int) {
	image, oz := plane/k.Out[0], plane%k.Out[0]
	z, inside := k.At(0, oz, kz)
	stage, line := w.Scratch[k.atStage:][:2*k.pixels*k.channels], 2*k.pitch*k.channels
	for i, ry := range k.down {
		for j, rx := range k.across {
			for row := range k.rows {
				sy := (y+row)*k.Stride[1] + ry - k.Low[1]
				to := stage[row*line:][:line]
				if !inside || sy < 0 || sy >= k.In[1] {
					clear(to)
					continue
				}
				k.line(r, to, (image*k.In[0]+z)*k.In[1]+sy, rx-k.Low[2], k.Stride[2], k.pitch)
			}
			clear(stage[k.rows*line:])
			d := unsafe.Pointer(&w.Scratch[k.atInput+(i*len(k.across)+j)*k.channels*k.lda+2*p*k.pixels])
			if k.channels == 1 {
				copy(unsafe.Slice((*byte)(d), len(stage)), stage)
				continue
			}
			k.transposeAll(w, d, unsafe.Pointer(&stage[0]))
		}
	}
}

// transposeAll makes a row of pixels for each channel, 16 channels at a time: first packed as
// pairs, then transposed.
func (k *wgradSide) transposeAll(w *exec.Worker, d, src unsafe.Pointer) {
	pairs := unsafe.Pointer(&w.Scratch[k.atPairs])
	for c := 0; c < k.channels; c += 16 {
		lanes := min(16, k.channels-c)
		k.set.Lanes[gemm.Pairs](pairs, 64, unsafe.Add(src, 2*c), 2*k.channels, k.pixels, 1<<lanes-1, 1<<16-1)
		for q := 0; q < k.pixels/2; q += 16 {
			k.set.Transpose[gemm.F32](unsafe.Add(d, c*k.lda+4*q), k.lda, unsafe.Add(pairs, 64*q), 64, lanes, 1<<16-1, 1<<16-1)
		}
	}
}

// addPlanes adds the products of a block to the sums of the elements of a plane of the window,
// or begins the sums.
func (k *wgradSide) addPlanes(w *exec.Worker, b *pixelBlock, kz, planes int, begins bool) {
	t, ld := k.tiles, 4*k.width
	steps := planes * k.steps
	k.laySide(w, planes)
	rows := k.planeRows()
	for p := b.lo; p < b.hi; p++ {
		for step := 0; step < steps; step += panelSteps {
			n := min(panelSteps, steps-step)
			for row := 0; row < rows; row += t.MR {
				d := unsafe.Add(b.sums, (kz*rows+row)*ld+4*p*t.NR)
				s := d
				if begins && step == 0 {
					s = nil
				}
				a := unsafe.Pointer(&w.Scratch[k.atSide+row*k.lda])
				h := min(t.MR, tiling.RoundUp(rows-row, t.Unit))
				t.Runs[0][h](n, a, k.lda, 0, unsafe.Pointer(&k.places[step]), k.gradsOf(w, b, p, step), 0, s, ld, d, ld, nil)
			}
		}
	}
}

// laySide lays out, as rows, the pixels that each element of a plane of the window reads, for
// each channel, and zero rows up to a whole unit of rows.
func (k *wgradSide) laySide(w *exec.Worker, planes int) {
	n := 2 * (planes*k.pixels - (k.pixels - cellElements*k.steps))
	for i, tap := range k.packed {
		for c := range k.perGroup {
			from := w.Scratch[k.atInput+(tap.residue*k.channels+c)*k.lda+2*tap.shift:]
			copy(w.Scratch[k.atSide+(i*k.perGroup+c)*k.lda:][:n], from[:n])
		}
	}
	for row := k.planeRows(); row < tiling.RoundUp(k.planeRows(), k.tiles.Unit); row++ {
		clear(w.Scratch[k.atSide+row*k.lda:][:n])
	}
}
