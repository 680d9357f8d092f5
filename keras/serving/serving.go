package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
)

// Options says how the requests of a version are batched. The zero value is ready
// to use.
type Options struct {
	// MaxBatch is how many rows are computed together, and how many a request may
	// have: 64 by default, at most 1024.
	MaxBatch int
	// MaxDelay is how long a request waits for others that fill its batch. By
	// default, 0, it waits only while the model computes.
	MaxDelay time.Duration
	// MaxQueue is how many requests wait, 1024 by default. More are refused at once,
	// with status 429.
	MaxQueue int
	// Warm lists the batch sizes that are compiled before the version is ready, each
	// rounded up to a power of two: nil is all, an empty list none.
	Warm []int
	// Keep is how many versions of a watched directory are served, those with the
	// highest numbers: 1 by default. Each has its own weights in memory.
	Keep int
}

// maxRows is the most rows that Predict computes in one run.
const maxRows = 1024

func (o Options) complete() (Options, error) {
	for _, f := range []struct {
		name       string
		field      *int
		byDefault  int
		max        int
		wantAtMost string
	}{
		{"MaxBatch", &o.MaxBatch, 64, maxRows, " and at most 1024"},
		{"MaxQueue", &o.MaxQueue, 1024, 1 << 30, ""},
		{"Keep", &o.Keep, 1, 1 << 30, ""},
	} {
		*f.field = cmp.Or(*f.field, f.byDefault)
		if *f.field < 1 || *f.field > f.max {
			return o, fmt.Errorf("%s: got %d, want at least 1%s", f.name, *f.field, f.wantAtMost)
		}
	}
	if o.MaxDelay < 0 {
		return o, fmt.Errorf("MaxDelay: got %v, want at least 0", o.MaxDelay)
	}
	for _, n := range o.Warm {
		if n < 1 || n > o.MaxBatch {
			return o, fmt.Errorf("Warm: got a batch of %d, want 1 to %d (MaxBatch)", n, o.MaxBatch)
		}
	}
	return o, nil
}

// Server is a registry of models, each with numbered versions. Make it with New.
// Its methods may be called from any number of goroutines.
type Server struct {
	// Observe is called after each inference request, in its goroutine, for metrics
	// and logs. Batched is called after each batch, in the goroutine that computes,
	// and must return soon. Loaded is called when a watched version was loaded, could
	// not be, or was removed. Set them before the first Add or Watch.
	Observe func(Observation)
	Batched func(Batch)
	Loaded  func(LoadEvent)

	poll     time.Duration // of watched directories
	draining atomic.Bool
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	running  sync.WaitGroup // watchers, batchers

	mu      sync.RWMutex
	models  map[string]*entry
	watched map[string]bool
}

// entry is a model of the registry.
type entry struct {
	versions map[int]*version
	failed   map[int]error // versions of a watched directory that did not load
	labels   map[string]int
}

// Observation describes an inference request that was answered, or refused.
type Observation struct {
	Model    string        // "" if there is no such model, so that it may label a metric
	Version  int           // 0 if there is none
	Protocol string        // "tfserving", "oip" or as in Request
	Status   int           // HTTP status
	Rows     int           // of the request
	Batch    int           // rows that were computed together with it, without padding
	Padded   int           // rows that were computed, with padding
	Queued   time.Duration // from its arrival in the queue to the start of the computation
	Computed time.Duration // in Predict
	Total    time.Duration // with reading the request and making the answer
	Err      error         // nil if it was answered; a *PanicError is in it if the model panicked
}

// Batch describes requests that were computed together.
type Batch struct {
	Model    string
	Version  int
	Requests int
	Rows     int           // of the requests
	Padded   int           // rows that were computed, with padding
	Computed time.Duration // in Predict
	Err      error         // the requests are then computed one by one, each a Batch of its own
}

// New returns a server without models.
func New() *Server {
	s := &Server{poll: time.Second, models: map[string]*entry{}, watched: map[string]bool{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Add serves a built model as a version, at least 1, of a name. It compiles and
// runs the batch sizes of Options.Warm first; then the version replaces one with the
// same number, whose requests are finished. The highest version is the default.
//
// The name has letters, digits and the characters ".", "_" and "-". It is an error
// if the model is not built, if it does not run, or if an output does not have the
// batch as its first axis. Changes of the weights are seen by the next batch.
func (s *Server) Add(name string, number int, m *keras.Model, o Options) error {
	if err := s.add(name, number, m, o); err != nil {
		return fmt.Errorf("serving: model %q version %d: %w", name, number, err)
	}
	return nil
}

func (s *Server) add(name string, number int, m *keras.Model, o Options) error {
	if err := checkName(name); err != nil {
		return err
	}
	if number < 1 {
		return errors.New("want a version of at least 1")
	}
	o, err := o.complete()
	if err != nil {
		return err
	}
	v, err := newVersion(name, number, m, o)
	if err != nil {
		return err
	}
	v.batched = s.Batched
	if err := v.warm(s.ctx); err != nil {
		return err
	}
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return errors.New("the server is closed")
	}
	e := s.models[name]
	if e == nil {
		e = &entry{versions: map[int]*version{}, failed: map[int]error{}, labels: map[string]int{}}
		s.models[name] = e
	}
	old := e.versions[number]
	e.versions[number] = v
	s.running.Go(v.batches)
	s.mu.Unlock()
	old.retire()
	return nil
}

func checkName(name string) error {
	odd := func(r rune) bool {
		return !strings.ContainsRune("._-", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	if name == "" || strings.ContainsFunc(name, odd) || strings.Trim(name, ".") == "" {
		return errors.New(`want a name of letters, digits, ".", "_" and "-"`)
	}
	return nil
}

// Remove takes a version out of service, and its labels; requests that it has
// accepted are finished. It reports whether there was one. A version of a watched
// directory comes back when its file changes.
func (s *Server) Remove(name string, number int) bool {
	s.mu.Lock()
	e := s.models[name]
	if e == nil {
		s.mu.Unlock()
		return false
	}
	old := e.versions[number]
	delete(e.versions, number)
	maps.DeleteFunc(e.labels, func(_ string, n int) bool { return n == number })
	if len(e.versions) == 0 {
		delete(s.models, name)
	}
	s.mu.Unlock()
	old.retire()
	return old != nil
}

// Label gives a version that is served a second name, such as "stable", in place
// of the version that had it.
func (s *Server) Label(name, label string, number int) error {
	if err := checkName(label); err != nil {
		return fmt.Errorf("serving: model %q: label %q: %w", name, label, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.models[name]
	if e == nil || e.versions[number] == nil {
		return fmt.Errorf("serving: model %q: label %q: version %d is not served", name, label, number)
	}
	e.labels[label] = number
	return nil
}

// Drain makes /v2/health/ready answer 503, so that load balancers send no new
// requests. Requests are answered as before. Call http.Server.Shutdown once they
// have stopped, and then Close.
func (s *Server) Drain() { s.draining.Store(true) }

// Draining reports whether Drain or Close was called.
func (s *Server) Draining() bool { return s.draining.Load() }

// Ready reports whether the server has a model and is not draining or closed.
func (s *Server) Ready() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.models) > 0 && !s.draining.Load()
}

// Close removes all models, waits for the requests that they have accepted, and
// ends all goroutines of the server. Close it after the http.Server.
func (s *Server) Close() {
	s.Drain()
	s.mu.Lock()
	s.stop()
	models := s.models
	s.models = map[string]*entry{}
	s.mu.Unlock()
	for _, e := range models {
		for _, v := range e.versions {
			v.retire()
		}
	}
	s.running.Wait()
}

// selector says which version a request is for: a number, a label or, if both are
// zero, the highest number.
type selector struct {
	number int
	label  string
}

// find returns a version and holds it: retire waits until release is called.
func (s *Server) find(name string, by selector) (*version, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.models[name]
	if e == nil {
		if s.ctx.Err() != nil {
			return nil, errorf(http.StatusServiceUnavailable, "the server is closed")
		}
		return nil, errorf(http.StatusNotFound, "model %s is not served", quoted(name))
	}
	number := by.number
	switch {
	case by.label != "":
		var ok bool
		if number, ok = e.labels[by.label]; !ok {
			return nil, errorf(http.StatusNotFound, "model %q has no label %s", name, quoted(by.label))
		}
	case number == 0:
		for n := range e.versions {
			number = max(number, n)
		}
	}
	v := e.versions[number]
	if v == nil {
		return nil, errorf(http.StatusNotFound, "model %q has no version %d", name, number)
	}
	v.held.Add(1)
	return v, nil
}

// Versions returns the versions of a model that are served, in ascending order, and
// why others of its watched directory did not load. Both are nil if there is no such
// model.
func (s *Server) Versions(name string) (served []int, failed map[int]error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.models[name]
	if e == nil {
		return nil, nil
	}
	return slices.Sorted(maps.Keys(e.versions)), maps.Clone(e.failed)
}

// quoted is a text of a client in a message: at most 200 bytes of it.
func quoted(s string) string {
	if len(s) > 200 {
		return fmt.Sprintf("%q…", s[:200])
	}
	return fmt.Sprintf("%q", s)
}

// Tensor is an input or an output of a request.
type Tensor struct {
	Name  string
	DType keras.DType
	Shape keras.Shape // axis 0 counts rows
	Data  []byte      // elements in row-major order, little-endian
}

// TensorSpec describes an input or an output of a model.
type TensorSpec struct {
	Name  string
	DType keras.DType
	Shape keras.Shape // keras.Unknown for the batch and other axes of any size
}

// Info describes a version of a model.
type Info struct {
	Model    string
	Version  int
	Inputs   []TensorSpec // in the model's order
	Outputs  []TensorSpec
	MaxBatch int // the most rows of a request
}

// Input returns the input with a name. "" is the input of a model that has one.
func (i Info) Input(name string) (TensorSpec, error) {
	at, err := inputAt(i.Inputs, name)
	if err != nil {
		return TensorSpec{}, err
	}
	return i.Inputs[at], nil
}

// Request is an inference request of any protocol.
type Request struct {
	Model    string
	Version  int    // 0: that of Label, or the highest
	Label    string // "": Version
	Protocol string // for Observation
	Inputs   []Tensor
	// Decode, if it is set, returns the inputs once the version is known. It must not
	// change the Info. Its errors are the client's, of status 400, unless they are an
	// *Error.
	Decode func(Info) ([]Tensor, error)
}

// Response is the answer: the outputs in the model's order.
type Response struct {
	Version int // that has answered
	Outputs []Tensor
}

// Infer computes a request, together with others. Its inputs are found by name; one
// alone may be without. They must not change before Infer returns, and after an
// error of the context not at all. An error is an *Error; one of the context
// is in it.
func (s *Server) Infer(ctx context.Context, r Request) (res Response, err error) {
	o := Observation{Protocol: r.Protocol}
	begun := time.Now()
	defer func() { s.observed(o, begun, err) }()
	v, err := s.find(r.Model, selector{r.Version, r.Label})
	if err != nil {
		return Response{}, err
	}
	defer v.release()
	o.Model, o.Version = v.name, v.number
	if r.Decode != nil {
		if r.Inputs, err = r.Decode(v.info()); err != nil {
			var e *Error
			if !errors.As(err, &e) {
				err = badRequest("%w", err)
			}
			return Response{}, v.named(err)
		}
	}
	out, err := v.infer(ctx, r.Inputs, &o)
	return Response{v.number, out}, err
}

func (s *Server) observed(o Observation, begun time.Time, err error) {
	if s.Observe == nil {
		return
	}
	o.Status, o.Err, o.Total = http.StatusOK, err, time.Since(begun)
	if err != nil {
		o.Status = StatusOf(err)
	}
	s.Observe(o)
}

// Describe returns a version: by number, by label or, if they are 0 and "", the
// highest.
func (s *Server) Describe(name string, number int, label string) (Info, error) {
	v, err := s.find(name, selector{number, label})
	if err != nil {
		return Info{}, err
	}
	defer v.release()
	i := v.info()
	i.Inputs, i.Outputs = slices.Clone(i.Inputs), slices.Clone(i.Outputs)
	return i, nil
}

// Load is what a version takes at one moment.
type Load struct {
	Model   string
	Version int
	Queued  int   // requests that wait
	Bytes   int64 // of the weights
}

// Loads returns the load of each version that is served, in no order.
func (s *Server) Loads() (all []Load) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.models {
		for _, v := range e.versions {
			all = append(all, Load{v.name, v.number, v.queue.length(), v.bytes})
		}
	}
	return all
}
