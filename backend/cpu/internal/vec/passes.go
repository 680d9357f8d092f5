package vec

import (
	"math"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Rows are the loops of normalizations and softmaxes over rows in memory, bytes of elements of
// one type; a row is a multiple of Lanes elements. s has numbers, followed by the resulting
// sums in float32. Sums of a multiple of 16 elements have the same bits on every level: each
// 64th element goes into the same sum, and the last elements that do not fill up 64, 16 at a
// time, into the first 16. Only those of GradRowSums have the lanes of four vectors of the level.
// Functions with an argument prefetch prefetch as many bytes from it as a row has; it may be
// shorter, because nothing is read. loops.go has the formula of each.
type Rows struct {
	// Exp2Sum is dst = 2 to the power of x·s[0] + s[1], and 0 below 2⁻¹²⁶, with
	// the sum in s[2].
	Exp2Sum func(dst []float32, x []byte, s []float32, prefetch []byte)

	// Products is s[0] = Σ x·y.
	Products func(x, y []byte, s []float32, prefetch []byte)

	// KeepDeviations is Deviations of a row of 16 bits, which it also stores in dst as
	// float32. It is nil for float32. Later passes read dst, because converting again costs
	// more.
	KeepDeviations func(dst []float32, x []byte, s []float32)
	Deviations     func(x, s []float32)
	// RowDeviations is Deviations of rows of n elements from the first one of each. s has three
	// numbers for each row.
	RowDeviations func(x []float32, n int, s []float32)
	// GradRowSums stores grad·gain in gained, for GradRow: a gain that is a NaN must have no
	// more bits than bfloat16.
	GradRowSums func(dgain, dshift, gained, x []float32, grad []byte, gain, s []float32, prefetch []byte)

	RowStores
	// NT writes with non-temporal stores, to multiples of 64 bytes. It is nil where
	// a register is not a line.
	NT *RowStores
}

// RowStores are the Rows that write rows.
type RowStores struct {
	ScaleRow     func(dst []byte, x, s []float32)
	LessRow      func(dst, x []byte, s []float32)
	NormalizeRow func(dst []byte, x, gain, shift, s []float32, prefetch []byte)
	// NormalizeRows is NormalizeRow of rows of float32, and prefetches as many. s has two numbers
	// for each row.
	NormalizeRows func(dst []byte, x, gain, shift, s []float32, prefetch []byte)
	GradRow       func(dst []byte, x, gained, s []float32, prefetch []byte)
	// NormalizeKeep is NormalizeRow, and KeepDeviations of the next row. It is nil for
	// float32, and where registers are too few.
	NormalizeKeep  func(dst []byte, x, gain, shift, kept []float32, next []byte, s []float32, prefetch []byte)
	SoftmaxGradRow func(dst, y, grad []byte, s []float32, prefetch []byte)

	// Exp2SumScale is e = 2 to the power of x·s[0] + s[1], within a sixteenth of half
	// a unit of the type, with the sum in s[3], and dst = last·s[2]. It returns the
	// largest of next, a row like x; a NaN, which need not be the result, reaches the
	// sum of its row. s[4] and s[5] are changed. It is nil for float32, and where a
	// register is not a line.
	Exp2SumScale func(dst []byte, last, e []float32, x []byte, s []float32, next, prefetch []byte) float64
}

// Passes are loops over float32, a multiple of Lanes each, that do several
// operations.
type Passes struct {
	// Exp2Sum is Rows.Exp2Sum.
	Exp2Sum func(dst, x, s []float32)

	// Exp2BelowSum is dst = s[2] times 2 to the power of min(0, x-s[1])·s[0], and 0
	// below 2⁻¹²⁶, with the sum in s[3].
	Exp2BelowSum func(dst, x, s []float32)

	// Affine is dst = (a-b)·c + d and AffineSum a·b + (c-d)·e + f, for v of a, b,
	// c …, with a rounding for each operation.
	Affine, AffineSum func(dst []float32, v [6][]float32)
}

func (l *loops) passes() Passes {
	return Passes{
		Exp2Sum: func(dst, x, s []float32) {
			l.exp2Sum(data(dst), data(x[:len(dst)]), data(x), data(s[:3]), len(dst))
		},
		Exp2BelowSum: func(dst, x, s []float32) {
			l.exp2BelowSum(data(dst), data(x[:len(dst)]), data(s[:4]), len(dst))
		},
		Affine: func(dst []float32, v [6][]float32) {
			n := len(dst)
			l.affine(data(dst), data(v[0][:n]), data(v[1][:n]), data(v[2][:n]), data(v[3][:n]), nil, n)
		},
		AffineSum: func(dst []float32, v [6][]float32) {
			n := len(dst)
			l.affineSum(data(dst), data(v[0][:n]), data(v[1][:n]), data(v[2][:n]), data(v[3][:n]), data(v[4][:n]), data(v[5][:n]), nil, n)
		},
	}
}

// The functions in assembly, by the number of their slices; s is one more.
type (
	pass2 = func(a, b, s unsafe.Pointer, n int)
	pass3 = func(a, b, c, s unsafe.Pointer, n int)
	pass4 = func(a, b, c, d, s unsafe.Pointer, n int)
	pass5 = func(a, b, c, d, e, s unsafe.Pointer, n int)
	pass6 = func(a, b, c, d, e, f, s unsafe.Pointer, n int)
	pass7 = func(a, b, c, d, e, f, g, s unsafe.Pointer, n int)
)

// wrapRows wraps the functions for elements of size bytes.
func (l *loops) wrapRows(size int, exp2Sum, products pass3, keepDeviations pass2, gradRowSums pass7, stores RowStores, nt *RowStores) Rows {
	r := Rows{
		Exp2Sum: func(dst []float32, x []byte, s []float32, prefetch []byte) {
			exp2Sum(data(dst), data(x[:size*len(dst)]), data(prefetch), data(s[:3]), len(dst))
		},
		Products: func(x, y []byte, s []float32, prefetch []byte) {
			products(data(x), data(y[:len(x)]), data(prefetch), data(s[:1]), len(x)/size)
		},
		Deviations: func(x, s []float32) { l.deviations(data(x), data(s[:3]), len(x)) },
		RowDeviations: func(x []float32, n int, s []float32) {
			rows := len(s) / 3
			x = x[:n*rows]
			for i := range rows {
				s[3*i] = x[i*n]
				l.deviations(unsafe.Pointer(&x[i*n]), unsafe.Pointer(&s[3*i]), n)
			}
		},
		GradRowSums: func(dgain, dshift, gained, x []float32, grad []byte, gain, s []float32, prefetch []byte) {
			n := len(dgain)
			gradRowSums(data(dgain), data(dshift[:n]), data(gained[:n]), data(x[:n]), data(grad[:size*n]), data(gain[:n]), data(prefetch), data(s[:4]), n)
		},
		RowStores: stores, NT: nt,
	}
	if keepDeviations != nil {
		r.KeepDeviations = func(dst []float32, x []byte, s []float32) {
			keepDeviations(data(dst), data(x[:size*len(dst)]), data(s[:3]), len(dst))
		}
	}
	return r
}

func wrapRowStores(size int, scaleRow, lessRow pass2, normalizeRow pass5, gradRow, softmaxGradRow pass4, normalizeKeep pass7, exp2SumScale pass6, top func(most, least uint16) float64) RowStores {
	r := RowStores{
		ScaleRow: func(dst []byte, x, s []float32) {
			n := len(dst) / size
			scaleRow(data(dst), data(x[:n]), data(s[:1]), n)
		},
		LessRow: func(dst, x []byte, s []float32) {
			lessRow(data(dst), data(x[:len(dst)]), data(s[:2]), len(dst)/size)
		},
		NormalizeRow: func(dst []byte, x, gain, shift, s []float32, prefetch []byte) {
			n := len(dst) / size
			normalizeRow(data(dst), data(x[:n]), data(gain[:n]), data(shift[:n]), data(prefetch), data(s[:2]), n)
		},
		NormalizeRows: func(dst []byte, x, gain, shift, s []float32, prefetch []byte) {
			n, rows := len(gain), len(s)/2
			shift, x = shift[:n], x[:n*rows]
			dst = dst[:4*len(x)]
			for i := range rows {
				ahead := prefetch[min(4*i*n, len(prefetch)):] // no pointer lies behind the memory
				normalizeRow(unsafe.Pointer(&dst[4*i*n]), unsafe.Pointer(&x[i*n]), data(gain), data(shift), data(ahead), unsafe.Pointer(&s[2*i]), n)
			}
		},
		GradRow: func(dst []byte, x, gained, s []float32, prefetch []byte) {
			n := len(dst) / size
			gradRow(data(dst), data(x[:n]), data(gained[:n]), data(prefetch), data(s[:4]), n)
		},
		SoftmaxGradRow: func(dst, y, grad []byte, s []float32, prefetch []byte) {
			softmaxGradRow(data(dst), data(y[:len(dst)]), data(grad[:len(dst)]), data(prefetch), data(s[:1]), len(dst)/size)
		},
	}
	if normalizeKeep != nil {
		r.NormalizeKeep = func(dst []byte, x, gain, shift, kept []float32, next []byte, s []float32, prefetch []byte) {
			n := len(dst) / size
			normalizeKeep(data(dst), data(x[:n]), data(gain[:n]), data(shift[:n]), data(kept[:n]), data(next[:len(dst)]), data(prefetch), data(s[:5]), n)
		}
	}
	if exp2SumScale != nil {
		r.Exp2SumScale = func(dst []byte, last, e []float32, x []byte, s []float32, next, prefetch []byte) float64 {
			n := len(e)
			exp2SumScale(data(dst[:size*n]), data(last[:n]), data(e), data(x[:size*n]), data(next[:size*n]), data(prefetch), data(s[:6]), n)
			return top(uint16(math.Float32bits(s[4])), uint16(math.Float32bits(s[5])))
		}
	}
	return r
}

// topOf is the largest of 16-bit floats, of which inf is infinity, by the largest
// and the smallest of them as integers.
func topOf(inf uint16, value func(uint16) float32) func(most, least uint16) float64 {
	return func(most, least uint16) float64 {
		if int16(most) < 0 { // all are: the smallest magnitude
			most = least
		}
		if most&0x7fff > inf {
			return math.NaN()
		}
		return float64(value(most))
	}
}

// rows adds the loops over rows to s.
func (l *loops) rows(s *Set) {
	topF16, topBF16 := topOf(0x7c00, dtype.F16ToF32), topOf(0x7f80, dtype.BF16ToF32)
	ntStores := func(r RowStores) *RowStores {
		if l.scaleRowNT == nil {
			return nil
		}
		return &r
	}
	s.RowsF32 = l.wrapRows(4, l.exp2Sum, l.products, nil, l.gradRowSums,
		wrapRowStores(4, l.scaleRow, l.lessRow, l.normalizeRow, l.gradRow, l.softmaxGradRow, nil, nil, nil),
		ntStores(wrapRowStores(4, l.scaleRowNT, l.lessRowNT, l.normalizeRowNT, l.gradRowNT, l.softmaxGradRowNT, nil, nil, nil)))
	s.RowsF16 = l.wrapRows(2, l.exp2SumF16, l.productsF16, l.keepDeviationsF16, l.gradRowSumsF16,
		wrapRowStores(2, l.scaleRowF16, l.lessRowF16, l.normalizeRowF16, l.gradRowF16, l.softmaxGradRowF16, l.normalizeKeepF16, l.exp2SumScaleF16, topF16),
		ntStores(wrapRowStores(2, l.scaleRowF16NT, l.lessRowF16NT, l.normalizeRowF16NT, l.gradRowF16NT, l.softmaxGradRowF16NT, l.normalizeKeepF16NT, l.exp2SumScaleF16NT, topF16)))
	s.RowsBF16 = l.wrapRows(2, l.exp2SumBF16, l.productsBF16, l.keepDeviationsBF16, l.gradRowSumsBF16,
		wrapRowStores(2, l.scaleRowBF16, l.lessRowBF16, l.normalizeRowBF16, l.gradRowBF16, l.softmaxGradRowBF16, l.normalizeKeepBF16, l.exp2SumScaleBF16, topBF16),
		ntStores(wrapRowStores(2, l.scaleRowBF16NT, l.lessRowBF16NT, l.normalizeRowBF16NT, l.gradRowBF16NT, l.softmaxGradRowBF16NT, l.normalizeKeepBF16NT, l.exp2SumScaleBF16NT, topBF16)))
	s.RowsConvertBF16 = l.wrapRows(2, l.exp2SumBF16, l.productsBF16, l.keepDeviationsBF16, l.gradRowSumsBF16,
		wrapRowStores(2, l.scaleRowConvertBF16, l.lessRowConvertBF16, l.normalizeRowConvertBF16, l.gradRowBF16, l.softmaxGradRowConvertBF16, l.normalizeKeepConvertBF16, l.exp2SumScaleConvertBF16, topBF16),
		ntStores(wrapRowStores(2, l.scaleRowConvertBF16NT, l.lessRowConvertBF16NT, l.normalizeRowConvertBF16NT, l.gradRowBF16NT, l.softmaxGradRowConvertBF16NT, l.normalizeKeepConvertBF16NT, l.exp2SumScaleConvertBF16NT, topBF16)))
}

// lowPrecision adds the conversions of float32 to 16 bits that are passes to s.
func (l *loops) lowPrecision(s *Set) {
	// The rest, and what begins within a line, goes through the caches.
	wrap := func(f pass2, nt bool, rest Store) Store {
		if f == nil {
			return nil
		}
		return func(dst []uint16, a []float32) {
			n := len(dst) / s.Lanes * s.Lanes
			if p := data(dst); n == 0 || nt && uintptr(p)%Line != 0 {
				n = 0
			} else {
				f(p, data(a[:n]), nil, n)
			}
			rest(dst[n:], a[n:len(dst)])
		}
	}
	s.ToF16NT, s.ToBF16NT = wrap(l.narrowF16NT, true, s.ToF16), wrap(l.narrowBF16NT, true, s.ToBF16)
	s.CutBF16 = wrap(l.cutBF16, false, func(dst []uint16, a []float32) {
		for i, x := range a {
			dst[i] = uint16(math.Float32bits(x) >> 16)
		}
	})
	s.CutBF16NT = wrap(l.cutBF16NT, true, s.CutBF16)
}
