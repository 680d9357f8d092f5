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
// On a processor it is Keras's sentence for machines without a GPU, unless the
// processor has arithmetic on the type. It returns "" if the type is not a 16-bit
// type, or the device is faster with it than with float32. Fit prints it once per
// process.
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
	case fallback != nil:
		return warning(name, fmt.Sprintf("The dtype policy %s may run slowly because this machine has no GPU that can be used, "+
			"and the model runs on %s. Device %q: %v", name, d.Hardware, wanted, fallback))
	case why != "" && d.Device == "cpu":
		return warning(name, fmt.Sprintf("The dtype policy %s may run slowly because this machine does not have a GPU, and %s. %s", name, why, storage(compute)))
	case why != "":
		return warning(name, fmt.Sprintf("Your GPU may run slowly with dtype policy %s because %s. %s", name, why, storage(compute)))
	}
	return ""
}

// storage says what a 16-bit policy is without 16-bit arithmetic.
func storage(compute dtype.DType) string {
	return fmt.Sprintf("It keeps activations in %v and computes in float32: expect them to take half the memory, and steps to be no shorter than under float32.", compute)
}

func warning(name, text string) string {
	return fmt.Sprintf("Mixed precision compatibility check (%s): WARNING\n%s", name, text)
}
