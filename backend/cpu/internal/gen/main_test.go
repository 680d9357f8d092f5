package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFiles fails where a generated file is stale, missing or left over.
func TestFiles(t *testing.T) {
	const dir = ".."
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	old, err := generated(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if _, ok := all[path]; !ok {
			t.Errorf("%s: no generator writes it; run go generate ./...", path)
		}
	}
	for path, want := range all {
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
			t.Errorf("%s is not what its generator writes; run go generate ./... (%v)", path, err)
		}
	}
}
