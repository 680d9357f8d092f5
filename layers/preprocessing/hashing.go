package preprocessing

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/stringhash"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Hashing returns bins of strings by TensorFlow's hash: FarmHash's
// Fingerprint64 without a Salt, SipHash with one. It is a StringEncoder:
// Encode computes the bins, and in a model the layer takes the bins. Numbers
// are hashed as decimals: Encode(FormatIntegers(x)).
//
// With OutputMode int the result is the bin; other modes are those of
// CategoryEncoding, in the compute type. In a model, a number that is not a
// bin is an error of the step.
//
// Shapes: strings […] → int: the same; one_hot: [… NumBins], without a last
// axis of size 1; multi_hot, count: [… n] → [… NumBins].
type Hashing struct {
	NumBins     int    // required
	MaskValue   any    // a string or integer that bin 0 is kept for; default: none
	Salt        Salt   // key of the hash; default: none
	OutputMode  string `default:"int"` // or one_hot, multi_hot, count
	Name, DType string

	layers.Base
}

// Config returns the fields Name and DType.
func (h *Hashing) Config() layers.Config { return layers.Config{Name: h.Name, DType: h.DType} }

// Build checks the fields.
func (h *Hashing) Build(in ...layers.Shape) error {
	if err := support.Positive("NumBins", h.NumBins); err != nil {
		return err
	}
	if _, err := h.Salt.hash(); err != nil {
		return err
	}
	if _, _, err := h.mask(); err != nil {
		return err
	}
	return h.CheckInput(in...)
}

// CheckInput requires one input.
func (h *Hashing) CheckInput(in ...layers.Shape) error {
	return checkBins(layers.Defaults(*h).OutputMode, in)
}

// mask is MaskValue as a string.
func (h *Hashing) mask() (text string, ok bool, err error) {
	switch v := h.MaskValue.(type) {
	case nil:
		return "", false, nil
	case string:
		return v, true, nil
	case json.Number:
		return v.String(), true, nil
	case int:
		return strconv.Itoa(v), true, nil
	case int64:
		return strconv.FormatInt(v, 10), true, nil
	case float64: // from JSON
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10), true, nil
		}
	}
	return "", false, fmt.Errorf("MaskValue is %v, want a string or an integer", h.MaskValue)
}

// Encode implements StringEncoder: the bin of each string.
func (h *Hashing) Encode(in ...Strings) (*tensor.Tensor, error) {
	return encodeWith(h, in, 1, 0, math.MaxInt, func() ([]int64, layers.Shape, error) {
		if err := support.Positive("NumBins", h.NumBins); err != nil {
			return nil, nil, err
		}
		hash, err := h.Salt.hash()
		if err != nil {
			return nil, nil, err
		}
		mask, masked, err := h.mask()
		if err != nil {
			return nil, nil, err
		}
		first := 0
		if masked && h.NumBins > 1 {
			first = 1
		} else {
			masked = false
		}
		ids := make([]int64, len(in[0].Data))
		for i, s := range in[0].Data {
			if !masked || s != mask {
				ids[i] = int64(first) + int64(hash(s)%uint64(h.NumBins-first))
			}
		}
		return ids, in[0].Shape, nil
	})
}

// Call computes the layer on bins.
func (h *Hashing) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return encoding{mode: layers.Defaults(*h).OutputMode, n: h.NumBins}.of(integers(x), nil, h.ComputeDType())
}

// HashedCrossing returns bins of combinations of strings, one string from each
// input, by TensorFlow's hash of crossed features. It is a StringEncoder like
// Hashing.
//
// Shapes: two or more of strings [batch] or [batch 1] → int: the same;
// one_hot: [batch NumBins].
type HashedCrossing struct {
	NumBins     int    // required
	OutputMode  string `default:"int"` // or one_hot
	Name, DType string

	layers.Base
}

// Config returns the fields Name and DType.
func (h *HashedCrossing) Config() layers.Config { return layers.Config{Name: h.Name, DType: h.DType} }

// Build checks the fields.
func (h *HashedCrossing) Build(in ...layers.Shape) error {
	if err := support.Positive("NumBins", h.NumBins); err != nil {
		return err
	}
	return h.CheckInput(in...)
}

// CheckInput requires one input, of bins.
func (h *HashedCrossing) CheckInput(in ...layers.Shape) error {
	if mode := layers.Defaults(*h).OutputMode; mode != "int" && mode != "one_hot" {
		return fmt.Errorf("OutputMode is %q, want int or one_hot", mode)
	}
	return checkBins(layers.Defaults(*h).OutputMode, in)
}

// Encode implements StringEncoder: the bin of each combination.
func (h *HashedCrossing) Encode(in ...Strings) (*tensor.Tensor, error) {
	return encodeWith(h, in, max(len(in), 2), 0, 2, func() ([]int64, layers.Shape, error) {
		if err := support.Positive("NumBins", h.NumBins); err != nil {
			return nil, nil, err
		}
		shape := in[0].Shape
		for _, s := range in {
			if !s.Shape.Equal(shape) || len(shape) == 2 && shape[1] != 1 {
				return nil, nil, fmt.Errorf("got strings %v and %v, want equal shapes [batch] or [batch 1]", shape, s.Shape)
			}
		}
		ids, hashes := make([]int64, len(in[0].Data)), make([]uint64, len(in))
		for i := range ids {
			for k, s := range in {
				hashes[k] = stringhash.Farm64(s.Data[i])
			}
			ids[i] = crossed(hashes, h.NumBins)
		}
		return ids, shape, nil
	})
}

// crossed is the bin of a combination of hashes, TensorFlow's.
func crossed(hashes []uint64, bins int) int64 {
	cross := uint64(0xDECAFCAFFE) // TensorFlow's key
	for _, h := range hashes {
		cross = stringhash.Cat64(cross, h)
	}
	return int64(cross % uint64(bins))
}

// Call computes the layer on bins.
func (h *HashedCrossing) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return encoding{mode: layers.Defaults(*h).OutputMode, n: h.NumBins}.of(integers(x), nil, h.ComputeDType())
}

// checkBins is checkIndices without tf_idf, which hashes have no vocabulary for.
func checkBins(mode string, in []layers.Shape) error {
	if _, err := support.Single(in, 0); err != nil || mode == "int" {
		return err
	}
	return checkEncoding(mode, in, "int", "one_hot", "multi_hot", "count")
}
