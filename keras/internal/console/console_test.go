package console

import (
	"bytes"
	"os"
	"testing"
)

// TestNoTerminal: files, pipes and other writers have neither colours nor a
// width, whatever the environment says.
func TestNoTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "")
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, c := range map[string]Console{"buffer": Of(&bytes.Buffer{}), "file": Of(file), "pipe": Of(w), "nil": Of((*os.File)(nil))} {
		if c.Redraws || c.Colors || c.Columns() != 0 || c.Width() != Default {
			t.Errorf("%s: got %+v of %d columns, want no terminal", name, c, c.Columns())
		}
	}
}
