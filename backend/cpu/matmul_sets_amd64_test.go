package cpu

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Tests use the products of AVX512-BF16 also on processors where they are slow.
func init() { gemmSets[isaAVX512BF16] = gemm.AVX512BF16 }

func TestSetBF16(t *testing.T) {
	if got := setBF16(true); got.Pairs != nil {
		t.Errorf("with AMX the routines of AVX512-BF16 are %s, want those without its products", got.Name)
	}
	if got := setBF16(false); got.Pairs == nil {
		t.Errorf("without AMX the routines of AVX512-BF16 are %s, which has no products of pairs", got.Name)
	}
}

// TestDescribeWidened: what is said of bfloat16 is what is done.
func TestDescribeWidened(t *testing.T) {
	before := isaLevel.Swap(uint32(isaAVX512BF16))
	defer func() {
		isaLevel.Store(before)
		gemmSets[isaAVX512BF16] = gemm.AVX512BF16
	}()
	for hasAMX, want := range map[bool]string{false: "bfloat16 (AVX512-BF16)", true: "float32 (16-bit storage)"} {
		gemmSets[isaAVX512BF16] = setBF16(hasAMX)
		if got := new(Device).Describe().Arithmetic[dtype.BFloat16]; got != want {
			t.Errorf("products of bfloat16 are described as %q, want %q", got, want)
		}
	}
}
