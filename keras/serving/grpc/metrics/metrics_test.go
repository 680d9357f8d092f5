package metrics

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/serving"
	"github.com/mezzo-ml/mezzo/layers"
)

// scrape returns the lines of the metrics that are no comments, buckets or sums of
// times.
func scrape(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	all, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, err)
	}
	text := regexp.MustCompile(`(?m)^(#.*|\w+_bucket\{.*|\w+_seconds_sum\{.*)\n`).ReplaceAllString(string(all), "")
	return regexp.MustCompile(`(load_duration_seconds\{.*\}) .*`).ReplaceAllString(text, "$1 …")
}

// TestMetrics: what is counted of requests, batches and models.
func TestMetrics(t *testing.T) {
	x := keras.Named("x", keras.Input())
	m, err := keras.NewModel(x, keras.Apply(&layers.Reshape{TargetShape: []int{}, Name: "y"}, x))
	if err != nil {
		t.Fatal(err)
	}
	s := serving.New()
	defer s.Close()
	called := ""
	s.Observe = func(serving.Observation) { called += "o" }
	s.Batched = func(serving.Batch) { called += "b" }
	s.Loaded = func(serving.LoadEvent) { called += "l" }
	registry := prometheus.NewRegistry()
	registry.MustRegister(New(s))
	if got := scrape(t, registry); got != "mezzo_ready 0\n" {
		t.Errorf("got %s", got)
	}
	if err := s.Add("m", 1, m, serving.Options{Warm: []int{}}); err != nil {
		t.Fatal(err)
	}
	infer := func(model string, n int, data int) {
		_, err := s.Infer(t.Context(), serving.Request{Model: model, Protocol: "p", Inputs: []serving.Tensor{{DType: dtype.Float32, Shape: keras.Shape{n}, Data: make([]byte, data)}}})
		if (err == nil) != (model == "m" && data == 4*n) {
			t.Error(err)
		}
	}
	infer("m", 3, 12)
	infer("m", 1, 4)
	infer("m", 2, 3)
	infer("odd", 1, 4)
	s.Loaded(serving.LoadEvent{Model: "m", Version: 1, Took: time.Second})
	s.Loaded(serving.LoadEvent{Model: "m", Version: 2, Err: errors.New("odd")})
	want := `mezzo_batch_padding_rows_total{model="m",version="1"} 1
mezzo_batch_rows_sum{model="m",version="1"} 4
mezzo_batch_rows_count{model="m",version="1"} 2
mezzo_compute_duration_seconds_count{model="m",version="1"} 2
mezzo_model_load_duration_seconds{model="m",version="1"} …
mezzo_model_loads_total{model="m",result="error"} 1
mezzo_model_loads_total{model="m",result="ok"} 1
mezzo_model_weights_bytes{model="m",version="1"} 0
mezzo_queue_duration_seconds_count{model="m",version="1"} 2
mezzo_queue_requests{model="m",version="1"} 0
mezzo_ready 1
mezzo_request_duration_seconds_count{model="",protocol="p"} 1
mezzo_request_duration_seconds_count{model="m",protocol="p"} 3
mezzo_request_rows_total{model="m",version="1"} 4
mezzo_requests_total{code="200",model="m",protocol="p",version="1"} 2
mezzo_requests_total{code="400",model="m",protocol="p",version="1"} 1
mezzo_requests_total{code="404",model="",protocol="p",version="0"} 1
`
	if got := scrape(t, registry); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if called != "boboool"+"l" {
		t.Errorf("got %q", called)
	}
	s.Batched(serving.Batch{Model: "m", Version: 1, Err: errors.New("odd")})
	if got := scrape(t, registry); !strings.Contains(got, `mezzo_batch_failures_total{model="m",version="1"} 1`) {
		t.Errorf("got\n%s", got)
	}
	// The series of a version go with it.
	s.Remove("m", 1)
	s.Loaded(serving.LoadEvent{Model: "m", Version: 1, Removed: true})
	want = `mezzo_model_loads_total{model="m",result="error"} 1
mezzo_model_loads_total{model="m",result="ok"} 1
mezzo_ready 0
mezzo_request_duration_seconds_count{model="",protocol="p"} 1
mezzo_request_duration_seconds_count{model="m",protocol="p"} 3
mezzo_requests_total{code="404",model="",protocol="p",version="0"} 1
`
	if got := scrape(t, registry); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
