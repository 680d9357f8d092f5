package main

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
)

// TestSample checks that an image is mirrored at its edges, and that flipping
// turns image and labels alike.
func TestSample(t *testing.T) {
	const size, input, margin = 12, 20, 4
	s := draw(1, size)[0]
	values := func(x *keras.Tensor) []float32 {
		v, err := x.Cast(keras.Float32).Values()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	b, m := s.sample(input, false), s.sample(input, true)
	x, y, mx, my := values(b.X), values(b.Y), values(m.X), values(m.Y)
	for r := range size {
		for c := range size {
			if got, want := x[3*((r+margin)*input+c+margin)], 4*(s.pixels[3*(r*size+c)]-0.5); got != want {
				t.Fatalf("pixel %d,%d: got %v, want %v", r, c, got, want)
			}
			if y[r*size+c] != float32(s.labels[r*size+c]) || my[r*size+c] != y[r*size+size-1-c] {
				t.Fatalf("label %d,%d: got %v, and %v flipped", r, c, y[r*size+c], my[r*size+c])
			}
		}
	}
	for r := range input {
		for c := range input {
			if mx[3*(r*input+c)] != x[3*(r*input+input-1-c)] {
				t.Fatalf("pixel %d,%d is not that of the other side when flipped", r, c)
			}
		}
	}
	if x[3*(margin*input+margin-1)] != x[3*(margin*input+margin+1)] {
		t.Error("the image is not mirrored at its left edge")
	}
}

// TestDraw checks that all classes come up, and that a landscape does not
// depend on how many are drawn.
func TestDraw(t *testing.T) {
	seen := map[int32]int{}
	many := draw(60, 52)
	for _, s := range many {
		for _, c := range s.labels {
			seen[c]++
		}
	}
	for i, c := range classes {
		if seen[int32(i)] < 500 {
			t.Errorf("%s: got %d pixels of 60 landscapes, want 500 or more", c.name, seen[int32(i)])
		}
	}
	if fmt.Sprint(draw(3, 52)[2]) != fmt.Sprint(many[2]) {
		t.Error("landscape 2 of 3 is not landscape 2 of 60")
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	save := func(folder, name string, m image.Image) {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(dir, folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := png.Encode(f, m); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// Left half sky and red, right half river and blue; twice the size wanted.
	picture, label := image.NewRGBA(image.Rect(0, 0, 8, 8)), image.NewGray(image.Rect(0, 0, 8, 8))
	for y := range 8 {
		for x := range 8 {
			picture.Set(x, y, color.RGBA{R: 255, A: 255})
			label.SetGray(x, y, color.Gray{Y: 3})
			if x >= 4 {
				picture.Set(x, y, color.RGBA{B: 255, A: 255})
				label.SetGray(x, y, color.Gray{Y: 61})
			}
		}
	}
	save("images", "a.png", picture)
	save("labels", "a.png", label)
	scenes, err := load(dir, 4)
	if err != nil {
		t.Fatal(err)
	}
	s := scenes[0]
	if len(scenes) != 1 || s.labels[1] != sky || s.labels[2] != river || s.pixels[3] != 1 || s.pixels[6] != 0 || s.pixels[8] != 1 {
		t.Errorf("got %+v", scenes)
	}
	label.SetGray(0, 0, color.Gray{Y: 200})
	save("labels", "a.png", label)
	if _, err := load(dir, 8); err == nil || !strings.Contains(err.Error(), "a.png: pixel 0,0 is of class 200 of ADE20K, want one of ") {
		t.Errorf("an unknown class: got %v", err)
	}
	save("images", "b.png", picture)
	if _, err := load(dir, 4); err == nil || !strings.Contains(err.Error(), "has 2 images and 1 labels") {
		t.Errorf("a label is missing: got %v", err)
	}
}
