package layers

import (
	"reflect"

	"github.com/mezzo-ml/mezzo/policy"
)

// Clone returns a layer of the class and exported fields of l that is not
// built: it has the name, and is trainable or not, as l. Layers in its fields
// are cloned too. Weights, and what Adapt has learned, are not copied.
func Clone(l Layer) Layer {
	c, _ := CloneWith(l, func(l Layer) (Layer, error) { return Clone(l), nil })
	return c
}

// CloneWith is Clone, but inner clones the layers in the fields of l, such as the
// field Layer of TimeDistributed. It returns the first error of inner.
func CloneWith(l Layer, inner func(Layer) (Layer, error)) (Layer, error) {
	l, args := Unwrap(l)
	from := reflect.ValueOf(l).Elem()
	to := reflect.New(from.Type())
	for _, f := range configFields(from.Type()) {
		value := from.FieldByIndex(f.Index)
		switch x := value.Interface().(type) {
		case Layer:
			one, err := inner(x)
			if err != nil {
				return nil, err
			}
			value = reflect.ValueOf(one)
		case []Layer:
			all := make([]Layer, len(x))
			for i, one := range x {
				var err error
				if all[i], err = inner(one); err != nil {
					return nil, err
				}
			}
			value = reflect.ValueOf(all)
		}
		to.Elem().FieldByIndex(f.Index).Set(value)
	}
	c := to.Interface().(Layer)
	TakeAfter(c, l)
	return With(c, args), nil
}

// InFields returns the layers in the exported fields of l, such as the field Layer of
// TimeDistributed. It does not return sublayers that l makes itself.
func InFields(l Layer) (all []Layer) {
	l, _ = Unwrap(l)
	from := reflect.ValueOf(l).Elem()
	for _, f := range configFields(from.Type()) {
		switch x := from.FieldByIndex(f.Index).Interface().(type) {
		case Layer:
			all = append(all, x)
		case []Layer:
			all = append(all, x...)
		}
	}
	return all
}

// TakeAfter copies the name of from to l, and what SetTrainable and Remat have
// set.
func TakeAfter(l, from Layer) {
	b, old := l.base(), from.base()
	b.name, b.prefix, b.remat = old.name, old.prefix, old.remat
	b.SetTrainable(old.Trainable())
}

// Outdated reports whether the policy for l's path was changed by SetGlobal or
// SetGlobalMap after l was built, and returns the policy that holds now.
func Outdated(l Layer) (now policy.Policy, yes bool) {
	b := l.base()
	if !b.built || !b.follows {
		return policy.Policy{}, false
	}
	now, err := policy.For(b.Path(), "")
	return now, err == nil && now != b.policy
}

// SetPolicy sets the policy that l, which is not built yet, uses instead of
// the global one. It has no effect on a layer that names a policy itself or
// has one in policy.SetGlobalMap.
func SetPolicy(l Layer, p policy.Policy) { l.base().general = &p }

// SetPolicyMap sets the policy map of l and of the layers in it, in place of the map of
// policy.SetGlobalMap. l must not be built yet. With force the map has precedence over
// the fields DType, too. Nil changes nothing.
func SetPolicyMap(l Layer, byPath policy.Map, force bool) {
	b := l.base()
	b.byPath, b.byForce = byPath, force
}
