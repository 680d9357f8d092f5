package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

func TestRows(t *testing.T) {
	forEachSet(t, func(t *testing.T, s *Set) {
		for name, c := range map[string]struct {
			rows  *Rows
			dtype dtype.DType
		}{
			"float32": {&s.RowsF32, dtype.Float32}, "float16": {&s.RowsF16, dtype.Float16},
			"bfloat16": {&s.RowsBF16, dtype.BFloat16}, "bfloat16 converted": {&s.RowsConvertBF16, dtype.BFloat16},
		} {
			if c.rows == &s.RowsConvertBF16 && (s.Lanes != 16 || !cpu.X86.HasAVX512BF16) {
				continue
			}
			t.Run(name, func(t *testing.T) { testRows(t, s.Lanes, c.rows, c.dtype) })
		}
	})
}

// sumInLanes is the sum of n elements that add adds to a sum, in the order of all loops over rows:
// lanes are sums of each 64th element, or of each 16th of the last ones that do not fill up 64.
func sumInLanes(n int, add func(sum float32, i int) float32) float32 {
	var lanes [64]float32
	for i := range n {
		at := i % 64
		if i >= n/64*64 {
			at %= 16
		}
		lanes[at] = add(lanes[at], i)
	}
	for i := range 16 {
		lanes[i] += lanes[16+i]
		lanes[i] += lanes[32+i]
		lanes[i] += lanes[48+i]
	}
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[half+i]
		}
	}
	return lanes[0]
}

// testRows compares the loops over rows of up to nine vectors, and of about the elements that
// lanes of sums take, with their definitions in loops.go, in float64, between guards. Sums must
// have the bits of sumInLanes, on AVX-512 those for gradients, too.
func testRows(t *testing.T, lanes int, r *Rows, d dtype.DType) {
	rng := rand.New(rand.NewPCG(21, 22))
	// row returns elements of the type, and their values.
	row := func(n int, from, to float64) ([]byte, []float64) {
		data, x := make([]byte, n*d.Size()), make([]float64, n)
		for i := range x {
			x[i] = from + (to-from)*rng.Float64()
		}
		dtype.FromF64(data, x, d)
		dtype.ToF64(x, data, d)
		return data, x
	}
	floats := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = 2*rng.Float32() - 1
		}
		return x
	}
	for n := lanes; n <= max(9*lanes, 224); n += lanes {
		x, vx := row(n, -3, 3)
		g, vg := row(n, -1, 1)
		gain, shift := floats(n), floats(n)
		s := make([]float32, 4)
		// bits compares a sum of a multiple of 16 elements with that in lanes.
		bits := func(what string, got float32, add func(sum float32, i int) float32) {
			t.Helper()
			if want := sumInLanes(n, add); n%16 == 0 && math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("%s of %d is %v, in lanes %v", what, n, got, want)
			}
		}
		// number compares a sum of n terms of at most 16.
		number := func(what string, got float32, want float64) {
			t.Helper()
			if math.Abs(float64(got)-want) > float64(n)*16*0x1p-22 {
				t.Fatalf("%s of %d is %v, want %v", what, n, got, want)
			}
		}
		// result compares written elements with a function of each element that is a
		// few float32 operations on numbers below 16.
		result := func(what string, of dtype.DType, write func(s *RowStores, dst []byte), want func(i int) float64) {
			t.Helper()
			for _, s := range []*RowStores{&r.RowStores, r.NT} {
				if s == nil {
					continue
				}
				const guard = Line
				all := alignedTo(n*of.Size() + 2*guard)
				for i := range all {
					all[i] = 77
				}
				write(s, all[guard:len(all)-guard])
				got := make([]float64, n)
				dtype.ToF64(got, all[guard:len(all)-guard], of)
				rel, _ := of.Tolerance()
				for i, v := range got {
					if w := want(i); !(math.Abs(v-w) <= 16*0x1p-22+rel*math.Abs(w)) {
						t.Fatalf("%s of %d: element %d is %v, want %v", what, n, i, v, w)
					}
				}
				for i := range guard {
					if all[i] != 77 || all[len(all)-1-i] != 77 {
						t.Fatalf("%s of %d wrote beside the result", what, n)
					}
				}
			}
		}
		e := make([]float32, n)
		s[0], s[1] = 1.5, -2.25
		r.Exp2Sum(e, x, s, x)
		var sum, squares, gained float64
		for i, v := range vx {
			w := math.Exp2(v*1.5 - 2.25)
			sum += w
			if math.Abs(float64(e[i])-w) > 16*0x1p-23*w { // the exponent is up to 8, rounded
				t.Fatalf("2 to the power of %v is %v, want %v", v, e[i], w)
			}
		}
		number("sum of powers", s[2], sum)
		bits("sum of powers", s[2], func(sum float32, i int) float32 { return sum + e[i] })
		total := s[2]

		sum = 0
		for i, v := range vx {
			sum += v * vg[i]
		}
		r.Products(x, g, s, nil)
		number("sum of products", s[0], sum)
		bits("sum of products", s[0], func(sum float32, i int) float32 { return portablemath.FMA32(float32(vx[i]), float32(vg[i]), sum) })

		tiny, vt := row(n, 0x1p-120, 0x1p-118)
		less, vl := row(n, -0x1p-118, -0x1p-120)
		r.Products(tiny, less, s, nil)
		bits("sum of products that are -0", s[0], func(sum float32, i int) float32 { return portablemath.FMA32(float32(vt[i]), float32(vl[i]), sum) })

		deviations := func() {
			t.Helper()
			bits("sum of deviations", s[1], func(sum float32, i int) float32 { return sum + (float32(vx[i]) - 0.5) })
			bits("sum of their squares", s[2], func(sum float32, i int) float32 {
				d := float32(vx[i]) - 0.5
				return portablemath.FMA32(d, d, sum)
			})
		}
		sum = 0
		for _, v := range vx {
			sum += v - 0.5
			squares += (v - 0.5) * (v - 0.5)
		}
		s[0] = 0.5
		kept, times := make([]float32, n), make([]float32, n)
		for i, v := range vx {
			kept[i] = float32(v)
		}
		if r.KeepDeviations != nil {
			clear(kept)
			r.KeepDeviations(kept, x, s)
			number("sum of deviations", s[1], sum)
			number("sum of their squares", s[2], squares)
			deviations()
			for i, v := range vx {
				if float64(kept[i]) != v {
					t.Fatalf("element %d of %d is kept as %v, want %v", i, n, kept[i], v)
				}
			}
		}
		s[1], s[2] = 0, 0
		r.Deviations(kept, s)
		number("sum of deviations", s[1], sum)
		number("sum of their squares", s[2], squares)
		deviations()

		dgain, dshift := floats(n), floats(n)
		beforeGain, beforeShift := append([]float32(nil), dgain...), append([]float32(nil), dshift...)
		s[0], s[1] = 0.5, 0.75
		r.GradRowSums(dgain, dshift, times, kept, g, gain, s, nil)
		sum, gained = 0, 0
		for i := range vx {
			h := (vx[i] - 0.5) * 0.75
			sum += vg[i] * float64(gain[i])
			gained += vg[i] * float64(gain[i]) * h
			number("gradient of a gain", dgain[i], float64(beforeGain[i])+vg[i]*h)
			number("gradient of a shift", dshift[i], float64(beforeShift[i])+vg[i])
			number("gradient by a gain", times[i], vg[i]*float64(gain[i]))
		}
		number("sum of gradients", s[2], sum)
		number("sum of gradients' products", s[3], gained)
		if lanes == 16 { // the others have fewer lanes
			bits("sum of gradients", s[2], func(sum float32, i int) float32 { return sum + times[i] })
			bits("sum of gradients' products", s[3], func(sum float32, i int) float32 {
				return portablemath.FMA32(times[i], (kept[i]-0.5)*0.75, sum)
			})
		}

		result("ScaleRow", d, func(to *RowStores, dst []byte) { to.ScaleRow(dst, gain, []float32{0.75}) },
			func(i int) float64 { return float64(gain[i]) * 0.75 })
		result("Exp2SumScale", d, func(to *RowStores, dst []byte) {
			if to.Exp2SumScale == nil { // of float32
				to.ScaleRow(dst, gain, []float32{0.75})
				return
			}
			powers, s := make([]float32, n), []float32{1.5, -2.25, 0.75, 0, 0, 0}
			if top := to.Exp2SumScale(dst, gain, powers, x, s, g, x); top != slices.Max(vg) {
				t.Fatalf("the largest of %d is %v, want %v", n, top, slices.Max(vg))
			}
			below, vb := row(n, -3, -1)
			s = []float32{1.5, -2.25, 0.75, 0, 0, 0}
			if top := to.Exp2SumScale(dst, gain, powers, x, s, below, x); top != slices.Max(vb) {
				t.Fatalf("the largest of %d below zero is %v, want %v", n, top, slices.Max(vb))
			}
			for i, w := range append(e, total) {
				off, got := 16*0x1p-23, s[3] // as above
				if i < n {
					got = powers[i]
				}
				if math.Abs(float64(got-w)) > off*float64(w) {
					t.Fatalf("power %d of %d is %v, want %v", i, n, got, w)
				}
			}
		}, func(i int) float64 { return float64(gain[i]) * 0.75 })
		if r.NormalizeKeep != nil {
			next := make([]float32, n)
			result("NormalizeKeep", d, func(to *RowStores, dst []byte) {
				s := []float32{0.5, 0.75, 0.25, 0, 0}
				to.NormalizeKeep(dst, kept, gain, shift, next, g, s, x)
				var sum, squares float64
				for i, v := range vg {
					if float64(next[i]) != v {
						t.Fatalf("element %d of %d is kept as %v, want %v", i, n, next[i], v)
					}
					sum += v - 0.25
					squares += (v - 0.25) * (v - 0.25)
				}
				number("sum of deviations of the next row", s[3], sum)
				number("sum of their squares", s[4], squares)
			}, func(i int) float64 { return (vx[i]-0.5)*0.75*float64(gain[i]) + float64(shift[i]) })
		}
		result("LessRow", d, func(to *RowStores, dst []byte) { to.LessRow(dst, x, []float32{0.5, 0.25}) },
			func(i int) float64 { return vx[i] - 0.75 })
		result("NormalizeRow", d, func(to *RowStores, dst []byte) { to.NormalizeRow(dst, kept, gain, shift, []float32{0.5, 0.75}, x) },
			func(i int) float64 { return (vx[i]-0.5)*0.75*float64(gain[i]) + float64(shift[i]) })
		result("SoftmaxGradRow", d, func(to *RowStores, dst []byte) { to.SoftmaxGradRow(dst, x, g, []float32{0.5}, g) },
			func(i int) float64 { return vx[i] * (vg[i] - 0.5) })
		result("GradRow", d, func(to *RowStores, dst []byte) {
			to.GradRow(dst, kept, times, []float32{0.5, 0.75, -1.5, 0.25}, x)
		}, func(i int) float64 { return vg[i]*float64(gain[i])*0.75 + (vx[i]-0.5)*-1.5 + 0.25 })
	}
}

// alignedTo returns n bytes aligned to a cache line.
func alignedTo(n int) []byte {
	b := make([]byte, n+Line)
	return b[-int(uintptr(unsafe.Pointer(&b[0])))&(Line-1):][:n]
}
