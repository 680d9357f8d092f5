package doctor_test

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// fitted trains a patient's layers on batches, and returns the model and Fit's error.
func fitted(t *testing.T, scale, least float64, x *keras.Tensor, callbacks ...keras.Callback) (*keras.Model, error) {
	t.Helper()
	m := unfitted(t, scale, least)
	config := keras.FitConfig{Epochs: 2, BatchSize: 16, Verbose: keras.VerbositySilent, Callbacks: callbacks}
	_, err := m.Fit(t.Context(), keras.FromTensors(x, classes(3, 128, 10), nil), config)
	return m, err
}

// unfitted is the model of fitted before it is trained.
func unfitted(t *testing.T, scale, least float64) *keras.Model {
	t.Helper()
	defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
	in := keras.Input(64)
	y := dense("in", 64, "relu", in)
	y = keras.Apply(&layers.Dropout{Rate: 0.2}, y)
	y = layerOf("own_norm", ownNorm, y)
	m, err := keras.NewModel(in, dense("logits", 10, "", y))
	if err != nil {
		t.Fatal(err)
	}
	optimizer := &optimizers.LossScaleOptimizer{Inner: &optimizers.Adam{}, InitialScale: scale, MinScale: least}
	if err := m.Compile(keras.CompileConfig{Loss: crossentropy, Optimizer: optimizer}); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCallback: training with the callback computes the same bits, and the reports are
// those of the steps that are due.
func TestCallback(t *testing.T) {
	x := normal(4, 1, 0, 128, 64)
	without, err := fitted(t, 32768, 1, x)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "reports")
	var steps []int
	report := func(step int, r *doctor.Report) error {
		if r.Taps == nil {
			t.Errorf("step %d: the report is empty", step)
		}
		steps = append(steps, step)
		return nil
	}
	with, err := fitted(t, 32768, 1, x, doctor.Callback(doctor.CallbackConfig{Every: 5, Most: 2, Dir: dir, Report: report}))
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(state(t, without)) != sha256.Sum256(state(t, with)) {
		t.Error("the callback changes what training computes")
	}
	if !slices.Equal(steps, []int{5, 10}) {
		t.Errorf("got reports of the steps %v, want 5 and 10", steps)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if want := "report-10.html report-10.json report-10.txt report-5.html report-5.json report-5.txt"; strings.Join(names, " ") != want {
		t.Errorf("got the files %v, want %s", names, want)
	}
	b, err := os.ReadFile(filepath.Join(dir, "report-5.json"))
	if err != nil || !json.Valid(b) {
		t.Errorf("report-5.json: %v, %.80q", err, b)
	}
}

// TestCallbackSkips: skips in a row are examined once, and the error of Fit names the
// report.
func TestCallbackSkips(t *testing.T) {
	for _, c := range []struct {
		config doctor.CallbackConfig
		want   []int
		file   string
	}{
		{doctor.CallbackConfig{OnNonFinite: new(false)}, []int{3}, "report-3.html"},
		{doctor.CallbackConfig{OnNonFinite: new(false), OnSkips: 5}, []int{5}, "report-5.html"},
		{doctor.CallbackConfig{OnSkips: -1}, []int{1, 9}, "report-9.html"}, // each epoch
		{doctor.CallbackConfig{OnSkips: -1, OnNonFinite: new(false)}, nil, ""},
	} {
		c.config.Dir = t.TempDir()
		var steps []int
		c.config.Report = func(step int, r *doctor.Report) error {
			if r.Kind != doctor.Given {
				t.Errorf("got %v, want a batch that is not finite", r)
			}
			steps = append(steps, step)
			return nil
		}
		_, err := fitted(t, 1, 1, spoilt(t), doctor.Callback(c.config))
		if !slices.Equal(steps, c.want) {
			t.Errorf("%+v: got reports of the steps %v, want %v", c.config, steps, c.want)
		}
		want := "; see " + filepath.Join(c.config.Dir, c.file)
		if c.file == "" {
			want = "; doctor.Examine finds a remedy (docs/doctor.md)"
		}
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got error %v, want %s at its end", err, want)
		}
	}
}

// TestCallbackRefused: a step that NonFiniteError refuses is examined as it is, with the
// weights of before, and the error of Fit names the report.
func TestCallbackRefused(t *testing.T) {
	v, err := normal(4, 1, 0, 128, 64).Values()
	if err != nil {
		t.Fatal(err)
	}
	v[2*16*64+5] = float32(math.NaN()) // in the third batch
	x := keras.NewTensor(v, 128, 64)
	for _, c := range []doctor.CallbackConfig{{}, {Bundle: true}, {OnNonFinite: new(false)}} {
		m := keras.Sequential(&layers.Dense{Units: 32, Activation: "relu", DType: "mixed_bfloat16"}, &layers.Dense{Units: 10})
		if err := m.Compile(keras.CompileConfig{Loss: crossentropy, Optimizer: &optimizers.Adam{}, NonFinite: keras.NonFiniteError}); err != nil {
			t.Fatal(err)
		}
		c.Dir = t.TempDir()
		reports := 0
		c.Report = func(step int, r *doctor.Report) error {
			if reports++; step != 3 || r.Kind != doctor.Given || r.Origin == nil || r.Origin.ID != "argument 0/Param#0" {
				t.Errorf("step %d: got %v, want the third step and the batch", step, r)
			}
			return nil
		}
		config := keras.FitConfig{BatchSize: 16, Shuffle: new(false), Verbose: keras.VerbositySilent, Callbacks: []keras.Callback{doctor.Callback(c)}}
		_, err := m.Fit(t.Context(), keras.FromTensors(x, classes(3, 128, 10), nil), config)
		want, named := 1, "; see "+filepath.Join(c.Dir, "report-3.html")
		if c.OnNonFinite != nil {
			want, named = 0, ""
		}
		if reports != want || err == nil || !strings.Contains(err.Error(), "batch 3 of epoch 1") || !strings.HasSuffix(err.Error(), named) {
			t.Errorf("%+v: got %d reports and the error %v, want %d, and %q at its end", c, reports, err, want, named)
		}
		if _, err := os.Stat(filepath.Join(c.Dir, "bundle-3.mezzo")); (err == nil) != c.Bundle {
			t.Errorf("%+v: the bundle: %v", c, err)
		}
	}
}

// TestCallbackErrors: what cannot be done is said before the first step.
func TestCallbackErrors(t *testing.T) {
	x := normal(4, 1, 0, 128, 64)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]doctor.CallbackConfig{
		"Dir and Report are empty": {},
		"Every is -1":              {Every: -1, Dir: "x"},
		"Most is -1":               {Most: -1, Dir: "x"},
		"doctor: Callback: mkdir":  {Every: 1, Dir: file},
	} {
		if _, err := fitted(t, 1, 1, x, doctor.Callback(c)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}
