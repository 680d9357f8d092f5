package main

import (
	"context"
	"fmt"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/mezzo-ml/mezzo/keras"
	dataset "github.com/mezzo-ml/mezzo/keras/data"
)

// classes are what a pixel can be, with the numbers that they have in the
// labels of ADE20K.
var classes = []struct {
	name string
	ade  uint8
}{{"sky", 3}, {"tree", 5}, {"grass", 10}, {"earth", 14}, {"mountain", 17}, {"plant", 18}, {"water", 22}, {"sea", 27}, {"river", 61}}

// scene is a square image, its three colours from 0 to 1, and the class of
// each of its pixels.
type scene struct {
	size   int
	pixels []float32 // [size size 3]
	labels []int32   // [size size]
}

// sample makes the scene a sample for a network whose input is larger than its
// output: the image is mirrored at its edges. mirrored turns image and labels
// the other way round, left to right.
func (s scene) sample(input int, mirrored bool) keras.Batch {
	margin := (input - s.size) / 2
	reflect := func(i int) int {
		i -= margin
		if i < 0 {
			i = -i
		}
		if i >= s.size {
			i = 2*(s.size-1) - i
		}
		return min(max(i, 0), s.size-1)
	}
	x := make([]float32, 0, input*input*3)
	for r := range input {
		for c := range input {
			if mirrored {
				c = input - 1 - c
			}
			at := 3 * (reflect(r)*s.size + reflect(c))
			for _, v := range s.pixels[at : at+3] {
				x = append(x, 4*(v-0.5)) // about a standard deviation of 1
			}
		}
	}
	y := slices.Clone(s.labels)
	if mirrored {
		for r := range s.size {
			slices.Reverse(y[r*s.size : (r+1)*s.size])
		}
	}
	return keras.Batch{X: keras.NewTensor(x, input, input, 3), Y: keras.NewTensor(y, s.size, s.size)}
}

// plain is the dataset of scenes as they are.
func plain(scenes []scene, input int) *keras.Pipeline {
	return keras.FromGenerator(func() iter.Seq2[keras.Batch, error] {
		return func(yield func(keras.Batch, error) bool) {
			for _, s := range scenes {
				if !yield(s.sample(input, false), nil) {
					return
				}
			}
		}
	}, false)
}

// flipped is the dataset of scenes in an order that is another one in each
// epoch, every other scene mirrored. Image and labels are mirrored together. All
// follows from the epoch's number, so that a training that is resumed goes on
// with the same samples.
func flipped(scenes []scene, input int) *dataset.Dataset[keras.Batch] {
	return dataset.FromGenerator(func(_ context.Context, epoch int) iter.Seq2[keras.Batch, error] {
		rng := rand.New(rand.NewPCG(uint64(epoch), 3))
		order := rng.Perm(len(scenes))
		return func(yield func(keras.Batch, error) bool) {
			for _, i := range order {
				if !yield(scenes[i].sample(input, rng.IntN(2) == 1), nil) {
					return
				}
			}
		}
	}).Prefetch(16)
}

// load reads the images of a directory, scaled to size, and their labels.
func load(dir string, size int) ([]scene, error) {
	list := func(folder string) ([]string, error) {
		entries, err := os.ReadDir(filepath.Join(dir, folder)) // sorted
		if err != nil {
			return nil, fmt.Errorf("-data: %w", err)
		}
		var names []string
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); ext == ".png" || ext == ".jpg" || ext == ".jpeg" {
				names = append(names, filepath.Join(dir, folder, e.Name()))
			}
		}
		return names, nil
	}
	pictures, err := list("images")
	if err != nil {
		return nil, err
	}
	labels, err := list("labels")
	if err != nil {
		return nil, err
	}
	if len(pictures) != len(labels) {
		return nil, fmt.Errorf("-data: %s has %d images and %d labels, want one label for each image", dir, len(pictures), len(labels))
	}
	var number [256]int32
	for i := range number {
		number[i] = -1
	}
	for i, c := range classes {
		number[c.ade] = int32(i)
	}
	var scenes []scene
	for i, path := range pictures {
		picture, err := decode(path)
		if err != nil {
			return nil, err
		}
		mask, err := decode(labels[i])
		if err != nil {
			return nil, err
		}
		s := scene{size: size}
		for r := range size {
			for c := range size {
				s.pixels = append(s.pixels, average(picture, r, c, size)...)
				x, y := place(mask.Bounds(), float64(r)+0.5, float64(c)+0.5, size)
				id := grey(mask, x, y)
				if number[id] < 0 {
					return nil, fmt.Errorf("%s: pixel %d,%d is of class %d of ADE20K, want one of %v", labels[i], x, y, id, classes)
				}
				s.labels = append(s.labels, number[id])
			}
		}
		scenes = append(scenes, s)
	}
	return scenes, nil
}

func decode(path string) (image.Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, _, err := image.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// grey is the value of a pixel: the index of one with a palette, its
// brightness otherwise.
func grey(m image.Image, x, y int) uint8 {
	if p, ok := m.(*image.Paletted); ok {
		return p.ColorIndexAt(x, y)
	}
	r, _, _, _ := m.At(x, y).RGBA()
	return uint8(r >> 8)
}

// place finds the pixel of an image at row r and column c of one that is
// scaled to size.
func place(b image.Rectangle, r, c float64, size int) (x, y int) {
	x = b.Min.X + min(int(c*float64(b.Dx())/float64(size)), b.Dx()-1)
	y = b.Min.Y + min(int(r*float64(b.Dy())/float64(size)), b.Dy()-1)
	return x, y
}

// average is the mean colour of what becomes pixel r, c of an image scaled to
// size: of all that lies in it, or of the pixel nearest to its middle.
func average(m image.Image, r, c, size int) []float32 {
	b := m.Bounds()
	x0, y0 := place(b, float64(r), float64(c), size)
	x1, y1 := place(b, float64(r+1), float64(c+1), size)
	var sum [3]float32
	n := float32(0)
	for y := y0; y < max(y1, y0+1); y++ {
		for x := x0; x < max(x1, x0+1); x++ {
			red, green, blue, _ := m.At(x, y).RGBA()
			sum[0], sum[1], sum[2] = sum[0]+float32(red), sum[1]+float32(green), sum[2]+float32(blue)
			n += 65535
		}
	}
	return []float32{sum[0] / n, sum[1] / n, sum[2] / n}
}
