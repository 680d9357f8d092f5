// Package vec is the loops of package cpu over float32 in the assembly of the
// processor's vector instructions.
//
// Main types: [Set] is the loops of one instruction set, [AVX512] and [AVX2]
// return them, and [NEON] for arm64. On processors of other kinds they return nil.
//
// Rules:
//
//   - All slices given to a loop have the length of its result; they may be the
//     same memory but must not overlap otherwise.
//   - What IEEE 754 defines is exact: conversions round to nearest even and keep
//     NaNs, quiet. Functions are within two units in the last place; the bits of
//     an element do not depend on its place nor on the length of the slice.
//   - Folds of the same length have the same bits. Sums are in float64.
//   - A loop cannot be preempted: calls take some 10,000 elements, not millions.
//
// The assembly and its declarations are written by package gen/vec, where the
// kernels are described; loops.go says what each does.
package vec

import (
	"math"
	"math/bits"
	"unsafe"
)

// The kinds of loops.
type (
	Unary   func(dst, a []float32)
	Binary  func(dst, a, b []float32)
	Test    func(dst []byte, a []float32)    // writes 0 and 1
	Compare func(dst []byte, a, b []float32) // writes 0 and 1
	Scalar  func(dst, a []float32, s float32)
	Chain   func(dst, a, b []float32, s, t float32)
	// SlowChain also prefetches len(dst) elements from each pointer of prefetch.
	SlowChain func(dst, a, b, c []float32, s, t float32, prefetch [4]unsafe.Pointer)
	Load      func(dst []float32, a []uint16)
	Store     func(dst []uint16, a []float32)
)

// Folds is the folds of elements of a type in memory.
type Folds[T float32 | uint16] struct {
	Sum, SumSquares func(a []T) float64
	Max, Min        func(a []T) float64 // NaN if there is one; ∓∞ of nothing
	RowMax          func(a []T) float64 // Max for elements that the caches have
	Infinities      func(a []T) float64 // 0 if all are finite, else NaN
	// Find returns the index of the first element equal to v, or -1.
	Find func(a []T, v float32) int
	// SumColumns adds rows of len(acc) elements, stride apart in x, to acc;
	// MaxColumns and MinColumns join them, where a NaN wins.
	SumColumns, MaxColumns, MinColumns func(acc []float64, x []T, rows, stride int)
}

// Set is the loops of an instruction set. Names without a comment are those of
// package op.
type Set struct {
	Neg, Abs, Sign, Square, Relu, Sqrt, Rsqrt, Reciprocal, Floor, Ceil, Round Unary
	Exp, Expm1, Log, Log1p, Tanh, Sigmoid, Erf, NormalCDF, NormalPDF          Unary
	Sin, Cos                                                                  Unary // of numbers within ±TrigLimit
	RoundF16, RoundBF16                                                       Unary // to values of the type

	Add, Sub, Mul, Div, Maximum, Minimum Binary
	AddF16, SubF16, MulF16               Binary // rounded to values of the type
	AddBF16, SubBF16, MulBF16            Binary
	AddScalar, SubScalar                 Scalar
	MulScalar, DivScalar                 Scalar
	ScalarSub, ScalarDiv                 Scalar // s-a, s/a

	Lerp, LerpSquare             Chain     // a+(b-a)·s, a+(b²-a)·s
	LerpFlush, LerpSquareFlush   Chain     // the same +t-t
	Blend, BlendSquare, BlendSub Chain     // a·s+b·t, a·s+b²·t, a·s-b·t
	AddScaled, SubScaled         Chain     // a+b·s, a-b·s
	RootStep, RootStepInside     SlowChain // a-b·s/(√c+t), a-b·s/√(c+t)

	// Moments moves w by the running averages m of g and v of g²: it is
	// LerpFlush(m, m, g, s, t), LerpSquareFlush(v, v, g, u, x) and
	// RootStep(w, w, m, v, y, z), element by element.
	Moments func(m, v, w, g []float32, s, t, u, x, y, z float32)

	// Gelu is a·NormalCDF(a) and GeluGrad b·NormalCDF(a) + b·a·NormalPDF(a), with
	// a rounding for each operation.
	Gelu     Unary
	GeluGrad Binary
	// GeluRows is Gelu in place for the first n elements of rows, which are ld bytes apart.
	GeluRows func(d unsafe.Pointer, ld, rows, n int)
	// Common is functions with the same bits on every level. Those of Set with these names have
	// other bits on AVX-512.
	Common struct {
		NormalCDF, Gelu Unary
		GeluGrad        Binary
		GeluRows        func(d unsafe.Pointer, ld, rows, n int)
		// CellsF32, CellsF16 and CellsBF16 have the bits of Tanh, Sigmoid and the arithmetic in
		// loops of their own. They are empty where a register is narrower than a cache line.
		CellsF32, CellsF16, CellsBF16 Cells
	}

	IsFinite                         Test
	Equal, NotEqual, Less, LessEqual Compare
	// Where has a where the byte of c is not 0, else b.
	Where func(dst []float32, c []byte, a, b []float32)
	// WhereScaled has a·s where the byte of c is not 0, else t.
	WhereScaled func(dst []float32, c []byte, a []float32, s, t float32)

	FromF16, FromBF16 Load
	ToF16, ToBF16     Store
	// ToF16NT, ToBF16NT and CutBF16NT write with non-temporal stores; CutBF16 and
	// CutBF16NT convert values that bfloat16 represents exactly. All but CutBF16 are
	// nil where a register is narrower than a cache line.
	ToF16NT, ToBF16NT, CutBF16, CutBF16NT Store
	// PlusF16 and PlusBF16 add to dst.
	PlusF16, PlusBF16 Load
	FromU8            func(dst []float32, a []uint8)
	FromI8            func(dst []float32, a []byte) // of int8
	FromI32           func(dst []float32, a []int32)
	ScaleI32          func(dst []float32, a []int32, b []float32) // float32(a)·b

	// Quantize has the low byte of z plus a·s, between lo and hi, as the nearest integer,
	// even if there are two. NaN counts as lo. Lo and hi are integers of magnitude 2²⁴ at
	// most.
	Quantize func(dst []byte, a []float32, s, lo, hi float32, z int32)

	// RequantizeI32 is Quantize of float32(a)·b + c, each operation rounded.
	RequantizeI32 func(dst []byte, a []int32, b, c []float32, s, lo, hi float32, z int32)
	// RequantizeF32 is Quantize of a·b + c, each operation rounded.
	RequantizeF32 func(dst []byte, a, b, c []float32, s, lo, hi float32, z int32)

	LowPrecisionF16, LowPrecisionBF16 LowPrecision

	Folds[float32]
	F16, BF16 Folds[uint16]
	// Columns is the sums of columns of float32, the others those of the 16-bit
	// types.
	Columns                 ColumnSums[float32]
	ColumnsF16, ColumnsBF16 ColumnSums[uint16]
	// SumRows folds rows of x, n elements each, len(dst) of them, a multiple of
	// 8. MaxRows and MinRows report whether all was numbers; a row with a NaN
	// comes out wrong.
	SumRows          func(dst []float64, x []float32, n int)
	MaxRows, MinRows func(dst []float64, x []float32, n int) bool

	// Philox fills dst, a multiple of 128 numbers, with the blocks from first on
	// of package philox, as [philox.Uniform] does, for key words k0 and k1
	// and counter words c1 to c3. First must not overflow within dst.
	Philox func(dst []float32, first, k0, k1, c1, c2, c3 uint32)
	// Philox16 is the same for [philox.Uniform16] and a multiple of 256
	// numbers.
	Philox16 func(dst []float32, first, k0, k1, c1, c2, c3 uint32)
	// PhiloxAtLeast says which halves of the words of the same blocks are at least
	// bound, as bytes 0 and 1.
	PhiloxAtLeast func(dst []byte, first, k0, k1, c1, c2, c3 uint32, bound uint16)
	// PhiloxScale is, by the type of dst and x, dst = x·s where those halves are at
	// least bound, and 0 elsewhere; PhiloxScaleNT writes with non-temporal stores,
	// to multiples of 64 bytes. They are nil where registers are too few.
	PhiloxScale, PhiloxScaleNT PhiloxScales
	// SoftmaxRows, LogSoftmaxRows and ArgRows work on rows of n elements, at
	// most Lanes. ArgRows finds the first of the largest or, with sign = 1<<31,
	// of the smallest; NaN wins.
	SoftmaxRows, LogSoftmaxRows func(dst, x []float32, n int)
	ArgRows                     func(dst []int32, x []float32, n int, sign uint32)
	Lanes                       int // float32 in a vector
	// Transpose8 is dst[i*to+j] = src[j*from+i] for i and j below 8.
	Transpose8    func(dst, src []uint32, to, from int)
	Transpose8U16 func(dst, src []uint16, to, from int) // the same
	Passes
	// RowsF32, RowsF16 and RowsBF16 are by the type of rows. RowsConvertBF16 are
	// as CellsConvertBF16.
	RowsF32, RowsF16, RowsBF16, RowsConvertBF16 Rows
	// Tile is the same for i below 16 and j below 16, TileU16 for i below 16 and
	// j below 32. TileNT and TileU16NT write with non-temporal stores, to rows that
	// begin at multiples of 64 bytes. They are nil where registers are too few.
	Tile, TileNT       func(dst, src []uint32, to, from int)
	TileU16, TileU16NT func(dst, src []uint16, to, from int)
	// CopyNT and FillNT set the bytes of dst, to those of src and to x
	// in every four, and CopyRowsNT those of rows, n bytes each, to and from
	// bytes apart; dst, n and to are multiples of 64. They write with non-temporal
	// stores, which Fence makes visible to other cores. PrefetchLoad loads src into
	// the caches by ordinary loads, at the rate of memory.
	CopyNT       func(dst, src []byte)
	FillNT       func(dst []byte, x uint32)
	CopyRowsNT   func(dst, src []byte, n, rows, to, from int)
	Fence        func()
	PrefetchLoad func(src []byte)
	// Prefetch prefetches src to L1.
	Prefetch func(src []byte)
	// PrefetchRows prefetches n bytes of each of at least one row to L2. Rows are
	// step bytes apart.
	PrefetchRows func(src unsafe.Pointer, n, rows, step int)
	// CellsF32, CellsF16 and CellsBF16 are the recurrent cells, by the type of
	// what they store. CellsConvertBF16 needs AVX512-BF16, and takes subnormal
	// numbers for zero when it stores them.
	CellsF32, CellsF16, CellsBF16, CellsConvertBF16 Cells
	CellLanes                                       int // what rows of cells are a multiple of
	*Scores                                             // nil where registers are too few
	// PairSums takes x and y of the same length, which is not 0 and a multiple of 16; all
	// elements must be finite. Scratch has StatsScratch bytes, here and below.
	PairSums func(scratch []byte, x, y []float32) PairSums

	// Magnitudes returns the bits of the largest magnitude of x and of the smallest that
	// is not 0, 0 if there is none; those of infinities and NaNs are beyond all others.
	// Fields become the exponent fields of x, in any order. The length of x is not 0 and
	// a multiple of 64.
	Magnitudes func(scratch, fields []byte, x []float32) (largest, smallest uint32)

	// CountFields adds to counts how often each number but 0 is among fields, and returns
	// the sum. All numbers but 0 must be from low to high, which is not 0; the length of
	// fields is not 0, a multiple of 64 and at most FieldsBlock.
	CountFields func(scratch []byte, counts *[256]uint32, fields []byte, low, high uint8) int
	// Pause has the processor wait n times as its spinning loops should.
	Pause func(n int)
}

// set wraps the functions of an instruction set.
func (l *loops) set(lanes int) *Set {
	s := &Set{
		Neg: unary(l.neg), Abs: unary(l.abs), Sign: unary(l.sign), Square: unary(l.square), Relu: unary(l.relu),
		Sqrt: unary(l.sqrt), Rsqrt: unary(l.rsqrt), Reciprocal: unary(l.reciprocal),
		Floor: unary(l.floor), Ceil: unary(l.ceil), Round: unary(l.round),
		Exp: unary(l.exp), Expm1: unary(l.expm1), Log: unary(l.log), Log1p: unary(l.log1p),
		Tanh: unary(l.tanh), Sigmoid: unary(l.sigmoid), Erf: unary(l.erf),
		NormalCDF: unary(l.normalCDF), NormalPDF: unary(l.normalPDF), Gelu: unary(l.gelu), GeluGrad: binary(l.geluGrad),
		Sin: unary(l.sin), Cos: unary(l.cos),
		RoundF16: unary(l.roundF16), RoundBF16: unary(l.roundBF16),
		Add: binary(l.add), Sub: binary(l.sub), Mul: binary(l.mul), Div: binary(l.div),
		Maximum: binary(l.maximum), Minimum: binary(l.minimum),
		AddScalar: scalar(l.addScalar), SubScalar: scalar(l.subScalar), ScalarSub: scalar(l.scalarSub),
		MulScalar: scalar(l.mulScalar), DivScalar: scalar(l.divScalar), ScalarDiv: scalar(l.scalarDiv),
		Lerp: chain(l.lerp), LerpSquare: chain(l.lerpSquare), LerpFlush: chain(l.lerpFlush), LerpSquareFlush: chain(l.lerpSquareFlush),
		Blend: chain(l.blend), BlendSquare: chain(l.blendSquare), BlendSub: chain(l.blendSub),
		AddScaled: chain(l.addScaled), SubScaled: chain(l.subScaled), RootStep: slowChain(l.rootStep), RootStepInside: slowChain(l.rootStepInside),
		Moments: func(m, v, w, g []float32, s, t, u, x, y, z float32) {
			n := len(m)
			l.moments(data(m), data(v[:n]), data(w[:n]), data(g[:n]), s, t, u, x, y, z, n)
		},
		AddF16: binary(l.addF16), SubF16: binary(l.subF16), MulF16: binary(l.mulF16),
		AddBF16: binary(l.addBF16), SubBF16: binary(l.subBF16), MulBF16: binary(l.mulBF16),
		IsFinite: func(dst []byte, a []float32) { l.isFinite(data(dst), data(a[:len(dst)]), len(dst)) },
		Equal:    compare(l.equal), NotEqual: compare(l.notEqual), Less: compare(l.less), LessEqual: compare(l.lessEqual),
		Where: func(dst []float32, c []byte, a, b []float32) {
			n := len(dst)
			l.where(data(dst), data(c[:n]), data(a[:n]), data(b[:n]), n)
		},
		WhereScaled: func(dst []float32, c []byte, a []float32, s, t float32) {
			n := len(dst)
			l.whereScaled(data(dst), data(c[:n]), data(a[:n]), s, t, n)
		},
		FromF16:  func(dst []float32, a []uint16) { l.f32FromF16(data(dst), data(a[:len(dst)]), len(dst)) },
		FromBF16: func(dst []float32, a []uint16) { l.f32FromBF16(data(dst), data(a[:len(dst)]), len(dst)) },
		PlusF16:  func(dst []float32, a []uint16) { l.plusF16(data(dst), data(a[:len(dst)]), len(dst)) },
		PlusBF16: func(dst []float32, a []uint16) { l.plusBF16(data(dst), data(a[:len(dst)]), len(dst)) },
		ToF16:    func(dst []uint16, a []float32) { l.f16FromF32(data(dst), data(a[:len(dst)]), len(dst)) },
		ToBF16:   func(dst []uint16, a []float32) { l.bf16FromF32(data(dst), data(a[:len(dst)]), len(dst)) },
		FromU8:   func(dst []float32, a []uint8) { l.f32FromU8(data(dst), data(a[:len(dst)]), len(dst)) },
		FromI8:   func(dst []float32, a []byte) { l.f32FromI8(data(dst), data(a[:len(dst)]), len(dst)) },
		FromI32:  func(dst []float32, a []int32) { l.f32FromI32(data(dst), data(a[:len(dst)]), len(dst)) },
		ScaleI32: func(dst []float32, a []int32, b []float32) {
			l.scaleI32(data(dst), data(a[:len(dst)]), data(b[:len(dst)]), len(dst))
		},
		Quantize: func(dst []byte, a []float32, s, lo, hi float32, z int32) {
			l.quantize(data(dst), data(a[:len(dst)]), s, lo, hi, math.Float32frombits(uint32(z)), len(dst))
		},
		RequantizeI32: func(dst []byte, a []int32, b, c []float32, s, lo, hi float32, z int32) {
			n := len(dst)
			l.requantizeI32(data(dst), data(a[:n]), data(b[:n]), data(c[:n]), s, lo, hi, math.Float32frombits(uint32(z)), n)
		},
		RequantizeF32: func(dst []byte, a, b, c []float32, s, lo, hi float32, z int32) {
			n := len(dst)
			l.requantizeF32(data(dst), data(a[:n]), data(b[:n]), data(c[:n]), s, lo, hi, math.Float32frombits(uint32(z)), n)
		},
		Folds:       foldsOf[float32](l.sum, l.sumSquares, l.largest, l.smallest, l.infinities, l.sumColumns, l.largestColumns, l.smallestColumns),
		F16:         foldsOf[uint16](l.sumF16, l.sumSquaresF16, l.largestF16, l.smallestF16, l.infinitiesF16, l.sumColumnsF16, l.largestColumnsF16, l.smallestColumnsF16),
		BF16:        foldsOf[uint16](l.sumBF16, l.sumSquaresBF16, l.largestBF16, l.smallestBF16, l.infinitiesBF16, l.sumColumnsBF16, l.largestColumnsBF16, l.smallestColumnsBF16),
		Columns:     columnSumsOf[float32](l.columnSums, l.columnDeviations, l.columnProducts),
		ColumnsF16:  columnSumsOf[uint16](l.columnSumsF16, l.columnDeviationsF16, l.columnProductsF16),
		ColumnsBF16: columnSumsOf[uint16](l.columnSumsBF16, l.columnDeviationsBF16, l.columnProductsBF16),
		SumRows:     func(dst []float64, x []float32, n int) { foldRows(l.sumRows, dst, x, n) },
		MaxRows:     func(dst []float64, x []float32, n int) bool { return foldRows(l.largestRows, dst, x, n) },
		MinRows:     func(dst []float64, x []float32, n int) bool { return foldRows(l.smallestRows, dst, x, n) },
		Philox: func(dst []float32, first, k0, k1, c1, c2, c3 uint32) {
			if n := len(dst) / 128 * 32; n > 0 {
				l.philox(data(dst), n, first, k0, k1, c1, c2, c3)
			}
		},
		Philox16: func(dst []float32, first, k0, k1, c1, c2, c3 uint32) {
			if n := len(dst) / 256 * 32; n > 0 {
				l.philox16(data(dst), n, first, k0, k1, c1, c2, c3)
			}
		},
		PhiloxAtLeast: func(dst []byte, first, k0, k1, c1, c2, c3 uint32, bound uint16) {
			if n := len(dst) / 256 * 32; n > 0 {
				l.philoxAtLeast(data(dst), n, first, k0, k1, c1, c2, c3, twice(bound))
			}
		},
		Transpose8: func(dst, src []uint32, to, from int) {
			l.transpose8(data(dst[:7*to+8]), data(src[:7*from+8]), to, from)
		},
		Transpose8U16: func(dst, src []uint16, to, from int) {
			l.transpose8U16(data(dst[:7*to+8]), data(src[:7*from+8]), to, from)
		},
		Tile: tile[uint32](l.tile, 16, 16), TileNT: tile[uint32](l.tileNT, 16, 16),
		TileU16: tile[uint16](l.tileU16, 16, 32), TileU16NT: tile[uint16](l.tileU16NT, 16, 32),
		SoftmaxRows: rows(l.softmaxRows), LogSoftmaxRows: rows(l.logSoftmaxRows),
		ArgRows: func(dst []int32, x []float32, n int, sign uint32) {
			if len(dst) > 0 {
				l.argRows(data(dst), data(x[:len(dst)*n]), n, len(dst), sign)
			}
		},
		CopyNT: func(dst, src []byte) {
			src = src[:len(dst)]
			head, n := split(data(dst), len(dst), 512)
			copy(dst[:head], src)
			if n > 0 {
				l.copyNT(data(dst[head:]), data(src[head:]), n)
			}
			dst, src = dst[head+n:], src[head+n:]
			if n = len(dst) &^ (Line - 1); n > 0 {
				l.copyRowsNT(data(dst), data(src), n, 1, n, n)
			}
			copy(dst[n:], src[n:])
		},
		FillNT: func(dst []byte, x uint32) {
			head, n := split(data(dst), len(dst), Line)
			for i := range head {
				dst[i] = byte(x >> (8 * (i % 4)))
			}
			x = bits.RotateLeft32(x, -8*head) // what a line begins with
			if n > 0 {
				l.fillNT(data(dst[head:]), n, x)
			}
			for i := range dst[head+n:] {
				dst[head+n+i] = byte(x >> (8 * (i % 4)))
			}
		},
		CopyRowsNT: func(dst, src []byte, n, rows, to, from int) {
			if n > 0 && rows > 0 {
				l.copyRowsNT(data(dst[:(rows-1)*to+n]), data(src[:(rows-1)*from+n]), n, rows, to, from)
			}
		},
		Fence:        l.fence,
		PrefetchLoad: func(src []byte) { l.prefetchLoad(data(src), len(src)&^511) },
		Prefetch:     func(src []byte) { l.prefetch(data(src), len(src)) },
		PrefetchRows: l.prefetchRows,
		Passes:       l.passes(),
		Lanes:        lanes,
		Pause:        l.pause,
		CellsF32:     cellsOf(l.lstm, l.lstmGrad, l.gru, l.gruGrad),
		CellsF16:     cellsOf(l.lstmF16, l.lstmGradF16, l.gruF16, l.gruGradF16),
		CellsBF16:    cellsOf(l.lstmBF16, l.lstmGradBF16, l.gruBF16, l.gruGradBF16),

		CellsConvertBF16: cellsOf(l.lstmConvertBF16, l.lstmGradConvertBF16, l.gruConvertBF16, l.gruGradConvertBF16),

		CellLanes: map[int]int{4: 4, 8: 8, 16: 1}[lanes], // 16 lanes have masks
	}
	s.PhiloxScale = PhiloxScales{philoxScale[float32](l.philoxScale), philoxScale[uint16](l.philoxScaleF16), philoxScale[uint16](l.philoxScaleBF16)}
	s.PhiloxScaleNT = PhiloxScales{philoxScale[float32](l.philoxScaleNT), philoxScale[uint16](l.philoxScaleF16NT), philoxScale[uint16](l.philoxScaleBF16NT)}
	l.rows(s)
	l.ofLowPrecision(s)
	l.lowPrecision(s)
	l.finds(s)
	l.scores(s)
	l.stats(s)
	c := &s.Common
	c.CellsF32 = cellsOf(l.lstmCommon, l.lstmGradCommon, l.gruCommon, l.gruGradCommon)
	c.CellsF16 = cellsOf(l.lstmCommonF16, l.lstmGradCommonF16, l.gruCommonF16, l.gruGradCommonF16)
	c.CellsBF16 = cellsOf(l.lstmCommonBF16, l.lstmGradCommonBF16, l.gruCommonBF16, l.gruGradCommonBF16)
	c.NormalCDF, c.Gelu, c.GeluGrad = s.NormalCDF, s.Gelu, s.GeluGrad
	c.GeluRows = func(d unsafe.Pointer, ld, rows, n int) {
		for i := range rows {
			row := unsafe.Add(d, i*ld)
			l.gelu(row, row, n)
		}
	}
	if s.GeluRows = c.GeluRows; l.geluRows != nil {
		s.NormalCDF, s.Gelu, s.GeluGrad, s.GeluRows = unary(l.normalCDFTable), unary(l.geluTable), binary(l.geluGradTable), l.geluRows
	}
	return s
}

// PhiloxScales are loops by type, over bytes of so many elements, a multiple of 256.
type PhiloxScales struct{ F32, F16, BF16 PhiloxScale }

// PhiloxScale is one of them.
type PhiloxScale func(dst, x []byte, first, k0, k1, c1, c2, c3 uint32, bound uint16, s float32)

// twice has x in both halves.
func twice(x uint16) uint32 { return uint32(x) * 0x10001 }

func philoxScale[T float32 | uint16](f func(dst unsafe.Pointer, n int, first, k0, k1, c1, c2, c3, bound uint32, s float32, x unsafe.Pointer)) PhiloxScale {
	if f == nil {
		return nil
	}
	return func(dst, x []byte, first, k0, k1, c1, c2, c3 uint32, bound uint16, s float32) {
		var t T
		if n := len(dst) / int(unsafe.Sizeof(t)) / 256 * 32; n > 0 {
			f(data(dst), n, first, k0, k1, c1, c2, c3, twice(bound), s, data(x[:len(dst)]))
		}
	}
}

// TrigLimit is how large arguments of Sin and Cos may be: π/2 is taken from
// them in parts of 24 bits, times a number of up to 15.
const TrigLimit = 39000

// Line is how many bytes go through the caches together.
const Line = 64

// split cuts n bytes from p on in those before a line and whole blocks.
func split(p unsafe.Pointer, n, block int) (head, blocks int) {
	head = min(n, int(-uintptr(p)&(Line-1)))
	return head, (n - head) &^ (block - 1)
}

func data[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

func unary(f func(dst, a unsafe.Pointer, n int)) Unary {
	return func(dst, a []float32) { f(data(dst), data(a[:len(dst)]), len(dst)) }
}

func binary(f func(dst, a, b unsafe.Pointer, n int)) Binary {
	return func(dst, a, b []float32) {
		n := len(dst)
		f(data(dst), data(a[:n]), data(b[:n]), n)
	}
}

func scalar(f func(dst, a unsafe.Pointer, s float32, n int)) Scalar {
	return func(dst, a []float32, s float32) { f(data(dst), data(a[:len(dst)]), s, len(dst)) }
}

func chain(f func(dst, a, b unsafe.Pointer, s, t float32, n int)) Chain {
	return func(dst, a, b []float32, s, t float32) {
		n := len(dst)
		f(data(dst), data(a[:n]), data(b[:n]), s, t, n)
	}
}

func slowChain(f func(dst, a, b, c, p, q, u, v unsafe.Pointer, s, t float32, n int)) SlowChain {
	return func(dst, a, b, c []float32, s, t float32, prefetch [4]unsafe.Pointer) {
		n := len(dst)
		f(data(dst), data(a[:n]), data(b[:n]), data(c[:n]), prefetch[0], prefetch[1], prefetch[2], prefetch[3], s, t, n)
	}
}

func compare(f func(dst, a, b unsafe.Pointer, n int)) Compare {
	return func(dst []byte, a, b []float32) {
		n := len(dst)
		f(data(dst), data(a[:n]), data(b[:n]), n)
	}
}

func foldsOf[T float32 | uint16](sum, squares func(a unsafe.Pointer, n int) float64, most, least, inf func(a unsafe.Pointer, n int) float32, sumColumns, mostColumns, leastColumns func(acc, x unsafe.Pointer, n, rows, stride int)) Folds[T] {
	wide := func(f func(a unsafe.Pointer, n int) float64) func(a []T) float64 {
		return func(a []T) float64 { return f(data(a), len(a)) }
	}
	narrow := func(f func(a unsafe.Pointer, n int) float32) func(a []T) float64 {
		return func(a []T) float64 { return float64(f(data(a), len(a))) }
	}
	columns := func(f func(acc, x unsafe.Pointer, n, rows, stride int)) func(acc []float64, x []T, rows, stride int) {
		return func(acc []float64, x []T, rows, stride int) {
			if n := len(acc); n > 0 && rows > 0 {
				f(data(acc), data(x[:(rows-1)*stride+n]), n, rows, stride)
			}
		}
	}
	return Folds[T]{
		Sum: wide(sum), SumSquares: wide(squares), Max: narrow(most), Min: narrow(least), Infinities: narrow(inf),
		SumColumns: columns(sumColumns), MaxColumns: columns(mostColumns), MinColumns: columns(leastColumns),
	}
}

// tile moves a rectangle of that many rows and columns of dst.
func tile[T uint16 | uint32](f func(dst, src unsafe.Pointer, to, from int), rows, cols int) func(dst, src []T, to, from int) {
	if f == nil {
		return nil
	}
	return func(dst, src []T, to, from int) {
		f(data(dst[:(rows-1)*to+cols]), data(src[:(cols-1)*from+rows]), to, from)
	}
}

func foldRows(f func(dst, x unsafe.Pointer, n, rows int) int, dst []float64, x []float32, n int) bool {
	return len(dst) == 0 || f(data(dst), data(x[:len(dst)*n]), n, len(dst)) == 0
}

func rows(f func(dst, x unsafe.Pointer, n, rows int)) func(dst, x []float32, n int) {
	return func(dst, x []float32, n int) {
		if len(dst) > 0 {
			f(data(dst), data(x[:len(dst)]), n, len(dst)/n)
		}
	}
}
