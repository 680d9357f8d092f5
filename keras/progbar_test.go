package keras

import (
	"bytes"
	"regexp"
	"testing"
)

func TestProgbar(t *testing.T) {
	var out bytes.Buffer
	bar := NewProgbar(&out)
	for i := range 3 {
		bar.Update(i+1, 3)
	}
	bar.Finish() // it has
	for i := range 2 {
		bar.Update(i+1, -1)
	}
	bar.Finish()
	for i := range 5 {
		bar.Update(i+1, Infinite)
	}
	bar.Update(1, 1) // another one
	want := regexp.MustCompile(`^3/3 - 0s - \S+/step\n2/2 - 0s - \S+/step\n5/5 - 0s - \S+/step\n1/1 - 0s - \S+/step\n$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("got\n%s, want %s", &out, want)
	}
}
