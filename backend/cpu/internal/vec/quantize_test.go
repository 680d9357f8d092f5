package vec

import (
	"bytes"
	"fmt"
	"math"
	"testing"
)

// TestQuantize: ties go to the even integer, numbers are clipped, and NaN is the lower
// bound, at every place of a vector and behind the last whole one.
func TestQuantize(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	special := []float32{0, 0.25, 0.75, -0.25, -0.75, 1.25, 63.75, -64.25, 64, 1e9, -1e9, 1e30, -1e30, nan, inf, -inf, 1e-40}
	for name, v := range sets() {
		for n := range 70 {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				a, got := make([]float32, n), make([]byte, n+1)
				for i := range a {
					a[i] = special[(i*5+n)%len(special)]
				}
				got[n] = 77
				v.Quantize(got[:n], a, 2, -130, 125, 130)
				for i, x := range a {
					f := math.RoundToEven(min(max(float64(x)*2, -130), 125))
					if x != x {
						f = -130
					}
					if want := byte(int(f) + 130); got[i] != want {
						t.Errorf("element %d, %g: got %d, want %d", i, x, got[i], want)
					}
				}
				if got[n] != 77 {
					t.Error("writes behind the end")
				}
			})
		}
	}
}

// TestScaleI32 rounds the integer and the product.
func TestScaleI32(t *testing.T) {
	special := []int32{0, 1, -1, math.MaxInt32, math.MinInt32, 1<<24 + 1, -1<<24 - 1, 12345}
	for name, v := range sets() {
		for n := range 70 {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				a, b, got := make([]int32, n), make([]float32, n), make([]float32, n+1)
				for i := range a {
					a[i], b[i] = special[(i*5+n)%len(special)], float32(i-9)*0.37
				}
				got[n] = 77
				v.ScaleI32(got[:n], a, b)
				for i, x := range a {
					if want := float32(x) * b[i]; got[i] != want {
						t.Errorf("element %d: got %v, want %v", i, got[i], want)
					}
				}
				if got[n] != 77 {
					t.Error("writes behind the end")
				}
			})
		}
	}
}

// TestRequantize: the bits are those of ScaleI32, a sum and Quantize.
func TestRequantize(t *testing.T) {
	inf := float32(math.Inf(1))
	special := []int32{0, 1, -1, math.MaxInt32, math.MinInt32, 1<<24 + 1, -1<<24 - 1, 12345, 70, -33, 250, -600}
	biases := []float32{0, 0.25, -3.5, 1e9, inf, -inf, float32(math.NaN()), 17.125, -1e-3}
	for name, v := range sets() {
		for n := range 70 {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				a, b, c := make([]int32, n), make([]float32, n), make([]float32, n)
				got, want, x := make([]byte, n+1), make([]byte, n), make([]float32, n)
				for i := range a {
					a[i], b[i], c[i] = special[(i*5+n)%len(special)], float32(i-9)*0.37, biases[(i*2+n)%len(biases)]
				}
				got[n] = 77
				v.RequantizeI32(got[:n], a, b, c, 0.7, -130, 125, 130)
				v.ScaleI32(x, a, b)
				v.Add(x, x, c)
				v.Quantize(want, x, 0.7, -130, 125, 130)
				for i := range want {
					if got[i] != want[i] {
						t.Errorf("element %d, %d·%g+%g: got %d, want %d", i, a[i], b[i], c[i], got[i], want[i])
					}
				}
				// Of integers that float32 holds RequantizeF32 makes the same.
				for i := range x {
					x[i] = float32(a[i])
				}
				floats := make([]byte, n+1)
				floats[n] = 77
				v.RequantizeF32(floats[:n], x, b, c, 0.7, -130, 125, 130)
				if !bytes.Equal(floats, got) {
					t.Errorf("of float32: got %d, want %d", floats, got)
				}
				if got[n] != 77 {
					t.Error("writes behind the end")
				}
			})
		}
	}
}
