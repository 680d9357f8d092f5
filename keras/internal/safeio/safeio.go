// Package safeio reads files that are not trusted: memory is taken for data
// that has arrived, not for what a header says of it.
package safeio

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// firstRead is how much memory is taken on the word of a header alone; beyond
// it memory grows with the data.
const firstRead = 64 << 10

// Read reads exactly size bytes; what stands in errors.
func Read(r io.Reader, size int, what string) ([]byte, error) {
	b := make([]byte, min(size, firstRead))
	for have := 0; ; {
		n, err := io.ReadFull(r, b[have:])
		if have += n; err != nil {
			return nil, Error(err, what, have, size)
		}
		if have == size {
			return b, nil
		}
		grown := make([]byte, min(size, 2*len(b)))
		copy(grown, b)
		b = grown
	}
}

// Error says how much of what was there when reading ended early.
func Error(err error, what string, got, want int) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("truncated: got %d %s, want %d: %w", got, what, want, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("got %d %s, want %d: %w", got, what, want, err)
}

// maxMembers is how many files a zip archive may hold.
const maxMembers = 10_000

// IsZip reports whether a file begins as zip archives do.
func IsZip(r io.ReaderAt) bool {
	b := make([]byte, 4)
	n, _ := r.ReadAt(b, 0)
	return n == 4 && string(b) == "PK\x03\x04"
}

// Name checks the name of a member of an archive.
func Name(name string) error {
	if path.Clean("/" + name)[1:] != strings.TrimSuffix(name, "/") || strings.ContainsAny(name, "\\:\x00") {
		return fmt.Errorf("got a member named %s, which points out of the archive", Quote(name))
	}
	return nil
}

// Zip opens a zip archive and checks what it says about its members. None of
// them is ever written to a disk, but one that tries to get somewhere else
// shows what the file is.
func Zip(r io.ReaderAt, size int64) (map[string]*zip.File, error) {
	if size < 4 || !IsZip(r) {
		return nil, errors.New("it does not start as a zip archive does")
	}
	z, err := zip.NewReader(r, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, err
	}
	if len(z.File) > maxMembers {
		return nil, fmt.Errorf("got an archive of %d members, want at most %d", len(z.File), maxMembers)
	}
	members := map[string]*zip.File{}
	for _, f := range z.File {
		if err := Name(f.Name); err != nil {
			return nil, err
		}
		if members[f.Name] != nil {
			return nil, fmt.Errorf("got two members named %s", Quote(f.Name))
		}
		members[f.Name] = f
	}
	return members, nil
}
