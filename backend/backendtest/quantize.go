package backendtest

import (
	"math"
	"slices"
	"strconv"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() {
	register(quantizedMatMulCases, op.QuantizedMatMul)
	register(quantizedConvCases, op.QuantizedConv)
}

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

// quantizedConvCases are exact, too.
func quantizedConvCases(b *builder) {
	scalar := op.Type{DType: dtype.Float32}
	zero := op.Type{DType: dtype.Int8}
	add := func(s slide, name string, x, w, xscale fill) *Case {
		outs := op.Type{DType: dtype.Float32, Shape: s.w[len(s.w)-1:]}
		a := s.attr()
		args := []op.Type{b.t(s.x...), {DType: dtype.Int8, Shape: s.w}, outs, scalar, zero}
		if b.dtype == dtype.Int8 { // has been quantized
			a.DType, x = dtype.Float32, bits
		}
		a.Requantize = true
		b.add(name+"Requantize", a, append(slices.Clone(args), scalar, zero), x, w, positive, xscale, bits, values(0.03), bits).Large = large(s.name)
		a.Requantize = false
		return b.add(name, a, args, x, w, positive, xscale, bits)
	}
	for _, s := range slideClasses {
		add(s, s.name, numbers, bits, values(40)).Large = large(s.name)
	}
	special := slide{x: op.Shape{2, 9, 11, 6}, w: op.Shape{3, 3, 6, 16}, low: []int{1, 1}, high: []int{1, 1}}
	add(special, "clipped", numbers, bits, values(1e4))
	add(special, "ties", values(0.25, 0.75, -0.25, -1.25, 63.75, -64.25), bits, values(2))
	add(special, "nonfinite", values(1, math.NaN(), math.Inf(1), -2, math.Inf(-1), 0.5), bits, values(3))
	add(slide{x: op.Shape{1, 5, 6, 9}, w: op.Shape{3, 3, 1, 9}, groups: 9}, "depthwiseZeros", constant(0), bits, values(40))
	add(slide{x: op.Shape{1, 600, 3}, w: op.Shape{600, 1, 3}, groups: 3}, "depthwiseDeep", constant(127), bits, values(1))
	add(special, "noScale", numbers, bits, values(0))
	add(slide{x: op.Shape{1, 80000, 1}, w: op.Shape{80000, 1, 2}}, "overflow", constant(1), constant(-128), values(1000))
	for i, s := range []slide{ // windows of one pixel, whose rows kernels may cut otherwise, and groups that do not fill panels
		{x: op.Shape{3, 6, 6, 20}, w: op.Shape{1, 1, 20, 40}}, {x: op.Shape{1, 5, 7, 8}, w: op.Shape{1, 1, 8, 70}},
		{x: op.Shape{13, 3, 3, 5}, w: op.Shape{1, 1, 5, 3}}, {x: op.Shape{4, 25, 9}, w: op.Shape{1, 9, 12}},
		{x: op.Shape{2, 4, 9, 12}, w: op.Shape{1, 1, 6, 24}, groups: 2}, {x: op.Shape{2, 5, 6, 8}, w: op.Shape{3, 3, 4, 80}, groups: 2},
	} {
		add(s, "pixels"+strconv.Itoa(i), numbers, bits, values(40))
	}
	for _, f := range []int{1, 2, 3, 5, 10, 12, 48, 100} { // results that do not fill panels
		add(slide{x: op.Shape{2, 7, 15, 3}, w: op.Shape{2, 3, 3, f}, low: []int{0, 1}, high: []int{1, 1}, stride: []int{1, 2}}, "outs"+strconv.Itoa(f), numbers, bits, values(40))
	}
}

// quantizedConv is the formula of op.QuantizedConv.
func quantizedConv(a op.Attr, t op.Type, args []array) result {
	x, scales, xscale, zero := args[0].floats(), args[2].floats(), float32(args[3].floats()[0]), float32(args[4].ints()[0])
	d := args[0].DType
	for i, f := range x {
		if d == dtype.Int8 {
			x[i] = f - float64(zero)
		} else {
			x[i] = quantizeStatic(float32(f), xscale, zero)
		}
	}
	if d == dtype.Int8 {
		d = a.DType
	}
	a.DType = dtype.Invalid
	var wide [2]array
	for i, f := range [][]float64{x, args[1].floats()} {
		wide[i] = newArray(op.Type{DType: dtype.Float64, Shape: args[i].Shape})
		dtype.FromF64(wide[i].data, f, dtype.Float64)
	}
	sums := slidings[op.Conv](a, op.Type{DType: dtype.Float64, Shape: t.Shape}, wide[:])
	r := result{Type: t, f: make([]float64, len(sums.f))}
	outs := len(scales)
	for i, s := range sums.f {
		rescale := 1 / (float32(scales[i%outs]) * xscale)
		r.f[i] = float64(d.Round(float32(int32(int64(s))) * rescale))
	}
	if a.Requantize {
		zero := float32(args[6].ints()[0])
		r.raw = make([]byte, len(r.f))
		for i, f := range r.f {
			r.raw[i] = byte(int(zero) + int(quantizeStatic(float32(f), float32(args[5].floats()[0]), zero)))
		}
		r.f = nil
	}
	return r
}

// quantizeStatic is the integer of x less its zero point.
func quantizeStatic(x, scale, zero float32) float64 {
	v := x * scale
	if !(v > -128-zero) {
		v = -128 - zero
	}
	return math.RoundToEven(float64(min(v, 127-zero)))
}
