package conv

import (
	"math/bits"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// wgradSmall is a wgradGEMM for an input of few channels: the sums of up to nine elements of
// the window stay in registers over the rows of a block, and each pixel of the result's
// gradient is read once for all of them. The input of a block is copied as float32, with zeros
// around it.
//
// In an ordered set there is a sum for each row of pixels, which micro-kernels for elements of a
// row of the window have where there is no such loop.
type wgradSmall struct {
	*wgradGEMM
	panel    int     // columns of a panel
	atPanel  int     // in scratch memory: a packed panel of the gradients of a block, for micro-kernels
	at       []int64 // offsets for each element of the window and channel: in the copy, and of the sum
	bands    int     // of a plane
	units    int     // planes, or bands if planes are few
	rowBytes int     // bytes of a row of the copy
	byPlanes bool
}

const (
	smallGradTaps = 9        // elements of the window of a call
	smallGradAll  = 27       // elements of the window times channels, at most
	smallGradCopy = 32 << 10 // bytes of the copy, about
	smallGradRead = 24 << 10 // bytes of the gradients of a block, if they are read several times
	smallGradSums = 96 << 10 // bytes of a partial sum of micro-kernels, at most, which stay in L2
)

// inTaps reports whether wgradSmall can compute k. With more elements bfloat16 is faster on
// tile registers.
func (k *wgradGEMM) inTaps() bool {
	if k.groups > 1 || k.In[0]*k.Size[0] > 1 {
		return false
	}
	if k.inPanels() {
		row := 4 * ((k.Out[2]-1)*k.Stride[2] + k.Size[2]) * k.channels
		return k.Dilation[2] == 1 && row*k.Size[1] <= smallGradCopy && 4*k.WindowSize*k.channels*k.outs <= smallGradSums
	}
	most := smallGradAll
	if k.stored == gemm.BF16 && k.set.Blocks != nil {
		most = smallGradTaps
	}
	able := k.set.SmallChannelGrad[k.stored] != nil
	if k.set.Ordered {
		able = k.Dilation[2] == 1 // for micro-kernels, on every level
	}
	last := k.outs % window.VectorChannels
	return able && k.channels <= smallDepth && k.WindowSize*k.channels <= most && (last == 0 || last > window.VectorChannels/2)
}

// inPanels reports whether wgradSmall computes k by micro-kernels, where another algorithm may be
// chosen by their time.
func (k *wgradGEMM) inPanels() bool {
	return !k.set.Ordered && k.set.Depthwise != nil && k.set.SmallChannelGrad[k.stored] == nil
}

// panelsPay reports whether wgradSmall takes less time by micro-kernels than the algorithm
// "blocks", which calls them for each element of the window and a block of pixels, but copies the
// pixels that an element reads. Both are estimated in cycles for a pixel, measured with AVX2.
func (k *wgradGEMM) panelsPay() bool {
	t, panels := k.set.F32, tiling.CeilDiv(k.outs, k.set.F32.NR)
	step := func(rows int) int { // of all tiles of so many rows; products of fewer than four wait for each other
		heights := tiling.CeilDiv(rows, t.MR)
		return max(4*heights, rows)
	}
	calls := func(rows int) int { return 14*tiling.CeilDiv(rows, t.MR) + 3*rows }
	across := k.Size[2] * k.channels
	here := panels * k.Size[1] * (step(across) + calls(across)/k.Out[2])
	copied, pixel := k.Size[2], 1+k.channels/4
	if k.Stride[1] != 1 || k.Out[1]*k.Out[2] < smallImage {
		copied = k.WindowSize
	}
	if k.Stride[2] > 1 {
		pixel += 20
	}
	blocks := panels*(4+k.WindowSize*(step(k.channels)+calls(k.channels)/blockPixels)) + copied*pixel
	return 20*here < 21*blocks
}

func newWgradSmall(b *exec.Builder, v *ir.Value, k *wgradGEMM) exec.Kernel {
	c := &wgradSmall{wgradGEMM: k}
	k.tiles = k.set.F32
	k.boxCols = (k.Out[2]-1)*k.Stride[2] + (k.Size[2]-1)*k.Dilation[2] + 1
	c.rowBytes = 4 * k.boxCols * k.channels
	k.block = min(k.Out[1], smallGradCopy/(c.rowBytes*k.Stride[1]))
	if k.WindowSize*k.channels > smallGradTaps {
		k.block = min(k.block, smallGradRead/(k.Out[2]*k.outs*k.from.Size()))
	}
	k.block = tiling.Even(k.Out[1], max(1, k.block), 1)
	k.boxRows = (k.block-1)*k.Stride[1] + (k.Size[1]-1)*k.Dilation[1] + 1
	c.bands = tiling.CeilDiv(k.Out[1], k.block)
	c.byPlanes = k.Batch >= mostSums
	k.blocks, c.units = k.Batch*c.bands, k.Batch
	if !c.byPlanes {
		c.units = k.blocks
	}
	c.panel, c.atPanel = window.VectorChannels, tiling.RoundUp(c.rowBytes*k.boxRows, 64)
	scratch := c.atPanel
	if k.set.SmallChannelGrad[k.stored] == nil {
		c.panel = k.tiles.NR
		scratch += 4 * c.panel * k.block * k.Out[2]
	}
	k.tapRows, k.width = k.channels, tiling.RoundUp(k.outs, c.panel)
	k.panels, k.parts = k.width/c.panel, 1
	k.sumBytes = 4 * k.WindowSize * k.channels * k.width
	all := 4 * k.WindowSize * k.channels * tiling.RoundUp(k.outs, window.VectorChannels) // on every level
	// A power of two: other kernels of a batch-tiled group cut images alike.
	k.sums = max(1, min(c.units, mostSums, sumsBytes/all, tiling.CeilDiv(k.macs(), product.ChunkMACs)))
	k.sums = 1 << (bits.Len(uint(k.sums)) - 1)
	for ky := range k.Size[1] {
		for kx := range k.Size[2] {
			for ch := range k.channels {
				row := (ky*k.Size[2]+kx)*k.channels + ch
				c.at = append(c.at, int64(ky*k.Dilation[1]*c.rowBytes+4*(kx*k.Dilation[2]*k.channels+ch)), int64(4*row*k.width))
			}
		}
	}
	k.finish.wgradGEMM = k
	b.ReserveShared(product.FlagBytes + k.sums*k.sumBytes)
	k.addEpilogue(b, v, scratch, k.outs)
	return c
}

func (k *wgradSmall) Run(r *exec.Run) {
	r.Parallel(k, k.sums, k.macs()/16)
	k.End(r)
}

func (k *wgradSmall) End(r *exec.Run) {
	r.Parallel(&k.finish, k.WindowSize*k.channels, k.sums*k.WindowSize*k.channels*k.outs)
}

func (k *wgradSmall) Chunk(r *exec.Run, w *exec.Worker, i int) {
	clear(k.sumsOf(r, i))
	first, end := tiling.Cut(i, k.sums, k.units)
	k.add(r, w, i, first, end, 0)
}

// Cuts implements exec.BatchTiled.
func (k *wgradSmall) Cuts() (images, pieces, chunks int) {
	if !k.byPlanes {
		return 0, 0, 0
	}
	return k.Batch, k.Batch, k.sums
}

// Share implements exec.BatchTiled.
func (k *wgradSmall) Share(base int) int {
	k.base = base
	return base + tiling.RoundUp(product.FlagBytes+k.sums*k.sumBytes, 64)
}

// Begin implements exec.BatchTiled.
func (k *wgradSmall) Begin(*exec.Run) {}

// Piece implements exec.BatchTiled.
func (k *wgradSmall) Piece(r *exec.Run, w *exec.Worker, i, pieces, shift int) {
	n := pieces / k.sums // at least one, because there are no more sums than pieces
	if i%n == 0 {
		clear(k.sumsOf(r, i/n))
	}
	first, end := tiling.Cut(i, pieces, k.units)
	k.add(r, w, i/n, first, end, shift)
}

// add adds the products of units [first, end) to a partial sum. The result's gradient is shift
// images before its usual address.
func (k *wgradSmall) add(r *exec.Run, w *exec.Worker, sum, first, end, shift int) {
	if k.byPlanes {
		first, end = first*k.bands, end*k.bands
	}
	size := k.from.Size()
	kernels := k.set.SmallChannelGrad[k.stored]
	sums := unsafe.Pointer(&k.sumsOf(r, sum)[0])
	for block := first; block < end; block++ {
		image, y := block/k.bands, block%k.bands*k.block
		rows := min(k.block, k.Out[1]-y)
		k.loadRow(r, w, image, y*k.Stride[1]-k.Low[1])
		for p := range k.panels {
			grads := unsafe.Pointer(&r.Values[k.b][((((image-shift)*k.Out[1]+y)*k.Out[2])*k.outs+p*k.panel)*size])
			switch {
			case kernels == nil:
				k.addPanel(w, sums, p, grads, rows)
			case k.set.Ordered:
				for row := range rows {
					k.addTaps(w, sums, p, unsafe.Add(grads, row*k.Out[2]*k.outs*size), row, 1)
				}
			default:
				k.addTaps(w, sums, p, grads, 0, rows)
			}
		}
	}
}

// addTaps adds the products of some rows of a block, from row on, and panel p of their gradients.
func (k *wgradSmall) addTaps(w *exec.Worker, sums unsafe.Pointer, p int, grads unsafe.Pointer, row, rows int) {
	kernels, xs := k.set.SmallChannelGrad[k.stored], 4*k.Stride[2]*k.channels
	box := unsafe.Pointer(&w.Scratch[row*k.Stride[1]*k.rowBytes])
	mask := uint(1)<<min(window.VectorChannels, k.outs-p*window.VectorChannels) - 1
	for at := k.at; len(at) > 0; {
		n := min(len(at)/2, smallGradTaps)
		if len(at)/2 > smallGradTaps {
			n = tiling.CeilDiv(len(at)/2, tiling.CeilDiv(len(at)/2, smallGradTaps))
		}
		kernels[n](k.Out[2], rows, unsafe.Pointer(&at[0]), box, xs, grads, k.outs*k.from.Size(),
			unsafe.Add(sums, 4*p*window.VectorChannels), k.Stride[1]*k.rowBytes-k.Out[2]*xs, mask)
		at = at[2*n:]
	}
}

// addPanel adds the products of the rows of a block and panel p of their gradients, row by row.
func (k *wgradSmall) addPanel(w *exec.Worker, sums unsafe.Pointer, p int, grads unsafe.Pointer, rows int) {
	t, cols, ldb := k.tiles, min(k.panel, k.outs-p*k.panel), 4*k.outs
	if cols < k.panel || k.stored != gemm.F32 { // micro-kernels read whole panels of float32
		packed := unsafe.Pointer(&w.Scratch[k.atPanel])
		k.set.Lanes[k.stored](packed, 4*k.panel, grads, k.outs*k.from.Size(), rows*k.Out[2], 1<<cols-1, 1<<k.panel-1)
		grads, ldb = packed, 4*k.panel
	}
	across, ld := k.Size[2]*k.channels, 4*k.width
	heights := tiling.CeilDiv(across, t.MR)
	for ky := range k.Size[1] {
		for h := range heights {
			lo, hi := tiling.Cut(h, heights, across)
			d := unsafe.Add(sums, (ky*across+lo)*ld+4*p*k.panel)
			for row := range rows {
				a := unsafe.Pointer(&w.Scratch[(row*k.Stride[1]+ky*k.Dilation[1])*k.rowBytes+4*lo])
				t.Inner[hi-lo](k.Out[2], a, 4*k.Stride[2]*k.channels, unsafe.Add(grads, row*k.Out[2]*ldb), ldb, d, ld, d, ld, 1<<cols-1)
			}
		}
	}
}

// loadRow copies the input of a block of an image, from row y on.
func (k *wgradSmall) loadRow(r *exec.Run, w *exec.Worker, image, y int) {
	for j := range k.boxRows {
		row := w.Scratch[j*k.rowBytes:][:k.rowBytes]
		if y+j < 0 || y+j >= k.In[1] {
			clear(row)
			continue
		}
		k.line(r, row, image*k.In[1]+y+j, -k.Low[2], 1, k.boxCols)
	}
}
