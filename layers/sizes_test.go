package layers_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

// bounded limits the default device to so many further bytes for the time of a
// test.
func bounded(t *testing.T, bytes int) {
	d, err := backend.Default()
	if err != nil {
		t.Fatal(err)
	}
	l := d.(*cpu.Device)
	l.SetMemoryLimit(l.Held() + bytes) // other tests hold some
	t.Cleanup(func() { l.SetMemoryLimit(0) })
}

func TestAbsurdSizes(t *testing.T) {
	bounded(t, 64<<20)
	layertest.Sizes(t, everyLayer())
}
