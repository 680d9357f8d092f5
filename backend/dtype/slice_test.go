package dtype

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

// samples are floats about the ends of every type's range, exact in float32.
var samples = []float32{0, 1, -1, 0.5, -0.5, 0.999, 1.5, -1.5, 2.75, -2.75, 127, 254.5, 255, 255.5, 256, 300, -3, 1000.7,
	65504, 65519, 65520, 1e5, -1e5, 0x1p-14, 0x1p-15, 0x1p-24, 0x1p-25, 3e-8, 1e-40, math.SmallestNonzeroFloat32,
	0x1.fffffep30, 0x1p31, -0x1p31, -0x1.000002p31, 0x1p40, 0x1.fffffep62, 0x1p63, -0x1p63, -0x1.000002p63, 1e30,
	math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), float32(math.Copysign(0, -1))}

// wantRound is Round by its documentation, in float64.
func wantRound(x float64, d DType) float64 {
	switch {
	case d == Bool && x != 0:
		return 1
	case d == Bool:
		return 0
	case d.IsInt() && math.IsNaN(x):
		return 0
	case d.IsInt():
		lo := map[DType]float64{Uint8: 0, Int8: math.MinInt8, Int32: math.MinInt32, Int64: math.MinInt64}[d]
		return min(max(math.Trunc(x), lo), d.Max())
	case d == Float64:
		return x
	case d == Float32:
		return float64(float32(x))
	}
	return reference(x, d)
}

func same(a, b float64) bool { return a == b || a != a && b != b }

func TestFloatSlices(t *testing.T) {
	n := len(samples)
	wide := make([]float64, n)
	for i, x := range samples {
		wide[i] = float64(x)
	}
	for _, d := range All() {
		b32, b64 := make([]byte, n*d.Size()), make([]byte, n*d.Size())
		FromF32(b32, samples, d)
		FromF64(b64, wide, d)
		if d.Size() == 1 || d.IsInt() || d == Bool {
			if string(b32) != string(b64) {
				t.Errorf("%v: float32 gives %v, float64 %v", d, b32, b64)
			}
		}
		f32, f64 := make([]float32, n), make([]float64, n)
		ToF32(f32, b32, d)
		ToF64(f64, b64, d)
		ints := make([]int64, n)
		ToI64(ints, b64, d)
		for i, x := range samples {
			want := wantRound(wide[i], d)
			if !same(f64[i], want) {
				t.Errorf("%v: %v becomes %v in float64, want %v", d, x, f64[i], want)
			}
			if !same(float64(f32[i]), float64(float32(want))) || !same(float64(d.Round(x)), float64(float32(want))) {
				t.Errorf("%v: %v becomes %v, Round %v, want %v", d, x, f32[i], d.Round(x), want)
			}
			wantInt := int64(math.MaxInt64)
			if v := wantRound(want, Int64); v < 1<<63 {
				wantInt = int64(v)
			}
			if ints[i] != wantInt {
				t.Errorf("%v: %v becomes integer %v, want %v", d, x, ints[i], wantInt)
			}
		}
	}
}

func TestFloat64BeyondFloat32(t *testing.T) {
	src := []float64{math.MaxInt32 + 0.5, math.MinInt32 - 0.5, -1 << 31, 0x1.fffffffffffffp62, 1 - 0x1p-53}
	b, got := make([]byte, 5*4), make([]int64, 5)
	FromF64(b, src, Int32)
	ToI64(got, b, Int32)
	if want := []int64{math.MaxInt32, math.MinInt32, math.MinInt32, math.MaxInt32, 0}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	b = make([]byte, 5*8)
	FromF64(b, src, Int64)
	if v := View[int64](b)[3]; v != 0x7ffffffffffffc00 {
		t.Errorf("got %x", v)
	}
}

// Integers against math/big, which rounds to any precision to nearest even.
func TestInt64Slices(t *testing.T) {
	src := []int64{0, 1, -1, 2, 255, 256, 257, -300, 65504, 65519, 65520, 1 << 31, 1<<31 - 1, -1 << 31, -1<<31 - 1, math.MaxInt64, math.MinInt64}
	for shift := 1; shift < 63; shift++ {
		for _, by := range []int64{-1, 0, 1} {
			// Ties, to even below and above, of the four floats, and their neighbours.
			for _, head := range []int64{257, 259, 2049, 2051, 1<<24 + 1, 1<<24 + 3, 1<<53 + 1, 1<<53 + 3} {
				if v := new(big.Int).Lsh(big.NewInt(head), uint(shift)); v.IsInt64() && v.Int64() < math.MaxInt64 {
					src = append(src, v.Int64()+by, -(v.Int64() + by))
				}
			}
		}
	}
	n := len(src)
	b, f32 := make([]byte, 8*n), make([]float32, n)
	copy(View[int64](b), src)
	ToF32(f32, b, Int64)
	for i, v := range src {
		if want, _ := new(big.Float).SetPrec(24).SetInt64(v).Float32(); f32[i] != want {
			t.Errorf("float32 of %d is %v, want %v", v, f32[i], want)
		}
	}
	for _, d := range All() {
		b := make([]byte, n*d.Size())
		FromI64(b, src, d)
		f64, ints := make([]float64, n), make([]int64, n)
		ToF64(f64, b, d)
		ToI64(ints, b, d)
		for i, v := range src {
			switch {
			case d == Bool:
				if want := v != 0; (ints[i] == 1) != want || ints[i]&^1 != 0 {
					t.Errorf("bool of %d is %d", v, ints[i])
				}
			case d.IsInt():
				lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
				if d == Uint8 {
					lo, hi = 0, 255
				} else if d == Int8 {
					lo, hi = math.MinInt8, math.MaxInt8
				} else if d == Int32 {
					lo, hi = math.MinInt32, math.MaxInt32
				}
				if want := min(max(v, lo), hi); ints[i] != want {
					t.Errorf("%v of %d is %d, want %d", d, v, ints[i], want)
				}
			default:
				prec := uint(1 - math.Log2(d.Epsilon()))
				want, _ := new(big.Float).SetPrec(prec).SetInt64(v).Float64()
				if math.Abs(want) > d.Max() {
					want = math.Copysign(math.Inf(1), want)
				}
				if f64[i] != want {
					t.Errorf("%v of %d is %v, want %v", d, v, f64[i], want)
				}
			}
		}
	}
}

// Slices convert as the scalar functions do, every 16-bit pattern.
func TestSlicesAgreeWithScalars(t *testing.T) {
	b := make([]byte, 2<<16)
	for i := range View[uint16](b) {
		View[uint16](b)[i] = uint16(i)
	}
	f32, f64, back := make([]float32, 1<<16), make([]float64, 1<<16), make([]byte, 2<<16)
	for _, d := range []DType{Float16, BFloat16} {
		ToF32(f32, b, d)
		ToF64(f64, b, d)
		for i := range f32 {
			if want := value16(uint16(i), d); !same(float64(f32[i]), want) || !same(f64[i], want) {
				t.Fatalf("%v %04x: %v, %v, want %v", d, i, f32[i], f64[i], want)
			}
		}
		for _, shift := range []int{0, 1, 0x7ff, 0x1000, 0x8000} {
			for i, x := range f32 {
				f32[i] = math.Float32frombits(math.Float32bits(x) ^ uint32(shift))
			}
			FromF32(back, f32, d)
			for i, x := range f32 {
				want := F16FromF32(x)
				if d == BFloat16 {
					want = BF16FromF32(x)
				}
				if got := View[uint16](back)[i]; got != want {
					t.Fatalf("%v of %x: %04x, want %04x", d, x, got, want)
				}
			}
		}
	}
}

func TestBoolBytes(t *testing.T) {
	src := []byte{0, 1, 2, 255}
	f, i := make([]float32, 4), make([]int64, 4)
	ToF32(f, src, Bool)
	ToI64(i, src, Bool)
	if fmt.Sprint(f, i) != "[0 1 1 1] [0 1 1 1]" {
		t.Errorf("got %v %v", f, i)
	}
}

func TestSlicePanics(t *testing.T) {
	for name, f := range map[string]func(){
		"view":          func() { View[float32](make([]byte, 6)) },
		"short bytes":   func() { ToF32(make([]float32, 2), make([]byte, 2), Float16) },
		"short values":  func() { FromF32(make([]byte, 8), make([]float32, 1), Float32) },
		"invalid":       func() { ToF64(nil, nil, Invalid) },
		"unknown":       func() { FromI64(nil, nil, DType(77)) },
		"round invalid": func() { Invalid.Round(1) },
	} {
		func() {
			defer func() {
				if _, ok := recover().(error); !ok {
					t.Errorf("%s: no panic with an error", name)
				}
			}()
			f()
		}()
	}
	if len(View[int64](nil)) != 0 {
		t.Error("a view of nothing has elements")
	}
	for _, d := range All() { // no elements, no panic
		ToF32(nil, nil, d)
		FromF32(nil, nil, d)
		ToI64(nil, nil, d)
		FromI64(nil, nil, d)
	}
}

// Benchmarks count the bytes read and written.
func benchmarkSlices(b *testing.B, width int, f func(elements []byte, d DType)) {
	const n = 1 << 14
	for _, d := range All() {
		b.Run(d.String(), func(b *testing.B) {
			elements, values := make([]byte, n*d.Size()), make([]float32, n)
			for i := range values {
				values[i] = float32(math.Sin(float64(i)))
			}
			FromF32(elements, values, d)
			b.SetBytes(int64(n * (width + d.Size())))
			for b.Loop() {
				f(elements, d)
			}
		})
	}
}

func BenchmarkToF32(b *testing.B) {
	dst := make([]float32, 1<<14)
	benchmarkSlices(b, 4, func(e []byte, d DType) { ToF32(dst, e, d) })
}

func BenchmarkFromF32(b *testing.B) {
	src := make([]float32, 1<<14)
	for i := range src {
		src[i] = float32(math.Sin(float64(i)))
	}
	benchmarkSlices(b, 4, func(e []byte, d DType) { FromF32(e, src, d) })
}

func BenchmarkToF64(b *testing.B) {
	dst := make([]float64, 1<<14)
	benchmarkSlices(b, 8, func(e []byte, d DType) { ToF64(dst, e, d) })
}

func BenchmarkFromF64(b *testing.B) {
	src := make([]float64, 1<<14)
	for i := range src {
		src[i] = math.Sin(float64(i))
	}
	benchmarkSlices(b, 8, func(e []byte, d DType) { FromF64(e, src, d) })
}
