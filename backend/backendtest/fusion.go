package backendtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// testFusion computes random bodies as one Fused operation, and as separate
// operations, of which some are results too, that passes may fuse and join in
// their way, or not at all, on the same device: the bits must be equal. Results
// overwrite operands where they may.
func testFusion(t *testing.T, d driver.Device) {
	n := 400
	if testing.Short() {
		n = 150
	}
	for seed := range n {
		f := randomBody(seeded(uint64(seed)), d)
		one, err := f.fused()
		if err != nil {
			t.Fatal(err)
		}
		want, err := compute(d, f.separate(), ir.Options{Check: true, Skip: ir.OptionalPasses()}, f.args)
		if err != nil {
			t.Fatalf("seed %d: {%v} as separate operations: %v", seed, f.body, err)
		}
		for _, c := range []struct {
			name string
			g    *ir.Graph
			skip []string
		}{{"one Fused operation", one, nil}, {"fused by passes", f.separate(), nil}, {"joined", f.separate(), []string{"fuse"}}} {
			name := c.name
			got, err := compute(d, c.g, ir.Options{Check: true, Skip: c.skip}, f.args)
			for i := 0; err == nil && i < len(got); i++ {
				if err = sameBits(got[i], want[i]); err != nil {
					err = fmt.Errorf("result %d: %w", i, err)
				}
			}
			if err != nil {
				t.Errorf("seed %d: {%v} on %v: %s differs from separate operations: %v", seed, f.body, f.types, name, err)
			}
		}
	}
}

// fused is the body as one operation. It is an error when op.Infer does not
// take it.
func (f fusion) fused() (*ir.Graph, error) {
	g := ir.New(len(f.types))
	var args []*ir.Value
	for i, t := range f.types {
		args = append(args, param(g, i, t))
	}
	t, err := op.Infer(op.Fused, op.Attr{Body: f.body}, f.types...)
	if err != nil {
		return nil, err
	}
	f.output(g, g.Add(op.Fused, op.Attr{Body: f.body}, t, "", args...), 0)
	return g, nil
}

// output adds result i, over an operand of its type if it should be.
func (f fusion) output(g *ir.Graph, v *ir.Value, i int) {
	donate := -1
	if at := f.over[i]; at >= 0 && f.types[at].Equal(v.Type) {
		donate = at
	}
	g.Output(v, donate)
}

// separate is an operation for each instruction. One whose operands all repeat
// has a smaller shape here; the last one is repeated to the shape of the whole.
func (f fusion) separate() *ir.Graph {
	g := ir.New(len(f.types))
	var vals []*ir.Value
	var shape op.Shape
	for i, t := range f.types {
		vals = append(vals, param(g, i, t))
		shape, _ = op.Broadcast(shape, t.Shape)
	}
	for _, in := range f.body.Code {
		var x []*ir.Value
		for _, a := range in.Args[:in.Op.Info().Args] {
			x = append(x, vals[a])
		}
		vals = append(vals, add(g, in.Op, op.Attr{DType: castTo(in)}, x...))
	}
	for i, x := range append([]int{len(vals) - 1}, f.extra...) {
		v := vals[x]
		if !v.Type.Shape.Equal(shape) {
			v = add(g, op.BroadcastTo, op.Attr{Dims: shape}, v)
		}
		f.output(g, v, i)
	}
	return g
}

func castTo(in op.Instr) dtype.DType {
	if in.Op == op.Cast {
		return in.DType
	}
	return dtype.Invalid
}

// fusion is a body with arguments.
type fusion struct {
	body  *op.Body
	types []op.Type
	args  []array
	extra []int // instructions that the separate graph has for results too, numbered as operands are
	over  []int // operand that each result should overwrite, or -1
}

// randomBody makes two to eight instructions on one to four operands, of which
// some repeat, out of the operations that d supports.
func randomBody(r *rand.Rand, d driver.Device) fusion {
	shapes := [][]op.Shape{
		{{1023}, {}, {1}, {1023}},
		{{3, 67}, {67}, {3, 1}, {}},
		{{5, 4, 9}, {4, 1}, {9}, {5, 1, 9}},
		{{}, {}, {1}, {}},
		{{2, 0, 3}, {3}, {}, {1, 1}},
		{{4099}, {4099}, {1}, {}},
	}[r.IntN(6)]
	f := fusion{body: &op.Body{}}
	all := slices.DeleteFunc(dtype.All(), func(t dtype.DType) bool { return !d.Supports(op.Param, t) })
	for i := range 1 + r.IntN(4) {
		dt := all[r.IntN(len(all))]
		if r.IntN(2) == 0 { // mostly floats
			dt = dtype.Floats()[r.IntN(4)]
		}
		t := op.Type{DType: dt, Shape: shapes[i]}
		fill := []fill{numbers, few, special, positive}[r.IntN(4)]
		f.body.Inputs = append(f.body.Inputs, dt)
		f.types = append(f.types, t)
		f.args = append(f.args, array{t, fill(r, t)})
	}
	var codes []op.Code
	for _, c := range op.Codes() {
		if c.Info().Class == op.Elementwise && c != op.Fused && c != op.ExtraOutput {
			codes = append(codes, c)
		}
	}
	types := make([]op.Type, 0, 16)
	for _, dt := range f.body.Inputs {
		types = append(types, op.Type{DType: dt})
	}
	for want := 2 + r.IntN(7); len(f.body.Code) < want; {
		c := codes[r.IntN(len(codes))]
		if r.IntN(8) == 0 {
			c = op.Cast
		}
		in := op.Instr{Op: c}
		args := make([]op.Type, c.Info().Args)
		for j := range args {
			k := r.IntN(len(types))
			if len(f.body.Code) > 0 && j == 0 && r.IntN(2) == 0 {
				k = len(types) - 1 // a chain
			}
			in.Args[j], args[j] = int32(k), types[k]
		}
		a := op.Attr{}
		if c == op.Cast {
			a.DType = all[r.IntN(len(all))]
		}
		t, err := op.Infer(c, a, args...)
		if err != nil || !d.Supports(c, args[0].DType) {
			continue // these operands do not fit this operation
		}
		in.DType = t.DType
		f.body.Code = append(f.body.Code, in)
		types = append(types, t)
	}
	for x := len(f.types); x < len(types)-1; x++ {
		if r.IntN(3) == 0 {
			f.extra = append(f.extra, x)
		}
	}
	for range 1 + len(f.extra) {
		f.over = append(f.over, r.IntN(1+len(f.types))-1)
	}
	return f
}
