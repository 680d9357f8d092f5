package elementwise

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// ReuseBytes is the traffic, in bytes, after which a value has left the caches, which
// cores share.
const ReuseBytes = 1 << 26

// storesNonTemporal reports whether the value at a position, a result of k, should be
// stored non-temporally: it and the operands do not fit the caches, it does not
// overwrite an operand, which is cached, and its next use is far away.
func (k *Chain) storesNonTemporal(g *ir.Graph, at int) bool {
	v := g.Values[at]
	switch d, s := v.Type.DType, vec.Native(); {
	case s == nil, d != dtype.Float32 && !d.Is16(), d.Is16() && s.ToF16NT == nil:
		return false
	}
	bytes := v.Type.Bytes()
	for _, o := range k.Operands {
		switch {
		case o.slot == v.Slot:
			return false
		case o.Access == Full && o.Producer == nil:
			bytes += k.n * o.DType.Size()
		}
	}
	if bytes < ReuseBytes {
		return false
	}
	same := []*ir.Value{v} // and its views
	bytes = 0
	for _, u := range g.Values[at+1:] {
		reads := slices.ContainsFunc(u.Args, func(a *ir.Value) bool { return slices.Contains(same, a) })
		switch {
		case reads && u.View():
			same = append(same, u)
		case reads:
			return false
		case u.Op != op.ExtraOutput && !u.View():
			bytes += u.Type.Bytes()
		}
		if bytes > ReuseBytes {
			break
		}
	}
	return true
}
