package layers

import (
	"fmt"
	"math"
	"reflect"
	"sync"
)

// checkIntegers is an error for an integer among the exported fields of l whose
// magnitude is 2³¹ or more. No layer means such a size, products of two others
// cannot overflow, and the shapes that they make are checked where they are made.
func checkIntegers(l Layer) error {
	v := reflect.ValueOf(l)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil // a class of another package
	}
	v = v.Elem()
	for _, f := range fieldsOf(v.Type()) {
		field, err := v.FieldByIndexErr(f.Index)
		if err != nil {
			continue // of an embedded pointer that is nil
		}
		if field.Kind() == reflect.Pointer && !field.IsNil() {
			field = field.Elem()
		}
		switch kind := field.Kind(); {
		case kind == reflect.Int:
			err = wantInt32(f.Name, field.Int())
		case (kind == reflect.Slice || kind == reflect.Array) && field.Type().Elem().Kind() == reflect.Int:
			for i := range field.Len() {
				if err == nil {
					err = wantInt32(fmt.Sprintf("%s[%d]", f.Name, i), field.Index(i).Int())
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// integerFields are the exported fields of a class that may hold integers, by its
// type: reflection finds them once.
var integerFields sync.Map

func fieldsOf(t reflect.Type) []reflect.StructField {
	if all, ok := integerFields.Load(t); ok {
		return all.([]reflect.StructField)
	}
	var all []reflect.StructField
	for _, f := range reflect.VisibleFields(t) {
		kind := f.Type
		for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice || kind.Kind() == reflect.Array {
			kind = kind.Elem()
		}
		if f.IsExported() && !f.Anonymous && kind.Kind() == reflect.Int {
			all = append(all, f)
		}
	}
	integerFields.Store(t, all)
	return all
}

func wantInt32(name string, n int64) error {
	if n < math.MinInt32 || n > math.MaxInt32 {
		return fmt.Errorf("%s is %d, want at most %d", name, n, math.MaxInt32)
	}
	return nil
}

// maxRecorded is the most operations that a layer records one after the other
// for a number among its fields.
const maxRecorded = 1 << 13

// wantRecorded returns an error if a field would record more operations.
func wantRecorded(field string, n int) error {
	if n > maxRecorded {
		return fmt.Errorf("%s is %d, want at most %d: each is an operation of its own", field, n, maxRecorded)
	}
	return nil
}
