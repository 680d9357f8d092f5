package cpu

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Operands that a program does not change, such as the weights of a model that
// only predicts, are packed once and kept with the run's memory, until the
// version of their buffer is another. Programs that train overwrite their weights, and
// keep nothing. What is not the same in two runs, such as a batch of data, is
// not packed for the sake of keeping it.

const (
	keepRows  = 256     // of a product: more of them make packing cheap
	keepBytes = 1 << 16 // of an operand: less lies in the cache as it is
)

// keptOperand is a packed copy of an input, made when its buffer had a version;
// 0 is no copy. Seen is the version of the latest run. While one is checked,
// expected is what it was before it was packed anew.
type keptOperand struct {
	data          []byte
	version, seen uint64
	expected      []byte
}

// keepable reports whether v is an input that the program does not overwrite.
func (b *builder) keepable(v *ir.Value) bool {
	for v.View() {
		v = v.Args[0]
	}
	return v.Op == op.Param && !slices.Contains(b.graph.Donated, v.Attr.Index)
}

// keep asks for the memory of a packed copy and returns its place.
func (b *builder) keep(bytes int) int {
	b.kept = append(b.kept, bytes)
	return len(b.kept) - 1
}

// keptCopy prepares the memory for a packed copy of the value at pos, and reports
// whether the copy that is in it is good. If not, and if the value has not
// changed since the last run, the caller makes it.
func (r *run) keptCopy(place, pos int) (good, changed bool) {
	k := &r.kept[place]
	version := r.version[pos]
	if version == 0 || version != k.seen {
		k.seen = version
		return false, true
	}
	if k.data == nil {
		r.plan.memory.hold(r.plan.kept[place])
		k.data = aligned(r.plan.kept[place])
	}
	good = k.version == version
	k.version = version
	if good && checkingKept {
		k.expected = append(k.expected[:0], k.data...)
		good = false
	}
	return good, false
}

// checkKept compares the copies that the step of the value at pos would have
// used with those that it made.
func (r *run) checkKept(pos int) error {
	for i := range r.kept {
		k := &r.kept[i]
		if len(k.expected) == 0 {
			continue
		}
		same := bytes.Equal(k.expected, k.data)
		k.expected = k.expected[:0]
		if !same {
			v := r.plan.graph.Values[pos]
			return fmt.Errorf("cpu: check: %s: %s: the packed copy that was kept of its operand differs from the operand packed anew, and its version %d is the same", r.plan.graph.Describe(), v.Describe(), k.version)
		}
	}
	return nil
}
