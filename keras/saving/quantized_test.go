package saving_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// quantizedCase is what Keras makes of a model by quantize("int8"); see
// testdata/quantized.py.
type quantizedCase struct {
	before, after string         // paths of files
	x, y          map[int][]byte // by the number of rows
}

func quantizedCases(t *testing.T) map[string]*quantizedCase {
	t.Helper()
	z, err := zip.OpenReader("testdata/quantized.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir := t.TempDir()
	all := map[string]*quantizedCase{}
	for _, f := range z.File {
		name, rest, _ := strings.Cut(f.Name, ".")
		if all[name] == nil {
			all[name] = &quantizedCase{x: map[int][]byte{}, y: map[int][]byte{}}
		}
		c, data := all[name], memberOf(t, &z.Reader, f.Name)
		path := filepath.Join(dir, f.Name)
		switch rest {
		case "float.keras":
			c.before = path
		case "int8.keras", "weights.h5":
			c.after = path
		default:
			rows, kind, _ := strings.Cut(rest, ".")
			n, err := strconv.Atoi(rows)
			if err != nil {
				t.Fatal(err)
			}
			map[string]map[int][]byte{"x": c.x, "y": c.y}[kind][n] = data
			continue
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// check compares predictions with Keras's bit by bit, but for the payload of NaNs.
func (c *quantizedCase) check(t *testing.T, what string, m *keras.Model) {
	t.Helper()
	in := m.InputTypes()[0]
	for _, n := range slices.Sorted(maps.Keys(c.x)) {
		in.Shape = append(op.Shape{n}, in.Shape[1:]...)
		x := tensor.FromBytes(in, slices.Clone(c.x[n]))
		y, err := m.Predict(context.Background(), x)
		if err != nil {
			t.Fatalf("%s: %d rows: %v", what, n, err)
		}
		got, err := y.Values()
		if err != nil || 4*len(got) != len(c.y[n]) {
			t.Fatalf("%s: %d rows: got %d numbers, want %d, error %v", what, n, len(got), len(c.y[n])/4, err)
		}
		for i, g := range got {
			want := math.Float32frombits(binary.LittleEndian.Uint32(c.y[n][4*i:]))
			if math.Float32bits(g) != math.Float32bits(want) && (g == g || want == want) {
				t.Errorf("%s: %d rows: element %d: got %v, want %v", what, n, i, g, want)
				break
			}
		}
	}
}

// sameWeights compares the weights of two models bit by bit.
func sameWeights(t *testing.T, got, want *keras.Model) {
	t.Helper()
	g, w := got.Weights(), want.Weights()
	if len(g) != len(w) {
		t.Fatalf("got %d weights, want %d", len(g), len(w))
	}
	for i := range g {
		a, err := g[i].Bytes()
		b, err2 := w[i].Bytes()
		if err != nil || err2 != nil || !g[i].Type().Equal(w[i].Type()) || !bytes.Equal(a, b) {
			t.Errorf("weight %s is %v, want %s, %v, with the same bits; errors %v, %v", g[i].Name(), g[i].Type(), w[i].Name(), w[i].Type(), err, err2)
		}
	}
}

// TestQuantizedWithPolicy: a quantized model is loaded under another policy.
func TestQuantizedWithPolicy(t *testing.T) {
	c := quantizedCases(t)["dense"]
	load := func(name string) (*keras.Model, error) {
		p, err := policy.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		return saving.Load(c.after, saving.WithPolicy(p))
	}
	m, err := load("mixed_bfloat16")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range m.Layers() {
		if got := layers.BaseOf(l).Policy().Name; got != "int8_from_mixed_bfloat16" {
			t.Errorf("got policy %s", got)
		}
	}
	if _, err := load("mixed_float16"); err == nil || !strings.Contains(err.Error(), "int8 does not work well with compute type float16") {
		t.Errorf("got error %v", err)
	}
}

// TestQuantized: Quantize makes the weights that Keras makes, models compute its bits, and
// files of both are those of the other.
func TestQuantized(t *testing.T) {
	for name, c := range quantizedCases(t) {
		t.Run(name, func(t *testing.T) {
			m, err := saving.Load(c.before)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Quantize("int8"); err != nil {
				t.Fatal(err)
			}
			c.check(t, "quantized", m)
			if strings.HasSuffix(c.after, ".weights.h5") {
				if err := saving.Save(filepath.Join(t.TempDir(), "no.keras"), m); err == nil || !strings.Contains(err.Error(), "is quantized, which .keras files cannot say of a layer within a MultiHeadAttention") {
					t.Errorf("Save: got error %v", err)
				}
				other, err := m.Clone("")
				if err != nil {
					t.Fatal(err)
				}
				if err := saving.LoadWeights(c.after, other); err != nil {
					t.Fatal(err)
				}
				sameWeights(t, m, other)
				return
			}
			loaded, err := saving.Load(c.after)
			if err != nil {
				t.Fatal(err)
			}
			sameWeights(t, m, loaded)
			c.check(t, "loaded", loaded)
			path := filepath.Join(t.TempDir(), "again.keras")
			if err := saving.Save(path, m); err != nil {
				t.Fatal(err)
			}
			again, err := saving.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			sameWeights(t, again, m)
			c.check(t, "saved and loaded", again)
			clone, err := m.Clone("")
			if err != nil {
				t.Fatal(err)
			}
			if err := saving.LoadWeights(c.after, clone); err != nil {
				t.Fatal(err)
			}
			c.check(t, "cloned", clone)
		})
	}
}

// TestQuantizedStatic: a file holds a statically quantized model, which predicts the same
// bits, and says what Keras refuses to load.
func TestQuantizedStatic(t *testing.T) {
	ctx := context.Background()
	numbers := make([]float32, 6*7*7*2)
	for i := range numbers {
		numbers[i] = float32(math.Sin(float64(i)))
	}
	x := keras.NewTensor(numbers, 6, 7, 7, 2)
	for _, name := range []string{"float32", "mixed_bfloat16"} {
		t.Run(name, func(t *testing.T) {
			m := keras.Sequential(
				&layers.Conv2D{Filters: 4, KernelSize: layers.PerAxis{3}, Activation: "relu", DType: name},
				&layers.BatchNormalization{DType: name},
				&layers.Conv2D{Filters: 3, KernelSize: layers.PerAxis{2}, UseBias: new(false), DType: name},
				&layers.Flatten{}, &layers.Dense{Units: 2, DType: name})
			predict := func(m *keras.Model) []float32 {
				y, err := m.Predict(ctx, x)
				if err != nil {
					t.Fatal(err)
				}
				v, err := y.Values()
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			predict(m)
			if err := m.QuantizeStatic(ctx, keras.FromTensors(x, nil, nil).Batch(2), keras.CalibrationConfig{}); err != nil {
				t.Fatal(err)
			}
			want := predict(m)
			path := filepath.Join(t.TempDir(), "static.keras")
			if err := saving.Save(path, m); err != nil {
				t.Fatal(err)
			}
			loaded, err := saving.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			sameWeights(t, loaded, m)
			if got := predict(loaded); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if got := layers.BaseOf(loaded.Layers()[0]).Policy().Name; got != "int8_static_from_"+name {
				t.Errorf("got policy %s", got)
			}
			other, err := loaded.Clone("")
			if err != nil {
				t.Fatal(err)
			}
			weights := filepath.Join(t.TempDir(), "static.weights.h5")
			if err := saving.SaveWeights(weights, m); err != nil {
				t.Fatal(err)
			}
			if err := saving.LoadWeights(weights, other); err != nil {
				t.Fatal(err)
			}
			sameWeights(t, other, m)
			z, err := zip.OpenReader(path)
			if err != nil {
				t.Fatal(err)
			}
			defer z.Close()
			if config := string(memberOf(t, &z.Reader, "config.json")); !strings.Contains(config, `"mode":"int8_static"`) && !strings.Contains(config, `"mode": "int8_static"`) {
				t.Errorf("the mode is not in %s", config)
			}
		})
	}
}
