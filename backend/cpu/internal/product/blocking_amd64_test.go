package product

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

var update = flag.Bool("update", false, "write testdata/blocking.txt anew")

// TestBlocking: the blocking of 72 products is that of testdata/blocking.txt. No
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
	}{
		{name: "AVX-512 float32", micro: gemm.AVX512.F32, element: gemm.F32},
		{name: "AVX-512 float16, Aᵀ, chain", micro: gemm.AVX512.F32, element: gemm.F16, transA: true, epilogue: ChainEpilogue},
		{name: "AVX512-BF16 bfloat16, Bᵀ", micro: gemm.AVX512BF16.Pairs, element: gemm.Pairs, transB: true},
		{name: "AVX2 float32, Aᵀ, epilogue in the micro-kernel", micro: gemm.AVX2.F32, element: gemm.F32, transA: true, epilogue: TileEpilogue},
		{name: "AVX512-BF16 bfloat16, rounded", micro: gemm.AVX512BF16.Pairs, element: gemm.Pairs, rounds: true},
		{name: "AVX512-BF16 bfloat16, kernels of strips", micro: gemm.AVX512BF16.Pairs, element: gemm.Pairs, rounds: true, strips: true},
	}
	var got strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&got, "%s\n", k.name)
		for _, s := range shapes {
			p := Problem{M: s[0], K: s[1], N: s[2], Batches: 1, To: dtype.Float32, Micro: k.micro, Epilogue: k.epilogue, Rounds: k.rounds, StripKernels: k.strips}
			if k.rounds {
				p.To = dtype.BFloat16
			}
			p.A = Operand{k.element, k.element.Size(), k.transA, s[1]}
			if k.transA {
				p.A.Stride = s[0]
			}
			p.B = Operand{k.element, k.element.Size(), k.transB, s[2]}
			if k.transB {
				p.B.Stride = s[1]
			}
			fmt.Fprintf(&got, "  %d×%d×%d: %v\n", s[0], s[1], s[2], p.Block())
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
