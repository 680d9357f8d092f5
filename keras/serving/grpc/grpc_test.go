package servinggrpc

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/serving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// halfPlusTwo returns TensorFlow Serving's first example, x/2 + 2, for rows of a
// shape.
func halfPlusTwo(t testing.TB, shape ...int) *keras.Model {
	t.Helper()
	x := keras.Named("x", keras.Input(shape...))
	m, err := keras.NewModel(x, keras.Apply(&preprocessing.Rescaling{Scale: 0.5, Offset: 2, Name: "y"}, x))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newServer serves a model as version 1 of "m".
func newServer(t testing.TB, m *keras.Model, o serving.Options) *serving.Server {
	t.Helper()
	s := serving.New()
	t.Cleanup(s.Close)
	if err := s.Add("m", 1, m, o); err != nil {
		t.Fatal(err)
	}
	return s
}

// dial serves s on a free port and returns a connection to it.
func dial(t testing.TB, s *serving.Server, options ...grpc.ServerOption) (*grpc.ClientConn, *grpc.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(ServerOptions(), options...)...)
	Register(g, s)
	RegisterHealth(g, s)
	go g.Serve(l)
	t.Cleanup(g.Stop)
	return connect(t, l.Addr().String()), g
}

func connect(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()), grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Full names of the methods that the tests call.
const (
	inferMethod   = "/" + oipService + "/ModelInfer"
	predictMethod = "/" + tfService + "/Predict"
)

func call(ctx context.Context, c *grpc.ClientConn, method string, request []byte) (answer []byte, err error) {
	err = c.Invoke(ctx, method, request, &answer)
	return answer, err
}

func floats(values ...float32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// part is what a message is made of in tests.
type part func(m *message)

func build(parts ...part) (m message) {
	for _, p := range parts {
		p(&m)
	}
	return m
}

func text(number int, s string) part   { return func(m *message) { m.text(fieldNumber(number), s) } }
func blob(number int, b []byte) part   { return func(m *message) { m.blob(fieldNumber(number), b) } }
func integer(number, v int) part       { return func(m *message) { m.integer(fieldNumber(number), v) } }
func sub(number int, p ...part) part   { return blob(number, build(p...)) }
func dims(number int, d ...int) part   { return func(m *message) { m.shape(fieldNumber(number), d) } }
func rawBytes(b []byte) part           { return func(m *message) { *m = append(*m, b...) } }
func tfDims(number int, d ...int) part { return blob(number, tfShapeOf(d)) }

// inferRequest is ModelInferRequest for one input with raw contents.
func inferRequest(name, datatype string, shape []int, raw []byte) []byte {
	return build(text(1, "m"), sub(5, text(1, name), text(2, datatype), dims(3, shape...)), blob(7, raw))
}

// predictRequest is PredictRequest for one input.
func predictRequest(name string, proto ...part) []byte {
	return build(sub(1, text(1, "m")), sub(2, text(1, name), sub(2, proto...)))
}

// firstOutput reads the bytes of the first output of either service.
func firstOutput(t testing.TB, method string, answer []byte) (data []byte) {
	t.Helper()
	err := fields(answer, func(f field) error {
		switch {
		case method == inferMethod && f.number == 6 && data == nil:
			data = f.bytes
		case method == predictMethod && f.number == 1:
			return f.message(func(f field) error {
				if f.number != 2 {
					return nil
				}
				return f.message(func(f field) error {
					if f.number > 2 {
						data = f.bytes
					}
					return nil
				})
			})
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return data
}

// TestGolden: requests as tritonclient.grpc, tensorflow-serving-api and
// grpcio-health-checking have sent them are answered with the bytes that the clients
// have read and found right. testdata/record.py has written them.
func TestGolden(t *testing.T) {
	s := serving.New()
	t.Cleanup(s.Close)
	if err := s.Add("half_plus_two", 1, halfPlusTwo(t), serving.Options{}); err != nil {
		t.Fatal(err)
	}
	c, _ := dial(t, s)
	file, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Client, Method  string
		Request, Answer []byte
		Code, Message   string
	}
	if err := json.Unmarshal(file, &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		answer, err := call(t.Context(), c, one.Method, one.Request)
		code := strings.ReplaceAll(strings.ToUpper(status.Code(err).String()), "INVALIDARGUMENT", "INVALID_ARGUMENT")
		if one.Code == "" {
			one.Code = "OK"
		}
		if string(answer) != string(one.Answer) || code != one.Code || status.Convert(err).Message() != one.Message {
			t.Errorf("%s, %s %q:\ngot  %q %v\nwant %q %s %s", one.Client, one.Method, one.Request, answer, err, one.Answer, one.Code, one.Message)
		}
	}
	if len(all) < 15 {
		t.Errorf("%d requests", len(all))
	}
}

// TestTypes: inputs and outputs of each type through both services, as bytes and as
// typed values, packed and not.
func TestTypes(t *testing.T) {
	for _, c := range []struct {
		dtype  keras.DType
		binary string
		oip    []part // of InferTensorContents; nil: it has no field for the type
		tf     []part // of TensorProto
	}{
		{dtype.Bool, "\x01\x00", []part{dims(1, 1, 0)}, []part{integer(11, 5), integer(11, 0)}},
		{dtype.Uint8, "\x00\xff", []part{dims(4, 0, 255)}, []part{dims(7, 0, 255)}},
		{dtype.Int32, "\x00\x00\x00\x80\xff\xff\xff\x7f", []part{dims(2, math.MinInt32, math.MaxInt32)}, []part{integer(7, math.MinInt32), integer(7, math.MaxInt32)}},
		{dtype.Int64, "\x00\x00\x00\x00\x00\x00\x00\x80\x01\x00\x00\x00\x00\x00\x00\x00", []part{dims(3, math.MinInt64), integer(3, 1)}, []part{dims(10, math.MinInt64, 1)}},
		{dtype.Float16, "\x00\x3c\x01\x00", nil, []part{dims(13, 0x3c00, 1)}},
		{dtype.BFloat16, "\x80\x3f\x01\x80", nil, []part{dims(13, 0x3f80, 0x8001)}},
		{dtype.Float32, string(floats(0.1, 3e38)), []part{blob(6, floats(0.1)), blob(6, floats(3e38))}, []part{fixed32(5, 0.1), fixed32(5, 3e38)}},
		{dtype.Float64, "\x9a\x99\x99\x99\x99\x99\xb9\x3f\x9c\x75\x00\x88\x3c\xe4\x37\x7e", []part{fixed64(7, 0.1), fixed64(7, 1e300)},
			[]part{blob(6, []byte("\x9a\x99\x99\x99\x99\x99\xb9\x3f\x9c\x75\x00\x88\x3c\xe4\x37\x7e"))}},
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
		conn, _ := dial(t, newServer(t, m.KeepOutputDType(), serving.Options{MaxBatch: 2}))
		name := serving.Datatype(c.dtype)
		typed := build(text(1, "m"), sub(5, text(1, "x"), text(2, name), dims(3, 1, 2), sub(5, c.oip...)))
		answer, err := call(t.Context(), conn, inferMethod, typed)
		switch got := firstOutput(t, inferMethod, answer); {
		case c.oip == nil:
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "send raw_input_contents") {
				t.Errorf("%s: got %v for contents", name, err)
			}
		case err != nil || string(got) != c.binary:
			t.Errorf("%s: contents: got %q %v, want %q", name, got, err, c.binary)
		}
		answer, err = call(t.Context(), conn, inferMethod, inferRequest("x", name, []int{1, 2}, []byte(c.binary)))
		if got := firstOutput(t, inferMethod, answer); err != nil || string(got) != c.binary {
			t.Errorf("%s: raw_input_contents: got %q %v, want %q", name, got, err, c.binary)
		}
		number := integer(1, tfTypes[c.dtype].number)
		for _, values := range [][]part{append([]part{number, tfDims(2, 1, 2)}, c.tf...), {tfDims(2, 1, 2), number, blob(4, []byte(c.binary))}} {
			answer, err := call(t.Context(), conn, predictMethod, predictRequest("x", values...))
			var want message
			want.appendTyped(tfTypes[c.dtype].values, c.dtype, []byte(c.binary))
			if got := firstOutput(t, predictMethod, answer); err != nil || !strings.HasSuffix(string(want), string(got)) || len(want) != len(got)+2 {
				t.Errorf("%s: Predict: got %q %v, want %q", name, got, err, want)
			}
		}
	}
}

// TestLabels: versions and labels choose, and a closed server is unavailable.
func TestLabels(t *testing.T) {
	s := newServer(t, halfPlusTwo(t), serving.Options{})
	if err := s.Add("m", 2, halfPlusTwo(t), serving.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Label("m", "stable", 1); err != nil {
		t.Fatal(err)
	}
	conn, _ := dial(t, s)
	one := []part{integer(1, 1), tfDims(2, 1), blob(5, floats(1))}
	for want, spec := range map[int][]part{2: nil, 1: {text(4, "stable")}, -1: {sub(2, integer(1, 1))}} {
		request := build(sub(1, append([]part{text(1, "m")}, spec...)...), sub(2, sub(2, one...)))
		answer, err := call(t.Context(), conn, predictMethod, request)
		version := ""
		if want < 0 {
			want = -want
		}
		wanted := string(tfSpecOf("m", want, signatureName))
		if fields(answer, func(f field) error {
			if f.number == 2 {
				version = string(f.bytes)
			}
			return nil
		}); err != nil || version != wanted {
			t.Errorf("got %q, %v, want version %d", version, err, want)
		}
	}
	s.Close()
	if _, err := call(t.Context(), conn, predictMethod, predictRequest("x", one...)); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v of a closed server", err)
	}
}

// TestErrors: the code and the text of each error that a request can have.
func TestErrors(t *testing.T) {
	fixed := newServer(t, halfPlusTwo(t, 3), serving.Options{MaxBatch: 2})
	free := newServer(t, halfPlusTwo(t, keras.Unknown), serving.Options{MaxBatch: 2})
	x := floats(1, 2, 3)
	shape := tfDims(2, 1, 3)
	float := integer(1, 1)
	infer := func(parts ...part) []byte { return build(append([]part{text(1, "m")}, parts...)...) }
	input := func(parts ...part) part {
		return sub(5, append([]part{text(1, "x"), text(2, "FP32"), dims(3, 1, 3)}, parts...)...)
	}
	many := strings.Repeat("\x2a\x00", maxList+1)
	for _, c := range []struct {
		s       *serving.Server
		method  string
		request []byte
		code    codes.Code
		want    string
	}{
		{fixed, inferMethod, []byte("\xff"), codes.InvalidArgument, "unexpected EOF"},
		{fixed, inferMethod, infer(integer(3, 1)), codes.InvalidArgument, "protobuf: field 3 has wire type 0, want 2"},
		{fixed, inferMethod, infer(text(3, "\xff")), codes.InvalidArgument, "protobuf: field 3 is not UTF-8"},
		{fixed, inferMethod, nil, codes.NotFound, `model "" is not served`},
		{fixed, inferMethod, build(text(1, "n")), codes.NotFound, `model "n" is not served`},
		{fixed, inferMethod, infer(text(2, "7")), codes.NotFound, `model "m" has no version 7`},
		{fixed, inferMethod, infer(text(2, "x")), codes.InvalidArgument, `version "x": want a number of at least 1`},
		{fixed, inferMethod, infer(), codes.InvalidArgument, `input "x" is missing`},
		{fixed, inferMethod, infer(rawBytes([]byte(many))), codes.InvalidArgument, "more than 1024 inputs or outputs"},
		{fixed, inferMethod, infer(input(), input()), codes.InvalidArgument, "got 2 inputs, more than the 1 of the model"},
		{fixed, inferMethod, infer(input(), blob(7, x), blob(7, x)), codes.InvalidArgument, "got 2 raw_input_contents for 1 inputs"},
		{fixed, inferMethod, infer(input(sub(5, blob(6, x))), blob(7, x)), codes.InvalidArgument, `input "x" has contents beside raw_input_contents`},
		{fixed, inferMethod, infer(input(), blob(7, x[:8])), codes.InvalidArgument, `input "x": got 8 bytes, want those of float32[1 3]`},
		{fixed, inferMethod, infer(input(sub(5, blob(6, x[:8])))), codes.InvalidArgument, `input "x": got 2 elements, want the 3 of shape [1 3]`},
		{fixed, inferMethod, infer(input(sub(5, blob(6, x), blob(6, x)))), codes.InvalidArgument, `input "x": got more than 3 elements`},
		{fixed, inferMethod, infer(input(sub(5, blob(6, x[:3])))), codes.InvalidArgument, "field 6 has 3 bytes, want a multiple of 4"},
		{fixed, inferMethod, infer(input(sub(5, integer(6, 1)))), codes.InvalidArgument, "field 6 has wire type 0, want 5"},
		{fixed, inferMethod, infer(input(sub(5, dims(3, 1, 2, 3)))), codes.InvalidArgument, "contents have field 3, want 6 for datatype FP32"},
		{fixed, inferMethod, infer(input(sub(4, text(1, "shared_memory_region"))), blob(7, x)), codes.InvalidArgument, "parameter shared_memory_region is not supported"},
		{fixed, inferMethod, infer(input(), sub(6, text(1, "y"), sub(2, text(1, "classification"))), blob(7, x)), codes.InvalidArgument, "parameter classification is not supported"},
		{fixed, inferMethod, infer(input(), sub(6, text(1, "z")), blob(7, x)), codes.InvalidArgument, `there is no output "z"`},
		{fixed, inferMethod, inferRequest("z", "FP32", []int{1, 3}, x), codes.InvalidArgument, `there is no input "z"; want ["x"]`},
		{fixed, inferMethod, inferRequest("x", "FP64", []int{1, 3}, x), codes.InvalidArgument, `input "x": got datatype float64, want float32`},
		{fixed, inferMethod, inferRequest("x", "BYTES", []int{1, 3}, x), codes.InvalidArgument, `input "x": got datatype "BYTES", want FP32`},
		{fixed, inferMethod, inferRequest("x", "FP32", []int{3}, x), codes.InvalidArgument, `input "x": got shape [3], want [-1 3]`},
		{fixed, inferMethod, inferRequest("x", "FP32", []int{0, 3}, nil), codes.InvalidArgument, `input "x": got shape [0 3], want [-1 3]`},
		{fixed, inferMethod, inferRequest("x", "FP32", []int{-1, 3}, x), codes.InvalidArgument, "a shape has an axis of -1, want 0 to 2147483647"},
		{fixed, inferMethod, inferRequest("x", "FP32", []int{3, 3}, nil), codes.InvalidArgument, `input "x": got 3 rows, want at most 2`},
		{fixed, inferMethod, inferRequest("x", "FP32", make([]int, 40), nil), codes.InvalidArgument, "a shape has more than 32 axes"},
		{fixed, predictMethod, []byte("\x0a\xff"), codes.InvalidArgument, "unexpected EOF"},
		{fixed, predictMethod, build(sub(1, text(1, "m"), text(3, "other"))), codes.InvalidArgument, `signature_name is "other", want serving_default`},
		{fixed, predictMethod, build(sub(1, text(1, "m"), sub(2))), codes.InvalidArgument, "version 0: want a number of at least 1"},
		{fixed, predictMethod, build(sub(1, text(1, "m"), sub(2, integer(1, 9)))), codes.NotFound, `model "m" has no version 9`},
		{fixed, predictMethod, build(sub(1, text(1, "m"), text(4, "x"))), codes.NotFound, `model "m" has no label "x"`},
		{fixed, predictMethod, build(sub(1, text(1, "m")), text(3, "z")), codes.InvalidArgument, `there is no output "z"`},
		{fixed, predictMethod, predictRequest("z"), codes.InvalidArgument, `there is no input "z"; want ["x"]`},
		{fixed, predictMethod, predictRequest("x", shape), codes.InvalidArgument, `input "x": got DataType 0, want 1 (float32)`},
		{fixed, predictMethod, predictRequest("x", integer(1, 7), shape, text(8, "a")), codes.InvalidArgument, `input "x": got DataType 7, want 1 (float32)`},
		{fixed, predictMethod, predictRequest("x", float, shape, blob(4, x[:8])), codes.InvalidArgument, `input "x": got 8 bytes, want those of float32[1 3]`},
		{fixed, predictMethod, predictRequest("x", float, shape, blob(5, floats(1, 2, 3, 4))), codes.InvalidArgument, `input "x": got more than 3 elements`},
		{fixed, predictMethod, predictRequest("x", float, shape, dims(7, 1)), codes.InvalidArgument, `input "x": got values in field 7, want 5 for float32`},
		{fixed, predictMethod, predictRequest("x", float, tfDims(2, 3, 3), blob(5, floats(1))), codes.InvalidArgument, `input "x": got 3 rows, want at most 2`},
		{fixed, predictMethod, predictRequest("x", float, sub(2, integer(3, 1))), codes.InvalidArgument, "the shape has an unknown rank"},
		{free, predictMethod, predictRequest("x", float, tfDims(2, 2, 1<<20), blob(5, floats(1))), codes.InvalidArgument, "want all of them: at most 4194304 bytes may be left out"},
		{free, predictMethod, predictRequest("x", float, tfDims(2, 2, math.MaxInt32), blob(5, floats(1))), codes.InvalidArgument, "want all of them"},
		{fixed, "/" + tfService + "/Classify", nil, codes.Unimplemented, "unknown method Classify"},
		{fixed, "/" + tfService + "/GetModelMetadata", build(sub(1, text(1, "m")), text(2, "other")), codes.InvalidArgument, `metadata_field is "other", want signature_def`},
		{fixed, "/" + tfService + "/GetModelMetadata", build(sub(1, text(1, "n"))), codes.NotFound, `model "n" is not served`},
		{fixed, "/" + modelService + "/GetModelStatus", build(sub(1, text(1, "n"))), codes.NotFound, `model "n" is not served`},
		{fixed, "/" + modelService + "/GetModelStatus", []byte("\xff"), codes.InvalidArgument, "unexpected EOF"},
		{fixed, "/" + oipService + "/ModelMetadata", build(text(1, "n")), codes.NotFound, `model "n" is not served`},
		{fixed, "/" + oipService + "/ModelReady", []byte("\xff"), codes.InvalidArgument, "unexpected EOF"},
		{fixed, "/" + oipService + "/ModelInfer", make([]byte, 2000), codes.ResourceExhausted, "larger than max (2000 vs. 1000)"},
	} {
		options := grpc.MaxRecvMsgSize(1000)
		if len(c.request) > 2000 {
			options = grpc.MaxRecvMsgSize(1 << 20)
		}
		conn, g := dial(t, c.s, options)
		_, err := call(t.Context(), conn, c.method, c.request)
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.want) {
			t.Errorf("%s %.100q: got  %v\nwant %v %s", c.method, c.request, err, c.code, c.want)
		}
		g.Stop()
	}
}

// TestRepeated: values that are left out are the last one, or zeros.
func TestRepeated(t *testing.T) {
	conn, _ := dial(t, newServer(t, halfPlusTwo(t, 3), serving.Options{}))
	for _, c := range []struct{ given, want []byte }{
		{floats(2), floats(3, 3, 3)},
		{floats(2, 4), floats(3, 4, 4)},
		{nil, floats(2, 2, 2)},
	} {
		request := predictRequest("", integer(1, 1), tfDims(2, 1, 3), blob(5, c.given))
		answer, err := call(t.Context(), conn, predictMethod, request)
		if got := firstOutput(t, predictMethod, answer); err != nil || string(got) != string(c.want) {
			t.Errorf("%q: got %q, %v, want %q", c.given, got, err, c.want)
		}
	}
}

// TestHealth: grpc.health.v1 says what the server says, and a Watch does not keep
// GracefulStop from ending.
func TestHealth(t *testing.T) {
	s := serving.New()
	defer s.Close()
	conn, g := dial(t, s)
	health := grpc_health_v1.NewHealthClient(conn)
	check := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, service := range services {
			got, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
			if err != nil || got.Status != want {
				t.Errorf("%q: got %v, %v, want %v", service, got, err, want)
			}
		}
		ready, err := call(t.Context(), conn, "/"+oipService+"/ServerReady", nil)
		if err != nil || len(ready) > 0 != (want == grpc_health_v1.HealthCheckResponse_SERVING) {
			t.Errorf("ServerReady: got %q, %v", ready, err)
		}
	}
	watch := func(service string) grpc.ServerStreamingClient[grpc_health_v1.HealthCheckResponse] {
		w, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	next := func(w grpc.ServerStreamingClient[grpc_health_v1.HealthCheckResponse], want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if got, err := w.Recv(); err != nil || got.Status != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	const serves, not = grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING
	check(not)
	w, odd := watch(""), watch("odd")
	next(w, not)
	next(odd, grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN)
	if err := s.Add("m", 1, halfPlusTwo(t), serving.Options{}); err != nil {
		t.Fatal(err)
	}
	check(serves)
	next(w, serves)
	if list, err := health.List(t.Context(), &grpc_health_v1.HealthListRequest{}); err != nil || len(list.Statuses) != len(services) || list.Statuses[""].Status != serves {
		t.Errorf("got %v, %v", list, err)
	}
	if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "odd"}); status.Code(err) != codes.NotFound {
		t.Errorf("got %v for an unknown service", err)
	}
	s.Drain()
	check(not)
	next(w, not)
	if _, err := w.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v of a Watch of a server that drains", err)
	}
	g.GracefulStop()
}

// block is a layer whose calls on data wait.
type block struct {
	layers.Base
	call func()
}

func (b *block) Config() layers.Config       { return layers.Config{Name: "block"} }
func (b *block) Build(...layers.Shape) error { return nil }
func (b *block) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	if !x.Symbolic() {
		b.call()
	}
	return x.AddScalar(0)
}

// blocking returns a model of numbers that calls f when it is recorded.
func blocking(t testing.TB, f func()) *keras.Model {
	t.Helper()
	x := keras.Named("x", keras.Input())
	m, err := keras.NewModel(x, keras.Apply(&block{call: f}, x))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestContext: calls whose deadline is over, or that the client has given up, are
// not computed, and a full queue refuses.
func TestContext(t *testing.T) {
	entered, resume := make(chan bool, 8), make(chan bool)
	s := newServer(t, blocking(t, func() { entered <- true; <-resume }), serving.Options{MaxQueue: 2, MaxBatch: 1, Warm: []int{}})
	rows := make(chan int, 8)
	s.Observe = func(o serving.Observation) { rows <- o.Batch }
	conn, _ := dial(t, s)
	request := inferRequest("x", "FP32", []int{1}, floats(1))
	waiting := func(n int) {
		for s.Loads()[0].Queued != n {
			time.Sleep(100 * time.Microsecond)
		}
	}
	first := make(chan error)
	go func() {
		_, err := call(t.Context(), conn, inferMethod, request)
		first <- err
	}()
	<-entered
	deadline, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer end()
	if _, err := call(deadline, conn, inferMethod, request); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	waiting(0)
	ctx, cancel := context.WithCancel(t.Context())
	others := make(chan error)
	for range 2 {
		go func() {
			_, err := call(ctx, conn, inferMethod, request)
			others <- err
		}()
	}
	waiting(2)
	if _, err := call(t.Context(), conn, inferMethod, request); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v of a full queue", err)
	}
	cancel()
	for range 2 {
		if err := <-others; status.Code(err) != codes.Canceled {
			t.Errorf("got %v", err)
		}
	}
	waiting(0)
	close(resume)
	if err := <-first; err != nil {
		t.Error(err)
	}
	computed := 0
	for range 5 {
		if <-rows > 0 {
			computed++
		}
	}
	if computed != 1 {
		t.Errorf("%d of 5 requests were computed, want 1", computed)
	}
}

// TestPanic: a panic of the model is the client's error INTERNAL, and the server
// lives; so is one of a method.
func TestPanic(t *testing.T) {
	var bad bool
	s := newServer(t, blocking(t, func() {
		if bad {
			panic("odd")
		}
	}), serving.Options{Warm: []int{1}})
	bad = true
	conn, _ := dial(t, s)
	request := inferRequest("x", "FP32", []int{2}, floats(1, 2))
	if _, err := call(t.Context(), conn, inferMethod, request); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "odd") {
		t.Errorf("got %v", err)
	}
	if _, err := call(t.Context(), conn, inferMethod, inferRequest("x", "FP32", []int{1}, floats(1))); err != nil {
		t.Error(err)
	}
	var registered registrar
	register(&registered, "s", map[string]method{"f": func(context.Context, []byte) (message, error) { panic("odd") }})
	if _, err := registered["/s/f"](t.Context(), nil); status.Code(err) != codes.Internal {
		t.Errorf("got %v", err)
	}
}

// registrar calls methods without a connection.
type registrar map[string]func(ctx context.Context, request []byte) ([]byte, error)

func (r *registrar) RegisterService(d *grpc.ServiceDesc, _ any) {
	if *r == nil {
		*r = registrar{}
	}
	for _, m := range d.Methods {
		(*r)["/"+d.ServiceName+"/"+m.MethodName] = func(ctx context.Context, request []byte) ([]byte, error) {
			answer, err := m.Handler(nil, ctx, func(to any) error { *to.(*[]byte) = request; return nil }, nil)
			if err != nil {
				return nil, err
			}
			return answer.([]byte), nil
		}
	}
}

// TestInterceptor: unary interceptors get the bytes and the method, and may refuse.
func TestInterceptor(t *testing.T) {
	var seen []string
	conn, _ := dial(t, newServer(t, halfPlusTwo(t), serving.Options{}), grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		b, _ := request.([]byte)
		seen = append(seen, info.FullMethod+" "+string(b))
		if len(seen) > 1 {
			return nil, errors.New("no")
		}
		return next(ctx, request)
	}))
	method := "/" + oipService + "/ModelReady"
	if _, err := call(t.Context(), conn, method, build(text(1, "m"))); err != nil {
		t.Error(err)
	}
	if _, err := call(t.Context(), conn, method, nil); status.Code(err) != codes.Unknown {
		t.Errorf("got %v", err)
	}
	if len(seen) != 2 || seen[0] != method+" \x0a\x01m" {
		t.Errorf("got %q", seen)
	}
}

// TestCodec: messages that are no bytes go to the usual codec.
func TestCodec(t *testing.T) {
	c := newCodec()
	b, err := c.Marshal(&grpc_health_v1.HealthCheckRequest{Service: "a"})
	if err != nil {
		t.Fatal(err)
	}
	var r grpc_health_v1.HealthCheckRequest
	if err := c.Unmarshal(b, &r); err != nil || r.Service != "a" {
		t.Errorf("got %v, %v", &r, err)
	}
	if _, err := io.ReadAll(b.Reader()); err != nil {
		t.Error(err)
	}
}

func fieldNumber(n int) protowire.Number { return protowire.Number(n) }

func fixed32(number int, v float32) part {
	return func(m *message) {
		*m = protowire.AppendFixed32(protowire.AppendTag(*m, fieldNumber(number), protowire.Fixed32Type), math.Float32bits(v))
	}
}

func fixed64(number int, v float64) part {
	return func(m *message) {
		*m = protowire.AppendFixed64(protowire.AppendTag(*m, fieldNumber(number), protowire.Fixed64Type), math.Float64bits(v))
	}
}
