package layers

import (
	"encoding/json"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// PerAxis is a list of numbers for the axes of an image or another field: one
// for all axes, one for each axis, or, for margins, two for each axis (before
// and after). tensor.Unknown stands for a size that is left open.
//
// JSON is Keras's: 2 for {2}, [2, 3], and [[1, 2], [3, 4]] for {1, 2, 3, 4};
// null is tensor.Unknown.
type PerAxis []int

// MarshalJSON implements json.Marshaler.
func (p PerAxis) MarshalJSON() ([]byte, error) {
	if p == nil {
		return []byte("null"), nil
	}
	list := make([]any, len(p))
	for i, n := range p {
		if n != tensor.Unknown {
			list[i] = n
		}
	}
	switch len(list) {
	case 1:
		return json.Marshal(list[0])
	case 4, 6:
		var pairs [][]any
		for i := 0; i < len(list); i += 2 {
			pairs = append(pairs, list[i:i+2])
		}
		return json.Marshal(pairs)
	}
	return json.Marshal(list)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *PerAxis) UnmarshalJSON(data []byte) error {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*p = PerAxis{}
	var add func(v any) error
	add = func(v any) error {
		switch v := v.(type) {
		case nil:
			*p = append(*p, tensor.Unknown)
			return nil
		case float64:
			if v == float64(int(v)) {
				*p = append(*p, int(v))
				return nil
			}
		case []any:
			for _, e := range v {
				if err := add(e); err != nil {
					return err
				}
			}
			return nil
		}
		return fmt.Errorf("got %s, want integers", data)
	}
	return add(v)
}

// each returns one number for each of n axes.
func (p PerAxis) each(field string, n, least int) ([]int, error) {
	out := []int(p)
	if len(p) == 1 {
		out = make([]int, n)
		for i := range out {
			out[i] = p[0]
		}
	}
	if len(out) != n {
		return nil, fmt.Errorf("%s is %v, want 1 or %d numbers", field, []int(p), n)
	}
	for _, v := range out {
		if v < least {
			return nil, fmt.Errorf("%s is %v, want numbers from %d", field, []int(p), least)
		}
	}
	return out, nil
}

// margins returns the numbers before and after each of n axes.
func (p PerAxis) margins(field string, n int) (before, after []int, err error) {
	if len(p) == 2*n {
		for i, v := range p {
			if v < 0 {
				return nil, nil, fmt.Errorf("%s is %v, want numbers from 0", field, []int(p))
			}
			if i%2 == 0 {
				before = append(before, v)
			} else {
				after = append(after, v)
			}
		}
		return before, after, nil
	}
	if len(p) != 1 && len(p) != n {
		return nil, nil, fmt.Errorf("%s is %v, want 1, %d or %d numbers", field, []int(p), n, 2*n)
	}
	before, err = p.each(field, n, 0)
	return before, before, err
}

// field is what layers on images and the like know of their axes.
type field struct {
	channelsFirst bool
}

// of reads DataFormat and wants an input with n axes between batch and
// channels.
func (f *field) of(format string, in []Shape, n int) (Shape, error) {
	s, err := single(in, n+2)
	if err != nil {
		return nil, err
	}
	if len(s) != n+2 {
		return nil, fmt.Errorf("input %v has %d axes, want %d", s, len(s), n+2)
	}
	f.channelsFirst, err = isChannelsFirst(format)
	return s, err
}

// first is the first of the axes between batch and channels.
func (f *field) first() int {
	if f.channelsFirst {
		return 2
	}
	return 1
}

// place puts one number for each axis of the field where that axis is in a
// list for all axes; the others get rest.
func (f *field) place(numbers []int, rest int) []int {
	out := make([]int, len(numbers)+2)
	for i := range out {
		out[i] = rest
	}
	copy(out[f.first():], numbers)
	return out
}
