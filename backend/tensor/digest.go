package tensor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Digest stands for the bits of a value of a step.
type Digest struct {
	ID   TapID // of a variable or an argument "name/Param#n"
	Type op.Type
	Sum  uint64 // the first 8 bytes of SHA-256 of the elements, little-endian; all NaNs are one
}

// Digests runs the function on in and returns digests of the variables and arguments
// that it reads, by name, then of every value that it computes, new values of variables among
// them, as they were recorded: before passes fuse them or leave them out. It changes no
// variable.
//
// A step has the same digests on the same contents of variables and arguments wherever
// it runs on the same instruction set: in another process, on any number of threads.
// Every value has memory of its own meanwhile.
func (fn *Func[In, Out]) Digests(ctx context.Context, in In) (all []Digest, err error) {
	defer Catch(&err)
	needs(ctx, "Digests")
	number := map[string]int{}
	var given []param
	err = fn.watch(ctx, in, ir.OptionalPasses(), func(_ *plan, v *ir.Value, data []byte) error {
		s := sum(v.Type.DType, data)
		if v.Op == op.Param {
			given = append(given, param{v, s})
			return nil
		}
		all = append(all, Digest{tapID(v, number), v.Type, s})
		return nil
	})
	if err != nil {
		return nil, err
	}
	// The order of variables is that in which their values were first asked for, in
	// whatever Function. Those of one name are told apart by what they are.
	slices.SortFunc(given, func(a, b param) int {
		return cmp.Or(cmp.Compare(a.v.Path, b.v.Path), cmp.Compare(a.v.Type.String(), b.v.Type.String()), cmp.Compare(a.sum, b.sum))
	})
	first := make([]Digest, len(given))
	for i, g := range given {
		first[i] = Digest{tapID(g.v, number), g.v.Type, g.sum}
	}
	return append(first, all...), nil
}

// param is a variable or an argument of a step, and its digest.
type param struct {
	v   *ir.Value
	sum uint64
}

// sum is the digest of elements.
func sum(d dtype.DType, data []byte) uint64 {
	if d.IsFloat() {
		data = oneNaN(d, data)
	}
	h := sha256.Sum256(data)
	return binary.LittleEndian.Uint64(h[:])
}

// oneNaN returns data with one pattern for all NaNs: sign and payload of a sum's NaN say
// which operand came first, which is no part of the value.
func oneNaN(d dtype.DType, data []byte) []byte {
	own := false
	replace := func(i, size int) {
		if !own {
			data, own = append([]byte(nil), data...), true
		}
		for k := range size {
			data[i+k] = 0xff
		}
	}
	switch d {
	case dtype.Float64:
		for i := 0; i+8 <= len(data); i += 8 {
			if binary.LittleEndian.Uint64(data[i:])&^(1<<63) > 0x7ff<<52 {
				replace(i, 8)
			}
		}
	case dtype.Float32:
		for i := 0; i+4 <= len(data); i += 4 {
			if binary.LittleEndian.Uint32(data[i:])&^(1<<31) > 0xff<<23 {
				replace(i, 4)
			}
		}
	default:
		infinity := uint16(0x7c00) // float16's
		if d == dtype.BFloat16 {
			infinity = 0x7f80
		}
		for i := 0; i+2 <= len(data); i += 2 {
			if binary.LittleEndian.Uint16(data[i:])&^(1<<15) > infinity {
				replace(i, 2)
			}
		}
	}
	return data
}
