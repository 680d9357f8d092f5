package cpu

import (
	"bytes"
	"context"
	"fmt"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func flag(b bool) float64 { return float64(lanes.Truth(b)) }

// reference1 and reference2 are the operations in float64.
var reference1 = map[op.Code]func(x float64) float64{
	op.Identity: func(x float64) float64 { return x },
	op.Neg:      func(x float64) float64 { return -x },
	op.Abs:      math.Abs,
	op.Exp:      math.Exp, op.Expm1: math.Expm1, op.Log: math.Log, op.Log1p: math.Log1p,
	op.Sqrt: math.Sqrt, op.Rsqrt: func(x float64) float64 { return 1 / math.Sqrt(x) },
	op.Reciprocal: func(x float64) float64 { return 1 / x },
	op.Square:     func(x float64) float64 { return x * x },
	op.Sin:        math.Sin, op.Cos: math.Cos, op.Tanh: math.Tanh, op.Erf: math.Erf,
	op.Sigmoid: func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
	op.Relu:    func(x float64) float64 { return max(x, 0) },
	op.Floor:   math.Floor, op.Ceil: math.Ceil, op.Round: math.RoundToEven,
	op.RoundE4M3: dtype.RoundE4M3, op.RoundE5M2: dtype.RoundE5M2,
	op.Sign: func(x float64) float64 {
		if x != x {
			return x
		}
		return flag(x > 0) - flag(x < 0)
	},
	op.Not:      func(x float64) float64 { return flag(x == 0) },
	op.IsFinite: func(x float64) float64 { return flag(!math.IsNaN(x) && !math.IsInf(x, 0)) },
}

var reference2 = map[op.Code]func(x, y float64) float64{
	op.Add: func(x, y float64) float64 { return x + y },
	op.Sub: func(x, y float64) float64 { return x - y },
	op.Mul: func(x, y float64) float64 { return x * y },
	op.Div: func(x, y float64) float64 { return x / y },
	op.Mod: func(x, y float64) float64 {
		if m := math.Mod(x, y); m != 0 && (m < 0) != (y < 0) {
			return m + y
		}
		return math.Mod(x, y)
	},
	op.Pow:     math.Pow,
	op.Maximum: func(x, y float64) float64 { return max(x, y) }, op.Minimum: func(x, y float64) float64 { return min(x, y) },
	op.Equal: func(x, y float64) float64 { return flag(x == y) }, op.NotEqual: func(x, y float64) float64 { return flag(x != y) },
	op.Less: func(x, y float64) float64 { return flag(x < y) }, op.LessEqual: func(x, y float64) float64 { return flag(x <= y) },
	op.Greater: func(x, y float64) float64 { return flag(x > y) }, op.GreaterEqual: func(x, y float64) float64 { return flag(x >= y) },
}

// roundAll rounds a reference to a type, so that both overflow at the same value.
func roundAll(x []float64, d dtype.DType) []float64 {
	return arrayOf(d, op.Shape{len(x)}, func(i int) float64 { return x[i] }).values()
}

// TestUnaryAllHalves runs every unary operation over all 16-bit values.
func TestUnaryAllHalves(t *testing.T) {
	isatest.SkipRace(t)
	forEachVectors(t, testUnaryAllHalves)
}

func testUnaryAllHalves(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		x := array{Type: op.Type{DType: d, Shape: op.Shape{1 << 16}}, data: exec.Aligned(1 << 17)}
		for i := range 1 << 16 {
			dtype.View[uint16](x.data)[i] = uint16(i)
		}
		in := x.values()
		for c, f := range reference1 {
			if c == op.Not {
				continue
			}
			got := eval(t, c, op.Attr{}, x)
			want := make([]float64, len(in))
			for i, v := range in {
				want[i] = f(v)
			}
			if got.DType == d {
				want = roundAll(want, d)
			}
			near(t, fmt.Sprint(c, " of ", d), got, want, 1)
		}
	}
}

func TestUnary(t *testing.T) { forEachVectors(t, testUnary) }

func testUnary(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	special := []float64{0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-30, 88.7, -87, -104, 89, 700, 30, -30, 0.02, 0.019}
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float64} {
		x := arrayOf(d, op.Shape{5003}, func(i int) float64 {
			if i < len(special) {
				return special[i]
			}
			return rng.NormFloat64() * math.Pow(10, float64(i%5-2))
		})
		for c, f := range reference1 {
			if c == op.Not {
				continue
			}
			got := eval(t, c, op.Attr{}, x)
			want := x.values()
			for i, v := range want {
				want[i] = f(v)
			}
			if got.DType == d {
				want = roundAll(want, d)
			}
			near(t, fmt.Sprint(c, " of ", d), got, want, 1)
		}
	}
}

// TestFloat32Ulp: the functions of lanes/math.go are within one unit in the last place,
// those of package vec, which do not compute in float64, within two.
func TestFloat32Ulp(t *testing.T) {
	forEachVectors(t, testFloat32Ulp)
}

func testFloat32Ulp(t *testing.T) {
	most := int64(2)
	if vec.Current() == nil {
		most = 1
	}
	for c, span := range map[op.Code]float64{op.Exp: 100, op.Sigmoid: 90, op.Tanh: 10} {
		n := 1 << 18
		x := arrayOf(dtype.Float32, op.Shape{n}, func(i int) float64 { return span * (2*float64(i)/float64(n) - 1) })
		got := dtype.View[float32](eval(t, c, op.Attr{}, x).data)
		for i, v := range dtype.View[float32](x.data) {
			want := float32(reference1[c](float64(v)))
			if d := int64(math.Float32bits(got[i])) - int64(math.Float32bits(want)); d < -most || d > most {
				t.Fatalf("%v(%v) = %v, want %v", c, v, got[i], want)
			}
		}
	}
}

// broadcasts are pairs of operand shapes.
var broadcasts = [][2]op.Shape{
	{{}, {}},
	{{0}, {0}},
	{{3, 0}, {1}},
	{{1}, {1, 1}},
	{{4099}, {4099}},
	{{4099}, {}},
	{{1, 1}, {37, 61}},
	{{57, 33}, {33}},
	{{57, 33}, {57, 1}},
	{{57, 1}, {1, 33}},
	{{9, 5, 7, 11}, {5, 1, 11}},
	{{9, 1, 7, 1}, {1, 5, 1, 11}},
	{{3, 2000}, {2000}},
	{{3, 2000}, {3, 1}},
	{{40, 1000}, {40, 1000}},
}

// index returns the operand's element for element i of shape out.
func index(i int, out, s op.Shape) int {
	at, stride := 0, 1
	for j := range out {
		d := out[len(out)-1-j]
		if k := len(s) - 1 - j; k >= 0 {
			if s[k] != 1 {
				at += i % d * stride
			}
			stride *= s[k]
		}
		i /= d
	}
	return at
}

// wrapAll reduces exact results of 8-bit integers to the bits of their type.
func wrapAll(x []float64, d dtype.DType) []float64 {
	for i, v := range x {
		switch d {
		case dtype.Uint8:
			x[i] = float64(uint8(int64(v)))
		case dtype.Int8:
			x[i] = float64(int8(int64(v)))
		}
	}
	return x
}

func TestBinaryBroadcast(t *testing.T) {
	isatest.SkipRace(t)
	isatest.SkipEmulated(t, "broadcasting is portable Go")
	forEachVectors(t, testBinaryBroadcast)
}

func testBinaryBroadcast(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, d := range dtype.All() {
		for _, s := range broadcasts {
			x, y := randomArray(rng, d, s[0]...), randomArray(rng, d, s[1]...)
			xs, ys := x.values(), y.values()
			for c, f := range reference2 {
				if _, err := op.Infer(c, op.Attr{}, x.Type, y.Type); err != nil {
					continue
				}
				if !d.IsFloat() && (c == op.Div || c == op.Mod || d == dtype.Bool) {
					continue // TestIntegers
				}
				got := eval(t, c, op.Attr{}, x, y)
				want := make([]float64, got.Shape.Size())
				for i := range want {
					want[i] = f(xs[index(i, got.Shape, s[0])], ys[index(i, got.Shape, s[1])])
				}
				if got.DType == d {
					want = roundAll(wrapAll(want, d), d)
				}
				near(t, fmt.Sprint(c, x.Type, y.Type), got, want, 4)
			}
		}
	}
}

func TestIntegers(t *testing.T) {
	bytesOf := func(x ...float64) array {
		return arrayOf(dtype.Uint8, op.Shape{len(x)}, func(i int) float64 { return x[i] })
	}
	ints := func(x ...float64) array {
		return arrayOf(dtype.Int32, op.Shape{len(x)}, func(i int) float64 { return x[i] })
	}
	bools := func(x ...float64) array {
		return arrayOf(dtype.Bool, op.Shape{len(x)}, func(i int) float64 { return x[i] })
	}
	const least = math.MinInt32
	for _, c := range []struct {
		op   op.Code
		x, y array
		want []float64
	}{
		{op.Add, bytesOf(200, 1), bytesOf(100, 2), []float64{44, 3}},
		{op.Sub, bytesOf(1, 3), bytesOf(2, 1), []float64{255, 2}},
		{op.Mul, ints(1<<20, -3), ints(1<<12, 5), []float64{0, -15}},
		{op.Div, ints(7, -7, 7, least), ints(2, 2, 0, -1), []float64{3, -3, 0, least}},
		{op.Mod, ints(7, -7, 7, -7, 5, 6), ints(3, 3, -3, -3, 0, 3), []float64{1, 2, -2, -1, 0, 0}},
		{op.Add, bools(0, 0, 1, 1), bools(0, 1, 0, 1), []float64{0, 1, 1, 1}},
		{op.Mul, bools(0, 0, 1, 1), bools(0, 1, 0, 1), []float64{0, 0, 0, 1}},
		{op.Maximum, bools(0, 0, 1, 1), bools(0, 1, 0, 1), []float64{0, 1, 1, 1}},
		{op.Minimum, bools(0, 0, 1, 1), bools(0, 1, 0, 1), []float64{0, 0, 0, 1}},
		{op.And, bools(0, 0, 1, 1), bools(0, 1, 0, 1), []float64{0, 0, 0, 1}},
		{op.Or, bools(0, 0, 1, 1), bools(0, 1, 0, 1), []float64{0, 1, 1, 1}},
		{op.Equal, bools(0, 0, 1, 1), bools(0, 1, 0, 1), []float64{1, 0, 0, 1}},
		{op.Less, bools(0, 0, 1, 1), bools(0, 1, 0, 1), []float64{0, 1, 0, 0}},
		{op.GreaterEqual, bools(0, 0, 1, 1), bools(0, 1, 0, 1), []float64{1, 0, 1, 1}},
	} {
		near(t, c.op.String(), eval(t, c.op, op.Attr{}, c.x, c.y), c.want, 0)
	}
	near(t, "Neg", eval(t, op.Neg, op.Attr{}, bytesOf(1, 0)), []float64{255, 0}, 0)
	near(t, "Abs", eval(t, op.Abs, op.Attr{}, ints(least, -2)), []float64{least, 2}, 0)
	// A bool is true when its byte is not 0.
	odd := array{Type: op.Type{DType: dtype.Bool, Shape: op.Shape{3}}, data: []byte{0, 2, 255}}
	near(t, "Not", eval(t, op.Not, op.Attr{}, odd), []float64{1, 0, 0}, 0)
	near(t, "And", eval(t, op.And, op.Attr{}, odd, bools(1, 1, 1)), []float64{0, 1, 1}, 0)
	near(t, "Where", eval(t, op.Where, op.Attr{}, odd, ints(1, 2, 3), ints(4, 5, 6)), []float64{4, 2, 3}, 0)
}

// TestNaN: a NaN wins wherever the larger or smaller of two numbers is chosen.
func TestNaN(t *testing.T) { forEachVectors(t, testNaN) }

func testNaN(t *testing.T) {
	nan := math.NaN()
	for _, d := range dtype.Floats() {
		of := func(x ...float64) array { return arrayOf(d, op.Shape{len(x)}, func(i int) float64 { return x[i] }) }
		x, y := of(nan, 1, nan, 1), of(1, nan, nan, 2)
		near(t, "Maximum", eval(t, op.Maximum, op.Attr{}, x, y), []float64{nan, nan, nan, 2}, 1)
		near(t, "Minimum", eval(t, op.Minimum, op.Attr{}, x, y), []float64{nan, nan, nan, 1}, 1)
		near(t, "Relu", eval(t, op.Relu, op.Attr{}, x), []float64{nan, 1, nan, 1}, 1)
		near(t, "Max", eval(t, op.Max, op.Attr{Axes: []int{0}}, x), []float64{nan}, 1)
		near(t, "Min", eval(t, op.Min, op.Attr{Axes: []int{0}}, y), []float64{nan}, 1)
		near(t, "ArgMax", eval(t, op.ArgMax, op.Attr{Axes: []int{0}}, of(3, nan, 5, nan)), []float64{1}, 1)
		near(t, "ArgMin", eval(t, op.ArgMin, op.Attr{Axes: []int{0}}, of(3, 1, 5, 1)), []float64{1}, 1)
		near(t, "AllFinite", eval(t, op.AllFinite, op.Attr{}, x), []float64{0}, 1)
		near(t, "AllFinite", eval(t, op.AllFinite, op.Attr{}, of(1, 2, 3)), []float64{1}, 1)
		near(t, "AllFinite", eval(t, op.AllFinite, op.Attr{}, of(1, math.Inf(-1), 3)), []float64{0}, 1)
	}
}

// TestCast compares casts with one conversion by package dtype.
func TestCast(t *testing.T) { forEachVectors(t, testCast) }

func testCast(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	special := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 65520, 65519.9, 1 << 31, -1 << 40, 300, -1, 0.5, 1.5, 2.5, 1e-7, 1e300, 2049, 2051}
	for _, from := range dtype.All() {
		x := arrayOf(from, op.Shape{3001}, func(i int) float64 {
			if i < len(special) {
				return special[i]
			}
			return math.Round(rng.NormFloat64()*1000) / 8
		})
		for _, to := range dtype.All() {
			got := eval(t, op.Cast, op.Attr{DType: to}, x)
			want := make([]byte, got.Bytes())
			if from == dtype.Bool || from.IsInt() {
				v := make([]int64, 3001)
				dtype.ToI64(v, x.data, from)
				dtype.FromI64(want, v, to)
			} else {
				dtype.FromF64(want, x.values(), to)
			}
			if !bytes.Equal(got.data, want) {
				t.Errorf("Cast of %v to %v differs from package dtype", from, to)
			}
		}
	}
}

// TestFusedBits: a chain has the bits of its operations one by one.
func TestFusedBits(t *testing.T) { forEachVectors(t, testFusedBits) }

func testFusedBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64} {
		n := 3000
		x, row := randomArray(rng, d, 5, n/5), randomArray(rng, d, n/5)
		c, one := randomArray(rng, dtype.Float32), randomArray(rng, dtype.Int32, 5, 1)
		body := &op.Body{
			Inputs: []dtype.DType{d, d, dtype.Float32, dtype.Int32},
			Code: []op.Instr{
				{Op: op.Add, DType: d, Args: [3]int32{0, 1}},                  // 4
				{Op: op.Tanh, DType: d, Args: [3]int32{4}},                    // 5
				{Op: op.Mul, DType: d, Args: [3]int32{5, 4}},                  // 6
				{Op: op.Cast, DType: dtype.Float32, Args: [3]int32{6}},        // 7
				{Op: op.Mul, DType: dtype.Float32, Args: [3]int32{7, 2}},      // 8
				{Op: op.Greater, DType: dtype.Bool, Args: [3]int32{8, 2}},     // 9
				{Op: op.Where, DType: dtype.Float32, Args: [3]int32{9, 8, 7}}, // 10
				{Op: op.Cast, DType: dtype.Float32, Args: [3]int32{3}},        // 11
				{Op: op.Sub, DType: dtype.Float32, Args: [3]int32{10, 11}},    // 12
				{Op: op.Cast, DType: d, Args: [3]int32{12}},                   // 13
			},
		}
		values := []array{x, row, c, one}
		for _, ins := range body.Code {
			var args []array
			for _, a := range ins.Args[:ins.Op.Info().Args] {
				args = append(args, values[a])
			}
			var a op.Attr
			if ins.Op == op.Cast {
				a.DType = ins.DType
			}
			values = append(values, eval(t, ins.Op, a, args...))
		}
		for last := range body.Code {
			prefix := &op.Body{Inputs: body.Inputs, Code: body.Code[:last+1]}
			got := eval(t, op.Fused, op.Attr{Body: prefix}, values[:4]...)
			want := values[4+last]
			if last == 7 { // only one operand is read
				want = eval(t, op.BroadcastTo, op.Attr{Dims: got.Shape}, want)
			}
			if !bytes.Equal(got.data, want.data) {
				t.Errorf("%v: chain up to %v of %v differs from its parts", d, last, body)
			}
		}
	}
}

// TestShortRows: rows that repeat some times before the next row, and rows that repeat
// to the end, which end within blocks and chunks, in chain loops and in others, have
// the bits of the operations one by one.
func TestShortRows(t *testing.T) {
	forEachVectors(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 9))
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, s := range [][3]int{{3, 700, 7}, {5, 65, 64}, {2, 5, 1024}, {4, 3001, 3}, {3, 2, 2000}} {
				x, row, other := randomArray(rng, d, s[0], s[1], s[2]), randomArray(rng, d, s[0], 1, s[2]), randomArray(rng, d, s[0], 1, s[2])
				inputs := []array{x, row, other, randomArray(rng, d, s[2]), x, randomArray(rng, d, s[0], s[1], 1)}
				g := ir.New(len(inputs))
				var in []*ir.Value
				for i, a := range inputs {
					in = append(in, param(t, g, i, a.Type))
				}
				do := func(c op.Code, args ...*ir.Value) *ir.Value { return record(t, g, c, op.Attr{}, args...) }
				y := do(op.Add, do(op.Mul, do(op.Sub, in[0], in[1]), in[2]), in[3])
				z := do(op.Add, do(op.Add, do(op.Mul, in[4], in[2]), do(op.Mul, do(op.Sub, in[0], in[1]), in[3])), in[2])
				g.Output(y, -1)
				g.Output(z, -1)
				g.Output(do(op.Mul, do(op.Maximum, in[0], in[2]), in[5]), -1)
				p := plan(t, g)
				ins, outs := buffers(p, inputs)
				if err := p.Run(context.Background(), ins, outs); err != nil {
					t.Fatal(err)
				}
				one := func(c op.Code, args ...array) array { return eval(t, c, op.Attr{}, args...) }
				centered := one(op.Sub, x, row)
				for i, want := range []array{
					one(op.Add, one(op.Mul, centered, other), inputs[3]),
					one(op.Add, one(op.Add, one(op.Mul, x, other), one(op.Mul, centered, inputs[3])), other),
					one(op.Mul, one(op.Maximum, x, other), inputs[5]),
				} {
					if !bytes.Equal(outs[i].(*Buffer).storage, want.data) {
						t.Errorf("%v %v: result %d differs from its operations one by one", d, s, i)
					}
				}
				// And these against the definition.
				want, b := x.values(), row.values()
				for i := range want {
					want[i] -= b[i/(s[1]*s[2])*s[2]+i%s[2]]
				}
				want = roundAll(want, d)
				for i, v := range centered.values() {
					if v != want[i] {
						t.Fatalf("%v %v: element %d less its row is %v, want %v", d, s, i, v, want[i])
					}
				}
			}
		}
	})
}
