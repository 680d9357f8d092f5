package serving

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// dense returns a model with 3 inputs and 2 outputs, y = x·kernel + shift with
// kernel [[1 0] [0 1] [1 1]].
func dense(t testing.TB, shift float32) *keras.Model {
	t.Helper()
	in := keras.Named("x", keras.Input(3))
	m, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 2, Name: "y"}, in))
	if err != nil {
		t.Fatal(err)
	}
	err = m.SetWeights([]*keras.Tensor{
		keras.NewTensor([]float32{1, 0, 0, 1, 1, 1}, 3, 2),
		keras.NewTensor([]float32{shift, shift}, 2),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// twoInputs returns a model of int32 indices and float32 numbers with two outputs:
// the rows of an embedding of 4 words, [w w/2], and the sum of row and numbers.
func twoInputs(t testing.TB) *keras.Model {
	t.Helper()
	word := keras.Named("word", keras.InputOf(dtype.Int32))
	numbers := keras.Named("numbers", keras.Input(2))
	row := keras.Apply(&layers.Embedding{InputDim: 4, OutputDim: 2, Name: "row"}, word)
	sum := keras.Apply(&layers.Add{Name: "sum"}, row, numbers)
	m, err := keras.NewModel(keras.Tuple(word, numbers), keras.Tuple(row, sum))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetWeights([]*keras.Tensor{keras.NewTensor([]float32{0, 0, 1, 0.5, 2, 1, 3, 1.5}, 4, 2)}); err != nil {
		t.Fatal(err)
	}
	return m
}

// newServer serves a model as version 1 of "m".
func newServer(t testing.TB, m *keras.Model, o Options) *Server {
	t.Helper()
	s := New()
	t.Cleanup(s.Close)
	if err := s.Add("m", 1, m, o); err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends a request to a handler, with headers as key, value.
func ask(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const (
	predictPath = "/v1/models/m:predict"
	inferPath   = "/v2/models/m/infer"
)

// TestWire compares answers of both protocols with those of their specifications.
func TestWire(t *testing.T) {
	one, two := newServer(t, dense(t, 0.5), Options{}), newServer(t, twoInputs(t), Options{})
	if err := one.Label("m", "stable", 1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		s                        *Server
		method, path, body, want string
	}{
		{one, "POST", predictPath, `{"instances": [[1,2,3],[0,0,1e-1]]}`, `{"predictions":[[4.5,5.5],[0.6,0.6]]}`},
		{one, "POST", predictPath, `{"signature_name":"serving_default","instances":[{"x":[1,2,3]}]}`, `{"predictions":[[4.5,5.5]]}`},
		{one, "POST", predictPath, `{"inputs":[[1,2,3]],"other":[{"a":null},true,"x"]}`, `{"outputs":[[4.5,5.5]]}`},
		{one, "POST", predictPath, ` { "inputs" : { "x" : [ [ -1 , 2.0E0 , 3 ] ] } } `, `{"outputs":[[2.5,5.5]]}`},
		{one, "POST", "/v1/models/m/versions/1:predict", `{"instances":[[1,2,3]]}`, `{"predictions":[[4.5,5.5]]}`},
		{one, "POST", "/v1/models/m/labels/stable:predict", `{"instances":[[1,2,3]]}`, `{"predictions":[[4.5,5.5]]}`},
		{one, "POST", predictPath, `{"instances":[[NaN,0,0],[0,Infinity,0],[-Infinity,0,0]]}`, `{"predictions":[[NaN,NaN],[NaN,Infinity],[-Infinity,NaN]]}`},
		{one, "POST", inferPath, `{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}`,
			`{"model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[4.5,5.5]}]}`},
		{one, "POST", "/v2/models/m/versions/1/infer", `{"id":"7\"","parameters":{"a":1},"inputs":[{"data":[[1,2,3],[0,0,0]],"name":"x","shape":[2,3],"datatype":"FP32","parameters":{}}],"outputs":[{"name":"y"}]}`,
			`{"model_name":"m","model_version":"1","id":"7\"","outputs":[{"name":"y","datatype":"FP32","shape":[2,2],"data":[4.5,5.5,0.5,0.5]}]}`},
		{two, "POST", predictPath, `{"instances":[{"word":1,"numbers":[1,2]},{"numbers":[3,4],"word":3}]}`,
			`{"predictions":[{"row":[1.0,0.5],"sum":[2.0,2.5]},{"row":[3.0,1.5],"sum":[6.0,5.5]}]}`},
		{two, "POST", predictPath, `{"inputs":{"word":[1,3],"numbers":[[1,2],[3,4]]}}`,
			`{"outputs":{"row":[[1.0,0.5],[3.0,1.5]],"sum":[[2.0,2.5],[6.0,5.5]]}}`},
		{two, "POST", inferPath, `{"inputs":[{"name":"numbers","shape":[1,2],"datatype":"FP32","data":[1,2]},{"name":"word","shape":[1],"datatype":"INT32","data":[2]}],"outputs":[{"name":"sum"}]}`,
			`{"model_name":"m","model_version":"1","outputs":[{"name":"sum","datatype":"FP32","shape":[1,2],"data":[3.0,3.0]}]}`},
		{one, "GET", "/v2", "", `{"extensions":["binary_tensor_data"],"name":"mezzo","version":"1"}`},
		{one, "GET", "/v2/health/live", "", `{"live":true}`},
		{one, "GET", "/v2/health/ready", "", `{"ready":true}`},
		{one, "GET", "/v2/models/m/ready", "", `{"name":"m","ready":true}`},
		{two, "GET", "/v2/models/m/versions/1", "", `{"inputs":[{"name":"word","datatype":"INT32","shape":[-1]},{"name":"numbers","datatype":"FP32","shape":[-1,2]}],"name":"m","outputs":[{"name":"row","datatype":"FP32","shape":[-1,2]},{"name":"sum","datatype":"FP32","shape":[-1,2]}],"platform":"mezzo_keras","versions":["1"]}`},
		{one, "GET", "/v1/models/m", "", `{"model_version_status":[{"version":"1","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}]}`},
		{one, "GET", "/v1/models/m/labels/stable", "", `{"model_version_status":[{"version":"1","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}]}`},
		{one, "GET", "/v1/models/m/metadata", "", `{"metadata":{"signature_def":{"signature_def":{"serving_default":{"inputs":{"x":{"dtype":"DT_FLOAT","name":"x","tensor_shape":{"dim":[{"name":"","size":"-1"},{"name":"","size":"3"}],"unknown_rank":false}}},"method_name":"tensorflow/serving/predict","outputs":{"y":{"dtype":"DT_FLOAT","name":"y","tensor_shape":{"dim":[{"name":"","size":"-1"},{"name":"","size":"2"}],"unknown_rank":false}}}}}}},"model_spec":{"name":"m","signature_name":"","version":"1"}}`},
	} {
		w := ask(c.s.Handler(HandlerOptions{}), c.method, c.path, c.body)
		if got := w.Body.String(); w.Code != http.StatusOK || got != c.want {
			t.Errorf("%s %s %s:\ngot  %d %s\nwant 200 %s", c.method, c.path, c.body, w.Code, got, c.want)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s %s: Content-Type is %q", c.method, c.path, got)
		}
	}
}

func floats(values ...float32) string {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return string(b)
}

var _ = []any{bytes.NewReader, context.Background, json.Marshal, io.EOF, time.Now}
