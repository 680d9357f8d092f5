package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/philox"
)

func TestMatMul(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, d := range isatest.Floats() {
		for _, s := range []struct {
			batchA, batchB op.Shape
			m, k, n        int
		}{
			{nil, nil, 1, 1, 1}, {nil, nil, 1, 300, 7}, {nil, nil, 7, 300, 1}, {nil, nil, 4, 4, 4},
			{nil, nil, 13, 29, 11}, {nil, nil, 130, 513, 67}, {nil, nil, 0, 3, 4}, {nil, nil, 3, 0, 4}, {nil, nil, 3, 4, 0},
			{op.Shape{3}, nil, 5, 6, 7}, {op.Shape{2, 1}, op.Shape{3}, 5, 6, 7}, {nil, op.Shape{2}, 5, 6, 7},
			{op.Shape{2, 3}, op.Shape{2, 3}, 17, 9, 18}, {op.Shape{0}, nil, 2, 2, 2},
		} {
			for trans := range 4 {
				if s.k > 500 && !isatest.InTurn(trans+int(d)) {
					continue
				}
				ta, tb := trans&1 != 0, trans&2 != 0
				a, b := append(s.batchA.Clone(), s.m, s.k), append(s.batchB.Clone(), s.k, s.n)
				if ta {
					a[len(a)-2], a[len(a)-1] = s.k, s.m
				}
				if tb {
					b[len(b)-2], b[len(b)-1] = s.n, s.k
				}
				x, y := randomArray(rng, d, a...), randomArray(rng, d, b...)
				to := dtype.Invalid
				if trans == 3 && d.Is16() {
					to = dtype.Float32
				}
				got := eval(t, op.MatMul, op.Attr{TransA: ta, TransB: tb, DType: to}, x, y)
				want := naiveMatMul(x, y, ta, tb, got.Shape)
				// Products are up to 4, and partial sums of k of them grow as the
				// square root of k.
				near(t, fmt.Sprint(x.Type, ta, y.Type, tb), got, want, 4*math.Sqrt(float64(s.k)))
			}
		}
	}
}

func naiveMatMul(x, y array, ta, tb bool, out op.Shape) []float64 {
	xs, ys := x.values(), y.values()
	rank := len(out)
	m, n, ld := out[rank-2], out[rank-1], out[:rank-2]
	k := x.Shape[len(x.Shape)-1]
	if ta {
		k = x.Shape[len(x.Shape)-2]
	}
	r := make([]float64, out.Size())
	for i := range r {
		batch, row, col := i/(m*n), i/n%m, i%n
		xa := index(batch, ld, x.Shape[:len(x.Shape)-2]) * m * k
		ya := index(batch, ld, y.Shape[:len(y.Shape)-2]) * k * n
		for p := range k {
			u, v := xa+row*k+p, ya+p*n+col
			if ta {
				u = xa + p*m + row
			}
			if tb {
				v = ya + col*k + p
			}
			r[i] += xs[u] * ys[v]
		}
	}
	return r
}

// fold is a reduction in float64.
func fold(c op.Code, x []float64) float64 {
	switch c {
	case op.Prod:
		p := 1.0
		for _, v := range x {
			p *= v
		}
		return p
	case op.Max:
		m := math.Inf(-1)
		for _, v := range x {
			m = max(m, v)
		}
		return m
	case op.Min:
		m := math.Inf(1)
		for _, v := range x {
			m = min(m, v)
		}
		return m
	case op.ArgMax:
		return float64(slices.Index(x, slices.Max(x)))
	case op.ArgMin:
		return float64(slices.Index(x, slices.Min(x)))
	}
	var s, lost float64 // Neumaier's compensated sum
	for _, v := range x {
		if c == op.SumSquares {
			v *= v
		}
		t := s + v
		if math.Abs(s) >= math.Abs(v) {
			lost += (s - t) + v
		} else {
			lost += (v - t) + s
		}
		s = t
	}
	s += lost
	if c == op.Mean {
		s /= float64(len(x))
	}
	return s
}

func naiveReduce(c op.Code, x array, axes []int) []float64 {
	keep := x.Shape.Clone()
	for _, a := range axes {
		keep[a] = 1
	}
	groups := make([][]float64, keep.Size())
	for i, v := range x.values() {
		at := index(i, x.Shape, keep)
		groups[at] = append(groups[at], v)
	}
	r := make([]float64, len(groups))
	for i, g := range groups {
		r[i] = fold(c, g)
	}
	return r
}

// TestReduceWorkers: sums of several segments have the same bits for every number of
// workers that they are compiled for and run by.
func TestReduceWorkers(t *testing.T) {
	isatest.SkipEmulated(t, "how work is shared does not depend on the processor")
	rng := rand.New(rand.NewPCG(15, 16))
	// Segments of float32 are joined in float64, whose last bits seldom reach the
	// result. Float64 reveals a different order of the sum.
	for _, d := range []dtype.DType{dtype.Float64, dtype.Float32, dtype.BFloat16} {
		for _, s := range []struct {
			shape op.Shape
			axis  int
		}{{op.Shape{23, 40_001}, 1}, {op.Shape{5, 200_003}, 1}, {op.Shape{40_001, 7}, 0}} {
			x := randomArray(rng, d, s.shape...)
			forEachVectors(t, func(t *testing.T) {
				var first []byte
				for _, procs := range []int{1, 2, 3, 8} {
					before := runtime.GOMAXPROCS(procs)
					got := eval(t, op.Sum, op.Attr{Axes: []int{s.axis}, DType: d.Accumulator()}, x).data
					runtime.GOMAXPROCS(before)
					if first == nil {
						first = got
					} else if !bytes.Equal(got, first) {
						t.Errorf("sums of %v along axis %d have other bits with %d workers", x.Type, s.axis, procs)
					}
				}
			})
		}
	}
}

func TestReduce(t *testing.T) { forEachVectors(t, testReduce) }

func testReduce(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	shapes := []struct {
		shape op.Shape
		axes  []int
	}{
		{op.Shape{}, []int{}}, {op.Shape{7}, []int{0}}, {op.Shape{30000}, []int{0}}, {op.Shape{5, 6}, []int{}},
		{op.Shape{33, 65}, []int{0}}, {op.Shape{33, 65}, []int{1}}, {op.Shape{33, 65}, []int{0, 1}},
		{op.Shape{4, 5, 6, 7}, []int{0, 2}}, {op.Shape{4, 5, 6, 7}, []int{1, 3}}, {op.Shape{4, 5, 6, 7}, []int{0, 2, 3}},
		{op.Shape{1000, 5}, []int{0}}, {op.Shape{3, 1500}, []int{0}}, {op.Shape{900, 1, 40}, []int{0, 1}}, {op.Shape{8, 1}, []int{1}},
		{op.Shape{9, 3000}, []int{1}}, {op.Shape{0, 4}, []int{0}}, {op.Shape{4, 0}, []int{0}},
	}
	for _, d := range dtype.All() {
		for _, s := range shapes {
			x := randomArray(rng, d, s.shape...)
			for _, c := range []op.Code{op.Sum, op.Mean, op.Prod, op.Max, op.Min, op.ArgMax, op.ArgMin, op.SumSquares} {
				a := op.Attr{Axes: s.axes, KeepDims: len(s.axes)%2 == 0}
				if c == op.Prod && s.shape.Size() > 40 {
					continue // overflows; TestProd
				}
				if !d.IsFloat() && (c == op.Sum || c == op.Mean || c == op.SumSquares || c == op.Prod) {
					a.DType = dtype.Float64
				}
				if _, err := op.Infer(c, a, x.Type); err != nil || !d.IsFloat() && s.shape.Size() == 0 {
					continue
				}
				axes := s.axes
				if c == op.SumSquares {
					axes = axes[:0:0]
					for i := range s.shape {
						axes = append(axes, i)
					}
				}
				// Terms are up to 4 and partial sums of n of them grow as the
				// square root of n.
				scale := 4 * math.Sqrt(float64(x.Shape.Size()))
				near(t, fmt.Sprint(c, x.Type, s.axes), eval(t, c, a, x), naiveReduce(c, x, axes), scale)
			}
		}
	}
}

func TestReduceEmptyAndIntegers(t *testing.T) {
	empty := array{Type: op.Type{DType: dtype.Float16, Shape: op.Shape{0, 2}}}
	for c, want := range map[op.Code]float64{op.Sum: 0, op.Prod: 1, op.Max: math.Inf(-1), op.Min: math.Inf(1), op.Mean: math.NaN()} {
		near(t, c.String(), eval(t, c, op.Attr{Axes: []int{0}}, empty), []float64{want, want}, 1)
	}
	near(t, "SumSquares", eval(t, op.SumSquares, op.Attr{}, empty), []float64{0}, 1)
	near(t, "AllFinite", eval(t, op.AllFinite, op.Attr{}, empty), []float64{1}, 1)
	none := array{Type: op.Type{DType: dtype.Int32, Shape: op.Shape{0}}}
	near(t, "Max", eval(t, op.Max, op.Attr{Axes: []int{0}}, none), []float64{math.MinInt32}, 1)
	near(t, "Min", eval(t, op.Min, op.Attr{Axes: []int{0}}, none), []float64{math.MaxInt32}, 1)
	yes := arrayOf(dtype.Bool, op.Shape{3, 100}, func(i int) float64 { return flag(i >= 100 && i%7 != 3 || i > 150) })
	near(t, "count", eval(t, op.Sum, op.Attr{Axes: []int{1}, DType: dtype.Int32}, yes), naiveReduce(op.Sum, yes, []int{1}), 1)
	near(t, "any", eval(t, op.Max, op.Attr{Axes: []int{1}}, yes), []float64{0, 1, 1}, 1)
	near(t, "all", eval(t, op.Min, op.Attr{Axes: []int{1}}, yes), []float64{0, 0, 1}, 1)
	big := arrayOf(dtype.Uint8, op.Shape{300}, func(int) float64 { return 1 })
	near(t, "wraps", eval(t, op.Sum, op.Attr{Axes: []int{0}}, big), []float64{44}, 1)
}

// TestLongSums: statistics of 16-bit data have one rounding error.
func TestLongSums(t *testing.T) { forEachVectors(t, testLongSums) }

func testLongSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		x := arrayOf(d, op.Shape{100000, 3}, func(int) float64 { return 3 + rng.NormFloat64() })
		for _, axes := range [][]int{{0}, {0, 1}} {
			got := eval(t, op.Mean, op.Attr{Axes: axes}, x).values()
			for i, w := range naiveReduce(op.Mean, x, axes) {
				if math.Abs(got[i]-w) > d.Epsilon()*2 { // numbers near 3 are 2ε apart
					t.Errorf("mean %d over %v of %v is %v, want %v", i, axes, x.Type, got[i], w)
				}
			}
		}
	}
}

func TestSoftmax(t *testing.T) { forEachVectors(t, testSoftmax) }

func testSoftmax(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	for _, d := range dtype.Floats() {
		for _, s := range []struct {
			shape op.Shape
			axis  int
		}{{op.Shape{1}, 0}, {op.Shape{33, 10}, 1}, {op.Shape{33, 10}, 0}, {op.Shape{3, 2500}, 1}, {op.Shape{4, 5, 6}, 1}, {op.Shape{0, 3}, 1}} {
			x := randomArray(rng, d, s.shape...)
			if x.Shape.Size() > 4 { // a row with values that overflow exp
				dtype.FromF64(x.data[:d.Size()], []float64{60000}, d)
			}
			for _, c := range []op.Code{op.Softmax, op.LogSoftmax} {
				got := eval(t, c, op.Attr{Axes: []int{s.axis}}, x)
				want := x.values()
				top := naiveReduce(op.Max, x, []int{s.axis})
				keep := s.shape.Clone()
				keep[s.axis] = 1
				sums := make([]float64, len(top))
				for i := range want {
					sums[index(i, s.shape, keep)] += math.Exp(want[i] - top[index(i, s.shape, keep)])
				}
				for i := range want {
					g := index(i, s.shape, keep)
					want[i] -= top[g] + math.Log(sums[g])
					if c == op.Softmax {
						want[i] = math.Exp(want[i])
					}
				}
				near(t, fmt.Sprint(c, x.Type, s.axis), got, want, 4)
			}
		}
	}
}

func TestMovement(t *testing.T) { forEachVectors(t, testMovement) }

func testMovement(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	for _, d := range dtype.All() {
		x := randomArray(rng, d, 5, 40, 33)
		xs := x.values()
		at := func(i, j, k int) float64 { return xs[(i*40+j)*33+k] }
		check := func(what string, got array, f func(p []int) float64) {
			t.Helper()
			want := make([]float64, got.Shape.Size())
			p := make([]int, len(got.Shape))
			for i := range want {
				for j, r := len(p)-1, i; j >= 0; j-- {
					p[j] = r % got.Shape[j]
					r /= got.Shape[j]
				}
				want[i] = f(p)
			}
			near(t, what+" "+d.String(), got, want, 0)
		}
		check("Transpose", eval(t, op.Transpose, op.Attr{Perm: []int{2, 0, 1}}, x), func(p []int) float64 { return at(p[1], p[2], p[0]) })
		check("Transpose", eval(t, op.Transpose, op.Attr{Perm: []int{0, 2, 1}}, x), func(p []int) float64 { return at(p[0], p[2], p[1]) })
		check("Transpose", eval(t, op.Transpose, op.Attr{Perm: []int{1, 0, 2}}, x), func(p []int) float64 { return at(p[1], p[0], p[2]) })
		check("Slice", eval(t, op.Slice, op.Attr{Start: []int{1, 3, 2}, Limit: []int{4, 40, 32}, Stride: []int{1, 5, 3}}, x),
			func(p []int) float64 { return at(1+p[0], 3+5*p[1], 2+3*p[2]) })
		check("Slice", eval(t, op.Slice, op.Attr{Start: []int{0, 7, 0}, Limit: []int{5, 9, 33}, Stride: []int{1, 1, 1}}, x),
			func(p []int) float64 { return at(p[0], 7+p[1], p[2]) })
		check("Reshape", eval(t, op.Reshape, op.Attr{Dims: op.Shape{200, 33}}, x), func(p []int) float64 { return at(p[0]/40, p[0]%40, p[1]) })
		check("BroadcastTo", eval(t, op.BroadcastTo, op.Attr{Dims: op.Shape{2, 5, 40, 33}}, x), func(p []int) float64 { return at(p[1], p[2], p[3]) })
		y := randomArray(rng, d, 5, 1)
		ys := y.values()
		check("BroadcastTo", eval(t, op.BroadcastTo, op.Attr{Dims: op.Shape{3, 5, 40}}, y), func(p []int) float64 { return ys[p[1]] })
		check("Concat", eval(t, op.Concat, op.Attr{Axes: []int{1}}, x, x), func(p []int) float64 { return at(p[0], p[1]%40, p[2]) })
		check("Concat", eval(t, op.Concat, op.Attr{Axes: []int{2}}, x, x, x), func(p []int) float64 { return at(p[0], p[1], p[2]%33) })
		check("Pad", eval(t, op.Pad, op.Attr{Low: []int{1, 0, 2}, High: []int{0, 3, 1}, Value: 1}, x), func(p []int) float64 {
			i, j, k := p[0]-1, p[1], p[2]-2
			if i < 0 || j >= 40 || k < 0 || k >= 33 {
				return 1
			}
			return at(i, j, k)
		})
		idx := arrayOf(dtype.Int32, op.Shape{2, 3}, func(i int) float64 { return float64(i * 2 % 5) })
		check("Gather", eval(t, op.Gather, op.Attr{}, x, idx), func(p []int) float64 { return at((p[0]*3+p[1])*2%5, p[2], p[3]) })
		one := arrayOf(dtype.Int64, op.Shape{5, 40}, func(i int) float64 { return float64(i * 7 % 33) })
		check("TakeAlongAxis", eval(t, op.TakeAlongAxis, op.Attr{}, x, one), func(p []int) float64 { return at(p[0], p[1], (p[0]*40+p[1])*7%33) })
		z := randomArray(rng, d, 5, 40)
		zs := z.values()
		check("ScatterAlongAxis", eval(t, op.ScatterAlongAxis, op.Attr{Size: 33}, z, one), func(p []int) float64 {
			if row := p[0]*40 + p[1]; row*7%33 == p[2] {
				return zs[row]
			}
			return 0
		})
		if d == dtype.Bool {
			continue
		}
		rows := arrayOf(dtype.Int32, op.Shape{5, 40}, func(i int) float64 { return float64(i * i % 11) })
		got := eval(t, op.ScatterAdd, op.Attr{Size: 12}, x, rows)
		want := make([]float64, 12*33)
		for i, v := range xs {
			want[i/33*(i/33)%11*33+i%33] += v
		}
		near(t, "ScatterAdd "+d.String(), got, wrapAll(want, d), 4)
	}
	near(t, "Iota", eval(t, op.Iota, op.Attr{DType: dtype.Float16, Dims: op.Shape{2, 3}}), []float64{0, 1, 2, 0, 1, 2}, 0)
}

func TestIndexError(t *testing.T) {
	x := arrayOf(dtype.Float32, op.Shape{4, 10}, func(i int) float64 { return float64(i) })
	labels := arrayOf(dtype.Int32, op.Shape{4}, func(i int) float64 { return []float64{3, 9, -1, 12}[i] })
	row := arrayOf(dtype.Float32, op.Shape{4}, func(i int) float64 { return 1 })
	for c, call := range map[op.Code]func() error{
		op.TakeAlongAxis:    func() error { _, err := tryEval(t, op.TakeAlongAxis, op.Attr{}, x, labels); return err },
		op.ScatterAlongAxis: func() error { _, err := tryEval(t, op.ScatterAlongAxis, op.Attr{Size: 10}, row, labels); return err },
		op.Gather: func() error {
			_, err := tryEval(t, op.Gather, op.Attr{}, arrayOf(dtype.Float32, op.Shape{10, 2}, func(int) float64 { return 0 }), labels)
			return err
		},
		op.ScatterAdd: func() error { _, err := tryEval(t, op.ScatterAdd, op.Attr{Size: 10}, row, labels); return err },
	} {
		err := call()
		var bad *driver.IndexError
		if !errors.As(err, &bad) {
			t.Errorf("%v: got error %v, want an IndexError", c, err)
			continue
		}
		if want := "layer test: " + c.String() + ": index -1 at position 2 is out of range, want 0 to 9"; err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

func TestRandomUniform(t *testing.T) { forEachVectors(t, testRandomUniform) }

func testRandomUniform(t *testing.T) {
	state := arrayOf(dtype.Int64, op.Shape{2}, func(i int) float64 { return []float64{12345, 7}[i] })
	want := make([]float32, 9999)
	for bits, draw := range map[int]func(seed, counter, stream uint64, dst []float32){0: philox.Uniform, 16: philox.Uniform16} {
		got := eval(t, op.RandomUniform, op.Attr{Dims: op.Shape{3, 3333}, Stream: 5, Bits: int8(bits)}, state)
		draw(12345, 7, 5, want)
		if !bytes.Equal(got.data, bytesOfFloats(want)) {
			t.Errorf("numbers (N %d) are not those of package philox", bits)
		}
	}
}

func bytesOfFloats(x []float32) []byte {
	b := make([]byte, 4*len(x))
	dtype.FromF32(b, x, dtype.Float32)
	return b
}
