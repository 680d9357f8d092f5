package asmgen

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var generate = flag.Bool("generate", false, "write the files instead of comparing them")

func TestFiles(t *testing.T) {
	for name, want := range Files() {
		path := filepath.Join("..", "gemm", name)
		if *generate {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s is not what the generator writes; run go test ./backend/cpu/internal/asmgen -run TestFiles -generate (%v)", name, err)
		}
	}
}
