package data

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// Feature is a list of byte strings, floats or integers (tf.train.Feature). At
// most one field is not nil.
type Feature struct {
	Bytes  [][]byte
	Floats []float32
	Ints   []int64
}

// Example is a record of named features in a TFRecord file (tf.train.Example).
type Example map[string]Feature

// The fields of the messages (tensorflow/core/example/example.proto and
// feature.proto).
const (
	exampleFeatures = 1 // Example.features
	featuresEntry   = 1 // Features.feature, a map
	entryKey        = 1
	entryValue      = 2
	featureBytes    = 1 // Feature.bytes_list
	featureFloats   = 2 // Feature.float_list
	featureInts     = 3 // Feature.int64_list
	listValue       = 1
)

// ParseExample decodes an Example (tf.io.parse_single_example without a
// specification; Numbers and Example.Blob check features). The bytes of
// features are slices of b.
func ParseExample(b []byte) (Example, error) {
	e := Example{}
	err := fields(b, func(n protowire.Number, t protowire.Type, v []byte, _ uint64) error {
		if n != exampleFeatures || t != protowire.BytesType {
			return nil
		}
		return fields(v, func(n protowire.Number, t protowire.Type, v []byte, _ uint64) error {
			if n != featuresEntry || t != protowire.BytesType {
				return nil
			}
			return e.entry(v)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("tf.train.Example: %w", err)
	}
	return e, nil
}

// entry reads a name and its feature.
func (e Example) entry(b []byte) error {
	var name string
	var f Feature
	err := fields(b, func(n protowire.Number, t protowire.Type, v []byte, _ uint64) error {
		switch {
		case t != protowire.BytesType:
		case n == entryKey:
			name = string(v)
		case n == entryValue:
			return f.parse(v)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("feature %s: %w", safeio.Quote(name), err)
	}
	e[name] = f
	return nil
}

// parse reads a feature. Where there are several lists, the last one counts.
func (f *Feature) parse(b []byte) error {
	return fields(b, func(n protowire.Number, t protowire.Type, list []byte, _ uint64) error {
		if t != protowire.BytesType || n < featureBytes || n > featureInts {
			return nil
		}
		*f = Feature{}
		switch n { // not nil, also where it is empty
		case featureBytes:
			f.Bytes = [][]byte{}
		case featureFloats:
			f.Floats = []float32{}
		case featureInts:
			f.Ints = []int64{}
		}
		return fields(list, func(n2 protowire.Number, t protowire.Type, v []byte, x uint64) error {
			switch {
			case n2 != listValue:
			case n == featureBytes && t == protowire.BytesType:
				f.Bytes = append(f.Bytes, v)
			case n == featureFloats && t == protowire.Fixed32Type:
				f.Floats = append(f.Floats, math.Float32frombits(uint32(x)))
			case n == featureFloats && t == protowire.BytesType: // packed
				if len(v)%4 != 0 {
					return fmt.Errorf("got %d bytes of floats, want a multiple of 4", len(v))
				}
				for ; len(v) > 0; v = v[4:] {
					f.Floats = append(f.Floats, math.Float32frombits(binary.LittleEndian.Uint32(v)))
				}
			case n == featureInts && t == protowire.VarintType:
				f.Ints = append(f.Ints, int64(x))
			case n == featureInts && t == protowire.BytesType: // packed
				for len(v) > 0 {
					x, k := protowire.ConsumeVarint(v)
					if k < 0 {
						return protowire.ParseError(k)
					}
					f.Ints = append(f.Ints, int64(x))
					v = v[k:]
				}
			default:
				return fmt.Errorf("got a value of wire type %d in a list of %s", t, [...]string{"bytes", "floats", "integers"}[n-1])
			}
			return nil
		})
	})
}

// fields calls f for each field of a message: with its bytes, or its number.
func fields(b []byte, f func(n protowire.Number, t protowire.Type, v []byte, x uint64) error) error {
	for len(b) > 0 {
		n, t, k := protowire.ConsumeTag(b)
		if k < 0 {
			return protowire.ParseError(k)
		}
		b = b[k:]
		var v []byte
		var x uint64
		switch t {
		case protowire.BytesType:
			v, k = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			x, k = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var y uint32
			y, k = protowire.ConsumeFixed32(b)
			x = uint64(y)
		default:
			k = protowire.ConsumeFieldValue(n, t, b)
		}
		if k < 0 {
			return protowire.ParseError(k)
		}
		b = b[k:]
		if err := f(n, t, v, x); err != nil {
			return err
		}
	}
	return nil
}

// Marshal encodes an Example for TensorFlow, features in the order of their
// names.
func (e Example) Marshal() []byte {
	var features []byte
	for _, name := range slices.Sorted(maps.Keys(e)) {
		var feature, list []byte
		f := e[name]
		switch {
		case f.Bytes != nil:
			for _, v := range f.Bytes {
				list = field(list, listValue, v)
			}
			feature = field(nil, featureBytes, list)
		case f.Floats != nil:
			for _, x := range f.Floats {
				list = binary.LittleEndian.AppendUint32(list, math.Float32bits(x))
			}
			feature = field(nil, featureFloats, packed(list))
		case f.Ints != nil:
			for _, x := range f.Ints {
				list = protowire.AppendVarint(list, uint64(x))
			}
			feature = field(nil, featureInts, packed(list))
		}
		features = field(features, featuresEntry, field(field(nil, entryKey, []byte(name)), entryValue, feature))
	}
	return field(nil, exampleFeatures, features)
}

// packed is a list of numbers, of which the protocol writes none if it is
// empty.
func packed(list []byte) []byte {
	if len(list) == 0 {
		return nil
	}
	return field(nil, listValue, list)
}

func field(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// Number is the type of a feature's numbers.
type Number interface{ float32 | int64 }

// Numbers returns the values of a feature, which must have want numbers of
// type T, or any number of them if want is negative (tf.io.FixedLenFeature,
// VarLenFeature).
func Numbers[T Number](e Example, name string, want int) ([]T, error) {
	f, ok := e[name]
	if !ok {
		return nil, e.missing(name)
	}
	var all []T
	var none T
	kind := "floats"
	switch p := any(&all).(type) {
	case *[]float32:
		*p = f.Floats
	case *[]int64:
		*p, kind = f.Ints, "integers"
	}
	switch {
	case all == nil:
		return nil, fmt.Errorf("feature %q holds %s, want %s (%T)", name, f.kind(), kind, none)
	case want >= 0 && len(all) != want:
		return nil, fmt.Errorf("feature %q holds %d %s, want %d", name, len(all), kind, want)
	}
	return all, nil
}

// Blob returns the feature of that name, which must be one byte string.
func (e Example) Blob(name string) ([]byte, error) {
	f, ok := e[name]
	switch {
	case !ok:
		return nil, e.missing(name)
	case f.Bytes == nil:
		return nil, fmt.Errorf("feature %q holds %s, want bytes", name, f.kind())
	case len(f.Bytes) != 1:
		return nil, fmt.Errorf("feature %q holds %d strings of bytes, want 1", name, len(f.Bytes))
	}
	return f.Bytes[0], nil
}

func (e Example) missing(name string) error {
	return fmt.Errorf("there is no feature %q; there are %s", name, safeio.Text(fmt.Sprintf("%q", slices.Sorted(maps.Keys(e)))))
}

func (f Feature) kind() string {
	switch {
	case f.Bytes != nil:
		return "bytes"
	case f.Floats != nil:
		return "floats"
	case f.Ints != nil:
		return "integers"
	}
	return "nothing"
}
