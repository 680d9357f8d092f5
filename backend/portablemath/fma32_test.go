package portablemath

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestFMA32 compares FMA32 with big.Float on numbers where rounding twice goes wrong: sums
// near the middle of two float32, normal and subnormal, and any bits.
func TestFMA32(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	any32 := func() float32 { return math.Float32frombits(g.Uint32()) }
	few := func() float32 { // few bits, so that sums lie in the middle
		return float32(math.Ldexp(float64(g.IntN(1<<12)-1<<11), g.IntN(60)-30))
	}
	wrong := 0
	for i := range 400_000 {
		x, y, z := any32(), any32(), any32()
		switch i % 4 {
		case 1: // z and the product differ by about 24 bits
			x, y = few(), few()
			z = float32(float64(x) * float64(y) * math.Ldexp(1+g.Float64(), g.IntN(60)-30))
		case 2: // a middle and a tiny term: (1+e)·(1-e) is 1-e²
			e := float32(g.IntN(8)) * 0x1p-23
			x, y = 1+e, (1-e)*0x1p-24
			z = 1 + float32(g.IntN(1<<10))*0x1p-23
			if g.IntN(2) == 0 {
				z = -z
			}
		case 3: // subnormal sums
			x, y = few(), few()*0x1p-100
			z = math.Float32frombits(g.Uint32N(1<<24) | g.Uint32()&(1<<31))
			x *= 0x1p-40
		}
		if x-x != 0 || y-y != 0 || z-z != 0 {
			continue
		}
		p := new(big.Float).SetPrec(600).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
		p.Add(p, big.NewFloat(float64(z)))
		want, _ := p.Float32()
		got := FMA32(x, y, z)
		if math.Float32bits(got) != math.Float32bits(want) && (got != 0 || want != 0) {
			t.Fatalf("FMA32(%x, %x, %x) is %x, want %x", x, y, z, got, want)
		}
		if float32(float64(x)*float64(y)+float64(z)) != want {
			wrong++
		}
	}
	if wrong < 100 {
		t.Errorf("rounding twice is wrong in %d cases only: the numbers do not test it", wrong)
	}
}
