package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// rowStore brings rows of float32 from scratch memory to a result. A large one
// is written around the caches, which then need not read it first: most of it
// would have left them before it is read.
type rowStore struct {
	to     dtype.DType
	around bool
}

func rowStoreOf(t op.Type) rowStore {
	return rowStore{t.DType, vec.Current() != nil && t.DType != dtype.Float64 && t.Bytes() >= aroundBytes}
}

// store writes float32s to their place in the result; raw is scratch memory
// for 16-bit ones.
func (s rowStore) store(dst, x, raw []byte) {
	if s.to != dtype.Float32 {
		to := dst
		if s.around {
			to = raw[:len(dst)]
		}
		fromF32(to, dtype.View[float32](x), s.to)
		x = to
	}
	switch {
	case s.around:
		vec.Current().CopyAround(dst, x)
	case s.to == dtype.Float32:
		copy(dst, x)
	}
}

// done makes what was written visible to others.
func (s rowStore) done() {
	if s.around {
		vec.Current().Fence()
	}
}
