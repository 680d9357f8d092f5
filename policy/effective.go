package policy

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Effective describes what the default device does: its hardware, the
// instruction set of its kernels, and for each float type whether arithmetic
// or only storage is in that type. It is an error when no device opens or the
// device cannot tell.
func Effective() (driver.Description, error) {
	d, err := backend.Default()
	if err != nil {
		return driver.Description{}, err
	}
	if d, ok := d.(driver.Describer); ok {
		return d.Describe(), nil
	}
	return driver.Description{}, fmt.Errorf("policy: device %q does not describe itself", d.Name())
}

// EffectiveText is Effective on one line, for the head of a program's output:
//
//	cpu: AMD EPYC, portable Go, 2 threads; float16: float32 (16-bit storage); …
//
// Where that is an error, it is the error's text.
func EffectiveText() string {
	d, err := Effective()
	if err != nil {
		return err.Error()
	}
	return text(d)
}

func text(d driver.Description) string {
	threads := fmt.Sprintf("%d threads", d.Threads)
	if d.Threads == 1 {
		threads = "1 thread"
	}
	parts := []string{fmt.Sprintf("%s: %s, %s, %s", d.Device, d.Hardware, d.ISA, threads)}
	for _, t := range dtype.Floats() {
		if how, ok := d.Arithmetic[t]; ok {
			parts = append(parts, fmt.Sprintf("%v: %s", t, how))
		}
	}
	return strings.Join(append(parts, d.Missing...), "; ")
}
