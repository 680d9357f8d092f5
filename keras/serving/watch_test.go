package serving

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
)

// save puts a model whose first answer is 4+shift where Watch looks.
func save(t *testing.T, path string, shift float32) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := saving.Save(path, dense(t, shift)); err != nil {
		t.Fatal(err)
	}
}

// watched is a server with a quick poll, and a channel of its events.
func watched(t *testing.T) (*Server, <-chan LoadEvent) {
	t.Helper()
	events := make(chan LoadEvent, 100)
	s := New()
	t.Cleanup(s.Close)
	s.poll = time.Millisecond
	s.Loaded = func(e LoadEvent) { events <- e }
	return s, events
}

// next returns an event without what differs between runs.
func next(t *testing.T, events <-chan LoadEvent, dir string) string {
	t.Helper()
	select {
	case e := <-events:
		path, err := filepath.Rel(dir, e.Path)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %d %s removed %v failed %v", e.Model, e.Version, filepath.ToSlash(path), e.Removed, e.Err != nil)
	case <-time.After(20 * time.Second):
		t.Fatal("no event")
		return ""
	}
}

// load sends requests from several clients until stop is called, which returns
// how many there were. Each must be answered.
func load(t *testing.T, url string) (stop func() int64) {
	var ended atomic.Bool
	var n atomic.Int64
	var wg sync.WaitGroup
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	for i := range 6 {
		path, body := predictPath, `{"instances":[[1,2,3]]}`
		if i%2 == 1 {
			path, body = inferPath, `{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}`
		}
		wg.Go(func() {
			for !ended.Load() {
				r, err := client.Post(url+path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				text, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || r.StatusCode != http.StatusOK {
					t.Errorf("got %d %s %v", r.StatusCode, text, err)
				}
				n.Add(1)
			}
		})
	}
	return func() int64 {
		ended.Store(true)
		wg.Wait()
		// Shutdown waits 5 seconds for connections that were opened and not used.
		transport.CloseIdleConnections()
		return n.Load()
	}
}

// TestWatch: versions come, change, fail and go under load, and no request fails.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	s, events := watched(t)
	file := func(n int) string { return filepath.Join(dir, fmt.Sprint(n), modelFile) }
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			if got := next(t, events, dir); got != w {
				t.Errorf("got  %s\nwant %s", got, w)
			}
		}
	}
	if err := s.Watch(t.Context(), "m", dir, Options{}); err == nil || !strings.Contains(err.Error(), "there is no model.keras, and no NUMBER/model.keras") {
		t.Errorf("got %v for an empty directory", err)
	}
	save(t, file(1), 0)
	for _, other := range []string{"007", "-3", "0", "new"} { // no numbers of versions
		if err := os.MkdirAll(filepath.Join(dir, other), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Watch(t.Context(), "m", dir, Options{MaxBatch: 4}); err != nil {
		t.Fatal(err)
	}
	expect("m 1 1/model.keras removed false failed false")
	h := s.Handler(HandlerOptions{})
	server := httptest.NewServer(h)
	defer server.Close()
	answers := func(want string) {
		t.Helper()
		if w := ask(h, "POST", predictPath, `{"instances":[[1,2,3]]}`); w.Body.String() != want {
			t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
		}
	}
	answers(`{"predictions":[[4.0,5.0]]}`)
	stop := load(t, server.URL)

	save(t, file(2), 1)
	expect("m 2 2/model.keras removed false failed false", "m 1 1/model.keras removed true failed false")
	answers(`{"predictions":[[5.0,6.0]]}`)
	save(t, file(2), 2) // the same version again
	expect("m 2 2/model.keras removed false failed false")
	answers(`{"predictions":[[6.0,7.0]]}`)

	// One that does not load changes nothing, and is tried again when it changes.
	if err := os.MkdirAll(filepath.Dir(file(10)), 0o755); err != nil {
		t.Fatal(err)
	}
	// Moved to its name: of a file that is being written, the empty one would be tried, too.
	aside := filepath.Join(t.TempDir(), modelFile)
	if err := os.WriteFile(aside, []byte("no model"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, file(10)); err != nil {
		t.Fatal(err)
	}
	expect("m 10 10/model.keras removed false failed true")
	answers(`{"predictions":[[6.0,7.0]]}`)
	status := `{"model_version_status":[{"version":"10","state":"END","status":{"error_code":"UNKNOWN","error_message":"the version did not load; see the server's log"}},` +
		`{"version":"2","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}]}`
	for begun := time.Now(); ; time.Sleep(time.Millisecond) { // the event comes first
		if got := ask(h, "GET", "/v1/models/m", "").Body.String(); got == status {
			break
		} else if time.Since(begun) > 20*time.Second {
			t.Fatalf("got  %s\nwant %s", got, status)
		}
	}
	save(t, file(10), 3)
	expect("m 10 10/model.keras removed false failed false", "m 2 2/model.keras removed true failed false")
	answers(`{"predictions":[[7.0,8.0]]}`)

	// The version before takes over, and the last one is kept.
	if err := os.RemoveAll(filepath.Dir(file(10))); err != nil {
		t.Fatal(err)
	}
	expect("m 2 2/model.keras removed false failed false", "m 10 10/model.keras removed true failed false")
	answers(`{"predictions":[[6.0,7.0]]}`)
	if err := os.Rename(dir, filepath.Join(t.TempDir(), "gone")); err != nil { // all at once
		t.Fatal(err)
	}
	expect("m 0 . removed false failed true")
	answers(`{"predictions":[[6.0,7.0]]}`)
	if n := stop(); n < 10 {
		t.Errorf("%d requests are no load", n)
	}
	if len(events) > 0 {
		t.Errorf("more events: %+v", <-events)
	}
}

// TestWatchKeep: several versions are served, with labels.
func TestWatchKeep(t *testing.T) {
	dir := t.TempDir()
	s, events := watched(t)
	for n := 1; n <= 3; n++ {
		save(t, filepath.Join(dir, fmt.Sprint(n), modelFile), float32(n))
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Watch(ctx, "m", dir, Options{MaxBatch: 1, Keep: 2}); err != nil {
		t.Fatal(err)
	}
	if err := s.Label("m", "stable", 2); err != nil {
		t.Error(err)
	}
	if err := s.Label("m", "stable", 1); err == nil {
		t.Error("a label of a version that is not served")
	}
	for range 2 {
		next(t, events, dir)
	}
	h := s.Handler(HandlerOptions{})
	for path, want := range map[string]string{
		"":               `{"predictions":[[7.0,8.0]]}`,
		"/versions/3":    `{"predictions":[[7.0,8.0]]}`,
		"/versions/2":    `{"predictions":[[6.0,7.0]]}`,
		"/labels/stable": `{"predictions":[[6.0,7.0]]}`,
		"/versions/1":    `{"error":"model \"m\" has no version 1"}`,
	} {
		if w := ask(h, "POST", "/v1/models/m"+path+":predict", `{"instances":[[1,2,3]]}`); w.Body.String() != want {
			t.Errorf("%s: got %s, want %s", path, w.Body, want)
		}
	}
	if versions, failed := s.Versions("m"); len(failed) != 0 || fmt.Sprint(versions) != "[2 3]" {
		t.Errorf("got %v, %v", versions, failed)
	}
	// A context that ends stops the watching, not the serving.
	cancel()
	if !s.Remove("m", 2) || s.Remove("m", 2) || s.Remove("other", 1) {
		t.Error("Remove does not tell what it removed")
	}
	if w := ask(h, "POST", "/v1/models/m/labels/stable:predict", ""); w.Code != http.StatusNotFound {
		t.Errorf("got %d for the label of a version that was removed", w.Code)
	}
}

// TestWatchSingle: a file in the directory itself is version 1.
func TestWatchSingle(t *testing.T) {
	dir := t.TempDir()
	save(t, filepath.Join(dir, modelFile), 0)
	s, events := watched(t)
	if err := s.Watch(t.Context(), "m", dir, Options{}); err != nil {
		t.Fatal(err)
	}
	if got := next(t, events, dir); got != "m 1 model.keras removed false failed false" {
		t.Error(got)
	}
	if err := s.Watch(t.Context(), "m", dir, Options{}); err == nil || err.Error() != `serving: model "m": another directory of it is watched` {
		t.Errorf("watched twice: %v", err)
	}
	if err := s.Watch(t.Context(), "other", filepath.Join(dir, "none"), Options{}); err == nil {
		t.Error("a directory that is not there is watched")
	}
	if err := s.Watch(t.Context(), "m", dir, Options{MaxBatch: -1}); err == nil {
		t.Error("wrong options are taken")
	}
}

// TestDrain: a server that is taken out of service fails no request.
func TestDrain(t *testing.T) {
	s := newServer(t, dense(t, 0), Options{})
	server := httptest.NewServer(s.Handler(HandlerOptions{}))
	defer server.Close()
	stop := load(t, server.URL)
	ready := func() int {
		r, err := http.Get(server.URL + "/v2/health/ready")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode
	}
	if got := ready(); got != http.StatusOK {
		t.Errorf("got %d", got)
	}
	time.Sleep(5 * time.Millisecond)
	s.Drain()
	if got := ready(); got != http.StatusServiceUnavailable {
		t.Errorf("got %d of a server that drains", got)
	}
	time.Sleep(5 * time.Millisecond)
	if n := stop(); n < 5 { // as a load balancer does
		t.Errorf("%d requests are no load", n)
	}
	if err := server.Config.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestClose: what was accepted is answered.
func TestClose(t *testing.T) {
	entered, resume := make(chan int, 8), make(chan struct{})
	s := newServer(t, hooked(t, func(x *keras.Tensor) { entered <- x.Dim(0); <-resume }), Options{Warm: []int{}})
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if _, err := s.Infer(t.Context(), Request{Model: "m", Inputs: rows(1, 1)}); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			<-entered
		}
	}
	waiting(t, s, 2)
	wg.Go(s.Close)
	for s.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	close(resume)
	wg.Wait()
}
