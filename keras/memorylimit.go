package keras

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
)

// MemoryError is the error of what does not fit into the memory limit of the
// device: a model whose weights, or whose plan, need more. The largest values of a
// plan are in it.
type MemoryError = backend.MemoryError

// MemoryLimit returns the memory that tensors, weights and programs may take together
// on the default device. By default that is MEZZO_MEMORY_LIMIT, such as 8GiB; else
// what the device has: on the CPU the least of the machine's memory, the limit of
// its control group (containers), GOMEMLIMIT and the process's address space.
func MemoryLimit() (Bytes, error) {
	d, err := limiter()
	if err != nil {
		return 0, err
	}
	return Bytes(d.MemoryLimit()), nil
}

// SetMemoryLimit sets MemoryLimit; 0 is its default. What is there already stays.
// What would go beyond the limit fails with a *MemoryError: a plan before anything
// is allocated for it.
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
