package backendtest

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() { register(quantizedMatMulCases, op.QuantizedMatMul) }

// quantizedMatMulCases are exact: the operation is defined to the bit.
func quantizedMatMulCases(b *builder) {
	bytes := func(shape ...int) op.Type { return op.Type{DType: dtype.Int8, Shape: shape} }
	for _, s := range []struct {
		name    string
		m, k, n int
	}{
		{"one", 1, 1, 1}, {"small", 2, 3, 4}, {"odd", 7, 33, 19}, {"blocks", 64, 64, 64}, {"unaligned", 65, 127, 67},
		{"deep", 5, 2051, 9}, {"vector", 1, 129, 1023}, {"column", 65, 129, 1}, {"rows", 257, 40, 33}, {"outer", 65, 1, 67},
		{"emptyRows", 0, 3, 4}, {"emptyInner", 2, 0, 4}, {"emptyColumns", 2, 3, 0}, {"largeSquare", 130, 260, 530},
	} {
		b.add(s.name, op.Attr{}, []op.Type{b.t(s.m, s.k), bytes(s.k, s.n), b.t(s.n)}, numbers, bits, positive).Large = large(s.name)
	}
	special := []op.Type{b.t(5, 6), bytes(6, 40), b.t(40)}
	b.add("zeros", op.Attr{}, special, constant(0), bits, positive)
	b.add("ties", op.Attr{}, special, values(127, 0.5, 1.5, -2.5, -127, 126.5), bits, positive)
	b.add("tiny", op.Attr{}, special, values(1e-30, -1e-7, 1e-9, 0, 0, 1e-38), bits, positive)
	b.add("huge", op.Attr{}, special, values(3e38, -3e38, 1e38, 0, 1, 1e30), bits, positive)
	b.add("nonfinite", op.Attr{}, special, values(1, 2, math.NaN(), 4, 5, 6, 1, math.Inf(1), 2, 3, 4, 5, 1, 2, 3, 4, 5, 6), bits, positive)
	b.add("scales", op.Attr{}, special, numbers, bits, values(0, math.Inf(1), math.NaN(), 1e-30, 3))
	// Sums beyond int32 wrap around: 127·128·140,000 > 2³¹.
	b.add("overflow", op.Attr{}, []op.Type{b.t(1, 140000), bytes(140000, 2), b.t(2)}, constant(1), constant(-128), positive)
}

// quantizedMatMul is the formula of op.QuantizedMatMul.
func quantizedMatMul(t op.Type, args []array) result {
	x, y, scales := args[0].floats(), args[1].ints(), args[2].floats()
	m, n := t.Shape[0], t.Shape[1]
	k := args[0].Shape[1]
	round := func(f float64) float64 { return float64(t.DType.Round(float32(f))) }
	r := result{Type: t, f: make([]float64, m*n)}
	for i := range m {
		row := x[i*k : (i+1)*k]
		largest := 0.0
		for _, f := range row {
			largest = max(largest, math.Abs(f))
		}
		scale := round(op.QuantizeLimit / round(largest+round(op.QuantizeEpsilon)))
		for j := range n {
			var sum int32
			for p, f := range row {
				q := math.RoundToEven(round(f * scale))
				if !math.IsNaN(q) {
					sum += int32(min(max(q, -op.QuantizeLimit), op.QuantizeLimit)) * int32(y[p*n+j])
				}
			}
			r.f[i*n+j] = round(float64(float32(sum))) / round(scales[j]*scale)
		}
	}
	return r
}
