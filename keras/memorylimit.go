package keras

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
)

// MemoryError is the error of a model or a plan that needs more than the
// memory limit of the device. It lists the largest values of the plan.
type MemoryError = backend.MemoryError

// MemoryLimit returns how much memory tensors, weights and programs may use
// together on the default device. The default is the environment variable
// MEZZO_MEMORY_LIMIT, such as 8GiB. Without it a GPU has its own memory, and
// the CPU the smallest of the machine's memory, the limit of its control group
// (containers), GOMEMLIMIT and the process's address space.
func MemoryLimit() (Bytes, error) {
	d, err := limiter()
	if err != nil {
		return 0, err
	}
	return Bytes(d.MemoryLimit()), nil
}

// SetMemoryLimit sets MemoryLimit; 0 restores the default. Memory that is
// already allocated stays. An allocation beyond the limit fails with a
// *MemoryError, and so does compiling a plan that needs more.
func SetMemoryLimit(limit Bytes) error {
	if limit < 0 {
		return fmt.Errorf("SetMemoryLimit: got %d bytes, want a positive number, or 0 for the default", int64(limit))
	}
	d, err := limiter()
	if err != nil {
		return err
	}
	d.SetMemoryLimit(int(limit))
	return nil
}

func limiter() (driver.MemoryLimiter, error) {
	d, err := backend.Default()
	if err != nil {
		return nil, err
	}
	l, ok := d.(driver.MemoryLimiter)
	if !ok {
		return nil, fmt.Errorf("device %q has no memory limit", d.Name())
	}
	return l, nil
}
