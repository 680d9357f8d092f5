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
type wgradSmall struct {
	*wgradGEMM
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
)

// inTaps reports whether wgradSmall can compute k. With more elements bfloat16 is faster on
// tile registers.
func (k *wgradGEMM) inTaps() bool {
	most := smallGradAll
	if k.stored == gemm.BF16 && k.set.Blocks != nil {
		most = smallGradTaps
	}
	last := k.outs % window.VectorChannels
	return k.set.SmallChannelGrad[k.stored] != nil && k.groups == 1 && k.In[0]*k.Size[0] == 1 && k.channels <= smallDepth && k.WindowSize*k.channels <= most && (last == 0 || last > window.VectorChannels/2)
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
	k.tapRows, k.width = k.channels, tiling.RoundUp(k.outs, window.VectorChannels)
	k.panels, k.parts = k.width/window.VectorChannels, 1
	k.sumBytes = 4 * k.WindowSize * k.channels * k.width
	// A power of two: other kernels of a batch-tiled group cut images alike.
	k.sums = max(1, min(c.units, mostSums, sumsBytes/k.sumBytes, tiling.CeilDiv(k.macs(), product.ChunkMACs)))
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
	k.addEpilogue(b, v, tiling.RoundUp(c.rowBytes*k.boxRows, 64), k.outs)
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
	xs := 4 * k.Stride[2] * k.channels
	for block := first; block < end; block++ {
		image, y := block/k.bands, block%k.bands*k.block
		rows := min(k.block, k.Out[1]-y)
		k.loadRow(r, w, image, y*k.Stride[1]-k.Low[1])
		box := unsafe.Pointer(&w.Scratch[0])
		for p := range k.panels {
			grads := unsafe.Pointer(&r.Values[k.b][((((image-shift)*k.Out[1]+y)*k.Out[2])*k.outs+p*window.VectorChannels)*size])
			mask := uint(1)<<min(window.VectorChannels, k.outs-p*window.VectorChannels) - 1
			for at := k.at; len(at) > 0; {
				n := min(len(at)/2, smallGradTaps)
				if len(at)/2 > smallGradTaps {
					n = tiling.CeilDiv(len(at)/2, tiling.CeilDiv(len(at)/2, smallGradTaps))
				}
				kernels[n](k.Out[2], rows, unsafe.Pointer(&at[0]), box, xs, grads, k.outs*size,
					unsafe.Add(sums, 4*p*window.VectorChannels), k.Stride[1]*k.rowBytes-k.Out[2]*xs, mask)
				at = at[2*n:]
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
