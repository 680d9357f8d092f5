package images_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/keras/data/images"
)

// claiming is a PNG of some 100 bytes that says it is as large as this, with 16
// bits of red, green, blue and alpha.
func claiming(t testing.TB, height, width int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewNRGBA64(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	binary.BigEndian.PutUint32(file[16:], uint32(width))
	binary.BigEndian.PutUint32(file[20:], uint32(height))
	binary.BigEndian.PutUint32(file[29:], crc32.ChecksumIEEE(file[12:29]))
	return file
}

// taken returns how many bytes f takes, those of the collector's too.
func taken(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestPicturesThatClaimPixels reads small files that say they are large: an
// error before memory is taken.
func TestPicturesThatClaimPixels(t *testing.T) {
	for _, c := range []struct {
		height, width, most int
		pad                 bool
		want                string
	}{
		{1 << 14, 1 << 14, 0, false, "picture of 16384 by 16384 pixels, want at most 67108864 pixels; see MaxPixels"},
		{1000, 1001, 1_000_000, false, "picture of 1000 by 1001 pixels, want at most 1000000 pixels; see MaxPixels"},
		{1, 1 << 24, 0, false, "picture of 1 by 16777216 pixels: resizing it to 256 by 256 takes 10737418496 numbers, want at most 67108864; see MaxPixels"},
		{1 << 24, 1, 0, false, "picture of 16777216 by 1 pixels: resizing it to 256 by 256 takes 4294967936 numbers, want at most 67108864; see MaxPixels"},
		{1, 10_000, 0, true, "filled up to 10000 by 10000 pixels, want at most 67108864 pixels; see MaxPixels"},
	} {
		dir := t.TempDir()
		for i := range 8 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".png")), claiming(t, c.height, c.width), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		used := taken(func() {
			d, _, err2 := images.FromDirectory(dir, images.Options{Workers: 8, MaxPixels: c.most, PadToAspectRatio: c.pad, DirectoryOptions: data.DirectoryOptions{Unlabeled: true}})
			if err = err2; err == nil {
				_, err = d.Collect(t.Context())
			}
		})
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%d by %d: got error %v, want %s", c.height, c.width, err, c.want)
		}
		if used > 32<<20 {
			t.Errorf("%d by %d: took %d MiB", c.height, c.width, used>>20)
		}
		if c.most == 0 && c.height*c.width > images.MaxPixels {
			if _, err := images.Decode(bytes.NewReader(claiming(t, c.height, c.width)), "rgb"); err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got error %v, want %s", err, c.want)
			}
		}
	}
	if _, _, err := images.FromDirectory(t.TempDir(), images.Options{MaxPixels: -1}); err == nil || err.Error() != "images: MaxPixels is -1, want a positive number" {
		t.Errorf("got error %v", err)
	}
	if _, err := images.Decode(bytes.NewReader(encoded(t, png.Encode, picture(color.NRGBA{}))), "rgb", 1); err == nil || !strings.HasSuffix(err.Error(), "want at most 1 pixels; see MaxPixels") {
		t.Errorf("got error %v, want one about the pixels", err)
	}
	if _, err := (&images.Image{Height: 1, Width: 1 << 24, Channels: 1, Pixels: make([]uint8, 1<<24)}).Resize(256, 256, "area"); err == nil || !strings.HasPrefix(err.Error(), "images: picture of 1 by 16777216 pixels: resizing") {
		t.Errorf("got error %v, want one about resizing", err)
	}
}

// TestMaxPixelsOfWorkers reads pictures of which only one fits in at a time: as
// without a limit.
func TestMaxPixelsOfWorkers(t *testing.T) {
	dir := folder(t)
	var all [2][]string
	for i, most := range []int{0, 30} {
		d, _, err := images.FromDirectory(dir, images.Options{Height: 2, Width: 2, Workers: 8, MaxPixels: most})
		if err != nil {
			t.Fatal(err)
		}
		if all[i], err = read(d, 0); err != nil {
			t.Fatal(err)
		}
	}
	if len(all[0]) != 5 || !slices.Equal(all[0], all[1]) {
		t.Errorf("got %v, want %v", all[1], all[0])
	}
}
