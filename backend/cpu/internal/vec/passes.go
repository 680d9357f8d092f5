package vec

// Passes are loops of normalizations and softmaxes. All their slices have the
// length of the first, a multiple of Lanes. Numbers are handed over in s, and
// sums come back in it after them; sums are in float32. loops.go says what
// each does.
type Passes struct {
	// Exp2Sum is dst = 2 to the power of x·s[0] + s[1], and 0 below 2⁻¹²⁶, with
	// the sum in s[2]; Exp2SumBF16 rounds to bfloat16 after that.
	Exp2Sum     func(dst, x, s []float32)
	Exp2SumBF16 func(dst []uint16, x, s []float32)

	// Exp2SumAhead is Exp2Sum and asks the caches for as many bytes of ahead, of
	// which it reads none: there may be less.
	Exp2SumAhead func(dst, x, s []float32, ahead []byte)

	// Products is s[0] = Σ x·y.
	Products func(x, y, s []float32)

	Deviations   func(x, s []float32)
	LessRow      func(dst, x, s []float32)
	NormalizeRow func(dst, x, gain, shift, s []float32, ahead []byte) // which is as that of Exp2SumAhead
	GradRowSums  func(dgain, dshift, x, grad, gain, s []float32)
	GradRow      func(dst, x, grad, gain, s []float32)

	// Affine is dst = (a-b)·c + d and AffineSum a·b + (c-d)·e + f, for v of a, b,
	// c …, with a rounding for each operation.
	Affine, AffineSum func(dst []float32, v [6][]float32)
}

func (l *loops) passes() Passes {
	return Passes{
		Exp2Sum: func(dst, x, s []float32) { l.exp2Sum(data(dst), data(x[:len(dst)]), data(s[:3]), len(dst)) },
		Exp2SumBF16: func(dst []uint16, x, s []float32) {
			l.exp2SumBF16(data(dst), data(x[:len(dst)]), data(s[:3]), len(dst))
		},
		Deviations: func(x, s []float32) { l.deviations(data(x), data(s[:3]), len(x)) },
		Products:   func(x, y, s []float32) { l.products(data(x), data(y[:len(x)]), data(s[:1]), len(x)) },
		LessRow:    func(dst, x, s []float32) { l.lessRow(data(dst), data(x[:len(dst)]), data(s[:2]), len(dst)) },
		Exp2SumAhead: func(dst, x, s []float32, ahead []byte) {
			l.exp2SumAhead(data(dst), data(x[:len(dst)]), data(ahead), data(s[:3]), len(dst))
		},
		NormalizeRow: func(dst, x, gain, shift, s []float32, ahead []byte) {
			n := len(dst)
			l.normalizeRow(data(dst), data(x[:n]), data(gain[:n]), data(shift[:n]), data(ahead), data(s[:2]), n)
		},
		GradRowSums: func(dgain, dshift, x, grad, gain, s []float32) {
			n := len(dgain)
			l.gradRowSums(data(dgain), data(dshift[:n]), data(x[:n]), data(grad[:n]), data(gain[:n]), data(s[:4]), n)
		},
		Affine: func(dst []float32, v [6][]float32) {
			n := len(dst)
			l.affine(data(dst), data(v[0][:n]), data(v[1][:n]), data(v[2][:n]), data(v[3][:n]), nil, n)
		},
		AffineSum: func(dst []float32, v [6][]float32) {
			n := len(dst)
			l.affineSum(data(dst), data(v[0][:n]), data(v[1][:n]), data(v[2][:n]), data(v[3][:n]), data(v[4][:n]), data(v[5][:n]), nil, n)
		},
		GradRow: func(dst, x, grad, gain, s []float32) {
			n := len(dst)
			l.gradRow(data(dst), data(x[:n]), data(grad[:n]), data(gain[:n]), data(s[:4]), n)
		},
	}
}
