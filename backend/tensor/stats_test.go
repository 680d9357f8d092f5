package tensor_test

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestStats: what float16 makes of some numbers.
func TestStats(t *testing.T) {
	y := tensor.New([]float32{1, -1.0009765625 - 0x1p-12, 0x1p-30, -0x1p-20, 1e5, float32(math.NaN()), 0, 3}, 2, 4)
	v, err := tensor.Stats(y.Cast(dtype.Float16), y).Float64s()
	if err != nil {
		t.Fatal(err)
	}
	s, err := op.DecodeStatistics(v)
	if err != nil {
		t.Fatal(err)
	}
	want := op.Statistics{
		Count: 8, Finite: 6, Flushed: 1, Subnormal: 1,
		X:            op.Magnitudes{NaNs: 1, Infinities: 1, Zeros: 2, Largest: 3, Smallest: 0x1p-20, Squares: 1 + 1.0009765625*1.0009765625 + 0x1p-40 + 9},
		Y:            op.Magnitudes{NaNs: 1, Zeros: 1, Largest: 1e5, Smallest: 0x1p-30, Squares: 1 + (1.0009765625+0x1p-12)*(1.0009765625+0x1p-12) + 0x1p-60 + 0x1p-40 + 9},
		SquaredError: 0x1p-24 + 0x1p-60, Products: 1 + 1.0009765625*(1.0009765625+0x1p-12) + 0x1p-40 + 9, LargestError: 0x1p-12,
	}
	for e, n := range map[int]int64{0: 2, -20: 1, 1: 1} {
		want.X.Bins[op.StatsBin(e)], want.Y.Bins[op.StatsBin(e)] = n, n
	}
	want.Y.Bins[op.StatsBin(-30)], want.Y.Bins[op.StatsBin(16)] = 1, 1
	if *s != want {
		t.Errorf("got %+v, want %+v", *s, want)
	}
	if below := s.Y.Below(-24); below != 1 {
		t.Errorf("got %d numbers below float16's smallest, want 1", below)
	}
}

// TestStatsGradient: no gradient flows through Stats.
func TestStatsGradient(t *testing.T) {
	v := tensor.NewVariable("v", dtype.Float32, tensor.Shape{2}, nil)
	x := v.Value()
	if g := tensor.Gradients(tensor.Stats(x, x.MulScalar(2)).Sum(), []*tensor.Variable{v}); g[0] != nil {
		t.Errorf("got gradient %v", g[0].Type())
	}
}
