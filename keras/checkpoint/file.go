package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// files is what is needed of a file system to write; tests give one that
// fails.
type files interface {
	Create(path string) (file, error)
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(path string) error
}

type file interface {
	io.WriteCloser
	Sync() error
}

// system is the file system of the machine.
type system struct{}

func (system) Create(path string) (file, error) { return os.Create(path) }
func (system) Rename(from, to string) error     { return os.Rename(from, to) }
func (system) Remove(path string) error         { return os.Remove(path) }

// SyncDir brings the names in a directory to the disk.
func (system) SyncDir(path string) error {
	if runtime.GOOS == "windows" { // it has no such call
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// unfinished ends the names of files that are being written.
const unfinished = ".tmp"

// write makes the file at path, or replaces it, in such a way that there is
// always the old one or the new one.
func write(fs files, path, kind string, meta any, parts []Part) error {
	f := &File{Kind: kind, Parts: parts}
	if meta != nil {
		var err error
		if f.Meta, err = json.Marshal(meta); err != nil {
			return fmt.Errorf("checkpoint: %s: %w", path, err)
		}
	}
	tmp := path + unfinished
	err := store(fs, tmp, f)
	if err == nil {
		err = fs.Rename(tmp, path)
	}
	if err != nil {
		fs.Remove(tmp) // it may not be there
		return fmt.Errorf("checkpoint: %s: cannot save: %w", path, bare(err))
	}
	if err := fs.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("checkpoint: %s: cannot save: %w", path, bare(err))
	}
	return nil
}

func store(fs files, path string, f *File) (err error) {
	out, err := fs.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := out.Close(); err == nil {
			err = e
		}
	}()
	if err := Write(out, f); err != nil {
		return err
	}
	return out.Sync()
}

// bare is the cause in an error of package os, whose path is that of an
// unfinished file.
func bare(err error) error {
	var p *os.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}

// open reads a file of one of the kinds.
func open(path string, kinds ...string) (*File, error) {
	f, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", path, bare(err))
	}
	if !slices.Contains(kinds, f.Kind) {
		return nil, fmt.Errorf("checkpoint: %s: it holds %s, want %s", path, f.Kind, strings.Join(kinds, " or "))
	}
	return f, nil
}

func readFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	return Read(f, info.Size())
}
