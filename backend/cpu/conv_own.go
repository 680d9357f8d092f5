package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// ownProduct is a convolution with one kernel for each channel, or a gradient
// of one, in loops over channels that keep sums in registers for all of the
// window. Pixels go in regions, as those of convRegions do. Unless it is float32,
// a band of the source is copied first.
//
// For the gradient by the kernels, bands are dealt out by their number to a
// fixed number of sums, which are added up in order at the end.
type ownProduct struct {
	*convProduct
	regions [][]ownRegion // by phase
	padded  int           // bytes of the kernels, or sums, of an element of the window
	widen   widenKernels
	add     addOwn
	sums    int
	grad    bool // by the kernels
	atGrads int  // in scratch memory
}

// ownRegion is a box of pixels of a phase whose windows have the same elements
// within the source: where the first of these lies for the first pixel of a row,
// and all, behind it, and in the kernels.
type ownRegion struct {
	from, to [3]int
	first    int
	places   []int64
}

// widenKernels is the task that makes float32 kernels with room for whole
// loops.
type widenKernels struct{ *ownProduct }

// addOwn is the task that adds up the sums of an element of the window.
type addOwn struct{ *ownProduct }

const (
	ownBytes    = 64 << 10 // of a band: with what is written, less than the second cache
	ownChannels = 32       // of a loop
)

func newOwn(b *builder, v *ir.Value, c convolution, set *gemm.Set) kernel {
	k := &ownProduct{grad: c.code == op.ConvKernelGrad}
	p := &convProduct{
		convolution: c, set: set, tiles: set.F32, source: c.a, own: true, bytes: 4,
		dims: c.in, depth: 1, lanes: 1, srcAll: c.channels, dstAll: c.channels,
	}
	k.convProduct = p
	switch c.code {
	case op.ConvInputGrad:
		p.dims = c.out
	case op.ConvKernelGrad:
		p.code = op.Conv // of which the gradient goes over the same bands
	}
	p.stored = elementOf[k.from]
	p.element = p.stored
	k.padded = 4 * roundUp(k.channels, ownChannels)
	p.eachPhase(func(q convPhase, taps [3][]convTap) {
		p.phase(q, taps)
		k.cut(&p.phases[len(p.phases)-1], taps)
	})
	k.widen.ownProduct, k.add.ownProduct = k, k
	k.direct = k.to == dtype.Float32 && v.Attr.Body == nil && !k.grad
	k.lead = 4 * k.channels
	box, tile, chunks := 0, 0, 0
	for i := range p.phases {
		q := &p.phases[i]
		chunks += q.chunks
		if q.copied {
			box = max(box, q.box[0]*q.box[1]*q.box[2]*4*k.channels)
		}
		if !k.direct {
			tile = max(tile, q.band*q.count[2]*k.lead)
		}
	}
	// Loops read whole vectors of channels.
	k.atTile = roundUp(box+4*ownChannels, 64)
	k.atGrads = k.atTile
	most := max(tile, 4*k.out[2]*k.channels)
	k.sums = 1
	if k.grad {
		k.sums = max(1, min(mostSums, chunks))
	}
	b.wantShared(k.sums * k.windowSize * k.padded)
	k.follow(b, v, k.atTile+roundUp(most, 64), k.channels)
	k.result = product{set: k.set, n: k.dstAll, tileN: k.dstAll, out: k.dst, to: k.to, after: k.after}
	return k
}

// cut cuts a phase into regions.
func (k *ownProduct) cut(p *convPhase, taps [3][]convTap) {
	pixel := 4 * k.channels
	row, plane, low := k.dims[2]*pixel, k.dims[1]*k.dims[2]*pixel, [3]int{}
	if p.copied {
		row, plane, low = p.box[2]*pixel, p.box[1]*p.box[2]*pixel, p.low
	}
	var pieces [3][]regionPiece
	for axis := range 3 {
		pieces[axis] = k.along(p, axis, taps[axis])
	}
	var all []ownRegion
	for _, z := range pieces[0] {
		for _, y := range pieces[1] {
			for _, x := range pieces[2] {
				g := ownRegion{from: [3]int{z.from, y.from, x.from}, to: [3]int{z.to, y.to, x.to}}
				for _, tz := range taps[0][z.lo:z.hi] {
					for _, ty := range taps[1][y.lo:y.hi] {
						for _, tx := range taps[2][x.lo:x.hi] {
							from := (tz.at-low[0])*plane + (ty.at-low[1])*row + (tx.at-low[2])*pixel + x.from*p.move[2]*pixel
							tap := (tz.element*k.size[1]+ty.element)*k.size[2] + tx.element
							if len(g.places) == 0 {
								g.first = from
							}
							g.places = append(g.places, int64(from-g.first), int64(tap*k.padded))
						}
					}
				}
				all = append(all, g)
			}
		}
	}
	k.regions = append(k.regions, all)
}

// eachRegion calls f with the regions that row y of a band has pixels of, with
// where the first of these windows begins in the source and the places of the
// others from there on.
func (k *ownProduct) eachRegion(phase int, b *band, y int, f func(x unsafe.Pointer, places []int64, from, n int)) {
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

func (k *ownProduct) run(r *run) {
	chunks := 0
	for i := range k.phases {
		chunks += k.phases[i].chunks
	}
	if k.grad {
		r.parallel(k, k.sums, k.macs()/4)
		r.parallel(&k.add, k.windowSize, k.sums*k.windowSize*k.channels)
		return
	}
	r.parallel(&k.widen, k.windowSize, k.windowSize*k.channels)
	r.parallel(k, chunks, k.macs()/4)
}

func (k *widenKernels) chunk(r *run, _ *worker, tap int) {
	to := r.shared[tap*k.padded:][:k.padded]
	n := k.channels * k.from.Size()
	realView(r.values[k.b][tap*n:(tap+1)*n], k.from, viewOf[float32](to, k.channels))
	if k.stored == gemm.F32 {
		copy(to, r.values[k.b][tap*n:(tap+1)*n])
	}
	clear(to[4*k.channels:])
}

func (k *ownProduct) chunk(r *run, w *worker, i int) {
	if k.grad {
		clear(r.shared[i*k.windowSize*k.padded:][:k.windowSize*k.padded])
		for j, end := span(i, k.sums, k.phases[0].chunks); j < end; j++ {
			k.addBand(r, w, i, j)
		}
		return
	}
	phase := 0
	for i >= k.phases[phase].chunks {
		i -= k.phases[phase].chunks
		phase++
	}
	p := &k.phases[phase]
	b := k.bandOf(r, w, p, i)
	lead, row := p.step[2]*k.lead, p.step[1]*k.rowPixels()*k.lead
	d := unsafe.Pointer(&w.scratch[k.atTile])
	if k.direct {
		d = unsafe.Pointer(&r.values[k.dst][k.pixelOf(p, b.image, b.z, b.y, 0)*k.lead])
	} else {
		lead, row = k.lead, p.count[2]*k.lead
	}
	for y := range b.rows {
		k.eachRegion(phase, &b, y, func(x unsafe.Pointer, places []int64, from, n int) {
			to := unsafe.Add(d, y*row+from*lead)
			for c := 0; c < k.channels; c += ownChannels {
				mask := uint(1)<<min(ownChannels, k.channels-c) - 1
				k.set.Own(n, len(places)/2, unsafe.Pointer(unsafe.SliceData(places)), unsafe.Add(x, 4*c), p.move[2]*b.pixel,
					unsafe.Pointer(&r.shared[4*c]), 0, unsafe.Add(to, 4*c), lead, mask)
			}
		})
	}
	if k.direct {
		return
	}
	tile := resultTile{cols: k.channels, data: d, lead: k.lead}
	if p.step == [3]int{1, 1, 1} {
		tile.row, tile.rows = k.pixelOf(p, b.image, b.z, b.y, 0), b.rows*p.count[2]
		k.store(r, w, tile)
		return
	}
	tile.rows, tile.step = p.count[2], p.step[2]
	for y := range b.rows {
		tile.row = k.pixelOf(p, b.image, b.z, b.y+y, 0)
		tile.data = unsafe.Add(d, y*p.count[2]*k.lead)
		k.store(r, w, tile)
	}
}

// bandOf is band number i of a phase.
func (k *ownProduct) bandOf(r *run, w *worker, p *convPhase, i int) band {
	y := i % p.bands * p.band
	i /= p.bands
	b := band{image: i / p.count[0], z: i % p.count[0], y: y, rows: min(p.band, p.count[1]-y)}
	k.find(r, w.scratch, p, &b)
	return b
}

// addBand adds to sum s the products of a band with the result's gradient.
func (k *ownProduct) addBand(r *run, w *worker, s, i int) {
	p := &k.phases[0]
	b := k.bandOf(r, w, p, i)
	size := k.from.Size()
	n := k.out[2] * k.channels
	for y := range b.rows {
		from := k.pixelOf(p, b.image, b.z, b.y+y, 0) * k.channels * size
		grads := realView(r.values[k.b][from:from+n*size], k.from, viewOf[float32](w.scratch[k.atGrads:], n))
		k.eachRegion(0, &b, y, func(x unsafe.Pointer, places []int64, from, n int) {
			for c := 0; c < k.channels && len(places) > 0; c += ownChannels {
				mask := uint(1)<<min(ownChannels, k.channels-c) - 1
				k.set.OwnGrad(n, len(places)/2, unsafe.Pointer(&places[0]), unsafe.Add(x, 4*c), p.move[2]*b.pixel,
					unsafe.Pointer(&grads[from*k.channels+c]), 4*k.channels, unsafe.Pointer(&r.shared[s*k.windowSize*k.padded+4*c]), 0, mask)
			}
		})
	}
}

func (k *addOwn) chunk(r *run, w *worker, tap int) {
	total := viewOf[float32](r.shared[tap*k.padded:], k.channels)
	for s := 1; s < k.sums; s++ {
		for i, x := range viewOf[float32](r.shared[(s*k.windowSize+tap)*k.padded:], k.channels) {
			total[i] += x
		}
	}
	putRow(&k.convolution, r, w, tap*k.channels, total)
}
