package gemm

import "unsafe"

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
