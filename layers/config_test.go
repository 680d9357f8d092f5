package layers_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

func TestMarshalConfig(t *testing.T) {
	l := &layers.Dense{Units: 3, Activation: "relu", UseBias: new(false), KernelRegularizer: "l2(0.1)"}
	unbuilt := `{"class_name":"Dense","config":{"activation":"relu","activity_regularizer":null,"bias_constraint":null,` +
		`"bias_initializer":"zeros","bias_regularizer":null,"dtype":null,"kernel_constraint":null,` +
		`"kernel_initializer":"glorot_uniform","kernel_regularizer":"l2(0.1)","name":null,"trainable":true,"units":3,"use_bias":false}}`
	if got, err := layers.MarshalConfig(l); err != nil || string(got) != unbuilt {
		t.Errorf("got %s, %v\nwant %s", got, err, unbuilt)
	}
	layers.Apply(l, layers.Pass{}, tensor.Placeholder(dtype.Float32, -1, 2))
	l.SetTrainable(false)
	data, err := layers.MarshalConfig(l)
	if err != nil {
		t.Fatal(err)
	}
	back, err := layers.UnmarshalConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	d := back.(*layers.Dense)
	if d.Units != 3 || d.Activation != "relu" || *d.UseBias || d.KernelInitializer != "glorot_uniform" ||
		d.Name != "dense" || d.DType != "float32" || d.Trainable() {
		t.Errorf("got %+v from %s, want the fields of the layer, its name, policy and frozen state", d, data)
	}
	if l.KernelInitializer != "" {
		t.Errorf("MarshalConfig set KernelInitializer to %q, want the layer as it was", l.KernelInitializer)
	}
}

func TestUnmarshalConfigErrors(t *testing.T) {
	for config, want := range map[string]string{
		`{"class_name":"Dence","config":{}}`:                           `layers: unknown class "Dence"; did you mean "Dense"? have Activation, `,
		`{"class_name":"Add","config":{"unitz":3}}`:                    `layers: Add: unknown field "unitz"; have dtype, name, trainable`,
		`{"class_name":"Dense","config":{"units":"x"}}`:                `layers: Dense: field "units": got "x", want int`,
		`{"class_name":"Dense","config":{"use_bias":1}}`:               `layers: Dense: field "use_bias": got 1, want bool`,
		`{"class_name":"LayerNormalization","config":{"axis":[1,{}]}}`: `layers: LayerNormalization: field "axis": got [1,{}], want int`,
		`[`: `layers: config: unexpected end of JSON input`,
	} {
		_, err := layers.UnmarshalConfig([]byte(config))
		if err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("%s: got error %v, want %s", config, err, want)
		}
	}
	// An axis is one number or several.
	for _, axis := range []string{"1", "[1]"} {
		l, err := layers.UnmarshalConfig([]byte(`{"class_name":"LayerNormalization","config":{"axis":` + axis + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := l.(*layers.LayerNormalization).Axis; len(got) != 1 || got[0] != 1 {
			t.Errorf("axis %s: got %v, want [1]", axis, got)
		}
	}
}

func TestRegisterTwice(t *testing.T) {
	defer func() {
		if got, want := recover(), "layers: Register called twice for class Dense"; got != want {
			t.Errorf("got panic %v, want %s", got, want)
		}
	}()
	layers.Register("Dense", func() layers.Layer { return &layers.Dense{} })
}
