package product

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// planned returns the kernel of the product of matrices of m·k and k·n elements.
func planned(t *testing.T, a op.Attr, d dtype.DType, m, n, k int) exec.Kernel {
	t.Helper()
	x, y := op.Shape{m, k}, op.Shape{k, n}
	if a.TransA {
		x = op.Shape{k, m}
	}
	if a.TransB {
		y = op.Shape{n, k}
	}
	g := ir.New(2)
	var args []*ir.Value
	for i, s := range []op.Shape{x, y} {
		args = append(args, g.Add(op.Param, op.Attr{DType: d, Dims: s, Index: i}, op.Type{DType: d, Shape: s}, ""))
	}
	typ, err := op.Infer(op.MatMul, a, args[0].Type, args[1].Type)
	if err != nil {
		t.Fatal(err)
	}
	v := g.Add(op.MatMul, a, typ, "", args...)
	g.Output(v, -1)
	if err := ir.Optimize(g, ir.Options{}); err != nil {
		t.Fatal(err)
	}
	return New(exec.NewBuilder(&exec.Plan{Graph: g}), v)
}

// TestProductPlan: what is packed, shared and split is as described.
func TestProductPlan(t *testing.T) {
	kernelOf := func(d dtype.DType, a op.Attr, m, n, k int) *product {
		k1, _ := planned(t, a, d, m, n, k).(*product)
		return k1
	}
	isatest.ForEach(t, func(t *testing.T) {
		if isa.Current() < isa.AVX512 {
			return
		}
		if p := kernelOf(dtype.Float32, op.Attr{}, 64, 64, 64); p.Pack != (Pack{}) || p.scratch != 0 || len(p.stripes) != 1 || p.Tiles.Down != 1 {
			t.Errorf("a small product packs or splits: %+v", p)
		}
		if p := kernelOf(dtype.Float32, op.Attr{}, 1024, 1024, 1024); p.Pack.B != BShared || p.Pack.A == AInPlace || p.Tiles.Down*p.stripes[0].across < tiling.MinChunks {
			t.Errorf("a large product does not share packed B, or has few tiles: %+v", p)
		}
		if p := kernelOf(dtype.Float32, op.Attr{}, 8192, 64, 784); p.Order != RowsFirst || p.Pack.B != BPerWorker || p.Pack.A != AInPlace {
			t.Errorf("a tall product does not go through its rows one after the other: %+v", p)
		}
		if p := kernelOf(dtype.Float32, op.Attr{}, 128, 512, 784).uncached; p.Pack != (Pack{AInPlace, BPanel, true}) || p.stripes[0].across < tiling.MinChunks {
			t.Errorf("a small product with rows on the same cache sets does not pack a panel at a time: %+v", p)
		}
		if p := kernelOf(dtype.Float16, op.Attr{}, 64, 64, 30); p.Pack.A == AInPlace || !p.Round && p.store == nil {
			t.Errorf("float16 is not converted: %+v", p)
		}
		if p := kernelOf(dtype.Float32, op.Attr{}, 100, 100, 3000); p.Slices.N < 4 {
			t.Errorf("a long inner dimension is not cut into slices: %+v", p)
		}
		if p := kernelOf(dtype.Float32, op.Attr{TransA: true}, 300, 37, 2100); p.transposed == nil || p.m != 37 || p.Slices.N < 4 {
			t.Errorf("a gradient of few columns does not read the larger operand where it lies: %+v", p)
		}
		if p := kernelOf(dtype.Float32, op.Attr{}, 700, 700, 3000); p.Slices.N != 1 || p.Depth >= 3000 || p.ldSums == 0 {
			t.Errorf("a long inner dimension is not split: %+v", p)
		}
	})
}

// TestPanelProductPlan: what is packed, shared and split is as described.
func TestPanelProductPlan(t *testing.T) {
	planOf := func(d dtype.DType, a op.Attr, m, n, k int) *panelProduct {
		k1, _ := planned(t, a, d, m, n, k).(*panelProduct)
		return k1
	}
	isatest.ForEach(t, func(t *testing.T) {
		if gemm.Current() == nil || gemm.Current().Panels == nil {
			if planOf(dtype.BFloat16, op.Attr{}, 256, 256, 256) != nil {
				t.Error("a product on tile registers, which there are not")
			}
			return
		}
		for _, d := range []dtype.DType{dtype.Float32, dtype.Float64} {
			if planOf(d, op.Attr{}, 1024, 1024, 1024) != nil {
				t.Errorf("%v on tile registers", d)
			}
		}
		if p := planOf(dtype.BFloat16, op.Attr{}, 64, 64, 31); p != nil {
			t.Errorf("short sums do not keep subnormal numbers: %+v", p)
		}
		if p := planOf(dtype.BFloat16, op.Attr{}, 1000, 64, 80); p.packsA || !p.sharesB || p.fallback != nil {
			t.Errorf("A is packed, or B not shared: %+v", p)
		}
		if p := planOf(dtype.BFloat16, op.Attr{}, 1024, 1024, 1024); !p.packsA || p.depth != 1024 || p.down < tiling.MinChunks/2 {
			t.Errorf("rows of A that share lines are not packed, or sums split: %+v", p)
		}
		if p := planOf(dtype.BFloat16, op.Attr{}, 1024, 4096, 4096); !p.byBlocks || p.depth != blockDepth || p.blockN != blockCols {
			t.Errorf("sums of a long inner dimension do not stay in the cache: %+v", p)
		}
		if p := planOf(dtype.BFloat16, op.Attr{}, 1024, 64, 4096); p.byBlocks {
			t.Errorf("few columns in blocks: %+v", p)
		}
		gradient := op.Attr{TransA: true, DType: dtype.Float32}
		if p := planOf(dtype.BFloat16, gradient, 784, 64, 8192); !p.transposed || p.result.Slices.N != tiling.MinChunks || p.sharesB {
			t.Errorf("a long gradient is not transposed, or not cut into slices: %+v", p)
		}
		if p := planOf(dtype.BFloat16, gradient, 784, 64, 512); !p.transposed || p.result.Slices.N != 1 || p.direct {
			t.Errorf("a short gradient is not transposed, or cut into slices: %+v", p)
		}
		if p := planOf(dtype.BFloat16, gradient, 512, 512, 128); p.transposed || !p.direct {
			t.Errorf("a square gradient is transposed, or not written by kernels: %+v", p)
		}
		if p := planOf(dtype.Float16, op.Attr{}, 32, 32, 32); p != nil {
			t.Errorf("few float16 are split: %+v", p)
		}
		if p := planOf(dtype.Float16, op.Attr{}, 128, 256, 3000); p.parts != 2 || p.fallback == nil || p.sharesB || p.depth >= 3000 {
			t.Errorf("float16 in parts: %+v", p)
		}
	})
}
