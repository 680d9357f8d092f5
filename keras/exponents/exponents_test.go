package exponents

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

func TestHistogram(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	all := []float32{0, float32(math.Copysign(0, -1)), nan, inf, 0x1p-25, math.Nextafter32(0x1p-25, 1), -65519, 65520, 1, 1.99, -2,
		math.SmallestNonzeroFloat32, math.MaxFloat32}
	var h Histogram
	h.Add(all...)
	if h.Count != 13 || h.Zeros != 2 || h.NonFinite != 2 || h.Float16Zeros != 2 || h.Float16Infinities != 2 {
		t.Errorf("got %+v", h)
	}
	for e, want := range map[int]int64{-149: 1, -25: 2, 0: 2, 1: 1, 15: 2, 127: 1, 2: 0, -150: 0, 128: 0} {
		if got := h.Binade(e); got != want {
			t.Errorf("binade %d: got %d, want %d", e, got, want)
		}
	}
	if first, last, ok := h.Range(); first != -149 || last != 127 || !ok {
		t.Errorf("got range %d to %d, %v", first, last, ok)
	}
	if _, _, ok := new(Histogram).Range(); ok {
		t.Error("got a range of nothing")
	}
	// The counts of what float16 loses are those of its rounding.
	var zeros, infinities int64
	for _, x := range all {
		switch y := dtype.Float16.Round(x); {
		case x != 0 && y == 0:
			zeros++
		case !math.IsInf(float64(x), 0) && math.IsInf(float64(y), 0):
			infinities++
		}
	}
	if zeros != h.Float16Zeros || infinities != h.Float16Infinities {
		t.Errorf("got %d and %d lost, float16 rounds %d to 0 and %d to infinity", h.Float16Zeros, h.Float16Infinities, zeros, infinities)
	}
}

// TestAddBytes: every 16-bit pattern is counted as its number is, and two halves
// make the whole.
func TestAddBytes(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		data := make([]byte, 2<<16)
		for i := range 1 << 16 {
			binary.LittleEndian.PutUint16(data[2*i:], uint16(i))
		}
		var whole, parts, rest Histogram
		whole.AddBytes(data, d)
		parts.AddBytes(data[:100002], d)
		rest.AddBytes(data[100002:], d)
		parts.Merge(&rest)
		if whole != parts || whole.Count != 1<<16 || whole.Zeros != 2 {
			t.Errorf("%v: got %+v and %+v", d, whole, parts)
		}
		l := LimitsOf(d)
		first, last, _ := whole.Range()
		if first != l.Subnormal || last != l.Overflow-1 {
			t.Errorf("%v: got binades %d to %d, limits %+v", d, first, last, l)
		}
		// A binade of normal numbers has 2^fraction numbers of either sign.
		if got, want := whole.Binade(l.Normal), int64(2/d.Epsilon()); got != want {
			t.Errorf("%v: got %d numbers in the first normal binade, want %d", d, got, want)
		}
	}
	if got, want := LimitsOf(dtype.Float16), (Limits{-24, -14, 16}); got != want {
		t.Errorf("got limits %+v of float16, want %+v", got, want)
	}
	if got, want := LimitsOf(dtype.BFloat16), (Limits{-133, -126, 128}); got != want {
		t.Errorf("got limits %+v of bfloat16, want %+v", got, want)
	}
}

// TestAddBlocks: numbers of all magnitudes, in slices of all lengths around that of a
// block, are counted as they are one by one.
func TestAddBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	special := []float32{0, float32(math.Copysign(0, -1)), 0x1p-149, -0x1p-127, 0x1p-126, 0x1p-25, -0x1p-25, 0x1.000002p-25, 65519.996, 65520, -65536, float32(math.Inf(-1)), float32(math.NaN())}
	for n := 900; n < 2200; n += 123 {
		x := make([]float32, n)
		for i := range x {
			switch rng.IntN(200) {
			case 0:
				x[i] = special[rng.IntN(len(special))]
			case 1:
				x[i] = math.Float32frombits(rng.Uint32())
			default:
				x[i] = float32(rng.NormFloat64())
			}
		}
		var want, got Histogram
		for _, v := range x {
			want.Count++
			a := math.Abs(float64(v))
			half := math.Abs(float64(dtype.Float16.Round(v)))
			switch {
			case a == 0:
				want.Zeros++
			case math.IsNaN(a) || math.IsInf(a, 0):
				want.NonFinite++
			default:
				want.binades[math.Ilogb(a)-Lowest]++
				if half == 0 {
					want.Float16Zeros++
				} else if math.IsInf(half, 0) {
					want.Float16Infinities++
				}
			}
		}
		if got.Add(x...); got != want {
			t.Errorf("%d numbers: got %+v, want %+v", n, got, want)
		}
		for _, d := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.BFloat16, dtype.Float16} {
			data, rounded := make([]byte, n*d.Size()), make([]float32, n)
			dtype.FromF32(data, x, d)
			dtype.ToF32(rounded, data, d)
			var whole, one Histogram
			whole.AddBytes(data, d)
			for _, v := range rounded {
				one.Add(v)
			}
			if whole != one {
				t.Errorf("%d numbers of %v: got %+v, want %+v", n, d, whole, one)
			}
		}
	}
}

func BenchmarkAddBytes(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 1<<16)
	for _, zeros := range []bool{false, true} {
		for i := range x {
			if x[i] = float32(rng.NormFloat64()); zeros {
				x[i] = max(x[i], 0)
			}
		}
		for _, d := range dtype.Floats() {
			b.Run(fmt.Sprintf("%v/zeros=%v", d, zeros), func(b *testing.B) {
				data := make([]byte, d.Size()*len(x))
				dtype.FromF32(data, x, d)
				var h Histogram
				for b.Loop() {
					h.AddBytes(data, d)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/element")
			})
		}
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		part, all int64
		want      string
	}{{0, 0, "0 %"}, {0, 8, "0 %"}, {1, 3, "33 %"}, {1, 3000, "0.033 %"}, {994, 1000, "99 %"}, {995, 1000, "99.5 %"}, {9996, 10000, "100 %"}, {7, 7, "100 %"}} {
		if got := Percent(c.part, c.all); got != c.want {
			t.Errorf("%d of %d: got %s, want %s", c.part, c.all, got, c.want)
		}
	}
}
