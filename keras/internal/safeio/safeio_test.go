package safeio_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

func TestText(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{safeio.Text("short"), "short"},
		{safeio.Text([]int{1, 2}), "[1 2]"},
		{safeio.Text(strings.Repeat("x", 300)), strings.Repeat("x", 200) + "…"},
		{safeio.Text("x" + strings.Repeat("ü", 300)), "x" + strings.Repeat("ü", 99) + "…"},
		{safeio.Text(strings.Repeat("\x80", 300)), strings.Repeat("\x80", 200) + "…"},
		{safeio.Quote("a\n"), `"a\n"`},
		{safeio.Quote([]byte{0, 'a'}), `"\x00a"`},
		{safeio.Quote(strings.Repeat("y", 201)), `"` + strings.Repeat("y", 200) + `"…`},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestShort(t *testing.T) {
	if err := safeio.Short(nil); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if err := safeio.Short(fs.ErrNotExist); err != fs.ErrNotExist {
		t.Errorf("got %v, want the error itself", err)
	}
	err := safeio.Short(fmt.Errorf("begin %s: %w", strings.Repeat("ü", 1<<20), fs.ErrNotExist))
	text := err.Error()
	if !errors.Is(err, fs.ErrNotExist) || len(text) > 4096 || !strings.HasPrefix(text, "begin ü") || !strings.HasSuffix(text, "file does not exist") || strings.ToValidUTF8(text, "") != text {
		t.Errorf("got %d bytes: %q", len(text), text)
	}
}

func TestJSON(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"a": [1, 2], "b": "[[[[[,,,,,\"[[["}`, ""},
		{`[[[[]]]]`, "lists and objects are nested more than 3 deep"},
		{`[1,2,3,4,5,6,7,8,9]`, "got more than 9 values and keys"},
		{`{"a":1,"b":2,"c":3,"d":4,"e":5}`, "got more than 9 values and keys"},
		{`"\`, ""},
	} {
		if err := safeio.JSON([]byte(c.text), 9, 3); c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%s: got error %v, want %s", c.text, err, c.want)
		}
	}
}
