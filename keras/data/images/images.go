// Package images reads pictures from files: PNG, JPEG, BMP and GIF (the first
// picture of it), as pixels, resized, or as a dataset of a directory (Keras:
// image_dataset_from_directory). It is apart from package data so that only
// programs that read pictures link their decoders.
//
// Rules: pixels are rows of columns of channels, from 0 to 255; errors name
// the file; what a file says of its size is checked before it is read.
package images

import (
	"bufio"
	"bytes"
	"fmt"
	"image"
	"image/color"
	_ "image/gif" // formats that Decode knows
	_ "image/jpeg"
	_ "image/png"
	"io"

	_ "golang.org/x/image/bmp"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers/resample"
)

// Image is a picture.
type Image struct {
	Height, Width, Channels int
	Pixels                  []uint8 // [Height Width Channels]
}

// channels is how many there are in each of Keras's color modes.
var channels = map[string]int{"grayscale": 1, "rgb": 3, "rgba": 4}

// MaxPixels is how many pixels a picture may have by default: 8192 by 8192. A
// decoder takes up to 8 bytes for each before it has read any, and a file that
// claims 2²⁶ has 100 bytes.
const MaxPixels = 1 << 26

// Decode reads a picture in a color mode: grayscale, rgb or rgba. Where the
// file has transparency and mode does not, colors are as if it were opaque. One
// of more than maxPixels (default: MaxPixels) is an error.
func Decode(r io.Reader, mode string, maxPixels ...int) (*Image, error) {
	most := MaxPixels
	if len(maxPixels) > 0 {
		most = maxPixels[0]
	}
	return decode(r, mode, most, func(int, int) error { return nil })
}

// decode calls check with the height and width before it takes memory for them.
func decode(r io.Reader, mode string, most int, check func(height, width int) error) (*Image, error) {
	n, ok := channels[mode]
	if !ok {
		return nil, fmt.Errorf("images: color mode is %q, want grayscale, rgb or rgba", mode)
	}
	var head bytes.Buffer // what it takes to know the size
	c, _, err := image.DecodeConfig(io.TeeReader(r, &head))
	switch {
	case head.Len() == 0:
		return nil, fmt.Errorf("images: got no data: %w", io.EOF)
	case err != nil:
		return nil, fmt.Errorf("images: %w", err)
	case c.Width > most/max(c.Height, 1):
		return nil, fmt.Errorf("images: picture of %d by %d pixels, want at most %d pixels; see MaxPixels", c.Height, c.Width, most)
	}
	if err := check(c.Height, c.Width); err != nil {
		return nil, err
	}
	src, _, err := image.Decode(bufio.NewReaderSize(io.MultiReader(&head, r), 1<<16))
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	at := src.Bounds()
	m := &Image{at.Dy(), at.Dx(), n, make([]uint8, at.Dx()*at.Dy()*n)}
	if len(m.Pixels) == 0 {
		return nil, fmt.Errorf("images: picture of %d by %d pixels, want at least one", m.Height, m.Width)
	}
	out, get := m.Pixels, reader(src)
	for y := at.Min.Y; y < at.Max.Y; y++ {
		for x := at.Min.X; x < at.Max.X; x++ {
			c := get(x, y)
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

// reader returns how the pixels of a picture are read: for what decoders return
// most without an interface for each.
func reader(src image.Image) func(x, y int) color.NRGBA {
	switch m := src.(type) {
	case *image.NRGBA:
		return m.NRGBAAt
	case *image.Gray:
		return func(x, y int) color.NRGBA {
			v := m.GrayAt(x, y).Y
			return color.NRGBA{v, v, v, 255}
		}
	case *image.YCbCr:
		return func(x, y int) color.NRGBA {
			// Not color.YCbCrToRGB: Convert takes the 16 bits of RGBA.
			r, g, b, _ := m.YCbCrAt(x, y).RGBA()
			return color.NRGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
		}
	case *image.Paletted:
		var table [256]color.NRGBA
		for i, c := range m.Palette {
			table[i] = color.NRGBAModel.Convert(c).(color.NRGBA)
		}
		return func(x, y int) color.NRGBA { return table[m.ColorIndexAt(x, y)] }
	case *image.RGBA:
		if m.Opaque() {
			return func(x, y int) color.NRGBA { return color.NRGBA(m.RGBAAt(x, y)) }
		}
	}
	return func(x, y int) color.NRGBA { return color.NRGBAModel.Convert(src.At(x, y)).(color.NRGBA) }
}

// Load is Decode of a file.
func Load(path, mode string, maxPixels ...int) (*Image, error) {
	return load(path, func(f io.Reader) (*Image, error) { return Decode(f, mode, maxPixels...) })
}

func load(path string, decode func(io.Reader) (*Image, error)) (*Image, error) {
	f, _, err := safeio.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := decode(f)
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
// Channels], by one of Keras's interpolations (see preprocessing.Resizing). What it
// computes on the way may have as many numbers as MaxPixels, or 16 for each
// pixel of the result if that is more: a picture of one row and millions of
// columns is an error.
func (m *Image) Resize(height, width int, interpolation string) ([]float32, error) {
	if height < 1 || width < 1 {
		return nil, fmt.Errorf("images: size is %d by %d, want positive numbers", height, width)
	}
	if _, err := resizing(m.Height, m.Width, height, width, m.Channels, MaxPixels); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	return m.resize(height, width, interpolation)
}

// resizing returns how many numbers resize computes on the way, or an error
// when they are too many: two matrices of weights, and the rows, which take
// half as many bytes.
func resizing(fromHeight, fromWidth, height, width, channels, most int) (int, error) {
	n := float64(height)*float64(fromHeight) + float64(width)*float64(fromWidth) + float64(height)*float64(fromWidth)*float64(channels)/2
	if room := max(float64(most), 16*float64(height)*float64(width)); n > room {
		return 0, fmt.Errorf("picture of %d by %d pixels: resizing it to %d by %d takes %.0f numbers, want at most %.0f; see MaxPixels", fromHeight, fromWidth, height, width, n, room)
	}
	return int(n), nil
}

func (m *Image) resize(height, width int, interpolation string) ([]float32, error) {
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

// Window returns a part of the picture of which rows and columns begin at top
// and left; what lies outside the picture is 0.
func (m *Image) Window(top, left, height, width int) *Image {
	w := &Image{height, width, m.Channels, make([]uint8, height*width*m.Channels)}
	from, to := max(left, 0), min(left+width, m.Width)
	for y := max(top, 0); y < min(top+height, m.Height) && from < to; y++ {
		copy(w.Pixels[((y-top)*width+from-left)*m.Channels:], m.Pixels[(y*m.Width+from)*m.Channels:(y*m.Width+to)*m.Channels])
	}
	return w
}
