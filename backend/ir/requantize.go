package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// requantize keeps values between quantized convolutions in 8 bits. A convolution whose
// result, or that of its epilogue, is read by quantized convolutions alone, with one scale
// and one zero point, stores the integers that they would make of it. The arithmetic is the
// same and only its place changes, so no bit does; a quarter of the bytes is written and
// read, or half of them under bfloat16. The scale and the zero point must be known before
// the convolution runs: they are params or constants.
func requantize(g *Graph) {
	users, outputs := g.users(), g.outputs()
	for _, v := range g.Values {
		if v.Op != op.QuantizedConv || v.Attr.Requantize || outputs[v] || len(users[v]) == 0 {
			continue
		}
		scale, zero := users[v][0].quantization()
		if slices.ContainsFunc(users[v], func(u *Value) bool {
			s, z := u.quantization()
			return s == nil || s != scale || z != zero || u.Args[0] != v || slices.Contains(u.Args[1:], v)
		}) {
			continue
		}
		for _, u := range users[v] {
			u.Attr.DType = v.Type.DType // of the sums times their scales, as before
		}
		if v.Attr.DType == dtype.Invalid { // it has no epilogue
			v.Attr.DType = v.Type.DType
		}
		v.Attr.Requantize, v.Type.DType = true, dtype.Int8
		v.Args = append(slices.Clone(v.Args), scale, zero)
	}
	g.sort() // a scale may have been recorded after the convolution
}

// quantization returns the scale and the zero point of the input of v, a QuantizedConv
// that knows them before the program runs, or nil.
func (v *Value) quantization() (scale, zero *Value) {
	if v.Op != op.QuantizedConv {
		return nil, nil
	}
	scale, zero = v.Args[3], v.Args[4]
	for _, a := range [...]*Value{scale, zero} {
		if a.Op != op.Param && a.Op != op.Const {
			return nil, nil
		}
	}
	return scale, zero
}
