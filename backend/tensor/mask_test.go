package tensor_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

func TestMask(t *testing.T) {
	x := tensor.Placeholder(dtype.Float32, -1, 3, 4)
	m := tensor.Placeholder(dtype.Bool, -1, 3)
	y := x.WithMask(m)
	if x.Mask() != nil || y.Mask() != m || !y.Type().Equal(x.Type()) {
		t.Errorf("got masks %v and %v of %v, want none and %v", x.Mask(), y.Mask(), y.Type(), m)
	}
	for what, z := range map[string]*tensor.Tensor{
		"Cast":             y.Cast(dtype.Float16),
		"Cast to the same": y.Cast(dtype.Float32),
		"CastLike":         y.CastLike(tensor.Scalar(dtype.BFloat16, 0)),
		"Widen":            y.Cast(dtype.Float16).Widen(),
		"Widen, again":     y.Cast(dtype.Float16).Sum(2).WithMask(m).Widen(),
	} {
		if z.Mask() != m {
			t.Errorf("%s: got mask %v, want that of its argument", what, z.Mask())
		}
	}
	for what, z := range map[string]*tensor.Tensor{
		"Relu":     y.Relu(),
		"Add":      y.Add(x),
		"none":     y.WithMask(nil),
		"Identity": y.StopGradient(),
	} {
		if z.Mask() != nil {
			t.Errorf("%s: got mask %v, want none", what, z.Mask())
		}
	}
	if y.WithMask(m) != y || x.WithMask(nil) != x {
		t.Errorf("WithMask of the mask that is there: got another tensor, want the same")
	}
}

func TestMaskErrors(t *testing.T) {
	x := tensor.Placeholder(dtype.Float32, -1, 3)
	for _, c := range []struct {
		x, m *tensor.Tensor
		want string
	}{
		{x, tensor.Placeholder(dtype.Int32, -1, 3), "WithMask: got mask int32[? 3] for float32[? 3], want bool with the first axes of it"},
		{x, tensor.Placeholder(dtype.Bool, -1, 4), "WithMask: got mask bool[? 4] for float32[? 3], want bool with the first axes of it"},
		{x, tensor.Placeholder(dtype.Bool, -1, 3, 1), "WithMask: got mask bool[? 3 1] for float32[? 3], want bool with the first axes of it"},
		{tensor.Tuple(x, x), tensor.Placeholder(dtype.Bool, -1), "WithMask: got a tuple of 2 tensors; use Unpack"},
	} {
		err := func() (err error) {
			defer tensor.Catch(&err)
			c.x.WithMask(c.m)
			return nil
		}()
		if err == nil || err.Error() != c.want {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
}

// TestReshapeUnknown: several axes may stay unknown where they were.
func TestReshapeUnknown(t *testing.T) {
	y := tensor.Placeholder(dtype.Float32, -1, -1, 4).Reshape(-1, -1, 2, 2)
	if want := (tensor.Shape{-1, -1, 2, 2}); !y.Shape().Equal(want) {
		t.Errorf("got %v, want %v", y.Shape(), want)
	}
}
