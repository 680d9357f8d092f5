package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
)

// coming is memory that is brought to the second cache before it is needed, part by
// part.
type coming []byte

// stepAhead is what a kernel brings in a step, in bytes.
const stepAhead = 256

// next is where the part of a call of some steps begins, or nil.
func (a *coming) next(steps int) unsafe.Pointer {
	n := steps * stepAhead
	if len(*a) < n {
		return nil
	}
	p := unsafe.Pointer(&(*a)[0])
	*a = (*a)[n:]
	return p
}

// comingOf is memory from one place to another, or as much as there is of it.
func comingOf(data []byte, from, to int) coming {
	return data[min(from, len(data)):min(to, len(data))]
}

// behindBand is what the band after b reads, about: as much as b does, behind it.
func (k *convBlocks) behindBand(r *exec.Run, p *blockPhase, b *band, images int) coming {
	line := 2 * k.dims[2] * k.srcAll
	from, n := (b.image*k.dims[0]+b.z*p.move[0])*k.dims[1]*line, images*k.dims[0]*k.dims[1]*line
	if p.bands > 1 || p.count[0] > 1 {
		from, n = from+max(0, b.y*p.move[1]+p.low[1])*line, p.reads(b.rows)*line
	}
	return comingOf(r.Values[k.source], from+n, from+2*n)
}

// fetchBlock has the operands of a block brought to the second cache while others
// are multiplied.
func (k *kernelBlocks) fetchBlock(r *exec.Run, b *pixelBlock, j int) {
	plane, y := j/k.bands*k.planes, j%k.bands*k.block
	line, from := 2*k.out[2]*k.outs, plane*k.out[1]+y
	b.coming[0] = comingOf(r.Values[k.b], from*line, (from+k.planes*k.block)*line)
	line, from = 2*k.in[2]*k.channels, (plane/k.out[0]*k.in[0]+plane%k.out[0]*k.stride[0])*k.in[1]+y*k.stride[1]
	rows := k.block * k.stride[1]
	if k.planes > 1 {
		rows = k.planes * k.in[1]
	}
	b.coming[1] = comingOf(r.Values[k.a], from*line, (from+rows)*line)
}
