package serving

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// parsers returns versions with fixed and free shapes, one and two inputs.
func parsers(t testing.TB) (all []*version) {
	in := keras.Named("x", keras.Input(keras.Unknown))
	free, err := keras.NewModel(in, keras.Apply(&layers.Activation{Activation: "relu"}, in))
	if err != nil {
		t.Fatal(err)
	}
	o, err := Options{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*keras.Model{dense(t, 0), twoInputs(t), free} {
		v, err := newVersion("m", 1, m, o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// checkParsed: tensors of a body take no more than four times its memory, and
// those that fit the model have the bytes of their shapes.
func checkParsed(t *testing.T, v *version, body []byte, in []Tensor) {
	total := 0
	for _, x := range in {
		total += len(x.Data)
	}
	if total > 4*len(body) {
		t.Errorf("%d bytes of tensors from %d", total, len(body))
	}
	in, err := v.arrange(in)
	if err != nil {
		return
	}
	for i, x := range in {
		if len(x.Data) != x.Shape.Size()*v.in[i].DType.Size() {
			t.Errorf("%d bytes for %v", len(x.Data), x.Shape)
		}
	}
}

// FuzzTF: no body makes the parser of TensorFlow Serving's requests panic.
func FuzzTF(f *testing.F) {
	for _, seed := range []string{
		`{"instances":[[1,2,3],[4,5,6]]}`, `{"signature_name":"serving_default","inputs":[[1,2.5e-1,NaN]]}`,
		`{"instances":[{"word":1,"numbers":[1,2]}]}`, `{"inputs":{"word":[1],"numbers":[[1,-Infinity]]}}`, `{"a":[{"b":null},true,false,"\u00e9"]}`,
	} {
		f.Add([]byte(seed))
	}
	all := parsers(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, v := range all {
			in, _, err := parseTF(v, body)
			if err != nil {
				continue
			}
			checkParsed(t, v, body, in)
			finite := !bytes.Contains(body, []byte("NaN")) && !bytes.Contains(body, []byte("Infinity"))
			if finite && !json.Valid(body) {
				t.Error("this is no JSON")
			}
		}
	})
}

// FuzzOIP: no body makes the parser of the Open Inference Protocol's requests
// panic, and what it takes is JSON.
func FuzzOIP(f *testing.F) {
	for _, seed := range []string{
		`{"id":"1","inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`,
		`{"parameters":{"binary_data_output":true},"inputs":[{"name":"word","shape":[1],"datatype":"INT32","data":[1]},{"name":"numbers","shape":[1,2],"datatype":"FP32","data":[[1,2]]}]}`,
		`{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}abcd`,
	} {
		f.Add([]byte(seed), bytes.LastIndexByte([]byte(seed), '}')+1)
	}
	all := parsers(f)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		n = max(0, min(n, len(body)))
		for _, v := range all {
			q, err := parseOIP(v, body, n)
			if err != nil {
				continue
			}
			var in []Tensor
			for _, i := range q.inputs {
				in = append(in, i.tensor)
			}
			checkParsed(t, v, body, in)
			if !json.Valid(body[:n]) {
				t.Error("this is no JSON")
			}
		}
	})
}
