package vec

import (
	"fmt"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// BenchmarkCells runs cells on a block of rows that stays in the caches, and on blocks
// whose stored operands come from memory.
func BenchmarkCells(b *testing.B) {
	for set, s := range sets() {
		b.Run(set, func(b *testing.B) { benchmarkCells(b, s) })
	}
}

func benchmarkCells(b *testing.B, s *Set) {
	const rows, n = 64, 128
	for _, ty := range []struct {
		name string
		d    dtype.DType
		c    Cells
	}{{"float32", dtype.Float32, s.CellsF32}, {"float16", dtype.Float16, s.CellsF16}, {"bfloat16", dtype.BFloat16, s.CellsConvertBF16}} {
		if ty.c.LSTM == nil || ty.d == dtype.BFloat16 && !cpu.X86.HasAVX512BF16 {
			continue
		}
		for _, spec := range cellSpecs {
			for _, blocks := range []int{1, 28} {
				b.Run(fmt.Sprintf("%s/%s/%d", ty.name, spec.name, blocks), func(b *testing.B) {
					data := make([][]byte, len(spec.operands))
					size := make([]int, len(spec.operands))
					for i, c := range spec.operands {
						d, k := dtype.Float32, 1
						if c < 'a' {
							d, k = ty.d, blocks
						}
						size[i] = rows * n * d.Size()
						data[i] = make([]byte, k*size[i]+64*(i+1))
					}
					loop, operands := spec.loop(ty.c), make([]Operand, len(data))
					for step := 0; b.Loop(); step++ {
						for i := range data {
							at := step * size[i] % (len(data[i]) - 64*(i+1))
							operands[i] = Operand{unsafe.Pointer(&data[i][at]), size[i] / rows}
						}
						loop(operands, rows, n)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(rows*n/16), "ns/16")
				})
			}
		}
	}
}
