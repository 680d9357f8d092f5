package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/ops"
	"github.com/mezzo-ml/mezzo/layers"
)

var ctx = context.Background()

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func values(t *testing.T, x *keras.Tensor) []float64 {
	t.Helper()
	v, err := x.Float64s()
	check(t, err)
	return v
}

func scalar(x float64) *keras.Tensor { return ops.Scalar(keras.Float32, x) }

func normal(t *testing.T, seed int64, n int) *keras.Tensor {
	return ops.RandomNormal(keras.NewTensor([]int64{seed, 0}, 2), 0, n)
}

// TestSet: means and deviations after pulses are those of single pulses in sequence,
// and cells saturate.
func TestSet(t *testing.T) {
	const n = 20000
	for _, pulses := range []float64{0, 1, 3, 8} {
		for _, before := range []float64{0.1, 4, 9} {
			want := before
			for range int(pulses) {
				want += PCM.Slope*want + PCM.Step
			}
			g := ops.Full(keras.Float32, before, n)
			if got := values(t, PCM.Mean(scalar(before), scalar(pulses)))[0]; math.Abs(got-want) > 1e-5 {
				t.Errorf("%v pulses to %v µS: mean %v, want %v", pulses, before, got, want)
			}
			mean, deviation := statistics(values(t, PCM.Set(g, scalar(pulses), normal(t, 1, n))))
			spread := math.Sqrt(pulses) * (PCM.Spread*before + PCM.SpreadStep)
			// Five standard errors; the cells that end at the least conductance are few.
			if clipped := spread > 0 && before < 1; !clipped && math.Abs(mean-want) > 5*spread/math.Sqrt(n)+1e-5 {
				t.Errorf("%v pulses to %v µS: mean %v of many, want %v", pulses, before, mean, want)
			} else if !clipped && math.Abs(deviation-spread) > 0.03*spread+1e-5 {
				t.Errorf("%v pulses to %v µS: deviation %v, want %v", pulses, before, deviation, spread)
			}
		}
	}
	for _, x := range values(t, PCM.Set(ops.Full(keras.Float32, 19, n), scalar(50), normal(t, 2, n))) {
		if float32(x) < float32(PCM.Low/10) || x > PCM.High {
			t.Fatalf("a cell conducts %v µS", x)
		}
	}
}

// TestDrift: G(t) = G·((t+t0)/t0)^-ν.
func TestDrift(t *testing.T) {
	for _, age := range []float64{0, 1, 3600, 1e7} {
		want := 5 * math.Pow((age+PCM.Onset)/PCM.Onset, -PCM.Drift)
		if got := values(t, PCM.Drifted(scalar(5), scalar(age)))[0]; math.Abs(got-want) > 1e-5*want {
			t.Errorf("after %v s: %v µS, want %v", age, got, want)
		}
	}
}

// TestQuantized: converters have 256 levels, or 255 around 0.
func TestQuantized(t *testing.T) {
	x := keras.NewTensor([]float32{-1, 0, 0.001, 0.5, 1, 2}, 6)
	for i, want := range []float64{0, 0, 0, 128. / 255, 1, 1} {
		if got := values(t, quantized(x, 1, false))[i]; math.Abs(got-want) > 1e-6 {
			t.Errorf("unsigned %d: got %v, want %v", i, got, want)
		}
	}
	for i, want := range []float64{-63 * 2. / 127, 0, 0, 32 * 2. / 127, 63 * 2. / 127, 2} {
		// Halves are rounded to even.
		if got := values(t, quantized(x, 2, true))[i]; math.Abs(got-want) > 2./127+1e-6 || math.Abs(math.Round(got*127/2)-got*127/2) > 1e-4 {
			t.Errorf("signed %d: got %v, want about %v", i, got, want)
		}
	}
}

// ideal has no noise, drift or spread.
var ideal = Device{Step: 0.892, Low: 0.1, High: 20, Onset: 38.6}

// step trains one step and returns the accumulator and the weights of the array.
func read(t *testing.T, c *Crossbar) (accumulator, weights []float64) {
	t.Helper()
	plus, minus := c.conductances()
	return values(t, c.accumulator.Value()), values(t, plus.Sub(minus).MulScalar(1/c.Scale))
}

// TestProgram: what the accumulator loses, ideal cells gain; less than a quantum is
// left. The other ways of transfer keep nothing.
func TestProgram(t *testing.T) {
	const quantum = 0.892 / 8.0
	for _, transfer := range []Transfer{Accumulate, Discard, Stochastic} {
		c := &Crossbar{Units: 40, Device: &ideal, Transfer: transfer}
		m := keras.Sequential(c)
		check(t, m.Build(50))
		want := make([]float64, 51*40)
		for i := range want {
			want[i] = quantum * 3 * math.Sin(float64(i))
		}
		check(t, c.accumulator.Set(want))
		_, before := read(t, c)
		program := keras.Function(func(struct{}) *keras.Tensor { c.Program(); return scalar(0) }, m)
		_, err := program.Call(ctx, struct{}{})
		check(t, err)
		rest, after := read(t, c)
		sum, moved := 0.0, 0.0
		for i, x := range want {
			got := after[i] - before[i]
			sum, moved = sum+x, moved+got
			switch transfer {
			case Accumulate:
				if math.Abs(rest[i]) >= quantum*(1+1e-5) || math.Abs(got+rest[i]-x) > 1e-5 {
					t.Fatalf("%s: %v became %v and %v in the accumulator", transfer, x, got, rest[i])
				}
			case Discard:
				if rest[i] != 0 || math.Abs(got-math.Trunc(x/quantum)*quantum) > 1e-5 {
					t.Fatalf("%s: %v became %v and %v in the accumulator", transfer, x, got, rest[i])
				}
			case Stochastic:
				if rest[i] != 0 || math.Abs(got-x) > quantum*(1+1e-5) {
					t.Fatalf("%s: %v became %v and %v in the accumulator", transfer, x, got, rest[i])
				}
			}
		}
		// The mean of 2040 roundings with a deviation of half a quantum at most.
		if transfer == Stochastic && math.Abs(sum-moved) > 5*quantum/2*math.Sqrt(float64(len(want))) {
			t.Errorf("stochastic: the weights moved by %v, want %v", moved, sum)
		}
	}
}

// TestRefresh: pairs of cells that conduct too much are reset, and their difference is
// programmed again.
func TestRefresh(t *testing.T) {
	c := &Crossbar{Units: 1, Device: &ideal}
	m := keras.Sequential(c)
	check(t, m.Build(3))
	check(t, c.accumulator.Set(make([]float64, 4)))
	check(t, c.plus.Set([]float64{9, 9, 9, 5}))
	check(t, c.minus.Set([]float64{6, 1, 12, 4}))
	_, err := keras.Function(func(struct{}) *keras.Tensor { c.Program(); return scalar(0) }, m).Call(ctx, struct{}{})
	check(t, err)
	rest, weights := read(t, c)
	plus, minus := values(t, c.plus.Value()), values(t, c.minus.Value())
	for i, want := range []float64{3, 8, -3, 1} {
		if got := weights[i] + rest[i]; math.Abs(got*c.Scale-want) > 1e-4 {
			t.Errorf("pair %d: a difference of %v µS, want %v", i, got*c.Scale, want)
		}
		if refreshed := i%2 == 0; refreshed != (max(plus[i], minus[i]) < saturated/2) {
			t.Errorf("pair %d: %v and %v µS", i, plus[i], minus[i])
		}
	}
}

// TestCrossbar: without noise the array is a Dense layer, forward and backward, but for
// the converters; with noise it differs from read to read as the variance says.
func TestCrossbar(t *testing.T) {
	const rows, in, units = 6, 30, 8
	c := &Crossbar{Units: units, Device: &ideal}
	m := keras.Sequential(c)
	check(t, m.Build(in))
	w := make([]float64, (in+1)*units)
	for i := range w {
		w[i] = 2 + 1.5*math.Sin(float64(i))
	}
	check(t, c.plus.Set(w))
	check(t, c.minus.Set(make([]float64, len(w))))
	x := make([]float32, rows*in)
	for i := range x {
		x[i] = float32(math.Round(255*math.Abs(math.Sin(float64(3*i)))) / 255)
	}
	input := keras.NewTensor(x, rows, in)
	got := keras.Function(func(x *keras.Tensor) []*keras.Tensor {
		y := m.Call(x, keras.Training)
		g := keras.Gradients(y.Square().Mean().MulScalar(4), m.TrainableVariables())
		return []*keras.Tensor{y, g[0]}
	}, m)
	out, err := got.Call(ctx, input)
	check(t, err)
	y, g := values(t, out[0]), values(t, out[1])
	for r := range rows {
		for u := range units {
			want := w[in*units+u] / c.Scale
			for k := range in {
				want += float64(x[r*in+k]) * w[k*units+u] / c.Scale
			}
			if math.Abs(y[r*units+u]-want) > c.Range/254+1e-5 {
				t.Errorf("output %d %d is %v, want %v", r, u, y[r*units+u], want)
			}
		}
	}
	for k := range in + 1 {
		for u := range units {
			want := 0.0
			for r := range rows {
				xk := 1.0
				if k < in {
					xk = float64(x[r*in+k])
				}
				want += xk * 8 * y[r*units+u] / (rows * units)
			}
			if math.Abs(g[k*units+u]-want) > 1e-5*math.Abs(want)+1e-6 {
				t.Fatalf("update %d %d is %v, want %v", k, u, g[k*units+u], want)
			}
		}
	}

	noisy := ideal
	noisy.Noise, noisy.NoiseFloor = PCM.Noise, PCM.NoiseFloor
	c = &Crossbar{Units: 200, Device: &noisy}
	m = keras.Sequential(c)
	check(t, m.Build(2))
	check(t, c.plus.Set(slicesOf(3*200, 4)))
	check(t, c.minus.Set(slicesOf(3*200, 4)))
	reads, err := keras.Function(func(x *keras.Tensor) *keras.Tensor { return m.Call(x, keras.Training) }, m).Call(ctx, keras.NewTensor(make([]float32, 2*50), 50, 2))
	check(t, err)
	mean, deviation := statistics(values(t, reads)) // of the bias row alone
	want := math.Sqrt2 * (PCM.Noise*4 + PCM.NoiseFloor) / c.Scale
	step := c.Range / 127 // of the converter, larger than the noise
	if math.Abs(mean) > 0.002 || deviation == 0 || deviation > want+step {
		t.Errorf("reads of 0 have mean %v and deviation %v, want 0 and about %v", mean, deviation, want)
	}
}

// TestConvolution: on an ideal array it is a Conv2D with the same kernel, but for the
// converters.
func TestConvolution(t *testing.T) {
	const size, channels, filters = 3, 2, 4
	array := &Crossbar{Units: filters, Device: &ideal}
	m := keras.Sequential(&Convolution{Size: size, Array: array})
	conv := &layers.Conv2D{Filters: filters, KernelSize: []int{size}}
	reference := keras.Sequential(conv)
	check(t, m.Build(7, 6, channels))
	check(t, reference.Build(7, 6, channels))
	w := make([]float64, (size*size*channels+1)*filters)
	for i := range w {
		w[i] = 2 + 1.5*math.Sin(float64(i))
	}
	check(t, array.plus.Set(w))
	check(t, array.minus.Set(make([]float64, len(w))))
	for i := range w {
		w[i] /= array.Scale
	}
	weights := reference.Weights()
	check(t, weights[0].Set(w[:len(w)-filters]))
	check(t, weights[1].Set(w[len(w)-filters:]))
	x := make([]float32, 2*7*6*channels)
	for i := range x {
		x[i] = float32(math.Round(255*math.Abs(math.Sin(float64(3*i)))) / 255)
	}
	input := keras.NewTensor(x, 2, 7, 6, channels)
	y, err := m.Predict(ctx, input)
	check(t, err)
	want, err := reference.Predict(ctx, input)
	check(t, err)
	if !y.Shape().Equal(want.Shape()) {
		t.Fatalf("got shape %v, want %v", y.Shape(), want.Shape())
	}
	got := values(t, y)
	for i, x := range values(t, want) {
		if math.Abs(got[i]-x) > array.Range/254+1e-5 {
			t.Fatalf("output %d is %v, want %v", i, got[i], x)
		}
	}
	for want, c := range map[string]*Convolution{"Size 0": {}, "Size 8": {Size: 8}} {
		c.Array = &Crossbar{Units: 1}
		if err := keras.Sequential(c).Build(7, 6, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s in it", err, want)
		}
	}
}

func slicesOf(n int, x float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = x
	}
	return all
}

// TestLSTM: on an ideal array the layer is Keras's LSTM with the same weights, but for
// the converters.
func TestLSTM(t *testing.T) {
	const units, features, steps = 5, 3, 4
	array := &Crossbar{Units: 4 * units, Device: &ideal, Scale: 8, Range: 4, Signed: true}
	m := keras.Sequential(&layers.RNN{Cell: &LSTM{Units: units, Array: array}, ReturnSequences: true})
	reference := keras.Sequential(&layers.LSTM{Units: units, ReturnSequences: true})
	check(t, m.Build(steps, features))
	check(t, reference.Build(steps, features))
	// Columns here are gates i, f, o and the candidate; in Keras i, f, candidate, o.
	column := []int{0, 1, 3, 2}
	const rows = features + units + 1
	plus, minus := make([]float64, rows*4*units), make([]float64, rows*4*units)
	w := make([]float64, len(plus))
	for i := range plus {
		plus[i], minus[i] = 4+2*math.Sin(float64(7*i)), 4+2*math.Cos(float64(i))
		row, gate, unit := i/(4*units), i/units%4, i%units
		w[row*4*units+column[gate]*units+unit] = (plus[i] - minus[i]) / array.Scale
	}
	for unit := range units {
		w[(rows-1)*4*units+units+unit]++ // the constant bias of the forget gate
	}
	check(t, array.plus.Set(plus))
	check(t, array.minus.Set(minus))
	weights := reference.Weights()
	check(t, weights[0].Set(w[:features*4*units]))
	check(t, weights[1].Set(w[features*4*units:(rows-1)*4*units]))
	check(t, weights[2].Set(w[(rows-1)*4*units:]))
	x := make([]float32, 2*steps*features)
	for i := range x {
		x[i] = float32(math.Round(127*math.Sin(float64(3*i))) / 127)
	}
	input := keras.NewTensor(x, 2, steps, features)
	got, err := m.Predict(ctx, input)
	check(t, err)
	want, err := reference.Predict(ctx, input)
	check(t, err)
	if !got.Shape().Equal(want.Shape()) {
		t.Fatalf("got shape %v, want %v", got.Shape(), want.Shape())
	}
	// A gate errs by half a step of the converter, and outputs by that of 9 inputs with
	// weights of about 0.5: 4/254 + 5·0.5/254 before slopes of at most 1.
	expected := values(t, want)
	for i, y := range values(t, got) {
		if math.Abs(y-expected[i]) > 0.05 {
			t.Errorf("output %d is %v, want %v", i, y, expected[i])
		}
	}
	for want, l := range map[string]*LSTM{"Units 0": {}, "[batch features]": {Units: 2}} {
		l.Array = &layers.Dense{Units: 8}
		shape := []int{3, 4}
		if l.Units > 0 {
			shape = []int{3, 4, 5}
		}
		if err := keras.Sequential(&layers.RNN{Cell: l}).Build(shape...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s in it", err, want)
		}
	}
}

// TestText: sequences are the text and the characters behind it; the toy language is the
// same each time.
func TestText(t *testing.T) {
	text := sentences(100, 1)
	if string(text) != string(sentences(100, 1)) || string(text) == string(sentences(100, 2)) {
		t.Error("sentences do not follow from their seed alone")
	}
	letters := alphabet(text)
	var read []byte
	for b, err := range sequences(text, letters).Batch(7).Batches() {
		check(t, err)
		x, y := values(t, b.X), values(t, b.Y)
		for i := range x {
			if i+1 < len(x) && y[i] != x[i+1] {
				t.Fatalf("behind character %d stands %v, want %v", i, y[i], x[i+1])
			}
			read = append(read, letters[int(x[i])])
		}
	}
	if n := (len(text) - 1) / steps * steps; string(read) != string(text[:n]) {
		t.Errorf("the sequences are %q, want %q", read, text[:n])
	}

	name := filepath.Join(t.TempDir(), "text")
	check(t, os.WriteFile(name, []byte(strings.Repeat("An Apple,\n\n  a Pear\t", 100)), 0o600))
	got, err := readText(name)
	check(t, err)
	if want := strings.TrimSpace(strings.Repeat("an apple, a pear ", 100)); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	check(t, os.WriteFile(name, []byte("short"), 0o600))
	if _, err := readText(name); err == nil || !strings.Contains(err.Error(), "has 5 characters, want 640 or more") {
		t.Errorf("got %v", err)
	}
}

// TestTraining: with the accumulator networks learn on cells nearly as they do in
// float32; without it they do not.
func TestTraining(t *testing.T) {
	first := *seed
	defer func() { *seed = first }()
	*seed = 1
	text := sentences(250, 1)
	letters := alphabet(text)
	cut := len(text) * 4 / 5
	for name, c := range map[string]struct {
		train, test *keras.Pipeline
		classes     int
		with        func(*settings)
		near, far   float64 // scores from float32's and from those without the accumulator
	}{
		"mlp": {digits.Dataset(3000, 1), digits.Dataset(500, 2), 10, func(s *settings) { s.epochs, s.batch, s.units = 3, 20, 64 }, 5, 20},
		// Few steps, in which most updates still wait in the accumulator.
		"cnn": {digits.Dataset(500, 1), digits.Dataset(200, 2), 10, func(s *settings) { s.epochs, s.batch, s.units = 3, 20, 6 }, 40, 20},
		"lstm": {sequences(text[:cut], letters), sequences(text[cut:], letters), len(letters),
			func(s *settings) { s.epochs, s.batch, s.units = 3, 8, 16 }, 2, 1},
	} {
		n := networks[name]
		c.with(&n.settings)
		score := map[string]float64{}
		for _, k := range kinds() {
			if k.name == "float32" || k.name == "pcm" || k.name == "no-accumulation" {
				r, err := n.repeated(ctx, k, c.train, c.test, c.classes)
				check(t, err)
				score[k.name] = r.scores[0]
			}
		}
		better := 1.0
		if n.text { // fewer bits
			better = -1
		}
		if better*(score["float32"]-score["pcm"]) > c.near || better*(score["pcm"]-score["no-accumulation"]) < c.far {
			t.Errorf("%s: got %v", name, score)
		}
	}
}

// TestErrors: fields are checked.
func TestErrors(t *testing.T) {
	for want, c := range map[string]*Crossbar{
		"Units 0":               {},
		`Transfer "sometimes"`:  {Units: 2, Transfer: "sometimes"},
		"compute type bfloat16": {Units: 2, DType: "mixed_bfloat16"},
		"Range -1":              {Units: 2, Range: -1},
	} {
		err := keras.Sequential(c).Build(3)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s in it", err, want)
		}
	}
	if err := keras.Sequential(&Crossbar{Units: 2}).Build(); err == nil || !strings.Contains(err.Error(), "rank 2") {
		t.Errorf("rank 1: got %v", err)
	}
	name := *model
	defer func() { *model = name }()
	*model = "vae"
	if _, err := chosen(); err == nil || !strings.Contains(err.Error(), `-model is "vae", want one of cnn, lstm, mlp`) {
		t.Errorf("got %v", err)
	}
	*model = "lstm"
	defer func() { given = settings{} }()
	for want, s := range map[string]settings{`-optimizer is "x"`: {optimizer: "x"}, "rate:-1": {rate: -1}, "epochs:-2": {epochs: -2}} {
		given = s
		if _, err := chosen(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
	given = settings{units: 5}
	if n, err := chosen(); err != nil || n.units != 5 || n.rate != networks["lstm"].rate {
		t.Errorf("got %+v, %v", n.settings, err)
	}
	if _, err := selected("pcm, x"); err == nil || !strings.Contains(err.Error(), `got " x", want some of float32, pcm`) {
		t.Errorf("got %v", err)
	}
	if some, err := selected("pcm,float32"); err != nil || len(some) != 2 || some[1].name != "float32" {
		t.Errorf("got %v, %v", some, err)
	}
}

var _ layers.Layer = (*Crossbar)(nil)
