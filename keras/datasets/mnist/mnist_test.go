package mnist

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeSet fills a directory with a small set of files under the given
// spelling and returns it with the contents of the four files' data.
func writeSet(t *testing.T, train, test int, spell func(dataFile) string) (dir string, data [4][]byte) {
	t.Helper()
	dir = t.TempDir()
	for i, f := range dataFiles() {
		n := train
		if i >= 2 {
			n = test
		}
		var content []byte
		if i%2 == 0 {
			data[i] = ramp(n * pixels)
			content = encodeIDX(0x803, []uint32{uint32(n), 28, 28}, data[i])
		} else {
			data[i] = make([]byte, n)
			for k := range data[i] {
				data[i][k] = byte(k % 10)
			}
			content = encodeIDX(0x801, []uint32{uint32(n)}, data[i])
		}
		name := spell(f)
		if strings.HasSuffix(name, ".gz") {
			content = compress(t, content)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, data
}

func TestRawReadsEverySpelling(t *testing.T) {
	for k := range 4 {
		dir, want := writeSet(t, 12, 5, func(f dataFile) string { return f.names()[k] })
		a, b, c, d, err := raw(context.Background(), dir, Options{})
		if err != nil {
			t.Fatalf("spelling %d: %v", k, err)
		}
		for i, got := range [][]byte{a, b, c, d} {
			if !bytes.Equal(got, want[i]) {
				t.Errorf("spelling %d: content of file %d differs", k, i)
			}
		}
	}
}

func TestRawRefusesInconsistentFiles(t *testing.T) {
	gz := func(f dataFile) string { return f.names()[0] }
	for _, c := range []struct {
		name, file string
		content    []byte // nil removes the file
		want       string
	}{
		{"missing", "t10k-labels-idx1-ubyte.gz", nil, "want one of t10k-labels-idx1-ubyte.gz, t10k-labels.idx1-ubyte.gz"},
		{"other size", "train-images-idx3-ubyte.gz", encodeIDX(0x803, []uint32{12, 32, 28}, ramp(12*32*28)), "got images of 32x28 pixels, want 28x28"},
		{"fewer labels", "train-labels-idx1-ubyte.gz", encodeIDX(0x801, []uint32{11}, make([]byte, 11)), "got 11 labels, want 12"},
		{"label 10", "t10k-labels-idx1-ubyte.gz", encodeIDX(0x801, []uint32{5}, []byte{0, 9, 3, 10, 1}), "got label 10 at index 3, want 0 to 9"},
	} {
		dir, _ := writeSet(t, 12, 5, gz)
		path := filepath.Join(dir, c.file)
		var err error
		if c.content == nil {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, compress(t, c.content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _, _, _, err = raw(context.Background(), dir, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got error %v, want %q and the directory", c.name, err, c.want)
		}
		if c.content == nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want it to wrap fs.ErrNotExist", c.name, err)
		}
	}
}

// TestRealFiles checks the checksums in this package against a copy of the
// original files in the directory named by MEZZO_MNIST_DIR.
func TestRealFiles(t *testing.T) {
	dir := os.Getenv("MEZZO_MNIST_DIR")
	if dir == "" {
		t.Skip("MEZZO_MNIST_DIR names no directory of the original files")
	}
	for _, f := range dataFiles() {
		path, err := f.find(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := contentSum(path); err != nil || got != f.sum {
			t.Errorf("%s: got SHA-256 %s and error %v, want %s", path, got, err, f.sum)
		}
	}
	trainImages, trainLabels, testImages, testLabels, err := raw(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(trainImages) != 60000*784 || len(trainLabels) != 60000 || len(testImages) != 10000*784 || len(testLabels) != 10000 {
		t.Errorf("got %d, %d, %d, %d bytes, want those of 60,000 and 10,000 images", len(trainImages), len(trainLabels), len(testImages), len(testLabels))
	}
	if !bytes.Equal(trainLabels[:5], []byte{5, 0, 4, 1, 9}) || !bytes.Equal(testLabels[:5], []byte{7, 2, 1, 0, 4}) {
		t.Errorf("got first labels %v and %v, want [5 0 4 1 9] and [7 2 1 0 4]", trainLabels[:5], testLabels[:5])
	}
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
