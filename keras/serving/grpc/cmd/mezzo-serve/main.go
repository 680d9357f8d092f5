// Command mezzo-serve is a whole inference server for the models of directories that
// it watches for new versions: TensorFlow Serving's REST and gRPC APIs, the Open
// Inference Protocol over HTTP and gRPC, health checks and Prometheus metrics.
//
//	mezzo-serve [flags] NAME=DIRECTORY …
//
// DIRECTORY has NUMBER/model.keras or model.keras. Without arguments it serves
// TensorFlow Serving's first example, a model that computes x/2 + 2. SIGTERM makes it
// not ready, for -drain; then requests that have begun are finished, for at most
// -grace.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/serving"
	servinggrpc "github.com/mezzo-ml/mezzo/keras/serving/grpc"
	"github.com/mezzo-ml/mezzo/keras/serving/grpc/metrics"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// config is what the command line says.
type config struct {
	http, grpc, metrics string // addresses; "": none
	options             serving.Options
	maxBody             int64
	token               string
	drain, grace        time.Duration
	models              []string // NAME=DIRECTORY
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	c, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, c)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func parse(args []string, help io.Writer) (c config, err error) {
	f := flag.NewFlagSet("mezzo-serve", flag.ContinueOnError)
	f.SetOutput(help)
	f.StringVar(&c.http, "http", "127.0.0.1:8501", "address of the REST APIs and of /metrics; :8501 is all of the machine's, \"\" none")
	f.StringVar(&c.grpc, "grpc", "127.0.0.1:8500", "address of gRPC; \"\" is none")
	f.StringVar(&c.metrics, "metrics", "", "address of /metrics, if it is to be apart from -http")
	f.IntVar(&c.options.MaxBatch, "max-batch", 64, "rows that are computed together")
	f.DurationVar(&c.options.MaxDelay, "max-delay", 0, "how long a request waits for others while the model is idle")
	f.IntVar(&c.options.MaxQueue, "max-queue", 1024, "requests that wait for a model; more are refused")
	f.IntVar(&c.options.Keep, "keep", 1, "versions of a directory that are served")
	f.Int64Var(&c.maxBody, "max-body", 64<<20, "bytes of a request")
	tokenFile := f.String("token-file", "", "file with the bearer token that requests must have, but those of health and metrics")
	f.DurationVar(&c.drain, "drain", 0, "time between SIGTERM, when the server says that it is not ready, and its end")
	f.DurationVar(&c.grace, "grace", 20*time.Second, "time for requests that have begun, after -drain")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	c.models = f.Args()
	if *tokenFile != "" {
		text, err := os.ReadFile(*tokenFile)
		if err != nil {
			return c, err
		}
		if c.token = strings.TrimSpace(string(text)); c.token == "" {
			return c, fmt.Errorf("%s: it has no token", *tokenFile)
		}
	}
	return c, nil
}

// run serves until ctx ends.
func run(ctx context.Context, c config) error {
	s := serving.New()
	defer s.Close()
	s.Loaded, s.Observe = logLoad, logFailure
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(s), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := add(ctx, s, c); err != nil {
		return err
	}
	observed := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.Handle("/", s.Handler(serving.HandlerOptions{MaxBody: c.maxBody, Auth: auth(c.token)}))
	if c.metrics == "" {
		mux.Handle("GET /metrics", observed)
	}
	failed := make(chan error, 3)
	var servers []*http.Server
	listen := func(kind, address string, serve func(net.Listener) error) error {
		if address == "" {
			return nil
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		slog.Info("listening", kind, l.Addr().String())
		go func() { failed <- serve(l) }()
		return nil
	}
	listenHTTP := func(kind, address string, h http.Handler) error {
		server := newHTTP(h)
		servers = append(servers, server)
		return listen(kind, address, server.Serve)
	}
	g := newGRPC(s, c)
	defer g.Stop()
	defer func() {
		for _, server := range servers {
			server.Close()
		}
	}()
	if err := errors.Join(listenHTTP("http", c.http, mux), listen("grpc", c.grpc, g.Serve), listenHTTP("metrics", c.metrics, observed)); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	slog.Info("shutting down")
	s.Drain() // load balancers see it and send no more
	time.Sleep(c.drain)
	end, cancel := context.WithTimeout(context.Background(), c.grace)
	defer cancel()
	return shutdown(end, servers, g)
}

// newHTTP has limits of time, which http.Server has not by default: slow clients
// would hold connections and their requests in memory.
func newHTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

func newGRPC(s *serving.Server, c config) *grpc.Server {
	options := append(servinggrpc.ServerOptions(), grpc.MaxRecvMsgSize(int(c.maxBody)))
	if right := bearer(c.token); right != nil {
		options = append(options, grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			open := strings.HasPrefix(info.FullMethod, "/grpc.health.v1.Health/")
			if !open && !right(strings.Join(md.Get("authorization"), "")) {
				return nil, status.Error(codes.Unauthenticated, "not authorized")
			}
			return next(ctx, request)
		}))
	}
	g := grpc.NewServer(options...)
	servinggrpc.Register(g, s)
	servinggrpc.RegisterHealth(g, s)
	return g
}

// shutdown finishes the requests that have begun. When ctx ends their connections
// are closed.
func shutdown(ctx context.Context, servers []*http.Server, g *grpc.Server) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(g.GracefulStop)
	stop := context.AfterFunc(ctx, g.Stop)
	defer stop()
	errs := make([]error, len(servers))
	var ended sync.WaitGroup
	for i, server := range servers {
		ended.Go(func() { errs[i] = server.Shutdown(ctx) })
	}
	ended.Wait()
	wg.Wait()
	return errors.Join(errs...)
}

// add serves the models of the command line.
func add(ctx context.Context, s *serving.Server, c config) error {
	for _, m := range c.models {
		name, dir, ok := strings.Cut(m, "=")
		if !ok {
			return fmt.Errorf("got %q, want NAME=DIRECTORY", m)
		}
		if err := s.Watch(ctx, name, dir, c.options); err != nil {
			return err
		}
	}
	if len(c.models) > 0 {
		return nil
	}
	x := keras.Named("x", keras.Input())
	half, err := keras.NewModel(x, keras.Apply(&preprocessing.Rescaling{Scale: 0.5, Offset: 2, Name: "y"}, x))
	if err != nil {
		return err
	}
	return s.Add("half_plus_two", 1, half, c.options)
}

// bearer returns whether a value of the header Authorization has the token; nil if
// there is none.
func bearer(token string) func(header string) bool {
	if token == "" {
		return nil
	}
	want := sha256.Sum256([]byte("Bearer " + token))
	return func(header string) bool {
		// Sums have one length, and comparing them takes the same time for all.
		got := sha256.Sum256([]byte(header))
		return subtle.ConstantTimeCompare(got[:], want[:]) == 1
	}
}

// auth is the check of HTTP requests; nil lets everybody in.
func auth(token string) func(*http.Request) error {
	right := bearer(token)
	if right == nil {
		return nil
	}
	return func(r *http.Request) error {
		if !right(r.Header.Get("Authorization")) {
			return errors.New("wrong token")
		}
		return nil
	}
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
