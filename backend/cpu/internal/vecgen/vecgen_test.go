package vecgen

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var generate = flag.Bool("generate", false, "rewrite the files of package vec")

// TestUpToDate compares the generated files with what the generator writes.
func TestUpToDate(t *testing.T) {
	files := Generate()
	old, err := filepath.Glob(filepath.Join("..", "vec", "*.s"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if _, ok := files[filepath.Base(path)]; !ok {
			t.Errorf("the generator does not write %s; remove it", path)
		}
	}
	for name, want := range files {
		path := filepath.Join("..", "vec", name)
		if *generate {
			if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s differs from what the generator writes; run go test with -generate", name)
		}
	}
}
