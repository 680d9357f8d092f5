package saving

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// content saves a small model and returns the file.
func content(t testing.TB, save func(string, *keras.Model) error) []byte {
	t.Helper()
	m := keras.Sequential(&layers.Dense{Units: 2}, &layers.BatchNormalization{})
	if err := m.Build(3); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m")
	if err := save(path, m); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readAll checks that the arrays of a file are as long as their types say.
func readAll(t *testing.T, arrays map[string]array) {
	t.Helper()
	for name, a := range arrays {
		if b, err := a.bytes(); err == nil && len(b) != a.typ.Bytes() {
			t.Fatalf("%s %v: got %d bytes, want %d", name, a.typ, len(b), a.typ.Bytes())
		}
	}
}

// FuzzSafetensors reads anything: it ends without a panic.
func FuzzSafetensors(f *testing.F) {
	f.Add(content(f, SaveSafetensors))
	f.Fuzz(func(t *testing.T, b []byte) {
		if arrays, err := parseSafetensors(bytes.NewReader(b), int64(len(b))); err == nil {
			readAll(t, arrays)
		}
	})
}

// FuzzNPZ reads anything: it ends without a panic, and takes no more memory
// than the model's weights would.
func FuzzNPZ(f *testing.F) {
	f.Add(content(f, SaveNPZ))
	f.Fuzz(func(t *testing.T, b []byte) {
		if arrays, err := parseNPZ(bytes.NewReader(b), int64(len(b)), 1<<10); err == nil {
			readAll(t, arrays)
		}
	})
}
