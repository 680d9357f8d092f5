package elementwise

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// ReuseBytes is what must be read and written until a value has left the caches,
// which processors share with others.
const ReuseBytes = 1 << 26

// storesNonTemporal reports whether value at, a result of k, is better written around
// the caches: it and the operands are more than those hold, it does not lie over
// an operand, which is in them, and is not read before much else.
func (k *Chain) storesNonTemporal(g *ir.Graph, at int) bool {
	v := g.Values[at]
	switch d, s := v.Type.DType, vec.Current(); {
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
	same := []*ir.Value{v} // with its views
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
