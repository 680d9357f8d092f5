// Package policy has Keras's dtype policies: the element types that layers
// compute in and store their weights in.
//
// Under mixed_float16 and mixed_bfloat16 layers compute in 16 bits and store
// float32. [SetGlobal] sets the policy of layers that name none of their own,
// and [SetGlobalMap] the policies of parts of a model, by the paths of their layers. A
// layer resolves its policy once, when it is built. [Effective] describes what
// the default device does with each type.
//
// # Names
//
// Wherever a program gives a policy it gives the name, as in Keras: to
// [SetGlobal], in the field DType of a layer, to Model.Clone. A name is a
// string, so that configs and flags need no conversion; the constants, such as
// [MixedFloat16], spell those in common use. An unknown name panics in
// SetGlobal, where it was written, and is an error that names the layer
// elsewhere.
//
//	policy.SetGlobal(policy.MixedFloat16)
//	logits := &layers.Dense{Units: 10, DType: policy.Float32}
package policy

import (
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/suggest"
)

// Names of policies. Any float type is one, too.
const (
	Float32       = "float32"        // computes and stores in float32: the default
	Float64       = "float64"        // computes and stores in float64
	Float16       = "float16"        // computes and stores in float16
	BFloat16      = "bfloat16"       // computes and stores in bfloat16
	MixedFloat16  = "mixed_float16"  // computes in float16, stores float32, scales the loss
	MixedBFloat16 = "mixed_bfloat16" // computes in bfloat16, stores float32
	MixedFloat32  = "mixed_float32"  // computes in float32, stores float64; Keras has no such policy
	MixedFloat8   = "mixed_float8"   // mixed_bfloat16 with products of 8-bit floats in Dense and EinsumDense

	// MixedFloat8Adaptive is mixed_float8 with a format for each tensor that is chosen
	// while training, of E4M3, E5M2 and bfloat16. Keras has no such policy.
	MixedFloat8Adaptive = "mixed_float8_adaptive"
)

// Policy is a pair of element types (Keras: DTypePolicy). Policies are
// comparable with ==.
type Policy struct {
	Name     string
	Compute  dtype.DType // of activations, and of weights as layers read them
	Variable dtype.DType // of weights as they are stored and updated
	// Float8 makes Dense and EinsumDense multiply 8-bit floats (Keras: the
	// quantization mode "float8").
	Float8 bool
	// Adaptive makes layers with Float8 choose the format of each tensor while training.
	Adaptive bool
	// Auto is the 16-bit type that operations of float32 layers may compute in, or
	// Invalid: see the function Auto.
	Auto dtype.DType
	// Int8 makes Dense, EinsumDense and Embedding store their weights as 8-bit integers
	// with scales (Keras: QuantizedDTypePolicy with mode "int8"). Layers of this policy
	// only predict. Model.Quantize sets it.
	Int8 bool
	// Int8Static makes convolutions, depthwise ones too, store their kernels as 8-bit integers with
	// scales, and with a scale and a zero point of their input. Layers of this policy only
	// predict. Model.QuantizeStatic sets it. Keras has no such policy.
	Int8Static bool
}

// String returns the policy as Keras prints it: <DTypePolicy "mixed_float16">.
func (p Policy) String() string { return fmt.Sprintf("<DTypePolicy %q>", p.Name) }

// HasInt8 reports whether layers store 8-bit integers: Int8 or Int8Static.
func (p Policy) HasInt8() bool { return p.Int8 || p.Int8Static }

// Mixed reports whether the compute type is narrower than the variable type.
func (p Policy) Mixed() bool { return p.Compute.Size() < p.Variable.Size() }

// Parse returns the policy with that name. mixed_float16 and mixed_bfloat16
// compute in 16 bits with float32 variables, mixed_float32 in float32 with float64
// variables. A float type, such as float32 or bfloat16, is used for both. mixed_float8 is mixed_bfloat16 with 8-bit
// products in Dense and EinsumDense, and mixed_float8_adaptive chooses their formats. float8_from_P, Keras's form, adds 8-bit
// products to another policy P. int8_from_P is the policy of layers that Model.Quantize has
// quantized, and int8_static_from_P of convolutions that Model.QuantizeStatic has
// quantized; P computes in float32 or bfloat16. auto_float16 and auto_bfloat16 are the
// policies of Auto.
func Parse(name string) (Policy, error) {
	switch name {
	case "mixed_float16":
		return Policy{Name: name, Compute: dtype.Float16, Variable: dtype.Float32}, nil
	case "mixed_bfloat16":
		return Policy{Name: name, Compute: dtype.BFloat16, Variable: dtype.Float32}, nil
	case MixedFloat32:
		return Policy{Name: name, Compute: dtype.Float32, Variable: dtype.Float64}, nil
	case "mixed_float8":
		return Policy{Name: name, Compute: dtype.BFloat16, Variable: dtype.Float32, Float8: true}, nil
	case MixedFloat8Adaptive:
		return Policy{Name: name, Compute: dtype.BFloat16, Variable: dtype.Float32, Float8: true, Adaptive: true}, nil
	case AutoFloat16:
		return Policy{Name: name, Compute: dtype.Float32, Variable: dtype.Float32, Auto: dtype.Float16}, nil
	case AutoBFloat16:
		return Policy{Name: name, Compute: dtype.Float32, Variable: dtype.Float32, Auto: dtype.BFloat16}, nil
	}
	if source, ok := strings.CutPrefix(name, float8From); ok {
		p, err := Parse(source)
		if err != nil || p.Float8 || p.Auto != dtype.Invalid {
			return Policy{}, fmt.Errorf("policy: unknown policy %q; want one such as float8_from_mixed_bfloat16", name)
		}
		p.Name, p.Float8 = name, true
		return p, nil
	}
	for _, form := range []string{int8From, int8StaticFrom} {
		if source, ok := strings.CutPrefix(name, form); ok {
			p, err := Parse(source)
			if err != nil {
				return Policy{}, fmt.Errorf("policy: unknown policy %q; want one such as %sfloat32", name, form)
			}
			return p.quantized(form)
		}
	}
	d, err := dtype.Parse(name)
	if err != nil || !d.IsFloat() {
		return Policy{}, fmt.Errorf("policy: unknown policy %q; %swant mixed_float16, mixed_bfloat16, mixed_float32, mixed_float8, auto_float16, auto_bfloat16 or a float type such as float32", name, suggest.Meant(name, known))
	}
	return Policy{Name: name, Compute: d, Variable: d}, nil
}

// known are the policies that Parse names first.
var known = []string{"mixed_float16", "mixed_bfloat16", "mixed_float32", "mixed_float8", "auto_float16", "auto_bfloat16", "float32", "float16", "bfloat16", "float64"}

const (
	float8From = "float8_from_"
	int8From   = "int8_from_"

	int8StaticFrom = "int8_static_from_"
)

// Quantized returns the policy of a layer of policy p whose weights are quantized to int8:
// int8_from_P. As in Keras it is an error for compute type float16, whose products with
// scales overflow. It is one for float64 and for policies that are automatic or have
// 8-bit products, too.
func (p Policy) Quantized() (Policy, error) { return p.quantized(int8From) }

// QuantizedStatic returns the policy of a convolution of policy p that is quantized to int8
// statically: int8_static_from_P. It is an error where Quantized returns one.
func (p Policy) QuantizedStatic() (Policy, error) { return p.quantized(int8StaticFrom) }

func (p Policy) quantized(form string) (Policy, error) {
	switch {
	case p.HasInt8():
		return Policy{}, fmt.Errorf("policy: %s is quantized already", p.Name)
	case p.Float8 || p.Auto != dtype.Invalid:
		return Policy{}, fmt.Errorf("policy: there is no int8 form of %s; want float32, mixed_bfloat16 or bfloat16", p.Name)
	case p.Compute != dtype.Float32 && p.Compute != dtype.BFloat16:
		return Policy{}, fmt.Errorf("policy: int8 does not work well with compute type %v of %s; want float32, mixed_bfloat16 or bfloat16", p.Compute, p.Name)
	case p.Variable == dtype.Float64:
		return Policy{}, fmt.Errorf("policy: there is no int8 form of %s, whose scales would be float64; want float32, mixed_bfloat16 or bfloat16", p.Name)
	}
	p.Name, p.Int8, p.Int8Static = form+p.Name, form == int8From, form == int8StaticFrom
	return p, nil
}

// Source returns the name of the policy as Keras writes it in files: without 8-bit
// products and weights, and float32 for an automatic one.
func (p Policy) Source() string {
	switch {
	case p.Auto != dtype.Invalid:
		return Float32
	case p.HasInt8():
		return strings.TrimPrefix(strings.TrimPrefix(p.Name, int8From), int8StaticFrom)
	case !p.Float8:
		return p.Name
	case p.Name == "mixed_float8" || p.Adaptive:
		return "mixed_bfloat16"
	}
	return strings.TrimPrefix(p.Name, float8From)
}

var global = struct {
	sync.RWMutex
	policy Policy
	byPath Map
	parsed *compiled // byPath; nil: none
}{policy: Policy{Name: "float32", Compute: dtype.Float32, Variable: dtype.Float32}}

// Global returns the global policy; "float32" until SetGlobal, unless an environment
// variable says otherwise (see Auto).
func Global() Policy {
	global.RLock()
	defer global.RUnlock()
	p, err := fromEnvironment().under(global.policy)
	if err != nil {
		panic(err)
	}
	return p
}

// SetGlobal sets the global policy and returns the name of the previous one.
// It panics on an unknown name, and on one that contradicts the environment (see Auto).
// Tests restore it with
//
//	defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
func SetGlobal(name string) (previous string) {
	p, err := Parse(name)
	if err != nil {
		panic(err)
	}
	if p, err = fromEnvironment().under(p); err != nil {
		panic(err)
	}
	global.Lock()
	defer global.Unlock()
	previous, global.policy = global.policy.Name, p
	return previous
}

// SetGlobalMap sets policies by path, which have precedence over the global one. It
// returns the previous map; nil removes the map. It panics where Map.Check returns an
// error. A layer reads the map when it is built: one of a functional model has no path
// of a model around it then, which Model.CloneUnder knows.
func SetGlobalMap(byPath Map) (previous Map) {
	parsed, err := byPath.compile()
	if err != nil {
		panic(err)
	}
	global.Lock()
	defer global.Unlock()
	previous, global.byPath, global.parsed = global.byPath, maps.Clone(byPath), parsed
	if byPath == nil {
		global.parsed = nil
	}
	return previous
}

// For returns the policy of a layer: the named one, or if name is "", the one
// in the global map for its path, or else the global policy.
func For(path, name string) (Policy, error) { return Under(Global(), path, name) }

// Under is For with the policy general in place of the global one.
func Under(general Policy, path, name string) (Policy, error) {
	if name != "" {
		return Parse(name)
	}
	p, ok, err := GlobalMap(path)
	if !ok {
		p = general
	}
	return p, err
}

// GlobalMap returns the policy that SetGlobalMap has set for the layer at path, and
// whether it has: see Map.For.
func GlobalMap(path string) (p Policy, ok bool, err error) { return globalMap().find(path) }

// GlobalMapAt is GlobalMap without the keys of what path is part of: see Map.At.
func GlobalMapAt(path string) (p Policy, ok bool, err error) {
	return globalMap().at(strings.Trim(path, "/"))
}

func globalMap() *compiled {
	global.RLock()
	defer global.RUnlock()
	return global.parsed
}
