package cpu

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestLowPrecision: 16-bit bodies that compile to one loop from memory to memory have the
// bits of their operations one by one in Go, also for infinities, NaNs and subnormal
// numbers.
func TestLowPrecision(t *testing.T) { forEachVectors(t, testLowPrecision) }

func testLowPrecision(t *testing.T) {
	if vec.Current() == nil {
		return // the reference itself
	}
	type do func(c op.Code, args ...*ir.Value) *ir.Value
	type build func(rec do, x, y, flags *ir.Value, number func(float64) *ir.Value) *ir.Value
	bodies := map[string]build{
		"relu": func(rec do, x, y, _ *ir.Value, _ func(float64) *ir.Value) *ir.Value {
			return rec(op.Relu, x)
		},
		"add and relu": func(rec do, x, y, _ *ir.Value, _ func(float64) *ir.Value) *ir.Value {
			return rec(op.Relu, rec(op.Add, x, y))
		},
		"from the left": func(rec do, x, y, _ *ir.Value, _ func(float64) *ir.Value) *ir.Value {
			return rec(op.Mul, y, x)
		},
		"number": func(rec do, x, _, _ *ir.Value, number func(float64) *ir.Value) *ir.Value {
			return rec(op.Mul, x, number(1.7))
		},
		"gradient of relu": func(rec do, x, y, _ *ir.Value, number func(float64) *ir.Value) *ir.Value {
			return rec(op.Where, rec(op.Greater, x, number(0)), y, number(0))
		},
		"scaled": func(rec do, x, _, flags *ir.Value, number func(float64) *ir.Value) *ir.Value {
			return rec(op.Where, flags, rec(op.Mul, x, number(1.7)), number(0.25))
		},
	}
	for _, c := range []op.Code{op.Add, op.Sub, op.Mul} {
		bodies[c.String()] = func(rec do, x, y, _ *ir.Value, _ func(float64) *ir.Value) *ir.Value {
			return rec(c, x, y)
		}
	}
	rng := rand.New(rand.NewPCG(7, 9))
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		for _, shapes := range [][2]op.Shape{
			{{1}, {1}}, {{67}, {67}}, {{41, 1031}, {41, 1031}}, // element for element
			{{301, 17}, {17}}, {{9, 1031}, {1031}}, {{5, 2, 7, 640}, {2, 1, 640}}, {{41, 103}, {41, 1}}, {{4099}, {1}},
		} {
			every := func(s op.Shape) array { // numbers of all kinds
				x := randomArray(rng, d, s...)
				for i, h := range dtype.View[uint16](x.data) {
					if h%4 == 0 {
						dtype.View[uint16](x.data)[i] = uint16(rng.Uint32())
					}
				}
				return x
			}
			x, y := every(shapes[0]), every(shapes[1])
			flags := arrayOf(dtype.Bool, shapes[0], func(i int) float64 { return float64(i * 7 >> 4 & 1) })
			for name, body := range bodies {
				run := func(o ir.Options) ([]uint16, *Program) {
					g := ir.New(3)
					rec := func(c op.Code, args ...*ir.Value) *ir.Value { return record(t, g, c, op.Attr{}, args...) }
					number := func(v float64) *ir.Value { return record(t, g, op.Const, op.Attr{DType: d, Value: v}) }
					a, b, f := param(t, g, 0, x.Type), param(t, g, 1, y.Type), param(t, g, 2, flags.Type)
					other := b
					if name == "gradient of relu" && !slices.Equal(shapes[0], shapes[1]) {
						other = a
					}
					g.Output(body(rec, a, other, f, number), -1)
					if err := ir.Optimize(g, o); err != nil {
						t.Fatal(err)
					}
					p, err := compile(t.Context(), shared, g)
					if err != nil {
						t.Fatal(err)
					}
					out, check := guarded(g.Outputs[0].Type.Bytes())
					in := []driver.Buffer{&Buffer{storage: x.data}, &Buffer{storage: y.data}, &Buffer{storage: flags.data}}
					if err := p.Run(context.Background(), in, []driver.Buffer{out}); err != nil {
						t.Fatal(err)
					}
					check(t)
					return dtype.View[uint16](out.storage), p
				}
				got, p := run(ir.Options{Check: true})
				k, ok := p.steps[len(p.steps)-1].kernel.(*elementwise.Chain)
				if one := ok && k.LowPrecision() && k.Loops() == 1; !one && len(got) > 1 {
					t.Errorf("%v %s of %v and %v is not one loop", d, name, shapes[0], shapes[1])
				}
				before := isa.Use(isa.Portable)
				want, _ := run(ir.Options{Skip: ir.OptionalPasses()})
				isa.Use(before)
				for i, w := range want {
					if got[i] != w && !(isNaN16(got[i], d) && isNaN16(w, d)) {
						t.Fatalf("%v %s of %v and %v: element %d is %#04x, want %#04x", d, name, shapes[0], shapes[1], i, got[i], w)
					}
				}
			}
		}
	}
}

func isNaN16(h uint16, d dtype.DType) bool {
	if d == dtype.Float16 {
		return math.IsNaN(float64(dtype.F16ToF32(h)))
	}
	return math.IsNaN(float64(dtype.BF16ToF32(h)))
}
