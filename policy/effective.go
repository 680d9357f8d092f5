package policy

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Effective describes the default device: its hardware, the instruction set of
// its kernels, for each float type whether arithmetic or only storage is
// in that type, and whether bits are portable (see [SetBits]). It returns an error if no device opens or the device cannot
// describe itself.
func Effective() (driver.Description, error) {
	d, err := backend.Default()
	if err != nil {
		return driver.Description{}, err
	}
	if x, ok := d.(driver.Describer); ok {
		about := x.Describe()
		if how, ok := about.Arithmetic[dtype.Float32]; ok && backend.EmulatesTF32(d) {
			about.Arithmetic[dtype.Float32] = how + " (operands rounded to TensorFloat-32)"
		}
		if b := backend.CurrentBits(); b != backend.FastBits {
			about.Bits = b.String()
		}
		return about, nil
	}
	return driver.Description{}, fmt.Errorf("policy: device %q does not describe itself", d.Name())
}

// EffectiveText returns Effective on one line, for the start of a program's
// output:
//
//	cpu: AMD EPYC, portable Go, 2 threads; float16: float32 (16-bit storage); …
//
// If Effective fails it returns the text of the error.
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
	if d.Bits != "" {
		parts = append(parts, "bits: "+d.Bits)
	}
	return strings.Join(append(parts, d.Missing...), "; ")
}
