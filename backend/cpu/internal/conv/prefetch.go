package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
)

// prefetchList is memory that is brought to the second cache before it is needed, part by
// part.
type prefetchList []byte

// stepAhead is what a kernel brings in a step, in bytes.
const stepAhead = 256

// next is where the part of a call of some steps begins, or nil.
func (a *prefetchList) next(steps int) unsafe.Pointer {
	n := steps * stepAhead
	if len(*a) < n {
		return nil
	}
	p := unsafe.Pointer(&(*a)[0])
	*a = (*a)[n:]
	return p
}

// prefetchOf is memory from one place to another, or as much as there is of it.
func prefetchOf(data []byte, from, to int) prefetchList {
	return data[min(from, len(data)):min(to, len(data))]
}

// behindBand is what the band after b reads, about: as much as b does, behind it.
func (k *tileGEMM) behindBand(r *exec.Run, p *tilePhase, b *band, images int) prefetchList {
	line := 2 * k.dims[2] * k.srcAll
	from, n := (b.image*k.dims[0]+b.z*p.move[0])*k.dims[1]*line, images*k.dims[0]*k.dims[1]*line
	if p.bands > 1 || p.count[0] > 1 {
		from, n = from+max(0, b.y*p.move[1]+p.low[1])*line, p.reads(b.rows)*line
	}
	return prefetchOf(r.Values[k.source], from+n, from+2*n)
}

// fetchBlock has the operands of a block brought to the second cache while others
// are multiplied.
func (k *wgradTiles) fetchBlock(r *exec.Run, b *pixelBlock, j int) {
	plane, y := j/k.bands*k.planes, j%k.bands*k.block
	line, from := 2*k.Out[2]*k.outs, plane*k.Out[1]+y
	b.coming[0] = prefetchOf(r.Values[k.b], from*line, (from+k.planes*k.block)*line)
	line, from = 2*k.In[2]*k.channels, (plane/k.Out[0]*k.In[0]+plane%k.Out[0]*k.Stride[0])*k.In[1]+y*k.Stride[1]
	rows := k.block * k.Stride[1]
	if k.planes > 1 {
		rows = k.planes * k.In[1]
	}
	b.coming[1] = prefetchOf(r.Values[k.a], from*line, (from+rows)*line)
}
