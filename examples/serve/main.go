// Command serve is a whole inference server on package serving: TensorFlow
// Serving's REST API and the Open Inference Protocol, for the models of
// directories that it watches for new versions.
//
//	serve [flags] NAME=DIRECTORY …
//
// DIRECTORY has NUMBER/model.keras or model.keras. Without arguments it serves
// TensorFlow Serving's first example, a model that computes x/2 + 2. With gRPC and
// Prometheus metrics it is keras/serving/grpc/cmd/mezzo-serve, in a module of its own.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/serving"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

var (
	address   = flag.String("addr", "127.0.0.1:8501", "address to listen on; :8501 is all of the machine's")
	maxBatch  = flag.Int("max-batch", 64, "rows that are computed together")
	maxDelay  = flag.Duration("max-delay", 0, "how long a request waits for others while the model is idle")
	maxQueue  = flag.Int("max-queue", 1024, "requests that wait for a model; more are refused")
	keep      = flag.Int("keep", 1, "versions of a directory that are served")
	maxBody   = flag.Int64("max-body", 64<<20, "bytes of a request")
	tokenFile = flag.String("token-file", "", "file with the bearer token that requests must have")
	drain     = flag.Duration("drain", 0, "time between SIGTERM, when the server says that it is not ready, and its end")
	grace     = flag.Duration("grace", 20*time.Second, "time for requests that have begun, after -drain")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, models []string) error {
	auth, err := bearer(*tokenFile)
	if err != nil {
		return err
	}
	s := serving.New()
	defer s.Close()
	s.Loaded = logLoad
	s.Observe = logFailure
	if err := add(ctx, s, models); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	slog.Info("listening", "address", l.Addr().String())
	server := &http.Server{
		Handler: s.Handler(serving.HandlerOptions{MaxBody: *maxBody, Auth: auth}),
		// http.Server has no limits of time by default: slow clients would hold
		// connections and their requests in memory.
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	slog.Info("shutting down")
	s.Drain() // load balancers see it and send no more
	time.Sleep(*drain)
	end, cancel := context.WithTimeout(context.Background(), *grace)
	defer cancel()
	return server.Shutdown(end)
}

// add serves the models of the command line.
func add(ctx context.Context, s *serving.Server, models []string) error {
	o := serving.Options{MaxBatch: *maxBatch, MaxDelay: *maxDelay, MaxQueue: *maxQueue, Keep: *keep}
	for _, m := range models {
		name, dir, ok := strings.Cut(m, "=")
		if !ok {
			return fmt.Errorf("got %q, want NAME=DIRECTORY", m)
		}
		if err := s.Watch(ctx, name, dir, o); err != nil {
			return err
		}
	}
	if len(models) > 0 {
		return nil
	}
	x := keras.Named("x", keras.Input())
	half, err := keras.NewModel(x, keras.Apply(&preprocessing.Rescaling{Scale: 0.5, Offset: 2, Name: "y"}, x))
	if err != nil {
		return err
	}
	return s.Add("half_plus_two", 1, half, o)
}

// bearer returns a check of requests for the token in a file.
func bearer(file string) (func(*http.Request) error, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return nil, fmt.Errorf("%s: it has no token", file)
	}
	want := sha256.Sum256([]byte("Bearer " + token))
	return func(r *http.Request) error {
		// Sums have one length, and comparing them takes the same time for all.
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 0 {
			return errors.New("wrong token")
		}
		return nil
	}, nil
}

func logLoad(e serving.LoadEvent) {
	switch {
	case e.Err != nil:
		slog.Error("not loaded", "model", e.Model, "version", e.Version, "path", e.Path, "error", e.Err)
	case e.Removed:
		slog.Info("removed", "model", e.Model, "version", e.Version)
	default:
		slog.Info("loaded", "model", e.Model, "version", e.Version, "path", e.Path, "took", e.Took.Round(time.Millisecond))
	}
}

// logFailure logs the requests whose failure is the server's.
func logFailure(o serving.Observation) {
	if o.Status != http.StatusInternalServerError {
		return
	}
	slog.Error("request failed", "model", o.Model, "version", o.Version, "error", o.Err)
	var p *serving.PanicError
	if errors.As(o.Err, &p) {
		slog.Error("panic", "value", p.Value, "stack", string(p.Stack))
	}
}
