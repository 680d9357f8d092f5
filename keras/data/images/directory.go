package images

import (
	"context"
	"fmt"
	"io"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/layers/resample"
)

// Options is how FromDirectory reads pictures, with Keras's names and defaults.
type Options struct {
	Height, Width     int    // default: 256
	ColorMode         string // grayscale, rgb or rgba; default: rgb
	Interpolation     string // see preprocessing.Resizing; default: bilinear
	CropToAspectRatio bool   // cut off first what does not fit the shape
	PadToAspectRatio  bool   // fill up first, with 0, what is missing of the shape

	// LabelMode says what Y is: "int", int32 [], the number of the class;
	// "binary", float32 [1], that of two classes; "categorical", float32
	// [classes], 1 in its place; "none", nothing. Default: int, or none if
	// Unlabeled.
	LabelMode string

	BatchSize int // default: 32; -1: pictures one by one
	Workers   int // goroutines that decode; default: as many as processors

	// MaxPixels is how many pixels a picture may have, also filled up by
	// PadToAspectRatio, and how many those have together that Workers hold at
	// once: others wait. A pixel takes up to 12 bytes. Default: MaxPixels, 2²⁶.
	MaxPixels int

	data.DirectoryOptions // which files, in which order
}

// FromDirectory returns the dataset of the pictures in the subdirectories of
// dir, and the names of these, which are the classes (Keras:
// image_dataset_from_directory): X float32 [batch Height Width channels] from 0
// to 255, Y as LabelMode says. Files are read while the dataset is, in
// goroutines, and in an order that depends on Seed alone.
func FromDirectory(dir string, o Options) (d *data.Dataset[keras.Batch], classes []string, err error) {
	if err := o.fill(); err != nil {
		return nil, nil, fmt.Errorf("images: %w", err)
	}
	files, classes, err := data.FilesFromDirectory(dir, []string{".bmp", ".gif", ".jpeg", ".jpg", ".png"}, o.DirectoryOptions)
	if err != nil {
		return nil, nil, fmt.Errorf("images: %w", err)
	}
	if o.LabelMode == "binary" && len(classes) != 2 {
		return nil, nil, fmt.Errorf("images: %s: LabelMode is binary with classes %q, want two", dir, classes)
	}
	held := &gate{size: o.MaxPixels}
	d = data.ParallelMap(files, o.Workers, func(ctx context.Context, f data.Labeled[string]) (keras.Batch, error) {
		return o.read(ctx, held, f, len(classes))
	})
	if o.BatchSize > 0 {
		d = d.Batch(o.BatchSize).Prefetch(1)
	}
	return d, classes, nil
}

// fill sets defaults and checks the fields.
func (o *Options) fill() error {
	for _, f := range []struct {
		field *int
		value int
	}{{&o.Height, 256}, {&o.Width, 256}, {&o.BatchSize, 32}, {&o.MaxPixels, MaxPixels}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	labels := "int"
	if o.Unlabeled {
		labels = "none"
	}
	for _, f := range []struct {
		field *string
		value string
	}{{&o.ColorMode, "rgb"}, {&o.Interpolation, "bilinear"}, {&o.LabelMode, labels}} {
		if *f.field == "" {
			*f.field = f.value
		}
	}
	if _, err := resample.Weights(o.Interpolation, false, 1, 1); err != nil {
		return err
	}
	switch {
	case channels[o.ColorMode] == 0 || o.Height < 1 || o.Width < 1:
		return fmt.Errorf("got color mode %q and size %d by %d, want grayscale, rgb or rgba, and positive numbers", o.ColorMode, o.Height, o.Width)
	case o.LabelMode != "int" && o.LabelMode != "binary" && o.LabelMode != "categorical" && o.LabelMode != "none", o.Unlabeled && o.LabelMode != "none":
		return fmt.Errorf("LabelMode is %q, want int, binary, categorical or none, and none where there are no labels", o.LabelMode)
	case o.CropToAspectRatio && o.PadToAspectRatio:
		return fmt.Errorf("CropToAspectRatio and PadToAspectRatio are set, want one at most")
	case o.MaxPixels < 0:
		return fmt.Errorf("MaxPixels is %d, want a positive number", o.MaxPixels)
	case o.BatchSize < -1:
		return fmt.Errorf("BatchSize is %d, want a positive number, or -1 for none", o.BatchSize)
	}
	return nil
}

// window is the part of a picture that is resized, and where it starts.
func (o *Options) window(height, width int) (size, start [2]int) {
	if !o.CropToAspectRatio && !o.PadToAspectRatio {
		return [2]int{height, width}, start
	}
	return resample.Fit([2]int{height, width}, [2]int{o.Height, o.Width}, o.PadToAspectRatio)
}

// pixels returns how many pixels, or as much memory, it takes to read a picture.
func (o *Options) pixels(height, width int) (int, error) {
	size, _ := o.window(height, width)
	if size[1] > o.MaxPixels/max(size[0], 1) {
		return 0, fmt.Errorf("filled up to %d by %d pixels, want at most %d pixels; see MaxPixels", size[0], size[1], o.MaxPixels)
	}
	n, err := resizing(size[0], size[1], o.Height, o.Width, channels[o.ColorMode], o.MaxPixels)
	if o.CropToAspectRatio || o.PadToAspectRatio {
		n += size[0] * size[1]
	}
	return height*width + n, err
}

// read makes a sample of a file.
func (o *Options) read(ctx context.Context, held *gate, f data.Labeled[string], classes int) (b keras.Batch, err error) {
	taken := 0
	defer func() { held.leave(taken) }()
	m, err := load(f.Value, func(r io.Reader) (*Image, error) {
		return decode(r, o.ColorMode, o.MaxPixels, func(height, width int) error {
			n, err := o.pixels(height, width)
			if err == nil {
				taken, err = held.enter(ctx, n)
			}
			return err
		})
	})
	if err != nil {
		return b, err
	}
	if o.CropToAspectRatio || o.PadToAspectRatio {
		size, start := o.window(m.Height, m.Width)
		if o.PadToAspectRatio { // as in preprocessing.Resizing, as much after the picture as before it
			m = m.Window(-start[0], -start[1], m.Height+2*start[0], m.Width+2*start[1])
		} else {
			m = m.Window(start[0], start[1], size[0], size[1])
		}
	}
	x, err := m.resize(o.Height, o.Width, o.Interpolation)
	if err != nil {
		return b, fmt.Errorf("%s: %w", f.Value, err)
	}
	b.X = tensor.New(x, o.Height, o.Width, m.Channels)
	switch o.LabelMode {
	case "int":
		b.Y = tensor.New([]int32{int32(f.Label)})
	case "binary":
		b.Y = tensor.New([]float32{float32(f.Label)}, 1)
	case "categorical":
		one := make([]float32, classes)
		one[f.Label] = 1
		b.Y = tensor.New(one, classes)
	}
	return b, nil
}
