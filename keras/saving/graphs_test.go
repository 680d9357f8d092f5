package saving_test

import (
	"archive/zip"
	"encoding/json"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/policy"
)

var graphs = flag.String("graphs", "", "a directory of testdata/graphs.py, for TestGraphsDir")

// values are an array in a file of testdata/graphs.py.
type values struct {
	Shape  []int
	DType  keras.DType
	Values []float64
}

// graphCase is what Keras computes with a model; see testdata/graphs.py.
type graphCase struct {
	Inputs, Outputs []values

	// Single is the largest of Keras's errors in float32, against float64, for each
	// output; nil if it was not measured.
	Single []float64

	// Half is the root of the mean square of Keras's errors under mixed_float16, for
	// each output; nil if it was not measured.
	Half []float64
}

func graphCaseOf(t *testing.T, files fs.FS, name string) (c graphCase) {
	t.Helper()
	text, err := fs.ReadFile(files, name+".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// input is the inputs as the tensor that a model takes.
func (c graphCase) input() *keras.Tensor {
	var all []*keras.Tensor
	for _, v := range c.Inputs {
		x := keras.NewTensor(v.Values, v.Shape...)
		if v.DType == keras.Bool {
			all = append(all, x.GreaterScalar(0))
		} else {
			all = append(all, x.Cast(v.DType))
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return keras.Tuple(all...)
}

// errors returns the largest error of each output, and the root of the mean square,
// both relative to the largest number in it.
func (c graphCase) errors(t *testing.T, m *keras.Model) (largest, rms []float64) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Fatal(r)
		}
	}()
	got := m.Call(c.input()).Unpack()
	if len(got) != len(c.Outputs) {
		t.Fatalf("got %d outputs, want %d", len(got), len(c.Outputs))
	}
	for i, want := range c.Outputs {
		if !got[i].Shape().Equal(want.Shape) {
			t.Fatalf("output %d: got %v, want shape %v", i, got[i].Type(), want.Shape)
		}
		y, err := got[i].Float64s()
		if err != nil {
			t.Fatalf("output %d: %v", i, err)
		}
		scale, worst, sum := 0.0, 0.0, 0.0
		for k := range y {
			d := math.Abs(y[k] - want.Values[k])
			if math.IsNaN(d) {
				d = math.Inf(1)
			}
			scale, worst, sum = max(scale, math.Abs(want.Values[k])), max(worst, d), sum+d*d
		}
		scale = max(scale, 1e-30)
		largest = append(largest, worst/scale)
		rms = append(rms, math.Sqrt(sum/float64(len(y)))/scale)
	}
	return largest, rms
}

// within requires that every output is as near to Keras's as limit, or as twice what
// Keras's is from float64 if that is more.
func (c graphCase) within(t *testing.T, m *keras.Model, limit float64) {
	t.Helper()
	largest, _ := c.errors(t, m)
	for i, e := range largest {
		most := limit
		if c.Single != nil {
			t.Logf("output %d: %.2g from Keras's, which is %.2g from float64", i, e, c.Single[i])
			most = max(most, 2*c.Single[i])
		}
		if !(e <= most) {
			t.Errorf("output %d: got an error of %.2g of the largest number, want at most %.2g", i, e, most)
		}
	}
}

// TestGraphs loads models of Keras with what a functional graph may hold, and what Save
// makes of them: the features are the names in testdata/graphs.py.
func TestGraphs(t *testing.T) {
	z, err := zip.OpenReader("testdata/graphs.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".keras")
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := graphCaseOf(t, z, name)
			dir := t.TempDir()
			path, again := filepath.Join(dir, f.Name), filepath.Join(dir, "again.keras")
			if err := os.WriteFile(path, memberOf(t, &z.Reader, f.Name), 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := saving.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			c.within(t, m, 2e-6)
			if err := saving.Save(again, m); err != nil {
				t.Fatal(err)
			}
			if m, err = saving.Load(again); err != nil {
				t.Fatal(err)
			}
			c.within(t, m, 2e-6)
			clone, err := m.Clone("")
			if err != nil || clone.CountParams() != m.CountParams() {
				t.Errorf("Clone: got error %v, or other weights", err)
			}
		})
	}
}

// graphsDir is the directory of -graphs, or else one with three of the models in
// testdata/graphs.zip.
func graphsDir(t *testing.T) string {
	t.Helper()
	if *graphs != "" {
		return *graphs
	}
	z, err := zip.OpenReader("testdata/graphs.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir := t.TempDir()
	for _, name := range []string{"mask_of_embedding", "dict_in_model", "layers_as_activations"} {
		for _, file := range []string{name + ".keras", name + ".json"} {
			if err := os.WriteFile(filepath.Join(dir, file), memberOf(t, &z.Reader, file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestGraphsDir does the like with the models in the directory of -graphs, which may be
// as large as those of keras.applications, also under mixed_float16, and leaves what it
// saves there for testdata/graphs.py check. Keras must be able to load that.
func TestGraphsDir(t *testing.T) {
	dir := graphsDir(t)
	files := os.DirFS(dir)
	names, err := fs.Glob(files, "*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("%s holds no models of testdata/graphs.py, error %v", dir, err)
	}
	half, err := policy.Parse("mixed_float16")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		name = strings.TrimSuffix(name, ".json")
		t.Run(name, func(t *testing.T) {
			c := graphCaseOf(t, files, name)
			path := filepath.Join(dir, name+".keras")
			if _, err := os.Stat(path); err != nil {
				path = filepath.Join(dir, name+".h5")
			}
			m, err := saving.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			c.within(t, m, 1e-5)
			if err := saving.Save(filepath.Join(dir, name+".saved.keras"), m); err != nil {
				t.Fatal(err)
			}
			if c.Half == nil {
				return
			}
			if m, err = saving.Load(path, saving.WithPolicy(half)); err != nil {
				t.Fatal(err)
			}
			_, rms := c.errors(t, m)
			for i, e := range rms {
				t.Logf("output %d: an error of %.2g under mixed_float16, Keras's is %.2g", i, e, c.Half[i])
				if !(e <= 1.5*c.Half[i]+1e-4) {
					t.Errorf("output %d: got an error of %.2g under mixed_float16, want at most 1.5 times Keras's, %.2g", i, e, c.Half[i])
				}
			}
		})
	}
}
