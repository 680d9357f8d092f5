package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPairSums holds the loop against that in Go: the largest error to the bit, sums but
// for their order. Each special value comes in each lane.
func TestPairSums(t *testing.T) {
	special := []float32{0, float32(math.Copysign(0, -1)), 0x1p-149, -0x1p-149, 0x1p-126, math.MaxFloat32, -math.MaxFloat32}
	forEachSet(t, func(t *testing.T, s *Set) {
		rng := rand.New(rand.NewPCG(41, 42))
		scratch := make([]byte, StatsScratch)
		for _, n := range []int{16, 32, 48, 1024} {
			for lane := range 16 {
				for i, v := range special {
					x, y := make([]float32, n), make([]float32, n)
					for k := range x {
						x[k], y[k] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
					}
					x[n-16+lane] = v
					y[lane] = special[(i+lane)%len(special)]
					got, want := s.PairSums(scratch, x, y), SumPairs(x, y)
					if got.LargestError != want.LargestError {
						t.Errorf("%d elements: got largest error %v, want %v", n, got.LargestError, want.LargestError)
					}
					for _, c := range []struct{ got, want, size float64 }{
						{got.SquaredErrors, want.SquaredErrors, want.SquaredErrors}, {got.SquaresX, want.SquaresX, want.SquaresX},
						{got.SquaresY, want.SquaresY, want.SquaresY}, {got.Products, want.Products, want.SquaresX + want.SquaresY},
					} {
						if !(math.Abs(c.got-c.want) <= 1e-14*c.size) {
							t.Errorf("%d elements: got sums %+v, want %+v", n, got, want)
						}
					}
				}
			}
		}
	})
}

// TestMagnitudes: extremes and exponent fields are those of a loop in Go, also of
// infinities and NaNs, each in each place of 64.
func TestMagnitudes(t *testing.T) {
	special := []uint32{0, 1 << 31, 1, 1<<31 | 1, 0x7fffff, 0x800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xff800001}
	forEachSet(t, func(t *testing.T, s *Set) {
		rng := rand.New(rand.NewPCG(43, 44))
		scratch := make([]byte, StatsScratch)
		for _, n := range []int{64, 128, 1024, FieldsBlock} {
			x, fields := make([]float32, n), make([]byte, n)
			for place := range 64 {
				for _, v := range special {
					for k := range x {
						x[k] = float32(rng.Uint32()>>8) * 0x1p-20
					}
					x[n-64+place] = math.Float32frombits(v)
					x[rng.IntN(n)] = math.Float32frombits(v)
					var got, want [256]int
					most, least := uint32(0), uint32(math.MaxUint32)
					for _, v := range x {
						bits := math.Float32bits(v) & 0x7fffffff
						want[bits>>23]++
						most, least = max(most, bits), min(least, bits-1)
					}
					largest, smallest := s.Magnitudes(scratch, fields, x)
					if largest != most || smallest != least+1 {
						t.Errorf("%d elements, %#x at %d: got %#x to %#x, want %#x to %#x", n, v, n-64+place, smallest, largest, least+1, most)
					}
					for _, f := range fields {
						got[f]++
					}
					if got != want {
						t.Errorf("%d elements, %#x at %d: got other exponents", n, v, n-64+place)
					}
				}
			}
			clear(x)
			if largest, smallest := s.Magnitudes(scratch, fields, x); largest != 0 || smallest != 0 {
				t.Errorf("%d zeros: got %#x to %#x", n, smallest, largest)
			}
		}
	})
}

func TestCountFields(t *testing.T) {
	forEachSet(t, func(t *testing.T, s *Set) { checkCountFields(t, s.CountFields) })
}

// checkCountFields counts bytes of all spans, among zeros.
func checkCountFields(t *testing.T, count func(scratch []byte, counts *[256]uint32, fields []byte, low, high uint8) int) {
	rng := rand.New(rand.NewPCG(45, 46))
	scratch := make([]byte, StatsScratch)
	for _, n := range []int{64, 192, 1024, 1984, 2048, FieldsBlock} {
		fields := make([]byte, n)
		for _, span := range []int{1, 2, 8, 9, 32, 33, 255} {
			for _, low := range []int{1, 7, 100, 127, 223, 255} {
				high := min(low+span-1, 255)
				var want, counts [256]uint32
				sum := 0
				for i := range fields {
					fields[i] = 0
					if rng.IntN(8) > 0 {
						fields[i] = byte(low + rng.IntN(high-low+1))
						want[fields[i]] += 2
						sum++
					}
				}
				for range 2 {
					if got := count(scratch, &counts, fields, byte(low), byte(high)); got != sum {
						t.Errorf("%d numbers from %d to %d: got %d, want %d", n, low, high, got, sum)
					}
				}
				if counts != want {
					t.Errorf("%d numbers from %d to %d: got %v, want %v", n, low, high, counts, want)
				}
			}
		}
		for i := range fields { // also as often as possible
			fields[i] = 255
		}
		var counts [256]uint32
		if got := count(scratch, &counts, fields, 255, 255); got != n || counts[255] != uint32(n) {
			t.Errorf("%d equal numbers: got %d", n, got)
		}
	}
}

func BenchmarkStats(b *testing.B) {
	s := Current()
	if s == nil {
		b.Skip("no vectors on this level")
	}
	const n = 1024
	x, y, fields, scratch := make([]float32, n), make([]float32, n), make([]byte, n), make([]byte, StatsScratch)
	for i := range x {
		v := rand.NormFloat64()
		x[i], y[i] = float32(v), float32(v*1.001)
	}
	largest, smallest := s.Magnitudes(scratch, fields, x)
	counts := new([256]uint32)
	for _, k := range []struct {
		name string
		f    func()
	}{
		{"PairSums", func() { s.PairSums(scratch, x, y) }},
		{"SumSquares", func() { s.Folds.SumSquares(x) }},
		{"Magnitudes", func() { s.Magnitudes(scratch, fields, x) }},
		{"CountFields", func() { s.CountFields(scratch, counts, fields, byte(smallest>>23), byte(largest>>23)) }},
	} {
		b.Run(k.name, func(b *testing.B) {
			for b.Loop() {
				k.f()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
		})
	}
}
