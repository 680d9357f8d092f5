package backendtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() {
	register(sumCases(numbers), op.Sum, op.Mean)
	register(sumCases(nearOne), op.Prod)
	register(extremeCases, op.Max, op.Min)
	register(argCases, op.ArgMax, op.ArgMin)
	register(wholeCases, op.SumSquares, op.AllFinite)
	register(matMulCases, op.MatMul)
	register(softmaxCases, op.Softmax, op.LogSoftmax)
	register(softmaxGradCases, op.SoftmaxGrad)
}

// reduceClasses are shapes with the axes to fold.
var reduceClasses = []struct {
	name  string
	shape op.Shape
	axes  []int
}{
	{"scalar", nil, nil},
	{"none", op.Shape{3, 5}, nil},
	{"one", op.Shape{1}, []int{0}},
	{"odd", op.Shape{7}, []int{0}},
	{"unaligned", op.Shape{1023}, []int{0}},
	{"rows", op.Shape{33, 17}, []int{1}},
	{"columns", op.Shape{33, 17}, []int{0}},
	{"all", op.Shape{33, 17}, []int{0, 1}},
	{"middle", op.Shape{3, 5, 7}, []int{1}},
	{"outer", op.Shape{3, 5, 7}, []int{0, 2}},
	{"leading", op.Shape{3, 5, 7}, []int{0, 1}},
	{"rank5", op.Shape{2, 3, 2, 3, 5}, []int{1, 3}},
	{"ones", op.Shape{1, 4, 1}, []int{0, 2}},
	{"emptyKept", op.Shape{0, 3}, []int{1}},
	{"emptyFolded", op.Shape{3, 0}, []int{1}},
	{"emptyAll", op.Shape{0}, []int{0}},
	{"large", op.Shape{70001}, []int{0}},
	{"largeRows", op.Shape{70, 1009}, []int{1}},
	{"largeColumns", op.Shape{1009, 70}, []int{0}},
	{"largeTall", op.Shape{20011, 3}, []int{0}},
}

// resultTypes are the element types that a sum of d can be stored as, Invalid
// for that of the argument.
func resultTypes(c op.Code, d dtype.DType) []dtype.DType {
	out := []dtype.DType{dtype.Invalid}
	switch {
	case c.Info().Class == op.Contraction || c == op.Softmax || c == op.LogSoftmax:
		if d.Is16() {
			out = append(out, dtype.Float32)
		}
	case d == dtype.Bool:
		out = []dtype.DType{dtype.Int32, dtype.Int64, dtype.Float32}
	case d == dtype.Uint8, d == dtype.Int8: // sums of more than a few do not fit
		out = []dtype.DType{dtype.Int32, dtype.Float32}
	case d == dtype.Int32:
		out = append(out, dtype.Int64, dtype.Float32)
	case d == dtype.Int64:
		out = append(out, dtype.Float32)
	case d.Is16():
		out = append(out, dtype.Float32)
	case d == dtype.Float32:
		out = append(out, dtype.Float64, dtype.BFloat16)
	}
	if c == op.Mean || c == op.SumSquares {
		out = slices.DeleteFunc(out, func(o dtype.DType) bool {
			return o.IsInt() || o == dtype.Invalid && !d.IsFloat()
		})
	}
	return out
}

// suffix names the result type in the class of a case.
func suffix(d dtype.DType) string {
	if d == dtype.Invalid {
		return ""
	}
	return "To" + d.String()
}

func sumCases(f fill) func(*builder) {
	return func(b *builder) {
		outs := resultTypes(b.op, b.dtype)
		for _, s := range reduceClasses {
			for _, keep := range []bool{false, true} {
				if keep && large(s.name) {
					continue
				}
				for _, out := range outs {
					name := s.name + suffix(out)
					if keep {
						name += "Keep"
					}
					b.add(name, op.Attr{Axes: s.axes, KeepDims: keep, DType: out}, []op.Type{b.t(s.shape...)}, f).Large = large(s.name)
				}
			}
		}
		if !b.dtype.IsFloat() {
			return
		}
		a := op.Attr{Axes: []int{1}}
		// A row for each special value among ordinary ones, and all of them.
		b.add("special", op.Attr{Axes: []int{1}}, []op.Type{b.t(65, 2)}, special)
		b.add("infinities", a, []op.Type{b.t(4, 3)}, values(math.Inf(1), 1, math.Inf(-1), 1, math.Inf(1), 2, 3, math.Inf(-1), math.NaN(), 0, 0, 0))
		if b.op != op.Prod {
			// The sum overflows a 16-bit type, the mean does not: the result is
			// infinite or finite, not NaN.
			m := min(b.dtype.Max()/2, 0x1p100)
			b.add("overflow", a, []op.Type{b.t(3, 1001)}, constant(m))
			b.add("cancel", a, []op.Type{b.t(3, 1000)}, values(1000, -1000, 0.25, -0.125))
			// Adding ones in 16 bits stops at 2048, or at 256.
			b.add("count", a, []op.Type{b.t(2, 5000)}, constant(1))
		}
	}
}

func extremeCases(b *builder) {
	for _, s := range reduceClasses {
		b.add(s.name, op.Attr{Axes: s.axes}, []op.Type{b.t(s.shape...)}, numbers).Large = large(s.name)
		if !large(s.name) {
			b.add(s.name+"Keep", op.Attr{Axes: s.axes, KeepDims: true}, []op.Type{b.t(s.shape...)}, numbers)
		}
	}
	b.add("special", op.Attr{Axes: []int{1}}, []op.Type{b.t(65, 2)}, special)
	b.add("bits", op.Attr{Axes: []int{1}}, []op.Type{b.t(257, 9)}, bits)
	b.add("specialColumns", op.Attr{Axes: []int{0}}, []op.Type{b.t(2, 65)}, special)
	b.add("nan", op.Attr{Axes: []int{1}}, []op.Type{b.t(33, 67)}, nanFill)
}

// nanFill is few values, and a NaN in every hundredth place for floats.
var nanFill = each(func(r *rand.Rand) float64 {
	if r.IntN(100) == 0 {
		return math.NaN()
	}
	return float64(r.IntN(5) - 2)
}, fewInt)

func argCases(b *builder) {
	for _, s := range reduceClasses {
		if len(s.axes) != 1 || s.shape[s.axes[0]] == 0 {
			continue
		}
		for _, keep := range []bool{false, true} {
			name := s.name
			if keep {
				name += "Keep"
			}
			b.add(name, op.Attr{Axes: s.axes, KeepDims: keep}, []op.Type{b.t(s.shape...)}, numbers).Large = large(s.name)
			b.add(name+"Equal", op.Attr{Axes: s.axes, KeepDims: keep}, []op.Type{b.t(s.shape...)}, few)
		}
	}
	b.add("special", op.Attr{Axes: []int{1}}, []op.Type{b.t(65, 3)}, special)
	b.add("specialColumns", op.Attr{Axes: []int{0}}, []op.Type{b.t(3, 65)}, special)
	b.add("nan", op.Attr{Axes: []int{1}}, []op.Type{b.t(33, 67)}, nanFill)
	b.add("bits", op.Attr{Axes: []int{1}}, []op.Type{b.t(257, 9)}, bits)
}

func wholeCases(b *builder) {
	outs := []dtype.DType{dtype.Invalid}
	if b.op == op.SumSquares {
		outs = resultTypes(b.op, b.dtype)
	}
	for _, out := range outs {
		a := op.Attr{DType: out}
		for _, s := range shapeClasses {
			b.add(s.name+suffix(out), a, []op.Type{b.t(s.shape...)}, numbers).Large = large(s.name)
		}
		if !b.dtype.IsFloat() {
			continue
		}
		for i, v := range specialFloats(b.dtype)[:29] {
			b.add(fmt.Sprintf("special%d%s", i, suffix(out)), a, []op.Type{b.t(3)}, values(1, v, 2))
		}
		b.add("lastNaN"+suffix(out), a, []op.Type{b.t(70001)}, func(_ *rand.Rand, t op.Type) []byte {
			v := make([]float64, t.Shape.Size())
			v[len(v)-1] = math.NaN()
			return values(v...)(nil, t)
		})
	}
}

func matMulCases(b *builder) {
	classes := []struct {
		name string
		x, y op.Shape // as without transposes
	}{
		{"one", op.Shape{1, 1}, op.Shape{1, 1}},
		{"small", op.Shape{2, 3}, op.Shape{3, 4}},
		{"odd", op.Shape{17, 33}, op.Shape{33, 19}},
		{"blocks", op.Shape{64, 64}, op.Shape{64, 64}},
		{"unaligned", op.Shape{65, 127}, op.Shape{127, 67}},
		{"deep", op.Shape{5, 1031}, op.Shape{1031, 9}},
		{"vector", op.Shape{1, 129}, op.Shape{129, 65}},
		{"column", op.Shape{65, 129}, op.Shape{129, 1}},
		{"dot", op.Shape{1, 2049}, op.Shape{2049, 1}},
		{"outer", op.Shape{65, 1}, op.Shape{1, 67}},
		{"emptyRows", op.Shape{0, 3}, op.Shape{3, 4}},
		{"emptyInner", op.Shape{2, 0}, op.Shape{0, 4}},
		{"emptyColumns", op.Shape{2, 3}, op.Shape{3, 0}},
		{"batch", op.Shape{5, 7, 9}, op.Shape{5, 9, 11}},
		{"batchOfOne", op.Shape{5, 7, 9}, op.Shape{1, 9, 11}},
		{"batchRight", op.Shape{7, 9}, op.Shape{5, 9, 11}},
		{"batchLeft", op.Shape{2, 5, 7, 9}, op.Shape{9, 11}},
		{"batchBoth", op.Shape{2, 1, 3, 9}, op.Shape{4, 9, 5}},
		{"emptyBatch", op.Shape{0, 2, 3}, op.Shape{0, 3, 4}},
		{"largeSquare", op.Shape{130, 131}, op.Shape{131, 133}},
		{"largeTall", op.Shape{300, 70}, op.Shape{70, 40}},
	}
	outs := resultTypes(b.op, b.dtype)
	for _, s := range classes {
		for trans := range 4 {
			for _, out := range outs {
				a := op.Attr{TransA: trans&1 != 0, TransB: trans&2 != 0, DType: out}
				x, y := s.x, s.y
				name := s.name + suffix(out)
				if a.TransA {
					x = swapped(x)
					name += "TransA"
				}
				if a.TransB {
					y = swapped(y)
					name += "TransB"
				}
				b.add(name, a, []op.Type{b.t(x...), b.t(y...)}, numbers).Large = large(s.name)
			}
		}
	}
	// 0·∞ is NaN also in a product of matrices.
	b.add("special", op.Attr{}, []op.Type{b.t(65, 2), b.t(2, 65)}, special)
	b.add("overflow", op.Attr{}, []op.Type{b.t(3, 100), b.t(100, 3)}, constant(min(b.dtype.Max()/4, 0x1p50)), constant(1))
	b.add("count", op.Attr{}, []op.Type{b.t(2, 5000), b.t(5000, 3)}, constant(1))
}

func swapped(s op.Shape) op.Shape {
	t := s.Clone()
	n := len(t)
	t[n-1], t[n-2] = t[n-2], t[n-1]
	return t
}

func softmaxGradCases(b *builder) {
	for _, s := range reduceClasses {
		if len(s.axes) == 1 {
			b.add(s.name, op.Attr{Axes: s.axes}, []op.Type{b.t(s.shape...), b.t(s.shape...)}, numbers).Large = large(s.name)
			b.add(s.name+"Wide", op.Attr{Axes: s.axes, DType: b.dtype.Accumulator()}, []op.Type{b.t(s.shape...), {DType: dtype.Float32, Shape: s.shape}}, numbers)
		}
	}
}

func softmaxCases(b *builder) {
	for _, out := range resultTypes(b.op, b.dtype) {
		for _, s := range reduceClasses {
			if len(s.axes) != 1 {
				continue
			}
			b.add(s.name+suffix(out), op.Attr{Axes: s.axes, DType: out}, []op.Type{b.t(s.shape...)}, logits).Large = large(s.name)
		}
		a := op.Attr{Axes: []int{1}, DType: out}
		inf := math.Inf(1)
		b.add("masked"+suffix(out), a, []op.Type{b.t(4, 5)},
			values(1, -inf, 2, -inf, 0, -inf, -inf, -inf, -inf, 3, -inf, -inf, -inf, -inf, -inf, 1, inf, 2, 3, math.NaN()))
		// Exponentials of these overflow every type before the shift.
		b.add("huge"+suffix(out), a, []op.Type{b.t(2, 3)}, values(60000, 59992, 60000, -60000, -59904, -60000))
	}
}
