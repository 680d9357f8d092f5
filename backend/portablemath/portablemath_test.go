package portablemath

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// digest is that of all results of TestFunctions, on every processor.
const digest = "12daf3108b8e69f8f0d456b0fa44d27d66d1dc8a50238a1779ae2f6af0191af3"

// TestFunctions: functions are those of package math but for their last bits, and have the
// same bits on every processor.
func TestFunctions(t *testing.T) {
	h := sha256.New()
	for _, f := range []struct {
		name      string
		got, want func(x float64) float64
	}{
		{"Exp", Exp, math.Exp}, {"Exp2", Exp2, math.Exp2}, {"Expm1", Expm1, math.Expm1}, {"Log", Log, math.Log}, {"Log1p", Log1p, math.Log1p},
		{"Tanh", Tanh, math.Tanh}, {"Sin", Sin, math.Sin}, {"Cos", Cos, math.Cos}, {"Erf", Erf, math.Erf}, {"Erfc", Erfc, math.Erfc}, {"Erfinv", Erfinv, math.Erfinv},
		{"Pow", func(x float64) float64 { return Pow(math.Abs(x), x) }, func(x float64) float64 { return math.Pow(math.Abs(x), x) }},
		{"power of 0.999", func(x float64) float64 { return Pow(0.999, x) }, func(x float64) float64 { return math.Pow(0.999, x) }},
	} {
		g := rand.New(rand.NewPCG(1, 2))
		xs := []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), 1e-300, 5e-324, 1e300, 709.7, -745.1}
		for range 3000 {
			xs = append(xs, (2*g.Float64()-1)*math.Ldexp(1, g.IntN(24)-14), g.Float64()*2-1)
		}
		for _, x := range xs {
			got, want := f.got(x), f.want(x)
			if math.IsNaN(got) {
				got = math.NaN() // any NaN
			}
			_ = binary.Write(h, binary.LittleEndian, got)
			// Go's logarithm of amd64 is wrong for subnormal numbers.
			if math.Float64bits(got) != math.Float64bits(want) && !(math.Abs(got-want) <= 4e-16*8*math.Abs(want)+1e-322) && !(math.IsNaN(got) && math.IsNaN(want)) && math.Abs(x) != 5e-324 {
				t.Errorf("%s(%v) is %v, want %v", f.name, x, got, want)
			}
		}
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != digest {
		t.Errorf("the digest is %s, want %s", got, digest)
	}
}
