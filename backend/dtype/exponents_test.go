package dtype

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// TestExponentCounter counts all values of the 16-bit types, and float32 of all kinds,
// in stretches of all lengths.
func TestExponentCounter(t *testing.T) {
	field := func(x float32) uint8 { return uint8(math.Float32bits(x) >> 23) }
	rng := rand.New(rand.NewPCG(1, 2))
	for _, d := range []DType{Float16, BFloat16, Float32} {
		data := make([]byte, d.Size()<<16)
		for i := range 1 << 16 {
			if d == Float32 {
				v := rng.Uint32()
				if i < 16 {
					v = []uint32{0, 1 << 31, 1, 1<<31 | 1, 0x7fffff, 0x800000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0x3f800000, 0, 0, 2}[i]
				}
				binary.LittleEndian.PutUint32(data[4*i:], v)
			} else {
				binary.LittleEndian.PutUint16(data[2*i:], uint16(i))
			}
		}
		var c ExponentCounter
		var want [256]int
		values := make([]float32, 1<<16)
		ToF32(values, data, d)
		zeros := 0
		for at, n := 0, 0; at < len(values); n++ {
			part := data[at*d.Size() : min(at+n, len(values))*d.Size()]
			c.Add(part, d)
			got := 0
			if d == Float32 {
				got = CountZeros32(View[float32](part))
			} else {
				got = CountZeros16(View[uint16](part))
			}
			for _, v := range values[at : at+len(part)/d.Size()] {
				want[field(v)]++
				if v == 0 {
					got--
					zeros++
				}
			}
			if got != 0 {
				t.Errorf("%v: %d zeros too many in %d elements from %d on", d, got, n, at)
			}
			at += n
		}
		if zeros < 2 {
			t.Errorf("%v: got %d zeros among the values", d, zeros)
		}
		for f, n := range want {
			if got := c.Count(uint8(f)); got != n {
				t.Errorf("%v: got %d numbers of field %d, want %d", d, got, f, n)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("counted float64")
		}
	}()
	new(ExponentCounter).Add(make([]byte, 8), Float64)
}

func BenchmarkExponentCounter(b *testing.B) {
	for _, d := range []DType{Float16, BFloat16, Float32} {
		b.Run(d.String(), func(b *testing.B) {
			x := make([]float32, 1<<16)
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			data := make([]byte, d.Size()*len(x))
			FromF32(data, x, d)
			for range b.N {
				var c ExponentCounter
				c.Add(data, d)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/element")
		})
	}
}
