package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestPortableBits: with portable bits, operations whose kernels differ from level to level
// have the same results on each, for sizes with tails and, where zeros or padding matter, for
// zeros of both signs.
func TestPortableBits(t *testing.T) {
	isatest.SkipLevel(t, "goes through all levels")
	defer backend.SetBits(backend.SetBits(backend.PortableBits))
	defer isa.Use(isa.Current())
	type testCase struct {
		name string
		c    op.Code
		a    op.Attr
		args []array
	}
	var cases []testCase
	types := []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16}
	if testing.Short() {
		types = types[:1]
	}
	for _, d := range types {
		rng := rand.New(rand.NewPCG(7, uint64(d)))
		random := func(shape ...int) array { return randomArray(rng, d, shape...) }
		zeros := func(shape ...int) array { // and few other numbers
			return arrayOf(d, shape, func(int) float64 {
				return []float64{0, math.Copysign(0, -1), 0, 1, -1, math.Inf(-1)}[rng.IntN(6)]
			})
		}
		add := func(name string, c op.Code, a op.Attr, args ...array) {
			cases = append(cases, testCase{fmt.Sprintf("%s of %v", name, d), c, a, args})
		}
		for _, s := range [][3]int{{1, 70, 300}, {37, 1, 90}, {2, 33, 2100}, {61, 130, 257}, {300, 17, 1100}, {5, 300, 4}} {
			m, n, k := s[0], s[1], s[2]
			add(fmt.Sprint("product ", s), op.MatMul, op.Attr{}, random(m, k), random(k, n))
			add(fmt.Sprint("product, transposed first ", s), op.MatMul, op.Attr{TransA: true}, random(k, m), random(k, n))
			add(fmt.Sprint("product, transposed second ", s), op.MatMul, op.Attr{TransB: true}, random(m, k), random(n, k))
		}
		add("products of a batch", op.MatMul, op.Attr{}, random(3, 40, 50), random(3, 50, 20))
		for _, channels := range [][3]int{{1, 7, 1}, {1, 32, 1}, {3, 24, 1}, {20, 33, 1}, {16, 16, 1}, {35, 70, 1}, {130, 40, 1}, {12, 24, 4}, {10, 10, 10}, {40, 40, 40}, {3, 64, 1}, {64, 3, 1}, {130, 2, 1}} {
			in, out, groups := channels[0], channels[1], channels[2]
			for _, stride := range []int{1, 2} {
				a := op.Attr{Stride: []int{stride, stride}, Dilation: []int{1, 1}, Low: []int{1, 1}, High: []int{1, 1}, Groups: groups}
				x, w := random(2, 11, 9, in), random(3, 3, in/groups, out)
				if in == 35 { // Winograd's transforms spread what is not finite
					x = arrayOf(d, x.Type.Shape, func(i int) float64 {
						if i == 2000 {
							return math.Inf(1)
						}
						return rng.NormFloat64()
					})
				}
				if in == 40 { // depthwise: padding is skipped
					x = arrayOf(d, x.Type.Shape, func(i int) float64 {
						return []float64{rng.NormFloat64(), math.Copysign(0, -1), math.Inf(1)}[max(0, i%150-147)]
					})
				}
				if in == 20 { // padding times weights that are not finite is NaN
					w = arrayOf(d, w.Type.Shape, func(i int) float64 {
						if i == 77 {
							return math.Inf(1)
						}
						return rng.NormFloat64()
					})
				}
				y, err := op.Infer(op.Conv, a, x.Type, w.Type)
				if err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("convolution %v, stride %d,", channels, stride)
				dy := random(y.Shape...)
				add(name, op.Conv, a, x, w)
				byInput, byKernel := a, a
				byInput.Dims, byKernel.Dims = x.Shape, w.Shape
				add(name+" gradient by the input", op.ConvInputGrad, byInput, dy, w)
				add(name+" gradient by the kernels", op.ConvKernelGrad, byKernel, x, dy)
			}
		}
		for _, words := range [][3]int{{3, 64, 32}, {4, 150, 70}, {5, 64, 72}, {7, 35, 40}} {
			size, in, out := words[0], words[1], words[2]
			a := op.Attr{Stride: []int{1}, Dilation: []int{1}, Low: []int{1}, High: []int{2}}
			x, w := random(5, 41, in), random(size, in, out)
			if size == 5 { // transforms spread what is not finite
				x = arrayOf(d, x.Type.Shape, func(i int) float64 {
					if i == 3000 {
						return math.NaN()
					}
					return rng.NormFloat64()
				})
			}
			y, err := op.Infer(op.Conv, a, x.Type, w.Type)
			if err != nil {
				t.Fatal(err)
			}
			add(fmt.Sprintf("convolution of words %v", words), op.Conv, a, x, w)
			a.Dims = x.Shape
			add(fmt.Sprintf("convolution of words %v gradient by the input", words), op.ConvInputGrad, a, random(y.Shape...), w)
		}
		for _, size := range []int{2, 3} {
			a := op.Attr{Window: []int{size, size}, Stride: []int{2, 2}, Dilation: []int{1, 1}, Low: []int{0, 1}, High: []int{1, 0}}
			x := zeros(2, 13, 12, 19)
			y, err := op.Infer(op.MaxPool, a, x.Type)
			if err != nil {
				t.Fatal(err)
			}
			a.Dims = nil
			add(fmt.Sprint("maxima of ", size), op.MaxPool, a, x)
			add(fmt.Sprint("gradient of maxima of ", size), op.MaxPoolGrad, a, x, random(y.Shape...))
			add(fmt.Sprint("means of ", size), op.AvgPool, a, random(2, 13, 12, 19))
			a.Dims = x.Type.Shape
			add(fmt.Sprint("gradient of means of ", size), op.AvgPoolGrad, a, random(y.Shape...))
		}
		for _, n := range []int{5, 300, 448} {
			large := func(int) float64 { return 1e8 * rng.NormFloat64() }
			add(fmt.Sprint("softmax of large numbers, of ", n), op.Softmax, op.Attr{Axes: []int{1}}, arrayOf(d, op.Shape{9, n}, large))
			add(fmt.Sprint("softmax of ", n), op.Softmax, op.Attr{Axes: []int{1}}, random(21, n))
			add(fmt.Sprint("logarithm of softmax of ", n), op.LogSoftmax, op.Attr{Axes: []int{1}}, zeros(21, n))
			add(fmt.Sprint("softmax of columns of ", n), op.Softmax, op.Attr{Axes: []int{0}}, random(n, 21))
			for axis := range 2 {
				add(fmt.Sprintf("sum of axis %d of %d", axis, n), op.Sum, op.Attr{Axes: []int{axis}}, random(130, n))
				for _, code := range []op.Code{op.Max, op.Min} {
					add(fmt.Sprintf("%v of axis %d of %d", code, axis, n), code, op.Attr{Axes: []int{axis}}, zeros(130, n))
					add(fmt.Sprintf("%v of either zero and NaNs, axis %d of %d", code, axis, n), code, op.Attr{Axes: []int{axis}},
						arrayOf(d, op.Shape{130, n}, func(i int) float64 {
							if i%(40*n+7) == 3 {
								return math.Copysign(math.NaN(), float64(i%2)-0.5)
							}
							return math.Copysign(0, rng.Float64()-0.5)
						}))
				}
			}
			add(fmt.Sprint("squares of ", n), op.SumSquares, op.Attr{}, random(130, n))
		}
		for _, s := range []attentionShape{
			{t: 70, s: 130, h: 2, g: 1, attr: op.Attr{Causal: true}}, {t: 1, s: 600, h: 1, g: 1},
			{t: 300, s: 300, h: 1, g: 1, attr: op.Attr{SlidingWindow: 70}}, {t: 20, s: 33, h: 2, g: 2, attr: op.Attr{DropoutRate: 0.3}},
		} {
			s.b, s.d, s.e = 1, 20, 24
			a, in := s.operands(d)
			add(fmt.Sprintf("attention %d %d", s.t, s.s), op.AttentionForward, a, in...)
			add(fmt.Sprintf("gradient of attention %d %d", s.t, s.s), op.AttentionGrad, a, gradOperands(s, d, in, eval(t, op.AttentionForward, a, in...))...)
		}
		for _, n := range []int{6, 131, 400} {
			gain, shift := randomArray(rng, dtype.Float32, n), randomArray(rng, dtype.Float32, n)
			add(fmt.Sprint("normalization of ", n), op.LayerNorm, op.Attr{Epsilon: 1e-5}, random(9, n), gain, shift)
			add(fmt.Sprint("gradient of normalization of ", n), op.LayerNormGrad, op.Attr{Epsilon: 1e-5}, random(9, n), gain, random(9, n))
			add(fmt.Sprint("gradient of softmax of ", n), op.SoftmaxGrad, op.Attr{Axes: []int{1}}, random(9, n), random(9, n))
			add(fmt.Sprint("moments of columns of ", n), op.Moments, op.Attr{}, random(2, 301, n))
			add(fmt.Sprint("sums of normalization of columns of ", n), op.BatchNormReduce, op.Attr{}, random(2, 301, n), randomArray(rng, dtype.Float32, 2, n), random(2, 301, n))
		}
	}
	for i, c := range cases {
		if !isatest.InTurn(i + i/3) { // many operations are followed by two gradients
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			isa.Use(isa.Portable)
			want := eval(t, c.c, c.a, c.args...)
			for _, l := range isa.Levels()[1:] { // without portable Go
				isa.Use(l)
				got := eval(t, c.c, c.a, c.args...)
				if bytes.Equal(got.data, want.data) {
					continue
				}
				x, y := want.values(), got.values()
				for i := range x {
					if math.Float64bits(x[i]) != math.Float64bits(y[i]) && (x[i] == x[i] || y[i] == y[i]) {
						t.Fatalf("with %s element %d of %d is %v, %v in portable Go", l.Name(), i, len(x), y[i], x[i])
					}
				}
			}
		})
	}
}
