package safeio

import (
	"fmt"
	"io/fs"
	"os"
)

// Open opens a regular file for reading and returns its size. Anything else is
// an error that names the file and says what it is. Open never waits: a named
// pipe without a writer would hold os.Open for ever, and no context ends it.
func Open(path string) (*os.File, int64, error) {
	// Opening a device may have effects, so the name is looked at first.
	info, err := os.Stat(path)
	if err == nil {
		err = Regular(path, info.Mode())
	}
	if err != nil {
		return nil, 0, err
	}
	// Another file may have the name by now. With nonblock, opening a pipe returns.
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err == nil {
		err = Regular(path, info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// Regular returns an error, a *fs.PathError, if the mode of the file at path is
// not that of a regular file.
func Regular(path string, mode fs.FileMode) error {
	if mode.IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("it is %s, want a regular file", kind(mode))}
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "no file with content"
}

// OpenIn is Open of a file in a directory: of a name that stands in a file. Names that
// lead out of the directory, by .. or by symbolic links, are errors.
func OpenIn(dir, name string) (*os.File, int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	info, err := root.Stat(name)
	if err == nil {
		err = Regular(name, info.Mode())
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err == nil {
		err = Regular(name, info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}
