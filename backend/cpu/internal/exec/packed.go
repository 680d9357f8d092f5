package exec

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Kernels pack an operand that a program does not change, such as the weights of a
// model that only predicts, once: the copy stays with the run's memory until the
// version of the operand's buffer changes. Programs that train overwrite their
// weights and keep nothing. An operand that differs from run to run, such as a
// batch of data, is not packed for this purpose.

// packedOperand is a packed copy of an input. Version is the version of its buffer when
// it was packed, 0 for no copy; seen is the version in the latest run. Under
// CheckingPacked, expected is the copy before it was packed again.
type packedOperand struct {
	Data          []byte
	Version, seen uint64
	expected      []byte
}

// ReadOnly reports whether v is an input that the program does not overwrite.
func (b *Builder) ReadOnly(v *ir.Value) bool {
	for v.View() {
		v = v.Args[0]
	}
	return v.Op == op.Param && !slices.Contains(b.Graph.Donated, v.Attr.Index)
}

// ReservePacked reserves memory for a packed copy and returns its index in Run.Packed.
func (b *Builder) ReservePacked(bytes int) int {
	b.Packed = append(b.Packed, bytes)
	return len(b.Packed) - 1
}

// PackedCopy prepares the memory for a packed copy of the value at pos and reports
// whether the copy there is good. If it is not, and the value has not changed since the
// last run, the caller must pack it.
func (r *Run) PackedCopy(place, pos int) (good, changed bool) {
	k := &r.Packed[place]
	version := r.Version[pos]
	if version == 0 || version != k.seen {
		k.seen = version
		return false, true
	}
	if k.Data == nil {
		r.Plan.Memory.Hold(r.Plan.Packed[place])
		k.Data = Aligned(r.Plan.Packed[place])
	}
	good = k.Version == version
	k.Version = version
	if good && CheckingPacked {
		k.expected = append(k.expected[:0], k.Data...)
		good = false
	}
	return good, false
}

// Kept is the packed copy of the value at pos that this run uses, after PackedCopy said
// that the value has not changed, or nil.
func (r *Run) Kept(place, pos int) []byte {
	if k := &r.Packed[place]; k.Version != 0 && k.Version == r.Version[pos] {
		return k.Data
	}
	return nil
}

// PackedMemory is for a kernel that packs the values at some positions in every run for
// which there is no good copy: it returns the memory for it, and whether the copy there is
// good. That is never so unless keep is set.
func (r *Run) PackedMemory(place int, keep bool, pos ...int) (data []byte, good bool) {
	k := &r.Packed[place]
	if k.Data == nil {
		r.Plan.Memory.Hold(r.Plan.Packed[place])
		k.Data = Aligned(r.Plan.Packed[place])
	}
	version := uint64(0) // the latest: a write to one of the buffers gives it a later one
	for _, p := range pos {
		if keep = keep && r.Version[p] != 0; keep {
			version = max(version, r.Version[p])
		}
	}
	if !keep {
		version = 0
	}
	good = version != 0 && k.Version == version
	k.Version, k.seen = version, version
	if good && CheckingPacked {
		k.expected = append(k.expected[:0], k.Data...)
		good = false
	}
	return k.Data, good
}

// CheckPacked compares the copies that the step of the value at pos would have reused
// with those that it has packed again.
func (r *Run) CheckPacked(pos int) error {
	for i := range r.Packed {
		k := &r.Packed[i]
		if len(k.expected) == 0 {
			continue
		}
		same := bytes.Equal(k.expected, k.Data)
		k.expected = k.expected[:0]
		if !same {
			v := r.Plan.Graph.Values[pos]
			return fmt.Errorf("cpu: check: %s: %s: the packed copy that was kept of its operand differs from the operand packed anew, and its version %d is the same", r.Plan.Graph.Describe(), v.Describe(), k.Version)
		}
	}
	return nil
}
