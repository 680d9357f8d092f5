package doctor

import (
	"encoding/json"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
)

// FuzzBundle: whatever a file says of its step, reading it is an error or a batch.
func FuzzBundle(f *testing.F) {
	f.Add([]byte(`{"structure":[1,1,0],"values":[{"id":"in/Param#0","dtype":"float32","shape":[2],"sum":"ff"}]}`))
	f.Add([]byte(`{"structure":[-3,0,0]}`))
	f.Add([]byte(`{"structure":[-4611686018427387904,1,1]}`))
	f.Fuzz(func(t *testing.T, meta []byte) {
		if !json.Valid(meta) {
			return
		}
		array := keras.Array{Name: "argument 0", Type: op.Type{DType: dtype.Float32, Shape: op.Shape{2}}, Data: make([]byte, 8)}
		b, err := decodeBundle(&checkpoint.File{Meta: meta, Parts: []checkpoint.Part{{Name: "variables"}, {Name: "arguments", Arrays: []keras.Array{array, array}}}})
		if err != nil {
			return
		}
		in, err := b.Batch()
		if err != nil {
			return
		}
		n := 0
		for _, p := range []*keras.Tensor{in.X, in.Y, in.Weight} {
			if p != nil {
				n += len(p.Unpack())
			}
		}
		if n != 2 {
			t.Errorf("%s: got a batch of %d tensors from 2", meta, n)
		}
	})
}
