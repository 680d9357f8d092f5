package mnist

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// encodeIDX is the format written out independently of the reader.
func encodeIDX(magic uint32, dims []uint32, data []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, magic)
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, d)
	}
	return append(b, data...)
}

func compress(tb testing.TB, b []byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// ramp returns n bytes that differ from their neighbours.
func ramp(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func TestReadIDX(t *testing.T) {
	// More than is read at first, so that the buffer grows twice.
	data := ramp(250 * 784)
	content := encodeIDX(0x803, []uint32{250, 28, 28}, data)
	for name, file := range map[string][]byte{"plain": content, "gzip": compress(t, content)} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		dims, got, err := readIDX(path, 3, 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(dims, []int{250, 28, 28}) {
			t.Errorf("%s: got dimensions %v, want [250 28 28]", name, dims)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%s: the data differ from what was written", name)
		}
	}
}

func TestReadIDXMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent")
	if _, _, err := readIDX(path, 1, 0); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want a not-exist error naming %s", err, path)
	}
}

func TestDecodeIDXRefuses(t *testing.T) {
	good := encodeIDX(0x801, []uint32{300}, ramp(300))
	packed := compress(t, good)
	damaged := slices.Clone(packed)
	damaged[len(damaged)-6] ^= 0x40 // in the CRC-32 of the gzip trailer
	for _, c := range []struct {
		name  string
		file  []byte
		ndim  int
		want  string
		cause error
	}{
		{"empty", nil, 1, "got 0 header bytes, want 8", io.ErrUnexpectedEOF},
		{"half a header", good[:6], 1, "got 6 header bytes, want 8", io.ErrUnexpectedEOF},
		{"images for labels", encodeIDX(0x803, []uint32{1, 1, 1}, ramp(1)), 1, "got magic number 0x00000803, want 0x00000801", nil},
		{"labels for images", encodeIDX(0x801, []uint32{9}, ramp(9)), 3, "got magic number 0x00000801, want 0x00000803", nil},
		{"float32 elements", encodeIDX(0xd01, []uint32{1}, ramp(4)), 1, "got magic number 0x00000d01", nil},
		{"not IDX", []byte("<!DOCTYPE html><html>"), 1, "got magic number 0x3c21444f", nil},
		{"no elements", encodeIDX(0x801, []uint32{0}, nil), 1, "got size 0 for dimension 0", nil},
		{"truncated data", good[:100], 1, "got 92 bytes of data, want 300", io.ErrUnexpectedEOF},
		{"trailing bytes", append(slices.Clone(good), 0), 1, "got bytes after the data", nil},
		{"damaged checksum", damaged, 1, "damaged after the data", gzip.ErrChecksum},
		{"truncated gzip", packed[:len(packed)/2], 1, "truncated", io.ErrUnexpectedEOF},
		{"gzip without its trailer", packed[:len(packed)-4], 1, "damaged after the data", io.ErrUnexpectedEOF},
		{"damaged gzip header", []byte{0x1f, 0x8b, 99, 0, 0, 0, 0, 0, 0, 0}, 1, "damaged gzip header", gzip.ErrHeader},
		{"junk after gzip", append(slices.Clone(packed), "junk-junk-junk"...), 1, "damaged after the data", gzip.ErrHeader},
	} {
		_, data, err := decodeIDX("dir/some-file", bytes.NewReader(c.file), c.ndim, maxElements)
		if err == nil {
			t.Errorf("%s: got no error, want one", c.name)
			continue
		}
		if data != nil {
			t.Errorf("%s: got data with the error", c.name)
		}
		if msg := err.Error(); !strings.Contains(msg, c.want) || !strings.Contains(msg, "dir/some-file") {
			t.Errorf("%s: got %q, want it to contain %q and the file's name", c.name, msg, c.want)
		}
		if c.cause != nil && !errors.Is(err, c.cause) {
			t.Errorf("%s: got %v, want it to wrap %v", c.name, err, c.cause)
		}
	}
}

// TestDecodeIDXTakesNoMemoryOnTrust gives headers that declare far more than
// the file holds.
func TestDecodeIDXTakesNoMemoryOnTrust(t *testing.T) {
	for _, c := range []struct {
		name string
		dims []uint32
		want string
	}{
		{"over the limit", []uint32{1<<32 - 1, 28, 28}, "got size 4294967295 for dimension 0"},
		{"product over the limit", []uint32{1 << 20, 1 << 20, 1}, "got size 1048576 for dimension 1, want at least 1 and at most 268435456 elements in the file; see Options.MaxBytes"},
		{"product that wraps around", []uint32{1 << 28, 1 << 31, 8}, "got size 2147483648 for dimension 1"},
		{"just allowed", []uint32{1 << 9, 1 << 9, 1 << 10}, "got 5000 bytes of data, want 268435456"},
	} {
		file := encodeIDX(0x803, c.dims, ramp(5000))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := decodeIDX("file", bytes.NewReader(file), 3, maxElements)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.want)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: took %d bytes of memory for a file of %d", c.name, got, len(file))
		}
	}
}

// TestReadIDXMaxBytes gives a small file that unpacks to a large one.
func TestReadIDXMaxBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "train-images-idx3-ubyte.gz")
	const n = 512 << 20
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(encodeIDX(0x803, []uint32{n / 1024, 32, 32}, nil))
	if err == nil {
		_, err = io.CopyN(z, zeros{}, n)
	}
	if err := errors.Join(err, z.Close(), os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	for limit, want := range map[int64]string{0: "at most 268435456 elements", 1000: "at most 1000 elements"} {
		runtime.ReadMemStats(&before)
		_, _, err := readIDX(path, 3, limit)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("MaxBytes %d: got error %v, want %s", limit, err, want)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("MaxBytes %d: took %d bytes for a file of %d", limit, got, b.Len())
		}
	}
	// More is read when it is asked for, and of what the file really has.
	small := encodeIDX(0x801, []uint32{300}, ramp(300))
	if err := os.WriteFile(path, small, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readIDX(path, 1, 299); err == nil {
		t.Error("got no error for more than MaxBytes")
	}
	if _, _, err := readIDX(path, 1, 300); err != nil {
		t.Error(err)
	}
	if _, _, err := LoadWith(t.Context(), t.TempDir(), Options{MaxBytes: -1}); err == nil || err.Error() != "mnist: MaxBytes is -1, want a positive number" {
		t.Errorf("got error %v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func FuzzIDX(f *testing.F) {
	labels := encodeIDX(0x801, []uint32{4}, []byte{1, 2, 3, 4})
	images := encodeIDX(0x803, []uint32{2, 2, 3}, ramp(12))
	for _, b := range [][]byte{nil, labels, images, labels[:9], compress(f, images), encodeIDX(0x803, []uint32{1 << 31, 1 << 31, 4}, nil)} {
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, file []byte, three bool) {
		ndim := 1
		if three {
			ndim = 3
		}
		const limit = 1 << 16
		dims, data, err := decodeIDX("fuzz", bytes.NewReader(file), ndim, limit)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "mnist: fuzz: ") {
				t.Errorf("got error %q, want it to begin with the file's name", err)
			}
			return
		}
		// What was accepted must say the same when it is written again.
		size, wide := 1, make([]uint32, len(dims))
		for i, d := range dims {
			size *= d
			wide[i] = uint32(d)
		}
		if len(dims) != ndim || size != len(data) || size > limit {
			t.Fatalf("got dimensions %v for %d elements, want %d dimensions that agree and at most %d elements", dims, len(data), ndim, limit)
		}
		r, err := decompress(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content, encodeIDX(0x800|uint32(ndim), wide, data)) {
			t.Error("the decoded file encodes to something else")
		}
	})
}
