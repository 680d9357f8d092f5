package serving

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// hook is a layer that calls a function when it is recorded: once for each shape.
type hook struct {
	layers.Base
	call func(x *keras.Tensor) *keras.Tensor
}

func (h *hook) Config() layers.Config                             { return layers.Config{Name: "hook"} }
func (h *hook) Build(...layers.Shape) error                       { return nil }
func (h *hook) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor { return h.call(x) }

// hooked returns a model of 3 inputs that are its outputs; a call on data calls f.
func hooked(t testing.TB, f func(x *keras.Tensor)) *keras.Model {
	t.Helper()
	in := keras.Named("x", keras.Input(3))
	m, err := keras.NewModel(in, keras.Apply(&hook{call: func(x *keras.Tensor) *keras.Tensor {
		if !x.Symbolic() {
			f(x)
		}
		return x.AddScalar(0)
	}}, in))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// rows returns n rows of 3 numbers as the input of hooked and dense.
func rows(n int, value float32) []Tensor {
	var b []byte
	for range 3 * n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(value))
	}
	return []Tensor{{"x", dtype.Float32, keras.Shape{n, 3}, b}}
}

// waiting waits until n requests are in the queue of version 1 of "m".
func waiting(t *testing.T, s *Server, n int) {
	t.Helper()
	v, err := s.find("m", selector{})
	if err != nil {
		t.Fatal(err)
	}
	defer v.release()
	for begun := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		v.queue.mu.Lock()
		have := len(v.queue.jobs)
		v.queue.mu.Unlock()
		if have == n {
			return
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("%d requests are waiting, want %d", have, n)
		}
	}
}

// TestQueue: while the model computes requests wait; a full queue refuses, ended
// contexts make room and are not computed, and the rest is computed together.
func TestQueue(t *testing.T) {
	entered, resume := make(chan int, 8), make(chan struct{})
	m := hooked(t, func(x *keras.Tensor) { entered <- x.Dim(0); <-resume })
	s := New()
	defer s.Close()
	var mu sync.Mutex
	var seen []Observation
	s.Observe = func(o Observation) { mu.Lock(); seen = append(seen, o); mu.Unlock() }
	if err := s.Add("m", 1, m, Options{MaxQueue: 3, Warm: []int{}}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	infer := func(ctx context.Context, n int, value float32) <-chan error {
		done := make(chan error, 1)
		wg.Go(func() {
			in := rows(n, value)
			res, err := s.Infer(ctx, Request{Model: "m", Inputs: in})
			if err == nil && !bytes.Equal(res.Outputs[0].Data, in[0].Data) {
				t.Errorf("%v: got other rows than those given", value)
			}
			done <- err
		})
		return done
	}
	first := infer(t.Context(), 1, 1)
	if n := <-entered; n != 1 {
		t.Fatalf("got a batch of %d", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	second := infer(ctx, 1, 2)
	waiting(t, s, 1)
	third := infer(t.Context(), 2, 3)
	waiting(t, s, 2)
	deadline, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	fourth := infer(deadline, 1, 4)
	waiting(t, s, 3)
	w := ask(s.Handler(HandlerOptions{}), "POST", predictPath, `{"instances":[[1,2,3]]}`)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "3 requests are waiting; try again later") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) || StatusOf(err) != statusClientClosed {
		t.Errorf("got %v", err)
	}
	waiting(t, s, 2)
	past, stop := context.WithTimeout(t.Context(), -1)
	defer stop()
	if err := <-infer(past, 1, 5); !errors.Is(err, context.DeadlineExceeded) || StatusOf(err) != http.StatusGatewayTimeout {
		t.Errorf("got %v", err)
	}
	close(resume)
	for _, done := range []<-chan error{first, third, fourth} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := <-entered; n != 4 { // 2 and 1 rows, padded
		t.Errorf("got a batch of %d, want 4", n)
	}
	wg.Wait()
	together := 0
	for _, o := range seen {
		if o.Batch == 3 && o.Padded == 4 && o.Status == 200 && o.Model == "m" && o.Version == 1 && o.Queued > 0 && o.Computed > 0 {
			together += o.Rows
		}
	}
	if len(seen) != 6 || together != 3 {
		t.Errorf("observed %+v", seen)
	}
}

// TestDelay: with MaxDelay requests are computed together although the model is
// idle, and a full batch does not wait.
func TestDelay(t *testing.T) {
	s := newServer(t, dense(t, 0), Options{MaxBatch: 4, MaxDelay: time.Hour})
	var batches atomic.Int64
	s.Observe = func(o Observation) { batches.Add(int64(o.Batch)) }
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := s.Infer(t.Context(), Request{Model: "m", Inputs: rows(1, 1)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// A request that does not fit beside the first one ends its wait, and its own.
	wg.Go(func() {
		if _, err := s.Infer(t.Context(), Request{Model: "m", Inputs: rows(3, 1)}); err != nil {
			t.Error(err)
		}
	})
	waiting(t, s, 1)
	if _, err := s.Infer(t.Context(), Request{Model: "m", Inputs: rows(4, 1)}); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if n := batches.Load(); n != 4*4+3+4 {
		t.Errorf("observed batches of %d rows in all", n)
	}
}

// TestPanic: a model that panics is 500 without its text, and the server lives.
func TestPanic(t *testing.T) {
	bad := true
	m := hooked(t, func(x *keras.Tensor) {
		if bad {
			panic("a secret")
		}
	})
	s := New()
	defer s.Close()
	var seen error
	s.Observe = func(o Observation) { seen = o.Err }
	if err := s.Add("m", 1, m, Options{Warm: []int{}}); err != nil {
		t.Fatal(err)
	}
	h := s.Handler(HandlerOptions{})
	w := ask(h, "POST", predictPath, `{"instances":[[1,2,3]]}`)
	if want := `{"error":"model \"m\" version 1: the model panicked; see the server's log"}`; w.Code != http.StatusInternalServerError || w.Body.String() != want {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	var p *PanicError
	if !errors.As(seen, &p) || p.Value != "a secret" || !bytes.Contains(p.Stack, []byte("batch_test.go")) {
		t.Errorf("observed %v", seen)
	}
	bad = false
	if w := ask(h, "POST", predictPath, `{"instances":[[1,2,3]]}`); w.Code != http.StatusOK {
		t.Errorf("got %d %s after a panic", w.Code, w.Body)
	}
}

// TestIsolation: of requests that are computed together only the one with a bad
// index fails.
func TestIsolation(t *testing.T) {
	s := newServer(t, twoInputs(t), Options{MaxBatch: 4, MaxDelay: time.Hour})
	h := s.Handler(HandlerOptions{})
	var wg sync.WaitGroup
	for _, word := range []string{"0", "1", "4", "3"} {
		wg.Go(func() {
			w := ask(h, "POST", predictPath, `{"instances":[{"word":`+word+`,"numbers":[0,0]}]}`)
			if bad := word == "4"; bad != (w.Code == http.StatusBadRequest) || !bad && w.Code != http.StatusOK {
				t.Errorf("word %s: got %d %s", word, w.Code, w.Body)
			}
		})
	}
	wg.Wait()
}

// TestShapes: rows of several lengths are computed, each with its like.
func TestShapes(t *testing.T) {
	in := keras.Named("x", keras.Input(keras.Unknown))
	m, err := keras.NewModel(in, keras.Apply(&layers.Activation{Activation: "relu", Name: "y"}, in))
	if err != nil {
		t.Fatal(err)
	}
	h := newServer(t, m, Options{MaxDelay: time.Millisecond}).Handler(HandlerOptions{})
	var wg sync.WaitGroup
	for i := range 24 {
		row := strings.TrimSuffix(strings.Repeat("1.0,", 1+i%3), ",")
		wg.Go(func() {
			w := ask(h, "POST", predictPath, `{"instances":[[`+row+`]]}`)
			if got, want := w.Body.String(), `{"predictions":[[`+row+`]]}`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	wg.Wait()
}

// TestEqualsPredict: what is computed together, with whatever came at the same time, has the
// bits that Predict of the saved and loaded model returns for all rows at once.
func TestEqualsPredict(t *testing.T) {
	const requests, width = 24, 1500
	for _, policy := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		if policy != "float32" && strings.Contains(keras.Devices()[0].ISA, "AMX") {
			continue // an exception of docs/reproducibility.md
		}
		in := keras.Input(width)
		x := keras.Apply(&layers.Dense{Units: 48, Activation: "relu", DType: policy}, in)
		m, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 8, DType: policy}, x))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "m.keras")
		if err := saving.Save(path, m); err != nil {
			t.Fatal(err)
		}
		loaded, err := saving.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		draw := rand.New(rand.NewPCG(1, 0))
		var data []byte
		begins := []int{0} // of a request, as rows
		for i := range requests {
			begins = append(begins, begins[i]+1+i%3)
		}
		for range begins[requests] * width {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(draw.Float32()))
		}
		y, err := loaded.Predict(t.Context(), tensor.FromBytes(op.Type{DType: dtype.Float32, Shape: keras.Shape{begins[requests], width}}, data))
		if err != nil {
			t.Fatal(err)
		}
		want, err := y.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		row := len(want) / begins[requests]
		for _, o := range []Options{{}, {MaxBatch: 6, MaxDelay: time.Millisecond}, {MaxBatch: 3}} {
			s := newServer(t, m, o)
			var wg sync.WaitGroup
			for i := range requests {
				wg.Go(func() {
					from, to := begins[i], begins[i+1]
					res, err := s.Infer(t.Context(), Request{Model: "m", Inputs: []Tensor{{"", dtype.Float32, keras.Shape{to - from, width}, data[4*width*from : 4*width*to]}}})
					if err != nil {
						t.Error(err)
					} else if !bytes.Equal(res.Outputs[0].Data, want[row*from:row*to]) {
						t.Errorf("%s, MaxBatch %d: rows %d to %d have other bits than in one batch", policy, o.MaxBatch, from, to-1)
					}
				})
			}
			wg.Wait()
		}
	}
}
