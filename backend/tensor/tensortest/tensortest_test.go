package tensortest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// recorder notes that a helper failed the test instead of failing it. What
// would end the test panics with the recorder.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true; panic(r) }
func (r *recorder) Fatal(...any)          { r.failed = true; panic(r) }

// fails reports whether f fails its test.
func fails(t *testing.T, f func(t testing.TB)) (failed bool) {
	r := &recorder{TB: t}
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
		failed = r.failed
	}()
	f(r)
	return
}

const golden = `{"keras":"3","tensorflow":"2","cases":[{"name":"n","policy":"float32",
 "config":{"class_name":"Dense","label_smoothing":0.5,"kernel_size":[3,3]},
 "inputs":{"x":{"dtype":"float16","shape":[2,2],"data":[1,"NaN","-Infinity",0.1]}},"weights":{},"outputs":{"y":{"dtype":"bool","shape":[],"data":[true]}}}]}`

func load(t *testing.T) *File {
	path := filepath.Join(t.TempDir(), "golden.json")
	if err := os.WriteFile(path, []byte(golden), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(t, path)
}

func TestLoad(t *testing.T) {
	f := load(t)
	c := &f.Cases[0]
	if f.Keras != "3" || f.TensorFlow != "2" || c.Name != "n" || c.Policy != "float32" || c.Class() != "Dense" {
		t.Errorf("got %+v", f)
	}
	x, err := c.Tensor("x").Float64s()
	// 0.1 in float16 is 1638·2⁻¹⁴.
	if err != nil || fmt.Sprint(x) != fmt.Sprint([]float64{1, math.NaN(), math.Inf(-1), 1638 * 0x1p-14}) {
		t.Errorf("got %v, %v", x, err)
	}
	if y, err := c.Tensor("y").Item(); err != nil || y != 1 {
		t.Errorf("got %v, %v, want true", y, err)
	}
	if c.Tensor("z") != nil {
		t.Errorf("got a tensor for a name that is not there")
	}
	var dst struct{ LabelSmoothing float64 }
	c.Configure(t, &dst, "kernel_size")
	if dst.LabelSmoothing != 0.5 {
		t.Errorf("got %+v, want 0.5", dst)
	}
	if !fails(t, func(t testing.TB) { c.Configure(t, &dst) }) {
		t.Errorf("an argument without a field passed")
	}
	if !fails(t, func(t testing.TB) { Load(t, "missing.json") }) {
		t.Errorf("a missing file passed")
	}
	for _, bad := range []string{
		`{"dtype":"float31","shape":[],"data":[1]}`, `{"dtype":"float32","shape":[2],"data":[1]}`,
		`{"dtype":"float32","shape":[1],"data":["inf"]}`, `{"dtype":"float32","shape":[1],"data":[null]}`,
	} {
		if err := json.Unmarshal([]byte(bad), new(Array)); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
}

func TestWithin(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		got, want float64
		ok        bool
	}{
		{1, 1, true}, {1 + 0x1p-20, 1, true}, {1 + 0x1p-15, 1, false}, {nan, nan, true}, {nan, 1, false}, {1, nan, false},
		{inf, inf, true}, {inf, -inf, false}, {inf, 1, false}, {1, inf, false},
	} {
		if ok := Within(dtype.Float32, c.got, c.want, 1); ok != c.ok {
			t.Errorf("%v for %v: got %v, want %v", c.got, c.want, ok, c.ok)
		}
	}
}

func TestHelpersNotice(t *testing.T) {
	x := Of(dtype.Float64, []float64{0.5, 2}, 2)
	square := func(x *tensor.Tensor) *tensor.Tensor { return x.Square().Sum() }
	Close(t, "x", x.Tensor(), x, 1)
	CheckGradient(t, "square", x, square)
	for name, f := range map[string]func(t testing.TB){
		"shape": func(t testing.TB) { Close(t, "x", x.Tensor(), Of(dtype.Float64, x.Data, 1, 2), 1) },
		"value": func(t testing.TB) { Close(t, "x", x.Tensor(), Of(dtype.Float64, []float64{0.5, 2.1}, 2), 1) },
		"gradient": func(t testing.TB) {
			CheckGradient(t, "x", x, func(x *tensor.Tensor) *tensor.Tensor { return square(x).Add(x.StopGradient().Sum()) })
		},
		"none": func(t testing.TB) {
			CheckGradient(t, "x", x, func(x *tensor.Tensor) *tensor.Tensor { return x.StopGradient().Sum() })
		},
	} {
		if !fails(t, f) {
			t.Errorf("%s: a difference passed", name)
		}
	}
}
