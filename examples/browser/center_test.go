package main

import (
	"math"
	"testing"
)

// TestCenter: wherever a bar is drawn and however large it is, its image is 20 pixels
// high and has its centre of mass in the middle.
func TestCenter(t *testing.T) {
	const width, height = 280, 280
	for _, c := range []struct{ x, y, w, h int }{{10, 20, 30, 200}, {240, 100, 15, 100}, {0, 0, 42, 280}, {133, 77, 6, 47}} {
		ink := make([]byte, width*height)
		for y := c.y; y < c.y+c.h; y++ {
			for x := c.x; x < c.x+c.w; x++ {
				ink[y*width+x] = 255
			}
		}
		image := center(ink, width, height)
		var mass, x, y, rows float64
		for i, v := range image {
			if v < 0 || v > 1 {
				t.Errorf("%+v: got a pixel of %v", c, v)
			}
			mass += float64(v)
			x += float64(v) * (float64(i%side) + 0.5)
			y += float64(v) * (float64(i/side) + 0.5)
		}
		for row := range side {
			peak := float32(0)
			for _, v := range image[row*side : (row+1)*side] {
				peak = max(peak, v)
			}
			if peak > 0.1 {
				rows++
			}
		}
		if math.Abs(x/mass-side/2) > 0.01 || math.Abs(y/mass-side/2) > 0.01 {
			t.Errorf("%+v: got the centre (%.2f, %.2f), want the middle", c, x/mass, y/mass)
		}
		if want := 20 * 20 * float64(c.w) / float64(c.h); math.Abs(mass-want) > 0.02*want || rows != 20 {
			t.Errorf("%+v: got ink %.1f in %v rows, want %.1f in 20", c, mass, rows, want)
		}
	}
	if image := center(make([]byte, width*height), width, height); image != nil {
		t.Errorf("got %v of an empty drawing, want nil", image)
	}
	dot := make([]byte, width*height)
	dot[100*width+100] = 255
	sum := float32(0)
	for _, v := range center(dot, width, height) {
		sum += v
	}
	if sum > 0.5 {
		t.Errorf("got ink %v of a dot, want a dot", sum)
	}
}
