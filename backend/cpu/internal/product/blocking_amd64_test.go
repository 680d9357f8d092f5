package product

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

var update = flag.Bool("update", false, "write testdata/blocking.txt anew")

// TestBlocking: the blocking of 153 products is that of testdata/blocking.txt. No
// micro-kernel runs, so every processor checks every level.
func TestBlocking(t *testing.T) {
	shapes := [][3]int{ // m, k, n
		{64, 64, 64}, {1024, 1024, 1024}, {8192, 784, 64}, {128, 784, 512}, {100, 3000, 100},
		{37, 2100, 300}, {700, 3000, 700}, {1, 0, 5}, {14, 4096, 4096}, {249, 1, 1736},
		{1334, 3445, 5}, {3906, 11, 2},
	}
	kinds := []struct {
		name           string
		micro          *gemm.Tiles
		element        gemm.Element
		transA, transB bool
		epilogue       EpilogueKind
		rounds, strips bool
		to             dtype.DType // unless it is float32
		bytes          *gemm.Bytes // of products of 8-bit integers
	}{
		{name: "AVX-512 float32", micro: gemm.AVX512.F32, element: gemm.F32},
		{name: "AVX-512 float16, Aᵀ, chain", micro: gemm.AVX512.F32, element: gemm.F16, transA: true, epilogue: ChainEpilogue},
		{name: "AVX512-BF16 bfloat16, Bᵀ", micro: gemm.AVX512BF16.Pairs, element: gemm.Pairs, transB: true},
		{name: "AVX2 float32, Aᵀ, epilogue in the micro-kernel", micro: gemm.AVX2.F32, element: gemm.F32, transA: true, epilogue: TileEpilogue},
		{name: "AVX512-BF16 bfloat16, rounded", micro: gemm.AVX512BF16.Pairs, element: gemm.Pairs, rounds: true},
		{name: "AVX512-BF16 bfloat16, kernels of strips", micro: gemm.AVX512BF16.Pairs, element: gemm.Pairs, rounds: true, strips: true},
		{name: "AMX bfloat16", element: gemm.BF16, epilogue: TileEpilogue},
		{name: "AMX bfloat16, Aᵀ", element: gemm.BF16, transA: true},
		{name: "AMX bfloat16, Bᵀ, chain", element: gemm.BF16, transB: true, epilogue: ChainEpilogue, to: dtype.BFloat16},
		{name: "AMX float16", element: gemm.F16, to: dtype.Float16},
		{name: "AMX float16, Aᵀ", element: gemm.F16, transA: true},
		{name: "AMX int8", bytes: gemm.BytesAMX},
		{name: "AVX512-VNNI int8", bytes: gemm.BytesVNNI},
		{name: "AVX2 int8", bytes: gemm.BytesAVX2},
		{name: "AVX2 int8, panels of int16", bytes: gemm.WordsAVX2},
	}
	var got strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&got, "%s\n", k.name)
		for _, s := range shapes {
			p := Problem{M: s[0], K: s[1], N: s[2], Batches: 1, To: dtype.Float32, Micro: k.micro, Epilogue: k.epilogue, Rounds: k.rounds, StripKernels: k.strips}
			if k.rounds {
				p.To = dtype.BFloat16
			}
			if k.to != dtype.Invalid {
				p.To = k.to
			}
			p.A = Operand{k.element, k.element.Size(), k.transA, s[1]}
			if k.transA {
				p.A.Stride = s[0]
			}
			p.B = Operand{k.element, k.element.Size(), k.transB, s[2]}
			if k.transB {
				p.B.Stride = s[1]
			}
			if k.micro == nil && k.bytes == nil && p.K < gemm.PanelDepth {
				continue // not on tile registers
			}
			var b Blocking
			switch {
			case k.bytes != nil:
				p.Cached = true
				b = p.BlockQuantized(k.bytes)
			case k.micro == nil:
				b = p.BlockPanels()
			default:
				b = p.Block()
			}
			fmt.Fprintf(&got, "  %d×%d×%d: %v\n", s[0], s[1], s[2], b)
		}
	}
	const file = "testdata/blocking.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, wanted := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	if len(lines) != len(wanted) {
		t.Fatalf("%d lines, want %d", len(lines), len(wanted))
	}
	for i, l := range lines {
		if l != wanted[i] {
			t.Errorf("line %d is\n%s\nwant\n%s", i+1, l, wanted[i])
		}
	}
}

// TestOrderOfSums: what decides the rounding of a row does not depend on the number of rows. No
// micro-kernel runs, so every processor checks every level.
func TestOrderOfSums(t *testing.T) {
	kinds := map[string]struct {
		micro   *gemm.Tiles
		element gemm.Element
	}{
		"AVX2": {gemm.AVX2.F32, gemm.F32}, "AVX-512": {gemm.AVX512.F32, gemm.F32}, "AVX-512, float16": {gemm.AVX512.F32, gemm.F16},
		"AVX512-BF16": {gemm.AVX512BF16.Pairs, gemm.Pairs}, "AMX": {nil, gemm.BF16}, "AMX, float16": {nil, gemm.F16},
	}
	for name, kind := range kinds {
		for _, s := range [][2]int{{784, 512}, {4096, 10}, {3000, 100}, {2048, 256}, {4097, 1000}, {9216, 4096}} {
			for i := range 4 * 300 {
				p := Problem{M: 1 + i/4, K: s[0], N: s[1], Batches: 1, To: dtype.Float32, Micro: kind.micro, Cached: i&1 > 0}
				p.A, p.B = Operand{kind.element, kind.element.Size(), false, s[0]}, Operand{kind.element, kind.element.Size(), i&2 > 0, s[1]}
				if p.B.Trans {
					p.B.Stride = s[0]
				}
				if kind.micro == nil { // tile registers go on with the sums of the step before
					if b := p.BlockPanels(); b.Slices.N > 1 || b.Depth%gemm.PanelDepth != 0 && b.Depth < p.K {
						t.Errorf("%s: %d×%d×%d: %v", name, p.M, p.K, p.N, b)
					}
					continue
				}
				b := p.Block()
				parts := b.Depth < b.Step && !(p.copiesPairs() && b.Depth%2 == 0 && (b.Step >= p.K || b.Slices.N > 1))
				if b.Step != p.step() || b.Slices.N > 1 && b.Slices.K != b.Step || parts {
					t.Errorf("%s: %d×%d×%d: %v, steps of %d", name, p.M, p.K, p.N, b, b.Step)
				}
			}
		}
	}
}

// TestPanelProductPlan: which products are computed on tile registers, what they pack, and
// how they are cut. No micro-kernel runs, so processors without AMX check it, too.
func TestPanelProductPlan(t *testing.T) {
	planOf := func(d dtype.DType, a op.Attr, m, n, k int) *panelProduct {
		b, v := recorded(t, a, d, m, n, k)
		kernel := exec.Choose(b, v, "matmul", algorithms, &choice{productDims(b, v), b, v, gemm.AMX, leastPairs, false})
		p, _ := kernel.(*panelProduct)
		return p
	}
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float64} {
		if planOf(d, op.Attr{}, 1024, 1024, 1024) != nil {
			t.Errorf("%v on tile registers", d)
		}
	}
	if p := planOf(dtype.BFloat16, op.Attr{}, 64, 64, 31); p != nil {
		t.Errorf("short sums do not keep subnormal numbers: %+v", p)
	}
	if p := planOf(dtype.BFloat16, op.Attr{}, 1000, 64, 80); p.packsA() || !p.sharesB() || p.fallback != nil {
		t.Errorf("A is packed, or B not shared: %+v", p)
	}
	if p := planOf(dtype.BFloat16, op.Attr{}, 1024, 1024, 1024); !p.packsA() || p.Depth != 1024 || p.Tiles.Down < tiling.MinChunks/2 {
		t.Errorf("rows of A that share lines are not packed, or sums split: %+v", p)
	}
	if p := planOf(dtype.BFloat16, op.Attr{}, 1024, 4096, 4096); p.Order != BlocksFirst || p.Depth != blockDepth || p.BlockCols != blockCols {
		t.Errorf("sums of a long inner dimension do not stay in the cache: %+v", p)
	}
	if p := planOf(dtype.BFloat16, op.Attr{}, 1024, 64, 4096); p.Order == BlocksFirst {
		t.Errorf("few columns in blocks: %+v", p)
	}
	gradient := op.Attr{TransA: true, DType: dtype.Float32}
	if p := planOf(dtype.BFloat16, gradient, 784, 64, 8192); !p.Transpose || p.Slices.N != tiling.MinChunks || p.sharesB() {
		t.Errorf("a long gradient is not transposed, or not cut into slices: %+v", p)
	}
	if p := planOf(dtype.BFloat16, gradient, 784, 64, 512); !p.Transpose || p.Slices.N != 1 || p.Direct {
		t.Errorf("a short gradient is not transposed, or cut into slices: %+v", p)
	}
	if p := planOf(dtype.BFloat16, gradient, 512, 512, 128); p.Transpose || !p.Direct {
		t.Errorf("a square gradient is transposed, or not written by kernels: %+v", p)
	}
	if p := planOf(dtype.Float16, op.Attr{}, 32, 32, 32); p != nil {
		t.Errorf("few float16 are split: %+v", p)
	}
	if p := planOf(dtype.Float16, op.Attr{}, 128, 256, 3000); p.pieces != 2 || p.fallback == nil || p.sharesB() || p.Depth >= 3000 {
		t.Errorf("float16 in pieces: %+v", p)
	}
	if p := planOf(dtype.BFloat16, op.Attr{}, 1000, 0, 64); p == nil || len(p.stripes) != 1 || p.stripes[0].cols != 0 {
		t.Errorf("a result of no columns: %+v", p)
	}
	// Blocks lie in the scratch memory that is reserved, and stripes are the columns.
	for _, s := range [][3]int{{17, 5, 33}, {1000, 64, 80}, {1024, 4096, 4096}, {300, 20000, 1500}, {90, 50, 4100}} {
		for _, a := range []op.Attr{{}, {TransA: true}, {TransB: true}} {
			for _, d := range []dtype.DType{dtype.BFloat16, dtype.Float16} {
				p := planOf(d, a, s[0], s[1], s[2])
				if p == nil {
					continue
				}
				col := 0
				for _, stripe := range p.stripes {
					if stripe.col != col || stripe.cols <= 0 || stripe.across != tiling.CeilDiv(stripe.cols, p.Tiles.Cols) {
						t.Errorf("%v %v %+v: stripe %+v begins at another column than %d", s, d, a, stripe, col)
					}
					col += stripe.cols
				}
				if col != p.n || p.Tiles.Down != tiling.CeilDiv(p.m, p.Tiles.Rows) || p.BlockCols%gemm.PanelCols != 0 || p.BlockCols > tiling.RoundUp(p.Tiles.Cols, gemm.PanelCols) {
					t.Errorf("%v %v %+v: stripes of %d columns; %v", s, d, a, col, p.Blocking)
				}
				if at := max(p.atSums, p.atA, p.atTail, p.atEdge, p.atPairs, p.atTransposed, p.atB); at >= p.scratch || p.scratch%64 != 0 {
					t.Errorf("%v %v %+v: a block at %d of %d bytes", s, d, a, at, p.scratch)
				}
			}
		}
	}
}
