package layers_test

import (
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

const golden = "../keras/testdata/golden/"

// TestKeras compares layers with Keras.
func TestKeras(t *testing.T) {
	for _, name := range []string{"layers.json", "conv.json", "layers2.json", "rnn.json", "steps.json"} {
		t.Run(name, func(t *testing.T) { layertest.Keras(t, golden+name) })
	}
}

// TestTrained: every class with weights that training moves is in steps.json.
func TestTrained(t *testing.T) { layertest.Trained(t, golden+"steps.json", everyLayer()) }
