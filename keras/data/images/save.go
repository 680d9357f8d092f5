package images

import (
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"path/filepath"
	"strings"

	"golang.org/x/image/bmp"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
)

// SaveOptions is how Save writes a picture.
type SaveOptions struct {
	// Unscaled takes the numbers for levels of 0 to 255: they are rounded towards 0, as
	// Keras does, and limited. Default: the least number becomes 0 and the largest 255
	// (Keras: scale=True).
	Unscaled bool
	Quality  int // of a JPEG, 1 to 100; default: 75
}

// Save writes a picture, [rows columns channels] or [rows columns], with 1 (grey), 3 (RGB)
// or 4 channels (RGBA), in the format that the name ends in: .png, .jpg, .jpeg, .bmp or
// .gif (Keras: save_img). JPEG and GIF have no alpha. Numbers of any type are scaled,
// unless SaveOptions says otherwise; a number that is not finite is an error. The file gets
// its name when it is complete.
func Save(path string, x *keras.Tensor, options ...SaveOptions) error {
	var o SaveOptions
	if len(options) > 0 {
		o = options[0]
	}
	picture, err := pictureOf(x, o)
	if err == nil {
		err = write(path, picture, o)
	}
	if err != nil {
		return fmt.Errorf("images: %s: cannot save: %w", path, err)
	}
	return nil
}

func write(path string, picture image.Image, o SaveOptions) error {
	var encode func(io.Writer) error
	_, alpha := picture.(*image.NRGBA)
	switch ending := strings.ToLower(filepath.Ext(path)); ending {
	case ".png":
		encode = func(w io.Writer) error { return png.Encode(w, picture) }
	case ".jpg", ".jpeg":
		if alpha && !picture.(*image.NRGBA).Opaque() {
			return fmt.Errorf("a JPEG has no alpha; give 3 channels")
		}
		if o.Quality < 0 || o.Quality > 100 {
			return fmt.Errorf("Quality is %d, want 1 to 100", o.Quality)
		}
		quality := o.Quality
		if quality == 0 {
			quality = 75
		}
		encode = func(w io.Writer) error { return jpeg.Encode(w, picture, &jpeg.Options{Quality: quality}) }
	case ".bmp":
		encode = func(w io.Writer) error { return bmp.Encode(w, picture) }
	case ".gif":
		if alpha && !picture.(*image.NRGBA).Opaque() {
			return fmt.Errorf("a GIF has no alpha; give 3 channels")
		}
		encode = func(w io.Writer) error { return gif.Encode(w, picture, nil) }
	default:
		return fmt.Errorf("the name ends in %q, want .png, .jpg, .jpeg, .bmp or .gif", ending)
	}
	return atomicfile.Write(atomicfile.System{}, path, func(f atomicfile.File) error { return encode(f) })
}

// pictureOf makes a picture of numbers.
func pictureOf(x *keras.Tensor, o SaveOptions) (image.Image, error) {
	if x == nil || x.IsTuple() {
		return nil, fmt.Errorf("got no tensor or several, want one")
	}
	if err := x.Err(); err != nil {
		return nil, err
	}
	channels := 1
	switch x.Rank() {
	case 2:
	case 3:
		channels = x.Dim(2)
	}
	if x.Rank() != 2 && x.Rank() != 3 || channels != 1 && channels != 3 && channels != 4 {
		return nil, fmt.Errorf("got %v, want [rows columns] or [rows columns channels] with 1, 3 or 4 channels", x.Type())
	}
	numbers, err := x.Float64s()
	if err != nil {
		return nil, err
	}
	least, largest := math.Inf(1), math.Inf(-1)
	for i, v := range numbers {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("number %d is %v", i, v)
		}
		least, largest = min(least, v), max(largest, v)
	}
	// With least and largest equal Keras, too, writes 0.
	shift, factor := least, 0.0
	switch {
	case o.Unscaled:
		shift, factor = 0, 1
	case largest > least:
		factor = 255 / (largest - least)
	}
	level := func(i int) uint8 { return uint8(min(max((numbers[i]-shift)*factor, 0), 255)) }
	rows, columns := x.Dim(0), x.Dim(1)
	if channels == 1 {
		grey := image.NewGray(image.Rect(0, 0, columns, rows))
		for i := range numbers {
			grey.Pix[i/columns*grey.Stride+i%columns] = level(i)
		}
		return grey, nil
	}
	p := image.NewNRGBA(image.Rect(0, 0, columns, rows))
	for i := range rows * columns {
		c := color.NRGBA{level(i * channels), level(i*channels + 1), level(i*channels + 2), 255}
		if channels == 4 {
			c.A = level(i*channels + 3)
		}
		p.SetNRGBA(i%columns, i/columns, c)
	}
	return p, nil
}
