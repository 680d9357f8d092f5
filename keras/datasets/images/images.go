// Package images reads pictures from files: PNG, JPEG and GIF (the first
// picture of it), as pixels, resized, or as a dataset of a directory (Keras:
// image_dataset_from_directory).
//
// Rules: pixels are rows of columns of channels, from 0 to 255; errors name
// the file; what a file says of its size is checked before it is read.
package images

import (
	"bufio"
	"fmt"
	"image"
	"image/color"
	_ "image/gif" // formats that Decode knows
	_ "image/jpeg"
	_ "image/png"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers/resample"
)

// Image is a picture.
type Image struct {
	Height, Width, Channels int
	Pixels                  []uint8 // [Height Width Channels]
}

// channels is how many there are in each of Keras's color modes.
var channels = map[string]int{"grayscale": 1, "rgb": 3, "rgba": 4}

// maxPixels is more than cameras make, and 1 GB of rgba.
const maxPixels = 1 << 28

// Decode reads a picture in a color mode: grayscale, rgb or rgba. Where the
// file has transparency and mode does not, colors are as if it were opaque.
func Decode(r io.Reader, mode string) (*Image, error) {
	n, ok := channels[mode]
	if !ok {
		return nil, fmt.Errorf("images: color mode is %q, want grayscale, rgb or rgba", mode)
	}
	b := bufio.NewReaderSize(r, 1<<16)
	head, err := b.Peek(1 << 16)
	if len(head) == 0 {
		return nil, fmt.Errorf("images: got no data: %w", err)
	}
	// A header behind more metadata than that is found by the decoder.
	if c, _, err := image.DecodeConfig(strings.NewReader(string(head))); err == nil && c.Width > maxPixels/max(c.Height, 1) {
		return nil, fmt.Errorf("images: picture of %d by %d pixels, want at most %d pixels", c.Height, c.Width, maxPixels)
	}
	src, _, err := image.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	at := src.Bounds()
	m := &Image{at.Dy(), at.Dx(), n, make([]uint8, at.Dx()*at.Dy()*n)}
	if len(m.Pixels) == 0 {
		return nil, fmt.Errorf("images: picture of %d by %d pixels, want at least one", m.Height, m.Width)
	}
	out := m.Pixels
	for y := at.Min.Y; y < at.Max.Y; y++ {
		for x := at.Min.X; x < at.Max.X; x++ {
			c := color.NRGBAModel.Convert(src.At(x, y)).(color.NRGBA)
			switch n {
			case 1:
				// Rec. 601, rounded as PIL does.
				out[0] = uint8((uint32(c.R)*19595 + uint32(c.G)*38470 + uint32(c.B)*7471 + 1<<15) >> 16)
			case 3:
				out[0], out[1], out[2] = c.R, c.G, c.B
			default:
				out[0], out[1], out[2], out[3] = c.R, c.G, c.B, c.A
			}
			out = out[n:]
		}
	}
	return m, nil
}

// Load is Decode of a file.
func Load(path, mode string) (*Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := Decode(f, mode)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Tensor returns the pixels: uint8 [Height Width Channels].
func (m *Image) Tensor() *tensor.Tensor {
	return tensor.FromBytes(op.Type{DType: keras.Uint8, Shape: op.Shape{m.Height, m.Width, m.Channels}}, m.Pixels)
}

// Resize returns the pixels of the picture in another size, [height width
// Channels], by one of Keras's interpolations (see layers.Resizing).
func (m *Image) Resize(height, width int, interpolation string) ([]float32, error) {
	if height < 1 || width < 1 {
		return nil, fmt.Errorf("images: size is %d by %d, want positive numbers", height, width)
	}
	down, err := resample.Weights(interpolation, false, m.Height, height)
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	across, err := resample.Weights(interpolation, false, m.Width, width)
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	row := m.Width * m.Channels
	lines := make([]float32, height*row) // [height Width Channels]
	for i := range height {
		for j, w := range down[i*m.Height : (i+1)*m.Height] {
			if w == 0 {
				continue
			}
			for k, p := range m.Pixels[j*row : (j+1)*row] {
				lines[i*row+k] += float32(w) * float32(p)
			}
		}
	}
	out := make([]float32, height*width*m.Channels)
	for x := range width {
		for j, w := range across[x*m.Width : (x+1)*m.Width] {
			if w == 0 {
				continue
			}
			for i := range height {
				for c := range m.Channels {
					out[(i*width+x)*m.Channels+c] += float32(w) * lines[i*row+j*m.Channels+c]
				}
			}
		}
	}
	return out, nil
}

// Options is how FromDirectory reads pictures.
type Options struct {
	Height, Width int    // default: 256
	ColorMode     string // grayscale, rgb or rgba; default: rgb
	Interpolation string // see layers.Resizing; default: bilinear
}

// FromDirectory returns the dataset of the pictures in the subdirectories of
// dir, and the names of these, which are the classes: X float32 [Height Width
// channels] from 0 to 255, Y int32 [], the number of the class. Classes and
// files come in the order of their names; Shuffle and Batch do the rest. Files
// are read while the dataset is.
func FromDirectory(dir string, o Options) (data *keras.Pipeline, classes []string, err error) {
	fill := func(v *int) {
		if *v == 0 {
			*v = 256
		}
	}
	fill(&o.Height)
	fill(&o.Width)
	if o.ColorMode == "" {
		o.ColorMode = "rgb"
	}
	if o.Interpolation == "" {
		o.Interpolation = "bilinear"
	}
	if _, err := resample.Weights(o.Interpolation, false, 1, 1); err != nil {
		return nil, nil, fmt.Errorf("images: %w", err)
	}
	if channels[o.ColorMode] == 0 || o.Height < 1 || o.Width < 1 {
		return nil, nil, fmt.Errorf("images: got color mode %q and size %d by %d, want grayscale, rgb or rgba, and positive numbers", o.ColorMode, o.Height, o.Width)
	}
	type file struct {
		path  string
		class int32
	}
	var files []file
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		inside, err := os.ReadDir(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, nil, err
		}
		for _, f := range inside {
			if slices.Contains([]string{".gif", ".jpeg", ".jpg", ".png"}, strings.ToLower(filepath.Ext(f.Name()))) {
				files = append(files, file{filepath.Join(dir, e.Name(), f.Name()), int32(len(classes))})
			}
		}
		classes = append(classes, e.Name())
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("images: %s has no pictures in subdirectories, want .gif, .jpeg, .jpg or .png", dir)
	}
	read := func(f file) (b keras.Batch, err error) {
		m, err := Load(f.path, o.ColorMode)
		if err != nil {
			return b, err
		}
		x, err := m.Resize(o.Height, o.Width, o.Interpolation)
		if err != nil {
			return b, fmt.Errorf("%s: %w", f.path, err)
		}
		b.X = tensor.New(x, o.Height, o.Width, m.Channels)
		b.Y = tensor.New([]int32{f.class}).Reshape()
		return b, nil
	}
	return keras.FromGenerator(func() iter.Seq2[keras.Batch, error] {
		return func(yield func(keras.Batch, error) bool) {
			for _, f := range files {
				b, err := read(f)
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}, false), classes, nil
}
