package cpu

import (
	"slices"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Operands that a program does not change, such as the weights of a model that
// only predicts, are packed once and kept with the run's memory, until their
// buffer has been written to. Programs that train overwrite their weights, and
// keep nothing. What is not the same in two runs, such as a batch of data, is
// not packed for the sake of keeping it.

const (
	keepRows  = 256     // of a product: more of them make packing cheap
	keepBytes = 1 << 16 // of an operand: less lies in the cache as it is
)

// writes counts writes to buffers, so that each leaves a stamp of its own.
var writes atomic.Uint64

// written gives the buffer a stamp that no buffer has had.
func (b *Buffer) written() { b.stamp.Store(writes.Add(1)) }

// keptOperand is a packed copy of an input, made when its buffer had a stamp;
// 0 is no copy. Seen is the stamp of the latest run.
type keptOperand struct {
	data        []byte
	stamp, seen uint64
}

// keepable reports whether v is an input that the program does not overwrite.
func (b *builder) keepable(v *ir.Value) bool {
	for v.View() {
		v = v.Args[0]
	}
	return v.Op == op.Param && !slices.Contains(b.p.graph.Donated, v.Attr.Index)
}

// keep asks for the memory of a packed copy and returns its place.
func (b *builder) keep(bytes int) int {
	b.p.kept = append(b.p.kept, bytes)
	return len(b.p.kept) - 1
}

// keptCopy prepares the memory for a packed copy of the value at pos, and reports
// whether the copy that is in it is good. If not, and if the value has not
// changed since the last run, the caller makes it.
func (r *run) keptCopy(place, pos int) (good, changed bool) {
	k := &r.kept[place]
	stamp := r.stamps[pos]
	if stamp == 0 || stamp != k.seen {
		k.seen = stamp
		return false, true
	}
	if k.data == nil {
		k.data = r.program.device.aligned(r.program.kept[place])
	}
	good = k.stamp == stamp
	k.stamp = stamp
	return good, false
}
