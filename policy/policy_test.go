package policy

import (
	"errors"
	"strings"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name              string
		compute, variable dtype.DType
		mixed             bool
	}{
		{"float32", dtype.Float32, dtype.Float32, false},
		{"float64", dtype.Float64, dtype.Float64, false},
		{"float16", dtype.Float16, dtype.Float16, false},
		{"bfloat16", dtype.BFloat16, dtype.BFloat16, false},
		{"mixed_float16", dtype.Float16, dtype.Float32, true},
		{"mixed_bfloat16", dtype.BFloat16, dtype.Float32, true},
		{"mixed_float32", dtype.Float32, dtype.Float64, true},
	} {
		p, err := Parse(c.name)
		if want := (Policy{Name: c.name, Compute: c.compute, Variable: c.variable}); err != nil || p != want {
			t.Errorf("Parse(%q): got %v, %v, want %v", c.name, p, err, want)
		}
		if p.Mixed() != c.mixed {
			t.Errorf("%v.Mixed(): got %v, want %v", p, p.Mixed(), c.mixed)
		}
	}
	for _, name := range []string{"", "float8", "int32", "bool", "mixed_float64", "Mixed_Float16"} {
		if p, err := Parse(name); err == nil {
			t.Errorf("Parse(%q): got %v, want an error", name, p)
		}
	}
	_, err := Parse("float8")
	want := `policy: unknown policy "float8"; did you mean "mixed_float8"? want mixed_float16, mixed_bfloat16, mixed_float32, mixed_float8, auto_float16, auto_bfloat16 or a float type such as float32`
	if err == nil || err.Error() != want {
		t.Errorf("Parse(float8): got error %v, want %s", err, want)
	}
}

func TestFloat8(t *testing.T) {
	for name, want := range map[string]Policy{
		"mixed_float8":               {Name: "mixed_float8", Compute: dtype.BFloat16, Variable: dtype.Float32, Float8: true},
		"mixed_float8_adaptive":      {Name: "mixed_float8_adaptive", Compute: dtype.BFloat16, Variable: dtype.Float32, Float8: true, Adaptive: true},
		"float8_from_mixed_bfloat16": {Name: "float8_from_mixed_bfloat16", Compute: dtype.BFloat16, Variable: dtype.Float32, Float8: true},
		"float8_from_float32":        {Name: "float8_from_float32", Compute: dtype.Float32, Variable: dtype.Float32, Float8: true},
	} {
		if p, err := Parse(name); err != nil || p != want {
			t.Errorf("Parse(%q): got %v, %v, want %v", name, p, err, want)
		}
	}
	for name, want := range map[string]string{"mixed_float8": "mixed_bfloat16", "mixed_float8_adaptive": "mixed_bfloat16", "float8_from_mixed_float16": "mixed_float16", "float32": "float32"} {
		if p, err := Parse(name); err != nil || p.Source() != want {
			t.Errorf("Source of %q: got %q, %v, want %q", name, p.Source(), err, want)
		}
	}
	for _, name := range []string{"float8_from_", "float8_from_mixed_float8", "float8_from_mixed_float8_adaptive", "float8_from_float8_from_float32", "float8_from_int32"} {
		_, err := Parse(name)
		if want := `policy: unknown policy "` + name + `"; want one such as float8_from_mixed_bfloat16`; err == nil || err.Error() != want {
			t.Errorf("Parse(%q): got error %v, want %s", name, err, want)
		}
	}
}

func TestString(t *testing.T) {
	p, _ := Parse("mixed_float16")
	if got, want := p.String(), `<DTypePolicy "mixed_float16">`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestGlobal(t *testing.T) {
	if got := Global().Name; got != "float32" {
		t.Fatalf("Global: got %s, want float32", got)
	}
	previous := SetGlobal("mixed_bfloat16")
	if got := Global().Name; previous != "float32" || got != "mixed_bfloat16" {
		t.Errorf("SetGlobal: got %s after %s, want mixed_bfloat16 after float32", got, previous)
	}
	SetGlobal(previous)
	defer func() {
		if recover() == nil {
			t.Error("SetGlobal of an unknown name: got no panic, want one")
		}
		if got := Global().Name; got != "float32" {
			t.Errorf("after a refused SetGlobal: got %s, want float32", got)
		}
	}()
	SetGlobal("float8")
}

func TestGlobalMap(t *testing.T) {
	defer SetGlobal(SetGlobal("mixed_float16"))
	previous := SetGlobalMap(Map{
		"encoder":        "float32",
		"encoder/dense":  "mixed_bfloat16",
		"head/":          "float64", // slashes at the ends are not part of a path
		"encoder/dense2": "float16",
	})
	defer SetGlobalMap(previous)
	if previous != nil {
		t.Errorf("SetGlobalMap: got the map %v before, want none", previous)
	}
	for _, c := range []struct{ path, name, want string }{
		{"encoder", "", "float32"},
		{"encoder/attention/query", "", "float32"},
		{"encoder/dense", "", "mixed_bfloat16"},
		{"encoder/dense/inner", "", "mixed_bfloat16"},
		{"encoder/dense_1", "", "float32"}, // a key matches whole names
		{"encoder2", "", "mixed_float16"},
		{"head", "", "float64"},
		{"dense", "", "mixed_float16"},
		{"", "", "mixed_float16"},
		{"encoder/dense", "bfloat16", "bfloat16"}, // the layer's own name wins
	} {
		p, err := For(c.path, c.name)
		if err != nil || p.Name != c.want {
			t.Errorf("For(%q, %q): got %v, %v, want %s", c.path, c.name, p, err, c.want)
		}
	}
	general, _ := Parse("bfloat16")
	for path, want := range map[string]string{"dense": "bfloat16", "encoder/attention": "float32"} {
		if p, err := Under(general, path, ""); err != nil || p.Name != want {
			t.Errorf("Under(bfloat16, %q): got %v, %v, want %s", path, p, err, want)
		}
	}
	if _, err := For("dense", "float8"); err == nil {
		t.Error("For with an unknown name: got no error, want one")
	}
	if got := SetGlobalMap(nil); len(got) != 4 || got["encoder/dense"] != "mixed_bfloat16" {
		t.Errorf("SetGlobalMap(nil): got the map %v before, want the one that was set", got)
	}
	if p, _ := For("encoder", ""); p.Name != "mixed_float16" {
		t.Errorf("without a map: got %v, want mixed_float16", p)
	}
}

func TestGlobalMapPanics(t *testing.T) {
	defer func() {
		err, _ := recover().(error)
		want := `policy: unknown policy "float8"; did you mean "mixed_float8"? want mixed_float16, mixed_bfloat16, mixed_float32, mixed_float8, auto_float16, auto_bfloat16 or a float type such as float32, for the layers at "head"`
		if err == nil || err.Error() != want {
			t.Errorf("got panic %v, want %s", err, want)
		}
	}()
	SetGlobalMap(Map{"head": "float8"})
}

func TestEffective(t *testing.T) {
	d, err := Effective()
	if err != nil {
		t.Fatal(err)
	}
	if d.Device == "" || d.Hardware == "" || d.ISA == "" || d.Threads < 1 {
		t.Errorf("got %+v, want a device, hardware, instruction set and threads", d)
	}
	for _, dt := range dtype.Floats() {
		if d.Arithmetic[dt] == "" {
			t.Errorf("got nothing about %v, want how it is computed", dt)
		}
	}
	if got := EffectiveText(); got != text(d) {
		t.Errorf("EffectiveText: got %s, want %s", got, text(d))
	}
}

func TestText(t *testing.T) {
	got := text(driver.Description{Device: "cpu", Hardware: "Xeon", ISA: "AVX-512", Threads: 1,
		Arithmetic: map[dtype.DType]string{dtype.Float32: "float32", dtype.Float16: "float32 (16-bit storage)"},
		Missing:    []string{"libx: not found", "liby: too old"}})
	want := "cpu: Xeon, AVX-512, 1 thread; float16: float32 (16-bit storage); float32: float32; libx: not found; liby: too old"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCompatibility: a device without units for 16 bits, and a GPU that cannot
// be used, are warned of.
func TestCompatibility(t *testing.T) {
	for _, c := range []struct {
		name     string
		compute  dtype.DType
		about    driver.Description
		fallback error
		want     []string
	}{
		{"float32", dtype.Float32, driver.Description{Slow: map[dtype.DType]string{dtype.Float16: "x"}}, nil, nil},
		{"fast", dtype.Float16, driver.Description{Slow: map[dtype.DType]string{dtype.BFloat16: "x"}}, nil, nil},
		{"slow", dtype.BFloat16, driver.Description{Slow: map[dtype.DType]string{dtype.BFloat16: "it does not have compute capability of at least 8.0. Your GPU: Tesla T4, compute capability 7.5"}}, nil,
			[]string{"Mixed precision compatibility check (mixed_bfloat16): WARNING\nYour GPU may run slowly with dtype policy mixed_bfloat16 because it does not have compute capability of at least 8.0. Your GPU: Tesla T4, compute capability 7.5. ", "half the memory"}},
		{"processor", dtype.BFloat16, driver.Description{Device: "cpu", Slow: map[dtype.DType]string{dtype.BFloat16: "its processor has no bfloat16 arithmetic that Mezzo uses (AVX2)"}}, nil,
			[]string{"Mixed precision compatibility check (mixed_bfloat16): WARNING\nThe dtype policy mixed_bfloat16 may run slowly because this machine does not have a GPU, and its processor has no bfloat16 arithmetic that Mezzo uses (AVX2). It keeps activations in bfloat16 and computes in float32: ", "no shorter"}},
		{"fast processor", dtype.BFloat16, driver.Description{Device: "cpu", Slow: map[dtype.DType]string{dtype.Float16: "x"}}, nil, nil},
		{"GTX", dtype.Float16, driver.Description{Device: "cuda", Slow: map[dtype.DType]string{dtype.Float16: "it has no Tensor Cores, unlike other GPUs of its compute capability. Your GPU: NVIDIA GeForce GTX 1660 Ti, compute capability 7.5"}}, nil,
			[]string{"Your GPU may run slowly with dtype policy mixed_float16 because it has no Tensor Cores, unlike other GPUs of its compute capability. Your GPU: NVIDIA GeForce GTX 1660 Ti, compute capability 7.5. It keeps"}},
		{"no GPU", dtype.Float16, driver.Description{Hardware: "Xeon"}, errors.New("compute capability 6.1"),
			[]string{"(mixed_float16): WARNING\nThe dtype policy mixed_float16 may run slowly because this machine has no GPU that can be used, and the model runs on Xeon", "6.1"}},
	} {
		got := compatibility(c.compute, c.about, "cuda", c.fallback)
		if (got != "") != (c.want != nil) {
			t.Errorf("%s: got %q", c.name, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: got %q, want %q in it", c.name, got, want)
			}
		}
	}
	about, err := Effective()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		stored := strings.Contains(about.Arithmetic[d], "16-bit storage")
		if got := Compatibility(d); (got != "") != stored || stored && !strings.Contains(got, "does not have a GPU, and its processor has no "+d.String()+" arithmetic") {
			t.Errorf("%v is %q: got %q", d, about.Arithmetic[d], got)
		}
	}
}
