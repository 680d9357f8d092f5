package images_test

import (
	"bytes"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data/images"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"

	"golang.org/x/image/bmp"
)

// picture is 2 by 3 pixels of one color and one white one at the right bottom.
func picture(c color.NRGBA) image.Image {
	m := image.NewNRGBA(image.Rect(5, 5, 8, 7)) // which does not start at 0
	for y := 5; y < 7; y++ {
		for x := 5; x < 8; x++ {
			m.SetNRGBA(x, y, c)
		}
	}
	m.SetNRGBA(7, 6, color.NRGBA{255, 255, 255, 255})
	return m
}

func encoded(t testing.TB, encode func(io.Writer, image.Image) error, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDecode(t *testing.T) {
	c := color.NRGBA{200, 100, 50, 255}
	for mode, want := range map[string][]uint8{"rgb": {200, 100, 50}, "rgba": {200, 100, 50, 255}, "grayscale": {124}} {
		for name, encode := range map[string]func(io.Writer, image.Image) error{
			"png": png.Encode,
			"jpeg": func(w io.Writer, _ image.Image) error {
				m := image.NewNRGBA(image.Rect(0, 0, 3, 2)) // of one color: neighbours share theirs
				for i := range 6 {
					m.SetNRGBA(i%3, i/3, c)
				}
				return jpeg.Encode(w, m, &jpeg.Options{Quality: 100})
			},
			"bmp": bmp.Encode,
			"gif": func(w io.Writer, m image.Image) error { return gif.Encode(w, m, nil) },
		} {
			m, err := images.Decode(bytes.NewReader(encoded(t, encode, picture(c))), mode)
			if err != nil {
				t.Fatal(err)
			}
			if m.Height != 2 || m.Width != 3 || m.Channels != len(want) || len(m.Pixels) != 6*len(want) {
				t.Fatalf("%s %s: got %d by %d by %d", name, mode, m.Height, m.Width, m.Channels)
			}
			for i, w := range want {
				// JPEG rounds twice; GIF has 256 colors, at most 32 apart.
				off := map[string]int{"png": 0, "bmp": 0, "jpeg": 3, "gif": 32}[name]
				if d := int(m.Pixels[i]) - int(w); d > off || d < -off {
					t.Errorf("%s %s: got %v, want %v", name, mode, m.Pixels[:len(want)], want)
				}
			}
			if got := m.Tensor().Type().String(); mode == "rgb" && got != "uint8[2 3 3]" {
				t.Errorf("got a tensor of %s", got)
			}
		}
	}
	m, err := images.Decode(bytes.NewReader(encoded(t, png.Encode, picture(color.NRGBA{200, 100, 50, 128}))), "rgb")
	if err != nil || !slices.Equal(m.Pixels[:3], []uint8{200, 100, 50}) {
		t.Errorf("transparent: got %v, %v", m, err)
	}
	for text, want := range map[string]string{
		"":                       "images: got no data: EOF",
		"GIF89a":                 "images: gif: reading header: unexpected EOF",
		"BM????\x00\x00\x00\x00": "images: unexpected EOF",
		"neither of these":       "images: image: unknown format",
		// 2³¹-1 by 2³¹-1 pixels of gray.
		string(encoded(t, png.Encode, picture(color.NRGBA{}))[:16]) + "\x7f\xff\xff\xff\x7f\xff\xff\xff": "",
	} {
		if _, err := images.Decode(strings.NewReader(text), "rgb"); err == nil || want != "" && err.Error() != want {
			t.Errorf("%q: got error %v, want %s", text, err, want)
		}
	}
	if _, err := images.Decode(strings.NewReader("x"), "hsv"); err == nil || err.Error() != `images: color mode is "hsv", want grayscale, rgb or rgba` {
		t.Errorf("got error %v", err)
	}
}

// TestResize wants what preprocessing.Resizing, which is compared with Keras, does.
func TestResize(t *testing.T) {
	m := &images.Image{Height: 7, Width: 5, Channels: 2}
	for i := range 70 {
		m.Pixels = append(m.Pixels, uint8(i*37))
	}
	for _, how := range []string{"nearest", "bilinear", "bicubic", "area", "lanczos3", "lanczos5"} {
		got, err := m.Resize(4, 9, how)
		if err != nil {
			t.Fatal(err)
		}
		l := &preprocessing.Resizing{Height: 4, Width: 9, Interpolation: how, DType: "float32"}
		want, err := keras.Apply(l, m.Tensor().Reshape(1, 7, 5, 2)).Values()
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			// Two sums of up to 10 float32 products of magnitude 512.
			if d := got[i] - w; d > 1e-3 || d < -1e-3 {
				t.Errorf("%s: element %d: got %v, want %v", how, i, got[i], w)
			}
		}
	}
	if _, err := m.Resize(0, 3, "area"); err == nil || err.Error() != "images: size is 0 by 3, want positive numbers" {
		t.Errorf("got error %v", err)
	}
	if _, err := m.Resize(3, 3, "cubic"); err == nil || !strings.HasPrefix(err.Error(), `images: Interpolation is "cubic", want one of`) {
		t.Errorf("got error %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("GIF89a"))
	f.Add(encoded(f, bmp.Encode, picture(color.NRGBA{200, 100, 50, 255})))
	f.Add(encoded(f, png.Encode, picture(color.NRGBA{1, 2, 3, 4})))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := images.Decode(bytes.NewReader(data), "rgb")
		if err == nil && len(m.Pixels) != m.Height*m.Width*3 {
			t.Errorf("got %d pixels for %d by %d", len(m.Pixels), m.Height, m.Width)
		}
	})
}
