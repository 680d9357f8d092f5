package policy

import (
	"fmt"
	"os"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Names of policies that choose by themselves what computes in 16 bits: see Auto.
const (
	AutoFloat16  = "auto_float16"
	AutoBFloat16 = "auto_bfloat16"
)

// Auto returns the name of the policy under which float32 layers compute in d, float16
// or bfloat16, where that is safe and faster (TensorFlow: auto_mixed_precision; PyTorch:
// torch.autocast). The types of layers, their weights and files stay float32. Which
// operations a step computes in 16 bits is decided when the step is compiled: see
// tensor.Autocast. With float16 the loss is scaled, as under mixed_float16. A layer whose
// field DType names a policy keeps that policy. Auto panics on other types.
//
// The environment variable MEZZO_AUTO_MIXED_PRECISION=float16 (or bfloat16) makes it
// the global policy of a program that sets none or float32, as do TensorFlow's
// TF_ENABLE_AUTO_MIXED_PRECISION=1 and TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE=1
// for float16.
func Auto(d dtype.DType) string {
	switch d {
	case dtype.Float16:
		return AutoFloat16
	case dtype.BFloat16:
		return AutoBFloat16
	}
	panic(fmt.Errorf("policy: Auto: got %v, want float16 or bfloat16", d))
}

// environment is the policy that environment variables ask for.
type environment struct {
	variable string // "" for none
	policy   Policy
	err      error
}

var fromEnvironment = sync.OnceValue(func() environment { return readEnvironment(os.Getenv) })

func readEnvironment(get func(string) string) environment {
	const own = "MEZZO_AUTO_MIXED_PRECISION"
	switch v := get(own); v {
	case "", "0":
	case "float16", "bfloat16":
		p, err := Parse("auto_" + v)
		return environment{own, p, err}
	default:
		return environment{variable: own, err: fmt.Errorf("policy: %s is %q, want float16 or bfloat16", own, v)}
	}
	for _, name := range []string{"TF_ENABLE_AUTO_MIXED_PRECISION", "TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE"} {
		if v := get(name); v == "1" || v == "true" {
			p, err := Parse(AutoFloat16)
			return environment{name, p, err}
		}
	}
	return environment{}
}

// under is p as the environment has it: float32 becomes automatic, and only one kind of
// mixed precision can be used.
func (e environment) under(p Policy) (Policy, error) {
	switch {
	case e.err != nil:
		return p, e.err
	case e.variable == "" || p.Auto != dtype.Invalid || p.Compute == dtype.Float64:
		return p, nil
	case p.Name == Float32:
		return e.policy, nil
	}
	return p, fmt.Errorf("policy: %s is set, and the global policy is to be %s: only one kind of mixed precision can be used", e.variable, p.Name)
}

// EnvironmentText says which environment variable sets the policy, "" if none does.
func EnvironmentText() string {
	e := fromEnvironment()
	if e.variable == "" || Global().Auto == dtype.Invalid {
		return ""
	}
	return fmt.Sprintf("%s: float32 layers compute in %v where that is safe (policy %s)", e.variable, Global().Auto, Global().Name)
}
