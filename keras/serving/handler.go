package serving

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// HandlerOptions bounds and guards a handler. The zero value is ready to use.
type HandlerOptions struct {
	// MaxBody is the most bytes of a request's body, 64 MiB by default.
	MaxBody int64
	// Auth is called before each request but those of /v2/health. After an error the
	// answer is 401, without its text. By default everybody is let in.
	Auth func(*http.Request) error
}

// handler has the HTTP side of both protocols.
type handler struct {
	s *Server
	o HandlerOptions
}

// Handler returns a handler of both protocols, for the root of a server: its paths
// begin with /v1/models and /v2. Errors are JSON.
func (s *Server) Handler(o HandlerOptions) http.Handler {
	if o.MaxBody == 0 {
		o.MaxBody = 64 << 20
	}
	h := &handler{s, o}
	open := http.NewServeMux()
	open.HandleFunc("GET /v2/health/live", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, map[string]bool{"live": true})
	})
	open.HandleFunc("GET /v2/health/ready", func(w http.ResponseWriter, r *http.Request) {
		replyReady(w, s.Ready())
	})
	guarded := guard{open, o.Auth}
	h.handleOIP(guarded)
	h.handleTF(guarded)
	guarded.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, errorf(http.StatusNotFound, "there is no %s %s", r.Method, quoted(r.URL.Path)))
	})
	return open
}

// guard is a ServeMux whose handlers are called after auth.
type guard struct {
	*http.ServeMux
	auth func(*http.Request) error
}

// HandleFunc registers a handler.
func (g guard) HandleFunc(pattern string, f http.HandlerFunc) {
	if g.auth == nil {
		g.ServeMux.HandleFunc(pattern, f)
		return
	}
	g.ServeMux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if g.auth(r) != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, errorf(http.StatusUnauthorized, "not authorized"))
			return
		}
		f(w, r)
	})
}

// inference is a handler of inference requests: answer finds the version, reads the
// body and writes nothing before it can answer. What it returns is observed.
func (h *handler) inference(protocol string, answer func(w http.ResponseWriter, r *http.Request, o *Observation) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		o := Observation{Protocol: protocol}
		err := answer(w, r, &o)
		if err != nil {
			fail(w, err)
		}
		h.s.observed(o, begun, err)
	}
}

// body reads the body of a request.
func (h *handler) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if c := r.Header.Get("Content-Encoding"); c != "" && c != "identity" {
		return nil, errorf(http.StatusUnsupportedMediaType, "Content-Encoding is %s, want a body that is not compressed", quoted(c))
	}
	if r.ContentLength > h.o.MaxBody {
		return nil, errorf(http.StatusRequestEntityTooLarge, "the body has %d bytes, want at most %d", r.ContentLength, h.o.MaxBody)
	}
	// The length is what the client says: it makes room for it, at most for a little.
	b, err := readAll(http.MaxBytesReader(w, r.Body, h.o.MaxBody), int(min(r.ContentLength, 64<<10)))
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return nil, errorf(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", h.o.MaxBody)
	case err != nil:
		return nil, badRequest("reading the body: %w", err)
	}
	return b, nil
}

// readAll is io.ReadAll with room for n bytes, if n is known.
func readAll(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, 0, max(n, 511)+1) // one more, so that the end is seen
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)]
		}
	}
}

// parseVersion reads the number of a version in a path; "" is 0.
func parseVersion(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, badRequest("version %s: want a number of at least 1", quoted(text))
	}
	return int(n), nil
}

func reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of texts and numbers
	}
	write(w, status, "application/json", b)
}

// replyReady says whether the server, or a model of it if there is a name, is ready.
func replyReady(w http.ResponseWriter, ready bool, name ...string) {
	answer := map[string]any{"ready": ready}
	if len(name) > 0 {
		answer["name"] = name[0]
	}
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
	}
	reply(w, status, answer)
}

// write sends an answer in pieces. A client that has gone needs no answer.
func write(w http.ResponseWriter, status int, contentType string, pieces ...[]byte) {
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(n))
	w.WriteHeader(status)
	for _, p := range pieces {
		if _, err := w.Write(p); err != nil {
			return
		}
	}
}

func fail(w http.ResponseWriter, err error) {
	status := StatusOf(err)
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	reply(w, status, map[string]string{"error": err.Error()})
}
