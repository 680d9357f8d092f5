package servinggrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mezzo-ml/mezzo/keras/serving"
)

// TestLoad: many clients of all protocols, while the model is replaced each 100 ms
// and one request in a hundred is cancelled. Each client gets the answer to its own
// request, no other request fails, and no goroutine is left.
func TestLoad(t *testing.T) {
	const clients = 64
	length := 2 * time.Second
	if testing.Short() {
		length = time.Second
	}
	before := runtime.NumGoroutine()
	s := newServer(t, halfPlusTwo(t, 3), serving.Options{MaxBatch: 16})
	var batches atomic.Int64
	conn, g := dial(t, s)
	server := httptest.NewServer(s.Handler(serving.HandlerOptions{}))
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	client := &http.Client{Transport: transport}
	end, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var wg sync.WaitGroup
	var answered, cancelled atomic.Int64
	for i := range clients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(i)))
			ask := askers(conn, client, server.URL)[i%4]
			for k := 0; end.Err() == nil; k++ {
				x := []float32{float32(i), float32(k), r.Float32()}
				ctx, cancel := context.WithCancel(t.Context())
				drop := r.IntN(100) == 0
				if drop {
					time.AfterFunc(time.Duration(r.IntN(1000))*time.Microsecond, cancel)
				}
				got, err := ask(ctx, x)
				cancel()
				switch {
				case err != nil && drop && (status.Code(err) == codes.Canceled || strings.Contains(err.Error(), "canceled")):
					cancelled.Add(1)
				case err != nil:
					t.Errorf("client %d: %v", i, err)
					return
				case !bytes.Equal(got, floats(x[0]/2+2, x[1]/2+2, x[2]/2+2)):
					t.Errorf("client %d: got %v for %v", i, got, x)
					return
				default:
					answered.Add(1)
				}
			}
		})
	}
	for end.Err() == nil {
		if err := s.Add("m", 1, halfPlusTwo(t, 3), serving.Options{MaxBatch: 16}); err != nil {
			t.Error(err)
		}
		batches.Add(1)
		select {
		case <-end.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	wg.Wait()
	t.Logf("%d requests answered, %d cancelled, %d models", answered.Load(), cancelled.Load(), batches.Load())
	if answered.Load() < clients || batches.Load() < 2 {
		t.Error("this is no load")
	}
	conn.Close()
	g.GracefulStop()
	transport.CloseIdleConnections()
	server.Close()
	s.Close()
	for begun := time.Now(); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// askers returns a client of each protocol for a row of 3 numbers.
func askers(conn *grpc.ClientConn, client *http.Client, url string) [4]func(ctx context.Context, x []float32) ([]byte, error) {
	post := func(ctx context.Context, path, body string) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, "POST", url+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		w, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		defer w.Body.Close()
		answer, err := io.ReadAll(w.Body)
		if err == nil && w.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", w.Status, answer)
		}
		return answer, err
	}
	first := func(method string, answer []byte) (data []byte) {
		fields(answer, func(f field) error {
			if method == inferMethod && f.number == 6 {
				data = f.bytes
			}
			if method == predictMethod && f.number == 1 {
				data = f.bytes[len(f.bytes)-12:] // the last field of the last field
			}
			return nil
		})
		return data
	}
	return [4]func(ctx context.Context, x []float32) ([]byte, error){
		func(ctx context.Context, x []float32) ([]byte, error) {
			answer, err := call(ctx, conn, inferMethod, inferRequest("x", "FP32", []int{1, 3}, floats(x...)))
			return first(inferMethod, answer), err
		},
		func(ctx context.Context, x []float32) ([]byte, error) {
			answer, err := call(ctx, conn, predictMethod, predictRequest("x", integer(1, 1), tfDims(2, 1, 3), blob(5, floats(x...))))
			return first(predictMethod, answer), err
		},
		func(ctx context.Context, x []float32) ([]byte, error) {
			row, _ := json.Marshal(x)
			answer, err := post(ctx, "/v1/models/m:predict", `{"instances":[`+string(row)+`]}`)
			if err != nil {
				return nil, err
			}
			var y struct{ Predictions [][]float32 }
			if err := json.Unmarshal(answer, &y); err != nil || len(y.Predictions) != 1 {
				return nil, fmt.Errorf("%s: %w", answer, err)
			}
			return floats(y.Predictions[0]...), nil
		},
		func(ctx context.Context, x []float32) ([]byte, error) {
			row, _ := json.Marshal(x)
			answer, err := post(ctx, "/v2/models/m/infer", `{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":`+string(row)+`}]}`)
			if err != nil {
				return nil, err
			}
			var y struct{ Outputs []struct{ Data []float32 } }
			if err := json.Unmarshal(answer, &y); err != nil || len(y.Outputs) != 1 {
				return nil, fmt.Errorf("%s: %w", answer, err)
			}
			return floats(y.Outputs[0].Data...), nil
		},
	}
}
