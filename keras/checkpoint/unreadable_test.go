package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
)

// resummed is a file with its checksum made right.
func resummed(b []byte) []byte {
	sum := sha256.Sum256(b[:len(b)-sha256.Size])
	return append(b[:len(b)-sha256.Size], sum[:]...)
}

// TestUnreadable: a newest file that cannot be read and is not damaged is neither
// passed over nor deleted.
func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("the permissions of files do not keep root out: not tried")
	}
	for what, c := range map[string]struct {
		spoil func(path string, b []byte) error
		is    error
		text  string
	}{
		"of a newer format": {func(path string, b []byte) error {
			binary.LittleEndian.PutUint32(b[len(magic):], version+1)
			return os.WriteFile(path, resummed(b), 0o644)
		}, ErrVersion, "got version 2 of the format, want 1"},
		"with a type of its own": {func(path string, b []byte) error {
			b = bytes.ReplaceAll(b, []byte(`"float32"`), []byte(`"float12"`))
			return os.WriteFile(path, resummed(b), 0o644)
		}, nil, `got "float12"`},
		"of another layout": {func(path string, b []byte) error {
			b = bytes.Replace(b, []byte(`"Epoch":9`), []byte(`"Epoch":-`), 1)
			return os.WriteFile(path, resummed(b), 0o644)
		}, nil, ""},
		"that is no file": {func(path string, b []byte) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
		}, nil, "want a regular file"},
		"that leads nowhere": {func(path string, b []byte) error {
			return errors.Join(os.Remove(path), os.Symlink(path+".elsewhere", path))
		}, fs.ErrNotExist, "no such file or directory"},
		"without permission": {func(path string, b []byte) error { return os.Chmod(path, 0) }, fs.ErrPermission, "permission denied"},
	} {
		if what == "without permission" && os.Getuid() == 0 {
			continue
		}
		t.Run(what, func(t *testing.T) {
			var log bytes.Buffer
			d := &Directory{Path: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))}
			check(t, d.Save(background, state(5, 0)))
			check(t, d.Save(background, state(9, 0)))
			path := d.file(9, 0)
			b, err := os.ReadFile(path)
			check(t, err)
			check(t, c.spoil(path, b))
			s, err := d.Load(background)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "move it away") {
				t.Errorf("got %v, %v, want an error that names %s, %q and the cure", s, err, path, c.text)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("errors.Is does not find %v in %v", c.is, err)
			}
			if log.Len() > 0 {
				t.Errorf("got log %s", &log)
			}

			// Nor does a training that has begun elsewhere delete it.
			check(t, d.Save(background, state(6, 0)))
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("deleted by Save: %v", err)
			}
			if !strings.Contains(log.String(), "checkpoint kept: it cannot be read") {
				t.Errorf("got log %s, want a warning", &log)
			}
			check(t, os.Rename(path, filepath.Join(d.Path, "aside")))
			if s, err = d.Load(background); err != nil || s.Epoch != 6 {
				t.Errorf("moved away: got %v, %v, want epoch 6", s, err)
			}
		})
	}
}

// TestDamagedAnywhere: with any byte of the newest file changed, or the file cut
// anywhere, the one before it is loaded, and the log tells. The version alone is
// believed.
func TestDamagedAnywhere(t *testing.T) {
	var log bytes.Buffer
	d := &Directory{Path: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	check(t, d.Save(background, state(5, 0)))
	check(t, d.Save(background, state(9, 0)))
	path := d.file(9, 0)
	b, err := os.ReadFile(path)
	check(t, err)
	try := func(what string, at int, b []byte) {
		log.Reset()
		check(t, os.WriteFile(path, b, 0o644))
		if s, err := d.Load(background); err != nil || s.Epoch != 5 || !strings.Contains(log.String(), "checkpoint passed over") {
			t.Fatalf("%s %d: got %v, %v and log %s, want epoch 5", what, at, s, err, &log)
		}
	}
	for i := range b {
		try("cut at byte", i, b[:i])
		if i >= len(magic) && i < len(magic)+4 {
			continue
		}
		spoilt := bytes.Clone(b)
		spoilt[i] ^= 0x10
		try("changed byte", i, spoilt)
	}
	check(t, d.Save(background, state(6, 0))) // which removes what is damaged
	if got := names(t, d.Path); slices.Contains(got, filepath.Base(path)) {
		t.Errorf("got files %q", got)
	}
}

// stuck is a file system on which some files cannot be removed.
type stuck struct {
	atomicfile.System
	path string
}

func (s stuck) Remove(path string) error {
	if path == s.path {
		return &os.PathError{Op: "remove", Path: path, Err: fs.ErrPermission}
	}
	return s.System.Remove(path)
}

// TestOldFileStays: an old file that cannot be removed is a warning, one that a
// resumed training would go on from an error.
func TestOldFileStays(t *testing.T) {
	var log bytes.Buffer
	d := &Directory{Path: t.TempDir(), Keep: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	d.files = stuck{path: d.file(1, 0)}
	s := settings()["float32, Adam, schedule, averages"]
	want, err := s.run(t, nil, 0)
	check(t, err)
	got, err := s.run(t, d, 0)
	check(t, err)
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if !strings.Contains(log.String(), "level=WARN msg=\"checkpoint not removed\" file="+d.file(1, 0)) {
		t.Errorf("got log %s, want a warning for %s", &log, d.file(1, 0))
	}
	all := names(t, d.Path)
	if len(all) != 2 || all[0] != filepath.Base(d.file(1, 0)) {
		t.Errorf("got files %q, want the one that cannot be removed and the last", all)
	}
	d = &Directory{Path: t.TempDir()}
	check(t, d.Save(background, state(7, 0)))
	d.files = stuck{path: d.file(7, 0)}
	if err := d.Save(background, state(3, 0)); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a state further ahead stays: got %v, want an error", err)
	}
}
