package conv

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// problem is the input of the choice of an algorithm.
type problem struct {
	convolution
	b   *exec.Builder
	v   *ir.Value
	set *gemm.Set // of the current level, or nil
}

// New makes the kernel of a convolution or of one of its gradients.
func New(b *exec.Builder, v *ir.Value) exec.Kernel {
	p := &problem{newConvolution(b, v), b, v, gemm.Products()}
	family, table := "conv", algorithms
	if v.Op == op.ConvKernelGrad {
		family, table = "wgrad", wgradAlgorithms
	}
	if p.set != nil && p.set.Ordered {
		table = orderedAlgorithms(table)
	}
	return exec.Choose(b, v, family, table, p)
}

// orderedAlgorithms returns the rows of a table whose sums have the same order on every level
// if the micro-kernels' have. The choice among them depends on shapes alone.
func orderedAlgorithms(table []exec.Algorithm[*problem]) (ordered []exec.Algorithm[*problem]) {
	for _, a := range table {
		switch a.Name {
		case "matmul", "implicit", "blocks", "direct":
			a.Pays = nil
			ordered = append(ordered, a)
		case "depthwise-vector", "depthwise", "planes", "small-channel", "winograd", "winograd-1d", "border":
			ordered = append(ordered, a)
		}
	}
	return ordered
}

// algorithms are the algorithms of Conv and ConvInputGrad.
var algorithms = []exec.Algorithm[*problem]{
	{
		Name:    "matmul",
		Applies: (*problem).notProduct,
		Pays: func(p *problem) string {
			if p.set != nil && p.nominal().pointPlanes() {
				return "planes of few channels are faster"
			}
			return ""
		},
		Build: func(p *problem) exec.Kernel { return newPlainProduct(p.b, p.v, &p.convolution) },
	},
	{
		Name:    "depthwise-vector",
		Applies: (*problem).notDepthwiseVector,
		Build:   func(p *problem) exec.Kernel { return newDepthwiseVector(p.b, p.v, p.convolution, p.set) },
	},
	{
		Name:    "depthwise",
		Applies: (*problem).notDepthwise,
		Build:   (*problem).newDepthwise,
	},
	{
		Name: "planes",
		Applies: func(p *problem) string {
			return p.unless(func() bool { return p.gemm().inPlanes() }, "not images, or many channels of the result")
		},
		Pays: func(p *problem) string {
			return p.unless(func() bool { return p.nominal().planesPay() }, "channels fill vectors, or transposing costs more than it saves")
		},
		Build: func(p *problem) exec.Kernel { return newPlaneGEMM(p.b, p.v, p.gemm()) },
	},
	{
		Name: "kn2row",
		Applies: func(p *problem) string {
			return p.unless(func() bool { return p.gemm().inColumns() }, "too many channels of the result, or products")
		},
		Pays: func(p *problem) string {
			return p.unless(func() bool { return p.nominal().columnsPay() }, "products of all elements of the window cost more than they save")
		},
		Build: func(p *problem) exec.Kernel { return newKn2row(p.b, p.v, p.gemm()) },
	},
	{
		Name: "amx",
		Applies: func(p *problem) string {
			return p.unless(func() bool { k := p.gemm(); return k.splitPays() || k.inTiles() }, "no tile registers for it")
		},
		Build: func(p *problem) exec.Kernel {
			k := p.gemm()
			if k.splitPays() {
				k.tiles = p.set.Blocks
				// The rare case is not by transforms, which need twice the memory.
				return orNil(newTileGEMM(p.b, p.v, k, bf16Split{2, p.set.Panels.Split, p.gemm().byRuns(p.b, p.v)}))
			}
			k.tiles = p.set.Blocks
			return orNil(newTileGEMM(p.b, p.v, k, bf16Split{pieces: 1}))
		},
	},
	{
		Name: "small-channel",
		Applies: func(p *problem) string {
			return p.unless(p.gemm().inTaps, "not a convolution of few channels")
		},
		Pays:  (*problem).inPairs,
		Build: func(p *problem) exec.Kernel { return newSmallForward(p.b, p.v, p.gemm()) },
	},
	{
		Name: "winograd",
		Applies: func(p *problem) string {
			return p.unless(p.gemm().transforms, "no transforms for its windows")
		},
		Pays: func(p *problem) string {
			if reason := p.inPairs(); reason != "" {
				return reason
			}
			return p.unless(p.nominal().winogradPays, "transforms cost more than they save")
		},
		Build: func(p *problem) exec.Kernel { return newWinograd(p.b, p.v, p.gemm()) },
	},
	{
		Name: "winograd-1d",
		Applies: func(p *problem) string {
			return p.unless(p.gemm().inLines, "no transforms for its windows")
		},
		Pays: func(p *problem) string {
			if reason := p.inPairs(); reason != "" {
				return reason
			}
			return p.unless(p.nominal().linesPay, "transforms cost more than they save")
		},
		Build: func(p *problem) exec.Kernel { return newWinograd1D(p.b, p.v, p.gemm()) },
	},
	{
		Name: "border",
		Applies: func(p *problem) string {
			return p.unless(func() bool { return p.inArithmetic(true).inRegions() }, "micro-kernels do not take single pixels of it")
		},
		Pays: func(p *problem) string {
			if k := p.inArithmetic(true); k.element == gemm.Pairs && k.pad == 0 && k.patchesPay() {
				return "images are so small that gathered patches fill tiles better"
			}
			return ""
		},
		Build: func(p *problem) exec.Kernel { return newBorderGEMM(p.b, p.v, p.inArithmetic(true)) },
	},
	{
		Name:    "implicit",
		Applies: func(p *problem) string { return p.unless(func() bool { return true }, "") },
		Build:   func(p *problem) exec.Kernel { return p.inArithmetic(true).newRuns(p.b, p.v) },
	},
	direct,
}

// wgradAlgorithms are the algorithms of ConvKernelGrad.
var wgradAlgorithms = []exec.Algorithm[*problem]{
	{
		Name:    "matmul",
		Applies: (*problem).notProduct,
		Pays: func(p *problem) string {
			switch {
			case p.WindowSize > 1 || p.from == dtype.Float64 || p.set == nil:
			case p.inRuns(p.set):
				return "runs of pixels are faster"
			case p.wgrad().pointTaps():
				return "few channels are faster in taps"
			}
			return ""
		},
		Build: func(p *problem) exec.Kernel { return newPlainProduct(p.b, p.v, &p.convolution) },
	},
	{
		Name:    "depthwise-vector",
		Applies: (*problem).notDepthwiseVector,
		Pays: func(p *problem) string {
			if !p.set.Ordered && p.set.DepthwiseGrad == nil && p.Out[2] <= shortDepthwise {
				return "short rows"
			}
			return ""
		},
		Build: func(p *problem) exec.Kernel { return newDepthwiseVector(p.b, p.v, p.convolution, p.set) },
	},
	{
		Name:    "depthwise",
		Applies: (*problem).notDepthwise,
		Build:   (*problem).newDepthwise,
	},
	{
		Name: "small-channel",
		Applies: func(p *problem) string {
			return p.unless(func() bool { return p.wgrad().inTaps() }, "not a convolution of few channels")
		},
		Pays: func(p *problem) string {
			k := p.wgrad()
			switch {
			case !k.inPanels():
			case p.gradTransforms(p.set) && p.winogradGradPays(p.set):
				return "transforms are faster"
			case !k.panelsPay():
				return "blocks of pixels are faster"
			}
			return ""
		},
		Build: func(p *problem) exec.Kernel { return newWgradSmall(p.b, p.v, p.wgrad()) },
	},
	{
		Name: "amx",
		Applies: func(p *problem) string {
			return p.unless(func() bool { return p.wgrad().inTiles() }, "no tile registers for it")
		},
		Build: func(p *problem) exec.Kernel {
			k := p.wgrad()
			if k.pieces = 1; k.stored == gemm.F16 {
				// The rare case is not by transforms, which need twice the memory.
				k.bf16Split = bf16Split{2, p.set.Panels.Split, p.wgrad().byBlocks(p.b, p.v)}
			}
			return newWgradGEMM(p.b, p.v, k)
		},
	},
	{
		Name: "dots",
		Applies: func(p *problem) string {
			return p.unless(func() bool { return p.wgrad().inDots() }, "not windows of neighbours in images of few channels")
		},
		Pays: func(p *problem) string {
			return p.unless(func() bool { return p.wgrad().dotsPay() }, "many channels, or short rows")
		},
		Build: func(p *problem) exec.Kernel { return newWgradDots(p.b, p.v, p.wgrad()) },
	},
	{
		Name: "taps",
		Applies: func(p *problem) string {
			return p.unless(func() bool { return p.wgrad().inShifts() }, "not windows of neighbours in images")
		},
		Pays: func(p *problem) string {
			k := p.wgrad()
			winograd := !k.pairsOfPixels() && p.gradTransforms(p.set) && p.winogradGradPays(p.set)
			return p.unless(func() bool { return k.shiftsPay(winograd) }, "channels fill tiles")
		},
		Build: func(p *problem) exec.Kernel { return newWgradTaps(p.b, p.v, p.wgrad()) },
	},
	{
		Name: "winograd",
		Applies: func(p *problem) string {
			return p.unless(func() bool { return p.gradTransforms(p.set) }, "no transforms for its windows")
		},
		Pays: func(p *problem) string {
			if p.from == dtype.BFloat16 && p.set.Pairs != nil {
				return "pairs of bfloat16 are faster"
			}
			return p.unless(func() bool { return p.winogradGradPays(p.set) }, "transforms cost more than they save")
		},
		Build: func(p *problem) exec.Kernel { return newWinogradGrad(p.b, p.v, p.convolution, p.set) },
	},
	{
		Name: "rows",
		Applies: func(p *problem) string {
			return p.unless(func() bool { return p.inRuns(p.set) }, "no runs of pixels")
		},
		Build: func(p *problem) exec.Kernel { return newWgradRows(p.b, p.v, p.wgrad()) },
	},
	{
		Name:    "blocks",
		Applies: func(p *problem) string { return p.unless(func() bool { return true }, "") },
		Build:   func(p *problem) exec.Kernel { return p.wgrad().newBlocks(p.b, p.v) },
	},
	direct,
}

// direct is the algorithm for everything.
var direct = exec.Algorithm[*problem]{
	Name:    "direct",
	Applies: func(*problem) string { return "" },
	Build: func(p *problem) exec.Kernel {
		if p.from == dtype.Float64 {
			return makeConv[float64](p.b, p.v, p.convolution)
		}
		return makeConv[float32](p.b, p.v, p.convolution)
	},
}

// orNil returns k, or a nil interface if k is nil.
func orNil(k *tileGEMM) exec.Kernel {
	if k == nil {
		return nil
	}
	return k
}

const empty = "there is nothing to multiply"

// notProduct returns why the convolution is not a matrix product, or "".
func (p *problem) notProduct() string {
	switch {
	case p.macs() == 0:
		return empty
	case !p.plainProduct(p.v):
		return fmt.Sprintf("windows of %v in images of %v", p.Size, p.In)
	}
	return ""
}

// notDepthwise returns why the convolution is not depthwise, or "".
func (p *problem) notDepthwise() string {
	switch {
	case p.macs() == 0:
		return empty
	case !p.depthwise():
		return fmt.Sprintf("%d groups of %d channels", p.groups, p.perGroup)
	}
	return ""
}

func (p *problem) notDepthwiseVector() string {
	if reason := p.notDepthwise(); reason != "" {
		return reason
	}
	if p.from == dtype.Float64 || p.set == nil || p.set.Depthwise == nil {
		return "no vector loops"
	}
	return ""
}

func (p *problem) newDepthwise() exec.Kernel {
	if p.from == dtype.Float64 {
		return newDepthwise(p.b, p.v, p.convolution, lanes.F64Table)
	}
	return newDepthwise(p.b, p.v, p.convolution, lanes.OfF32())
}

// unless returns "" if micro-kernels can compute the convolution and ok returns true, else why
// not: reason if ok returned false.
func (p *problem) unless(ok func() bool, reason string) string {
	switch {
	case p.macs() == 0:
		return empty
	case p.from == dtype.Float64 || p.set == nil:
		return "no micro-kernels"
	case p.perGroup == 1 && p.groups > 1:
		return "one channel in a group"
	case !ok():
		return reason
	}
	return ""
}

// gemm returns the convolution as an implicit GEMM in float32.
func (p *problem) gemm() *implicitGEMM {
	k := &implicitGEMM{
		convolution: p.convolution, set: p.set, source: p.a,
		dims: p.In, depth: p.perGroup, lanes: p.outsPerGroup, srcAll: p.channels, dstAll: p.outs,
	}
	if p.set != nil {
		k.tiles = p.set.F32
	}
	if p.code == op.ConvInputGrad {
		k.dims, k.depth, k.lanes, k.srcAll, k.dstAll = p.Out, p.outsPerGroup, p.perGroup, p.outs, p.channels
	}
	kernels := p.v.Args[1]
	k.few = p.code == op.Conv && p.b.ReadOnly(kernels) && (k.Batch*k.OutSize <= product.CacheRows || 4*kernels.Type.Shape.Size() <= keptKernels)
	k.stored = gemm.ElementOf[p.from]
	k.element, k.bytes = k.stored, 4
	return k
}

// nominalBatch is the batch for which the times of algorithms are compared that add up in
// different orders: a sample has the same bits in every batch.
const nominalBatch = 32

// nominal returns gemm for nominalBatch.
func (p *problem) nominal() *implicitGEMM {
	k := p.gemm()
	k.Batch = nominalBatch
	return k
}

// inArithmetic returns gemm in the arithmetic of the element type: on pairs of bfloat16 if
// there are micro-kernels for them. With pad an odd number of channels is padded for that.
func (p *problem) inArithmetic(pad bool) *implicitGEMM {
	k := p.gemm()
	if k.stored != gemm.BF16 {
		return k
	}
	for _, t := range []*gemm.Tiles{p.set.Blocks, p.set.Pairs} {
		if t != nil && k.depth*k.WindowSize >= 8 && k.pairs(t) {
			k.tiles, k.element, k.bytes = t, gemm.Pairs, 2
			break
		}
		if t != nil && pad && k.padded(t) {
			k.tiles, k.element, k.bytes, k.pad = t, gemm.Pairs, 2, 1
			break
		}
	}
	return k
}

// inPairs returns why pairs of bfloat16 are used, or "" if they are not.
func (p *problem) inPairs() string {
	if p.inArithmetic(true).element == gemm.Pairs {
		return "pairs of bfloat16 are faster"
	}
	return ""
}

// wgrad returns the gradient by the kernels in float32.
func (p *problem) wgrad() *wgradGEMM {
	return &wgradGEMM{convolution: p.convolution, set: p.set, tiles: p.set.F32, stored: gemm.ElementOf[p.from], plus: lanes.OfF32().Binary[op.Add]}
}

// Algorithms returns the names of the algorithms of convolutions and their gradients by
// the input.
func Algorithms() []string { return exec.Names(algorithms) }

// WgradAlgorithms returns the names of the algorithms of gradients by the kernels.
func WgradAlgorithms() []string { return exec.Names(wgradAlgorithms) }
