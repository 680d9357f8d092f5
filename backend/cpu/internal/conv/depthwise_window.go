package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
)

// windowRegions is an implicitGEMM in vector loops that keep the sums over the whole window in
// registers, in float32. Phases are cut into regions as in borderGEMM. Kernels are in shared
// memory, with a row for each element of the window and channel of the source.
type windowRegions struct {
	*implicitGEMM
	regions [][]windowRegion // by phase
	padded  int              // bytes of a row of kernels or sums
	times   int              // that the kernels are repeated in their rows, or 0
	widen   widenKernels
}

// windowRegion is a box of pixels of a phase whose windows have the same elements within the
// source: the offset of the first of these elements for the first pixel of a row, and the
// offsets of all elements from that one, in the source and in the kernels.
type windowRegion struct {
	from, to [3]int
	first    int
	places   []int64
}

// widenKernels is the task that converts kernels to float32, padded to whole vectors.
type widenKernels struct{ *windowRegions }

const (
	bandBytes   = 64 << 10  // of a band, which stays in L2 with its results
	copiedBytes = 128 << 10 // of the copy of a band: rows that neighbouring bands share are copied twice
)

// cutAll cuts all phases into regions.
func (k *windowRegions) cutAll() {
	k.widen.windowRegions = k
	k.padded = 4 * tiling.RoundUp(k.dstAll, window.VectorChannels)
	k.eachPhase(func(q stridedPhase, taps [3][]tap) {
		k.phase(q, taps)
		k.cut(&k.phases[len(k.phases)-1], taps)
	})
}

// cut cuts a phase into regions.
func (k *windowRegions) cut(p *stridedPhase, taps [3][]tap) {
	pixel := 4 * k.srcAll
	row, plane, low := k.dims[2]*pixel, k.dims[1]*k.dims[2]*pixel, [3]int{}
	if p.copied {
		row, plane, low = p.box[2]*pixel, p.box[1]*p.box[2]*pixel, p.low
	}
	var pieces [3][]regionPiece
	for axis := range 3 {
		pieces[axis] = k.along(p, axis, taps[axis])
	}
	var all []windowRegion
	for _, z := range pieces[0] {
		for _, y := range pieces[1] {
			for _, x := range pieces[2] {
				g := windowRegion{from: [3]int{z.from, y.from, x.from}, to: [3]int{z.to, y.to, x.to}}
				for _, tz := range taps[0][z.lo:z.hi] {
					for _, ty := range taps[1][y.lo:y.hi] {
						for _, tx := range taps[2][x.lo:x.hi] {
							from := (tz.at-low[0])*plane + (ty.at-low[1])*row + (tx.at-low[2])*pixel + x.from*p.move[2]*pixel
							tap := (tz.element*k.Size[1]+ty.element)*k.Size[2] + tx.element
							if len(g.places) == 0 {
								g.first = from
							}
							for c := range k.depth {
								g.places = append(g.places, int64(from-g.first+4*c), int64((tap*k.depth+c)*k.padded))
							}
						}
					}
				}
				all = append(all, g)
			}
		}
	}
	k.regions = append(k.regions, all)
}

// eachRegion calls f with the regions of row y of a band: the address of the first element of
// the first window, and the offsets of the other elements from there.
func (k *windowRegions) eachRegion(phase int, b *band, y int, f func(x unsafe.Pointer, places []int64, from, n int)) {
	p := &k.phases[phase]
	for i := range k.regions[phase] {
		g := &k.regions[phase][i]
		if b.z < g.from[0] || b.z >= g.to[0] || b.y+y < g.from[1] || b.y+y >= g.to[1] {
			continue
		}
		x := b.data
		if len(g.places) > 0 {
			x = b.from(g.first + y*p.move[1]*b.row)
		}
		f(x, g.places, g.from[2], g.to[2]-g.from[2])
	}
}

// eachBox calls f with the rows of all regions of a band, or with the column of a region that is
// one pixel wide, as the border is: the address of the first element of the first window, the
// offsets of the other elements from there, the number of pixels, and the bytes from a pixel to
// the next in the source. The result begins at bytes after that of the band, whose rows and
// pixels are row and pixel bytes apart, and has ds bytes from a pixel to the next.
func (k *windowRegions) eachBox(phase int, b *band, f func(x unsafe.Pointer, places []int64, n, xs int, at, ds int), row, pixel int) {
	p := &k.phases[phase]
	for i := range k.regions[phase] {
		g := &k.regions[phase][i]
		lo, hi := max(g.from[1], b.y)-b.y, min(g.to[1], b.y+b.rows)-b.y
		if b.z < g.from[0] || b.z >= g.to[0] || lo >= hi {
			continue
		}
		width, rows, down, right := g.to[2]-g.from[2], hi-lo, p.move[1]*b.row, p.move[2]*b.pixel
		ds := pixel
		if width == 1 {
			width, rows, right, ds = rows, 1, down, row
		}
		for y := range rows {
			x := b.data
			if len(g.places) > 0 {
				x = b.from(g.first + (lo+y)*down)
			}
			f(x, g.places, width, right, (lo+y)*row+g.from[2]*pixel, ds)
		}
	}
}

// rows returns the number of rows of kernels.
func (k *widenKernels) rows() int { return k.WindowSize * k.depth }

func (k *widenKernels) Run(r *exec.Run) { r.Parallel(k, k.rows(), k.rows()*k.dstAll) }

func (k *widenKernels) Chunk(r *exec.Run, _ *exec.Worker, row int) {
	to := r.Shared[row*k.padded:][:k.padded]
	n := k.dstAll * k.from.Size()
	lanes.RealView(r.Values[k.b][row*n:(row+1)*n], k.from, lanes.ViewOf[float32](to, k.dstAll))
	if k.stored == gemm.F32 {
		copy(to, r.Values[k.b][row*n:(row+1)*n])
	}
	clear(to[4*k.dstAll:])
	for i := 1; i < k.times; i++ {
		copy(to[4*i*k.dstAll:], to[:4*k.dstAll])
	}
}

// bandOf returns band i of a phase. Its source is copied later, by eachRow.
func (k *windowRegions) bandOf(r *exec.Run, w *exec.Worker, p *stridedPhase, i int) band {
	y := i % p.bands * p.band
	i /= p.bands
	b := band{image: i / p.count[0], z: i % p.count[0], y: y, rows: min(p.band, p.count[1]-y)}
	k.locate(r, w.Scratch, p, &b)
	return b
}

// eachRow calls f with the rows of a band in order. If the source is to be copied, it copies
// the rows that f reads just before the call, so that they are in L1.
func (k *windowRegions) eachRow(r *exec.Run, w *exec.Worker, p *stridedPhase, b *band, f func(y int)) {
	for y, copied := 0, 0; y < b.rows; y++ {
		k.copyRows(r, w.Scratch, p, b, copied, p.reads(y+1))
		copied = p.reads(y + 1)
		f(y)
	}
}

// putBand stores the pixels of a band, whose accumulators begin at d.
func (k *implicitGEMM) putBand(r *exec.Run, w *exec.Worker, p *stridedPhase, b *band, d unsafe.Pointer) {
	tile := product.Tile{Cols: k.dstAll, Data: d, LD: k.ld}
	if p.step == [3]int{1, 1, 1} {
		tile.Row, tile.Rows = k.pixelOf(p, b.image, b.z, b.y, 0), b.rows*p.count[2]
		k.store(r, w, tile)
		return
	}
	tile.Rows, tile.Step = p.count[2], p.step[2]
	for y := range b.rows {
		tile.Row = k.pixelOf(p, b.image, b.z, b.y+y, 0)
		tile.Data = unsafe.Add(d, y*p.count[2]*k.ld)
		k.store(r, w, tile)
	}
}
