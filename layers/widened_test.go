package layers_test

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestFloat32LayerBehindMixed: a float32 layer gets the float32 result of the
// mixed layer in front of it, which was never rounded to 16 bits.
func TestFloat32LayerBehindMixed(t *testing.T) {
	for _, mixed := range []string{policy.MixedFloat16, policy.MixedBFloat16} {
		t.Run(mixed, func(t *testing.T) {
			defer policy.SetGlobal(policy.SetGlobal(mixed))
			dense := &layers.Dense{Units: 3}
			x := tensor.New([]float32{1.25, -2.5, 3.75, 0.3125, 5.5, -0.75, 2.125, 1}, 2, 4)
			half := layers.Apply(dense, layers.Pass{}, x)
			after := &layers.Activation{Activation: "linear", DType: policy.Float32}
			y := layers.Apply(after, layers.Pass{}, half)
			if half.DType() == dtype.Float32 || y.DType() != dtype.Float32 {
				t.Fatalf("got %v and %v, want 16 bits and float32", half.DType(), y.DType())
			}
			kernel, err := dense.Weights()[0].Value().Cast(half.DType()).Float64s()
			if err != nil {
				t.Fatal(err)
			}
			in, _ := x.Float64s() // all of it is exact in 16 bits
			got, err := y.Float64s()
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				for j := range 3 {
					want, size := 0.0, 0.0
					for k := range 4 {
						p := in[i*4+k] * kernel[k*3+j]
						want, size = want+p, size+math.Abs(p)
					}
					// Sums of four terms in float32.
					if e := math.Abs(got[i*3+j] - want); e > 8*size/(1<<24) {
						t.Errorf("[%d %d]: got %v, want %v: off by %.2g of the terms", i, j, got[i*3+j], want, e/size)
					}
				}
			}
		})
	}
}
