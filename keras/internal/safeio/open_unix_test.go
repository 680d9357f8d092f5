//go:build unix

package safeio_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// TestOpen opens what is no regular file: an error that says what it is.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("unix", path("socket")); err == nil {
		defer l.Close()
	}
	if err := os.WriteFile(path("file"), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fifo", "file"} {
		if err := os.Symlink(path(name), path("link-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"fifo": "a named pipe", "link-fifo": "a named pipe", "socket": "a socket", "": "a directory", "/dev/null": "a device",
	} {
		file := path(name)
		if strings.HasPrefix(name, "/") {
			file = name
		}
		f, _, err := safeio.Open(file)
		if want := "open " + file + ": it is " + want + ", want a regular file"; err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
			f.Close()
		}
	}
	for _, name := range []string{"file", "link-file"} {
		f, size, err := safeio.Open(path(name))
		if err != nil || size != 3 {
			t.Errorf("%s: got size %d, error %v", name, size, err)
		}
		f.Close()
	}
	if _, _, err := safeio.Open(path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v, want that there is no file", err)
	}
}

// TestOpenOfChangingName opens a name that is a file and a pipe in turn.
func TestOpenOfChangingName(t *testing.T) {
	dir := t.TempDir()
	name, file, fifo := filepath.Join(dir, "name"), filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for i := 0; !stop.Load(); i++ {
			tmp := filepath.Join(dir, "tmp")
			os.Link([]string{file, fifo}[i%2], tmp)
			os.Rename(tmp, name)
			os.Remove(tmp) // rename leaves it if both are one file
		}
	}()
	for begin := time.Now(); time.Since(begin) < 100*time.Millisecond; {
		if f, _, err := safeio.Open(name); err == nil {
			f.Close()
		}
	}
	stop.Store(true)
	<-ended
}
