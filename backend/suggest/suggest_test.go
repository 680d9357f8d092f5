package suggest

import "testing"

func TestMeant(t *testing.T) {
	losses := []string{"BCE", "BinaryCrossentropy", "CategoricalCrossentropy", "Huber", "SparseCategoricalCrossentropy",
		"bce", "binary_crossentropy", "categorical_crossentropy", "huber", "mean_squared_error", "mse", "sparse_categorical_crossentropy"}
	optimizers := []string{"Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lamb", "Lion", "Muon", "Nadam", "RMSprop", "SGD"}
	activations := []string{"celu", "elu", "gelu", "leaky_relu", "relu", "relu6", "selu", "sigmoid", "softmax", "tanh"}
	initializers := []string{"glorot_normal", "glorot_uniform", "he_normal", "zeros"}
	policies := []string{"mixed_float16", "mixed_bfloat16", "mixed_float8", "float16", "float32", "float64", "bfloat16"}
	for _, c := range []struct {
		name string
		have []string
		want string
	}{
		{"sparse_crossentropy", losses, `did you mean "sparse_categorical_crossentropy"? `},
		{"SparseCrossentropy", losses, `did you mean "SparseCategoricalCrossentropy"? `},
		{"cross_entropy", losses, `did you mean "binary_crossentropy", "categorical_crossentropy" or "sparse_categorical_crossentropy"? `},
		{"mean_square_error", losses, `did you mean "mean_squared_error"? `},
		{"msee", losses, `did you mean "mse"? `},
		{"hubert", losses, `did you mean "huber"? `},
		{"rmsprob", optimizers, `did you mean "RMSprop"? `},
		{"sdg", optimizers, `did you mean "SGD"? `},
		{"adm", optimizers, `did you mean "Adam"? `},
		{"rleu", activations, `did you mean "relu"? `},
		{"ReLU", activations, `did you mean "relu"? `},
		{"glorot", initializers, `did you mean "glorot_normal" or "glorot_uniform"? `},
		{"float8", policies, `did you mean "mixed_float8"? `},
		{"mixed_fp16", policies, `did you mean "mixed_float16"? `},
		{"tf32", policies, `did you mean "float32"? `},
		{"nothing_like_it", optimizers, ""},
		{"", optimizers, ""},
		{"relu", nil, ""},
		{"größe", []string{"grösse", "weite"}, `did you mean "grösse"? `},
	} {
		if got := Meant(c.name, c.have); got != c.want {
			t.Errorf("%q: got %s, want %s", c.name, got, c.want)
		}
	}
	want := `unknown optimizer "adm"; did you mean "Adam"? have Adam, SGD`
	if err := Unknown("optimizer", "adm", []string{"Adam", "SGD"}); err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	want = `unknown optimizer "zzz"; have Adam, SGD`
	if err := Unknown("optimizer", "zzz", []string{"Adam", "SGD"}); err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
