package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// wgradRows is a wgradGEMM on micro-kernels that go through runs of pixels: the input is read
// in place, and sums stay in registers over all rows of a block. A panel of the gradient is
// packed, so that it stays in L1 for the whole window, and 16-bit inputs are converted to
// float32. Pixels outside of the input are in no run.
type wgradRows struct {
	*wgradGEMM
	planes  int       // of a block, if it has whole planes
	bands   int       // of a plane, otherwise
	runs    [][]int64 // by element of a plane of the window: offsets in all rows of a block's planes, from the first run of their band
	starts  [][]int   // index of the first run of each row, and the end
	inPlane int       // elements
	atPanel int       // offset of the packed gradient in scratch memory
}

const (
	runPixels = 256 // of a block, roughly: a panel of its gradient stays in L1
	runRows   = 6   // channels of a group, at least
)

// inRuns reports whether micro-kernels that go through runs can compute the gradient by the
// kernels.
func (k *convolution) inRuns(set *gemm.Set) bool {
	pairs := k.from == dtype.BFloat16 && set.Pairs != nil // products of pairs are faster
	return set.PixelRuns != nil && !pairs && k.perGroup >= runRows && k.outsPerGroup%set.F32.NR == 0
}

func newWgradRows(b *exec.Builder, v *ir.Value, k *wgradGEMM) exec.Kernel {
	c := &wgradRows{wgradGEMM: k, planes: 1}
	k.tiles = k.set.F32
	plane := k.Out[1] * k.Out[2]
	k.block = tiling.Even(k.Out[1], max(1, runPixels/k.Out[2]), 1)
	if k.block == k.Out[1] && k.In[0]*k.Out[0]*k.Size[0] == 1 {
		c.planes = max(1, min(runPixels/plane, tiling.CeilDiv(k.Batch, 16)))
	}
	c.bands = tiling.CeilDiv(k.Out[1], k.block)
	k.blocks = tiling.CeilDiv(k.Batch*k.Out[0], c.planes) * c.bands
	c.inPlane = k.In[1] * k.In[2] * k.channels
	c.list()

	k.tapRows, k.width = k.perGroup, k.outsPerGroup
	k.panels = k.outsPerGroup / k.tiles.NR
	k.sumBytes = 4 * k.groups * k.WindowSize * k.tapRows * k.width
	k.sums = max(1, min(k.blocks, mostSums, sumsBytes/max(1, k.sumBytes), tiling.CeilDiv(k.macs(), product.ChunkMACs)))
	k.parts = min(k.panels, tiling.CeilDiv(tiling.MinChunks, k.sums))
	k.finish.wgradGEMM = k
	b.ReserveShared(product.FlagBytes + k.sums*k.sumBytes)
	scratch := 0
	if k.stored != gemm.F32 {
		rows := k.In[1]
		if c.bands > 1 {
			rows = min(rows, (k.block-1)*k.Stride[1]+(k.Size[1]-1)*k.Dilation[1]+1)
		}
		scratch = tiling.RoundUp(4*c.planes*rows*k.In[2]*k.channels, 64)
	}
	if c.atPanel = scratch; !c.asPanel() {
		scratch += 4 * k.tiles.NR * c.planes * k.block * k.Out[2]
	}
	k.addEpilogue(b, v, scratch, k.outs)
	return c
}

// list makes the runs. A run that continues the previous one is merged with it.
func (k *wgradRows) list() {
	lda, ldb := int64(4*k.Stride[2]*k.channels), int64(4*k.tiles.NR)
	for ky := range k.Size[1] {
		for kx := range k.Size[2] {
			var runs []int64
			from := []int{0}
			lo, hi, x := k.Under(kx)
			for row := range k.planes * k.Out[1] {
				image, oy := row/k.Out[1], row%k.Out[1]
				begin := 0 // first run of the band
				if k.bands > 1 {
					begin = oy / k.block * k.block
				}
				if y, ok := k.At(1, oy, ky); ok && hi > lo {
					top, _ := k.reads(begin)
					a := int64(4 * (image*k.inPlane + ((y-top)*k.In[2]+x)*k.channels))
					b := int64((row-begin)*k.Out[2]+lo) * ldb
					n := int64(hi - lo)
					if l := len(runs); l > 0 && oy%k.block > 0 && runs[l-3]+runs[l-1]*lda == a && runs[l-2]+runs[l-1]*ldb == b {
						runs[l-1] += n
					} else {
						runs = append(runs, a, b, n)
					}
				}
				from = append(from, len(runs)/3)
			}
			k.runs, k.starts = append(k.runs, runs), append(k.starts, from)
		}
	}
}

func (k *wgradRows) Run(r *exec.Run) {
	r.Parallel(k, k.sums*k.parts, k.macs()/16)
	r.Parallel(&k.finish, k.WindowSize*k.perGroup, k.sums*k.WindowSize*k.perGroup*k.outs)
}

func (k *wgradRows) Chunk(r *exec.Run, w *exec.Worker, i int) {
	part := i % k.parts
	i /= k.parts
	var b pixelBlock
	b.lo, b.hi = tiling.Cut(part, k.parts, k.panels)
	sums := k.sumsOf(r, i)
	b.sums = unsafe.Pointer(&sums[0])
	k.begin(sums, &b)
	first, end := tiling.Cut(i, k.sums, k.blocks)
	for j := first; j < end; j++ {
		plane, y := j/k.bands*k.planes, j%k.bands*k.block
		planes, rows := min(k.planes, k.Batch*k.Out[0]-plane), min(k.block, k.Out[1]-y)
		if k.planes > 1 {
			rows *= planes
		}
		pixel := (plane*k.Out[1] + y) * k.Out[2]
		line := k.In[2] * k.channels
		top, bottom := k.reads(y)
		for kz := range k.Size[0] {
			z, ok := k.At(0, plane%k.Out[0], kz)
			if !ok || top == bottom {
				continue
			}
			from := (plane/k.Out[0]*k.In[0]+z)*k.inPlane + top*line
			x := k.floats(r.Values[k.a], from, (planes-1)*k.inPlane+(bottom-top)*line, w.Scratch)
			k.addRuns(r, w, &b, kz, y, rows, x, pixel)
		}
	}
}

// reads returns the rows [top, bottom) of a plane of the input that a block from row y on
// reads; there may be more of them.
func (k *wgradRows) reads(y int) (top, bottom int) {
	if k.bands == 1 {
		return 0, k.In[1]
	}
	rows := min(k.block, k.Out[1]-y)
	top = min(k.In[1], max(0, y*k.Stride[1]-k.Low[1]))
	return top, max(top, min(k.In[1], (y+rows-1)*k.Stride[1]-k.Low[1]+(k.Size[1]-1)*k.Dilation[1]+1))
}

// floats returns n elements of the input from element at on as float32, in scratch memory if
// they are converted.
func (k *wgradRows) floats(data []byte, at, n int, scratch []byte) unsafe.Pointer {
	size := k.from.Size()
	if n == 0 {
		return unsafe.Pointer(unsafe.SliceData(data))
	}
	if k.stored == gemm.F32 {
		return unsafe.Pointer(&data[at*size])
	}
	k.set.Widen[k.stored](unsafe.Pointer(&scratch[0]), unsafe.Pointer(&data[at*size]), n)
	return unsafe.Pointer(&scratch[0])
}

// asPanel reports whether the gradient has the layout of a panel.
func (k *wgradRows) asPanel() bool { return k.stored == gemm.F32 && k.outs == k.tiles.NR }

// panelOf returns a panel of the gradient of some pixels.
func (k *wgradRows) panelOf(r *exec.Run, w *exec.Worker, g, p, pixel, pixels int) unsafe.Pointer {
	nr := k.tiles.NR
	src := unsafe.Pointer(&r.Values[k.b][(pixel*k.outs+g*k.outsPerGroup+p*nr)*k.from.Size()])
	if k.asPanel() {
		return src
	}
	panel := unsafe.Pointer(&w.Scratch[k.atPanel])
	k.set.Lanes[k.stored](panel, 4*nr, src, k.outs*k.from.Size(), pixels, 1<<nr-1, 1<<nr-1)
	return panel
}

// addRuns adds the products of some rows to the sums; pixel is the first pixel of their
// gradient.
func (k *wgradRows) addRuns(r *exec.Run, w *exec.Worker, b *pixelBlock, kz, row, rows int, x unsafe.Pointer, pixel int) {
	nr, ld := k.tiles.NR, 4*k.width
	heights := tiling.CeilDiv(k.perGroup, k.tiles.MR)
	for g := range k.groups {
		for p := b.lo; p < b.hi; p++ {
			panel := k.panelOf(r, w, g, p, pixel, rows*k.Out[2])
			for h := range heights {
				lo, hi := tiling.Cut(h, heights, k.perGroup)
				for tap, runs := range k.runs {
					first, end := k.starts[tap][row], k.starts[tap][row+rows]
					if first == end {
						continue
					}
					at := ((g*k.WindowSize+kz*len(k.runs)+tap)*k.tapRows+lo)*ld + 4*p*nr
					d := unsafe.Add(b.sums, at)
					k.set.PixelRuns[hi-lo](end-first, unsafe.Add(x, 4*(g*k.perGroup+lo)), 4*k.Stride[2]*k.channels, panel, 4*nr, d, ld, d, ld, 1<<nr-1, unsafe.Pointer(&runs[3*first]))
				}
			}
		}
	}
}
