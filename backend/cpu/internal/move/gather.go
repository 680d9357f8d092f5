package move

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

const (
	gatherAhead      = 4   // rows from a copied one to the one that is prefetched
	gatherPrefetched = 512 // bytes of it: the processor prefetches the rest
)

// indices is the argument of indices of an operation. Indices are data, so kernels must
// check them.
type indices struct {
	pos, n int
	limit  int // size of the axis that they index
	wide   bool
	op     op.Code
	path   string
}

func newIndices(b *exec.Builder, v *ir.Value, limit int) indices {
	t := v.Args[1].Type
	return indices{b.At(v.Args[1]), t.Shape.Size(), limit, t.DType == dtype.Int64, v.Op, v.Path}
}

// at returns index i. If it is out of range, at returns false and the run fails.
func (x *indices) at(r *exec.Run, i int) (int, bool) {
	got := x.get(r, i)
	if got >= 0 && got < int64(x.limit) {
		return int(got), true
	}
	// Report the first one, whichever worker was faster.
	for {
		old := r.BadIndex.Load()
		if old != 0 && old <= int64(i)+1 || r.BadIndex.CompareAndSwap(old, int64(i)+1) {
			return 0, false
		}
	}
}

func (x *indices) get(r *exec.Run, i int) int64 {
	if x.wide {
		return dtype.View[int64](r.Values[x.pos])[i]
	}
	return int64(dtype.View[int32](r.Values[x.pos])[i])
}

// Check makes the run fail if an index was out of range.
func (x *indices) Check(r *exec.Run) {
	bad := int(r.BadIndex.Swap(0)) - 1
	if bad >= 0 {
		r.Failed = &driver.IndexError{Path: x.path, Op: x.op, Got: x.get(r, bad), Position: bad, Size: x.limit}
	}
}

// Gather is the kernel of Gather, and of TakeAlongAxis, which gathers single elements,
// each from its own row.
type Gather struct {
	indices
	src, dst    int
	bytes       int // bytes per index
	along       int // TakeAlongAxis: bytes from one index's row to the next's; 0 for Gather
	group       int // indices per chunk
	nonTemporal bool
}

func NewGather(b *exec.Builder, v *ir.Value) exec.Kernel {
	x := v.Args[0].Type
	k := &Gather{indices: newIndices(b, v, x.Shape[0]), src: b.At(v.Args[0]), dst: b.At(v)}
	k.bytes = x.Shape[1:].Size() * x.DType.Size()
	k.group = max(1, 4*tiling.Grain/max(1, k.bytes))
	k.nonTemporal = vec.Native() != nil && k.bytes%vec.Line == 0 && v.Type.Bytes() >= lanes.NonTemporalBytes
	return k
}

func NewTakeAlongAxis(b *exec.Builder, v *ir.Value) exec.Kernel {
	x := v.Args[0].Type
	axis, size := x.Shape[len(x.Shape)-1], x.DType.Size()
	return &Gather{newIndices(b, v, axis), b.At(v.Args[0]), b.At(v), size, axis * size, alongGrain, false}
}

func (k *Gather) Run(r *exec.Run) {
	r.Parallel(k, (k.n+k.group-1)/k.group, k.n*(1+k.bytes/8))
	k.Check(r)
}

func (k *Gather) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	src, dst := r.Values[k.src], r.Values[k.dst]
	if k.along > 0 && k.takeAll(r, dst, src, c*k.group, min(k.n, (c+1)*k.group)) {
		return
	}
	if k.along == 0 && k.bytes%4 == 0 && k.bytes <= 16 {
		gatherWords(k, r, dtype.View[uint32](dst), dtype.View[uint32](src), c)
		return
	}
	v := vec.Native()
	stream := k.nonTemporal && wholeLines(unsafe.Pointer(unsafe.SliceData(dst)), k.bytes, k.bytes)
	for i := c * k.group; i < min(k.n, (c+1)*k.group); i++ {
		at, ok := k.at(r, i)
		if !ok {
			continue
		}
		if v != nil && k.along == 0 && i+gatherAhead < k.n {
			// Rows lie anywhere in a table that may be larger than L2.
			if next := k.get(r, i+gatherAhead); next >= 0 && next < int64(k.limit) {
				v.Prefetch(src[int(next)*k.bytes:][:min(k.bytes, gatherPrefetched)])
			}
		}
		from := i*k.along + at*k.bytes
		to, x := dst[i*k.bytes:(i+1)*k.bytes], src[from:from+k.bytes]
		if stream {
			v.CopyRowsNT(to, x, k.bytes, 1, k.bytes, k.bytes)
		} else {
			copy(to, x)
		}
	}
	if stream {
		v.Fence()
	}
}

// Produce implements exec.Producer.
func (k *Gather) Produce(r *exec.Run, lo int, out []float32) {
	k.Convert(r, lo, lanes.BytesOf(out), dtype.Float32)
}

// Convert gathers elements from element lo on and converts them to another type.
func (k *Gather) Convert(r *exec.Run, lo int, out []byte, to dtype.DType) {
	table, width, size := dtype.View[float32](r.Values[k.src]), k.bytes/4, to.Size()
	for i, at := lo/width, lo%width; len(out) > 0; i, at = i+1, 0 {
		n := min(width-at, len(out)/size)
		dst := out[:n*size]
		switch row, ok := k.at(r, i); {
		case !ok:
			clear(dst)
		case to == dtype.Float32:
			copy(dtype.View[float32](dst), table[row*width+at:])
		default:
			lanes.FromF32(dst, table[row*width+at:][:n], to)
		}
		out = out[n*size:]
	}
}

// gatherWords is Chunk for rows of a few 32-bit words, such as the colors of a pixel: a
// copy call for each would cost more than the copy.
func gatherWords(k *Gather, r *exec.Run, dst, src []uint32, c int) {
	n := k.bytes / 4
	for i := c * k.group; i < min(k.n, (c+1)*k.group); i++ {
		at, ok := k.at(r, i)
		if !ok {
			continue
		}
		to, x := dst[i*n:(i+1)*n], src[at*n:(at+1)*n]
		for j := range to {
			to[j] = x[j]
		}
	}
}

// scatterAlongAxis is the kernel of ScatterAlongAxis.
type scatterAlongAxis struct {
	indices
	src, dst, size int
	nonTemporal    bool
	rows           int // rows in scratch memory
}

func NewScatterAlongAxis(b *exec.Builder, v *ir.Value) exec.Kernel {
	k := &scatterAlongAxis{indices: newIndices(b, v, v.Attr.Size), src: b.At(v.Args[0]), dst: b.At(v), size: v.Type.DType.Size()}
	row := k.limit * k.size
	k.nonTemporal = vec.Native() != nil && v.Type.Bytes() >= lanes.NonTemporalBytes && row <= 4*tiling.Grain
	if k.nonTemporal {
		k.rows = max(1, tiling.Grain/row)
		b.ReserveScratch(k.rows * row)
	}
	return k
}

func (k *scatterAlongAxis) Run(r *exec.Run) {
	r.Parallel(k, (k.n+alongGrain-1)/alongGrain, k.n*(4+k.limit/8))
	k.Check(r)
}

// Chunk writes rows of zeros with one element set. Rows of a large result are built in
// scratch memory, several at a time, and stored non-temporally.
func (k *scatterAlongAxis) Chunk(r *exec.Run, w *exec.Worker, c int) {
	src, dst := r.Values[k.src], r.Values[k.dst]
	row, v := k.limit*k.size, vec.Native()
	lo, hi := c*alongGrain, min(k.n, (c+1)*alongGrain)
	step := hi - lo
	if k.nonTemporal {
		step = k.rows
		clear(w.Scratch[:k.rows*row])
	}
	for ; lo < hi; lo += step {
		n := min(step, hi-lo)
		out := dst[lo*row : (lo+n)*row]
		to := out
		if k.nonTemporal {
			to = w.Scratch[:len(out)]
		} else {
			clear(to)
		}
		if !k.putAll(r, to, src[lo*k.size:(lo+n)*k.size], lo, lo+n) {
			for i := range n {
				k.at(r, lo+i) // reports it
			}
		}
		if !k.nonTemporal {
			continue
		}
		v.CopyNT(out, to)
		for i := range n {
			if at, ok := k.at(r, lo+i); ok {
				clear(to[i*row+at*k.size:][:k.size])
			}
		}
	}
	if k.nonTemporal {
		v.Fence()
	}
}

// MaxRepeats is the most copies of an element that are made by a loop.
const MaxRepeats = 16

// RepeatEach fills dst with times copies of each element of src; of the first element
// it omits at copies.
func RepeatEach(dst, src []float32, times, at int) {
	for i := 0; len(dst) > 0; i++ {
		m := min(times-at, len(dst))
		v := src[i]
		for j := range m {
			dst[j] = v
		}
		dst, at = dst[m:], 0
	}
}
