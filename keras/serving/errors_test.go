package serving

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// TestErrors: the status and the text of each error that a request can have.
func TestErrors(t *testing.T) {
	one := newServer(t, dense(t, 0), Options{MaxBatch: 2}).Handler(HandlerOptions{MaxBody: 300})
	two := newServer(t, twoInputs(t), Options{MaxBatch: 2}).Handler(HandlerOptions{})
	tf := func(body string) [2]string { return [2]string{predictPath, body} }
	oip := func(input string) [2]string { return [2]string{inferPath, `{"inputs":[` + input + `]}`} }
	for _, c := range []struct {
		h       http.Handler
		request [2]string // path and body
		status  int
		want    string // "…" stands for the model's name and version
	}{
		{one, [2]string{"/v1/models/other:predict", "{}"}, 404, `model "other" is not served`},
		{one, [2]string{"/v1/models/m:classify", "{}"}, 404, `method "classify": want predict`},
		{one, [2]string{"/v1/models/m", "{}"}, 404, `method "": want predict`},
		{one, [2]string{"/v1/models/m/versions/2:predict", "{}"}, 404, `model "m" has no version 2`},
		{one, [2]string{"/v1/models/m/versions/0:predict", "{}"}, 400, `version "0": want a number of at least 1`},
		{one, [2]string{"/v1/models/m/versions/99999999999999999999:predict", "{}"}, 400, `version "99999999999999999999": want a number of at least 1`},
		{one, [2]string{"/v1/models/m/labels/new:predict", "{}"}, 404, `model "m" has no label "new"`},
		{one, [2]string{"/v1/models/m/more:predict", "{}"}, 404, `there is no path "more" below a model; want versions/NUMBER or labels/LABEL`},
		{one, [2]string{"/v2/models/m/versions/x/infer", "{}"}, 400, `version "x": want a number of at least 1`},
		{one, [2]string{"/v2/models/other/infer", "{}"}, 404, `model "other" is not served`},
		{one, [2]string{"/v3", "{}"}, 404, `there is no POST "/v3"`},
		{one, tf(strings.Repeat(" ", 301)), 413, `… the body has 301 bytes, want at most 300`},
		{one, tf(``), 400, `… JSON, byte 0: got the end, want an object`},
		{one, tf(`{}`), 400, `… there are no instances and no inputs`},
		{one, tf(`{"instances":[[1,2,3]]} x`), 400, `… JSON, byte 24: got 'x', want the end`},
		{one, tf("{\"instances\":[[1,2,3]]}\x00"), 400, `… JSON, byte 23: got the end, want the end`},
		{one, tf(`{"instances":[[1,2,3]],"inputs":[[1,2,3]]}`), 400, `… JSON, byte 32: want instances or inputs, and once`},
		{one, tf(`{"instances":[[1,2,3]],"signature_name":"other"}`), 400, `… JSON, byte 47: signature_name is "other", want serving_default`},
		{one, tf(`{"instances":[]}`), 400, `… instances is an empty list`},
		{one, tf(`{"instances":[[]]}`), 400, `… input "x": JSON, byte 16: an empty list`},
		{one, tf(`{"instances":1}`), 400, `… JSON, byte 13: got '1', want a list`},
		{one, tf(`{"instances":[[1,2,3],[1,2]]}`), 400, `… input "x": JSON, byte 27: a list of 2 values, others at its depth have 3`},
		{one, tf(`{"instances":[[1,[2],3]]}`), 400, `… input "x": JSON, byte 17: a list in 2 lists, where others have a number`},
		{one, tf(`{"instances":[[[1],2,3]]}`), 400, `… input "x": JSON, byte 19: a number in 2 lists, others in 3`},
		{one, tf(`{"instances":[[1,2,3],1]}`), 400, `… input "x": JSON, byte 22: a number in 1 lists, others in 2`},
		{one, tf(`{"instances":[1]}`), 400, `… input "x": got shape [1], want [-1 3]`},
		{one, tf(`{"instances":[[1,2]]}`), 400, `… input "x": got shape [1 2], want [-1 3]`},
		{one, tf(`{"instances":[[1,2,3],[1,2,3],[1,2,3]]}`), 400, `… JSON, byte 30: got more than 2 rows`},
		{one, tf(`{"inputs":[[1,2,3],[1,2,3],[1,2,3]]}`), 400, `… input "x": JSON, byte 28: got more than 6 elements`},
		{one, tf(`{"instances":[{"y":[1,2,3]}]}`), 400, `… there is no input "y"; want ["x"]`},
		{one, tf(`{"instances":[{"x":[1,2,3],"x":[1,2,3]}]}`), 400, `… JSON, byte 31: input "x" is given twice in row 0, or missing before`},
		{one, tf(`{"inputs":{"x":[[1,2,3]],"x":[[1,2,3]]}}`), 400, `… JSON, byte 29: input "x" is given twice`},
		{one, tf(`{"inputs":{}}`), 400, `… input "x" is missing`},
		{one, tf(`{"instances":["a"]}`), 400, `… input "x": JSON, byte 14: got '"', want a number`},
		{one, tf(`{"instances":[{"b64":"AA=="}]}`), 400, `… {"b64": …} is a string; inputs are numbers or booleans`},
		{one, tf(`{"instances":[[1,2,01]]}`), 400, `… input "x": JSON, byte 20: got '1', want a comma or the end of a list`},
		{one, tf(`{"instances":[[1,2,+1]]}`), 400, `… input "x": JSON, byte 19: got '+', want a number`},
		{one, tf(`{"instances":[[1,2,1.]]}`), 400, `… input "x": JSON, byte 19: got '1', want a number`},
		{one, tf(`{"instances":[[1,2,1e999]]}`), 400, `… input "x": JSON, byte 19: got "1e999", want a number of type float32`},
		{one, tf(`{"instances":[[1,2,3]`), 400, `… JSON, byte 21: got the end, want a comma or the end of a list`},
		{one, tf(`{"a":[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}`), 400, `… JSON, byte 22: lists and objects are nested more than 16 deep`},
		{one, tf(`{"inputs":[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}`), 400, `… input "x": JSON, byte 26: lists are nested more than 16 deep`},
		{two, tf(`{"instances":[[1,2]]}`), 400, `… the model has the inputs ["word" "numbers"]; want an object with their names`},
		{two, tf(`{"inputs":[[1,2]]}`), 400, `… the model has the inputs ["word" "numbers"]; want an object with their names`},
		{two, tf(`{"instances":[{"word":1}]}`), 400, `… input "numbers" is missing in row 0`},
		{two, tf(`{"inputs":{"word":[1]}}`), 400, `… input "numbers" is missing`},
		{two, tf(`{"inputs":{"word":[1],"numbers":[[1,2],[3,4]]}}`), 400, `… input "numbers" has 2 rows, input "word" has 1`},
		{two, tf(`{"instances":[{"word":1.5,"numbers":[1,2]}]}`), 400, `… input "word": JSON, byte 22: got "1.5", want a number of type int32`},
		{two, tf(`{"instances":[{"word":3000000000,"numbers":[1,2]}]}`), 400, `… input "word": JSON, byte 22: got "3000000000", want a number of type int32`},
		{one, oip(``), 400, `… input "x" is missing`},
		{one, oip(`{}`), 400, `… input "x": got datatype "", want FP32`},
		{one, oip(`{"name":"y"}`), 400, `… there is no input "y"; want ["x"]`},
		{one, oip(`{"name":"x","datatype":"BYTES","shape":[1,3],"data":["a"]}`), 400, `… input "x": got datatype "BYTES", want FP32`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[1,3]}`), 400, `… input "x" has no data`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2]}`), 400, `… input "x": got 2 elements, want the 3 of shape [1 3]`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3,4]}`), 400, `… input "x": JSON, byte 69: got more than 3 elements`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[1,3],"data":[[1],[2],[3]]}`), 400, `… input "x": got lists of shape [3 1], want [1 3] or one flat list`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[1,3],"data":[NaN,1,2]}`), 400, `… JSON, byte 63: got 'N', want a number`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[1,3],"data":[1e38,3e38,3e38]}`), 400, `… output "y": it has NaN or infinities, for which JSON has no form; ask for binary data`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[3],"data":[1,2,3]}`), 400, `… input "x": got shape [3], want [-1 3]`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[0,3],"data":[]}`), 400, `… input "x": JSON, byte 64: an empty list`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[-1,3],"data":[1,2,3]}`), 400, `… JSON, byte 52: got "-1", want an integer from 0 to 2147483647`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[3,3],"data":[1,2,3,4,5,6,7,8,9]}`), 400, `… got 3 rows, want at most 2`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[1,3],"parameters":{"binary_data_size":12}}`), 400, `… input "x": binary_data_size is 12, but 0 bytes are left`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[1,3],"parameters":{"binary_data_size":0},"data":[1,2,3]}`), 400, `… input "x" has data and binary_data_size, want one of them`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[1,3],"parameters":{"shared_memory_region":"a"}}`), 400, `… JSON, byte 92: parameter shared_memory_region is not supported`},
		{one, oip(`{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]},{"name":"x"}`), 400, `… JSON, byte 71: got more inputs than the 1 of the model`},
		{two, oip(`{"name":"word","datatype":"INT32","shape":[1],"data":[1]},{"name":"word","datatype":"INT32","shape":[1],"data":[1]}`), 400, `… input "word" is given twice`},
		{one, [2]string{inferPath, `{"inputs":[],"outputs":[{"name":"z"}]}`}, 400, `… there is no output "z"; want ["y"]`},
		{one, [2]string{inferPath, `{"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]}`}, 400, `… JSON, byte 37: got more outputs than the 1 of the model`},
		{one, [2]string{inferPath, `{"inputs":[],"inputs":[]}`}, 400, `… JSON, byte 22: inputs are given twice`},
	} {
		w := ask(c.h, "POST", c.request[0], c.request[1])
		want := strings.Replace(c.want, "…", `model "m" version 1:`, 1)
		if w.Code != c.status {
			t.Errorf("%s: got %d %s, want %d", c.request, w.Code, w.Body, c.status)
		}
		var got struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Error != want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.request, w.Body, want)
		}
	}
}

// TestHeaders: errors of headers, and of methods.
func TestHeaders(t *testing.T) {
	h := newServer(t, dense(t, 0), Options{}).Handler(HandlerOptions{})
	for _, c := range []struct {
		method, path, body string
		headers            []string
		status             int
		want               string
	}{
		{"POST", inferPath, "{}", []string{"Inference-Header-Content-Length", "3"}, 400, `Inference-Header-Content-Length: got \"3\", want at most the 2 bytes`},
		{"POST", inferPath, "{}", []string{"Inference-Header-Content-Length", "-1"}, 400, `got \"-1\"`},
		{"POST", inferPath, `{"inputs":[]}abc`, []string{"Inference-Header-Content-Length", "13"}, 400, `3 bytes of binary data are left over`},
		{"POST", predictPath, "{}", []string{"Content-Encoding", "gzip"}, 415, `Content-Encoding is \"gzip\"`},
		{"GET", predictPath, "", nil, 405, `method \"predict\": got GET, want POST`},
		{"GET", "/v1/models/other", "", nil, 404, `model \"other\" is not served`},
		{"GET", "/v1/models/m/versions/3/metadata", "", nil, 404, `has no version 3`},
		{"GET", "/v2/models/other/ready", "", nil, 404, `model \"other\" is not served`},
		{"GET", "/", "", nil, 404, `there is no GET`},
	} {
		w := ask(h, c.method, c.path, c.body, c.headers...)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: got %d %s, want %d %s", c.method, c.path, w.Code, w.Body, c.status, c.want)
		}
	}
}

// TestBodies: a body without a length is limited too, and one that ends early is an
// error; texts of clients are cut off in messages.
func TestBodies(t *testing.T) {
	h := newServer(t, dense(t, 0), Options{}).Handler(HandlerOptions{MaxBody: 1000})
	for _, c := range []struct {
		body   io.Reader
		status int
		want   string
	}{
		{strings.NewReader(strings.Repeat(" ", 1001)), 413, `the body has more than 1000 bytes`},
		{io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)), 400, `reading the body: unexpected EOF`},
		{strings.NewReader(`{"signature_name":"` + strings.Repeat("a", 900) + `"}`), 400, strings.Repeat("a", 200) + `\"…, want serving_default`},
	} {
		r := httptest.NewRequest("POST", predictPath, struct{ io.Reader }{c.body})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("got %d %s, want %d %s", w.Code, w.Body, c.status, c.want)
		}
	}
}

// TestStatus: errors of Predict by whose they are.
func TestStatus(t *testing.T) {
	for err, want := range map[error]int{
		&driver.IndexError{}:  http.StatusBadRequest,
		&keras.MemoryError{}:  http.StatusServiceUnavailable,
		errors.New("a layer"): http.StatusInternalServerError,
	} {
		if got := StatusOf(fmt.Errorf("wrapped: %w", ofPredict(fmt.Errorf("wrapped: %w", err)))); got != want {
			t.Errorf("%T: got %d, want %d", err, got, want)
		}
	}
}

// TestAuth: all but health needs it, and its error stays here.
func TestAuth(t *testing.T) {
	h := newServer(t, dense(t, 0), Options{}).Handler(HandlerOptions{Auth: func(r *http.Request) error {
		if r.Header.Get("Authorization") != "Bearer right" {
			return errors.New("a secret reason")
		}
		return nil
	}})
	for path, status := range map[string]int{"/v2/health/live": 200, "/v2/health/ready": 200, "/v2": 401, "/v1/models/m": 401, "/none": 401} {
		w := ask(h, "GET", path, "")
		if w.Code != status || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: got %d %s, want %d", path, w.Code, w.Body, status)
		}
	}
	if w := ask(h, "GET", "/v1/models/m", "", "Authorization", "Bearer right"); w.Code != 200 {
		t.Errorf("got %d", w.Code)
	}
}

// TestAddErrors: what cannot be served.
func TestAddErrors(t *testing.T) {
	s := New()
	defer s.Close()
	good := dense(t, 0)
	flat := keras.Input(3)
	scalar, err := keras.NewModel(flat, keras.Apply(&hook{call: func(x *keras.Tensor) *keras.Tensor { return x.Sum() }}, flat))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		version int
		m       *keras.Model
		o       Options
		want    string
	}{
		{"", 1, good, Options{}, `serving: model "" version 1: want a name of letters, digits, ".", "_" and "-"`},
		{"a/b", 1, good, Options{}, `serving: model "a/b" version 1: want a name of letters, digits, ".", "_" and "-"`},
		{"..", 1, good, Options{}, `serving: model ".." version 1: want a name of letters, digits, ".", "_" and "-"`},
		{"m", 0, good, Options{}, `serving: model "m" version 0: want a version of at least 1`},
		{"m", 1, nil, Options{}, `serving: model "m" version 1: no model given`},
		{"m", 1, keras.Sequential(&layers.Dense{Units: 1}), Options{}, `serving: model "m" version 1: it is not built; its inputs are not known yet`},
		{"m", 1, good, Options{MaxBatch: 1025}, `serving: model "m" version 1: MaxBatch: got 1025, want at least 1 and at most 1024`},
		{"m", 1, good, Options{MaxQueue: -1}, `serving: model "m" version 1: MaxQueue: got -1, want at least 1`},
		{"m", 1, good, Options{MaxDelay: -1}, `serving: model "m" version 1: MaxDelay: got -1ns, want at least 0`},
		{"m", 1, good, Options{Warm: []int{65}}, `serving: model "m" version 1: Warm: got a batch of 65, want 1 to 64 (MaxBatch)`},
		{"m", 1, scalar, Options{}, `serving: model "m" version 1: "hook" has shape [], want the batch as its first axis`},
		{"m", 1, hooked(t, func(*keras.Tensor) { panic("oh") }), Options{}, `serving: model "m" version 1: a batch of 1 zeros: panic: oh`},
	} {
		if err := s.Add(c.name, c.version, c.m, c.o); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	if s.Ready() {
		t.Error("a server without models is ready")
	}
	if err := s.Label("m", "stable", 1); err == nil || err.Error() != `serving: model "m": label "stable": version 1 is not served` {
		t.Error(err)
	}
	s.Close()
	if err := s.Add("m", 1, good, Options{}); err == nil {
		t.Error("a closed server takes a model")
	}
	if _, err := s.Infer(t.Context(), Request{Model: "m"}); StatusOf(err) != http.StatusServiceUnavailable {
		t.Errorf("got %v of a closed server", err)
	}
}

// TestHostile: sizes that requests claim take no memory.
func TestHostile(t *testing.T) {
	in := keras.Named("x", keras.Input(keras.Unknown, keras.Unknown))
	free, err := keras.NewModel(in, keras.Apply(&layers.Activation{Activation: "relu", Name: "y"}, in))
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*keras.Model{"fixed": dense(t, 0), "free": free} {
		h := newServer(t, m, Options{}).Handler(HandlerOptions{})
		deep := strings.Repeat("[", 100_000)
		for _, c := range [][2]string{
			{inferPath, `{"inputs":[{"name":"x","datatype":"FP32","shape":[2147483647,2147483647,2147483647],"data":[1]}]}`},
			{inferPath, `{"inputs":[{"name":"x","datatype":"FP32","shape":[2147483647,2147483647,4],"data":[1]}]}`},
			{inferPath, `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2147483647,2147483647],"parameters":{"binary_data_size":2147483647}}]}`},
			{inferPath, `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2147483647,2147483647],"parameters":{"binary_data_size":0}}]}`},
			{inferPath, `{"inputs":[{"name":"x","datatype":"FP32","shape":[4294967296,4294967296,1],"parameters":{"binary_data_size":0}}]}`},
			{inferPath, `{"inputs":[{"name":"x","datatype":"FP32","shape":[` + strings.Repeat("1,", 50_000) + `1],"data":[1]}]}`},
			{inferPath, `{"inputs":` + deep},
			{inferPath, `{"a":` + deep},
			{predictPath, `{"instances":` + deep},
			{predictPath, `{"inputs":` + deep},
			{predictPath, `{"instances":[` + strings.Repeat("[],", 50_000) + `[]]}`},
			{predictPath, `{"instances":[` + strings.Repeat(`{"`, 50_000)},
			{predictPath, `{"instances":[{` + strings.Repeat(`"x":[1],`, 50_000)},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w := ask(h, "POST", c[0], c[1])
			runtime.ReadMemStats(&after)
			if w.Code != http.StatusBadRequest || w.Body.Len() > 1000 {
				t.Errorf("%s: %.100s: got %d %.1000s", name, c[1], w.Code, w.Body)
			}
			// The body and its copy by io.ReadAll, which doubles it; 64 KiB for the rest.
			if took := after.TotalAlloc - before.TotalAlloc; took > uint64(8*len(c[1])+64<<10) {
				t.Errorf("%s: %.100s: took %d bytes", name, c[1], took)
			}
		}
	}
	if _, ok := bytesOf([]int{math.MaxInt / 2, 3}, 1); ok {
		t.Error("an overflow is not seen")
	}
	if n, ok := bytesOf([]int{math.MaxInt, 0}, 1); !ok || n != 0 {
		t.Error("an axis of 0 is not seen")
	}
}

// TestInferErrors: what Infer checks itself, for protocols without JSON.
func TestInferErrors(t *testing.T) {
	s := newServer(t, dense(t, 0), Options{})
	for _, c := range []struct {
		t    Tensor
		want string
	}{
		{Tensor{"x", dtype.Float32, keras.Shape{1, 3}, make([]byte, 11)}, `input "x": got 11 bytes, want those of float32[1 3]`},
		{Tensor{"x", dtype.Float64, keras.Shape{1, 3}, make([]byte, 24)}, `input "x": got datatype float64, want float32`},
		{Tensor{"x", dtype.Float32, keras.Shape{-1, 3}, nil}, `input "x": got shape [-1 3], want [-1 3]`},
		{Tensor{"x", dtype.Float32, keras.Shape{1 << 62, 3}, nil}, `input "x": got shape [4611686018427387904 3], want [-1 3]`},
		{Tensor{"x", dtype.Float32, nil, nil}, `input "x": got shape [], want [-1 3]`},
	} {
		_, err := s.Infer(t.Context(), Request{Model: "m", Inputs: []Tensor{c.t}})
		if want := `model "m" version 1: ` + c.want; err == nil || err.Error() != want || StatusOf(err) != http.StatusBadRequest {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestObserve: what is told of requests; names that clients make up are not.
func TestObserve(t *testing.T) {
	s := newServer(t, dense(t, 0), Options{})
	var seen []string
	s.Observe = func(o Observation) {
		seen = append(seen, fmt.Sprint(o.Protocol, " ", o.Model, " ", o.Version, " ", o.Status, " ", o.Rows, " ", o.Batch, " ", o.Padded, " ", o.Err != nil, " ", o.Total > 0))
	}
	h := s.Handler(HandlerOptions{})
	ask(h, "POST", predictPath, `{"instances":[[1,2,3],[1,2,3],[1,2,3]]}`)
	ask(h, "POST", inferPath, `{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}`)
	ask(h, "POST", inferPath, `{`)
	ask(h, "POST", "/v1/models/made-up:predict", `{`)
	ask(h, "GET", "/v1/models/m", "") // no inference
	if _, err := s.Infer(t.Context(), Request{Model: "m", Version: 1, Protocol: "own", Inputs: rows(2, 1)}); err != nil {
		t.Error(err)
	}
	want := []string{
		"tfserving m 1 200 3 3 4 false true", "oip m 1 200 1 1 1 false true", "oip m 1 400 0 0 0 true true",
		"tfserving  0 404 0 0 0 true true", "own m 1 200 2 2 2 false true",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("got  %q\nwant %q", seen, want)
	}
}

// TestInfo: what protocols are told of a version before they read a request, and
// what metrics are told of batches and loads.
func TestInfo(t *testing.T) {
	s := New()
	t.Cleanup(s.Close)
	var batches []Batch
	s.Batched = func(b Batch) { batches = append(batches, b) }
	if err := s.Add("m", 3, twoInputs(t), Options{MaxBatch: 4, Warm: []int{}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Label("m", "stable", 3); err != nil {
		t.Fatal(err)
	}
	info, err := s.Describe("m", 0, "stable")
	if err != nil || info.Model != "m" || info.Version != 3 || info.MaxBatch != 4 || len(info.Inputs) != 2 {
		t.Errorf("got %v, %v", info, err)
	}
	if _, err := s.Describe("m", 0, "other"); StatusOf(err) != http.StatusNotFound {
		t.Errorf("got %v for a label that there is not", err)
	}
	if spec, err := info.Input("word"); err != nil || spec.DType != dtype.Int32 {
		t.Errorf("got %v, %v", spec, err)
	}
	if _, err := info.Input(""); StatusOf(err) != http.StatusBadRequest {
		t.Errorf("got %v for a model of two inputs", err)
	}
	request := Request{Model: "m", Decode: func(i Info) ([]Tensor, error) {
		if !reflect.DeepEqual(i, info) {
			t.Errorf("got %v, want %v", i, info)
		}
		return []Tensor{
			{"word", dtype.Int32, keras.Shape{1}, []byte{1, 0, 0, 0}},
			{"numbers", dtype.Float32, keras.Shape{1, 2}, make([]byte, 8)},
		}, nil
	}}
	if _, err := s.Infer(t.Context(), request); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		err    error
		status int
	}{{errors.New("odd"), 400}, {&Error{Status: 415, Err: errors.New("odd")}, 415}} {
		request.Decode = func(Info) ([]Tensor, error) { return nil, c.err }
		_, err := s.Infer(t.Context(), request)
		if StatusOf(err) != c.status || err.Error() != `model "m" version 3: odd` {
			t.Errorf("got %d %v, want %d", StatusOf(err), err, c.status)
		}
	}
	loads := s.Loads()
	if len(loads) != 1 || loads[0].Model != "m" || loads[0].Version != 3 || loads[0].Queued != 0 || loads[0].Bytes < 8 {
		t.Errorf("got %v", loads)
	}
	s.Close() // the goroutine that computes has ended
	if len(batches) != 1 || batches[0].Requests != 1 || batches[0].Rows != 1 || batches[0].Padded != 1 || batches[0].Computed <= 0 {
		t.Errorf("got %v", batches)
	}
}
