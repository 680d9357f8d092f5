package cpu

import (
	"math/bits"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// fewGrad is kernelProduct for a source of few channels: the sums of up to nine
// elements of the window stay in registers for the rows of a block, and each of
// the result's gradients is read once for all of them. Of the input the block
// is copied in float32, with zeros around it.
type fewGrad struct {
	*kernelProduct
	at       []int64 // of each element of the window and channel: in the copy, and of its sum
	bands    int     // of a plane
	units    int     // planes, or bands if planes are few
	rowBytes int     // bytes of a row of the copy
	byPlanes bool
}

const (
	fewGradTaps = 9        // of a call
	fewGradAll  = 27       // elements of the window times channels, at most
	fewGradBox  = 32 << 10 // bytes of the copy, about
	fewGradRead = 24 << 10 // of the gradients of a block, if they are read again
)

// inTaps reports whether k is for fewGrad. Sums of more elements of bfloat16 are
// faster on tile registers.
func (k *kernelProduct) inTaps() bool {
	most := fewGradAll
	if k.stored == gemm.BF16 && k.set.Blocks != nil {
		most = fewGradTaps
	}
	last := k.outs % ownChannels
	return k.set.SmallChannelGrad[k.stored] != nil && k.groups == 1 && k.in[0]*k.size[0] == 1 && k.channels <= fewDepth && k.windowSize*k.channels <= most && (last == 0 || last > ownChannels/2)
}

func newFewGrad(b *exec.Builder, v *ir.Value, k *kernelProduct) exec.Kernel {
	c := &fewGrad{kernelProduct: k}
	k.tiles = k.set.F32
	k.boxCols = (k.out[2]-1)*k.stride[2] + (k.size[2]-1)*k.dilation[2] + 1
	c.rowBytes = 4 * k.boxCols * k.channels
	k.block = min(k.out[1], fewGradBox/(c.rowBytes*k.stride[1]))
	if k.windowSize*k.channels > fewGradTaps {
		k.block = min(k.block, fewGradRead/(k.out[2]*k.outs*k.from.Size()))
	}
	k.block = tiling.Even(k.out[1], max(1, k.block), 1)
	k.boxRows = (k.block-1)*k.stride[1] + (k.size[1]-1)*k.dilation[1] + 1
	c.bands = tiling.CeilDiv(k.out[1], k.block)
	c.byPlanes = k.batch >= mostSums
	k.blocks, c.units = k.batch*c.bands, k.batch
	if !c.byPlanes {
		c.units = k.blocks
	}
	k.tapRows, k.width = k.channels, tiling.RoundUp(k.outs, ownChannels)
	k.panels, k.parts = k.width/ownChannels, 1
	k.sumBytes = 4 * k.windowSize * k.channels * k.width
	// A power of two: images are cut where others cut them.
	k.sums = max(1, min(c.units, mostSums, sumsBytes/k.sumBytes, tiling.CeilDiv(k.macs(), chunkMACs)))
	k.sums = 1 << (bits.Len(uint(k.sums)) - 1)
	for ky := range k.size[1] {
		for kx := range k.size[2] {
			for ch := range k.channels {
				row := (ky*k.size[2]+kx)*k.channels + ch
				c.at = append(c.at, int64(ky*k.dilation[1]*c.rowBytes+4*(kx*k.dilation[2]*k.channels+ch)), int64(4*row*k.width))
			}
		}
	}
	k.finish.kernelProduct = k
	b.ReserveShared(flagBytes + k.sums*k.sumBytes)
	k.follow(b, v, tiling.RoundUp(c.rowBytes*k.boxRows, 64), k.outs)
	return c
}

func (k *fewGrad) Run(r *exec.Run) {
	r.Parallel(k, k.sums, k.macs()/16)
	k.End(r)
}

func (k *fewGrad) End(r *exec.Run) {
	r.Parallel(&k.finish, k.windowSize*k.channels, k.sums*k.windowSize*k.channels*k.outs)
}

func (k *fewGrad) Chunk(r *exec.Run, w *exec.Worker, i int) {
	clear(k.sumsOf(r, i))
	first, end := tiling.Cut(i, k.sums, k.units)
	k.add(r, w, i, first, end, 0)
}

// Cuts implements imagewise.
func (k *fewGrad) Cuts() (images, pieces, chunks int) {
	if !k.byPlanes {
		return 0, 0, 0
	}
	return k.batch, k.batch, k.sums
}

// Share implements imagewise.
func (k *fewGrad) Share(base int) int {
	k.base = base
	return base + tiling.RoundUp(flagBytes+k.sums*k.sumBytes, 64)
}

// Begin implements imagewise.
func (k *fewGrad) Begin(*exec.Run) {}

// Piece implements imagewise.
func (k *fewGrad) Piece(r *exec.Run, w *exec.Worker, i, pieces, shift int) {
	n := pieces / k.sums // chunks are no more than sums, so it is at least one
	if i%n == 0 {
		clear(k.sumsOf(r, i/n))
	}
	first, end := tiling.Cut(i, pieces, k.units)
	k.add(r, w, i/n, first, end, shift)
}

// add adds the products of units first to end-1 to a sum; the result's gradient
// lies that many images earlier than it would.
func (k *fewGrad) add(r *exec.Run, w *exec.Worker, sum, first, end, shift int) {
	if k.byPlanes {
		first, end = first*k.bands, end*k.bands
	}
	size := k.from.Size()
	kernels := k.set.SmallChannelGrad[k.stored]
	sums := unsafe.Pointer(&k.sumsOf(r, sum)[0])
	xs := 4 * k.stride[2] * k.channels
	for block := first; block < end; block++ {
		image, y := block/k.bands, block%k.bands*k.block
		rows := min(k.block, k.out[1]-y)
		k.bring(r, w, image, y*k.stride[1]-k.low[1])
		box := unsafe.Pointer(&w.Scratch[0])
		for p := range k.panels {
			grads := unsafe.Pointer(&r.Values[k.b][((((image-shift)*k.out[1]+y)*k.out[2])*k.outs+p*ownChannels)*size])
			mask := uint(1)<<min(ownChannels, k.outs-p*ownChannels) - 1
			for at := k.at; len(at) > 0; {
				n := min(len(at)/2, fewGradTaps)
				if len(at)/2 > fewGradTaps {
					n = tiling.CeilDiv(len(at)/2, tiling.CeilDiv(len(at)/2, fewGradTaps))
				}
				kernels[n](k.out[2], rows, unsafe.Pointer(&at[0]), box, xs, grads, k.outs*size,
					unsafe.Add(sums, 4*p*ownChannels), k.stride[1]*k.rowBytes-k.out[2]*xs, mask)
				at = at[2*n:]
			}
		}
	}
}

// bring copies what a block reads of an image, from row y on.
func (k *fewGrad) bring(r *exec.Run, w *exec.Worker, image, y int) {
	for j := range k.boxRows {
		row := w.Scratch[j*k.rowBytes:][:k.rowBytes]
		if y+j < 0 || y+j >= k.in[1] {
			clear(row)
			continue
		}
		k.line(r, row, image*k.in[1]+y+j, -k.low[2], 1, k.boxCols)
	}
}
