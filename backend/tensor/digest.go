package tensor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/driver"
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
	slices.SortFunc(given, param.compare)
	first := make([]Digest, len(given))
	for i, g := range given {
		first[i] = Digest{tapID(g.v, number), g.v.Type, g.sum}
	}
	return append(first, all...), nil
}

// ValueOf runs the function as Digests does and returns the elements of the value with an
// ID, row-major and little-endian. It is an error if there is none.
func (fn *Func[In, Out]) ValueOf(ctx context.Context, in In, id TapID) (t op.Type, data []byte, err error) {
	defer Catch(&err)
	needs(ctx, "ValueOf")
	type shown struct {
		param
		data []byte
	}
	var given []shown
	number := map[string]int{}
	found := false
	err = fn.watch(ctx, in, ir.OptionalPasses(), func(_ *plan, v *ir.Value, b []byte) error {
		switch {
		case v.Op != op.Param:
			if !found && tapID(v, number) == id {
				t, data, found = v.Type, slices.Clone(b), true
			}
		case strings.HasPrefix(string(id), v.Path+"/"+v.Op.String()+"#"):
			given = append(given, shown{param{v, sum(v.Type.DType, b)}, slices.Clone(b)})
		}
		return nil
	})
	if err != nil || found {
		return t, data, err
	}
	slices.SortFunc(given, func(a, b shown) int { return a.compare(b.param) })
	for _, g := range given {
		if tapID(g.v, number) == id {
			return g.v.Type, g.data, nil
		}
	}
	return t, nil, &Error{Op: "ValueOf", Err: fmt.Errorf("the step has no value %s", id)}
}

// Copy is a copy of variables that is kept from run to run: in 16 bits, or packed for a
// product. It follows from the variables, so that a step has the same bits without it.
type Copy struct {
	Name string  // "dense/kernel (bfloat16)", or the operation that reads it: "dense/MatMul"
	Type op.Type // of bytes for packed copies
	Data []byte  // the memory itself, which must not be written to
}

// Copies returns the copies that the next Call with arguments like in would read instead
// of variables. There are none before the second Call. No Call may run meanwhile.
func (fn *Func[In, Out]) Copies(in In) (all []Copy, err error) {
	defer Catch(&err)
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.take(&in)
	p := fn.core.find(besideKey{})
	if p == nil {
		return nil, nil
	}
	for _, s := range p.sources {
		if s.shadow == nil {
			continue
		}
		data, err := s.shadow.kept()
		if err != nil {
			return nil, err
		}
		if data != nil {
			all = append(all, Copy{s.shadow.path(), s.shadow.typ, data})
		}
	}
	if k, ok := p.program.(driver.CopyKeeper); ok {
		k.Copies(func(value int, data []byte) {
			v := p.graph.Values[value]
			all = append(all, Copy{v.Path + "/" + v.Op.String(), op.Type{DType: dtype.Uint8, Shape: Shape{len(data)}}, data})
		})
	}
	return all, nil
}

// param is a variable or an argument of a step, and its digest.
type param struct {
	v   *ir.Value
	sum uint64
}

func (a param) compare(b param) int {
	return cmp.Or(cmp.Compare(a.v.Path, b.v.Path), cmp.Compare(a.v.Type.String(), b.v.Type.String()), cmp.Compare(a.sum, b.sum))
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
