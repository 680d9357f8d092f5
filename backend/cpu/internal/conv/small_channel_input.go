package conv

import (
	"runtime"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// smallInputGrad is the gradient by an input of few channels, which would leave most
// columns of a tile empty. First each pixel of the result's gradient is
// multiplied with all elements of the window, which make a row of products;
// then a pixel of the input's adds up those of the windows that cover it.
type smallInputGrad struct {
	*implicitGEMM
	regions [][]windowRegion // by phase
	pairs   bool             // products are of tile registers
	least   int              // rows of the result's gradient, from its own on, that a band reads first
	reads   int              // and how many, where there are so many
	places  []int64          // of steps of tile registers

	atStage int // scratch memory of pixels that are copied
}

const (
	fewInputRow   = 4 * window.VectorChannels // bytes of a pixel's products
	fewInputBytes = 256 << 10                 // of products, in L2
	fewInputStage = 64                        // pixels that are converted together
)

// inProducts reports whether k is for smallInputGrad.
func (k *implicitGEMM) inProducts() bool {
	return k.code == op.ConvInputGrad && k.groups == 1 && k.In[0]*k.Size[0] == 1 && k.lanes <= smallDepth && k.WindowSize > 1 &&
		k.WindowSize*k.lanes <= window.VectorChannels && k.set.Depthwise != nil && k.set.F32.NR == window.VectorChannels
}

func newSmallInputGrad(b *exec.Builder, v *ir.Value, p *implicitGEMM) exec.Kernel {
	k := &smallInputGrad{implicitGEMM: p}
	p.tiles = p.set.F32
	if t := p.set.Blocks; t != nil && p.stored == gemm.BF16 && p.outs%cellHalfs == 0 {
		k.pairs, p.tiles = true, t
		for s := range p.outs / cellHalfs {
			k.places = append(k.places, int64(s*cellBytes))
		}
	}
	k.direct = k.to == dtype.Float32 && v.Attr.Body == nil
	k.ld = 4 * k.lanes
	most, rows := 0, 0 // rows behind a band's own, and of a phase
	k.eachPhase(func(p stridedPhase, taps [3][]tap) {
		for _, t := range taps[1] {
			k.least, most = min(k.least, t.at), max(most, t.at)
		}
		rows = max(rows, p.count[1])
		k.cut(&p, taps)
		k.phases = append(k.phases, p)
	})
	band := max(1, min(rows, fewInputBytes/(k.Out[2]*fewInputRow)-most+k.least))
	band = tiling.Even(rows, band, 1)
	k.reads = band + most - k.least
	tile := 0
	for i := range k.phases {
		p := &k.phases[i]
		p.band, p.bands = band, tiling.CeilDiv(rows, band)
		if !k.direct {
			tile = max(tile, band*p.count[2]*k.ld)
		}
	}
	k.atTile = (min(k.Out[1], k.reads)*k.Out[2] + k.tiles.MR) * fewInputRow
	k.atStage = k.atTile + tiling.RoundUp(tile, 64)
	k.addEpilogue(b, v, k.atStage+4*fewInputStage*k.outs, k.lanes)
	k.result = product.Writer{Set: k.set, N: k.lanes, TileN: k.lanes, Out: k.dst, To: k.to, After: k.after}
	b.ReserveShared(fewInputRow * k.outs)
	return k
}

// cut cuts a phase into regions, whose places are those of products: of the first
// window of a row, and all, behind it.
func (k *smallInputGrad) cut(p *stridedPhase, taps [3][]tap) {
	row := k.Out[2] * fewInputRow
	var all []windowRegion
	for _, y := range k.along(p, 1, taps[1]) {
		for _, x := range k.along(p, 2, taps[2]) {
			g := windowRegion{from: [3]int{0, y.from, x.from}, to: [3]int{1, y.to, x.to}}
			for _, ty := range taps[1][y.lo:y.hi] {
				for _, tx := range taps[2][x.lo:x.hi] {
					at := ty.at*row + (tx.at+x.from)*fewInputRow + 4*k.lanes*(ty.element*k.Size[2]+tx.element)
					if len(g.places) == 0 {
						g.first = at
					}
					g.places = append(g.places, int64(at-g.first), 0)
				}
			}
			all = append(all, g)
		}
	}
	k.regions = append(k.regions, all)
}

func (k *smallInputGrad) Run(r *exec.Run) {
	k.pack(r)
	r.Parallel(k, k.Batch*k.phases[0].bands, k.macs()/16)
}

// pack packs the kernels: a column for each element of the window and channel.
func (k *smallInputGrad) pack(r *exec.Run) {
	element, size := k.stored, k.from.Size()
	if k.pairs {
		element = gemm.Pairs
	}
	src := unsafe.Pointer(unsafe.SliceData(r.Values[k.b]))
	cols := k.WindowSize * k.lanes
	for j := 0; j < window.VectorChannels; j += 16 {
		load := uint(1)<<max(0, min(16, cols-j)) - 1
		k.set.Transpose[element](unsafe.Pointer(&r.Shared[4*j]), fewInputRow, unsafe.Add(src, min(j, cols-1)*k.outs*size), k.outs*size, k.outs, load, 1<<16-1)
	}
}

func (k *smallInputGrad) Chunk(r *exec.Run, w *exec.Worker, i int) {
	bands, rows := k.phases[0].bands, k.phases[0].band
	image, y := i/bands, i%bands*rows
	first := max(0, min(k.Out[1], y+k.least))
	end := max(first, min(k.Out[1], y+k.least+k.reads))
	k.multiply(r, w, (image*k.Out[1]+first)*k.Out[2], (end-first)*k.Out[2])
	for n := range k.phases {
		p := &k.phases[n]
		b := band{image: image, y: y, rows: min(rows, p.count[1]-y)}
		if b.rows <= 0 {
			continue
		}
		ld, down := k.ld, p.count[2]*k.ld
		d := unsafe.Pointer(&w.Scratch[k.atTile])
		if k.direct {
			ld, down = p.step[2]*k.ld, p.step[1]*k.In[2]*k.ld
			d = unsafe.Pointer(&r.Values[k.dst][k.pixelOf(p, image, 0, y, 0)*k.ld])
		}
		for j := range b.rows {
			k.addUp(w, n, y+j, first, unsafe.Add(d, j*down), ld)
		}
		if !k.direct {
			k.putBand(r, w, p, &b, d)
		}
	}
}

// addUp makes a row of a phase of products, which begin with those of a row of
// the result's gradient.
func (k *smallInputGrad) addUp(w *exec.Worker, phase, y, first int, d unsafe.Pointer, ld int) {
	for i := range k.regions[phase] {
		g := &k.regions[phase][i]
		if y < g.from[1] || y >= g.to[1] {
			continue
		}
		n, to := g.to[2]-g.from[2], unsafe.Add(d, g.from[2]*ld)
		if len(g.places) == 0 {
			for x := range n {
				clear(unsafe.Slice((*float32)(unsafe.Add(to, x*ld)), k.lanes))
			}
			continue
		}
		x := unsafe.Pointer(&w.Scratch[g.first+(y-first)*k.Out[2]*fewInputRow])
		sumChannels(k.set, n, g.places, x, fewInputRow, to, ld, k.lanes)
	}
}

// multiply forms the products of n pixels of the result's gradient.
func (k *smallInputGrad) multiply(r *exec.Run, w *exec.Worker, pixel, n int) {
	if n == 0 {
		return
	}
	line := k.outs * k.from.Size()
	grads := r.Values[k.source][pixel*line:][:n*line]
	weights := unsafe.Pointer(&r.Shared[0])
	if !k.pairs {
		for at := 0; at < n; at += fewInputStage {
			rows := min(fewInputStage, n-at)
			a := unsafe.Pointer(&grads[at*line])
			if k.stored != gemm.F32 {
				k.set.Widen[k.stored](unsafe.Pointer(&w.Scratch[k.atStage]), a, rows*k.outs)
				a = unsafe.Pointer(&w.Scratch[k.atStage])
			}
			heights := tiling.CeilDiv(rows, k.tiles.MR)
			for h := range heights {
				lo, hi := tiling.Cut(h, heights, rows)
				d := unsafe.Pointer(&w.Scratch[(at+lo)*fewInputRow])
				k.tiles.Rows[hi-lo](k.outs, unsafe.Add(a, 4*lo*k.outs), 4*k.outs, weights, fewInputRow, nil, 0, d, fewInputRow, 1<<window.VectorChannels-1)
			}
		}
		return
	}
	runtime.LockOSThread()
	k.tiles.Begin()
	for at := 0; at < n; {
		rows := min(k.tiles.MR, (n-at)/k.tiles.Unit*k.tiles.Unit)
		a := unsafe.Pointer(&grads[at*line])
		if rows == 0 { // the last ones are copied, as kernels read whole units
			rows = k.tiles.Unit
			a = unsafe.Pointer(&w.Scratch[k.atStage])
			copy(w.Scratch[k.atStage:][:rows*line], grads[at*line:])
		}
		d := unsafe.Pointer(&w.Scratch[at*fewInputRow])
		k.tiles.Runs[0][rows](len(k.places), a, line, 0, unsafe.Pointer(&k.places[0]), weights, 0, nil, 0, d, fewInputRow, nil)
		at += rows
	}
	k.tiles.End()
	runtime.UnlockOSThread()
}
