package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// Transforms add up to four elements of a tile along two axes. So they can overflow where a
// direct convolution does not, and an infinity or NaN can reach pixels that do not read it.
// Both are visible: an infinity or NaN in a transformed tile makes every pixel that depends on
// it infinite or NaN. So a finite pixel is right, and a row of tiles with another pixel is computed
// again without transforms.

// finiteRows reports whether all pixels of a part of the result are finite; there are cols channels,
// and rows of ld bytes.
func finiteRows(d unsafe.Pointer, pixels, cols, ld int) bool {
	if 4*cols == ld { // rows follow each other
		pixels, cols = 1, pixels*cols
	}
	for i := range pixels {
		if !finite(unsafe.Slice((*float32)(unsafe.Add(d, i*ld)), cols)) {
			return false
		}
	}
	return true
}

// finite reports whether all elements are finite.
func finite(x []float32) bool {
	if v := vec.Native(); v != nil {
		return v.Infinities(x) == 0
	}
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// directly computes a row of tiles, of so many rows of pixels, at d, as the sum over the window of
// products of source pixels and kernels.
func (k *winogradPass) directly(r *exec.Run, w *exec.Worker, b band, rows int, d unsafe.Pointer) {
	p, t := &k.phases[0], k.tiles
	nr, width := 4*t.NR, p.count[2]
	kernels := unsafe.Pointer(&w.Scratch[k.atV]) // the memory of transformed tiles is free
	heights := tiling.CeilDiv(width, t.MR)
	b.rows = 2
	k.find(r, w.Scratch, p, &b)
	start := b.first(p)
	for panel := k.first; panel < k.end; panel++ {
		k.kernels(r, panel, kernels)
		col := panel * t.NR
		mask := uint(1)<<min(t.NR, k.lanes-col) - 1
		for y := range rows {
			to := unsafe.Add(d, y*width*k.ld+4*(col-k.first*t.NR))
			for tap := range k.WindowSize {
				row := start + (y+tap/3)*b.row + tap%3*b.pixel
				for h := range heights {
					lo, hi := tiling.Cut(h, heights, width)
					d := unsafe.Add(to, lo*k.ld)
					s := d
					if tap == 0 {
						s = nil
					}
					t.Rows[hi-lo](k.depth, b.from(row+lo*b.pixel), b.pixel, unsafe.Add(kernels, tap*k.depth*nr), nr, s, k.ld, d, k.ld, mask)
				}
			}
		}
	}
}

// first returns the offset of the window of a band's first pixel from the band's start, in
// bytes.
func (b *band) first(p *stridedPhase) int {
	return (p.low[0]-b.low[0])*b.plane + (p.low[1]-b.low[1])*b.row + (p.low[2]-b.low[2])*b.pixel
}

// exact reports whether transformed sums are finite: rows of n channels at d, step bytes
// apart, one for each channel of the input.
func (k *winogradGradPass) exact(w *exec.Worker, d unsafe.Pointer, step, n int) bool {
	// Sums of float32 numbers in float64 are finite unless one of the numbers is not.
	if vec.Native() == nil {
		for c := range k.channels {
			if !finite(unsafe.Slice((*float32)(unsafe.Add(d, c*step)), n)) {
				return false
			}
		}
		return true
	}
	columns := lanes.ViewOf[float64](w.Scratch[k.atColumns:], n)
	clear(columns)
	x := unsafe.Slice((*float32)(d), (k.channels-1)*step/4+n)
	vec.Native().SumColumns(columns, x, k.channels, step/4)
	for _, v := range columns {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// directly returns the sum of products for an element of the window and n
// channels of the result from out on: rows of 32 channels, one for each channel
// of the input.
func (k *winogradGradPass) directly(r *exec.Run, w *exec.Worker, tap, out, n int) unsafe.Pointer {
	row := k.row
	in, grads := &k.input.phases[0], &k.grads.phases[0]
	t, width := k.set.F32, k.Out[2]
	sums := unsafe.Pointer(&w.Scratch[k.atDirect])
	pixels := lanes.ViewOf[float32](w.Scratch[k.atDirect+k.channels*row:], width*row/4)
	clear(pixels) // channels beyond n, too
	begins := true
	heights := tiling.CeilDiv(k.channels, t.MR)
	for j := range k.Batch * k.Out[0] * k.bands {
		y := j % k.bands * 2 * k.down
		plane := j / k.bands
		b := band{image: plane / k.Out[0], z: plane % k.Out[0], y: y, rows: tiling.RoundUp(min(2*k.down, k.Out[1]-y), 2)}
		x, g := b, b
		k.input.find(r, w.Scratch, in, &x)
		k.grads.find(r, w.Scratch[k.atGradsBand:], grads, &g)
		for i := range min(2*k.down, k.Out[1]-y) {
			for at := range width {
				from := unsafe.Slice((*float32)(g.from(g.first(grads)+i*g.row+at*g.pixel+4*out)), n)
				copy(pixels[at*row/4:], from)
			}
			a := x.from(x.first(in) + (i+tap/3)*x.row + tap%3*x.pixel)
			for h := range heights {
				lo, hi := tiling.Cut(h, heights, k.channels)
				d := unsafe.Add(sums, lo*row)
				s := d
				if begins {
					s = nil
				}
				k.inner(width, hi-lo, unsafe.Add(a, 4*lo), x.pixel, unsafe.Pointer(&pixels[0]), s, d)
			}
			begins = false
		}
	}
	return sums
}

// put stores sums of a tap for n channels of the result.
func (k *winogradGradPass) put(r *exec.Run, w *exec.Worker, at, n int, sums unsafe.Pointer) {
	row := k.row
	for c := range k.channels {
		putRow(&k.convolution, r, w, at+c*k.outs, unsafe.Slice((*float32)(unsafe.Add(sums, c*row)), n))
	}
}
