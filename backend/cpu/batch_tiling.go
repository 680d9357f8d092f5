package cpu

import (
	"math/bits"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/pooling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// batchTiled runs the kernels of consecutive values piece by piece, in the step of the
// first; the steps of the others only call End. If nothing else reads the first value,
// all pieces of a chunk share the memory of the chunk's first piece, which stays in the
// cache.
type batchTiled struct {
	kernels                []exec.BatchTiled
	images, pieces, chunks int
	firstInCache           bool // the first value's pieces share memory
	work                   int
}

// batchTileEnd is the remaining step of a kernel in a batchTiled.
type batchTileEnd struct{ of exec.BatchTiled }

func (k batchTileEnd) Run(r *exec.Run) { k.of.End(r) }

// batchTileBytes is the size of a value from which on it leaves the caches before its
// reader runs.
const batchTileBytes = 1 << 20

func (k *batchTiled) Run(r *exec.Run) {
	for _, m := range k.kernels {
		m.Begin(r)
	}
	r.Parallel(k, k.chunks, k.work)
	k.kernels[0].End(r)
}

func (k *batchTiled) Chunk(r *exec.Run, w *exec.Worker, i int) {
	first, end := tiling.Cut(i, k.chunks, k.pieces)
	for j := first; j < end; j++ {
		shift := 0
		if k.firstInCache {
			shift = j*k.images/k.pieces - first*k.images/k.pieces
		}
		for _, m := range k.kernels {
			m.Piece(r, w, j, k.pieces, shift)
		}
	}
}

// tileBatches groups kernels of consecutive steps into batchTiled. Runs that are
// watched use the kernels one by one.
func (b *compiler) tileBatches(g *ir.Graph) {
	steps := b.program.steps
	for i := range steps {
		first, ok := steps[i].kernel.(exec.BatchTiled)
		v := g.Values[steps[i].pos]
		if !ok || v.Slot.Place != ir.Arena || v.Type.Bytes() < batchTileBytes {
			continue
		}
		images, pieces, chunks := first.Cuts()
		c := batchGroup{values: []*ir.Value{v}}
		k := &batchTiled{kernels: []exec.BatchTiled{first}}
		shared := first.Share(0)
		var members []int
		for j := i + 1; j < len(steps); j++ {
			u := g.Values[steps[j].pos]
			if u.View() {
				continue
			}
			if u.Op == op.Stats && u.Slot.Place == ir.Output {
				c.between = append(c.between, u) // it keeps its place
				continue
			}
			m, ok := steps[j].kernel.(exec.BatchTiled)
			if !ok || !c.takes(b.Builder, u) {
				break
			}
			n, p, q := m.Cuts()
			if n != images || min(p, pieces) == 0 {
				break
			}
			pieces, chunks = min(p, pieces), min(q, chunks)
			shared = m.Share(shared)
			c.values, k.kernels, members = append(c.values, u), append(k.kernels, m), append(members, j)
		}
		if len(members) == 0 {
			continue
		}
		pool, ok := first.(*pooling.Vector)
		k.images, k.firstInCache = images, ok && !pool.HasEpilogue() && c.keepsFirst(g)
		k.pieces = 1 << (bits.Len(uint(pieces)) - 1)
		k.chunks = min(k.pieces, chunks)
		k.work = len(k.kernels) * v.Type.Shape.Size()
		b.ReserveShared(shared)
		steps[i].alone, steps[i].kernel = first, k
		for n, j := range members {
			steps[j].alone, steps[j].kernel = steps[j].kernel, batchTileEnd{k.kernels[n+1]}
		}
	}
}

// batchGroup is the values of a batchTiled.
type batchGroup struct {
	values  []*ir.Value
	between []*ir.Value // statistics of earlier values, in steps between those of values
}

// takes reports whether u can join the values: it reads one of them image by image, all
// its other operands exist before them, and if it is written early, its slot is free.
func (c *batchGroup) takes(b *exec.Builder, u *ir.Value) bool {
	switch u.Op {
	case op.MaxPool, op.AvgPool:
		if !c.free(u) {
			return false
		}
	case op.Sum, op.ConvKernelGrad:
	default:
		return false
	}
	reads := false
	for _, a := range u.Args {
		if c.has(a) {
			reads = true
			continue
		}
		for a.View() {
			a = a.Args[0]
		}
		if c.has(a) || a.Op != op.Param && a.Op != op.Const && b.At(a) > b.At(c.values[0]) {
			return false
		}
	}
	return reads
}

func (c *batchGroup) has(v *ir.Value) bool { return slices.Contains(c.values, v) }

// keepsFirst reports whether only the other values read the first one, a pooling gradient.
// It then needs no memory of its own.
func (c *batchGroup) keepsFirst(g *ir.Graph) bool {
	v := c.values[0]
	if v.Op != op.MaxPoolGrad && v.Op != op.AvgPoolGrad {
		return false
	}
	for _, u := range g.Values {
		if slices.Contains(u.Args, v) && (!c.has(u) || u.Op == op.ConvKernelGrad && u.Args[0] == v) {
			return false
		}
	}
	return !slices.Contains(g.Outputs, v)
}

// free reports whether the slot of u overlaps none of the values, and nothing that they or
// the values between them read.
func (c *batchGroup) free(u *ir.Value) bool {
	if u.Slot.Place != ir.Arena {
		return false
	}
	disjoint := func(v *ir.Value) bool {
		s, t := u.Slot, v.Slot
		return t.Place != ir.Arena || s.Offset >= t.Offset+v.Type.Bytes() || t.Offset >= s.Offset+u.Type.Bytes()
	}
	for _, v := range slices.Concat(c.values, c.between) {
		if !disjoint(v) {
			return false
		}
		for _, a := range v.Args {
			if !disjoint(a) {
				return false
			}
		}
	}
	return true
}
