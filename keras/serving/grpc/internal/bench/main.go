//go:build linux

// Command bench compares mezzo-serve with onnxruntime behind uvicorn, on the same
// machine, with the same clients and weights:
//
//	go run ./internal/bench -python PYTHON
//
// PYTHON needs numpy, onnx, onnxruntime, fastapi, uvicorn, uvloop, httptools and
// orjson. Clients send one row, wait for the answer and send the next. Servers are
// measured in turns; rates and percentiles are medians over the turns. A peer is the
// fastest of its settings, one and two processes of one and two threads: of FastAPI,
// and of a plain ASGI application that computes requests one by one, or together.
// docs/benchmarks/serving.md has the results.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

var (
	python  = flag.String("python", "", "a Python with onnxruntime and uvicorn; none: Mezzo alone")
	clients = flag.Int("clients", 32, "clients, each with a connection")
	turns   = flag.Int("turns", 5, "turns of each server")
	length  = flag.Duration("length", 2*time.Second, "of a turn")
	hidden  = flag.String("units", "512,2048", "units of the hidden layers of each model")
	policy  = flag.String("policy", "float32", "Mezzo's policy")
	only    = flag.String("only", "", "only the servers with this in their name")
)

func main() {
	flag.Parse()
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server := filepath.Join(dir, "mezzo-serve")
	build := exec.Command("go", "build", "-o", server, "github.com/mezzo-ml/mezzo/keras/serving/grpc/cmd/mezzo-serve")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for text := range strings.SplitSeq(*hidden, ",") {
		units, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if err := compare(filepath.Join(dir, text), server, units); err != nil {
			return err
		}
	}
	return nil
}

// target is a server with a protocol: ask sends a request and checks the answer.
type target struct {
	name  string
	group int // of the server's processes
	ask   func() (client func() error, closes func(), err error)
	all   []result
}

// result is a turn.
type result struct {
	rate     float64 // requests a second
	p50, p99 time.Duration
	cpu      time.Duration // processor time of the server for a request
}

func (t *target) median() result {
	of := func(f func(result) float64) float64 {
		var all []float64
		for _, r := range t.all {
			all = append(all, f(r))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return result{
		of(func(r result) float64 { return r.rate }),
		time.Duration(of(func(r result) float64 { return float64(r.p50) })),
		time.Duration(of(func(r result) float64 { return float64(r.p99) })),
		time.Duration(of(func(r result) float64 { return float64(r.cpu) })),
	}
}

func compare(dir, server string, units int) error {
	fmt.Printf("784-%d-%d-10, %d clients with one row each, %d turns of %v\n", units, units, *clients, *turns, *length)
	row, want, alone, err := makeModel(dir, units)
	if err != nil {
		return err
	}
	var processes []*exec.Cmd
	defer func() {
		for _, p := range processes {
			syscall.Kill(-p.Process.Pid, syscall.SIGKILL) // and its workers
			p.Wait()
		}
	}()
	begin := func(address string, cmd *exec.Cmd) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "OPENBLAS_") })
		if err := cmd.Start(); err != nil {
			return err
		}
		processes = append(processes, cmd)
		return awaited(address)
	}
	jsonRow := jsonOf(row)
	var targets []*target
	for _, batch := range []int{64, 1} {
		rest, rpc := freeAddress(), freeAddress()
		cmd := exec.Command(server, "-http", rest, "-grpc", rpc, "-max-batch", strconv.Itoa(batch), "m="+filepath.Join(dir, "m"))
		if err := begin(rest, cmd); err != nil {
			return err
		}
		name := "Mezzo"
		if batch == 1 {
			name = "Mezzo, MaxBatch 1"
		}
		targets = append(targets,
			&target{name: name + ", REST JSON", group: cmd.Process.Pid, ask: overHTTP(rest, "/v1/models/m:predict", jsonHeader, []byte(`{"instances":[`+jsonRow+`]}`), checkJSON(want))},
			&target{name: name + ", REST binary", group: cmd.Process.Pid, ask: overHTTP(rest, "/v2/models/m/infer", oipHeader, append([]byte(oipText), row...), checkBinary(want))},
			&target{name: name + ", gRPC", group: cmd.Process.Pid, ask: overGRPC(rpc, row, want)})
	}
	first := len(targets)
	if *python != "" {
		for _, setting := range [][3]int{{1, 1, 0}, {2, 1, 0}, {1, 1, 1}, {1, 2, 1}, {2, 1, 1}, {1, 1, 64}, {1, 2, 64}, {2, 1, 64}} {
			address := freeAddress()
			_, port, _ := net.SplitHostPort(address)
			cmd := exec.Command(*python, "peer.py", port, dir, strconv.Itoa(setting[0]), strconv.Itoa(setting[1]), strconv.Itoa(setting[2]))
			cmd.Dir = "internal/bench"
			if err := begin(address, cmd); err != nil {
				return err
			}
			name := fmt.Sprintf("onnxruntime, ASGI, %d × %d threads", setting[0], setting[1])
			switch {
			case setting[2] == 0:
				name = fmt.Sprintf("onnxruntime, FastAPI, %d × %d threads", setting[0], setting[1])
			case setting[2] > 1:
				name += ", batches"
			}
			targets = append(targets,
				&target{name: name + ", JSON", group: cmd.Process.Pid, ask: overHTTP(address, "/json", jsonHeader, []byte(`{"instances":[`+jsonRow+`]}`), checkJSON(want))},
				&target{name: name + ", binary", group: cmd.Process.Pid, ask: overHTTP(address, "/binary", "", row, checkBinary(want))})
		}
	}
	targets = slices.DeleteFunc(targets, func(t *target) bool { return !strings.Contains(t.name, *only) })
	first = min(first, len(targets))
	for range *turns {
		for _, t := range targets {
			r, err := load(t, *length, 0)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			t.all = append(t.all, r)
		}
	}
	fmt.Printf("%-48s %9s %9s %9s %12s\n", "", "rows/s", "p50", "p99", "CPU of a row")
	for _, t := range targets {
		r := t.median()
		fmt.Printf("%-48s %9.0f %9v %9v %12v\n", t.name, r.rate, r.p50.Round(time.Microsecond), r.p99.Round(time.Microsecond), r.cpu.Round(time.Microsecond/10))
	}
	if *only != "" {
		return nil
	}
	ratio := func(name string, a, b *target) {
		x, y := a.median(), b.median()
		fmt.Printf("%s: %.2f times the rows a second, %.2f of its p50, %.2f of its p99\n", name, x.rate/y.rate, float64(x.p50)/float64(y.p50), float64(x.p99)/float64(y.p99))
	}
	for i, kind := range []string{"JSON", "binary"} {
		ratio(kind+", batches to MaxBatch 1", targets[i], targets[3+i])
		for _, peer := range []struct {
			name  string
			group func(name string) bool
		}{
			{"FastAPI", func(name string) bool { return strings.Contains(name, "FastAPI") }},
			{"ASGI one by one", func(name string) bool { return strings.Contains(name, "ASGI") && !strings.Contains(name, "batches") }},
			{"ASGI in batches", func(name string) bool { return strings.Contains(name, "batches") }},
		} {
			var best *target
			for _, t := range targets[first:] {
				if strings.HasSuffix(t.name, ", "+kind) && peer.group(t.name) && (best == nil || t.median().rate > best.median().rate) {
					best = t
				}
			}
			if best != nil {
				ratio(kind+", Mezzo to "+peer.name, targets[i], best)
			}
		}
	}
	ratio("gRPC, batches to MaxBatch 1", targets[2], targets[5])
	ratio("REST binary to gRPC", targets[1], targets[2])
	half, err := load(targets[1], *length, targets[1].median().rate/2)
	if err != nil {
		return err
	}
	fmt.Printf("REST binary at half of that rate: p50 %v, p99 %v; Predict alone %v; p99 is %.1f times that\n\n", half.p50, half.p99, alone, float64(half.p99)/float64(alone))
	return nil
}

// makeModel writes a model for both, and returns a row, what Mezzo predicts for it,
// and the median time of that.
func makeModel(dir string, units int) (row []byte, want []float32, alone time.Duration, err error) {
	sizes := []int{784, units, units, 10}
	in := keras.Named("x", keras.Input(784))
	x := in
	for i, u := range sizes[1:] {
		d := &layers.Dense{Units: u, Activation: "relu", DType: *policy}
		if i == 2 {
			d.Activation = "softmax"
		}
		x = keras.Apply(d, x)
	}
	m, err := keras.NewModel(in, x)
	if err != nil {
		return nil, nil, 0, err
	}
	file := filepath.Join(dir, "m", "1", "model.keras")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, nil, 0, err
	}
	if err := saving.Save(file, m); err != nil {
		return nil, nil, 0, err
	}
	weights, err := m.GetWeights()
	if err != nil {
		return nil, nil, 0, err
	}
	for i, w := range weights {
		b, err := w.Bytes()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, strconv.Itoa(i)+".f32"), b, 0o644)
		}
		if err != nil {
			return nil, nil, 0, err
		}
	}
	text, err := json.Marshal(sizes)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "units.json"), text, 0o644)
	}
	if err != nil {
		return nil, nil, 0, err
	}
	r := rand.New(rand.NewPCG(1, 1))
	values := make([]float32, 784)
	for i := range values {
		values[i] = float32(r.IntN(256)) / 255 // as pixels
		row = binary.LittleEndian.AppendUint32(row, math.Float32bits(values[i]))
	}
	var took []time.Duration
	for range 300 {
		begun := time.Now()
		y, err := m.Predict(context.Background(), keras.NewTensor(values, 1, 784))
		if err != nil {
			return nil, nil, 0, err
		}
		if want, err = y.Values(); err != nil {
			return nil, nil, 0, err
		}
		y.Release()
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return row, want, took[len(took)/2], nil
}

func jsonOf(row []byte) string {
	b := []byte{'['}
	for ; len(row) > 0; row = row[4:] {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(math.Float32frombits(binary.LittleEndian.Uint32(row))), 'g', -1, 32)
	}
	return string(append(b, ']'))
}

const (
	jsonHeader = "Content-Type: application/json\r\n"
	oipText    = `{"inputs":[{"name":"x","shape":[1,784],"datatype":"FP32","parameters":{"binary_data_size":3136}}],"parameters":{"binary_data_output":true}}`
)

var oipHeader = "Inference-Header-Content-Length: " + strconv.Itoa(len(oipText)) + "\r\n"

func near(got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("got %d numbers, want %d", len(got), len(want))
	}
	for i := range got {
		if math.Abs(float64(got[i]-want[i])) > 1e-2*float64(want[i])+1e-4 {
			return fmt.Errorf("got %v, want %v", got, want)
		}
	}
	return nil
}

func checkJSON(want []float32) func([]byte) error {
	return func(body []byte) error {
		var y struct{ Predictions [][]float32 }
		if err := json.Unmarshal(body, &y); err != nil || len(y.Predictions) != 1 {
			return fmt.Errorf("got %q, %w", body, err)
		}
		return near(y.Predictions[0], want)
	}
}

func checkBinary(want []float32) func([]byte) error {
	return func(body []byte) error {
		if len(body) < 4*len(want) {
			return fmt.Errorf("got %q", body)
		}
		var got []float32
		for b := body[len(body)-4*len(want):]; len(b) > 0; b = b[4:] {
			got = append(got, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
		return near(got, want)
	}
}

// overHTTP is a client that costs little: it writes bytes that are ready, and reads
// no more of the answer than its length. It checks the first answers.
func overHTTP(address, path, headers string, body []byte, check func([]byte) error) func() (func() error, func(), error) {
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n", path, address, headers, len(body))
	request = append(request, body...)
	return func() (func() error, func(), error) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return nil, nil, err
		}
		r := bufio.NewReaderSize(c, 16<<10)
		asked := 0
		var answer []byte
		return func() error {
			if _, err := c.Write(request); err != nil {
				return err
			}
			n := -1
			for i := 0; ; i++ {
				line, err := r.ReadSlice('\n')
				if err != nil {
					return err
				}
				if i == 0 && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
					rest, _ := r.Peek(r.Buffered())
					return fmt.Errorf("got %s%s", line, rest)
				}
				if len(line) <= 2 {
					break
				}
				if key, value, _ := bytes.Cut(line, []byte(":")); bytes.EqualFold(key, []byte("content-length")) {
					n, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
				}
			}
			if n < 0 {
				return fmt.Errorf("an answer without a length")
			}
			answer = slices.Grow(answer[:0], n)[:n]
			if _, err := io.ReadFull(r, answer); err != nil {
				return err
			}
			if asked++; asked < 4 {
				return check(answer)
			}
			return nil
		}, func() { c.Close() }, nil
	}
}

// codec passes bytes.
type codec struct{ encoding.CodecV2 }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func overGRPC(address string, row []byte, want []float32) func() (func() error, func(), error) {
	text := func(b []byte, number protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
	}
	input := text(text(text(nil, 1, "x"), 2, "FP32"), 3, "\x01\x90\x06")
	request := text(text(text(nil, 1, "m"), 5, string(input)), 7, string(row))
	check := checkBinary(want)
	return func() (func() error, func(), error) {
		c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{encoding.GetCodecV2("proto")})))
		if err != nil {
			return nil, nil, err
		}
		asked := 0
		return func() error {
			var answer []byte
			if err := c.Invoke(context.Background(), "/inference.GRPCInferenceService/ModelInfer", request, &answer); err != nil {
				return err
			}
			if asked++; asked < 4 {
				return check(answer)
			}
			return nil
		}, func() { c.Close() }, nil
	}
}

// load runs all clients for a time. If rate is not 0 they send as many requests a
// second, at random times, and latencies count from those times.
func load(t *target, length time.Duration, rate float64) (result, error) {
	var all []time.Duration
	var mu sync.Mutex
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	before := processorTime(t.group)
	begun := time.Now()
	end := begun.Add(length)
	for i := range *clients {
		ask, closes, err := t.ask()
		if err != nil {
			return result{}, err
		}
		wg.Go(func() {
			defer closes()
			r := rand.New(rand.NewPCG(1, uint64(i)))
			var took []time.Duration
			next := time.Now()
			for failed.Load() == nil {
				from := time.Now()
				if rate > 0 {
					next = next.Add(time.Duration(r.ExpFloat64() * float64(*clients) / rate * float64(time.Second)))
					time.Sleep(time.Until(next))
					from = next
				}
				if from.After(end) {
					break
				}
				if err := ask(); err != nil {
					failed.Store(&err)
					return
				}
				took = append(took, time.Since(from))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took[min(len(took), 3):]...) // connections are made
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return result{}, *err
	}
	slices.Sort(all)
	n := len(all)
	cpu := (processorTime(t.group) - before) / time.Duration(n)
	return result{float64(n) / time.Since(begun).Seconds(), all[n/2], all[n*99/100], cpu}, nil
}

// processorTime is that of the processes of a group, of user and system.
func processorTime(group int) (total time.Duration) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// After the name, which may have spaces: state, parent, group, … , 11 and 12 are the ticks.
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(f) > 12 && f[2] == strconv.Itoa(group) {
			for _, ticks := range f[11:13] {
				n, _ := strconv.Atoi(ticks)
				total += time.Duration(n) * 10 * time.Millisecond
			}
		}
	}
	return total
}

// freeAddress is of a port that was free a moment ago.
func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// awaited returns when a server answers.
func awaited(address string) (err error) {
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(50 * time.Millisecond) {
		var r *http.Response
		if r, err = http.Get("http://" + address + "/v2/health/ready"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	return cmp.Or(err, fmt.Errorf("%s is not ready", address))
}
