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

// wgradDots is the gradient by the kernels of a convolution with very few channels of the input
// and of the result: pixels are in vectors. For each element of the window and pair of channels
// it is a dot product of two planes over a block of rows: a channel of the result's gradient, and
// a channel of the input, shifted by the element.
//
// Planes are float32, with zeros around the image. Rows of both have the length of the input's
// rows, so that a dot product goes through a whole block; the gradient is zero between rows. (So
// an infinite pixel can give NaN in the gradients of elements of the window that do not read it.)
//
// Blocks are distributed, by their index, over a fixed number of partial sums, each computed by
// one worker. The partial sums are added up in order at the end.
type wgradDots struct {
	convolution
	set    *gemm.Set
	stored gemm.Element
	plus   func(dst, a, b []float32)
	finish finishDots

	pitch  int // elements of a row of a plane
	rows   int // of a block
	bands  int // blocks of an image
	blocks int
	sums   int
	size   int // elements of a partial sum
	planeX int // bytes of a plane of the input, and of the gradient
	planeG int
	atG    int // offset of the gradient's planes in scratch memory
}

// finishDots is the task that adds up the partial sums and stores the gradient.
type finishDots struct{ *wgradDots }

const (
	dotPairs    = 9        // pairs of channels, at most
	dotPairsPay = 3        // pairs of channels, at most, for which it pays
	dotBytes    = 24 << 10 // of the planes of a block, about: they stay in L1
	dotRow      = 16       // pixels of a row, at least
)

// inDots reports whether wgradDots can compute k.
func (k *wgradGEMM) inDots() bool {
	return k.groups == 1 && k.In[0]*k.Size[0]*k.Out[0] == 1 && k.Stride[1] == 1 && k.Stride[2] == 1 && k.channels*k.outs <= dotPairs &&
		k.set.Dots[gemm.F32] != nil
}

// dotsPay reports whether wgradDots is faster than wgradTaps, whose tiles are mostly empty for so
// few channels. Measured with AVX-512: 1.1 to 10 times with up to three pairs of channels, 0.9 to
// 1.4 times with four.
func (k *wgradGEMM) dotsPay() bool {
	return k.set.Depthwise != nil && k.channels*k.outs <= dotPairsPay && k.Out[2] >= dotRow
}

func newWgradDots(b *exec.Builder, v *ir.Value, g *wgradGEMM) exec.Kernel {
	k := &wgradDots{convolution: g.convolution, set: g.set, stored: g.stored, plus: g.plus}
	k.finish.wgradDots = k
	k.pitch = k.Out[2] + (k.Size[2]-1)*k.Dilation[2]
	more := (k.Size[1] - 1) * k.Dilation[1] // rows of the input beyond those of the block
	rows := (dotBytes/(4*k.pitch) - more*k.channels) / (k.channels + k.outs)
	k.rows = tiling.Even(k.Out[1], max(1, rows), 1)
	k.bands = tiling.CeilDiv(k.Out[1], k.rows)
	k.blocks = k.Batch * k.bands
	k.size = k.WindowSize * k.channels * k.outs
	k.sums = max(1, min(k.blocks, mostSums, tiling.CeilDiv(k.macs(), product.ChunkMACs)))
	b.ReserveShared(4 * k.sums * k.size)
	k.planeX, k.planeG = 4*(k.rows+more)*k.pitch, 4*k.rows*k.pitch
	k.atG = tiling.RoundUp(k.channels*k.planeX, 64)
	k.addEpilogue(b, v, k.atG+tiling.RoundUp(k.outs*k.planeG, 64), k.outs)
	return k
}

func (k *wgradDots) Run(r *exec.Run) {
	r.Parallel(k, k.sums, k.macs()/16)
	r.Parallel(&k.finish, 1, k.sums*k.size)
}

// sumOf returns partial sum i: elements of the window by channels of the input by channels of
// the result.
func (k *wgradDots) sumOf(r *exec.Run, i int) []float32 {
	return lanes.ViewOf[float32](r.Shared[4*i*k.size:], k.size)
}

func (k *wgradDots) Chunk(r *exec.Run, w *exec.Worker, i int) {
	sum := k.sumOf(r, i)
	clear(sum)
	first, end := tiling.Cut(i, k.sums, k.blocks)
	for block := first; block < end; block++ {
		image, y := block/k.bands, block%k.bands*k.rows
		rows := min(k.rows, k.Out[1]-y)
		k.load(r, w, image, y, rows)
		k.add(w, sum, rows)
	}
}

// load copies the planes of a block of rows of an image.
func (k *wgradDots) load(r *exec.Run, w *exec.Worker, image, y, rows int) {
	x := unsafe.Pointer(&w.Scratch[0])
	for j := range rows + (k.Size[1]-1)*k.Dilation[1] {
		k.row(r.Values[k.a], unsafe.Add(x, 4*j*k.pitch), k.planeX, k.channels, k.In, image, y+j-k.Low[1], k.Low[2])
	}
	g := unsafe.Pointer(&w.Scratch[k.atG])
	for j := range rows {
		k.row(r.Values[k.b], unsafe.Add(g, 4*j*k.pitch), k.planeG, k.outs, k.Out, image, y+j, 0)
	}
}

// row copies row y of an image to the same row of each channel's plane, from pixel -low on, with
// zeros for pixels outside of the image.
func (k *wgradDots) row(data []byte, d unsafe.Pointer, plane, channels int, dims [3]int, image, y, low int) {
	left := min(max(0, low), k.pitch)
	n := max(0, min(k.pitch-left, dims[2]-max(0, -low)))
	if y < 0 || y >= dims[1] {
		n = 0
	}
	for c := range channels {
		to := unsafe.Slice((*float32)(unsafe.Add(d, c*plane)), k.pitch)
		clear(to[:left])
		clear(to[left+n:])
	}
	if n == 0 {
		return
	}
	size := k.from.Size()
	src := unsafe.Pointer(&data[((image*dims[1]+y)*dims[2]+max(0, -low))*channels*size])
	d = unsafe.Add(d, 4*left)
	if channels == 1 {
		if widen := k.set.Widen[k.stored]; widen != nil && k.stored != gemm.F32 {
			widen(d, src, n)
		} else {
			copy(unsafe.Slice((*float32)(d), n), unsafe.Slice((*float32)(src), n))
		}
		return
	}
	for j := 0; j < n; j += 16 {
		mask := uint(1)<<min(16, n-j) - 1
		k.set.Transpose[k.stored](unsafe.Add(d, 4*j), plane, unsafe.Add(src, j*channels*size), channels*size, channels, mask, mask)
	}
}

// add adds the dot products of a block to a sum.
func (k *wgradDots) add(w *exec.Worker, sum []float32, rows int) {
	x, g := unsafe.Pointer(&w.Scratch[0]), unsafe.Pointer(&w.Scratch[k.atG])
	n := (rows-1)*k.pitch + k.Out[2]
	for c := range k.channels {
		for ky := range k.Size[1] {
			for kx := 0; kx < k.Size[2]; kx += 4 {
				at := unsafe.Add(x, c*k.planeX+4*(ky*k.Dilation[1]*k.pitch+kx*k.Dilation[2]))
				count := min(4, k.Size[2]-kx)
				for o := range k.outs {
					var d [4]float32
					k.set.Dots[gemm.F32](unsafe.Pointer(&d), unsafe.Add(g, o*k.planeG), at, 4*k.Dilation[2], count, n)
					for i, more := range d[:count] {
						sum[((ky*k.Size[2]+kx+i)*k.channels+c)*k.outs+o] += more
					}
				}
			}
		}
	}
}

func (k *finishDots) Chunk(r *exec.Run, w *exec.Worker, _ int) {
	total := k.sumOf(r, 0)
	for s := 1; s < k.sums; s++ {
		k.plus(total, total, k.sumOf(r, s))
	}
	for row := range k.WindowSize * k.channels {
		putRow(&k.convolution, r, w, row*k.outs, total[row*k.outs:][:k.outs])
	}
}
