package product

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// recorded returns the product of matrices of m·k and k·n elements.
func recorded(t *testing.T, a op.Attr, d dtype.DType, m, n, k int) (*exec.Builder, *ir.Value) {
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
	return exec.NewBuilder(&exec.Plan{Graph: g}), v
}

// TestProductPlan: what is packed, shared and split is as described.
func TestProductPlan(t *testing.T) {
	kernelOf := func(d dtype.DType, a op.Attr, m, n, k int) *product {
		k1, _ := New(recorded(t, a, d, m, n, k)).(*product)
		return k1
	}
	isatest.ForEach(t, func(t *testing.T) {
		if isa.Current() < isa.AVX512 {
			return
		}
		if p := kernelOf(dtype.Float32, op.Attr{}, 64, 64, 64); p.Pack != (Pack{}) || p.scratch != 0 || len(p.stripes) != 1 || p.Tiles.Down != 1 {
			t.Errorf("a small product packs or splits: %+v", p)
		}
		if p := kernelOf(dtype.Float32, op.Attr{}, 1024, 1024, 1024).uncached; p.Pack.B != BShared || p.Pack.A == AInPlace || p.Tiles.Down*p.stripes[0].across < tiling.MinChunks {
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
		if p := kernelOf(dtype.Float32, op.Attr{}, 100, 100, 3000); p.Slices.N < 3 {
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
