package policy

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Level is one of the optimization levels of NVIDIA's Apex (apex.amp, opt_level) with
// its properties. OptLevel makes it.
type Level struct {
	Name               string      // "O0" to "O3"
	CastModelType      dtype.DType // of the model's layers; Invalid for O1, which casts operations
	PatchFunctions     bool        // operations are cast one by one (patch_torch_functions): policy.Auto
	KeepBatchnormFP32  *bool       // nil for O0 and O1; normalization computes in float32 here whatever it is
	MasterWeights      *bool       // nil for O1: whether float32 weights are kept beside 16-bit ones
	LossScale          float64     // 0: dynamic
	MinScale, MaxScale float64     // of a dynamic scale; 0: the defaults 1 and 2^24
	Policy             string      // for SetGlobal: what the properties come to
}

// LevelOptions override properties of a level, as the arguments of amp.initialize. The
// zero value overrides none.
type LevelOptions struct {
	CastModelType              dtype.DType // Float16, BFloat16 or Float32
	PatchFunctions             *bool
	KeepBatchnormFP32          *bool
	MasterWeights              *bool
	LossScale                  float64 // a fixed scale; with Dynamic 0
	Dynamic                    bool
	MinLossScale, MaxLossScale float64
}

// OptLevel returns the level of that name with some properties overridden:
//
//	     cast model type  patch functions  batchnorm  master weights  loss scale
//	O0   float32          no               –          no              1
//	O1   –                yes              –          –               dynamic
//	O2   float16          no               float32    yes             dynamic
//	O3   float16          no               –          no              1
//
// Policies are float32, auto_float16, mixed_float16 and float16. It returns an error
// for another name and for properties that contradict the level, as Apex does.
func OptLevel(name string, o LevelOptions) (Level, error) {
	yes, no := new(true), new(false)
	l := Level{Name: name}
	switch name {
	case "O0":
		l.CastModelType, l.MasterWeights, l.LossScale = dtype.Float32, no, 1
	case "O1":
		l.PatchFunctions = true
	case "O2":
		l.CastModelType, l.KeepBatchnormFP32, l.MasterWeights = dtype.Float16, yes, yes
	case "O3":
		l.CastModelType, l.KeepBatchnormFP32, l.MasterWeights, l.LossScale = dtype.Float16, no, no, 1
	default:
		return Level{}, fmt.Errorf("policy: unexpected optimization level %q; want O0, O1, O2 or O3 (with the letter O)", name)
	}
	fail := func(format string, args ...any) (Level, error) {
		return Level{}, fmt.Errorf("policy: level "+name+": "+format, args...)
	}
	if d := o.CastModelType; d != dtype.Invalid {
		switch {
		case name == "O1":
			return fail("CastModelType is %v, want none: operations are cast, and the model's weights stay float32; to cast the model use O2 or O3", d)
		case d != dtype.Float32 && !d.Is16():
			return fail("CastModelType is %v, want float16, bfloat16 or float32", d)
		}
		l.CastModelType = d
	}
	if p := o.PatchFunctions; p != nil && *p != l.PatchFunctions {
		if *p {
			return fail("PatchFunctions is true: that is level O1")
		}
		return fail("PatchFunctions is false: only the levels O0, O2 and O3 leave functions alone")
	}
	if o.KeepBatchnormFP32 != nil {
		if name == "O1" {
			return fail("KeepBatchnormFP32 is %v, want nil: normalization computes in float32 anyway", *o.KeepBatchnormFP32)
		}
		l.KeepBatchnormFP32 = o.KeepBatchnormFP32
	}
	if o.MasterWeights != nil {
		if name == "O1" {
			return fail("MasterWeights is %v, want nil: the model's weights are float32", *o.MasterWeights)
		}
		l.MasterWeights = o.MasterWeights
	}
	switch {
	case o.Dynamic && o.LossScale != 0:
		return fail("LossScale is %v and Dynamic is true, want one of them", o.LossScale)
	case o.Dynamic:
		l.LossScale = 0
	case o.LossScale != 0:
		if !(o.LossScale > 0) {
			return fail("LossScale is %v, want a positive number", o.LossScale)
		}
		l.LossScale = o.LossScale
	}
	if o.MinLossScale < 0 || o.MaxLossScale < 0 {
		return fail("MinLossScale is %v and MaxLossScale %v, want positive numbers", o.MinLossScale, o.MaxLossScale)
	}
	l.MinScale, l.MaxScale = o.MinLossScale, o.MaxLossScale
	switch {
	case l.PatchFunctions:
		l.Policy = AutoFloat16
	case !l.CastModelType.Is16():
		l.Policy = Float32
	case *l.MasterWeights:
		l.Policy = "mixed_" + l.CastModelType.String()
	default:
		l.Policy = l.CastModelType.String()
	}
	return l, nil
}
