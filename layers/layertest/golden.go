package layertest

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
)

// FromCase returns the layer of a case, made from its JSON form.
func FromCase(t *testing.T, c *tensortest.Case) (l layers.Layer, training bool) {
	t.Helper()
	config := map[string]any{"dtype": c.Policy}
	for k, v := range c.Config {
		switch k {
		case "class_name", "note":
		case "training":
			training = string(v) == "true"
		default:
			config[k] = v
		}
	}
	data, err := json.Marshal(map[string]any{"class_name": c.Class(), "config": config})
	if err != nil {
		t.Fatal(err)
	}
	l, err = layers.UnmarshalConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	return l, training
}

// Inputs returns the inputs of a case, rounded to d.
func Inputs(c *tensortest.Case, d dtype.DType) *tensor.Tensor {
	if x, ok := c.Inputs["x"]; ok {
		return x.As(d).As(dtype.Float32).Tensor()
	}
	var parts []*tensor.Tensor
	for i := 0; ; i++ {
		x, ok := c.Inputs[fmt.Sprintf("x%d", i)]
		if !ok {
			return tensor.Tuple(parts...)
		}
		parts = append(parts, x.As(d).As(dtype.Float32).Tensor())
	}
}

// Symbols returns placeholders of the types of x.
func Symbols(x *tensor.Tensor) *tensor.Tensor {
	var parts []*tensor.Tensor
	for _, p := range x.Unpack() {
		parts = append(parts, tensor.Placeholder(p.DType(), p.Shape()...))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return tensor.Tuple(parts...)
}

// Function returns a compiled call of l.
func Function(l layers.Layer, training bool) *tensor.Func[*tensor.Tensor, *tensor.Tensor] {
	return tensor.Function(func(x *tensor.Tensor) *tensor.Tensor {
		return layers.Apply(l, layers.Pass{Training: training}, x)
	}, layers.BaseOf(l))
}
