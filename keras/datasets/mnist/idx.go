package mnist

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// The IDX format: two zero bytes, a type code, the number of dimensions, each
// dimension as a big-endian uint32, then the elements in row-major order
// (LeCun, Cortes and Burges, "The MNIST database of handwritten digits").
const typeUbyte = 0x08

// maxElements is how many bytes of data a file may hold by default, or as many
// as it has itself. MNIST's largest has 47 million; gzip packs a thousand bytes
// of zeros into one.
const maxElements = 256 << 20

// readIDX reads an IDX file of unsigned bytes with ndim dimensions, compressed
// with gzip or not (the content decides, not the name), and returns its
// dimensions and elements, at most limit (0: maxElements).
func readIDX(path string, ndim int, limit int64) (dims []int, data []byte, err error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("mnist: %w", err)
	}
	defer f.Close()
	if limit == 0 {
		limit = max(maxElements, size)
	}
	return decodeIDX(path, f, ndim, int(min(limit, math.MaxInt)))
}

// decodeIDX decodes one IDX file of at most limit elements; name stands in
// errors. Everything a header declares is checked before memory is taken.
func decodeIDX(name string, src io.Reader, ndim, limit int) (dims []int, data []byte, err error) {
	r, err := decompress(src)
	if err != nil {
		return nil, nil, fmt.Errorf("mnist: %s: %w", name, err)
	}
	header := make([]byte, 4+4*ndim)
	if n, err := io.ReadFull(r, header); err != nil {
		return nil, nil, fmt.Errorf("mnist: %s: %w", name, safeio.Error(err, "header bytes", n, len(header)))
	}
	want := uint32(typeUbyte)<<8 | uint32(ndim)
	if got := binary.BigEndian.Uint32(header); got != want {
		return nil, nil, fmt.Errorf("mnist: %s: got magic number %#08x, want %#08x (IDX, unsigned bytes, %d dimensions)", name, got, want, ndim)
	}
	dims = make([]int, ndim)
	size := 1
	for i := range dims {
		d := binary.BigEndian.Uint32(header[4+4*i:])
		if d == 0 || uint64(d) > uint64(limit/size) {
			return nil, nil, fmt.Errorf("mnist: %s: got size %d for dimension %d, want at least 1 and at most %d elements in the file; see Options.MaxBytes", name, d, i, limit)
		}
		dims[i] = int(d)
		size *= int(d)
	}
	data, err = safeio.Read(r, size, "bytes of data")
	if err != nil {
		return nil, nil, fmt.Errorf("mnist: %s: %w", name, err)
	}
	// Reading on also makes gzip compare its checksum.
	switch n, err := io.ReadFull(r, header[:1]); {
	case n > 0:
		return nil, nil, fmt.Errorf("mnist: %s: got bytes after the data, want the file to end after %d elements of shape %v", name, size, dims)
	case err != io.EOF:
		return nil, nil, fmt.Errorf("mnist: %s: damaged after the data: %w", name, err)
	}
	return dims, data, nil
}

// decompress returns a reader of src's content, decompressed when it begins as
// gzip does. An IDX file begins with two zero bytes, so the two cannot be
// confused.
func decompress(src io.Reader) (io.Reader, error) {
	r := bufio.NewReader(src)
	if start, _ := r.Peek(2); len(start) < 2 || start[0] != 0x1f || start[1] != 0x8b {
		return r, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("got a damaged gzip header, want gzip or plain IDX: %w", err)
	}
	return z, nil
}
