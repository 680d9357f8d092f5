package tensor_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// foldCase is a contraction that normalization follows: what a layer records of it on x
// of a shape, in type d, with a kernel in float32.
type foldCase struct {
	name          string
	x, kernel     tensor.Shape
	channels      int
	contract      func(x, kernel T) T
	bias, between bool // between: the channels become the last of two axes
}

var foldCases = []foldCase{
	{"conv", tensor.Shape{2, 7, 6, 5}, tensor.Shape{3, 3, 5, 9}, 9, func(x, k T) T { return x.Conv(k, tensor.ConvOptions{Padding: "same"}) }, false, false},
	{"strided conv with a bias", tensor.Shape{2, 9, 4}, tensor.Shape{3, 4, 17}, 17, func(x, k T) T { return x.Conv(k, tensor.ConvOptions{Stride: []int{2}}) }, true, false},
	{"point conv", tensor.Shape{1, 4, 4, 33}, tensor.Shape{1, 1, 33, 20}, 20, func(x, k T) T { return x.Conv(k, tensor.ConvOptions{}) }, false, false},
	{"depthwise", tensor.Shape{1, 5, 5, 8}, tensor.Shape{3, 3, 8, 2}, 16, func(x, k T) T {
		return x.Conv(k.Reshape(3, 3, 1, 16), tensor.ConvOptions{Groups: 8})
	}, false, false},
	{"dense with a bias", tensor.Shape{6, 11}, tensor.Shape{11, 13}, 13, func(x, k T) T { return x.MatMul(k) }, true, false},
	{"dense on rows", tensor.Shape{6, 11}, tensor.Shape{11, 13}, 13, func(x, k T) T { return x.MatMul(k) }, false, true},
}

// foldModel is a contraction and its normalization, with the variables that they read.
type foldModel struct {
	foldCase
	d, wide    dtype.DType
	kernel     V
	bias       V
	mean, v    V
	gain, beta V
	magnitude  bool // sums of absolute values instead: what rounding errors are relative to
}

func newFoldModel(c foldCase, d, wide dtype.DType) *foldModel {
	rng := rand.New(rand.NewPCG(3, 7))
	fill := func(name string, f func() float64, shape ...int) V {
		data := make([]float64, tensor.Shape(shape).Size())
		for i := range data {
			data[i] = float64(float32(f()))
		}
		return tensor.NewVariable(name, wide, shape, func(dst []float64) error {
			copy(dst, data)
			return nil
		})
	}
	m := &foldModel{foldCase: c, d: d, wide: wide}
	m.kernel = fill("kernel", rng.NormFloat64, c.kernel...)
	m.bias = fill("bias", rng.NormFloat64, c.channels)
	m.mean = fill("mean", func() float64 { return 4 * rng.NormFloat64() }, c.channels)
	m.v = fill("variance", func() float64 { return math.Exp(rng.NormFloat64()) }, c.channels)
	m.gain = fill("gain", rng.NormFloat64, c.channels)
	m.beta = fill("beta", rng.NormFloat64, c.channels)
	return m
}

func (m *foldModel) variables() []V { return []V{m.kernel, m.bias, m.mean, m.v, m.gain, m.beta} }

// call records what layers record.
func (m *foldModel) call(x T) T {
	abs := func(x T) T {
		if m.magnitude {
			return x.Abs()
		}
		return x
	}
	y := m.contract(abs(x).Cast(m.d), abs(m.kernel.Value()).Cast(m.d))
	if m.foldCase.bias {
		y = y.Add(abs(m.bias.Value()).Cast(m.d))
	}
	if m.between {
		y = y.Reshape(2, 3, m.channels)
	}
	onAxis := slices.Repeat([]int{1}, y.Rank())
	onAxis[y.Rank()-1] = m.channels
	y = y.Cast(m.wide)
	read := func(v V) T { return abs(v.Value()).Reshape(onAxis...) }
	gain := m.v.Value().Reshape(onAxis...).AddScalar(1e-3).Rsqrt().Mul(read(m.gain))
	if mean := read(m.mean); m.magnitude {
		y = y.Add(mean)
	} else {
		y = y.Sub(mean)
	}
	return y.Mul(gain).Add(read(m.beta)).Cast(m.d)
}

// folding is a function that folds, or not.
func folding(f func(T) T, on bool) *tensor.Func[T, T] {
	fn := tensor.Function(f)
	fn.FoldNormalization(on)
	return fn
}

func foldInput(c foldCase, d dtype.DType) T {
	rng := rand.New(rand.NewPCG(9, 4))
	data := make([]float32, c.x.Size())
	for i := range data {
		data[i] = d.Round(float32(rng.NormFloat64()))
	}
	return tensor.New(data, c.x...)
}

// computes counts the operations on c-sized results of a plan, in bodies too.
func computes(g *ir.Graph, code op.Code, c int) (n int) {
	for _, v := range g.Values {
		switch {
		case v.Op == code && v.Type.Shape.Size() > c:
			n++
		case v.Attr.Body != nil && v.Type.Shape.Size() > c:
			for _, i := range v.Attr.Body.Code {
				if i.Op == code {
					n++
				}
			}
		}
	}
	return n
}

// TestFold: folded normalization differs from float64 by what rounding the kernel, the
// sums and the result allows, and the program computes none of the normalization.
func TestFold(t *testing.T) {
	if !backend.Folds() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	for _, c := range foldCases {
		for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
			name := fmt.Sprintf("%s, %v", c.name, d)
			m, x := newFoldModel(c, d, dtype.Float32), foldInput(c, d)
			fn := folding(m.call, true)
			got := values(t, must[T](t)(fn.Call(ctx, x)))
			exact := newFoldModel(c, dtype.Float64, dtype.Float64)
			want := values(t, must[T](t)(folding(exact.call, false).Call(ctx, x.Cast(dtype.Float64))))
			exact.magnitude = true
			scale := values(t, must[T](t)(folding(exact.call, false).Call(ctx, x.Cast(dtype.Float64))))
			terms := float64(c.kernel.Size() / c.channels)
			for i := range want {
				// The kernel, the bias, the sum and the result are rounded once each; in
				// float32 every term of a sum is.
				bound := 2*d.Epsilon()*scale[i] + terms*dtype.Float32.Epsilon()*scale[i]
				if !(math.Abs(got[i]-want[i]) <= bound) {
					t.Errorf("%s: element %d is %v, want %v within %v", name, i, got[i], want[i], bound)
					break
				}
			}
			if backend.Skipping() {
				continue
			}
			p := must[*ir.Graph](t)(fn.Plan(x))
			if computes(p, op.Sub, 0) != 0 || computes(p, op.Mul, 0) != 0 || computes(p, op.Rsqrt, 0) != 0 {
				t.Errorf("%s: the program normalizes:\n%v", name, p)
			}
		}
	}
}

// TestFoldNot: what must not be folded is not.
func TestFoldNot(t *testing.T) {
	c := foldCases[4]
	m := newFoldModel(c, dtype.Float32, dtype.Float32)
	x := foldInput(c, dtype.Float32)
	state := variable("state", dtype.Float32, 1)
	for name, f := range map[string]func(x T) []T{
		"the sum is a result":    func(x T) []T { y := x.MatMul(m.kernel.Value()); return []T{y, y.Mul(m.gain.Value())} },
		"the sum is read twice":  func(x T) []T { y := x.MatMul(m.kernel.Value()); return []T{y.Mul(m.gain.Value()).Add(y)} },
		"the factor is computed": func(x T) []T { return []T{x.MatMul(m.kernel.Value()).Mul(x.Sum(0).Sum(0))} },
		"the factor is by row":   func(x T) []T { return []T{x.MatMul(m.kernel.Value()).Mul(m.beta.Value().Slice(0, 0, 6).Reshape(6, 1))} },
		"it is the factor":       func(x T) []T { y := x.MatMul(m.kernel.Value()); return []T{y.Mul(y)} },
		"the sum is subtracted":  func(x T) []T { return []T{m.beta.Value().Sub(x.MatMul(m.kernel.Value())).Mul(m.gain.Value())} },
		"there is only a bias":   func(x T) []T { return []T{x.MatMul(m.kernel.Value()).Add(m.beta.Value())} },
		"the kernel is transposed": func(x T) []T {
			return []T{x.MatMul(m.kernel.Value().Transpose().Transpose().Square()).Mul(m.gain.Value())}
		},
		"something is assigned": func(x T) []T {
			state.Assign(state.Value().AddScalar(1))
			return []T{x.MatMul(m.kernel.Value()).Mul(m.gain.Value())}
		},
		"the kernel is computed": func(x T) []T { return []T{x.MatMul(m.kernel.Value().Tanh()).Mul(m.gain.Value())} },
		"another axis is the last one": func(x T) []T {
			return []T{x.MatMul(m.kernel.Value()).Reshape(13, 6).Mul(m.beta.Value().Slice(0, 0, 6))}
		},
	} {
		fn, plain := tensor.Function(f, vars{state}), tensor.Function(f, vars{state})
		fn.FoldNormalization(true)
		got, want := must[[]T](t)(fn.Call(ctx, x)), must[[]T](t)(plain.Call(ctx, x))
		for i := range want {
			if a, b := values(t, got[i]), values(t, want[i]); !slices.Equal(a, b) {
				t.Errorf("%s: got %v, want %v", name, a, b)
			}
		}
	}
}

// TestFoldKept: folded kernels are those of the variables' current values, whichever of
// them changed, and have the same bits as kernels that each call folds.
func TestFoldKept(t *testing.T) {
	if !backend.Folds() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	none, err := backend.ParseSkips(string(backend.ShadowWeights))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range foldCases {
		for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
			m, x := newFoldModel(c, d, dtype.Float32), foldInput(c, d)
			kept, wider := folding(m.call, true), folding(func(x T) T { return m.call(x).Neg() }, true)
			check := func(what string) {
				t.Helper()
				before := backend.SetSkips(none)
				want := values(t, must[T](t)(folding(m.call, true).Call(ctx, x)))
				backend.SetSkips(before)
				negative := values(t, must[T](t)(wider.Call(ctx, x)))
				for range 2 {
					if got := values(t, must[T](t)(kept.Call(ctx, x))); !slices.Equal(got, want) {
						i := 0
						for got[i] == want[i] {
							i++
						}
						t.Errorf("%s, %v: after %s: element %d is %v, want %v", c.name, d, what, i, got[i], want[i])
						return
					}
				}
				for i := range want {
					if negative[i] != -want[i] {
						t.Errorf("%s, %v: after %s: another program has %v, want %v", c.name, d, what, negative[i], -want[i])
						return
					}
				}
			}
			check("nothing")
			for _, v := range m.variables() {
				x := values(t, v)
				for i := range x {
					x[i] = float64(float32(1.5*x[i] + 0.25))
				}
				if err := v.Set(x); err != nil {
					t.Fatal(err)
				}
				check("Set of " + v.Name())
			}
			step := tensor.Function(func(x T) struct{} {
				for _, v := range m.variables() {
					v.Assign(v.Value().MulScalar(1.25))
				}
				return struct{}{}
			}, vars(m.variables()))
			if err := step.Run(ctx, x); err != nil {
				t.Fatal(err)
			}
			check("a step")
			if err := m.kernel.Reset(); err != nil {
				t.Fatal(err)
			}
			check("Reset")
		}
	}
}

// TestFoldTogether: goroutines that predict while another changes the variables see one
// state of them.
func TestFoldTogether(t *testing.T) {
	c := foldCases[4]
	m, x := newFoldModel(c, dtype.Float32, dtype.Float32), foldInput(c, dtype.Float32)
	fn := folding(m.call, true)
	step := tensor.Function(func(x T) struct{} { // exchanges the sign of all results
		m.gain.Assign(m.gain.Value().Neg())
		m.beta.Assign(m.beta.Value().Neg())
		return struct{}{}
	}, vars{m.gain, m.beta})
	want := values(t, must[T](t)(fn.Call(ctx, x)))
	done := make(chan error)
	for range 3 {
		go func() {
			for range 30 {
				y, err := fn.Call(ctx, x)
				if err != nil {
					done <- err
					return
				}
				got, err := y.Float64s()
				if err != nil {
					done <- err
					return
				}
				for i := range got {
					if sign := got[0] / want[0]; got[i] != sign*want[i] {
						done <- fmt.Errorf("element %d is %v, want %v", i, got[i], sign*want[i])
						return
					}
				}
			}
			done <- nil
		}()
	}
	for range 20 {
		if err := step.Run(ctx, x); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestAssignedWhileRecorded: a Function that reads a variable it does not list, and is
// recorded while a step assigns the variable, has the variable's value in each call, not
// the one of its recording.
func TestAssignedWhileRecorded(t *testing.T) {
	if !backend.Keeps(backend.Plans) {
		t.Skip("without plans the step cannot run while something is recorded")
	}
	w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{3}, func(x []float64) error { fill(x, 1); return nil })
	x := tensor.New([]float32{1, 2, 3}, 3)
	step := tensor.Function(func(x T) struct{} { w.Assign(w.Value().AddScalar(1)); return struct{}{} }, vars{w})
	for range 2 { // the second has the plan of the first
		if err := step.Run(ctx, x); err != nil {
			t.Fatal(err)
		}
	}
	held := w.Value() // outside of Functions it is the value of now
	before := values(t, held)
	var once sync.Once
	fn := tensor.Function(func(x T) T {
		y := x.Mul(w.Value())
		once.Do(func() {
			done := make(chan error)
			go func() { done <- step.Run(ctx, x) }()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return y
	})
	for range 3 {
		got, now := values(t, must[T](t)(fn.Call(ctx, x))), values(t, w.Value())
		for i := range now {
			if got[i] != float64(float32(i+1)*float32(now[i])) {
				t.Errorf("element %d is %v, want %v times %v", i, got[i], i+1, now[i])
			}
		}
		if err := step.Run(ctx, x); err != nil {
			t.Fatal(err)
		}
	}
	if got := values(t, held); !slices.Equal(got, before) {
		t.Errorf("the value from before the steps is %v, want %v", got, before)
	}
}

// TestFoldBits: a kernel that was folded before policy.SetBits is not used after it.
func TestFoldBits(t *testing.T) {
	if !backend.Folds() || !backend.Keeps(backend.ShadowWeights) {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	c := foldCases[0]
	m, x := newFoldModel(c, dtype.Float32, dtype.Float32), foldInput(c, dtype.Float32)
	fn := folding(m.call, true)
	names := func() (all []string) {
		must[T](t)(fn.Call(ctx, x))
		for _, k := range must[[]tensor.Copy](t)(fn.Copies(x)) {
			if strings.Contains(k.Name, "folded") {
				all = append(all, fmt.Sprintf("%s at %p", k.Name, &k.Data[0]))
			}
		}
		return all
	}
	defer backend.SetBits(backend.SetBits(backend.FastBits))
	fast := names()
	backend.SetBits(backend.PortableBits)
	portable := names()
	if len(fast) == 0 || len(portable) != len(fast) {
		t.Fatalf("got the copies %v, then %v", fast, portable)
	}
	for _, k := range portable {
		if slices.Contains(fast, k) {
			t.Errorf("%s was folded before", k)
		}
	}
	other := newFoldModel(c, dtype.Float32, dtype.Float32)
	want := must[[]byte](t)(must[T](t)(folding(other.call, true).Call(ctx, x)).Bytes())
	if got := must[[]byte](t)(must[T](t)(fn.Call(ctx, x)).Bytes()); !slices.Equal(got, want) {
		t.Error("other bits than of a model that was made after it")
	}
}

// TestFoldConstants: a factor and a summand that are constants, as of Rescaling or of a
// hard sigmoid, fold, too; no variable's change would fill a copy of the summand.
func TestFoldConstants(t *testing.T) {
	for _, c := range foldCases {
		m, x := newFoldModel(c, dtype.Float32, dtype.Float32), foldInput(c, dtype.Float32)
		call := func(x T) T { return c.contract(x, m.kernel.Value()).MulScalar(0.25).AddScalar(3) }
		fn := folding(call, true)
		want := values(t, must[T](t)(folding(call, false).Call(ctx, x)))
		for run := range 2 {
			got := values(t, must[T](t)(fn.Call(ctx, x)))
			for i := range want {
				// A factor that is a power of two changes no rounding but that of the sum.
				if !(math.Abs(got[i]-want[i]) <= 2*dtype.Float32.Epsilon()*(3+math.Abs(want[i]))) {
					t.Errorf("%s, run %d: element %d is %v, want %v", c.name, run, i, got[i], want[i])
					break
				}
			}
		}
	}
}
