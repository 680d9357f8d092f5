package doctor_test

import (
	"crypto/sha256"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// spoilt is data for fitted of which every sample has a NaN.
func spoilt(t *testing.T) *keras.Tensor {
	t.Helper()
	v, err := normal(4, 1, 0, 128, 64).Values()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(v); i += 64 {
		v[i] = float32(math.NaN())
	}
	return keras.NewTensor(v, 128, 64)
}

// capturedBundle is a file with the third step of a sick patient, and its model before it.
func capturedBundle(t *testing.T) (path string, m *keras.Model) {
	t.Helper()
	p := patientOf(t, "05")
	m = p.compiled(t)
	for range 2 {
		if err := m.TrainStep(t.Context(), p.batch()); err != nil {
			t.Fatal(err)
		}
	}
	before := sha256.Sum256(state(t, m))
	b, err := doctor.Capture(t.Context(), m, p.batch())
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(state(t, m)) != before {
		t.Error("Capture changes the model")
	}
	b.Step = 3
	path = filepath.Join(t.TempDir(), "step.mezzo")
	if err := b.Save(path); err != nil {
		t.Fatal(err)
	}
	return path, m
}

// TestReplay: a step is the same to the bit in a model that was made anew, on any number
// of threads, and a weight that was changed is the first difference.
func TestReplay(t *testing.T) {
	path, original := capturedBundle(t)
	b, err := doctor.LoadBundle(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.Step != 3 || b.Made.ISA == "" {
		t.Errorf("got step %d made by %+v, want step 3 and an instruction set", b.Step, b.Made)
	}
	p := patientOf(t, "05")
	m := p.compiled(t)
	for _, n := range []int{1, 2, 3} {
		old := runtime.GOMAXPROCS(n)
		r, err := b.Replay(t.Context(), m)
		runtime.GOMAXPROCS(old)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Same || r.Values < 100 || r.Elsewhere != "" {
			t.Errorf("on %d threads: %v", n, r)
		}
	}
	v := m.TrainableVariables()[2]
	x, err := v.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	x[3] = float64(math.Nextafter32(float32(x[3]), 9))
	if err := v.Set(x); err != nil {
		t.Fatal(err)
	}
	r, err := b.Compare(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if want := v.Name() + "/Param#0"; r.Same || string(r.Got.ID) != want || !strings.Contains(r.String(), "values differ, the first is value ") {
		t.Errorf("got %v, want %s as the first difference", r, want)
	}
	// Replay puts the weight back, and what is examined then is that step.
	if r, err := b.Replay(t.Context(), m); err != nil || !r.Same {
		t.Errorf("got %v, %v", r, err)
	}
	batch, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	report, err := doctor.Examine(t.Context(), m, batch, doctor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := doctor.Examine(t.Context(), original, p.batch(), doctor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if report.String() != want.String() || report.Kind != doctor.Overflow {
		t.Errorf("got the report\n%v\nwant\n%v", report, want)
	}
}

// TestReplayElsewhere: another process computes the same bits, and one with other
// kernels says that they are others.
func TestReplayElsewhere(t *testing.T) {
	if path := os.Getenv("DOCTOR_BUNDLE"); path != "" {
		b, err := doctor.LoadBundle(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.Replay(t.Context(), patientOf(t, "05").compiled(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("replayed: %v", r)
		return
	}
	path, _ := capturedBundle(t)
	b, err := doctor.LoadBundle(path)
	if err != nil {
		t.Fatal(err)
	}
	replay := func(environment ...string) string {
		cmd := exec.Command(os.Args[0], "-test.run=^TestReplayElsewhere$", "-test.v")
		cmd.Env = append(os.Environ(), append(environment, "DOCTOR_BUNDLE="+path)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	if out := replay("GOMAXPROCS=3"); !strings.Contains(out, "replayed: the step is the same to the bit, in all ") {
		t.Errorf("in another process:\n%s", out)
	}
	if b.Made.ISA == "portable Go" {
		return
	}
	if out := replay("MEZZO_CPU=portable"); !strings.Contains(out, "values differ, the first is value ") || !strings.Contains(out, "it was made on cpu with "+b.Made.ISA+", this is cpu with portable Go: ") {
		t.Errorf("with other kernels:\n%s", out)
	}
}

// TestReplayStep: the step of a custom loop.
func TestReplayStep(t *testing.T) {
	p := patientOf(t, "05")
	m := p.compiled(t)
	scaler := &optimizers.LossScaleOptimizer{Inner: &optimizers.Adam{}}
	step := loop(p.loss)(m, scaler)
	for range 2 {
		if err := step.Run(t.Context(), p.batch()); err != nil {
			t.Fatal(err)
		}
	}
	b, err := doctor.CaptureStep(t.Context(), step, p.batch(), m, scaler)
	if err != nil {
		t.Fatal(err)
	}
	other := p.compiled(t)
	scaler = &optimizers.LossScaleOptimizer{Inner: &optimizers.Adam{}}
	r, err := doctor.ReplayStep(t.Context(), b, loop(p.loss)(other, scaler), other, scaler)
	if err != nil || !r.Same || r.Values != len(b.Values) {
		t.Errorf("got %v, %v", r, err)
	}
	scaler = &optimizers.LossScaleOptimizer{Inner: &optimizers.Adam{Beta1: new(0.8)}}
	r, err = doctor.ReplayStep(t.Context(), b, loop(p.loss)(other, scaler), other, scaler)
	if err != nil || r.Same || !strings.HasPrefix(string(r.Got.ID), "adam/") {
		t.Errorf("with another beta: got %v, %v", r, err)
	}
}

// TestCallbackBundle: the step that fails is examined from the state before it, and its
// bundle gives the same report in a model that was made anew. Training computes the same
// bits.
func TestCallbackBundle(t *testing.T) {
	x := normal(4, 1, 0, 128, 64)
	without, err := fitted(t, 32768, 1, x)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	with, err := fitted(t, 32768, 1, x, doctor.Callback(doctor.CallbackConfig{Every: 5, Most: 2, Bundle: true, Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(state(t, without)) != sha256.Sum256(state(t, with)) {
		t.Error("the callback changes what training computes")
	}
	for _, c := range []struct {
		config doctor.CallbackConfig
		file   string
	}{
		{doctor.CallbackConfig{OnNonFinite: new(false)}, "3"},
		{doctor.CallbackConfig{OnSkips: -1, Most: 1}, "1"},
	} {
		c.config.Bundle, c.config.Dir = true, t.TempDir()
		if _, err := fitted(t, 1, 1, spoilt(t), doctor.Callback(c.config)); err == nil {
			t.Error("NaNs train")
		}
		b, err := doctor.LoadBundle(filepath.Join(c.config.Dir, "bundle-"+c.file+".mezzo"))
		if err != nil {
			t.Fatal(err)
		}
		m := unfitted(t, 1, 1)
		r, err := b.Replay(t.Context(), m)
		if err != nil || !r.Same {
			t.Fatalf("got %v, %v", r, err)
		}
		batch, err := b.Batch()
		if err != nil {
			t.Fatal(err)
		}
		report, err := doctor.Examine(t.Context(), m, batch, doctor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(c.config.Dir, "report-"+c.file+".txt"))
		if err != nil || string(text) != report.String() {
			t.Errorf("got the report\n%s\nwant that of the callback (%v)\n%s", report, err, text)
		}
	}
}

// TestBundleErrors: what does not fit is said, and changes nothing.
func TestBundleErrors(t *testing.T) {
	path, _ := capturedBundle(t)
	b, err := doctor.LoadBundle(path)
	if err != nil {
		t.Fatal(err)
	}
	other := unfitted(t, 1, 1)
	if err := other.TrainStep(t.Context(), keras.Batch{X: normal(1, 1, 0, 32, 64), Y: classes(1, 32, 10)}); err != nil {
		t.Fatal(err)
	}
	before := state(t, other)
	if _, err := b.Replay(t.Context(), other); err == nil || !strings.Contains(err.Error(), "variable 0: got in_1/kernel float32[64 64], want in/kernel float32[64 64]") {
		t.Errorf("another model: got error %v", err)
	}
	if !slices.Equal(state(t, other), before) {
		t.Error("an error has changed the model")
	}
	r, err := b.Compare(t.Context(), other)
	if err != nil || r.Same || r.Different != 0 || !strings.Contains(r.String(), "it is another step: value 1 is adam/in_bias_momentum/Param#0 float32[64], in the bundle argument 0/Param#0 float32[32 64]") {
		t.Errorf("another model: got %v, %v", r, err)
	}
	if _, err := doctor.Capture(t.Context(), nil, keras.Batch{}); err == nil {
		t.Error("Capture: a nil model is no error")
	}
	if _, err := doctor.CaptureStep[keras.Batch, *keras.Tensor](t.Context(), nil, keras.Batch{}); err == nil {
		t.Error("CaptureStep: a nil step is no error")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := doctor.LoadBundle(path); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("a damaged file: got error %v", err)
	}
	if err := checkpoint.SaveWeights(path, other); err != nil {
		t.Fatal(err)
	}
	if _, err := doctor.LoadBundle(path); err == nil || !strings.Contains(err.Error(), "it holds weights, want bundle") {
		t.Errorf("a file of weights: got error %v", err)
	}
}
