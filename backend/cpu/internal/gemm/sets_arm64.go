package gemm

import (
	"math/bits"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// NEON needs Advanced SIMD, which every arm64 processor has.
var NEON = func() *Set {
	s := portable
	s.Name = "NEON"
	s.F32 = &Tiles{MR: 8, NR: 12, Unit: 1, Step: 1, Deep: 1, Rows: f32NEONRows12, Inner: f32NEONInner12, RowRuns: runsBy(f32NEONRows12)}
	s.Dots = [elements]Dots{dotsBy(F32, 4, dotsF324NEON, dotsF321NEON), dotsBy(F16, 4, dotsF164NEON, dotsF161NEON), dotsBy(BF16, 4, dotsBF164NEON, dotsBF161NEON)}
	s.Adds = [elements]Adds{addsBy(F32, 4, addsF324NEON, addsF321NEON), addsBy(F16, 4, addsF164NEON, addsF161NEON), addsBy(BF16, 4, addsBF164NEON, addsBF161NEON)}
	s.Widen, s.Narrow = widenBy(vec.NEON()), narrowBy(vec.NEON())
	for _, e := range []Element{F16, BF16, RoundF16} {
		s.Lanes[e] = lanesBy(e, s.Widen[e])
	}
	s.Lanes[Pairs] = zipLanes
	s.Transpose = [elements]Pack{transposeBy(F32, 4, transposeF32NEON), transposeBy(F16, 4, transposeF16NEON), transposeBy(BF16, 4, transposeBF16NEON), transposeBy(Pairs, 4, transposeF32NEON), portable.Transpose[RoundF16]}
	s.Peak, s.PeakFlops = f32PeakNEON, 48*8
	return &s
}()

// NEONBF16 needs products of bfloat16 (BFMMLA) besides.
var NEONBF16 = func() *Set {
	s := *NEON
	s.Name = "NEON with BF16"
	s.Pairs = &Tiles{MR: 8, NR: 12, Unit: 1, Step: 2, Deep: 1, Rows: pairsNEONRows12, Inner: pairsNEONInner12, RowRuns: runsBy(pairsNEONRows12), Copy: copyLanes}
	s.PeakPairs, s.PeakPairsFlops = pairsPeakNEON, 48*32
	return &s
}()

// zipLanes is Set.Lanes of Pairs, four lanes at a time.
func zipLanes(d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int, load, store uint) {
	n := bits.Len(load&store) &^ 3
	whole := k &^ 1
	zipNEON(d, ldd, s, lds, k/2, n)
	if store>>n != 0 {
		pairLanes(unsafe.Add(d, 4*n), ldd, unsafe.Add(s, 2*n), lds, whole, load>>n, store>>n)
	}
	if whole < k {
		pairLanes(unsafe.Add(d, whole/2*ldd), ldd, unsafe.Add(s, whole*lds), lds, 1, load, store)
	}
}
