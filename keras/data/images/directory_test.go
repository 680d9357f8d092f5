package images_test

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/keras/data/images"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// folder makes a directory of three blue and two red pictures, and other files.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	blue, red := encoded(t, png.Encode, picture(color.NRGBA{0, 0, 255, 255})), encoded(t, png.Encode, picture(color.NRGBA{255, 0, 0, 255}))
	for path, content := range map[string][]byte{
		"readme.txt": nil, "red/b.PNG": red, "red/notes.txt": nil, "red/a/z.png": red, "blue/a.png": blue, "blue/b.png": blue, "blue/c.png": blue,
		".hidden/a.png": blue,
	} {
		path = filepath.Join(dir, path)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// read returns the first pixel and the label of each sample of an epoch.
func read(d *data.Dataset[keras.Batch], epoch int) (all []string, err error) {
	for b, err := range d.Epoch(context.Background(), epoch, 0) {
		if err != nil {
			return all, err
		}
		x, err := b.X.Values()
		if err != nil {
			return nil, err
		}
		n := b.X.Len()
		if b.X.Rank() == 4 {
			n = b.X.Dim(0)
		}
		for i := range n {
			s := fmt.Sprint(x[i*len(x)/n : i*len(x)/n+3])
			if b.Y != nil {
				y, err := b.Y.Values()
				if err != nil {
					return nil, err
				}
				s += fmt.Sprint(" ", y[i*len(y)/n:(i+1)*len(y)/n])
			}
			all = append(all, s)
		}
	}
	return all, nil
}

func TestFromDirectory(t *testing.T) {
	dir := folder(t)
	const blue, red = "[0 0 255]", "[255 0 0]"
	inOrder := data.DirectoryOptions{Shuffle: new(false)}
	small := images.Options{Height: 4, Width: 2, DirectoryOptions: inOrder}
	with := func(f func(*images.Options)) images.Options {
		o := small
		f(&o)
		return o
	}
	for name, c := range map[string]struct {
		o       images.Options
		batch   string // type of the first X and Y
		classes []string
		want    []string
	}{
		"default": {small, "float32[5 4 2 3] int32[5]", []string{"blue", "red"},
			[]string{blue + " [0]", blue + " [0]", blue + " [0]", red + " [1]", red + " [1]"}},
		"batches": {with(func(o *images.Options) { o.BatchSize = 2; o.Workers = 3 }), "float32[2 4 2 3] int32[2]", []string{"blue", "red"},
			[]string{blue + " [0]", blue + " [0]", blue + " [0]", red + " [1]", red + " [1]"}},
		"one by one, categorical": {with(func(o *images.Options) { o.BatchSize = -1; o.LabelMode = "categorical" }), "float32[4 2 3] float32[2]", []string{"blue", "red"},
			[]string{blue + " [1 0]", blue + " [1 0]", blue + " [1 0]", red + " [0 1]", red + " [0 1]"}},
		"binary, of given classes": {with(func(o *images.Options) { o.LabelMode = "binary"; o.ClassNames = []string{"red", "blue"} }), "float32[5 4 2 3] float32[5 1]", []string{"red", "blue"},
			[]string{red + " [0]", red + " [0]", blue + " [1]", blue + " [1]", blue + " [1]"}},
		"one class": {with(func(o *images.Options) { o.ClassNames = []string{"red"} }), "float32[2 4 2 3] int32[2]", []string{"red"},
			[]string{red + " [0]", red + " [0]"}},
		"none": {with(func(o *images.Options) { o.LabelMode = "none" }), "float32[5 4 2 3]", []string{"blue", "red"},
			[]string{blue, blue, blue, red, red}},
		"unlabeled": {with(func(o *images.Options) { o.Unlabeled = true }), "float32[6 4 2 3]", nil,
			[]string{blue, blue, blue, blue, red, red}},
		"training": {with(func(o *images.Options) { o.ValidationSplit, o.Subset = 0.5, "training" }), "float32[3 4 2 3] int32[3]", []string{"blue", "red"},
			[]string{blue + " [0]", blue + " [0]", blue + " [0]"}},
		"validation": {with(func(o *images.Options) { o.ValidationSplit, o.Subset = 0.5, "validation" }), "float32[2 4 2 3] int32[2]", []string{"blue", "red"},
			[]string{red + " [1]", red + " [1]"}},
	} {
		d, classes, err := images.FromDirectory(dir, c.o)
		if err != nil || !slices.Equal(classes, c.classes) {
			t.Fatalf("%s: got classes %q, %v, want %q", name, classes, err, c.classes)
		}
		for b, err := range d.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			got := b.X.Type().String()
			if b.Y != nil {
				got += " " + b.Y.Type().String()
			}
			if got != c.batch {
				t.Errorf("%s: got %s, want %s", name, got, c.batch)
			}
			break
		}
		if got, err := read(d, 0); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
	// Shuffled: other orders in other epochs, the same for the same seed; the
	// parts of a split share no file.
	found := 0
	o := images.Options{Height: 1, Width: 1, BatchSize: -1, DirectoryOptions: data.DirectoryOptions{Seed: 3, Progress: func(n int) { found = n }}}
	d, _, err := images.FromDirectory(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	orders := map[string]bool{}
	for epoch := range 10 {
		got, err := read(d, epoch)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := read(d, epoch)
		if !slices.Equal(got, again) {
			t.Errorf("epoch %d: got %q, then %q", epoch, got, again)
		}
		orders[fmt.Sprint(got)] = true
		if slices.Sort(got); !slices.Equal(got, []string{blue + " [0]", blue + " [0]", blue + " [0]", red + " [1]", red + " [1]"}) {
			t.Errorf("epoch %d: got %q", epoch, got)
		}
	}
	if len(orders) < 3 || found != 5 {
		t.Errorf("got %d orders in 10 epochs, and a report of %d files", len(orders), found)
	}
	o.ValidationSplit, o.Subset = 0.4, "training"
	a, _, err := images.FromDirectory(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Subset = "validation"
	b, _, err := images.FromDirectory(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	both, err := read(a.Concatenate(b), 0)
	if slices.Sort(both); err != nil || a.Len() != 3 || b.Len() != 2 || both[2] != blue+" [0]" || both[3] != red+" [1]" {
		t.Errorf("got %d and %d files, %q", a.Len(), b.Len(), both)
	}
}

// TestAspectRatio wants what preprocessing.Resizing, which is compared with Keras, does.
func TestAspectRatio(t *testing.T) {
	dir := t.TempDir()
	m := image.NewGray(image.Rect(0, 0, 9, 5))
	for i := range m.Pix {
		m.Pix[i] = uint8(i * 37)
	}
	err := os.WriteFile(filepath.Join(dir, "a.png"), encoded(t, png.Encode, m), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range [][2]int{{4, 4}, {3, 11}, {11, 2}} {
		for _, pad := range []bool{false, true} {
			o := images.Options{Height: size[0], Width: size[1], ColorMode: "grayscale", CropToAspectRatio: !pad, PadToAspectRatio: pad,
				DirectoryOptions: data.DirectoryOptions{Unlabeled: true}}
			d, _, err := images.FromDirectory(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			l := &preprocessing.Resizing{Height: size[0], Width: size[1], CropToAspectRatio: !pad, PadToAspectRatio: pad, DType: "float32"}
			x := make([]uint8, 45)
			copy(x, m.Pix)
			want, err := keras.Apply(l, keras.NewTensor(x, 1, 5, 9, 1)).Values()
			if err != nil {
				t.Fatal(err)
			}
			for b, err := range d.Batches() {
				if err != nil {
					t.Fatal(err)
				}
				got, err := b.X.Values()
				if err != nil || len(got) != len(want) {
					t.Fatalf("%v, pad %v: got %v, %v", size, pad, b.X.Type(), err)
				}
				for i, w := range want {
					// Two sums of float32 products of magnitude 512.
					if math.Abs(float64(got[i]-w)) > 1e-3 {
						t.Errorf("%v, pad %v: element %d: got %v, want %v", size, pad, i, got[i], w)
					}
				}
			}
		}
	}
}

func TestDirectoryErrors(t *testing.T) {
	dir := folder(t)
	if err := os.WriteFile(filepath.Join(dir, "red", "c.jpg"), []byte("no picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, _, err := images.FromDirectory(dir, images.Options{Height: 1, Width: 1, DirectoryOptions: data.DirectoryOptions{Shuffle: new(false)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = read(d, 0); err == nil || err.Error() != "Map: element 4: "+filepath.Join(dir, "red", "c.jpg")+": images: image: unknown format" {
		t.Errorf("got error %v", err)
	}
	for want, o := range map[string]images.Options{
		`images: got color mode "hsv"`:                                      {ColorMode: "hsv"},
		"images: got color mode \"rgb\" and size -1 by 256":                 {Height: -1},
		`images: Interpolation is "cubic"`:                                  {Interpolation: "cubic"},
		`images: LabelMode is "ints"`:                                       {LabelMode: "ints"},
		`images: LabelMode is "int", want int, binary, categorical or none`: {LabelMode: "int", DirectoryOptions: data.DirectoryOptions{Unlabeled: true}},
		"CropToAspectRatio and PadToAspectRatio are set, want one at most":  {CropToAspectRatio: true, PadToAspectRatio: true},
		"images: BatchSize is -2":                                           {BatchSize: -2},
		`there is no subdirectory "green" for a class; there are ["blue" "`: {DirectoryOptions: data.DirectoryOptions{ClassNames: []string{"green"}}},
		"ValidationSplit is 1, want a share":                                {DirectoryOptions: data.DirectoryOptions{ValidationSplit: 1}},
		`Subset is "" with ValidationSplit 0.5`:                             {DirectoryOptions: data.DirectoryOptions{ValidationSplit: 0.5}},
		`Subset is "training" with ValidationSplit 0`:                       {DirectoryOptions: data.DirectoryOptions{Subset: "training"}},
		"got both Unlabeled and ClassNames":                                 {DirectoryOptions: data.DirectoryOptions{Unlabeled: true, ClassNames: []string{"a"}}},
		`LabelMode is binary with classes ["red"], want two`:                {LabelMode: "binary", DirectoryOptions: data.DirectoryOptions{ClassNames: []string{"red"}}},
	} {
		if _, _, err := images.FromDirectory(dir, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	if _, _, err := images.FromDirectory(filepath.Join(dir, "red"), images.Options{DirectoryOptions: data.DirectoryOptions{ClassNames: []string{}}}); err == nil ||
		!strings.Contains(err.Error(), "there are no files in subdirectories for this dataset, want some that end in .bmp, .gif, .jpeg, .jpg, .png") {
		t.Errorf("got error %v", err)
	}
	if _, _, err := images.FromDirectory(filepath.Join(dir, "nowhere"), images.Options{}); !os.IsNotExist(err) && !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got error %v", err)
	}
}
