package serving

import (
	"encoding/binary"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

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

// TestBinary: tensors follow the JSON of requests and answers, at any offset.
func TestBinary(t *testing.T) {
	h := newServer(t, twoInputs(t), Options{}).Handler(HandlerOptions{})
	// "pad" moves the binary data to each offset within 8 bytes.
	for pad := range 8 {
		head := `{"id":"` + strings.Repeat("x", pad) + `","inputs":[{"name":"word","shape":[2],"datatype":"INT32","parameters":{"binary_data_size":8}},` +
			`{"name":"numbers","shape":[2,2],"datatype":"FP32","parameters":{"binary_data_size":16}}],` +
			`"outputs":[{"name":"sum","parameters":{"binary_data":true}},{"name":"row"}]}`
		w := ask(h, "POST", inferPath, head+"\x01\x00\x00\x00\x03\x00\x00\x00"+floats(1, 2, 3, 4), "Inference-Header-Content-Length", strconv.Itoa(len(head)))
		n, err := strconv.Atoi(w.Header().Get("Inference-Header-Content-Length"))
		if w.Code != http.StatusOK || err != nil || w.Header().Get("Content-Type") != "application/octet-stream" {
			t.Fatalf("got %d %v %s", w.Code, w.Header(), w.Body)
		}
		id := ""
		if pad > 0 {
			id = `"id":"` + strings.Repeat("x", pad) + `",`
		}
		want := `{"model_name":"m","model_version":"1",` + id + `"outputs":[{"name":"sum","datatype":"FP32","shape":[2,2],"parameters":{"binary_data_size":16}},` +
			`{"name":"row","datatype":"FP32","shape":[2,2],"data":[1.0,0.5,3.0,1.5]}]}`
		if got := w.Body.String(); n > len(got) || got[:n] != want || got[n:] != floats(2, 2.5, 6, 5.5) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	// Data in JSON, all answers binary.
	w := ask(h, "POST", inferPath, `{"parameters":{"binary_data_output":true},"inputs":[{"name":"word","shape":[1],"datatype":"INT32","data":[1]},{"name":"numbers","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`)
	if got := w.Body.String(); !strings.HasSuffix(got, "]}"+floats(1, 0.5, 2, 2.5)) {
		t.Errorf("got %d %q", w.Code, got)
	}
}

// TestTypes: inputs of each type, and outputs, through both protocols or with
// binary data only.
func TestTypes(t *testing.T) {
	for _, c := range []struct {
		dtype      keras.DType
		json, want string // "": no JSON form
		binary     string
	}{
		{dtype.Bool, "[true,false]", "[true,false]", "\x01\x00"},
		{dtype.Uint8, "[0,255]", "[0,255]", "\x00\xff"},
		{dtype.Int32, "[-2147483648,2147483647]", "[-2147483648,2147483647]", "\x00\x00\x00\x80\xff\xff\xff\x7f"},
		{dtype.Int64, "[-9223372036854775808,1]", "[-9223372036854775808,1]", "\x00\x00\x00\x00\x00\x00\x00\x80\x01\x00\x00\x00\x00\x00\x00\x00"},
		{dtype.Float16, "", "", "\x00\x3c\x01\x00"},
		{dtype.BFloat16, "", "", "\x80\x3f\x01\x00"},
		{dtype.Float32, "[0.1,3e38]", "[0.1,3e+38]", floats(0.1, 3e38)},
		{dtype.Float64, "[0.1,1e300]", "[0.1,1e+300]", "\x9a\x99\x99\x99\x99\x99\xb9\x3f\x9c\x75\x00\x88\x3c\xe4\x37\x7e"},
	} {
		in := keras.Named("x", keras.InputOf(c.dtype, 2))
		policy := ""
		if c.dtype.IsFloat() {
			policy = c.dtype.String()
		}
		m, err := keras.NewModel(in, keras.Apply(&layers.Reshape{TargetShape: []int{2}, Name: "y", DType: policy}, in))
		if err != nil {
			t.Fatal(err)
		}
		h := newServer(t, m.KeepOutputDType(), Options{MaxBatch: 2}).Handler(HandlerOptions{})
		name := Datatype(c.dtype)
		head := `{"inputs":[{"name":"x","shape":[1,2],"datatype":"` + name + `","parameters":{"binary_data_size":` + strconv.Itoa(len(c.binary)) + `}}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`
		w := ask(h, "POST", inferPath, head+c.binary, "Inference-Header-Content-Length", strconv.Itoa(len(head)))
		if got := w.Body.String(); w.Code != http.StatusOK || !strings.HasSuffix(got, "]}"+c.binary) || !strings.Contains(got, `"datatype":"`+name+`"`) {
			t.Errorf("%s: got %d %q", name, w.Code, got)
		}
		row := c.json
		if row == "" {
			row = "[1,2]"
		}
		tf := ask(h, "POST", predictPath, `{"instances":[`+row+`]}`)
		oip := ask(h, "POST", inferPath, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"`+name+`","data":`+row+`}]}`)
		if c.json == "" {
			for _, w := range []*httptest.ResponseRecorder{tf, oip} {
				if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "has no JSON form; send binary data") {
					t.Errorf("%s: got %d %s", name, w.Code, w.Body)
				}
			}
			text := head[:strings.Index(head, `,"outputs"`)] + "}"
			w := ask(h, "POST", inferPath, text+c.binary, "Inference-Header-Content-Length", strconv.Itoa(len(text)))
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "has no JSON form; ask for binary data") {
				t.Errorf("%s: got %d %s", name, w.Code, w.Body)
			}
			continue
		}
		if got, want := tf.Body.String(), `{"predictions":[`+c.want+`]}`; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		if got, want := oip.Body.String(), `"data":`+c.want+`}]}`; !strings.HasSuffix(got, want) {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// TestMetadata16: a model that keeps float16 outputs says so.
func TestMetadata16(t *testing.T) {
	for _, want := range []keras.DType{dtype.Float32, dtype.Float16} {
		in := keras.Input(3)
		m, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 2, Name: "y", DType: "mixed_float16"}, in))
		if err != nil {
			t.Fatal(err)
		}
		if want == dtype.Float16 {
			m.KeepOutputDType()
		}
		s := newServer(t, m, Options{})
		info, err := s.Describe("m", 0, "")
		if err != nil || info.Outputs[0].DType != want {
			t.Errorf("got %v, %v, want %v", info, err, want)
		}
		res, err := s.Infer(t.Context(), Request{Model: "m", Inputs: []Tensor{{DType: dtype.Float32, Shape: keras.Shape{1, 3}, Data: []byte(floats(1, 2, 3))}}})
		if err != nil || res.Outputs[0].DType != want || len(res.Outputs[0].Data) != 2*want.Size() {
			t.Errorf("got %v, %v, want %v", res, err, want)
		}
	}
}
