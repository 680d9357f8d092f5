// Package resample, without compatibility promise, computes the weights that
// resize a row of pixels, as TensorFlow's image.resize does.
package resample

import (
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// interpolations are TensorFlow's ways of resizing.
var interpolations = []string{"nearest", "bilinear", "bicubic", "area", "lanczos3", "lanczos5"}

// Weights returns the weights [to from] with which from pixels in a row
// become to: each row of them has a sum of 1. how is Keras's interpolation:
// nearest, bilinear, bicubic, area, lanczos3 or lanczos5. With antialias the
// kernels of a smaller row widen, so that every pixel counts.
func Weights(how string, antialias bool, from, to int) ([]float64, error) {
	if !slices.Contains(interpolations, how) {
		return nil, fmt.Errorf("Interpolation is %q, want one of %q", how, interpolations)
	}
	w := make([]float64, to*from)
	scale := float64(from) / float64(to)
	for i := range to {
		row := w[i*from : (i+1)*from]
		center := float64((float64(i)+0.5)*scale) - 0.5 // where pixel i lies among the others
		switch {
		case how == "nearest":
			row[min(int((float64(i)+0.5)*scale), from-1)] = 1
		case how == "area":
			for j := range row {
				low, high := max(float64(i)*scale, float64(j)), min(float64(i+1)*scale, float64(j+1))
				row[j] = max(high-low, 0) / scale
			}
		case how == "bilinear" && !antialias:
			at := min(max(center, 0), float64(from-1))
			low := int(at)
			row[low] += 1 - (at - float64(low))
			row[min(low+1, from-1)] += at - float64(low)
		case how == "bicubic" && !antialias:
			// TensorFlow has a table of 1024 distances between two pixels.
			low := math.Floor(center)
			center = low + math.RoundToEven((center-low)*1024)/1024
			normal(row, center, 1, 2, cubic)
		default:
			wide := 1.0
			if antialias {
				wide = max(scale, 1)
			}
			kernel, radius := kernelOf(how)
			normal(row, center, wide, radius, kernel)
		}
	}
	return w, nil
}

// normal sets row to the kernel around center, with a sum of 1.
func normal(row []float64, center, wide, radius float64, kernel func(x float64) float64) {
	var sum float64
	for j := range row {
		if x := math.Abs(float64(j)-center) / wide; x < radius {
			row[j] = kernel(x)
			sum += row[j]
		}
	}
	for j := range row {
		row[j] /= sum
	}
}

func kernelOf(how string) (kernel func(x float64) float64, radius float64) {
	switch how {
	case "bilinear":
		return func(x float64) float64 { return 1 - x }, 1
	case "bicubic":
		return cubic, 2
	case "lanczos3":
		return lanczos(3), 3
	}
	return lanczos(5), 5
}

// cubic is the kernel of Keys (1981) with a = -½.
func cubic(x float64) float64 {
	if x <= 1 {
		return float64((float64(1.5*x)-2.5)*x*x) + 1
	}
	return float64((float64((float64(-0.5*x)+2.5)*x)-4)*x) + 2
}

func lanczos(radius float64) func(x float64) float64 {
	return func(x float64) float64 {
		if x < 1e-3 {
			return 1
		}
		return radius * portablemath.Sin(math.Pi*x) * portablemath.Sin(math.Pi*x/radius) / (math.Pi * math.Pi * x * x)
	}
}

// Fit is the larger window with the shape of to that an image has inside, or
// for pad the smaller one that has it inside, and where it starts. Sizes are
// rows and columns.
func Fit(from, to [2]int, pad bool) (window, start [2]int) {
	for i := range window {
		other := 1 - i
		n := int(float32(from[other]*to[i]) / float32(to[other]))
		if pad {
			window[i] = max(n, from[i])
			start[i] = (window[i] - from[i]) / 2
		} else {
			window[i] = max(min(n, from[i]), 1)
			start[i] = (from[i] - window[i]) / 2
		}
	}
	return window, start
}
