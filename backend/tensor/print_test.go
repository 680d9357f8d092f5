package tensor_test

import (
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestPrint: elements are printed in rows and columns, those of a large tensor
// at its edges only, and a tensor of a recording by its type.
func TestPrint(t *testing.T) {
	x := tensor.New([]float32{1, -2.5, 1.0 / 3, 1e-9, 0, 12345678}, 2, 3)
	var recorded string
	f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor {
		recorded = x.Neg().String()
		return x
	})
	if _, err := f.Call(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want string }{
		{fmt.Sprint(tensor.New([]int32{7})), "int32[] 7"},
		{fmt.Sprint(tensor.Scalar(dtype.Float32, 0.5)), "float32[] 0.5"},
		{fmt.Sprint(tensor.New([]bool{true, false}, 2)), "bool[2] [ true false]"},
		{fmt.Sprint(x), "float32[2 3]\n[[          1        -2.5    0.333333]\n [      1e-09           0 1.23457e+07]]"},
		{fmt.Sprint(x.Neg().Slice(1, 0, 1)), "float32[2 1]\n[[    -1]\n [-1e-09]]"}, // computed by printing
		{fmt.Sprint(tensor.Iota(dtype.Int64, 2, 1, 2)), "int64[2 1 2]\n[[[0 1]]\n\n [[0 1]]]"},
		{fmt.Sprint(tensor.Iota(dtype.Int64, 1000).Slice(0, 995, -1)), "int64[5] [995 996 997 998 999]"},
		{fmt.Sprint(tensor.Iota(dtype.Int32, 2, 1001)), "int32[2 1001]\n[[   0    1    2 ...  998  999 1000]\n [   0    1    2 ...  998  999 1000]]"},
		{fmt.Sprint(tensor.Zeros(dtype.Int32, 500, 3)), "int32[500 3]\n[[0 0 0]\n [0 0 0]\n [0 0 0]\n ...\n [0 0 0]\n [0 0 0]\n [0 0 0]]"},
		{fmt.Sprint(tensor.Zeros(dtype.Int32, 0, 3)), "int32[0 3]\n[]"},
		{fmt.Sprint(tensor.Tuple(tensor.New([]int32{1}, 1), tensor.New([]int32{2}, 1))), "(int32[1] [1], int32[1] [2])"},
		{fmt.Sprint(tensor.Placeholder(dtype.Float32, tensor.Unknown, 3)), "float32[? 3]"},
		{recorded, "float32[2 3]"},
	} {
		if c.got != c.want {
			t.Errorf("got\n%s\nwant\n%s", c.got, c.want)
		}
	}
}

// TestAt: elements are taken from both ends of an axis.
func TestAt(t *testing.T) {
	x := tensor.Iota(dtype.Int32, 2, 4)
	want(t, "at", x.At(1, -1), 3, 3)
	want(t, "at the front", x.At(-1, 0), 0, 0)
	want(t, "last rows", x.Slice(1, -2, -1), 2, 3, 2, 3)
	want(t, "row", x.At(0, 1), 0, 1, 2, 3)
	for text, f := range map[string]func(){
		"At: index 4 is outside axis 1 of int32[2 4]":     func() { x.At(1, 4) },
		"At: index -5 is outside axis 1 of int32[2 4]":    func() { x.At(1, -5) },
		"Slice: start -5 is outside axis 1 of int32[2 4]": func() { x.Slice(1, -5, -1) },
	} {
		var err error
		func() {
			defer tensor.Catch(&err)
			f()
		}()
		if err == nil || err.Error() != text {
			t.Errorf("got error %v, want %s", err, text)
		}
	}
}
