package cpu

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Test the products of AVX512-BF16 also on processors where they are slow.
func init() { gemm.WidenBF16 = false }

// TestWidenBF16: the description tells the type that bfloat16 products compute in.
func TestWidenBF16(t *testing.T) {
	before := isa.Use(isa.AVX512BF16)
	defer func() {
		isa.Use(before)
		gemm.WidenBF16 = false
	}()
	for widen, want := range map[bool]string{false: "bfloat16 (AVX512-BF16)", true: "float32 (16-bit storage)"} {
		gemm.WidenBF16 = widen
		if got := gemm.Current().Pairs != nil; got == widen {
			t.Errorf("widen %v: products of pairs are there: %v", widen, got)
		}
		if got := new(Device).Describe().Arithmetic[dtype.BFloat16]; got != want {
			t.Errorf("products of bfloat16 are described as %q, want %q", got, want)
		}
	}
}
