package support

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// CheckFloats reports inputs that a layer cannot compute with.
func CheckFloats(x *tensor.Tensor) {
	if !x.DType().IsFloat() {
		tensor.Fail("Call", "got %v, want floats; Cast the data, or use keras.Input(…), which is for floats", x.Type())
	}
}

// maxTable is the most numbers of a table that a layer computes when it is built
// or called: those of images of 4096 pixels from others of as many.
const maxTable = 1 << 24

// CheckTable is an error for a table of so many numbers that it takes long to
// compute. what names the fields that it follows from.
func CheckTable(what string, sizes ...int) error {
	if n := tensor.Shape(sizes).Size(); n > maxTable {
		return fmt.Errorf("%s want a table of %v numbers, more than 2^24", what, tensor.Shape(sizes))
	}
	return nil
}

// Positive checks a field that must be more than 0.
func Positive(field string, n int) error {
	if n <= 0 {
		return fmt.Errorf("%s is %d, want a positive number", field, n)
	}
	return nil
}

// notNegative returns the value of a field that must not be less than 0.
func Finite(field string, v float64) (float64, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s is %v, want a finite number", field, v)
	}
	return v, nil
}

func NotNegative(field string, v float64) (float64, error) {
	if !(v >= 0) {
		return 0, fmt.Errorf("%s is %v, want a number from 0", field, v)
	}
	return v, nil
}
