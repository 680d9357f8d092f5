package optimizers

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/suggest"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// withDefaults returns a copy of the exported fields of o, where zero fields have the
// values of their tags: `default:"0.9"`.
func withDefaults[T any](o *T) *T {
	if o == nil {
		tensor.Fail("optimizers", "got a nil %T, want an optimizer such as &optimizers.Adam{}", o)
	}
	out := new(T)
	to, from := reflect.ValueOf(out).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		if to.Type().Field(i).IsExported() {
			to.Field(i).Set(from.Field(i))
		}
	}
	for _, f := range configFields(to.Type()) {
		value, ok := f.Tag.Lookup("default")
		field := to.FieldByIndex(f.Index)
		if !ok || !unset(field) {
			continue
		}
		if field.Kind() == reflect.String {
			field.SetString(value)
		} else if err := json.Unmarshal([]byte(value), field.Addr().Interface()); err != nil {
			panic(fmt.Sprintf("optimizers: the default %s of field %s of %v: %v", value, f.Name, to.Type(), err))
		}
	}
	return out
}

// unset reports whether a field has Go's zero value, which means its default.
// Negative zero is a number.
func unset(v reflect.Value) bool {
	return v.IsZero() && !(v.Kind() == reflect.Float64 && math.Signbit(v.Float()))
}

// configFields lists the exported fields of a class.
func configFields(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return !f.IsExported() || f.Anonymous })
}

var (
	wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])|([a-z])([0-9])`)
	wordJoin  = `${1}${3}${5}_${2}${4}${6}`
)

// configName returns Keras's name of a field: from its tag `keras:"amsgrad"`, or in
// snake_case.
func configName(f reflect.StructField) string {
	if name, ok := f.Tag.Lookup("keras"); ok {
		return name
	}
	return strings.ToLower(wordStart.ReplaceAllString(f.Name, wordJoin))
}

// object is how Keras writes an instance down; other keys, such as module, are
// not needed.
type object struct {
	Class  string                     `json:"class_name"`
	Config map[string]json.RawMessage `json:"config"`
}

// MarshalConfig returns the settings of an optimizer of this package as JSON,
// without its state:
//
//	{"class_name": "Adam", "config": {"learning_rate": 0.01, "amsgrad": true}}
//
// config has the fields that are set, under Keras's names; an absent field has
// its default. A Schedule is the value of learning_rate, written as by
// MarshalSchedule. Inner is inner_optimizer.
func MarshalConfig(o Optimizer) ([]byte, error) { return marshal(o, optimizerKind) }

// UnmarshalConfig returns the optimizer that MarshalConfig or Keras's
// optimizers.serialize described. It returns an error for an unknown class,
// for a name that is not a field of the class, and for a value of the wrong
// type.
func UnmarshalConfig(data []byte) (Optimizer, error) { return unmarshal(data, classes, optimizerKind) }

// MarshalSchedule describes a Schedule of this package as JSON:
//
//	{"class_name": "CosineDecay", "config": {"initial_learning_rate": 0.1, "decay_steps": 1000}}
func MarshalSchedule(s Schedule) ([]byte, error) { return marshal(s, scheduleKind) }

// UnmarshalSchedule returns the Schedule that MarshalSchedule or Keras's
// schedules.serialize described. It returns errors as UnmarshalConfig does.
func UnmarshalSchedule(data []byte) (Schedule, error) {
	return unmarshal(data, schedules, scheduleKind)
}

// What is called what in errors.
const (
	optimizerKind = "optimizer"
	scheduleKind  = "schedule"
)

// className is the name of x's type if it is a class of this package, else "".
func className(x any) string {
	t := reflect.TypeOf(x)
	if t == nil || t.Kind() != reflect.Pointer {
		return ""
	}
	name := t.Elem().Name()
	if made, ok := classes[name]; ok && reflect.TypeOf(made()) == t {
		return name
	}
	if made, ok := schedules[name]; ok && reflect.TypeOf(made()) == t {
		return name
	}
	return ""
}

func marshal(x any, kind string) ([]byte, error) {
	class := className(x)
	if class == "" {
		return nil, fmt.Errorf("%s config: got %T, want a class of this package", kind, x)
	}
	out := object{Class: class, Config: map[string]json.RawMessage{}}
	v := reflect.ValueOf(x).Elem()
	for _, f := range configFields(v.Type()) {
		field, name := v.FieldByIndex(f.Index), configName(f)
		if unset(field) {
			continue
		}
		var raw []byte
		var err error
		switch value := field.Interface().(type) {
		case float64:
			if raw, err = json.Marshal(value); value == 0 {
				raw = []byte("0.0") // negative zero, see setField
			}
		case Schedule:
			name = "learning_rate"
			raw, err = MarshalSchedule(value)
		case Optimizer:
			raw, err = MarshalConfig(value)
		default:
			raw, err = json.Marshal(value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: field %q: %w", kind, class, name, err)
		}
		out.Config[name] = raw // Schedule comes after LearningRate, which it replaces
	}
	return json.Marshal(out)
}

func unmarshal[T any](data []byte, known map[string]func() T, kind string) (x T, err error) {
	var in object
	if err := json.Unmarshal(data, &in); err != nil {
		return x, fmt.Errorf("%s config: %w", kind, err)
	}
	made := known[in.Class]
	if made == nil {
		return x, suggest.Unknown(kind, in.Class, slices.Sorted(maps.Keys(known)))
	}
	x = made()
	v := reflect.ValueOf(x).Elem()
	fields := map[string]reflect.StructField{}
	for _, f := range configFields(v.Type()) {
		fields[configName(f)] = f
	}
	const own = "schedule" // a name of this package for one form of learning_rate
	schedule := fields[own]
	delete(fields, own)
	for _, name := range slices.Sorted(maps.Keys(in.Config)) {
		raw := in.Config[name]
		f, ok := fields[name]
		if kind == optimizerKind && name == "learning_rate" && strings.HasPrefix(string(raw), "{") {
			f = schedule
		}
		if !ok {
			if string(raw) == "null" || kind == scheduleKind && name == "name" {
				continue // Keras writes it for every class, and it is off
			}
			return x, fmt.Errorf("%s %s: %w", kind, in.Class, suggest.Unknown("field", name, slices.Sorted(maps.Keys(fields))))
		}
		if err := setField(v.FieldByIndex(f.Index), f, raw); err != nil {
			var wrong *json.UnmarshalTypeError
			if errors.As(err, &wrong) {
				err = fmt.Errorf("got %s, want %v", raw, wrong.Type)
			}
			return x, fmt.Errorf("%s %s: field %q: %w", kind, in.Class, name, err)
		}
	}
	return x, nil
}

// setField sets a field from JSON. Three things that Keras can say need care:
// null for a number that has a default means that there is none, which is 0
// here; a learning rate of 0 is negative zero, since Go's zero value means the
// default; and 0 in other such fields cannot be said.
func setField(v reflect.Value, f reflect.StructField, raw json.RawMessage) error {
	_, hasDefault := f.Tag.Lookup("default")
	switch field := v.Addr().Interface().(type) {
	case *Schedule:
		s, err := UnmarshalSchedule(raw)
		*field = s
		return err
	case *Optimizer:
		o, err := UnmarshalConfig(raw)
		*field = o
		return err
	case **float64:
		if string(raw) == "null" && (hasDefault || f.Name == "WeightDecay") {
			*field = new(0.0)
			return nil
		}
	}
	if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
		return err
	}
	if f.Name == "LearningRate" && unset(v) && string(raw) != "null" {
		v.SetFloat(math.Copysign(0, -1))
	}
	if hasDefault && unset(v) && string(raw) != "null" {
		return fmt.Errorf("got %s, want another value: the field's zero means the default %s", raw, f.Tag.Get("default"))
	}
	return nil
}
