package vec

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestLowPrecision compares operations of 16-bit types with the same operations in float32,
// each rounded: for every number of the type with numbers of all sizes, and for all
// lengths modulo a vector, between guards.
func TestLowPrecision(t *testing.T) {
	relu := func(x float32) float32 {
		if x < 0 {
			return 0
		}
		return x
	}
	forEachSet(t, func(t *testing.T, s *Set) {
		for _, typ := range []struct {
			dtype dtype.DType
			f     *LowPrecision
			wide  func(uint16) float32
			cut   func(float32) uint16
		}{
			{dtype.Float16, &s.LowPrecisionF16, dtype.F16ToF32, dtype.F16FromF32},
			{dtype.BFloat16, &s.LowPrecisionBF16, dtype.BF16ToF32, dtype.BF16FromF32},
		} {
			const n = 1 << 16
			a, b, row, c := make([]uint16, n), make([]uint16, n), make([]float32, n), make([]byte, n)
			half := func(f func(a, b float32) float32) func(a, b float32, _ byte) uint16 {
				return func(a, b float32, _ byte) uint16 { return typ.cut(f(a, b)) }
			}
			add := func(a, b float32) float32 { return a + b }
			sub := func(a, b float32) float32 { return a - b }
			mul := func(a, b float32) float32 { return a * b }
			addRelu := func(a, b float32) float32 { return relu(typ.wide(typ.cut(a + b))) }
			const scale, low, other = 1.3, -0.5, 0.25
			pick := func(y bool, x float32) float32 {
				if y {
					return x
				}
				return other
			}
			for turn := range 3 {
				for i := range a {
					a[i] = uint16(i)
					b[i] = uint16(i * 40503 >> turn) // different numbers each time
					row[i] = typ.wide(b[i])
					c[i] = byte(i*7>>4) & 3
				}
				f := typ.f
				two := func(f func(dst, a, b []uint16)) func(dst []uint16, at, end int) {
					return func(dst []uint16, at, end int) { f(dst, a[at:end], b[at:end]) }
				}
				wide := func(f func(dst, a []uint16, b []float32)) func(dst []uint16, at, end int) {
					return func(dst []uint16, at, end int) { f(dst, a[at:end], row[at:end]) }
				}
				for _, l := range []struct {
					name string
					f    func(dst []uint16, at, end int)
					want func(a, b float32, c byte) uint16
				}{
					{"Add", two(f.Add), half(add)}, {"AddRow", wide(f.AddRow), half(add)},
					{"Sub", two(f.Sub), half(sub)}, {"SubRow", wide(f.SubRow), half(sub)},
					{"Mul", two(f.Mul), half(mul)}, {"MulRow", wide(f.MulRow), half(mul)},
					{"AddRelu", two(f.AddRelu), half(addRelu)}, {"AddReluRow", wide(f.AddReluRow), half(addRelu)},
					{"Relu", func(dst []uint16, at, end int) { f.Relu(dst, a[at:end]) },
						half(func(a, _ float32) float32 { return relu(a) })},
					{"WhereGreater", func(dst []uint16, at, end int) { f.WhereGreater(dst, a[at:end], b[at:end], low, other) },
						half(func(a, b float32) float32 { return pick(a > low, b) })},
					{"WhereScaled", func(dst []uint16, at, end int) { f.WhereScaled(dst, c[at:end], a[at:end], scale, other) },
						func(a, _ float32, c byte) uint16 { return typ.cut(pick(c != 0, a*scale)) }},
				} {
					checkHalf(t, typ.dtype, l.name, n, l.f, func(i int) uint16 { return l.want(typ.wide(a[i]), row[i], c[i]) })
				}
			}
		}
	})
}

// checkHalf compares n elements; lengths up to some vectors are computed separately.
func checkHalf(t *testing.T, d dtype.DType, name string, n int, f func(dst []uint16, at, end int), want func(i int) uint16) {
	t.Helper()
	infinity := map[dtype.DType]uint16{dtype.Float16: 0x7c00, dtype.BFloat16: 0x7f80}[d]
	isNaN := func(h uint16) bool { return h&0x7fff > infinity }
	const guard, most = 40, 70
	got := make([]uint16, guard+n+guard)
	for at := range got {
		got[at] = 12345
	}
	at := 0
	for size := 0; at < n; at, size = at+size, (size+1)%most {
		end := min(n, at+size)
		if at > n/2 {
			end = n
		}
		f(got[guard+at:guard+end], at, end)
		if got[guard+end] != 12345 {
			t.Fatalf("%v %s of %d elements wrote behind them", d, name, end-at)
		}
		if end == n {
			break
		}
	}
	for i := range guard {
		if got[i] != 12345 || got[guard+n+i] != 12345 {
			t.Fatalf("%v %s wrote outside", d, name)
		}
	}
	for i, g := range got[guard:][:n] {
		if w := want(i); g != w && !(isNaN(g) && isNaN(w)) {
			t.Fatalf("%v %s: element %d is %#04x, want %#04x", d, name, i, g, w)
		}
	}
}
