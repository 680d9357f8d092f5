package callspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/suggest"
)

// Param is a parameter that an argument can be bound to; see Optional.
type Param struct {
	name     string
	to       any
	required bool
}

// Optional is a parameter whose default is what to points at. to is one of
//
//	*float64   any number
//	**float64  any number, or None for nil
//	*int       an integer
//	**int64    an integer, or None for nil
//	*bool      a bool
//	*string    a string
//	*[]int     an integer or a list of integers, or None for nil
func Optional(name string, to any) Param { return Param{name: name, to: to} }

// Required is a parameter that must be given; to is as in Optional.
func Required(name string, to any) Param { return Param{name: name, to: to, required: true} }

// Bind sets the parameters to the arguments of s: positional ones in order,
// the others by name. It is an error when an argument has no parameter or is
// of another kind, and when a required one is missing.
func (s Spec) Bind(params ...Param) error {
	have := make([]string, len(params))
	for i, p := range params {
		have[i] = p.name
	}
	takes := "it takes none"
	if len(have) > 0 {
		takes = "have " + strings.Join(have, ", ")
	}
	given := make([]bool, len(params))
	for i, a := range s.Args {
		at := i
		if a.Name != "" {
			for at = 0; at < len(have) && have[at] != a.Name; at++ {
			}
			if at == len(have) {
				return fmt.Errorf("unknown argument %q of %s; %s%s", a.Name, s.Name, suggest.Meant(a.Name, have), takes)
			}
		}
		switch {
		case at >= len(params):
			return fmt.Errorf("too many arguments of %s: got %d; %s", s.Name, len(s.Args), takes)
		case given[at]:
			return fmt.Errorf("argument %s of %s is given twice", have[at], s.Name)
		}
		given[at] = true
		if want := set(params[at].to, a.Value); want != "" {
			return s.Reject(have[at], a.Value, want)
		}
	}
	for i, p := range params {
		if p.required && !given[i] {
			return fmt.Errorf("argument %s of %s is missing; %s", p.name, s.Name, takes)
		}
	}
	return nil
}

// Reject is the error for an argument that does not fit.
func (s Spec) Reject(name string, got any, want string) error {
	return fmt.Errorf("argument %s of %s: got %s, want %s", name, s.Name, format(got), want)
}

// NotNegative is an error when the argument v is less than 0.
func (s Spec) NotNegative(name string, v float64) error {
	if v < 0 {
		return s.Reject(name, v, "0 or more")
	}
	return nil
}

// OneOf is an error when the argument v is none of those allowed.
func (s Spec) OneOf(name, v string, allowed ...string) error {
	if !slices.Contains(allowed, v) {
		return s.Reject(name, v, "one of "+strings.Join(allowed, ", "))
	}
	return nil
}

// set stores v where to points, or says what kind is wanted there.
func set(to, v any) (want string) {
	switch to := to.(type) {
	case *float64:
		return store(v, number, to, "a number")
	case **float64:
		return storeOrNone(v, number, to, "a number or None")
	case *int:
		return store(v, integer, to, "an integer")
	case **int64:
		return storeOrNone(v, is[int64], to, "an integer or None")
	case *bool:
		return store(v, is[bool], to, "True or False")
	case *string:
		return store(v, is[string], to, "a string")
	case *[]int:
		if v == nil {
			*to = nil
			return ""
		}
		return store(v, integers, to, "an integer or a list of integers")
	}
	panic(fmt.Sprintf("spec: no argument can be bound to a %T", to))
}

func store[T any](v any, as func(any) (T, bool), to *T, want string) string {
	x, ok := as(v)
	if !ok {
		return want
	}
	*to = x
	return ""
}

func storeOrNone[T any](v any, as func(any) (T, bool), to **T, want string) string {
	if v == nil {
		*to = nil
		return ""
	}
	x := new(T)
	if want := store(v, as, x, want); want != "" {
		return want
	}
	*to = x
	return ""
}

func is[T any](v any) (T, bool) {
	x, ok := v.(T)
	return x, ok
}

func number(v any) (float64, bool) {
	if i, ok := v.(int64); ok {
		return float64(i), true
	}
	return is[float64](v)
}

func integer(v any) (int, bool) {
	i, ok := v.(int64)
	return int(i), ok
}

func integers(v any) ([]int, bool) {
	if i, ok := integer(v); ok {
		return []int{i}, true
	}
	list, ok := v.([]any)
	out := make([]int, len(list))
	for i, e := range list {
		var fits bool
		out[i], fits = integer(e)
		ok = ok && fits
	}
	return out, ok
}
