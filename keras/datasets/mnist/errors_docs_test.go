package mnist

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentedErrors compares the messages of downloads with docs/errors.md;
// those of the other errors are compared in package keras.
func TestDocumentedErrors(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	content := encodeIDX(0x801, []uint32{20000}, ramp(20000))
	base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Write(content) })

	d := testDownloader(t, base)
	wrong := d.get(t.Context(), wanted, sum([]byte("the original")))

	full := testDownloader(t, base)
	full.create = func(dir, pattern string) (tempFile, error) {
		f, err := os.CreateTemp(dir, pattern)
		return &brokenFile{File: f, room: 7000}, err
	}
	noRoom := full.get(t.Context(), wanted, sum(content))

	for heading, err := range map[string]error{"Wrong checksum": wrong, "Full disk": noRoom} {
		if err == nil {
			t.Errorf("%s: no error", heading)
			continue
		}
		got := strings.NewReplacer(base, "URL/", full.dir, "CACHE").Replace(err.Error())

		m := regexp.MustCompile("(?m)^### " + heading + "\n+```\n(.*?)\n```\n").FindSubmatch(doc)
		if m == nil {
			t.Errorf("docs/errors.md has no entry %q", heading)
		} else if string(m[1]) != got {
			t.Errorf("%s: got\n%s\ndocs/errors.md has\n%s", heading, got, m[1])
		}
	}
}
