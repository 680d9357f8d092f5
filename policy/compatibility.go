package policy

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Compatibility returns Keras's warning if the default device has no fast
// arithmetic for a compute type:
//
//	Mixed precision compatibility check (mixed_bfloat16): WARNING
//	Your GPU may run slowly with dtype policy mixed_bfloat16 because it does not have compute capability of at least 8.0. …
//
// It returns "" if the type is not a 16-bit type, if the device is as fast as
// its kind can be, and in programs that were not built for GPUs.
func Compatibility(compute dtype.DType) string {
	d, err := Effective()
	if err != nil {
		return ""
	}
	wanted, err := backend.Fallback()
	return compatibility(compute, d, wanted, err)
}

// compatibility is Compatibility on device d, which was taken because the one
// wanted did not open, if fallback says so.
func compatibility(compute dtype.DType, d driver.Description, wanted string, fallback error) string {
	name := "mixed_" + compute.String()
	switch why := d.Slow[compute]; {
	case compute != dtype.Float16 && compute != dtype.BFloat16:
		return ""
	case why != "":
		return warning(name, fmt.Sprintf("Your GPU may run slowly with dtype policy %s because %s. "+
			"It keeps activations in %v and computes in float32: expect them to take half the memory, and steps to be no shorter than under float32.", name, why, compute))
	case fallback != nil:
		return warning(name, fmt.Sprintf("The dtype policy %s may run slowly because this machine has no GPU that can be used, "+
			"and the model runs on %s. Device %q: %v", name, d.Hardware, wanted, fallback))
	}
	return ""
}

func warning(name, text string) string {
	return fmt.Sprintf("Mixed precision compatibility check (%s): WARNING\n%s", name, text)
}
