package cpu

import "unsafe"

// fill copies what a band of an image reads into a box, with zeros for what is
// outside.
func (k *convBlocks) fill(r *run, w *worker, p *blockPhase, b *band, group, image int, box []byte) {
	if p.steps == 0 {
		return
	}
	row := p.pitch * cellBytes
	for i, tz := range p.taps[0] {
		z := b.z*p.move[0] + tz.at
		for j := range (b.rows-1)*p.move[1] + p.span[1] {
			y := b.y*p.move[1] + p.low[1] + j
			at := ((i*p.move[1]+j%p.move[1])*p.rows + j/p.move[1]) * row
			if z < 0 || z >= k.dims[0] || y < 0 || y >= k.dims[1] {
				for c := range p.blocks {
					k.clearCells(p, box[c*p.block+at:], row)
				}
				continue
			}
			line := (image*k.dims[0]+z)*k.dims[1] + y
			if p.side {
				k.fillSide(r, w, p, group, line, box[at:])
			} else {
				k.fillRow(r, p, group, line, box[at:])
			}
		}
	}
}

// clearCells clears n bytes of each piece of a box.
func (k *convBlocks) clearCells(p *blockPhase, box []byte, n int) {
	for i := range k.pieces {
		clear(box[i*p.piece:][:n])
	}
}

// fillRow copies a row of the source, block by block.
func (k *convBlocks) fillRow(r *run, p *blockPhase, group, line int, box []byte) {
	left := min(max(0, -p.low[2]), p.pitch)
	cols := max(0, min(p.pitch, k.dims[2]-p.low[2])-left)
	for c := range p.blocks {
		to := box[c*p.block:]
		k.clearCells(p, to, left*cellBytes)
		k.clearCells(p, to[(left+cols)*cellBytes:], (p.pitch-left-cols)*cellBytes)
		if cols == 0 {
			continue
		}
		from := (line*k.dims[2]+p.low[2]+left)*k.srcAll + group*k.depth + c*cellHalfs
		d, s := unsafe.Pointer(&to[left*cellBytes]), unsafe.Pointer(&r.values[k.source][2*from])
		n := min(cellHalfs, k.depth-c*cellHalfs)
		if k.pieces == 1 {
			k.tiles.Copy(d, cellBytes, s, 2*k.srcAll, cols, 1<<n-1, 1<<cellHalfs-1)
		} else {
			k.splitter(d, cellBytes, p.piece, s, 2*k.srcAll, cols, n, unsafe.Pointer(k.found(r)))
		}
	}
}

// fillSide copies for each pixel of a row what lies under a row of the window.
func (k *convBlocks) fillSide(r *run, w *worker, p *blockPhase, group, line int, box []byte) {
	pixels := (p.count[2]-1)*p.move[2] + p.span[2]
	pixel := 2 * k.srcAll
	var src unsafe.Pointer
	if p.low[2] >= 0 && p.low[2]+pixels <= k.dims[2] {
		src = unsafe.Pointer(&r.values[k.source][2*((line*k.dims[2]+p.low[2])*k.srcAll+group*k.depth)])
	} else {
		src, pixel = k.padLine(r, w, p, group, line, pixels), 2*k.depth
	}
	runs, n := len(p.taps[2]), k.depth
	if pixel == 2*k.depth && runs == p.span[2] {
		runs, n = 1, p.vector
	}
	for i := range runs {
		at := unsafe.Add(src, (p.taps[2][i].at-p.low[2])*pixel)
		for v, end := i*n, i*n+n; v < end; {
			lane := v % cellHalfs
			load := min(end-v, cellHalfs-lane)
			store := load
			if v+load == p.vector {
				store = cellHalfs - lane
			}
			k.tiles.Copy(unsafe.Pointer(&box[v/cellHalfs*p.block+2*lane]), cellBytes, at, p.move[2]*pixel, p.count[2], 1<<load-1, 1<<store-1)
			v, at = v+load, unsafe.Add(at, 2*load)
		}
	}
	for c := range p.blocks {
		k.split(r, unsafe.Pointer(&box[c*p.block]), cellBytes, p.piece, p.pitch, cellHalfs)
	}
}

// padLine copies a group's channels of a row of the source, with zeros for
// pixels outside.
func (k *convBlocks) padLine(r *run, w *worker, p *blockPhase, group, line, pixels int) unsafe.Pointer {
	pixel := 2 * k.depth
	to := w.scratch[k.atLine:][:pixels*pixel]
	left := min(max(0, -p.low[2]), pixels)
	cols := max(0, min(pixels, k.dims[2]-p.low[2])-left)
	clear(to[:left*pixel])
	clear(to[(left+cols)*pixel:])
	from := ((line*k.dims[2]+p.low[2]+left)*k.srcAll + group*k.depth) * 2
	switch data := r.values[k.source]; {
	case cols == 0:
	case k.groups == 1:
		copy(to[left*pixel:(left+cols)*pixel], data[from:])
	default:
		for c := 0; c < k.depth; c += cellHalfs {
			mask := uint(1)<<min(cellHalfs, k.depth-c) - 1
			k.tiles.Copy(unsafe.Pointer(&to[left*pixel+2*c]), pixel, unsafe.Pointer(&data[from+2*c]), 2*k.srcAll, cols, mask, mask)
		}
	}
	return unsafe.Pointer(&to[0])
}
