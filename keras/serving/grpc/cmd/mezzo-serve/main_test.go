package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// running is a server in this process.
type running struct {
	http, grpc, metrics string // addresses
	stop                func() error
}

// output is where slog writes while servers run.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *output) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *output) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs the program with arguments, on free ports unless they say others.
func start(t *testing.T, args ...string) (r running, said *output) {
	t.Helper()
	said = &output{}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(said, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	c, err := parse(append([]string{"-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0"}, args...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, c) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { r.stop() })
	addresses := map[string]*string{"http": &r.http, "grpc": &r.grpc}
	if c.metrics != "" {
		addresses["metrics"] = &r.metrics
	}
	for kind, address := range addresses {
		for *address == "" {
			if _, after, ok := strings.Cut(said.String(), "msg=listening "+kind+"="); ok {
				*address, _, _ = strings.Cut(after, "\n")
				break
			}
			select {
			case err := <-ended:
				t.Fatal(err, said)
			case <-time.After(time.Millisecond):
			}
		}
	}
	return r, said
}

// raw is a codec of bytes.
type raw struct{ encoding.CodecV2 }

func (r raw) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return r.CodecV2.Marshal(v)
}

func (r raw) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = data.Materialize()
		return nil
	}
	return r.CodecV2.Unmarshal(data, v)
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{encoding.GetCodecV2("proto")})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// golden returns a request that tritonclient.grpc has sent, with its answer.
func golden(t *testing.T) (method string, request, answer []byte) {
	t.Helper()
	text, err := os.ReadFile("../../testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Method          string
		Request, Answer []byte
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if strings.HasSuffix(one.Method, "/ModelInfer") {
			return one.Method, one.Request, one.Answer
		}
	}
	t.Fatal("no golden request")
	return "", nil, nil
}

func post(url, body string, headers ...string) (status int, answer string, err error) {
	r, err := http.NewRequest("POST", url, strings.NewReader(body))
	if body == "" {
		r, err = http.NewRequest("GET", url, nil)
	}
	if err != nil {
		return 0, "", err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	return w.StatusCode, string(b), err
}

// TestDrain: SIGTERM, here the end of the context, under load of both protocols.
// Clients that stop when the server says that it is not ready see no failure.
func TestDrain(t *testing.T) {
	r, said := start(t, "-drain", "300ms")
	method, request, want := golden(t)
	conn := dial(t, r.grpc)
	health := grpc_health_v1.NewHealthClient(conn)
	var answered atomic.Int64
	var drained atomic.Bool
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for !drained.Load() {
				var err error
				if i%2 == 0 {
					var answer []byte
					if err = conn.Invoke(t.Context(), method, request, &answer); err == nil && string(answer) != string(want) {
						err = fmt.Errorf("got %q", answer)
					}
				} else {
					status, answer, failed := post("http://"+r.http+"/v1/models/half_plus_two:predict", `{"instances":[1,2,5]}`)
					if err = failed; err == nil && (status != http.StatusOK || answer != `{"predictions":[2.5,3.0,4.5]}`) {
						err = fmt.Errorf("got %d %s", status, answer)
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				answered.Add(1)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	stopped := make(chan error)
	go func() { stopped <- r.stop() }()
	for {
		w, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Error(err)
			break
		}
		if w.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if status, _, err := post("http://"+r.http+"/v2/health/ready", ""); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("got %d, %v of a server that drains", status, err)
	}
	time.Sleep(20 * time.Millisecond) // the balancer's next look
	drained.Store(true)
	wg.Wait()
	http.DefaultClient.CloseIdleConnections()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if answered.Load() < 8 || !strings.Contains(said.String(), "shutting down") {
		t.Errorf("%d requests; it printed\n%s", answered.Load(), said)
	}
}

// TestGrace: a client that does not end is left after -grace.
func TestGrace(t *testing.T) {
	r, _ := start(t, "-grace", "50ms")
	conn, err := net.Dial("tcp", r.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
	time.Sleep(10 * time.Millisecond)
	if err := r.stop(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestToken: requests need the token; health and metrics do not.
func TestToken(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "models", "1", "model.keras")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	x := keras.Input(2)
	m, err := keras.NewModel(x, keras.Apply(&layers.Activation{Activation: "relu"}, x))
	if err != nil {
		t.Fatal(err)
	}
	if err := saving.Save(file, m); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, said := start(t, "-token-file", token, "-metrics", "127.0.0.1:0", "m="+filepath.Join(dir, "models"))
	if !strings.Contains(said.String(), "msg=loaded model=m version=1") {
		t.Errorf("it printed\n%s", said)
	}
	ask := func(want int, url, body string, headers ...string) (answer string) {
		t.Helper()
		status, answer, err := post("http://"+url, body, headers...)
		if err != nil || status != want {
			t.Errorf("%s: got %d %s %v, want %d", url, status, answer, err, want)
		}
		return answer
	}
	predict := r.http + "/v1/models/m:predict"
	ask(http.StatusUnauthorized, predict, "{}")
	ask(http.StatusUnauthorized, predict, "{}", "Authorization", "Bearer abd")
	ask(http.StatusOK, predict, `{"instances":[[-1,2]]}`, "Authorization", "Bearer abc")
	ask(http.StatusOK, r.http+"/v2/health/ready", "")
	ask(http.StatusUnauthorized, r.http+"/metrics", "") // it has a port of its own
	if got := ask(http.StatusOK, r.metrics+"/metrics", ""); !strings.Contains(got, `mezzo_requests_total{code="200",model="m",protocol="tfserving",version="1"} 1`) {
		t.Errorf("got\n%s", got)
	}
	conn := dial(t, r.grpc)
	live := func(ctx context.Context) codes.Code {
		var answer []byte
		return status.Code(conn.Invoke(ctx, "/inference.GRPCInferenceService/ServerLive", []byte{}, &answer))
	}
	with := func(value string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", value)
	}
	if a, b, c := live(t.Context()), live(with("Bearer abd")), live(with("Bearer abc")); a != codes.Unauthenticated || b != a || c != codes.OK {
		t.Errorf("got %v, %v and %v", a, b, c)
	}
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// TestWrong: command lines that are wrong.
func TestWrong(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-token-file", "none"}, {"-token-file", empty}, {"-odd"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v: got no error", args)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v for -h", err)
	}
	for _, args := range [][]string{{"models"}, {"m=none"}, {"-max-batch", "-1"}, {"-grpc", "odd"}, {"-http", "odd"}} {
		c, err := parse(args, io.Discard)
		if err == nil {
			err = run(t.Context(), c)
		}
		if err == nil {
			t.Errorf("%v: got no error", args)
		}
	}
}

// TestPage holds what docs/serving.md says that this program prints and answers.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../../../../docs/serving.md")
	if err != nil {
		t.Fatal(err)
	}
	const held = "<!-- held by TestPage in keras/serving/grpc/cmd/mezzo-serve/main_test.go -->\n```\n"
	parts := strings.Split(string(text), held)
	if len(parts) < 3 {
		t.Fatalf("%d outputs are held", len(parts)-1)
	}
	r, said := start(t)
	for i, part := range parts[1:] {
		want, _, _ := strings.Cut(part, "```")
		commands := parts[i][strings.LastIndex(parts[i], "```sh\n")+len("```sh\n"):]
		commands, _, _ = strings.Cut(commands, "```")
		got := ""
		for command := range strings.Lines(commands) {
			command = strings.TrimSpace(command)
			if address, ok := strings.CutPrefix(command, "curl -s http://127.0.0.1:8501"); ok {
				address, filter, _ := strings.Cut(address, " | grep ")
				_, answer, err := post("http://"+r.http+address, "")
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(answer) {
					if strings.Contains(line, filter) {
						got += line
					}
				}
			} else if body, ok := strings.CutPrefix(command, "curl -s -d '"); ok {
				body, address, _ := strings.Cut(body, "' http://127.0.0.1:8501")
				_, answer, err := post("http://"+r.http+address, body)
				if err != nil {
					t.Fatal(err)
				}
				got += answer + "\n"
			} else if strings.HasPrefix(command, "go run ./cmd/mezzo-serve") {
				for line := range strings.Lines(said.String()) {
					_, line, _ = strings.Cut(line, "level=")
					got += "… " + strings.Replace(line, "msg=", "", 1)
				}
				got = strings.NewReplacer(r.http, "127.0.0.1:8501", r.grpc, "127.0.0.1:8500").Replace(got)
			}
		}
		if got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
}
