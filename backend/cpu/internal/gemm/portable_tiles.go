package gemm

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// Portable is the routines in Go alone.
var Portable = func() *Set {
	s := portable
	t := &Tiles{MR: 4, NR: portableNR, Unit: 1, Step: 1, Deep: 1, Rows: []Kernel{nil}, Inner: []Kernel{nil}}
	for rows := 1; rows <= t.MR; rows++ {
		t.Rows = append(t.Rows, portableKernel(rows, false))
		t.Inner = append(t.Inner, portableKernel(rows, true))
	}
	t.RowRuns = runsBy(t.Rows)
	s.F32 = t
	return &s
}()

const portableNR = 8

// portableKernel is a Kernel with sums in registers, as far as the compiler
// keeps them there.
func portableKernel(rows int, inner bool) Kernel {
	return func(k int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, _ uint) {
		row, step := lda, 4
		if inner {
			row, step = 4, lda
		}
		for i := range rows {
			var sum [portableNR]float32
			if s != nil {
				sum = *(*[portableNR]float32)(unsafe.Add(s, i*lds))
			}
			for p := range k {
				x := *(*float32)(unsafe.Add(a, i*row+p*step))
				y := (*[portableNR]float32)(unsafe.Add(b, p*ldb))
				sum[0] += float32(x * y[0])
				sum[1] += float32(x * y[1])
				sum[2] += float32(x * y[2])
				sum[3] += float32(x * y[3])
				sum[4] += float32(x * y[4])
				sum[5] += float32(x * y[5])
				sum[6] += float32(x * y[6])
				sum[7] += float32(x * y[7])
			}
			*(*[portableNR]float32)(unsafe.Add(d, i*ldd)) = sum
		}
	}
}

// runsBy is kernels that go through runs, a run to a call of the given ones: sums
// are stored and loaded from a run to the next.
func runsBy(kernels []Kernel) []PixelRuns {
	all := make([]PixelRuns, len(kernels))
	for rows, kernel := range kernels {
		if kernel == nil {
			continue
		}
		all[rows] = func(n int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, mask uint, at unsafe.Pointer) {
			for _, run := range unsafe.Slice((*[3]int64)(at), n) {
				kernel(int(run[2]), unsafe.Add(a, run[0]), lda, unsafe.Add(b, run[1]), ldb, s, lds, d, ldd, mask)
				s, lds = d, ldd
			}
		}
	}
	return all
}

// Products returns the routines for matrix products, or nil where the level has none: those
// of Current or, if bits must be portable, an ordered set.
func Products() *Set {
	if !isa.PortableBits() {
		return Current()
	}
	if s := ordered[isa.Current()]; s != nil {
		return s
	}
	return portableOrdered
}

// ordered are the sets for portable bits, by level. Every one of their kernels of float32
// forms each sum in the same order, with a fused operation for each product: from zero, one
// product after the other, and then the term s is added. So the results do not depend on
// the level, as long as the inner dimension is cut alike. Bfloat16 and float16 are widened
// to float32.
var ordered = func() map[isa.Level]*Set {
	// Conversions of AVX512-BF16 take subnormal numbers for zero.
	from := map[isa.Level]isa.Level{isa.AVX512BF16: isa.AVX512, isa.AMX: isa.AVX512, isa.NEONBF16: isa.NEON}
	all := map[isa.Level]*Set{}
	for l, s := range levels {
		if lower, ok := from[l]; ok {
			s = levels[lower]
		}
		all[l] = s.ordered()
	}
	return all
}()

// ordered returns a copy of s without kernels that add in another order than those of other
// sets.
func (s *Set) ordered() *Set {
	t := *s.F32
	if t.Copies = (CopyKernels{}); !t.WholeRuns {
		t.RowRuns, t.NarrowRowRuns = nil, nil
	}
	o := &Set{
		Name: s.Name, F32: &t,
		Lanes: s.Lanes, Transpose: s.Transpose, Widen: s.Widen, Narrow: s.Narrow, NarrowLanes: s.NarrowLanes,
		Relu: s.Relu, Add: s.Add, ReluGrad: s.ReluGrad, Divide: s.Divide, LowPrecision: s.LowPrecision,
		SmallChannel: s.SmallChannel, SmallChannelGrad: s.SmallChannelGrad,
		Depthwise: s.Depthwise, DepthwiseRow: s.DepthwiseRow, DepthwiseNine: s.DepthwiseNine,
		WinogradSource: s.WinogradSource, WinogradResult: s.WinogradResult, WinogradGrads: s.WinogradGrads,
		Ordered: true,
	}
	o.addTransforms()
	return o
}

// addTransforms adds Winograd's transforms in Go where s has none.
func (s *Set) addTransforms() {
	if s.WinogradSource == nil {
		s.Depthwise, s.WinogradSource, s.WinogradResult = depthwise, transformBy(sourceRows), transformBy(resultRows)
	}
	if s.WinogradGrads == nil {
		s.WinogradGrads = transformBy(gradRows)
	}
}

// portableOrdered is the ordered set in Go.
var portableOrdered = func() *Set {
	s := portable
	t := &Tiles{MR: 4, NR: portableNR, Unit: 1, Step: 1, Deep: 1, Rows: []Kernel{nil}, Inner: []Kernel{nil}}
	for rows := 1; rows <= t.MR; rows++ {
		t.Rows = append(t.Rows, fusedKernel(rows, false))
		t.Inner = append(t.Inner, fusedKernel(rows, true))
	}
	s.F32, s.Ordered = t, true
	s.addTransforms()
	return &s
}()

// fusedKernel is a Kernel whose products are added by portablemath.FMA32.
func fusedKernel(rows int, inner bool) Kernel {
	return func(k int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, _ uint) {
		row, step := lda, 4
		if inner {
			row, step = 4, lda
		}
		for i := range rows {
			var sum [portableNR]float32
			for p := range k {
				x := *(*float32)(unsafe.Add(a, i*row+p*step))
				y := (*[portableNR]float32)(unsafe.Add(b, p*ldb))
				for j := range sum {
					sum[j] = portablemath.FMA32(x, y[j], sum[j])
				}
			}
			to := (*[portableNR]float32)(unsafe.Add(d, i*ldd))
			if s != nil {
				from := (*[portableNR]float32)(unsafe.Add(s, i*lds))
				for j := range sum {
					sum[j] += from[j]
				}
			}
			*to = sum
		}
	}
}
