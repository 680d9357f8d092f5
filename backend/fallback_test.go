package backend

import (
	"errors"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
)

// TestFallback: a device that is registered, wanted first and does not open is
// named; one that nobody has registered is not missed.
func TestFallback(t *testing.T) {
	defer func(f func() string) { deviceSetting = f }(deviceSetting)
	deviceSetting = func() string { return "" }
	broken := errors.New("no driver")
	Register("broken", func() (driver.Device, error) { return nil, broken })
	old := preference
	defer func() {
		preference = old
		registry.Lock()
		delete(registry.providers, "broken")
		registry.Unlock()
	}()
	for _, c := range []struct {
		wanted []string
		name   string
		err    error
	}{
		{[]string{"unregistered"}, "", nil},
		{[]string{"unregistered", "broken"}, "broken", broken},
		{nil, "", nil},
	} {
		preference = c.wanted
		if name, err := Fallback(); name != c.name || !errors.Is(err, c.err) {
			t.Errorf("%q: got %q, %v, want %q, %v", c.wanted, name, err, c.name, c.err)
		}
	}
	deviceSetting = func() string { return "broken" }
	preference = []string{"broken"}
	if name, err := Fallback(); name != "" || err != nil {
		t.Errorf("with a device that the user has named: got %q, %v", name, err)
	}
}
