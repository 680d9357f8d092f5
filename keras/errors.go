package keras

import (
	"context"
	"errors"
	"fmt"
	"reflect"
)

// What errors.Is finds in the errors of this package; docs/errors.md lists them
// and the types that errors.As finds.
var (
	ErrNotCompiled  = errors.New("it is not compiled")
	ErrNotBuilt     = errors.New("it is not built")
	ErrEmptyDataset = errors.New("the dataset is empty")
)

// RunConfigError is the error of a Fit that would resume a training with
// another value of an argument in RunConfig.
type RunConfigError struct {
	Name      string // of the argument
	Now, Then any
}

func (e *RunConfigError) Error() string {
	return fmt.Sprintf("%s is %v, the checkpoint was saved with %v; use the same, or another directory", e.Name, e.Now, e.Then)
}

// needs is the error of a method that was given no context.
func needs(ctx context.Context, where string) error {
	if ctx == nil {
		return fmt.Errorf("%s: the context is nil; use context.Background()", where)
	}
	return nil
}

// isNil reports whether x is nil, or an interface around a nil pointer.
func isNil[T any](x T) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
