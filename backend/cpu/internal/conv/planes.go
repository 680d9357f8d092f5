package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// planeGEMM is a convolution, or its gradient by the input, with pixels in vectors: channels
// of the result are the rows of a product, and pixels its columns. It is for results of few
// channels, which leave most of a vector of channels empty.
//
// A chunk first copies the source to planes. A plane has one channel of neighbouring pixels,
// or a pair of channels of bfloat16, with zeros around the image. With a stride, the pixels of
// each residue modulo the stride have their own planes. An element of the window then reads,
// for each channel, a row of B: a plane from some pixel on. Tiles continue from row to row of
// an image, and from image to image. The sums of the zeros between rows are computed and
// discarded.
//
// The sums are stored by channel, and are transposed to pixels. In an ordered set they are the
// sums of gathered patches: runs go through all planes for one element of the window after the
// other.
type planeGEMM struct {
	*implicitGEMM
	weigh  packRows
	split  []planePhase // by phase
	chunks []int        // by phase

	planes int // of all channels
	slice  int // planes of a step: as many as L2 has room for
	rowA   int // bytes from a row of weights to the next

	atSums, atPixels int // offsets in scratch memory
}

// planePhase is a phase and its planes.
type planePhase struct {
	taps     [3][]tap
	residues [][2]int  // rows and columns modulo the stride that the window reads
	pitch    int       // pixels from a row of a plane to the next
	halo     int       // rows that a band reads beyond its end
	images   int       // of a chunk
	plane    int       // pixels from a plane to the next
	ldSums   int       // bytes from a channel's sums to the next
	weights  int       // cells of a row of weights before those of the phase
	across   bool      // a run goes along a row of the window, else through the planes
	runs     [][]int64 // of a step of all planes of a slice, and of the last slice; in an ordered set, of each slice of a sum
}

// packRows is the task that packs the weights of an element of the window: a row for
// each channel of the result.
type packRows struct{ *planeGEMM }

const (
	planeBytes  = 192 << 10 // of planes, sums and pixels of a chunk, about: they stay in L2
	planeSlice  = 32        // planes of a step, about
	planePixels = 1024      // of a chunk, at least, if there are as many
	planeLanes  = 48        // channels of the result, at most
	pointLanes  = 4         // channels of the result of 1x1 windows
	pointDepth  = 64        // channels of the source of 1x1 windows
	pointPixels = 1 << 12   // pixels of 1x1 windows, at least
)

// inPlanes reports whether planeGEMM can compute k.
func (k *implicitGEMM) inPlanes() bool {
	return k.groups == 1 && k.In[0]*k.Out[0]*k.Size[0] == 1 && k.lanes <= planeLanes && k.tiles.Unit == 1 && k.tiles.RowRuns != nil
}

// planeTiles sets the arithmetic of planes: pairs of bfloat16, if sums are long.
func (k *implicitGEMM) planeTiles() {
	k.tiles, k.element, k.bytes = k.set.F32, k.stored, 4
	if k.stored == gemm.BF16 && k.set.Pairs != nil && k.depth > 1 && k.depth*k.WindowSize >= 8 {
		k.tiles, k.element = k.set.Pairs, gemm.Pairs
	}
}

// planesPay reports whether planeGEMM is faster than kn2row and other products.
func (k *implicitGEMM) planesPay() bool {
	if !k.planesMeasured() || k.set.Ordered && k.byTransforms() {
		return false
	}
	if k.pointPlanes() {
		return true
	}
	columns, others := k.columnsCost()
	if !k.set.Ordered && k.inColumns() && (k.singlePanel() || columns < others) {
		others = columns
	}
	return k.planesCost() < others
}

// byTransforms reports whether k is computed by Winograd's transforms, if the set is ordered.
func (k *implicitGEMM) byTransforms() bool {
	return k.transforms() && k.winogradPays() || k.inLines() && k.linesPay()
}

// planesMeasured reports whether planesCost is known: it was measured with AVX-512.
func (k *implicitGEMM) planesMeasured() bool {
	return k.set.Depthwise != nil && (k.stored != gemm.BF16 || k.set.Blocks == nil)
}

// pointPlanes reports whether planeGEMM is faster than a matrix product, which reads and
// writes a few columns of bfloat16 row by row, but a single column as a vector.
func (k *implicitGEMM) pointPlanes() bool {
	return k.WindowSize == 1 && k.stored == gemm.BF16 && k.lanes > 1 && k.lanes <= pointLanes && k.depth <= pointDepth && k.Batch*k.OutSize >= pointPixels &&
		k.planesMeasured() && k.inPlanes()
}

// planesCost estimates the time of planeGEMM in products of a vector. Measured: a step of a
// tile with few rows takes as long as one of three rows; copying 16 pixels of a plane, or
// transposing 16 sums of a channel, as long as five, or ten where the pixels of a plane are
// not adjacent in the source; and everything in float32 a fifth longer.
func (k *implicitGEMM) planesCost() float64 {
	p := *k
	p.planeTiles()
	planes, t := tiling.CeilDiv(k.depth, p.tiles.Step), p.tiles
	cost := 0
	p.eachPhase(func(q stridedPhase, taps [3][]tap) {
		f := p.newPlanePhase(&q, taps)
		rows := k.Batch * (q.count[1] + f.halo)
		columns := tiling.CeilDiv(rows*f.pitch, t.NR)
		runs, steps := len(taps[1])*len(taps[2]), planes
		if f.across {
			runs, steps = len(taps[1])*planes, len(taps[2])
		}
		heights := tiling.CeilDiv(k.lanes, t.MR)
		for h := range heights {
			lo, hi := tiling.Cut(h, heights, k.lanes)
			cost += columns * (runs*(steps*max(2*(hi-lo), 5)+8) + 2*(hi-lo) + 20)
		}
		pixel := 5
		if q.move[2] > 1 {
			pixel = 10
		}
		cost += rows * len(f.residues) * tiling.CeilDiv(f.pitch, 16) * (20 + pixel*16*tiling.CeilDiv(planes, 16))
		cost += k.Batch * q.count[1] * tiling.CeilDiv(q.count[2], 16) * (20 + 5*16*tiling.CeilDiv(k.lanes, 16))
	})
	if t.Step == 1 {
		cost += cost / 5
	}
	return float64(cost)
}

// newPlanePhase finds the planes of a phase.
func (k *implicitGEMM) newPlanePhase(p *stridedPhase, taps [3][]tap) planePhase {
	f := planePhase{taps: taps, pitch: p.count[2], across: true}
	if len(taps[1])*len(taps[2]) == 0 {
		return f
	}
	seen := map[[2]int]bool{}
	for _, ty := range taps[1] {
		for i, tx := range taps[2] {
			residue, row, col := k.residueOf(p, &f, ty, tx)
			if !seen[residue] {
				seen[residue] = true
				f.residues = append(f.residues, residue)
			}
			f.halo, f.pitch = max(f.halo, row), max(f.pitch, p.count[2]+col)
			f.across = f.across && (i == 0 || tx.at == taps[2][i-1].at+1)
		}
	}
	f.across = !k.set.Ordered && f.across && p.move[2] == 1 && tiling.CeilDiv(k.depth, k.tiles.Step) < min(planeSlice, len(taps[2]))
	return f
}

// residueOf returns the plane that an element of the window reads, and its position there for
// the first pixel of a band.
func (k *implicitGEMM) residueOf(p *stridedPhase, f *planePhase, ty, tx tap) (residue [2]int, row, col int) {
	y, x := ty.at-f.taps[1][0].at, tx.at-f.taps[2][0].at
	return [2]int{y % p.move[1], x % p.move[2]}, y / p.move[1], x / p.move[2]
}

func newPlaneGEMM(b *exec.Builder, v *ir.Value, p *implicitGEMM) exec.Kernel {
	k := &planeGEMM{implicitGEMM: p}
	k.weigh.planeGEMM = k
	p.planeTiles()
	t := k.tiles
	k.planes = tiling.CeilDiv(k.depth, t.Step)
	k.slice = tiling.Even(k.planes, planeSlice, 1)
	if k.set.Ordered { // elements of the window one after the other, each with all channels
		k.slice = k.planes
	}
	k.direct = k.to == dtype.Float32 && v.Attr.Body == nil
	k.ld = 4 * k.lanes
	planes, sums, pixels, cells := 0, 0, 0, 0
	k.eachPhase(func(q stridedPhase, taps [3][]tap) {
		f := k.newPlanePhase(&q, taps)
		k.cutPlanes(&q, &f)
		f.weights = cells
		cells += len(taps[1]) * len(taps[2]) * k.planes
		k.addRunsOf(&q, &f)
		planes = max(planes, 4*len(f.residues)*min(k.slice, k.planes)*f.plane)
		sums = max(sums, k.lanes*f.ldSums)
		pixels = max(pixels, f.images*q.band*q.count[2]*k.ld)
		k.phases, k.split, k.chunks = append(k.phases, q), append(k.split, f), append(k.chunks, q.chunks)
	})
	if k.rowA = 4 * cells; k.rowA%product.RowConflict == 0 {
		k.rowA += product.RowPad
	}
	if k.direct {
		pixels = 0
	}
	var place tiling.Layout
	place.Take(planes)
	k.atSums = place.Take(sums)
	k.atPixels = place.Take(pixels)
	const line = 4 * 32 // bytes of a row of the cells that are transposed
	k.addEpilogue(b, v, max(int(place), k.planes*line), k.lanes)
	k.result = product.Writer{Set: k.set, N: k.lanes, TileN: k.lanes, Out: k.dst, To: k.to, After: k.after}
	b.ReserveShared(k.lanes * k.rowA)
	return k
}

// cutPlanes decides the chunks of a phase.
func (k *planeGEMM) cutPlanes(p *stridedPhase, f *planePhase) {
	nr := k.tiles.NR
	row := 4 * f.pitch * (len(f.residues)*k.slice + 2*k.lanes) // bytes of a chunk
	wanted := min(4*tiling.MinChunks, tiling.CeilDiv(k.macs(), product.ChunkMACs))
	p.band = max(1, planeBytes/max(1, row)-f.halo, min(planePixels, 8*nr)/f.pitch)
	if k.Batch < wanted {
		p.band = min(p.band, tiling.CeilDiv(p.count[1], tiling.CeilDiv(wanted, k.Batch)))
		p.band = max(p.band, tiling.CeilDiv(2*nr, f.pitch))
	}
	p.band = tiling.Even(p.count[1], p.band, 1)
	p.bands = tiling.CeilDiv(p.count[1], p.band)
	f.images = 1
	if p.bands == 1 {
		f.images = max(1, min(planeBytes/max(1, row*(p.band+f.halo)), k.Batch/wanted))
		f.images = tiling.Even(k.Batch, f.images, 1)
	}
	p.chunks = tiling.CeilDiv(k.Batch, f.images) * p.bands
	all := f.images * (p.band + f.halo) * f.pitch
	// Planes an odd number of lines apart lie on all lines of L1.
	const pixels = 16 // of a line
	f.plane = pixels * (tiling.CeilDiv(all+nr-1, pixels) | 1)
	f.ldSums = 4 * pixels * (tiling.CeilDiv(tiling.RoundUp(all, nr), pixels) | 1)
}

// addRunsOf lists the runs of a step of all planes of a slice, and of the last slice.
func (k *planeGEMM) addRunsOf(p *stridedPhase, f *planePhase) {
	index := map[[2]int]int{}
	for i, r := range f.residues {
		index[r] = i
	}
	if k.set.Ordered {
		k.addSlicesOf(p, f, index)
		return
	}
	f.runs = make([][]int64, 2)
	for last, planes := range []int{k.slice, k.planes - (k.planes-1)/k.slice*k.slice} {
		for i, ty := range f.taps[1] {
			for j, tx := range f.taps[2] {
				residue, row, col := k.residueOf(p, f, ty, tx)
				at := index[residue]*k.slice*f.plane + row*f.pitch + col
				switch {
				case !f.across:
					a := (i*len(f.taps[2]) + j) * k.planes
					f.runs[last] = append(f.runs[last], int64(4*a), int64(4*at), int64(planes))
				case j == 0:
					for q := range planes {
						a := (i*k.planes + q) * len(f.taps[2])
						f.runs[last] = append(f.runs[last], int64(4*a), int64(4*(at+q*f.plane)), int64(len(f.taps[2])))
					}
				}
			}
		}
	}
}

// addSlicesOf lists the runs of a sum of an ordered set, which is cut into slices as those of
// patches are: through all planes for each element of the window.
func (k *planeGEMM) addSlicesOf(p *stridedPhase, f *planePhase, index map[[2]int]int) {
	cell := 0
	for _, ty := range f.taps[1] {
		for _, tx := range f.taps[2] {
			residue, row, col := k.residueOf(p, f, ty, tx)
			at := index[residue]*k.slice*f.plane + row*f.pitch + col
			for end := cell + k.planes; cell < end; {
				s := cell / product.MostDepth
				n := min(end, (s+1)*product.MostDepth) - cell
				if s == len(f.runs) {
					f.runs = append(f.runs, nil)
				}
				f.runs[s] = append(f.runs[s], int64(4*cell), int64(4*at), int64(n))
				cell, at = cell+n, at+n*f.plane
			}
		}
	}
}

func (k *planeGEMM) Run(r *exec.Run) {
	r.Parallel(&k.weigh, k.WindowSize, k.WindowSize*k.perGroup*k.outs)
	n := 0
	for _, chunks := range k.chunks {
		n += chunks
	}
	r.Parallel(k, n, k.macs()/16)
}

func (k *packRows) Chunk(r *exec.Run, w *exec.Worker, tap int) {
	const line = 32 // lanes that are packed at a time
	ky, kx := tap/k.Size[2], tap%k.Size[2]
	for i := range k.split {
		f := &k.split[i]
		y, x := indexOfTap(f.taps[1], ky), indexOfTap(f.taps[2], kx)
		if y < 0 || x < 0 {
			continue
		}
		at, step := f.weights+(y*len(f.taps[2])+x)*k.planes, 1
		if f.across {
			at, step = f.weights+y*k.planes*len(f.taps[2])+x, len(f.taps[2])
		}
		size := k.from.Size()
		src := unsafe.Pointer(&r.Values[k.b][tap*k.depth*k.lanes*size])
		cells := unsafe.Pointer(unsafe.SliceData(w.Scratch))
		for lane := 0; lane < k.lanes; lane += line {
			n := min(line, k.lanes-lane)
			// A row of cells for each plane.
			if k.code == op.Conv {
				mask := uint(1)<<n - 1
				k.set.Lanes[k.element](cells, 4*line, unsafe.Add(src, lane*size), k.lanes*size, k.depth, mask, mask)
			} else {
				for j := 0; j < n; j += 16 {
					mask := uint(1)<<min(16, n-j) - 1
					k.set.Transpose[k.element](unsafe.Add(cells, 4*j), 4*line, unsafe.Add(src, (lane+j)*k.depth*size), k.depth*size, k.depth, mask, mask)
				}
			}
			to := unsafe.Pointer(&r.Shared[lane*k.rowA+4*at])
			if step > 1 {
				for q := range k.planes {
					for j := range n {
						*(*uint32)(unsafe.Add(to, j*k.rowA+4*q*step)) = *(*uint32)(unsafe.Add(cells, 4*(q*line+j)))
					}
				}
				continue
			}
			for q := 0; q < k.planes; q += 16 {
				mask := uint(1)<<min(16, k.planes-q) - 1
				k.set.Transpose[gemm.F32](unsafe.Add(to, 4*q), k.rowA, unsafe.Add(cells, 4*q*line), 4*line, n, mask, mask)
			}
		}
		return // an element is of one phase
	}
}

// indexOfTap returns the index of an element of the window in list, or -1.
func indexOfTap(list []tap, element int) int {
	for i := range list {
		if list[i].element == element {
			return i
		}
	}
	return -1
}

func (k *planeGEMM) Chunk(r *exec.Run, w *exec.Worker, i int) {
	phase, i := chunkOf(k.chunks, i)
	p, f := &k.phases[phase], &k.split[phase]
	y := i % p.bands * p.band
	image := i / p.bands * f.images
	images, rows := min(f.images, k.Batch-image), min(p.band, p.count[1]-y)
	sums := unsafe.Pointer(&w.Scratch[k.atSums])
	n := ((images-1)*(rows+f.halo)+rows-1)*f.pitch + p.count[2]
	if len(f.residues) == 0 { // no element of the window reaches the pixels
		for lane := range k.lanes {
			clear(unsafe.Slice((*float32)(unsafe.Add(sums, lane*f.ldSums)), n))
		}
	} else {
		for plane := 0; plane < k.planes; plane += k.slice {
			k.fill(r, w, p, f, image, images, y, rows, plane)
			switch {
			case k.set.Ordered:
				for slice, runs := range f.runs {
					k.multiply(r, w, f, n, plane, runs, slice == 0)
				}
			case plane+k.slice < k.planes:
				k.multiply(r, w, f, n, plane, f.runs[0], plane == 0)
			default:
				k.multiply(r, w, f, n, plane, f.runs[1], plane == 0)
			}
		}
	}
	k.put(r, w, p, f, image, images, y, rows)
}

// fill copies the source of a chunk to the planes of a slice.
func (k *planeGEMM) fill(r *exec.Run, w *exec.Worker, p *stridedPhase, f *planePhase, image, images, y, rows, plane int) {
	planes := min(k.slice, k.planes-plane)
	first, step := plane*k.tiles.Step, k.tiles.Step
	depth, size := min(planes*step, k.depth-first), k.from.Size()
	data := r.Values[k.source]
	low, high := f.taps[1][0].at+y*p.move[1], f.taps[2][0].at
	ld := 4 * f.plane
	for i, residue := range f.residues {
		base := w.Scratch[i*k.slice*ld:]
		x := high + residue[1] // the first pixel of a row
		left := tiling.CeilDiv(max(0, -x), p.move[2])
		right := max(left, min(f.pitch, tiling.CeilDiv(max(0, k.dims[2]-x), p.move[2])))
		for row := range images * (rows + f.halo) {
			at := 4 * row * f.pitch
			sy := low + residue[0] + row%(rows+f.halo)*p.move[1]
			if sy < 0 || sy >= k.dims[1] || left >= right {
				clearPlanes(base[at:], planes, ld, 4*f.pitch)
				continue
			}
			clearPlanes(base[at:], planes, ld, 4*left)
			clearPlanes(base[at+4*right:], planes, ld, 4*(f.pitch-right))
			pixel := (image+row/(rows+f.halo))*k.dims[1]*k.dims[2] + sy*k.dims[2] + x + left*p.move[2]
			for j := left; j < right; j += 16 {
				mask := uint(1)<<min(16, right-j) - 1
				s := unsafe.Pointer(&data[(pixel*k.depth+first)*size])
				k.set.Transpose[k.element](unsafe.Pointer(&base[at+4*j]), ld, s, p.move[2]*k.depth*size, depth, mask, mask)
				pixel += 16 * p.move[2]
			}
		}
	}
}

// clearPlanes clears n bytes of each plane, which are ld bytes apart.
func clearPlanes(b []byte, planes, ld, n int) {
	if n == 0 {
		return
	}
	for i := range planes {
		clear(b[i*ld:][:n])
	}
}

// multiply adds the products of some runs through planes to the sums of n pixels, or begins them.
// The first run has the weights of that plane.
func (k *planeGEMM) multiply(r *exec.Run, w *exec.Worker, f *planePhase, n, plane int, runs []int64, begins bool) {
	t := k.tiles
	ldb := 4 * f.plane
	if f.across {
		ldb = 4
	}
	heights := tiling.CeilDiv(k.lanes, t.MR)
	a := unsafe.Pointer(&r.Shared[4*(f.weights+plane)])
	for col := 0; col < n; col += t.NR {
		cols := min(t.NR, n-col)
		kernels := t.RowRuns
		if cols <= t.NarrowNR {
			kernels = t.NarrowRowRuns
		}
		for h := range heights {
			lo, hi := tiling.Cut(h, heights, k.lanes)
			d := unsafe.Pointer(&w.Scratch[k.atSums+lo*f.ldSums+4*col])
			s := d
			if begins {
				s = nil
			}
			kernels[hi-lo](len(runs)/3, unsafe.Add(a, lo*k.rowA), k.rowA, unsafe.Pointer(&w.Scratch[4*col]), ldb, s, f.ldSums, d, f.ldSums, 1<<cols-1, unsafe.Pointer(&runs[0]))
		}
	}
}

// put transposes the sums of a chunk to pixels, and stores them.
func (k *planeGEMM) put(r *exec.Run, w *exec.Worker, p *stridedPhase, f *planePhase, image, images, y, rows int) {
	first := k.pixelOf(p, image, 0, y, 0)
	down, next := p.step[1]*k.rowPixels(), k.pixelOf(p, image+1, 0, y, 0)-first
	follow := p.step == [3]int{1, 1, 1} && (images == 1 || rows*p.count[2] == next) // rows are contiguous
	tile := product.Tile{Row: first, Rows: p.count[2], Step: p.step[2], Cols: k.lanes, LD: k.ld}
	for row := range images * rows {
		i, j := row/rows, row%rows
		pixel := first + i*next + j*down
		d, ld := unsafe.Pointer(nil), k.ld
		if k.direct {
			d, ld = unsafe.Pointer(&r.Values[k.dst][pixel*k.ld]), p.step[2]*k.ld
		} else {
			d = unsafe.Pointer(&w.Scratch[k.atPixels+row*p.count[2]*k.ld])
		}
		at := k.atSums + 4*(i*(rows+f.halo)+j)*f.pitch
		for lane := 0; lane < k.lanes; lane += 16 {
			mask := uint(1)<<min(16, k.lanes-lane) - 1
			k.set.Transpose[gemm.F32](unsafe.Add(d, 4*lane), ld, unsafe.Pointer(&w.Scratch[at+lane*f.ldSums]), f.ldSums, p.count[2], mask, mask)
		}
		if !k.direct && !follow {
			tile.Row, tile.Data = pixel, d
			k.store(r, w, tile)
		}
	}
	if !k.direct && follow {
		tile.Rows, tile.Data = images*rows*p.count[2], unsafe.Pointer(&w.Scratch[k.atPixels])
		k.store(r, w, tile)
	}
}
