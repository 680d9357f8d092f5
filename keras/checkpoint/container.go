package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// The format, all numbers little-endian:
//
//	8 bytes   magic
//	4 bytes   version
//	4 bytes   length of the header
//	…         header: JSON
//	…         arrays, in the header's order, each after zeros up to a multiple of 64 bytes
//	32 bytes  SHA-256 of everything before
//
// What the file holds besides is nothing, so its size follows from the header.
const (
	magic     = "\x89MEZZO\r\n" // no text, and spoilt by what spoils text
	version   = 1
	fixed     = len(magic) + 8
	alignment = 64
	maxHeader = 64 << 20
	maxRank   = 32
	chunk     = 1 << 20 // bytes that are worth a goroutine
)

// Part is a named group of arrays in a file.
type Part struct {
	Name   string
	Arrays []keras.Array
}

// File is what a checkpoint file holds.
type File struct {
	Kind  string          // what it is for: "training", "weights", "variables"
	Meta  json.RawMessage // of any form
	Parts []Part
}

type header struct {
	Kind  string          `json:"kind"`
	Meta  json.RawMessage `json:"meta,omitempty"`
	Parts []headerPart    `json:"parts"`
}

type headerPart struct {
	Name   string        `json:"name"`
	Arrays []headerArray `json:"arrays"`
}

type headerArray struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

// padding is how many zeros bring n to a multiple of the alignment.
func padding(n int64) int64 { return -n & (alignment - 1) }

// Write writes a file.
func Write(w io.Writer, f *File) error {
	h := header{Kind: f.Kind, Meta: f.Meta, Parts: []headerPart{}}
	for _, p := range f.Parts {
		part := headerPart{Name: p.Name, Arrays: []headerArray{}}
		for _, a := range p.Arrays {
			if len(a.Data) != a.Type.Bytes() {
				return fmt.Errorf("array %s: got %d bytes, want %d for %v", a.Name, len(a.Data), a.Type.Bytes(), a.Type)
			}
			part.Arrays = append(part.Arrays, headerArray{a.Name, a.Type.DType.String(), append([]int{}, a.Type.Shape...)})
		}
		h.Parts = append(h.Parts, part)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > maxHeader {
		return fmt.Errorf("header: got %d bytes, want at most %d", len(text), maxHeader)
	}
	sum := sha256.New()
	out := &aligned{w: both{w, sum}}
	start := binary.LittleEndian.AppendUint32([]byte(magic), version)
	start = binary.LittleEndian.AppendUint32(start, uint32(len(text)))
	if err := out.write(append(start, text...)); err != nil {
		return err
	}
	for _, p := range f.Parts {
		for _, a := range p.Arrays {
			if err := out.align(); err != nil {
				return err
			}
			if err := out.write(a.Data); err != nil {
				return err
			}
		}
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// both is a file and its checksum, which is as slow as a disk: large writes go
// to the two at the same time.
type both struct {
	file io.Writer
	sum  hash.Hash
}

func (b both) Write(p []byte) (int, error) {
	if len(p) < chunk {
		b.sum.Write(p)
		return b.file.Write(p)
	}
	done := make(chan struct{})
	go func() {
		b.sum.Write(p)
		close(done)
	}()
	n, err := b.file.Write(p)
	<-done
	return n, err
}

// aligned is a writer that knows where it is.
type aligned struct {
	w io.Writer
	n int64
}

func (a *aligned) write(b []byte) error {
	n, err := a.w.Write(b)
	a.n += int64(n)
	return err
}

func (a *aligned) align() error { return a.write(make([]byte, padding(a.n))) }

// Read reads a file of so many bytes. It takes memory for what the header
// announces only when that makes up the file exactly, and returns nothing of a
// file whose checksum is wrong.
func Read(r io.ReaderAt, size int64) (*File, error) {
	if least := int64(fixed + sha256.Size); size < least {
		return nil, fmt.Errorf("got %d bytes, want %d or more; %w", size, least, ErrNoCheckpoint)
	}
	sum := sha256.New()
	in := &reader{r: io.NewSectionReader(r, 0, size-sha256.Size), sum: sum}
	defer in.wait()
	start := in.bytes(int64(fixed))
	switch {
	case in.err != nil:
		return nil, in.err
	case string(start[:len(magic)]) != magic:
		return nil, fmt.Errorf("it starts with %q, want %q; %w", start[:len(magic)], magic, ErrNoCheckpoint)
	}
	if v := binary.LittleEndian.Uint32(start[len(magic):]); v != version {
		return nil, fmt.Errorf("got version %d of the format, want %d; %w", v, version, ErrVersion)
	}
	n := int64(binary.LittleEndian.Uint32(start[len(magic)+4:]))
	if room := min(size-int64(fixed)-sha256.Size, maxHeader); n > room {
		return nil, spoilt(r, size, fmt.Errorf("header: got %d bytes, want at most %d", n, room))
	}
	text := in.bytes(n)
	if in.err != nil {
		return nil, in.err
	}
	var h header
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, spoilt(r, size, fmt.Errorf("header: %w", err))
	}
	parts, err := h.layout(in.n, size-sha256.Size)
	if err != nil {
		return nil, spoilt(r, size, err)
	}
	for _, p := range parts {
		for i := range p.Arrays {
			a := &p.Arrays[i]
			if zeros := in.bytes(padding(in.n)); len(bytes.Trim(zeros, "\x00")) > 0 {
				return nil, fmt.Errorf("array %s: what comes before it is not zero; %w", safeio.Text(a.Name), ErrDamaged)
			}
			a.Data = in.bytes(int64(a.Type.Bytes()))
		}
	}
	if in.err != nil {
		return nil, in.err
	}
	in.wait()
	if err := compare(r, size, sum); err != nil {
		return nil, err
	}
	return &File{Kind: h.Kind, Meta: h.Meta, Parts: parts}, nil
}

// compare checks the sum at the end of the file.
func compare(r io.ReaderAt, size int64, sum hash.Hash) error {
	var want [sha256.Size]byte
	if _, err := io.ReadFull(io.NewSectionReader(r, size-sha256.Size, sha256.Size), want[:]); err != nil {
		return err
	}
	if got := sum.Sum(nil); !bytes.Equal(got, want[:]) {
		return fmt.Errorf("got SHA-256 %x, want %x; %w", got, want, ErrDamaged)
	}
	return nil
}

// spoilt is err, of what the header says, with ErrDamaged if the checksum is
// wrong: else the header is as it was written.
func spoilt(r io.ReaderAt, size int64, err error) error {
	if errors.Is(err, ErrTruncated) {
		return err
	}
	sum := sha256.New()
	if _, e := io.Copy(sum, io.NewSectionReader(r, 0, size-sha256.Size)); e != nil {
		return fmt.Errorf("%w; %w", err, e)
	}
	if e := compare(r, size, sum); errors.Is(e, ErrDamaged) {
		return fmt.Errorf("%w; %w", err, ErrDamaged)
	} else if e != nil {
		return fmt.Errorf("%w; %w", err, e)
	}
	return err
}

// layout gives the arrays of the header their types, without data. They start
// behind the header, at n, and must end at end.
func (h *header) layout(n, end int64) ([]Part, error) {
	parts := make([]Part, len(h.Parts))
	for i, p := range h.Parts {
		parts[i] = Part{Name: p.Name, Arrays: make([]keras.Array, len(p.Arrays))}
		for k, a := range p.Arrays {
			d, err := dtype.Parse(a.DType)
			if err != nil {
				return nil, fmt.Errorf("array %s: %w", safeio.Text(a.Name), err)
			}
			if len(a.Shape) > maxRank {
				return nil, fmt.Errorf("array %s: got %d axes, want at most %d", safeio.Text(a.Name), len(a.Shape), maxRank)
			}
			size := int64(d.Size())
			for _, s := range a.Shape {
				if s < 0 {
					return nil, fmt.Errorf("array %s: got shape %v, want sizes of 0 or more", safeio.Text(a.Name), a.Shape)
				}
				if s > 0 && size > end/int64(s) {
					return nil, fmt.Errorf("array %s: %s%v is larger than the file", safeio.Text(a.Name), d, a.Shape)
				}
				size *= int64(s)
			}
			if n += padding(n) + size; n > end {
				return nil, fmt.Errorf("array %s: got a file of %d bytes, want %d or more; %w", safeio.Text(a.Name), end+sha256.Size, n+sha256.Size, ErrTruncated)
			}
			parts[i].Arrays[k] = keras.Array{Name: a.Name, Type: op.Type{DType: d, Shape: op.Shape(a.Shape)}}
		}
	}
	if n != end {
		return nil, fmt.Errorf("got %d bytes, want %d as the header says", end+sha256.Size, n+sha256.Size)
	}
	return parts, nil
}

// reader reads on until the first error, and adds what it has read to the
// checksum while it reads on.
type reader struct {
	r       io.Reader
	n       int64
	err     error
	sum     hash.Hash
	summing chan struct{} // closed when sum has all but what is read next
}

func (r *reader) bytes(n int64) []byte {
	if r.err != nil {
		return nil
	}
	b := make([]byte, n)
	for rest := b; len(rest) > 0 && r.err == nil; {
		part := rest[:min(len(rest), chunk)]
		rest = rest[len(part):]
		var got int
		got, r.err = io.ReadFull(r.r, part)
		r.n += int64(got)
		r.wait()
		if got < chunk {
			r.sum.Write(part[:got])
			continue
		}
		summing := make(chan struct{})
		r.summing = summing
		go func() {
			r.sum.Write(part)
			close(summing)
		}()
	}
	return b
}

// wait until the checksum has all that was read.
func (r *reader) wait() {
	if r.summing != nil {
		<-r.summing
		r.summing = nil
	}
}
