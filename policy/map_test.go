package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestMap(t *testing.T) {
	m := Map{
		"encoder":               "float32",
		"encoder/dense":         "mixed_bfloat16",
		"block_[0-9]+/norm":     "float32",
		"block_[0-9]+/(ff|out)": "float16",
		"block_1":               "bfloat16",
		"a.b":                   "float64",
		"x_.*":                  "float16",
		".*_y":                  "bfloat16",
		"z_.*":                  "float16",
		".*_z":                  "float16",
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, find, at string }{
		{"encoder", "float32", "float32"},
		{"encoder/dense", "mixed_bfloat16", "mixed_bfloat16"},
		{"encoder/dense/kernel", "mixed_bfloat16", ""},
		{"encoder/attention", "float32", ""},
		{"encoder2", "", ""},
		{"block_12/norm", "float32", "float32"},
		{"block_12/norm/inner", "float32", ""},
		{"block_12/norm2", "", ""},
		{"block_1/norm", "float32", "float32"}, // the longer one
		{"block_1/ff", "float16", "float16"},
		{"block_1/else", "bfloat16", ""},
		{"a.b", "float64", "float64"},
		{"axb", "float64", "float64"}, // a dot is one of an expression, too
		{"z_z", "float16", "float16"}, // two keys agree
		{"", "", ""},
	} {
		for _, q := range []struct {
			of   string
			f    func(string) (Policy, bool, error)
			want string
		}{{"For", m.For, c.find}, {"At", m.At, c.at}} {
			p, ok, err := q.f(c.path)
			if err != nil || ok != (q.want != "") || p.Name != q.want {
				t.Errorf("%s(%q): got %v, %v, %v, want %q", q.of, c.path, p, ok, err, q.want)
			}
		}
	}
	_, _, err := m.For("x_y")
	want := `policy: the layer at "x_y" matches two keys of the map, ".*_y" (bfloat16) and "x_.*" (float16); write keys that exclude each other`
	if err == nil || err.Error() != want {
		t.Errorf("an ambiguous path: got error %v, want %s", err, want)
	}
}

func TestMapErrors(t *testing.T) {
	for _, c := range []struct {
		m    Map
		want string
	}{
		{Map{"head": "float8"}, `unknown policy "float8"`},
		{Map{"block_[": "float32"}, `the key "block_[" of a map is no regular expression`},
	} {
		if err := c.m.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%#v: got error %v, want %s", c.m, err, c.want)
		}
		if _, _, err := c.m.For("dense"); err == nil {
			t.Errorf("%#v: For: got no error", c.m)
		}
	}
}

// A map is a value: JSON and a Go literal say the same, and neither depends on the
// order of keys in memory.
func TestMapText(t *testing.T) {
	m := Map{"b": "float32", "a/.*": "mixed_bfloat16"}
	j, err := json.Marshal(m)
	if want := `{"a/.*":"mixed_bfloat16","b":"float32"}`; err != nil || string(j) != want {
		t.Errorf("JSON: got %s, %v, want %s", j, err, want)
	}
	var back Map
	if err := json.Unmarshal(j, &back); err != nil || len(back) != 2 || back["a/.*"] != "mixed_bfloat16" {
		t.Errorf("from JSON: got %v, %v, want %v", back, err, m)
	}
	if got, want := fmt.Sprintf("%#v", m), `policy.Map{"a/.*": "mixed_bfloat16", "b": "float32"}`; got != want {
		t.Errorf("%%#v: got %s, want %s", got, want)
	}
	if got, want := fmt.Sprintf("%#v", Map(nil)), "policy.Map(nil)"; got != want {
		t.Errorf("%%#v of nil: got %s, want %s", got, want)
	}
}
