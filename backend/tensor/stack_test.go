package tensor_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

func TestPieces(t *testing.T) {
	a, b := tensor.New([]float32{1, 2, 3, 4}, 2, 2), tensor.New([]float32{5, 6, 7, 8}, 2, 2)
	for axis, want := range map[int][]float32{0: {1, 2, 3, 4, 5, 6, 7, 8}, 1: {1, 2, 5, 6, 3, 4, 7, 8}, -1: {1, 5, 2, 6, 3, 7, 4, 8}, 2: {1, 5, 2, 6, 3, 7, 4, 8}} {
		y := tensor.Stack(axis, a, b)
		if got, err := y.Values(); err != nil || !slices.Equal(got, want) || y.Rank() != 3 {
			t.Errorf("Stack along %d: got %v of shape %v, %v, want %v", axis, got, y.Shape(), err, want)
		}
	}
	row := tensor.New([]float32{1, 2, 3, 4, 5, 6}, 1, 6)
	for i, want := range [][]float32{{1, 2}, {3, 4}, {5, 6}} {
		if got, err := row.Split(3, -1)[i].Values(); err != nil || !slices.Equal(got, want) {
			t.Errorf("Split: part %d: got %v, %v, want %v", i, got, err, want)
		}
	}
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16, dtype.Int32} {
		y := tensor.New([]int64{2, -1, 0, 3}, 2, 2).OneHot(3, d)
		want := []float64{0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0}
		if got, err := y.Float64s(); err != nil || !slices.Equal(got, want) || fmt.Sprint(y.Shape()) != "[2 2 3]" || y.DType() != d {
			t.Errorf("OneHot: got %v, %v of type %v, want %v", got, err, y.Type(), want)
		}
	}
	for equation, want := range map[string][]float32{
		"ij,jk->ik": {19, 22, 43, 50}, "ij,kj->ik": {17, 23, 39, 53}, "ij,ij->j": {26, 44}, "ij,ij->ij": {5, 12, 21, 32}, "ij,jk->ki": {19, 43, 22, 50},
		"ij,kl->": {260},
	} {
		if got, err := tensor.Einsum(equation, a, b).Values(); err != nil || !slices.Equal(got, want) {
			t.Errorf("Einsum %s: got %v, %v, want %v", equation, got, err, want)
		}
	}
	for want, f := range map[string]func(){
		"Stack: no tensors given": func() { tensor.Stack(0) },
		"Stack: tensor 1 is float32[1 6], want the shape of the first, float32[2 2]":                              func() { tensor.Stack(0, a, row) },
		"Split: float32[1 6] cannot be cut into 4 equal parts along axis 1":                                       func() { row.Split(4, 1) },
		"OneHot: got float32[2 2], want integers":                                                                 func() { a.OneHot(2, dtype.Float32) },
		`Einsum: the equation is "ij->i", want "x,y->z" with a letter for each axis, those of z from x and y`:     func() { tensor.Einsum("ij->i", a, b) },
		`Einsum: the equation is "ij,jk->il", want "x,y->z" with a letter for each axis, those of z from x and y`: func() { tensor.Einsum("ij,jk->il", a, b) },
		`Einsum: operand 1 is float32[1 6], want 2 for axis 'j' as operand 0 has`:                                 func() { tensor.Einsum("ij,jk->ik", a, row) },
		`Einsum: operand 0 is float32[2 2], want 3 axes as in "ijk,jk->i"`:                                        func() { tensor.Einsum("ijk,jk->i", a, b) },
	} {
		err := func() (err error) {
			defer tensor.Catch(&err)
			f()
			return nil
		}()
		if err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}
