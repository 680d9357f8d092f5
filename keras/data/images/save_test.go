package images_test

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data/images"
)

// TestSave: a picture that is written and read again has its levels, as
// keras.utils.save_img writes them.
func TestSave(t *testing.T) {
	grey := keras.NewTensor([]float32{-1, 0, 1, 2.99, 3, -1}, 2, 3)
	rgb := keras.NewTensor([]float32{0, 10, 255, 300, -5, 7.9, 1, 2, 3, 4, 5, 6}, 2, 2, 3)
	rgba := keras.NewTensor([]uint8{1, 2, 3, 4, 5, 6, 7, 255}, 1, 2, 4)
	for _, c := range []struct {
		name, mode string
		x          *keras.Tensor
		o          images.SaveOptions
		want       []uint8
	}{
		// Of Keras 3.15: (x + 1) / 4 * 255, cut off.
		{"a.png", "grayscale", grey, images.SaveOptions{}, []uint8{0, 63, 127, 254, 255, 0}},
		{"a.gif", "grayscale", grey, images.SaveOptions{}, nil},
		{"a.bmp", "rgb", rgb, images.SaveOptions{Unscaled: true}, []uint8{0, 10, 255, 255, 0, 7, 1, 2, 3, 4, 5, 6}},
		{"a.PNG", "rgba", rgba, images.SaveOptions{Unscaled: true}, []uint8{1, 2, 3, 4, 5, 6, 7, 255}},
		{"a.jpeg", "grayscale", keras.NewTensor(make([]float32, 64), 8, 8, 1), images.SaveOptions{Quality: 90}, make([]uint8, 64)},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		if err := images.Save(path, c.x, c.o); err != nil {
			t.Fatal(err)
		}
		got, err := images.Load(path, c.mode)
		if err != nil {
			t.Fatal(err)
		}
		if c.want != nil && fmt.Sprint(got.Pixels) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got.Pixels, c.want)
		}
		if got.Height != c.x.Dim(0) || got.Width != c.x.Dim(1) {
			t.Errorf("%s: got %d by %d pixels, want %v", c.name, got.Height, got.Width, c.x.Shape())
		}
	}
}

func TestSaveErrors(t *testing.T) {
	grey := keras.NewTensor([]float32{1, 2}, 1, 2)
	for _, c := range []struct {
		name string
		x    *keras.Tensor
		want string
	}{
		{"a.tif", grey, `the name ends in ".tif", want .png, .jpg, .jpeg, .bmp or .gif`},
		{"a.png", nil, "got no tensor or several, want one"},
		{"a.png", keras.NewTensor([]float32{1, 2}, 2), "got float32[2], want [rows columns] or [rows columns channels] with 1, 3 or 4 channels"},
		{"a.png", keras.NewTensor([]float32{1, float32(math.NaN())}, 1, 2), "number 1 is NaN"},
		{"a.jpg", keras.NewTensor([]uint8{1, 2, 3, 4}, 1, 1, 4), "a JPEG has no alpha; give 3 channels"},
		{"none/a.png", grey, "no such file or directory"},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		err := images.Save(path, c.x, images.SaveOptions{Unscaled: true})
		if err == nil || !strings.HasPrefix(err.Error(), "images: "+path+": cannot save: ") || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one that ends in %s", c.name, err, c.want)
		}
	}
}
