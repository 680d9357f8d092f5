package mnist

import (
	"context"
	"testing"
)

// TestNilContext: LoadContext says that it was given no context.
func TestNilContext(t *testing.T) {
	var none context.Context
	const want = "mnist: LoadContext: the context is nil; use context.Background()"
	if _, _, err := LoadContext(none, ""); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}
