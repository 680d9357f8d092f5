package vec

import "unsafe"

// LowPrecision are operations of a 16-bit type from memory to memory, each rounded
// to it. Rows are of numbers of the type, in float32.
type LowPrecision struct {
	Add, Sub, Mul          func(dst, a, b []uint16)
	AddRow, SubRow, MulRow func(dst, a []uint16, b []float32)
	AddRelu                func(dst, a, b []uint16) // relu(a+b)
	AddReluRow             func(dst, a []uint16, b []float32)
	Relu                   func(dst, a []uint16)
	// WhereGreater has b where a > s, else t, a number of the type, and
	// WhereScaled a·s where the byte of c is not 0, else t.
	WhereGreater func(dst, a, b []uint16, s, t float32)
	WhereScaled  func(dst []uint16, c []byte, a []uint16, s, t float32)
}

// lowPrecision2 wraps an operation of two operands.
func lowPrecision2[T uint16 | float32](f func(dst, a, b unsafe.Pointer, n int)) func(dst, a []uint16, b []T) {
	return func(dst, a []uint16, b []T) {
		n := len(dst)
		f(data(dst), data(a[:n]), data(b[:n]), n)
	}
}

// lowPrecisionOf wraps the operations that do not stand in f yet.
func lowPrecisionOf(
	f LowPrecision, relu func(dst, a unsafe.Pointer, n int),
	whereGreater, whereScaled func(dst, a, b unsafe.Pointer, s, t float32, n int),
) LowPrecision {
	f.Relu = func(dst, a []uint16) { relu(data(dst), data(a[:len(dst)]), len(dst)) }
	f.WhereGreater = func(dst, a, b []uint16, s, t float32) {
		n := len(dst)
		whereGreater(data(dst), data(a[:n]), data(b[:n]), s, t, n)
	}
	f.WhereScaled = func(dst []uint16, c []byte, a []uint16, s, t float32) {
		n := len(dst)
		whereScaled(data(dst), data(c[:n]), data(a[:n]), s, t, n)
	}
	return f
}

// ofLowPrecision adds the operations of 16-bit types to s.
func (l *loops) ofLowPrecision(s *Set) {
	s.LowPrecisionF16 = lowPrecisionOf(LowPrecision{
		Add: lowPrecision2[uint16](l.lowpAddF16), AddRow: lowPrecision2[float32](l.lowpAddRowF16),
		Sub: lowPrecision2[uint16](l.lowpSubF16), SubRow: lowPrecision2[float32](l.lowpSubRowF16),
		Mul: lowPrecision2[uint16](l.lowpMulF16), MulRow: lowPrecision2[float32](l.lowpMulRowF16),
		AddRelu: lowPrecision2[uint16](l.lowpAddReluF16), AddReluRow: lowPrecision2[float32](l.lowpAddReluRowF16),
	}, l.lowpReluF16, l.lowpWhereGreaterF16, l.lowpWhereScaledF16)
	s.LowPrecisionBF16 = lowPrecisionOf(LowPrecision{
		Add: lowPrecision2[uint16](l.lowpAddBF16), AddRow: lowPrecision2[float32](l.lowpAddRowBF16),
		Sub: lowPrecision2[uint16](l.lowpSubBF16), SubRow: lowPrecision2[float32](l.lowpSubRowBF16),
		Mul: lowPrecision2[uint16](l.lowpMulBF16), MulRow: lowPrecision2[float32](l.lowpMulRowBF16),
		AddRelu: lowPrecision2[uint16](l.lowpAddReluBF16), AddReluRow: lowPrecision2[float32](l.lowpAddReluRowBF16),
	}, l.lowpReluBF16, l.lowpWhereGreaterBF16, l.lowpWhereScaledBF16)
}
