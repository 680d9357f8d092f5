package saving

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/layers/callspec"
)

// activationLayers are the layers that Keras keeps in place of an activation's
// name where it has arguments, by that name.
var activationLayers = map[string]string{"relu": "ReLU", "leaky_relu": "LeakyReLU", "elu": "ELU", "softmax": "Softmax"}

// isActivation reports whether a field names an activation.
func isActivation(field string) bool { return strings.HasSuffix(field, "activation") }

// activationDefaults are the arguments that other activations of Keras take, with
// Keras's defaults. Its configs have only their names.
var activationDefaults = map[string]any{
	"gelu": false, "celu": 1.0, "glu": -1.0, "log_softmax": -1.0, "sparsemax": -1.0, "squareplus": 4.0, "hard_shrink": 0.5, "soft_shrink": 0.5,
}

// activationOperations are the activations that Keras's layers take with arguments as
// operations of keras.ops, objects of the module activationModule.
var activationOperations = map[string]string{
	"gelu": "Gelu", "celu": "Celu", "glu": "Glu", "log_softmax": "LogSoftmax", "sparsemax": "Sparsemax", "squareplus": "Squareplus",
	"hard_shrink": "HardShrink", "soft_shrink": "SoftShrink", "threshold": "Threshold", "leaky_relu": "LeakyRelu", "elu": "Elu",
}

const activationModule = "keras.src.ops.nn"

// activationOperation is the operation of keras.ops that s is, or s itself, which Keras
// refuses, if there is none.
func activationOperation(s callspec.Spec) (any, error) {
	class := activationOperations[s.Name]
	if class == "" {
		return s.String(), nil
	}
	o, err := objectOf(activationModule, class, s)
	if err != nil {
		return nil, err
	}
	o.RegisteredName = class
	return o, nil
}

// operationText turns an operation of keras.ops that is an activation into its name with
// arguments.
func operationText(o *object) string {
	c := *o
	c.Config = maps.Clone(o.Config)
	delete(c.Config, "name")
	if c.Class == "Gelu" && c.Config["approximate"] == nil {
		c.Config["approximate"] = true // the operation's default, which is not the activation's
	}
	return specOf(&c)
}

// activationObject turns "leaky_relu(negative_slope=0.4)" into the layer that
// Keras loads in its place, with the policy dtype of the layer around it; ""
// leaves the choice to Keras. A name without arguments, or with Keras's
// defaults, stays a name. What Keras has no layer for is an operation of keras.ops.
func activationObject(text, dtype string) (any, error) {
	s, err := callspec.Parse(text)
	if err != nil {
		return nil, err
	}
	if len(s.Args) == 0 {
		return s.Name, nil
	}
	class := activationLayers[s.Name]
	if class == "" {
		if d, ok := activationDefaults[s.Name]; ok && len(s.Args) == 1 {
			x, isNumber := number(s.Args[0].Value)
			if isNumber && d == x || s.Args[0].Value == d {
				return s.Name, nil
			}
		}
		return activationOperation(s)
	}
	made, err := objectOf("keras.layers", class, s)
	if err != nil {
		return nil, err
	}
	for name, v := range made.Config {
		if x, isNumber := number(v); isNumber && x < 0 && name != "axis" {
			return activationOperation(s) // Keras's layer refuses it
		}
	}
	if dtype != "" {
		made.Config["dtype"] = policyObject(dtype)
	}
	return made, nil
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// activationText turns a layer that Keras keeps in place of an activation's
// name into that name with arguments. Its policy must be that of the layer
// around it, whose dtype is around.
func activationText(o *object, around any) (string, error) {
	var s callspec.Spec
	for name, class := range activationLayers {
		if class == o.Class {
			s.Name = name
		}
	}
	settings := []string{"name", "trainable", "dtype"} // that are no arguments
	switch o.Class {
	case "Activation":
		s.Name, _ = o.Config["activation"].(string)
		settings = append(settings, "activation")
	case "Identity":
		s.Name = "linear"
	}
	if s.Name == "" {
		return "", fmt.Errorf("got a layer %s, want the name of an activation, one of the layers %q, an Activation of a name or an Identity", o.Class, slices.Sorted(maps.Values(activationLayers)))
	}
	own, err := policyOf(o.Config["dtype"])
	if err != nil {
		return "", fmt.Errorf("%s: dtype: %w", o.Class, err)
	}
	outer, err := policyOf(around)
	outer = source(outer) // an activation has no quantized form
	if err == nil && own != "" && outer != "" && own != outer {
		return "", fmt.Errorf("got a layer %s of policy %s in one of %s, want one policy", o.Class, own, outer)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Config)) {
		if v := o.Config[name]; v != nil && !slices.Contains(settings, name) {
			s.Args = append(s.Args, callspec.Arg{Name: name, Value: argument(v)})
		}
	}
	return s.String(), nil
}
