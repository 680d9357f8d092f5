package lanes

import (
	"flag"
	"math"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/op"
)

var every = flag.Bool("every", false, "go through all numbers in steps of 1,021, not of 65,537")

// TestPortableFunctions: functions with portable bits have the same bits on every level, and
// those of portable Go are within two units of a function of float64, NormalCDF within six and
// NormalPDF within four, as package vec has them.
func TestPortableFunctions(t *testing.T) {
	sets := map[isa.Level]*vec.Set{isa.AVX2: vec.AVX2(), isa.AVX512: vec.AVX512(), isa.NEON: vec.NEON()}
	codes := []op.Code{op.Exp, op.Expm1, op.Log, op.Log1p, op.Tanh, op.Sigmoid, op.NormalCDF, op.NormalPDF, op.Rsqrt, op.Sqrt, op.Reciprocal}
	step := uint64(65537)
	if *every {
		step = 1021
	}
	var x []float32
	for b := uint64(0); b < 1<<32; b += step {
		x = append(x, math.Float32frombits(uint32(b)))
	}
	for v := float32(-110); v < 110; v += 0.0037 { // where functions are neither 0, 1 nor infinite
		x = append(x, v, v/64)
	}
	want, got := make([]float32, len(x)), make([]float32, len(x))
	for _, c := range codes {
		f, units := loopsGo[1].Unary[c], 2.0
		switch c {
		case op.NormalCDF:
			units = 6
		case op.NormalPDF:
			units = 4
		}
		f(want, x)
		for i, y := range want {
			exact := c.Info().Scalar.Float(float64(x[i]), 0)
			off := math.Abs(float64(y) - exact)
			if exact-exact == 0 && math.Abs(exact) <= math.MaxFloat32 && off > math.Abs(exact)*units*0x1p-23+0x1p-148 {
				t.Fatalf("%v of %v is %v, want %v", c, x[i], y, exact)
			}
		}
		for l, s := range sets {
			if s == nil || !slices.Contains(isa.Levels(), l) {
				continue
			}
			portableF32(s).Unary[c](got, x)
			for i, y := range got {
				if math.Float32bits(y) != math.Float32bits(want[i]) && (y == y || want[i] == want[i]) {
					t.Fatalf("%v of %x is %x with %s, %x in Go", c, x[i], y, l.Name(), want[i])
				}
			}
		}
	}
}

// TestPortableExp2: powers of two of the loops over rows have the same bits on every level, which
// are those of exp2F32, and are within two units.
func TestPortableExp2(t *testing.T) {
	var x []float32
	for v := float32(-130); v < 16; v += 0.00037 {
		x = append(x, v, v/128)
	}
	x = append(x, 0, float32(math.Copysign(0, -1)), -0.5, 0.5, -1.5, 1.5, -126, float32(math.Inf(-1)), float32(math.NaN()), 126.75, 127.5, 127.75, 128, 129.5)
	x = append(x, make([]float32, -len(x)&15)...)
	got, s := make([]float32, len(x)), make([]float32, 3)
	for _, set := range []*vec.Set{vec.AVX2(), vec.AVX512(), vec.NEON(), nil} {
		switch {
		case set == nil:
			for i, v := range x {
				got[i] = exp2F32(v)
			}
		case set == vec.AVX512() && !slices.Contains(isa.Levels(), isa.AVX512) || set == vec.AVX2() && !slices.Contains(isa.Levels(), isa.AVX2):
			continue
		default:
			s[0], s[1] = 1, 0
			set.RowsF32.Exp2Sum(got, BytesOf(x), s, nil)
		}
		for i, v := range x {
			y, exact := got[i], math.Exp2(float64(v))
			if v < -126 {
				exact = 0
			}
			if want := exp2F32(v); y != want && (y == y || want == want) {
				t.Fatalf("2 to the power of %v is %v with %d lanes, %v in Go", v, y, set.Lanes, want)
			}
			if exact > math.MaxFloat32 {
				exact = math.Inf(1)
			}
			if v == v && math.Abs(float64(y)-exact) > exact*0x1p-22 {
				t.Fatalf("2 to the power of %v is %v, want %v", v, y, exact)
			}
		}
	}
}
