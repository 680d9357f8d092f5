// Package policy says in which element types layers compute and store: a
// [Policy] has a compute type and a variable type, and a name.
//
// The global policy holds for layers that name none of their own; a layer
// resolves it once, when it is built. [SetGlobalMap] gives other policies to
// parts of a model by the paths of their layers.
//
// Rules: an unknown name stops the program at SetGlobal, where it was written,
// and is an error naming the layer elsewhere.
package policy

import (
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Policy is a pair of element types (Keras: DTypePolicy). Policies compare
// with ==.
type Policy struct {
	Name     string
	Compute  dtype.DType // of activations, and of weights as layers read them
	Variable dtype.DType // of weights as they are stored and updated
}

// String prints the policy as Keras does: <DTypePolicy "mixed_float16">.
func (p Policy) String() string { return fmt.Sprintf("<DTypePolicy %q>", p.Name) }

// Mixed reports whether the compute type is narrower than the variable type.
func (p Policy) Mixed() bool { return p.Compute.Size() < p.Variable.Size() }

// Parse returns the policy of a name: mixed_float16 and mixed_bfloat16 compute
// in 16 bits over float32 variables; a float type such as float32 or bfloat16
// is used for both.
func Parse(name string) (Policy, error) {
	switch name {
	case "mixed_float16":
		return Policy{name, dtype.Float16, dtype.Float32}, nil
	case "mixed_bfloat16":
		return Policy{name, dtype.BFloat16, dtype.Float32}, nil
	}
	d, err := dtype.Parse(name)
	if err != nil || !d.IsFloat() {
		return Policy{}, fmt.Errorf("policy: unknown policy %q; want mixed_float16, mixed_bfloat16 or a float type such as float32", name)
	}
	return Policy{name, d, d}, nil
}

var global = struct {
	sync.RWMutex
	policy Policy
	byPath map[string]Policy
}{policy: Policy{"float32", dtype.Float32, dtype.Float32}}

// Global returns the global policy; "float32" until SetGlobal.
func Global() Policy {
	global.RLock()
	defer global.RUnlock()
	return global.policy
}

// SetGlobal sets the global policy and returns the name of the one before. It
// panics on an unknown name, because no program should go on without noticing.
// Tests restore it with
//
//	defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
func SetGlobal(name string) (previous string) {
	p, err := Parse(name)
	if err != nil {
		panic(err)
	}
	global.Lock()
	defer global.Unlock()
	previous, global.policy = global.policy.Name, p
	return previous
}

// SetGlobalMap gives the layers at some paths policies of their own, over the
// global one: a key names a layer ("dense_1") or a model within a model
// ("encoder", which holds for "encoder/dense" too); the longest key that
// matches wins. It returns the map before; nil means none. It panics on an
// unknown policy name.
func SetGlobalMap(byPath map[string]string) (previous map[string]string) {
	parsed := make(map[string]Policy, len(byPath))
	for path, name := range byPath {
		p, err := Parse(name)
		if err != nil {
			panic(fmt.Errorf("%w, for the layers at %q", err, path))
		}
		parsed[strings.Trim(path, "/")] = p
	}
	global.Lock()
	defer global.Unlock()
	if global.byPath != nil {
		previous = make(map[string]string, len(global.byPath))
		for path, p := range maps.All(global.byPath) {
			previous[path] = p.Name
		}
	}
	global.byPath = parsed
	if byPath == nil {
		global.byPath = nil
	}
	return previous
}

// For returns the policy of a layer: the one name names, or when name is "",
// what the global map has for its path, or else the global policy.
func For(path, name string) (Policy, error) { return Under(Global(), path, name) }

// Under is For where general holds in place of the global policy.
func Under(general Policy, path, name string) (Policy, error) {
	if name != "" {
		return Parse(name)
	}
	global.RLock()
	defer global.RUnlock()
	for at := strings.Trim(path, "/"); at != "" && global.byPath != nil; {
		if p, ok := global.byPath[at]; ok {
			return p, nil
		}
		at = at[:max(strings.LastIndexByte(at, '/'), 0)]
	}
	return general, nil
}
