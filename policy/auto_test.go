package policy

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

func TestAuto(t *testing.T) {
	for d, name := range map[dtype.DType]string{dtype.Float16: "auto_float16", dtype.BFloat16: "auto_bfloat16"} {
		p, err := Parse(Auto(d))
		if err != nil || p != (Policy{Name: name, Compute: dtype.Float32, Variable: dtype.Float32, Auto: d}) || p.Source() != "float32" || p.Mixed() {
			t.Errorf("Auto(%v): got %+v, %v", d, p, err)
		}
	}
	defer func() {
		if err, ok := recover().(error); !ok || err.Error() != "policy: Auto: got int32, want float16 or bfloat16" {
			t.Errorf("Auto(int32): got %v", err)
		}
	}()
	Auto(dtype.Int32)
}

// TestEnvironment: the variables make float32 automatic, and contradict other policies.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct{ variable, value, policy, want, err string }{
		{"MEZZO_AUTO_MIXED_PRECISION", "float16", "float32", "auto_float16", ""},
		{"MEZZO_AUTO_MIXED_PRECISION", "bfloat16", "float32", "auto_bfloat16", ""},
		{"MEZZO_AUTO_MIXED_PRECISION", "bfloat16", "float64", "float64", ""},
		{"MEZZO_AUTO_MIXED_PRECISION", "bfloat16", "auto_float16", "auto_float16", ""},
		{"MEZZO_AUTO_MIXED_PRECISION", "bfloat16", "mixed_float16", "", "MEZZO_AUTO_MIXED_PRECISION is set, and the global policy is to be mixed_float16: only one kind"},
		{"MEZZO_AUTO_MIXED_PRECISION", "half", "float32", "", `MEZZO_AUTO_MIXED_PRECISION is "half", want float16 or bfloat16`},
		{"MEZZO_AUTO_MIXED_PRECISION", "", "mixed_float16", "mixed_float16", ""},
		{"MEZZO_AUTO_MIXED_PRECISION", "0", "float32", "float32", ""},
		{"TF_ENABLE_AUTO_MIXED_PRECISION", "1", "float32", "auto_float16", ""},
		{"TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE", "1", "float32", "auto_float16", ""},
		{"TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE", "0", "mixed_bfloat16", "mixed_bfloat16", ""},
	} {
		e := readEnvironment(func(name string) string {
			if name == c.variable {
				return c.value
			}
			return ""
		})
		p, err := Parse(c.policy)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.under(p)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: got error %v", c, err)
			}
		case err != nil || got.Name != c.want:
			t.Errorf("%+v: got %v, %v", c, got.Name, err)
		}
	}
}
