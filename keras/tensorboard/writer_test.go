package tensorboard

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras/exponents"
)

// TestFile compares a file byte by byte with one that TensorBoard's own reader
// has decoded (testdata/check.py does).
func TestFile(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "a", "train"))
	if err != nil {
		t.Fatal(err)
	}
	if base := filepath.Base(w.Path()); !strings.HasPrefix(base, "events.out.tfevents.") {
		t.Errorf("got file %s", base)
	}
	w.now = func() time.Time { return time.Unix(1, 5e8) }
	write(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Scalar("a", 1, 2); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: got error %v", err)
	}
	got, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/events.hex")
	if err != nil {
		t.Fatal(err)
	}
	// The first event has the time when the file was made.
	first := 16 + int(binary.LittleEndian.Uint64(got))
	if text := hex.EncodeToString(got[first:]); text != strings.ReplaceAll(string(want), "\n", "") {
		t.Errorf("got\n%s", text)
	}
}

// write is what events.hex has: one of each.
func write(w *Writer) {
	w.Scalar("epoch_loss", 0, 0.5)
	w.Scalar("epoch_loss", 1, math.NaN())
	w.Histogram("kernel", 3, []float32{-1, 0, 0.5, 2, float32(math.Inf(1))})
	w.Exponents("exponents", 1<<40, histogram(0, 1, -1.5, 0x1p-20))
	w.Text("note", 2, "**bold**")
	w.Model("keras", 0, []byte(`{"class_name": "Sequential"}`))
}

func histogram(values ...float32) *exponents.Histogram {
	h := &exponents.Histogram{}
	h.Add(values...)
	return h
}

func TestBuckets(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	if got := buckets([]float32{nan, inf, -inf}); got != nil {
		t.Errorf("of nothing finite: got %v", got)
	}
	if got, want := buckets([]float32{3, nan, 3}), []Bucket{{2.5, 3.5, 2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("of one value: got %v, want %v", got, want)
	}
	got := buckets([]float32{0, 1, 15, 29.5, 30, 30})
	if len(got) != 30 || got[0] != (Bucket{0, 1, 1}) || got[1] != (Bucket{1, 2, 1}) || got[15].Count != 1 || got[29] != (Bucket{29, 30, 3}) {
		t.Errorf("got %v", got)
	}
	// A range that float64 holds and float32 does not.
	got = buckets([]float32{-math.MaxFloat32, math.MaxFloat32})
	if got[0].Count != 1 || got[29].Count != 1 || math.IsInf(got[29].Right, 0) {
		t.Errorf("of the largest numbers: got %v", got)
	}
}

func TestBinades(t *testing.T) {
	got := binades(histogram(0, 1, -1.5, 0.25, float32(math.Inf(1)))) // the axis is that of float16
	if len(got) != 40 || got[0] != (Bucket{-24, -23, 0}) || got[22] != (Bucket{-2, -1, 1}) || got[24] != (Bucket{0, 1, 2}) || got[39] != (Bucket{15, 16, 0}) {
		t.Errorf("got %v", got)
	}
	got = binades(histogram(math.SmallestNonzeroFloat32, math.MaxFloat32))
	if len(got) != 128+149 || got[0] != (Bucket{-149, -148, 1}) || got[len(got)-1] != (Bucket{127, 128, 1}) {
		t.Errorf("from %v to %v", got[0], got[len(got)-1])
	}
	if got := binades(histogram()); got != nil {
		t.Errorf("of nothing: got %v", got)
	}
}

// TestErrors: what cannot be written is said, and stays said.
func TestErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(filepath.Join(file, "train")); err == nil || !strings.HasPrefix(err.Error(), "tensorboard: ") {
		t.Errorf("a directory under a file: got error %v", err)
	}
	w, err := Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w.file.Close()
	w.Text("a", 1, "b")
	for range 2 {
		if err := w.Flush(); err == nil || !strings.Contains(err.Error(), w.Path()) {
			t.Errorf("got error %v, want one that names the file", err)
		}
	}
}
