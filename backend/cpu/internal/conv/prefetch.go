package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
)

// prefetchRange is memory to be prefetched to L2, a part at a time.
type prefetchRange []byte

// stepPrefetch is the number of bytes that a micro-kernel prefetches in a step.
const stepPrefetch = 256

// next returns the address of the part for a call with the given number of steps,
// nil if there is none, and removes the part.
func (a *prefetchRange) next(steps int) unsafe.Pointer {
	n := steps * stepPrefetch
	if len(*a) < n {
		return nil
	}
	p := unsafe.Pointer(&(*a)[0])
	*a = (*a)[n:]
	return p
}

// prefetchOf returns data[from:to], limited to the length of data.
func prefetchOf(data []byte, from, to int) prefetchRange {
	return data[min(from, len(data)):min(to, len(data))]
}

// behindBand returns roughly the source of the band after b: as many bytes as b reads, after
// those of b.
func (k *tileGEMM) behindBand(r *exec.Run, p *tilePhase, b *band, images int) prefetchRange {
	line := 2 * k.dims[2] * k.srcAll
	from, n := (b.image*k.dims[0]+b.z*p.move[0])*k.dims[1]*line, images*k.dims[0]*k.dims[1]*line
	if p.bands > 1 || p.count[0] > 1 {
		from, n = from+max(0, b.y*p.move[1]+p.low[1])*line, p.reads(b.rows)*line
	}
	return prefetchOf(r.Values[k.source], from+n, from+2*n)
}

// prefetchBlock sets the operands of block j to be prefetched while block b is
// multiplied.
func (k *wgradTiles) prefetchBlock(r *exec.Run, b *pixelBlock, j int) {
	plane, y := j/k.bands*k.planes, j%k.bands*k.block
	line, from := 2*k.Out[2]*k.outs, plane*k.Out[1]+y
	b.prefetch[0] = prefetchOf(r.Values[k.b], from*line, (from+k.planes*k.block)*line)
	line, from = 2*k.In[2]*k.channels, (plane/k.Out[0]*k.In[0]+plane%k.Out[0]*k.Stride[0])*k.In[1]+y*k.Stride[1]
	rows := k.block * k.Stride[1]
	if k.planes > 1 {
		rows = k.planes * k.In[1]
	}
	b.prefetch[1] = prefetchOf(r.Values[k.a], from*line, (from+rows)*line)
}
