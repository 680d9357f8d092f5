package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
)

func f32(shape []int, data ...float64) *tensor.Tensor {
	return tensortest.Of(dtype.Float32, data, shape...).Tensor()
}

func vector(data ...float64) *tensor.Tensor { return f32([]int{len(data)}, data...) }

func i32(data ...int32) *tensor.Tensor { return tensor.New(data, len(data)) }

type batch struct{ T, P, W *tensor.Tensor }

// adder is Mean and Sum.
type adder interface {
	Accumulator
	AddWeighted(x, weight *tensor.Tensor)
}

// step compiles the update of a metric.
func step(m Accumulator) *tensor.Func[batch, struct{}] {
	return tensor.Function(func(b batch) struct{} {
		switch m := m.(type) {
		case Metric:
			m.UpdateWeighted(b.T, b.P, b.W)
		case adder:
			m.AddWeighted(b.P, b.W)
		}
		return struct{}{}
	}, m)
}

func update(t *testing.T, m Accumulator, batches ...batch) {
	t.Helper()
	f := step(m)
	for _, b := range batches {
		if err := f.Run(context.Background(), b); err != nil {
			t.Fatalf("%s: %v", m.MetricName(), err)
		}
	}
}

func result(t *testing.T, m Accumulator) float64 {
	t.Helper()
	v, err := m.Result()
	if err != nil {
		t.Fatalf("%s: %v", m.MetricName(), err)
	}
	return v
}

func newOf(t *testing.T, class string) Accumulator {
	t.Helper()
	switch {
	case class == "Mean":
		return &Mean{}
	case class == "Sum":
		return &Sum{}
	case byName[class] == nil:
		t.Fatalf("%s: got no such class", class)
	}
	return byName[class].make()
}

// results are those of a Vector, or the one.
func results(t *testing.T, m Accumulator) []float64 {
	t.Helper()
	v, ok := m.(Vector)
	if !ok {
		return []float64{result(t, m)}
	}
	all, err := v.Results()
	if err != nil {
		t.Fatalf("%s: %v", m.MetricName(), err)
	}
	return all
}

func TestGolden(t *testing.T) {
	for _, c := range tensortest.Load(t, "../testdata/golden/metrics.json").Cases {
		m := newOf(t, c.Class())
		c.Configure(t, m, "name", "dtype")
		var name string
		if err := json.Unmarshal(c.Config["name"], &name); err != nil || m.MetricName() != name {
			t.Errorf("%s: got name %q, want %q, %v", c.Name, m.MetricName(), name, err)
		}
		f := step(m)
		for i := range 2 {
			in := func(n string) *tensor.Tensor { return c.Tensor(fmt.Sprint(n, i)) }
			b := batch{in("y_true"), in("y_pred"), in("sample_weight")}
			if b.P == nil {
				b.P = in("values")
			}
			if err := f.Run(context.Background(), b); err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			got, want := results(t, m), c.Outputs[fmt.Sprint("result", i)].Data
			if len(got) != len(want) {
				t.Errorf("%s: update %d: got %v, want %v", c.Name, i, got, want)
				continue
			}
			for j := range got {
				if !tensortest.Within(dtype.Float32, got[j], want[j], 1) {
					t.Errorf("%s: update %d: got %v, want %v", c.Name, i, got, want)
					break
				}
			}
		}
		if err := m.Reset(); err != nil {
			t.Fatal(err)
		}
		// Keras has NaN where it divides by no samples.
		if got, want := result(t, m), c.Outputs["reset"].Data[0]; got != 0 || want != 0 && !math.IsNaN(want) {
			t.Errorf("%s: reset: got %v, want 0 for %v", c.Name, got, want)
		}
	}
}

// TestVectors checks the numbers that Keras's own unit tests assert.
func TestVectors(t *testing.T) {
	two3 := []int{2, 3}
	p1, p2 := f32([]int{3, 2}, 0.4, 0.1, 0.2, 0.6, 0.6, 0.1), f32([]int{3, 2}, 0.3, 0.2, 0.1, 0.4, 0.2, 0.3)
	t107 := f32([]int{3, 2}, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
	for _, c := range []struct {
		name    string
		metric  Accumulator
		batches []batch
		want    float64
	}{
		{"93", &BinaryAccuracy{}, []batch{{vector(1, 1, 0, 0), vector(0.98, 1, 0, 0.6), nil}}, 0.75},
		{"93 weighted", &BinaryAccuracy{}, []batch{{vector(1, 1, 0, 0), vector(0.98, 1, 0, 0.6), vector(1, 0, 0, 1)}}, 0.5},
		{"93 threshold .3", &BinaryAccuracy{Threshold: new(0.3)}, []batch{{vector(1, 1, 0, 0), vector(0.98, 0.5, 0.1, 0.2), nil}}, 1},
		{"93 threshold .9", &BinaryAccuracy{Threshold: new(0.9)}, []batch{{vector(1, 1, 0, 0), vector(0.98, 0.5, 0.1, 0.2), nil}}, 0.75},
		{"94", &CategoricalAccuracy{}, []batch{{f32(two3, 0, 0, 1, 0, 1, 0), f32(two3, 0.1, 0.9, 0.8, 0.05, 0.95, 0), nil}}, 0.5},
		{"94 weighted", &CategoricalAccuracy{}, []batch{{f32(two3, 0, 0, 1, 0, 1, 0), f32(two3, 0.1, 0.9, 0.8, 0.05, 0.95, 0), vector(0.7, 0.3)}}, 0.3},
		{"95", &SparseCategoricalAccuracy{}, []batch{{tensor.New([]int32{2, 1}, 2, 1), f32(two3, 0.1, 0.6, 0.3, 0.05, 0.95, 0), nil}}, 0.5},
		{"103", &RootMeanSquaredError{}, []batch{{vector(2, 4, 6), vector(1, 3, 2), nil}}, math.Sqrt(6)},
		{"103 weighted", &RootMeanSquaredError{}, []batch{{vector(2, 4, 6, 8), vector(1, 3, 2, 3), vector(0, 1, 0, 1)}}, math.Sqrt(13)},
		{"107", &MeanSquaredError{}, []batch{{t107, p1, nil}, {t107, p2, nil}}, 0.055833336},
		{"107 weighted", &MeanSquaredError{}, []batch{{t107, p1, vector(1, 0, 1)}, {t107, p2, vector(1, 0, 1)}}, 0.0725},
		{"108", &Mean{}, []batch{{nil, vector(1, 3, 5, 7), nil}}, 4},
		{"108 weighted", &Mean{}, []batch{{nil, vector(1, 3, 5, 7), vector(1, 1, 0, 0)}}, 2},
	} {
		update(t, c.metric, c.batches...)
		if got := result(t, c.metric); !tensortest.Within(dtype.Float32, got, c.want, 1) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// The count of a metric is the size of the dataset, whatever the sizes of the
// batches; the share of right answers is a whole number of them.
func TestCountIsTheDataset(t *testing.T) {
	m, sum, mean := &SparseCategoricalAccuracy{}, &Sum{}, &Mean{Name: "loss"}
	f := tensor.Function(func(b batch) *tensor.Tensor {
		m.Update(b.T, b.P)
		sum.Add(b.P.Sum(-1))
		mean.AddWeighted(b.P.Mean(), tensor.Scalar(dtype.Float32, float64(b.P.Dim(0))))
		return b.P
	}, m, sum, mean)
	samples, right, total := 0, 0, 0.0
	for epoch := range 2 {
		for i, n := range []int{4, 4, 1, 7, 4, 3} {
			labels, data := make([]int32, n), make([]float64, 3*n)
			for j := range labels {
				labels[j] = int32((i + j) % 3)
				data[3*j+(i*j)%3] = 1
				samples++
				total++
				if (i+j)%3 == (i*j)%3 {
					right++
				}
			}
			if _, err := f.Call(context.Background(), batch{T: i32(labels...), P: f32([]int{n, 3}, data...)}); err != nil {
				t.Fatal(err)
			}
		}
		count, err := m.Variables()[1].Item()
		if err != nil || count != float64(samples) {
			t.Errorf("epoch %d: got a count of %v, %v, want %d", epoch, count, err, samples)
		}
		if got, want := result(t, m), float64(right)/float64(samples); got != want {
			t.Errorf("epoch %d: got accuracy %v, want %v", epoch, got, want)
		}
		if got := result(t, sum); got != total {
			t.Errorf("epoch %d: got sum %v, want %v", epoch, got, total)
		}
		// Each row has one 1 in three elements; the batches' means are rounded
		// to float32.
		if got := result(t, mean); !tensortest.Within(dtype.Float32, got, 1./3, 1) {
			t.Errorf("epoch %d: got mean %v, want 1/3", epoch, got)
		}
		for _, a := range []Accumulator{m, sum, mean} {
			if err := a.Reset(); err != nil {
				t.Fatal(err)
			}
		}
		samples, right, total = 0, 0, 0
	}
	if f.Programs() != 4 && backend.Keeps(backend.Plans) {
		t.Errorf("got %d programs for batches of 4, 1, 7 and 3, want 4", f.Programs())
	}
}

// Float32 stops counting at 2²⁴, float64 does not.
func TestTotalsAreFloat64(t *testing.T) {
	m := &Mean{}
	update(t, m, batch{P: vector(1), W: vector(1 << 24)}, batch{P: vector(1), W: vector(1)})
	if got, err := m.Variables()[1].Item(); err != nil || got != 1<<24+1 {
		t.Errorf("got a count of %v, %v, want %d", got, err, 1<<24+1)
	}
}

func TestSixteenBits(t *testing.T) {
	// 0.5 + 2⁻¹¹ is above the threshold in float16, equal to it in bfloat16.
	p := []float64{0.5 + 0x1p-11, 0.25, 0.75, 0.5}
	for d, want := range map[dtype.DType]float64{dtype.Float16: 0.75, dtype.BFloat16: 0.5} {
		m := &BinaryAccuracy{}
		update(t, m, batch{vector(1, 0, 1, 1), tensortest.Of(d, p, 4).Tensor(), nil})
		if got := result(t, m); got != want {
			t.Errorf("%v: got %v, want %v", d, got, want)
		}
		mean := &Mean{}
		update(t, mean, batch{P: tensortest.Of(d, []float64{60000, 60000, 60000}, 3).Tensor()})
		if got, want := result(t, mean), float64(d.Round(60000)); got != want {
			t.Errorf("mean of %v: got %v, want %v: totals must not overflow", d, got, want)
		}
	}
}

func TestTopKTiesAndNaN(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name   string
		labels *tensor.Tensor
		p      []float64
		want   float64
	}{
		{"ties are in", i32(3), []float64{0.2, 0.2, 0.2, 0.2}, 1},
		{"one larger", i32(3), []float64{0.5, 0.2, 0.2, 0.2}, 1},
		{"two larger", i32(3), []float64{0.5, 0.2, 0.4, 0.2}, 0},
		{"the target is NaN", i32(3), []float64{0.1, 0.1, 0.1, nan}, 0},
		{"the target is infinite", i32(3), []float64{0.1, 0.1, 0.1, inf}, 0},
		{"others are NaN", i32(3), []float64{nan, nan, 0.1, 0.9}, 0},
		{"masked classes", i32(3), []float64{-inf, -inf, 1, 0}, 1},
		{"no class", i32(-1), []float64{1, 1, 1, 1}, 0},
		{"no class above", tensor.New([]int64{4}, 1), []float64{1, 1, 1, 1}, 0},
	} {
		m := &SparseTopKCategoricalAccuracy{K: 2}
		update(t, m, batch{c.labels, f32([]int{1, 4}, c.p...), nil})
		if got := result(t, m); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestLabelsOfFloats: class indices may be floats, if they are whole numbers.
// NaN and fractions are errors that name the metric, in every float type, and
// count nothing; whole numbers that are no class are never right.
func TestLabelsOfFloats(t *testing.T) {
	scores := f32([]int{2, 3}, 0.2, 0.5, 0.3, 0.1, 0.3, 0.6)
	for _, c := range []struct {
		m    Accumulator
		pred *tensor.Tensor
		op   string
	}{
		{&SparseCategoricalAccuracy{}, scores, "Gather"},
		{&SparseTopKCategoricalAccuracy{K: 1}, scores, "Gather"},
		{&SparseCategoricalCrossentropy{}, scores, "TakeAlongAxis"},
		{&MeanIoU{NumClasses: 3}, f32([]int{2, 1}, 1, 2), "Gather"},
		{&IoU{NumClasses: 3, SparseYPred: new(false)}, scores, "Gather"},
		{&BinaryIoU{}, f32([]int{2, 1}, 0.7, 0.9), "Gather"},
	} {
		_, binary := c.m.(*BinaryIoU)
		classes := 3
		if binary {
			classes = 2
		}
		for _, d := range []dtype.DType{dtype.Float64, dtype.Float32, dtype.BFloat16, dtype.Float16} {
			labels := func(v float64) *tensor.Tensor {
				y := tensortest.Of(d, []float64{1, v}, 2, 1).Tensor()
				if c.pred.Dim(1) == 3 {
					y = y.Squeeze(1)
				}
				return y
			}
			if err := c.m.Reset(); err != nil {
				t.Fatal(err)
			}
			f := step(c.m)
			for _, v := range []float64{math.NaN(), -0.5, 0.5, 1.9921875, math.Inf(-1)} {
				_, err := f.Call(context.Background(), batch{T: labels(v), P: c.pred})
				want := fmt.Sprintf("layer metrics/%s: %s: index -2147483648 at position 1 is out of range, want 0 to %d; NaN and numbers with a fraction count as -2147483648", c.m.MetricName(), c.op, classes-1)
				if err == nil || err.Error() != want {
					t.Errorf("%s of %v label %v: got  %v\nwant %s", c.m.MetricName(), d, v, err, want)
				}
			}
			last := float64(classes - 1)
			update(t, c.m, batch{T: labels(last), P: c.pred})
			got := result(t, c.m)
			if err := c.m.Reset(); err != nil {
				t.Fatal(err)
			}
			y := tensor.New([]int32{1, int32(last)}, labels(last).Shape()...)
			update(t, c.m, batch{T: y, P: c.pred})
			if want := result(t, c.m); got != want {
				t.Errorf("%s of %v: got %v, want %v as of integers", c.m.MetricName(), d, got, want)
			}
			if c.op == "Gather" {
				update(t, c.m, batch{T: labels(7), P: c.pred}, batch{T: labels(-1), P: c.pred}) // no error
			}
		}
	}
}

func TestWeightsOfSteps(t *testing.T) {
	x := f32([]int{2, 2}, 1, 2, 3, 4)
	for _, c := range []struct {
		name string
		w    *tensor.Tensor
		want float64
		n    float64
	}{
		{"samples", vector(1, 3), (1.5 + 3*3.5) / 4, 4},
		{"steps", f32([]int{2, 2}, 1, 0, 0, 2), (1 + 8) / 3., 1.5},
		{"column", f32([]int{2, 1}, 1, 3), (1.5 + 3*3.5) / 4, 4},
		{"scalar", f32(nil, 5), 2.5, 5},
	} {
		m := &Mean{}
		update(t, m, batch{P: x, W: c.w})
		n, err := m.Variables()[1].Item()
		if got := result(t, m); got != c.want || err != nil || n != c.n {
			t.Errorf("%s: got %v of %v, %v, want %v of %v", c.name, got, n, err, c.want, c.n)
		}
	}
	empty := &Mean{}
	update(t, empty, batch{P: f32([]int{0, 2})})
	if got := result(t, empty); got != 0 {
		t.Errorf("no samples: got %v, want 0", got)
	}
}

func TestResolveAccuracy(t *testing.T) {
	typ := func(shape ...int) op.Type { return op.Type{DType: dtype.Float32, Shape: shape} }
	for _, c := range []struct {
		yTrue, yPred op.Type
		want         Metric
	}{
		{typ(8), typ(8, 1), &BinaryAccuracy{}},
		{typ(8, 1), typ(8, 1), &BinaryAccuracy{}},
		{typ(8), typ(8, 10), &SparseCategoricalAccuracy{}},
		{typ(8, 1), typ(8, 10), &SparseCategoricalAccuracy{}},
		{typ(8, 5), typ(8, 5, 10), &SparseCategoricalAccuracy{}},
		{typ(op.Unknown, 10), typ(op.Unknown, 10), &CategoricalAccuracy{}},
	} {
		if got := ResolveAccuracy(c.yTrue, c.yPred); got.MetricName() != c.want.MetricName() {
			t.Errorf("%v, %v: got %s, want %s", c.yTrue, c.yPred, got.MetricName(), c.want.MetricName())
		}
	}
}

func TestErrors(t *testing.T) {
	p := f32([]int{2, 3}, 1, 2, 3, 4, 5, 6)
	for _, c := range []struct {
		metric Accumulator
		b      batch
		want   string
	}{
		{&Accuracy{}, batch{i32(1), i32(1, 2), nil}, `Accuracy: got targets int32[1] for predictions int32[2], want equal shapes`},
		{&BinaryAccuracy{}, batch{vector(1), p, nil}, `BinaryAccuracy: got targets float32[1] for predictions float32[2 3], want equal shapes`},
		{&CategoricalAccuracy{}, batch{i32(1, 2), p, nil}, `CategoricalAccuracy: got targets int32[2] for predictions float32[2 3], want equal shapes; class indices are for the classes with Sparse in their name`},
		{&SparseCategoricalAccuracy{}, batch{p, p, nil}, `SparseCategoricalAccuracy: got labels float32[2 3] for predictions float32[2 3], want shape [2]; one-hot targets are for the classes without Sparse in their name`},
		{&SparseTopKCategoricalAccuracy{K: -1}, batch{i32(1, 2), p, nil}, `SparseTopKCategoricalAccuracy: got K -1, want a positive number`},
		{&MeanSquaredError{}, batch{p, p, vector(1, 2, 3)}, `MeanSquaredError: got sample weights float32[3] for values of shape [2], want that shape, the start of it, or one that broadcasts to it`},
		{&MeanSquaredError{}, batch{vector(1, 2), vector(1, 2), vector(1, 2)}, `MeanSquaredError: got sample weights float32[2] for values of shape [], want that shape, the start of it, or one that broadcasts to it`},
		{&MeanAbsoluteError{}, batch{nil, p, nil}, `MeanAbsoluteError: got nil targets, want a tensor`},
		{&Mean{}, batch{}, `Mean: got nil, want a tensor`},
	} {
		err := step(c.metric).Run(context.Background(), c.b)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got  %v\nwant %s", c.metric.MetricName(), err, c.want)
		}
		if got := result(t, c.metric); got != 0 {
			t.Errorf("%s: got %v after an error, want 0", c.metric.MetricName(), got)
		}
	}
	want := `metrics: unknown metric "acuracy"; did you mean "accuracy"? have ` + strings.Join(Names(), ", ")
	if _, err := Get("acuracy"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestUpdateOutside: outside of a Function an update is an error that says
// where it belongs.
func TestUpdateOutside(t *testing.T) {
	outside := func(f func()) (err error) {
		defer tensor.Catch(&err)
		f()
		return nil
	}
	check := func(m Accumulator, method string, f func()) {
		want := "metric " + m.MetricName() + ": " + method + " belongs in a keras.Function that lists it"
		if err := outside(f); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if got := result(t, m); got != 0 {
			t.Errorf("%s: got %v after the error, want 0", m.MetricName(), got)
		}
	}
	mean, sum := &Mean{}, &Sum{Name: "total"}
	check(mean, "Add", func() { mean.Add(vector(1, 2)) })
	check(sum, "Add", func() { sum.AddWeighted(vector(1, 2), vector(1, 1)) })
	for _, n := range Names() {
		m, err := Get(n)
		if err != nil {
			t.Fatal(err)
		}
		y := f32([]int{2, 2}, 1, 0, 0, 1)
		if strings.HasPrefix(m.MetricName(), "sparse_") {
			y = i32(1, 0)
		}
		check(m, "Update", func() { m.Update(y, f32([]int{2, 2}, 0.5, 0.25, 0.125, 0.875)) })
	}
}

func TestGet(t *testing.T) {
	for _, n := range Names() {
		m, err := Get(n)
		if err != nil {
			t.Fatal(err)
		}
		if got := result(t, m); got != 0 {
			t.Errorf("%s: got %v before the first update, want 0", n, got)
		}
		if err := m.Reset(); err != nil {
			t.Errorf("%s: %v", n, err)
		}
		b := batch{f32([]int{2, 2}, 1, 0, 0, 1), f32([]int{2, 2}, 0.5, 0.25, 0.125, 0.875), nil}
		if strings.HasPrefix(m.MetricName(), "sparse_") {
			b.T = i32(1, 0)
		}
		update(t, m, b)
		for _, v := range m.Variables() {
			if v.Trainable() || v.DType() != dtype.Float64 || !strings.HasPrefix(v.Name(), m.MetricName()+"/") {
				t.Errorf("%s: got variable %s %v, want a float64 state of that name", n, v.Name(), v.Type())
			}
		}
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(&BinaryAccuracy{Threshold: new(0.25), Name: "bits"})
	want := `{"Threshold":0.25,"Name":"bits"}`
	if err != nil || string(b) != want {
		t.Errorf("got %s, %v, want %s", b, err, want)
	}
}

func TestResultAllocatesNothing(t *testing.T) {
	for _, m := range []Accumulator{&Mean{}, &Sum{}} {
		update(t, m, batch{P: vector(1, 2)})
		if n := testing.AllocsPerRun(100, func() { _, _ = m.Result() }); n != 0 {
			t.Errorf("%s: Result allocates %v times, want 0", m.MetricName(), n)
		}
	}
}
