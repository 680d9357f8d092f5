package layers

import (
	"encoding/json"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// PerAxis is a list of numbers for the axes of an image or another field: one
// number for all axes, one for each axis, or, for margins, two for each axis
// (before and after). tensor.Unknown stands for an open size.
//
// In JSON it has Keras's form: 2 for {2}, [2, 3], [[1, 2], [3, 4]] for {1, 2,
// 3, 4}, and null for tensor.Unknown.
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
	before, err = support.EachAxis(p, field, n, 0)
	return before, before, err
}
