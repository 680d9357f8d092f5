package gemm

import (
	"math/bits"
	"runtime"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// AVX512 needs AVX-512 F, BW, DQ and VL.
var AVX512 = &Set{
	Name: "AVX-512",
	F32: &Tiles{
		Tall: f32AVX512Tall,
		MR:   14, NR: 32, Unit: 1, Step: 1, Deep: 1, Masked: true, Rows: f32AVX512Rows32, Inner: f32AVX512Inner32,
		NarrowNR: 16, NarrowRows: f32AVX512Rows16, NarrowInner: f32AVX512Inner16,
		Prefetch: PrefetchKernels{f32AVX512PrefetchRows32, f32AVX512PrefetchInner32},
		Copies:   CopyKernels{f32AVX512CopyRows32, f32AVX512CopyInner32},
		RowRuns:  rowRunsAVX512, NarrowRowRuns: rowRunsNarrowAVX512, WholeRuns: true,
	},
	Lanes:     [elements]Pack{lanesF32AVX512, lanesF16AVX512, lanesBF16AVX512, lanesPairsAVX512, lanesRoundF16AVX512},
	Transpose: [elements]Pack{transposeF32AVX512, transposeF16AVX512, transposeBF16AVX512, transposePairsAVX512, transposeRoundF16AVX512},
	Dots:      [elements]Dots{dotsBy(F32, 1, dotsF324AVX512, dotsF321AVX512), dotsBy(F16, 1, dotsF164AVX512, dotsF161AVX512), dotsBy(BF16, 1, dotsBF164AVX512, dotsBF161AVX512)},
	Adds:      [elements]Adds{addsBy(F32, 1, addsF324AVX512, addsF321AVX512), addsBy(F16, 1, addsF164AVX512, addsF161AVX512), addsBy(BF16, 1, addsBF164AVX512, addsBF161AVX512)},
	AddsFour:  addsFourAVX512,
	Widen:     widenBy(vec.AVX512()),
	Narrow:    narrowBy(vec.AVX512()),
	Depthwise: depthwiseBy(depthwiseRowAVX512), DepthwiseRow: depthwiseRowAVX512, DepthwiseNine: depthwiseNineAVX512, DepthwiseAdd: depthwiseAddAVX512, DepthwiseGrad: depthwiseGradAVX512, MaxPoolGradAdd: maxPoolGradAddF32AVX512,
	Relu: reluAVX512, Add: addAVX512, AddRelu: addReluAVX512, ReluGrad: reluGradAVX512, Divide: divideAVX512,
	LowPrecision: [elements]struct{ Add, AddRelu, Grad LowPrecisionEpilogue }{
		F16:  {epilogueAddF16AVX512, epilogueAddReluF16AVX512, epilogueGradF16AVX512},
		BF16: {epilogueAddBF16AVX512, epilogueAddReluBF16AVX512, epilogueGradBF16AVX512},
	},
	MaxPool:          [elements]Windows{maxPoolF32AVX512, maxPoolF16AVX512, maxPoolBF16AVX512},
	MaxPoolGrad:      [elements]Windows{maxPoolGradF32AVX512, maxPoolGradF16AVX512, maxPoolGradBF16AVX512},
	ReluMaxPoolGrad:  [elements]Windows{reluMaxPoolGradF32AVX512, reluMaxPoolGradF16AVX512, reluMaxPoolGradBF16AVX512},
	PixelRuns:        pixelRunsAVX512,
	NarrowLanes:      [elements]Pack{F16: narrowLanesF16AVX512, BF16: narrowLanesBF16AVX512},
	SmallChannel:     [elements][]Windows{smallChannelF32AVX512, smallChannelF16AVX512, smallChannelBF16AVX512},
	SmallChannelGrad: [elements][]Windows{smallChannelGradF32AVX512, smallChannelGradF16AVX512, smallChannelGradBF16AVX512},

	WinogradSource: winogradSourceAVX512, WinogradResult: winogradResultAVX512, WinogradGrads: winogradGradsAVX512,

	Peak: peakAVX512, PeakFlops: 48 * 32,
}

// AVX512BF16 needs AVX512-BF16 besides.
var AVX512BF16 = func() *Set {
	s := *AVX512
	s.Name = "AVX512-BF16"
	s.Pairs = &Tiles{
		MR: 14, NR: 32, Unit: 1, Step: 2, Deep: 1, Masked: true, Rows: pairsAVX512Rows32, Inner: pairsAVX512Inner32,
		NarrowNR: 16, NarrowRows: pairsAVX512Rows16, NarrowInner: pairsAVX512Inner16,
		Copies:  CopyKernels{Rows: pairsAVX512CopyRows32},
		RowRuns: pairsRowRunsAVX512, NarrowRowRuns: pairsRowRunsNarrowAVX512,
		Copy: copyLanesAVX512,
	}
	s.Adds[Pairs] = addsPairsAVX512
	s.NarrowLanes[BF16] = narrowLanesBF16AVX512BF16
	s.Strips[F32], s.Strips[Pairs] = f32AVX512BF16Strip32, pairsAVX512Strip32
	s.NarrowStrips[F32], s.NarrowStrips[Pairs] = f32AVX512BF16Strip16, pairsAVX512Strip16
	s.PeakPairs, s.PeakPairsFlops = peakPairsAVX512, 48*64
	return &s
}()

// AVX2 needs AVX2, FMA and F16C.
var AVX2 = func() *Set {
	s := portable
	s.Name = "AVX2"
	s.F32 = &Tiles{MR: 6, NR: 16, Unit: 1, Step: 1, Deep: 1, Rows: f32AVX2Rows16, Inner: f32AVX2Inner16, RowRuns: rowRunsAVX2, WholeRuns: true, Tall: f32AVX2Tall}
	s.Dots = [elements]Dots{dotsBy(F32, 8, dotsF324AVX2, dotsF321AVX2), dotsBy(F16, 8, dotsF164AVX2, dotsF161AVX2), dotsBy(BF16, 8, dotsBF164AVX2, dotsBF161AVX2)}
	s.Adds = [elements]Adds{addsBy(F32, 8, addsF324AVX2, addsF321AVX2), addsBy(F16, 8, addsF164AVX2, addsF161AVX2), addsBy(BF16, 8, addsBF164AVX2, addsBF161AVX2)}
	s.Widen, s.Narrow = widenBy(vec.AVX2()), narrowBy(vec.AVX2())
	for _, e := range []Element{F16, BF16, RoundF16} {
		s.Lanes[e] = lanesBy(e, s.Widen[e])
	}
	s.Transpose[F32], s.Transpose[F16], s.Transpose[BF16] = transposeBy(F32, 8, transposeF32AVX2), transposeBy(F16, 8, transposeF16AVX2), transposeBy(BF16, 8, transposeBF16AVX2)
	s.Depthwise, s.DepthwiseRow, s.DepthwiseNine = depthwiseBy(depthwiseRowAVX2), depthwiseRowAVX2, wholeVectors(8, depthwiseNineAVX2, depthwiseRowAVX2)
	s.WinogradSource, s.WinogradResult, s.WinogradGrads = winogradSourceAVX2, winogradResultAVX2, winogradGradsAVX2
	s.SmallChannel[F32] = smallChannelF32AVX2
	s.MaxPool[F32] = maxPoolF32AVX2
	s.Relu, s.Add, s.ReluGrad = reluAVX2, addAVX2, reluGradAVX2
	s.Peak, s.PeakFlops = peakAVX2, 48*16
	return &s
}()

// AMX needs AMX-BF16, and the permission of the system. There are no kernels for single
// rows of pairs: processors that have AMX run those of AVX512-BF16 at half the
// speed of float32.
var AMX = func() *Set {
	s := *AVX512
	s.Name = "AMX-BF16"
	s.NarrowLanes[BF16] = narrowLanesBF16AVX512BF16
	s.Blocks = &Tiles{
		MR: 32, NR: 32, Unit: 16, Step: 2, Deep: 16,
		Rows: []Kernel{16: pairsAMXRows16x32, 32: pairsAMXRows32x32},
		Runs: pairsAMXRuns32, Copy: copyLanesAVX512, Patches: copyPatchesAVX512,
		Begin: beginAMX, End: releaseAMX,
	}
	s.Panels = &Panels{
		Kernels: [2][2][2]PanelKernel{
			{{panelAMX16x16Parts1, panelAMX16x32Parts1}, {panelAMX32x16Parts1, panelAMX32x32Parts1}},
			{{panelAMX16x16Parts2, panelAMX16x32Parts2}, {panelAMX32x16Parts2, panelAMX32x32Parts2}},
		},
		Split: splitAMX, Begin: beginAMX, End: releaseAMX,
	}
	s.PeakPairs = func(n int) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		beginAMX()
		peakAMX(n)
		releaseAMX()
	}
	s.PeakPairsFlops = 16 * 2 * 16 * 16 * 32
	return &s
}()

func beginAMX() { configureAMX(unsafe.Pointer(&tileShape)) }

// tileShape is the configuration in which all tile registers have 16 rows of
// 64 bytes: Intel SDM volume 1, section 18.3.
var tileShape = func() (shape [64]byte) {
	shape[0] = 1 // palette
	for i := range 8 {
		shape[16+2*i] = 64
		shape[48+i] = 16
	}
	return
}()

// depthwiseBy is Depthwise by a loop over rows of pixels; the bits of a mask are its lowest
// ones.
func depthwiseBy(row DepthwiseRow) Windows {
	return func(n, taps int, at, x unsafe.Pointer, xs int, y unsafe.Pointer, _ int, d unsafe.Pointer, ds int, mask uint) {
		row(n, taps, at, x, xs, y, nil, d, ds, bits.Len(mask))
	}
}

// wholeVectors is nine for a multiple of so many channels, and row for any others.
func wholeVectors(vector int, nine, row DepthwiseRow) DepthwiseRow {
	return func(n, taps int, at, x unsafe.Pointer, xs int, y, bias, d unsafe.Pointer, ds, channels int) {
		loop := nine
		if channels%vector != 0 {
			loop = row
		}
		loop(n, taps, at, x, xs, y, bias, d, ds, channels)
	}
}
