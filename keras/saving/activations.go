package saving

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/layers/spec"
)

// activationLayers are the layers that Keras keeps in place of an activation's
// name where it has arguments, by that name.
var activationLayers = map[string]string{"relu": "ReLU", "leaky_relu": "LeakyReLU", "elu": "ELU", "softmax": "Softmax"}

// isActivation reports whether a field names an activation.
func isActivation(field string) bool { return strings.HasSuffix(field, "activation") }

// activationObject turns "leaky_relu(negative_slope=0.4)" into the layer that
// Keras loads in its place, with the policy dtype of the layer around it; ""
// leaves the choice to Keras. A name without arguments stays one.
func activationObject(text, dtype string) (any, error) {
	s, err := spec.Parse(text)
	if err != nil {
		return nil, err
	}
	if len(s.Args) == 0 {
		return s.Name, nil
	}
	class := activationLayers[s.Name]
	if class == "" {
		return nil, fmt.Errorf("got %s; Keras keeps no arguments of this activation, only those of %q. Leave them out, or save weights with SaveWeights and make the model in Go",
			s, slices.Sorted(maps.Keys(activationLayers)))
	}
	made, err := objectOf("keras.layers", class, s)
	if err != nil {
		return nil, err
	}
	for name, v := range made.Config {
		if x, isNumber := number(v); isNumber && x < 0 && name != "axis" {
			return nil, fmt.Errorf("got %s; Keras's layer %s, which stands for it in files, has %s 0 or more", s, class, name)
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
	var s spec.Spec
	for name, class := range activationLayers {
		if class == o.Class {
			s.Name = name
		}
	}
	if s.Name == "" {
		return "", fmt.Errorf("got a layer %s, want the name of an activation or one of the layers %q", o.Class, slices.Sorted(maps.Values(activationLayers)))
	}
	own, err := policyOf(o.Config["dtype"])
	if err != nil {
		return "", fmt.Errorf("%s: dtype: %w", o.Class, err)
	}
	if outer, err := policyOf(around); err == nil && own != "" && outer != "" && own != outer {
		return "", fmt.Errorf("got a layer %s of policy %s in one of %s, want one policy", o.Class, own, outer)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Config)) {
		if v := o.Config[name]; v != nil && !slices.Contains([]string{"name", "trainable", "dtype"}, name) {
			s.Args = append(s.Args, spec.Arg{Name: name, Value: argument(v)})
		}
	}
	return s.String(), nil
}
