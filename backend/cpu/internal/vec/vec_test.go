package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// sets are the instruction sets that the machine has.
func sets() map[string]*Set {
	x, m := &cpu.X86, map[string]*Set{}
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		m["AVX2"] = AVX2()
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		m["AVX512"] = AVX512()
	}
	if s := NEON(); s != nil {
		m["NEON"] = s
	}
	return m
}

func forEachSet(t *testing.T, f func(t *testing.T, s *Set)) {
	for name, s := range sets() {
		t.Run(name, func(t *testing.T) { f(t, s) })
	}
}

// inputs returns all values of float16 and bfloat16, and numbers of every exponent and
// in every step of the exponential's range.
func inputs() []float32 {
	var x []float32
	for h := range 1 << 16 {
		x = append(x, dtype.F16ToF32(uint16(h)), dtype.BF16ToF32(uint16(h)))
	}
	rng, n := rand.New(rand.NewPCG(1, 2)), 1<<18
	if testing.Short() { // as under emulation
		n = 1 << 14
	}
	for range n {
		x = append(x, math.Float32frombits(rng.Uint32()))
	}
	for i := range n {
		at := 2*float32(i)/float32(n) - 1
		x = append(x, 110*at, 2*at)
	}
	return x
}

// distance returns how many float32 lie between x and y; it is 0 for two NaNs and for
// zeros of the same sign.
func distance(x, y float32) int64 {
	if x != x || y != y {
		if x != x && y != y {
			return 0
		}
		return math.MaxInt64
	}
	order := func(v float32) int64 {
		b := int64(math.Float32bits(v))
		if b >= 1<<31 {
			return 1<<31 - 1 - b // so that -0 and +0 differ
		}
		return b
	}
	d := order(x) - order(y)
	return max(d, -d)
}

func larger(a, b float64) float64 {
	if a > b || a != a {
		return a
	}
	return b
}

// checkLoop compares a loop with its definition, for all inputs and for all short
// lengths between guards.
func checkLoop(t *testing.T, name string, ulps int64, x []float32, f func(dst []float32, at int), want func(i int) float64) {
	t.Helper()
	got := make([]float32, len(x))
	f(got, 0)
	worst, at := int64(-1), 0
	for i, g := range got {
		w := float32(want(i))
		d := distance(g, w)
		if ulps > 0 && math.Abs(float64(w)) < 0x1p-126 && g == g {
			d /= 2 // rounded twice
		}
		if d > worst {
			worst, at = d, i
		}
	}
	if worst > ulps {
		t.Errorf("%s(%v) = %v, want %v: %d units off", name, x[at], got[at], float32(want(at)), worst)
	}
	for n := range 131 {
		const guard = 40
		buf := make([]float32, n+2*guard)
		for i := range buf {
			buf[i] = 12345
		}
		start := 1000 + n*7
		f(buf[guard:guard+n], start)
		for i, v := range buf {
			inside := i >= guard && i < guard+n
			if !inside && v != 12345 {
				t.Fatalf("%s of %d elements wrote element %d", name, n, i-guard)
			}
			if inside && math.Float32bits(v) != math.Float32bits(got[start+i-guard]) {
				t.Fatalf("%s of %d elements: element %d is %v, in a longer slice %v", name, n, i-guard, v, got[start+i-guard])
			}
		}
	}
}

func TestUnary(t *testing.T) {
	x := inputs()
	forEachSet(t, func(t *testing.T, s *Set) {
		for _, c := range []struct {
			name string
			f    Unary
			ulps int64
			want func(x float64) float64
		}{
			{"Neg", s.Neg, 0, func(x float64) float64 { return -x }},
			{"Abs", s.Abs, 0, math.Abs},
			{"Square", s.Square, 0, func(x float64) float64 { return x * x }},
			{"Relu", s.Relu, 0, func(x float64) float64 { return larger(0, x) }},
			{"Sign", s.Sign, 0, func(x float64) float64 {
				switch {
				case x > 0:
					return 1
				case x < 0:
					return -1
				}
				return x
			}},
			{"Sqrt", s.Sqrt, 0, math.Sqrt},
			{"Reciprocal", s.Reciprocal, 0, func(x float64) float64 { return 1 / x }},
			{"Floor", s.Floor, 0, math.Floor},
			{"Ceil", s.Ceil, 0, math.Ceil},
			{"Round", s.Round, 0, math.RoundToEven},
			{"RoundF16", s.RoundF16, 0, func(x float64) float64 { return float64(dtype.Float16.Round(float32(x))) }},
			{"RoundBF16", s.RoundBF16, 0, func(x float64) float64 { return float64(dtype.BFloat16.Round(float32(x))) }},
			{"Rsqrt", s.Rsqrt, 1, func(x float64) float64 { return 1 / math.Sqrt(x) }},
			{"Exp", s.Exp, 2, math.Exp},
			{"Expm1", s.Expm1, 2, math.Expm1},
			{"Log", s.Log, 2, math.Log},
			{"Log1p", s.Log1p, 2, math.Log1p},
			{"Tanh", s.Tanh, 2, math.Tanh},
			{"Sigmoid", s.Sigmoid, 2, func(x float64) float64 {
				if x < 0 {
					e := math.Exp(x)
					return e / (1 + e)
				}
				return 1 / (1 + math.Exp(-x))
			}},
			{"Erf", s.Erf, 2, math.Erf},
			{"NormalCDF", s.NormalCDF, 6, func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }},
			{"Common.NormalCDF", s.Common.NormalCDF, 6, func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }},
			{"NormalPDF", s.NormalPDF, 4, func(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }},
			{"Sin", within(s.Sin), 2, bounded(math.Sin)},
			{"Cos", within(s.Cos), 2, bounded(math.Cos)},
		} {
			checkLoop(t, c.name, c.ulps, x,
				func(dst []float32, at int) { c.f(dst, x[at:at+len(dst)]) },
				func(i int) float64 { return c.want(float64(x[i])) })
		}
	})
}

// within is a loop that takes arguments beyond TrigLimit as NaNs, and bounded is its
// definition.
func within(f Unary) Unary {
	return func(dst, a []float32) {
		x := slices.Clone(a)
		for i, v := range x {
			if !(v >= -TrigLimit && v <= TrigLimit) {
				x[i] = float32(math.NaN())
			}
		}
		f(dst, x)
	}
}

func bounded(f func(float64) float64) func(float64) float64 {
	return func(x float64) float64 {
		if !(x >= -TrigLimit && x <= TrigLimit) {
			return math.NaN()
		}
		return f(x)
	}
}

// pairs returns two lists in which every special value meets every other.
func pairs() (a, b []float32) {
	inf := float32(math.Inf(1))
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 2.5, -3, inf, -inf, float32(math.NaN()), 1e-45, -1e-45, 0x1p-126, math.MaxFloat32}
	for _, x := range special {
		for _, y := range special {
			a, b = append(a, x), append(b, y)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1 << 14 {
		a = append(a, math.Float32frombits(rng.Uint32()), rng.Float32())
		b = append(b, math.Float32frombits(rng.Uint32()), rng.Float32())
	}
	return a, b
}

func TestBinary(t *testing.T) {
	a, b := pairs()
	forEachSet(t, func(t *testing.T, s *Set) {
		for _, c := range []struct {
			name string
			f    Binary
			want func(x, y float64) float64
		}{
			{"Add", s.Add, func(x, y float64) float64 { return x + y }},
			{"Sub", s.Sub, func(x, y float64) float64 { return x - y }},
			{"Mul", s.Mul, func(x, y float64) float64 { return x * y }},
			{"Div", s.Div, func(x, y float64) float64 { return x / y }},
			{"AddF16", s.AddF16, func(x, y float64) float64 { return float64(dtype.Float16.Round(float32(x) + float32(y))) }},
			{"SubF16", s.SubF16, func(x, y float64) float64 { return float64(dtype.Float16.Round(float32(x) - float32(y))) }},
			{"MulF16", s.MulF16, func(x, y float64) float64 { return float64(dtype.Float16.Round(float32(x) * float32(y))) }},
			{"AddBF16", s.AddBF16, func(x, y float64) float64 { return float64(dtype.BFloat16.Round(float32(x) + float32(y))) }},
			{"SubBF16", s.SubBF16, func(x, y float64) float64 { return float64(dtype.BFloat16.Round(float32(x) - float32(y))) }},
			{"MulBF16", s.MulBF16, func(x, y float64) float64 { return float64(dtype.BFloat16.Round(float32(x) * float32(y))) }},
			{"Maximum", s.Maximum, larger},
			{"Minimum", s.Minimum, func(x, y float64) float64 { return -larger(-x, -y) }},
		} {
			checkLoop(t, c.name, 0, a,
				func(dst []float32, at int) { c.f(dst, a[at:at+len(dst)], b[at:at+len(dst)]) },
				func(i int) float64 { return c.want(float64(a[i]), float64(b[i])) })
		}
		for _, v := range []float32{0.1, -3, float32(math.NaN())} {
			for _, c := range []struct {
				name string
				f    Scalar
				ulps int64
				want func(x float32) float64
			}{
				{"AddScalar", s.AddScalar, 0, func(x float32) float64 { return float64(x + v) }},
				{"MulScalar", s.MulScalar, 0, func(x float32) float64 { return float64(x * v) }},
				{"SubScalar", s.SubScalar, 0, func(x float32) float64 { return float64(x - v) }},
				{"DivScalar", s.DivScalar, 0, func(x float32) float64 { return float64(x / v) }},
				{"ScalarSub", s.ScalarSub, 0, func(x float32) float64 { return float64(v - x) }},
				{"ScalarDiv", s.ScalarDiv, 0, func(x float32) float64 { return float64(v / x) }},
			} {
				checkLoop(t, c.name, c.ulps, a,
					func(dst []float32, at int) { c.f(dst, a[at:at+len(dst)], v) },
					func(i int) float64 { return c.want(a[i]) })
			}
		}
	})
}

// checkBytes is checkLoop for results that are bytes.
func checkBytes[T dtype.Element](t *testing.T, name string, total int, f func(dst []T, at int), want func(i int) T) {
	t.Helper()
	for n := range 131 {
		const guard = 70
		mark := T(0xa5 & 0x7f)
		buf := make([]T, n+2*guard)
		for i := range buf {
			buf[i] = mark
		}
		f(buf[guard:guard+n], n)
		for i, v := range buf {
			if inside := i >= guard && i < guard+n; !inside && v != mark || inside && v != want(n+i-guard) {
				t.Fatalf("%s of %d elements: element %d is %v, want %v", name, n, i-guard, v, want(max(0, n+i-guard)))
			}
		}
	}
	got := make([]T, total)
	f(got, 0)
	for i, v := range got {
		if v != want(i) {
			t.Fatalf("%s: element %d is %#x, want %#x", name, i, v, want(i))
		}
	}
}

func truthOf(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func TestCompare(t *testing.T) {
	a, b := pairs()
	copy(b[len(b)/2:], a[len(a)/2:len(a)*3/4]) // equal ones
	forEachSet(t, func(t *testing.T, s *Set) {
		for name, c := range map[string]struct {
			f    Compare
			want func(x, y float32) bool
		}{
			"Equal":     {s.Equal, func(x, y float32) bool { return x == y }},
			"NotEqual":  {s.NotEqual, func(x, y float32) bool { return x != y }},
			"Less":      {s.Less, func(x, y float32) bool { return x < y }},
			"LessEqual": {s.LessEqual, func(x, y float32) bool { return x <= y }},
		} {
			checkBytes(t, name, len(a),
				func(dst []byte, at int) { c.f(dst, a[at:at+len(dst)], b[at:at+len(dst)]) },
				func(i int) byte { return truthOf(c.want(a[i], b[i])) })
		}
		checkBytes(t, "IsFinite", len(a),
			func(dst []byte, at int) { s.IsFinite(dst, a[at:at+len(dst)]) },
			func(i int) byte { return truthOf(a[i]-a[i] == 0) })
		cond := make([]byte, len(a))
		for i := range cond {
			cond[i] = byte(i % 3 * 101)
		}
		checkLoop(t, "Where", 0, a,
			func(dst []float32, at int) {
				n := len(dst)
				s.Where(dst, cond[at:at+n], a[at:at+n], b[at:at+n])
			},
			func(i int) float64 {
				if cond[i] != 0 {
					return float64(a[i])
				}
				return float64(b[i])
			})
		checkLoop(t, "WhereScaled", 0, a,
			func(dst []float32, at int) {
				n := len(dst)
				s.WhereScaled(dst, cond[at:at+n], a[at:at+n], 1.25, -3)
			},
			func(i int) float64 {
				if cond[i] != 0 {
					return float64(a[i] * 1.25)
				}
				return -3
			})
	})
}

func TestConvert(t *testing.T) {
	x := inputs()
	all16 := make([]uint16, 1<<16)
	for i := range all16 {
		all16[i] = uint16(i)
	}
	forEachSet(t, func(t *testing.T, s *Set) {
		checkBytes(t, "ToF16", len(x), func(dst []uint16, at int) { s.ToF16(dst, x[at:at+len(dst)]) },
			func(i int) uint16 { return dtype.F16FromF32(x[i]) })
		checkBytes(t, "ToBF16", len(x), func(dst []uint16, at int) { s.ToBF16(dst, x[at:at+len(dst)]) },
			func(i int) uint16 { return dtype.BF16FromF32(x[i]) })
		wide := make([]float32, 1<<16)
		for i := range wide {
			wide[i] = dtype.BF16ToF32(uint16(i))
		}
		checkBytes(t, "CutBF16", len(wide), func(dst []uint16, at int) { s.CutBF16(dst, wide[at:at+len(dst)]) }, func(i int) uint16 { return uint16(i) })
		if s.ToF16NT != nil {
			checkBytes(t, "ToF16NT", len(x), func(dst []uint16, at int) { s.ToF16NT(dst, x[at:at+len(dst)]) },
				func(i int) uint16 { return dtype.F16FromF32(x[i]) })
			checkBytes(t, "ToBF16NT", len(x), func(dst []uint16, at int) { s.ToBF16NT(dst, x[at:at+len(dst)]) },
				func(i int) uint16 { return dtype.BF16FromF32(x[i]) })
			checkBytes(t, "CutBF16NT", len(wide), func(dst []uint16, at int) { s.CutBF16NT(dst, wide[at:at+len(dst)]) }, func(i int) uint16 { return uint16(i) })
		}
		for name, c := range map[string]struct {
			f    Load
			want func(uint16) float32
		}{"FromF16": {s.FromF16, dtype.F16ToF32}, "FromBF16": {s.FromBF16, dtype.BF16ToF32}} {
			got := make([]float32, 1<<16)
			c.f(got, all16)
			for h, v := range got {
				if math.Float32bits(v) != math.Float32bits(c.want(uint16(h))) {
					t.Fatalf("%s(%#x) = %#x, want %#x", name, h, math.Float32bits(v), math.Float32bits(c.want(uint16(h))))
				}
			}
			checkBytes(t, name, 1<<10, func(dst []float32, at int) { c.f(dst, all16[at:at+len(dst)]) },
				func(i int) float32 { return c.want(all16[i]) })
		}
		for name, c := range map[string]struct {
			f     Load
			value func(uint16) float32
		}{"PlusF16": {s.PlusF16, dtype.F16ToF32}, "PlusBF16": {s.PlusBF16, dtype.BF16ToF32}} {
			checkLoop(t, name, 0, x[:1<<16], func(dst []float32, at int) {
				sum := slices.Clone(x[at : at+len(dst)])
				c.f(sum, all16[at:at+len(dst)])
				copy(dst, sum)
			}, func(i int) float64 { return float64(x[i]) + float64(c.value(all16[i])) })
		}
		u, n := make([]uint8, 300), make([]int32, 300)
		for i := range u {
			u[i], n[i] = uint8(i), int32(i*0x1234567)
		}
		checkBytes(t, "FromU8", 300, func(dst []float32, at int) { s.FromU8(dst, u[at:at+len(dst)]) },
			func(i int) float32 { return float32(u[i]) })
		checkBytes(t, "FromI8", 300, func(dst []float32, at int) { s.FromI8(dst, u[at:at+len(dst)]) },
			func(i int) float32 { return float32(int8(u[i])) })
		checkBytes(t, "FromI32", 300, func(dst []float32, at int) { s.FromI32(dst, n[at:at+len(dst)]) },
			func(i int) float32 { return float32(n[i]) })
	})
}

// TestTile moves squares with all tiles between guards.
func TestTile(t *testing.T) {
	forEachSet(t, func(t *testing.T, s *Set) {
		checkTile(t, "Tile", s.Tile, 16, 16)
		checkTile(t, "TileNT", s.TileNT, 16, 16)
		checkTile(t, "TileU16", s.TileU16, 16, 32)
		checkTile(t, "TileU16NT", s.TileU16NT, 16, 32)
	})
}

func checkTile[T uint16 | uint32](t *testing.T, name string, f func(dst, src []T, to, from int), rows, cols int) {
	t.Helper()
	if f == nil {
		return
	}
	const to, from = 64, 37 // whole lines of either type
	src, room := make([]T, cols*from), make([]T, rows*to+Line)
	for i := range src {
		src[i] = T(i + 1)
	}
	dst := room[int(-uintptr(data(room))&(Line-1))/int(unsafe.Sizeof(T(0))):][:rows*to]
	f(dst, src, to, from)
	for i := range rows {
		for j := range to {
			want := T(0)
			if j < cols {
				want = src[j*from+i]
			}
			if got := dst[i*to+j]; got != want {
				t.Fatalf("%s: element %d, %d is %d, want %d", name, i, j, got, want)
			}
		}
	}
}

// TestNonTemporal: non-temporal stores write their elements and nothing else.
func TestNonTemporal(t *testing.T) {
	src := make([]byte, 5000)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	check := func(what string, dst []byte, want func(i int) byte) {
		t.Helper()
		for i, b := range dst {
			if b != want(i) {
				t.Fatalf("%s: byte %d is %#x, want %#x", what, i, b, want(i))
			}
		}
	}
	forEachSet(t, func(t *testing.T, s *Set) {
		for _, n := range []int{0, 1, 63, 64, 511, 512, 700, 1024, 4000} {
			for _, at := range []int{0, 1, 2, 3, 64, 77} {
				inside := func(i int) bool { return i >= at && i < at+n }
				dst := make([]byte, 5000)
				s.CopyNT(dst[at:at+n], src[5:5+n])
				s.Fence()
				check("CopyNT", dst, func(i int) byte {
					if inside(i) {
						return src[5+i-at]
					}
					return 0
				})
				dst = make([]byte, 5000)
				s.FillNT(dst[at:at+n], 0x04030201)
				s.Fence()
				check("FillNT", dst, func(i int) byte {
					if inside(i) {
						return byte(1 + (i-at)%4)
					}
					return 0
				})
			}
		}
		room := make([]byte, 5*192+Line)
		dst := room[int(-uintptr(data(room))&(Line-1)):][:5*192]
		s.CopyRowsNT(dst, src, 128, 5, 192, 131)
		s.Fence()
		check("CopyRowsNT", dst, func(i int) byte {
			if i%192 < 128 {
				return src[i/192*131+i%192]
			}
			return 0
		})
		s.PrefetchLoad(src)
	})
}

func TestTranspose8(t *testing.T) {
	forEachSet(t, func(t *testing.T, s *Set) {
		const to, from = 11, 13
		src, dst := make([]uint32, 8*from), make([]uint32, 8*to)
		for i := range src {
			src[i] = uint32(i)
		}
		s.Transpose8(dst, src, to, from)
		words, transposed := make([]uint16, 8*from), make([]uint16, 8*to)
		for i := range words {
			words[i] = uint16(i)
		}
		s.Transpose8U16(transposed, words, to, from)
		for i := range 8 {
			for j := range to {
				want := uint32(j*from + i)
				if j >= 8 {
					want = 0
				}
				if got := dst[i*to+j]; got != want {
					t.Fatalf("element %d, %d is %d, want %d", i, j, got, want)
				}
				if got := transposed[i*to+j]; uint32(got) != want {
					t.Fatalf("16 bits: element %d, %d is %d, want %d", i, j, got, want)
				}
			}
		}
	})
}

func BenchmarkLoops(b *testing.B) {
	x, y := make([]float32, 1024), make([]float32, 1024)
	h := make([]uint16, 1024)
	for i := range x {
		x[i] = float32(i)/100 + 0.01
	}
	for name, s := range sets() {
		one := func(what string, f func()) {
			b.Run(fmt.Sprint(name, "/", what), func(b *testing.B) {
				for b.Loop() {
					f()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/element")
			})
		}
		one("Add", func() { s.Add(y, x, x) })
		for what, f := range map[string]Unary{"Relu": s.Relu, "Exp": s.Exp, "Tanh": s.Tanh, "Sigmoid": s.Sigmoid, "Log": s.Log, "Erf": s.Erf, "RoundBF16": s.RoundBF16, "RoundF16": s.RoundF16} {
			one(what, func() { f(y, x) })
		}
		one("ToBF16", func() { s.ToBF16(h, x) })
		one("ToF16", func() { s.ToF16(h, x) })
		one("FromF16", func() { s.FromF16(y, h) })
		one("Sum", func() { s.Sum(x) })
		one("Max", func() { s.Max(x) })
	}
}
