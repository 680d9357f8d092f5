package op

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestStatsBins: the limits of the types are borders of bins.
func TestStatsBins(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32} {
		limits := []int{math.Ilogb(d.SmallestNormal()), math.Ilogb(d.Max()) + 1}
		if d == dtype.Float16 {
			limits = append(limits, math.Ilogb(d.SmallestSubnormal()))
		}
		for _, e := range limits {
			if StatsBin(e) != StatsBin(e-1)+1 {
				t.Errorf("%v: 2^%d is in bin %d, as the numbers below", d, e, StatsBin(e))
			}
			border := false
			for _, b := range StatsBorders {
				border = border || b == e
			}
			if !border {
				t.Errorf("%v: coarse bins have no border at 2^%d", d, e)
			}
		}
	}
	for e, want := range map[int]int{-1074: 0, -127: 0, -126: 1, 0: 127, 127: 254, 128: 255, 1023: 255} {
		if got := StatsBin(e); got != want {
			t.Errorf("2^%d: got bin %d, want %d", e, got, want)
		}
	}
}

// TestDecodeStatistics: each number of the vector is one of the struct.
func TestDecodeStatistics(t *testing.T) {
	v := make([]float64, StatsSize)
	for i := range v {
		v[i] = float64(i + 1)
	}
	s, err := DecodeStatistics(v)
	if err != nil {
		t.Fatal(err)
	}
	numbers := []float64{float64(s.Count), float64(s.Finite), float64(s.Flushed), float64(s.Subnormal), s.SquaredError, s.Products, s.LargestError, v[StatsResolution]}
	for _, m := range []Magnitudes{s.X, s.Y} {
		numbers = append(numbers, float64(m.NaNs), float64(m.Infinities), float64(m.Zeros), m.Largest, m.Smallest, m.Squares)
		for _, n := range m.Bins {
			numbers = append(numbers, float64(n))
		}
	}
	if len(numbers) != len(v) {
		t.Fatalf("got %d numbers, want %d", len(numbers), len(v))
	}
	for i, got := range numbers {
		if got != v[i] {
			t.Errorf("number %d: got %v, want %v", i, got, v[i])
		}
	}
	if v[StatsResolution] = 0; s.Coarse {
		t.Error("got coarse bins")
	}
	if s, _ := DecodeStatistics(v); !s.Coarse {
		t.Error("got fine bins")
	}
	m := Magnitudes{}
	m.Bins[0], m.Bins[StatsBin(-25)], m.Bins[StatsBin(-24)], m.Bins[255] = 1, 2, 4, 8
	for e, want := range map[int]int64{-126: 1, -25: 1, -24: 3, -23: 7, 128: 7} {
		if got := m.Below(e); got != want {
			t.Errorf("below 2^%d: got %d, want %d", e, got, want)
		}
	}
	if _, err := DecodeStatistics(v[1:]); err == nil {
		t.Error("got no error for a short vector")
	}
}

func TestInferStats(t *testing.T) {
	typ := func(d dtype.DType, s ...int) Type { return Type{d, s} }
	f16, bf16, f32, f64, i32 := dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64, dtype.Int32
	for _, c := range []struct {
		x, y Type
		ok   bool
	}{
		{typ(f16, 3, 4), typ(f32, 3, 4), true}, {typ(f16, 3), typ(f16, 3), true}, {typ(bf16), typ(f64), true}, {typ(f64, 0), typ(f32, 0), true},
		{typ(f16, 3), typ(bf16, 3), false}, {typ(f32, 3), typ(bf16, 3), false}, {typ(f32, 3, 4), typ(f32, 4), false}, {typ(i32, 3), typ(i32, 3), false},
		{typ(f32, 3), typ(i32, 3), false},
	} {
		got, err := Infer(Stats, Attr{}, c.x, c.y)
		if (err == nil) != c.ok || c.ok && !got.Equal(typ(f64, StatsSize)) {
			t.Errorf("%v and %v: got %v, %v", c.x, c.y, got, err)
		}
	}
}
