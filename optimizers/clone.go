package optimizers

import "reflect"

// Clone returns an optimizer of the type and exported fields of o without its
// state: no slots, no steps done. Optimizers in its fields are cloned too.
func Clone(o Optimizer) Optimizer {
	from := reflect.ValueOf(o)
	if from.Kind() != reflect.Pointer || from.Elem().Kind() != reflect.Struct {
		return o // it has no fields to hold a state in
	}
	from = from.Elem()
	to := reflect.New(from.Type())
	for _, f := range configFields(from.Type()) {
		value := from.FieldByIndex(f.Index)
		switch inner := value.Interface().(type) {
		case Optimizer:
			value = reflect.ValueOf(Clone(inner))
		case OptimizerMap:
			value = reflect.ValueOf(inner.clone())
		}
		to.Elem().FieldByIndex(f.Index).Set(value)
	}
	return to.Interface().(Optimizer)
}
