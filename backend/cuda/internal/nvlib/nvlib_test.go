package nvlib

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCandidates: names come in their order, and directories of the setting
// before others.
func TestCandidates(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"libx.so.1", "libx.so.2"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"libx.so.3", "libx.so.2", "libx.so.1"}
	want := []string{"libx.so.3", filepath.Join(dir, "libx.so.2"), "libx.so.2", filepath.Join(dir, "libx.so.1"), "libx.so.1"}
	if got := Candidates("/nowhere:"+dir, names); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Candidates("", names); !slices.Equal(got, names) {
		t.Errorf("without a setting: %v", got)
	}
}

// TestPythons: libraries are found among the packages of an environment of Python that
// is active, and of the python3 that PATH finds.
func TestPythons(t *testing.T) {
	for _, setting := range []string{"VIRTUAL_ENV", "PATH"} {
		dir := t.TempDir()
		lib := filepath.Join(dir, "lib", "python3.12", "site-packages", "nvidia", "x", "lib")
		if err := errors.Join(os.MkdirAll(lib, 0o755), os.Mkdir(filepath.Join(dir, "bin"), 0o755)); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{filepath.Join(lib, "libx.so.3"), filepath.Join(dir, "bin", "python3")} {
			if err := os.WriteFile(file, nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("VIRTUAL_ENV", "")
		t.Setenv("PATH", "")
		t.Setenv(setting, map[string]string{"VIRTUAL_ENV": dir, "PATH": "/nowhere:" + filepath.Join(dir, "bin")}[setting])
		want := []string{"libx.so.3", filepath.Join(lib, "libx.so.3")}
		if got := Candidates("", []string{"libx.so.3"}); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", setting, got, want)
		}
	}
}

// TestOpen: the first library that loads is taken, and an error says what was
// tried and why a library that is there is not used.
func TestOpen(t *testing.T) {
	t.Setenv(Setting, "")
	names := []string{"libx.so.2", "libx.so.1"}
	var loaded string
	err := Open("X", 12040, names, func(path string) error {
		if path == "libx.so.2" {
			return errors.New("cannot open shared object file")
		}
		loaded = path
		return nil
	})
	if err != nil || loaded != "libx.so.1" {
		t.Errorf("loaded %s (%v)", loaded, err)
	}
	err = Open("X", 12040, names, func(path string) error {
		if path == "libx.so.2" {
			return Unfit("of CUDA 13")
		}
		return errors.New("cannot open shared object file")
	})
	if want := "X: no library found for a driver of CUDA 12: tried libx.so.2 (of CUDA 13), libx.so.1; MEZZO_CUDA_LIBS names the directory of one"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	t.Setenv(Setting, "-")
	if err := Open("X", 12040, names, nil); err == nil || !strings.Contains(err.Error(), Setting) {
		t.Errorf("%s=-: %v", Setting, err)
	}
}
