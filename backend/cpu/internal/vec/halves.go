package vec

import "unsafe"

// Halves are operations of a 16-bit type from memory to memory, each rounded
// to it. Rows are of numbers of the type, in float32.
type Halves struct {
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

// halfOf wraps an operation of two operands.
func halfOf[T uint16 | float32](f func(dst, a, b unsafe.Pointer, n int)) func(dst, a []uint16, b []T) {
	return func(dst, a []uint16, b []T) {
		n := len(dst)
		f(data(dst), data(a[:n]), data(b[:n]), n)
	}
}

// halvesOf wraps the operations that do not stand in f yet.
func halvesOf(
	f Halves, relu func(dst, a unsafe.Pointer, n int),
	whereGreater, whereScaled func(dst, a, b unsafe.Pointer, s, t float32, n int),
) Halves {
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

// ofHalves adds the operations of 16-bit types to s.
func (l *loops) ofHalves(s *Set) {
	s.HalvesF16 = halvesOf(Halves{
		Add: halfOf[uint16](l.halfAddF16), AddRow: halfOf[float32](l.halfAddRowF16),
		Sub: halfOf[uint16](l.halfSubF16), SubRow: halfOf[float32](l.halfSubRowF16),
		Mul: halfOf[uint16](l.halfMulF16), MulRow: halfOf[float32](l.halfMulRowF16),
		AddRelu: halfOf[uint16](l.halfAddReluF16), AddReluRow: halfOf[float32](l.halfAddReluRowF16),
	}, l.halfReluF16, l.halfWhereGreaterF16, l.halfWhereScaledF16)
	s.HalvesBF16 = halvesOf(Halves{
		Add: halfOf[uint16](l.halfAddBF16), AddRow: halfOf[float32](l.halfAddRowBF16),
		Sub: halfOf[uint16](l.halfSubBF16), SubRow: halfOf[float32](l.halfSubRowBF16),
		Mul: halfOf[uint16](l.halfMulBF16), MulRow: halfOf[float32](l.halfMulRowBF16),
		AddRelu: halfOf[uint16](l.halfAddReluBF16), AddReluRow: halfOf[float32](l.halfAddReluRowBF16),
	}, l.halfReluBF16, l.halfWhereGreaterBF16, l.halfWhereScaledBF16)
}
