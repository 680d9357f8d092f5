package main

import "math"

const side = 28 // height and width of what the model sees

// center makes a drawing like the images that the model has learned from: the drawn
// part is scaled into a box of 20x20 pixels, and its centre of mass becomes the centre
// of 28x28 pixels, as in MNIST. ink has width·height bytes, 255 for full ink. The
// result is from 0 to 1, and nil where nothing is drawn.
func center(ink []byte, width, height int) []float32 {
	left, top, right, bottom := width, height, 0, 0
	for y := range height {
		for x := range width {
			if ink[y*width+x] > 0 {
				left, right = min(left, x), max(right, x+1)
				top, bottom = min(top, y), max(bottom, y+1)
			}
		}
	}
	if left >= right {
		return nil
	}
	// A dot is not enlarged to a box: it would be a disc of full ink.
	size := max(right-left, bottom-top, width/6, height/6)
	scale := 20 / float64(size) // pixels of the result for one of the drawing
	var mass, massX, massY float64
	for y := top; y < bottom; y++ {
		for x := left; x < right; x++ {
			m := float64(ink[y*width+x])
			mass += m
			massX += m * (float64(x) + 0.5)
			massY += m * (float64(y) + 0.5)
		}
	}
	// Where a point of the drawing is in the result.
	toX := func(x float64) float64 { return (x-massX/mass)*scale + side/2 }
	toY := func(y float64) float64 { return (y-massY/mass)*scale + side/2 }

	// Each pixel of the drawing is shared among those of the result that it covers.
	out := make([]float32, side*side)
	for y := top; y < bottom; y++ {
		for x := left; x < right; x++ {
			if m := float64(ink[y*width+x]) / 255; m > 0 {
				spread(out, m, toX(float64(x)), toX(float64(x+1)), toY(float64(y)), toY(float64(y+1)))
			}
		}
	}
	for i := range out {
		out[i] = min(out[i], 1)
	}
	return out
}

// spread adds ink m to the pixels of out that the rectangle covers, each as much as it
// is covered.
func spread(out []float32, m, x0, x1, y0, y1 float64) {
	for y := max(int(math.Floor(y0)), 0); y < side && float64(y) < y1; y++ {
		tall := min(y1, float64(y+1)) - max(y0, float64(y))
		for x := max(int(math.Floor(x0)), 0); x < side && float64(x) < x1; x++ {
			wide := min(x1, float64(x+1)) - max(x0, float64(x))
			out[y*side+x] += float32(m * tall * wide)
		}
	}
}
