package optimizers

import (
	"reflect"
	"testing"
)

// with sets the common fields of o.
func with[T Optimizer](o T, more options) T {
	from, to := reflect.ValueOf(more), reflect.ValueOf(o).Elem()
	for i := range from.NumField() {
		to.FieldByName(from.Type().Field(i).Name).Set(from.Field(i))
	}
	return o
}

// TestOptions: every class has the common fields, last and in one order, of
// one type and with one tag; WeightDecay alone may have a default.
func TestOptions(t *testing.T) {
	adam := reflect.TypeFor[Adam]()
	common := reflect.TypeFor[options]()
	for name, made := range classes {
		if name == wrapper || name == divider {
			continue
		}
		class := reflect.TypeOf(made()).Elem()
		first := class.NumField() - 1 - common.NumField() // in front of the embedded state
		for i := range common.NumField() {
			want, got := common.Field(i), class.Field(first+i)
			like, _ := adam.FieldByName(want.Name)
			if got.Name != want.Name || got.Type != want.Type {
				t.Errorf("%s: field %s %v, want %s %v", name, got.Name, got.Type, want.Name, want.Type)
			}
			if got.Tag != like.Tag && got.Name != "WeightDecay" {
				t.Errorf("%s: the tag of %s is %s, want %s", name, got.Name, got.Tag, like.Tag)
			}
		}
	}
}
