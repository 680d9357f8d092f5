package policy

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestOptLevel holds Apex's table of levels, and its errors.
func TestOptLevel(t *testing.T) {
	is := func(p *bool) string {
		switch {
		case p == nil:
			return "none"
		case *p:
			return "yes"
		}
		return "no"
	}
	for _, c := range []struct {
		name         string
		o            LevelOptions
		cast         dtype.DType
		patch        bool
		keep, master string
		scale        float64
		policy       string
	}{
		{"O0", LevelOptions{}, dtype.Float32, false, "none", "no", 1, "float32"},
		{"O1", LevelOptions{}, dtype.Invalid, true, "none", "none", 0, "auto_float16"},
		{"O2", LevelOptions{}, dtype.Float16, false, "yes", "yes", 0, "mixed_float16"},
		{"O3", LevelOptions{}, dtype.Float16, false, "no", "no", 1, "float16"},
		{"O2", LevelOptions{CastModelType: dtype.BFloat16, LossScale: 1}, dtype.BFloat16, false, "yes", "yes", 1, "mixed_bfloat16"},
		{"O2", LevelOptions{MasterWeights: new(false)}, dtype.Float16, false, "yes", "no", 0, "float16"},
		{"O3", LevelOptions{KeepBatchnormFP32: new(true), Dynamic: true}, dtype.Float16, false, "yes", "no", 0, "float16"},
		{"O1", LevelOptions{LossScale: 128, PatchFunctions: new(true)}, dtype.Invalid, true, "none", "none", 128, "auto_float16"},
		{"O0", LevelOptions{MasterWeights: new(true)}, dtype.Float32, false, "none", "yes", 1, "float32"},
	} {
		l, err := OptLevel(c.name, c.o)
		if err != nil {
			t.Errorf("%s %+v: %v", c.name, c.o, err)
			continue
		}
		if l.CastModelType != c.cast || l.PatchFunctions != c.patch || is(l.KeepBatchnormFP32) != c.keep || is(l.MasterWeights) != c.master || l.LossScale != c.scale || l.Policy != c.policy {
			t.Errorf("%s %+v: got %+v", c.name, c.o, l)
		}
		if _, err := Parse(l.Policy); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name, want string
		o          LevelOptions
	}{
		{"02", `unexpected optimization level "02"; want O0, O1, O2 or O3`, LevelOptions{}},
		{"O1", "CastModelType is float16, want none", LevelOptions{CastModelType: dtype.Float16}},
		{"O2", "CastModelType is int32, want float16", LevelOptions{CastModelType: dtype.Int32}},
		{"O2", "PatchFunctions is true: that is level O1", LevelOptions{PatchFunctions: new(true)}},
		{"O1", "PatchFunctions is false", LevelOptions{PatchFunctions: new(false)}},
		{"O1", "KeepBatchnormFP32 is true, want nil", LevelOptions{KeepBatchnormFP32: new(true)}},
		{"O1", "MasterWeights is true, want nil", LevelOptions{MasterWeights: new(true)}},
		{"O2", "LossScale is -1, want a positive number", LevelOptions{LossScale: -1}},
		{"O2", "LossScale is 2 and Dynamic is true", LevelOptions{LossScale: 2, Dynamic: true}},
		{"O2", "MinLossScale is -1", LevelOptions{MinLossScale: -1}},
	} {
		if _, err := OptLevel(c.name, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: got error %v, want %s", c.name, c.o, err, c.want)
		}
	}
}
