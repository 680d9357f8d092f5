package backend_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// fake is a device that compiles to nothing, without kernels for some
// operations.
type fake struct {
	name     string
	lacks    []op.Code
	mu       sync.Mutex
	compiled []*ir.Graph
}

func (f *fake) Name() string { return f.name }

func (f *fake) Supports(c op.Code, d dtype.DType) bool { return !slices.Contains(f.lacks, c) }

func (f *fake) Alloc(int) (driver.Buffer, error) { return nil, errors.New("no memory") }

func (f *fake) Compile(_ context.Context, g *ir.Graph) (driver.Program, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compiled = append(f.compiled, g)
	return nil, nil
}

func (f *fake) Close() error { return nil }

// unary is a graph of one operation on a float32[4].
func unary(t *testing.T, c op.Code, a op.Attr, path string) *ir.Graph {
	in := op.Type{DType: dtype.Float32, Shape: op.Shape{4}}
	out, err := op.Infer(c, a, in)
	if err != nil {
		t.Fatal(err)
	}
	g := ir.New(1)
	x := g.Add(op.Param, op.Attr{DType: in.DType, Dims: in.Shape}, in, "")
	g.Output(g.Add(c, a, out, path, x), -1)
	return g
}

func TestMain(m *testing.M) {
	backend.Register("opens", func() (driver.Device, error) { return &fake{name: "opens"}, nil })
	backend.Register("fails", func() (driver.Device, error) { return nil, errors.New("no driver") })
	backend.RegisterProvider("many", backend.Provider{
		Open: func(n int) (driver.Device, error) { return &fake{name: fmt.Sprint("many:", n)}, nil },
		Search: func() ([]backend.DeviceInfo, error) {
			return []backend.DeviceInfo{
				{Name: "many", Hardware: "Small", ISA: "sm_70", Bytes: 1 << 30},
				{Name: "many:1", Hardware: "Old", ISA: "sm_30", Err: errors.New("too old")},
			}, nil
		},
	})
	if os.Getenv("MEZZO_TEST_CHILD") != "" {
		d, err := backend.Default()
		if err == nil {
			fmt.Println("device", d.Name())
		} else {
			fmt.Println(err)
		}
		for range 2 {
			fmt.Printf("%+v\n", backend.DebugFromEnv())
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestRegistry(t *testing.T) {
	if got := backend.Devices(); !slices.Equal(got, []string{"many", "opens"}) {
		t.Errorf("Devices: got %q, want those that open", got)
	}
	var got []string
	for _, f := range backend.Search() {
		got = append(got, f.String())
	}
	if want := []string{"cuda: not available: the program was built without it; build it with: go build -tags cuda (see docs/cuda.md)", "fails: not available: no driver", "many: Small, sm_70, 1.0 GiB", "many:1: not available: Old, sm_30: too old", "opens: "}; !slices.Equal(got, want) {
		t.Errorf("Search: got %q, want %q", got, want)
	}
	if d, err := backend.Open("many:1"); err != nil || d.Name() != "many:1" {
		t.Errorf("Open(many:1): got %v, %v", d, err)
	}
	first, err := backend.Open("many")
	if zeroth, _ := backend.Open("many:0"); err != nil || zeroth != first {
		t.Errorf("Open: many is %v, many:0 is %v, %v; want one device", first, zeroth, err)
	}
	a, err := backend.Open("opens")
	if b, _ := backend.Open("opens"); err != nil || a != b {
		t.Errorf("Open: got %v, %v and %v, want one device", a, err, b)
	}
	for name, want := range map[string]string{
		"tpu":     `backend: unknown device "tpu"; have ["fails" "many" "opens"]`,
		"cuda":    `backend: device "cuda" does not open: the program was built without it; build it with: go build -tags cuda (see docs/cuda.md)`,
		"cuda:1":  `backend: device "cuda:1" does not open: the program was built without it; build it with: go build -tags cuda (see docs/cuda.md)`,
		"many:x":  `backend: device "many:x": got number "x", want 0 or more`,
		"opens:2": `backend: device "opens:2" does not open: there is one, got number 2`,
		"fails":   `backend: device "fails" does not open: no driver`,
	} {
		if _, err := backend.Open(name); err == nil || err.Error() != want {
			t.Errorf("Open(%q): got error %v, want %q", name, err, want)
		}
	}
	defer func() {
		if got := recover(); got != "backend: Register called twice for device opens" {
			t.Errorf("got panic %v", got)
		}
	}()
	backend.Register("opens", nil)
}

// TestEnvironment: MEZZO_DEVICE and MEZZO_DEBUG are read once, so each case is
// a process of its own.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct{ device, debug, stdout, stderr string }{
		{"opens", "", "device opens\n{Plan:false Passes:false Graph:false Eager:false NaN:false Check:false Pprof:false Autocast:false Trace:}", ""},
		{"tpu", "plan, check,,trace=a b", "backend: unknown device \"tpu\"; have [\"fails\" \"many\" \"opens\"]\n{Plan:true Passes:false Graph:false Eager:false NaN:false Check:true Pprof:false Autocast:false Trace:a b}", ""},
		{"", "nan,grpah", "backend: no device; import package keras or backend/cpu: backend: unknown device \"cpu\"; have [\"fails\" \"many\" \"opens\"]\n" +
			"{Plan:false Passes:false Graph:false Eager:false NaN:true Check:false Pprof:false Autocast:false Trace:}",
			"MEZZO_DEBUG: unknown word \"grpah\"; want a comma-separated list of plan, passes, graph, eager, nan, check, pprof, autocast, trace\n"},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MEZZO_TEST_CHILD=1", "MEZZO_DEVICE="+c.device, "MEZZO_DEBUG="+c.debug)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		line := c.stdout[strings.LastIndexByte(c.stdout, '\n')+1:]
		if want := c.stdout + "\n" + line + "\n"; err != nil || string(out) != want || stderr.String() != c.stderr {
			t.Errorf("MEZZO_DEVICE=%q MEZZO_DEBUG=%q: got %v, %q and %q, want %q and %q", c.device, c.debug, err, out, &stderr, want, c.stderr)
		}
	}
}

// TestParseAlgorithms: words are family:algorithm.
func TestParseAlgorithms(t *testing.T) {
	got, err := backend.ParseAlgorithms("matmul:portable, conv:direct,")
	if err != nil || len(got) != 2 || got["matmul"] != "portable" || got["conv"] != "direct" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, word := range []string{"matmul", "matmul:", "product:portable", ":direct"} {
		if _, err := backend.ParseAlgorithms(word); err == nil || !strings.Contains(err.Error(), "with a family of matmul, conv, wgrad, attention, pool, rnn") {
			t.Errorf("%q: got error %v, want one that lists the families", word, err)
		}
	}
}

func TestParseDebug(t *testing.T) {
	all, err := backend.ParseDebug(strings.Join(backend.DebugSettings, " , "))
	if want := (backend.Debug{Plan: true, Passes: true, Graph: true, Eager: true, NaN: true, Check: true, Pprof: true, Autocast: true, Trace: "trace.json"}); err != nil || all != want {
		t.Errorf("got %+v, %v, want %+v", all, err, want)
	}
	if d, err := backend.ParseDebug(""); err != nil || d != (backend.Debug{}) {
		t.Errorf("got %+v, %v for nothing", d, err)
	}
	if d, err := backend.ParseDebug("trace=t=1"); err != nil || d != (backend.Debug{Trace: "t=1"}) {
		t.Errorf("got %+v, %v for a trace with a file", d, err)
	}
	if d, err := backend.ParseDebug("plan,x"); err == nil || d != (backend.Debug{}) {
		t.Errorf("got %+v, %v for an unknown word", d, err)
	}
}

// TestCache: one program for a structure, its paths, a device and options;
// also when several ask at once.
func TestCache(t *testing.T) {
	d := &fake{name: fmt.Sprintf("cache%p", t)} // the cache outlives a test that runs again
	compile := func(d driver.Device, c op.Code, path string, o ir.Options) *ir.Graph {
		_, g, err := backend.Compile(t.Context(), d, unary(t, c, op.Attr{}, path), o)
		if err != nil {
			t.Error(err)
		}
		return g
	}
	first := compile(d, op.Exp, "dense", ir.Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if compile(d, op.Exp, "dense", ir.Options{}) != first {
				t.Error("another program for the same graph")
			}
			compile(d, op.Tanh, "", ir.Options{})
		})
	}
	wg.Wait()
	if n := len(d.compiled); n != 2 {
		t.Errorf("compiled %d programs, want 2", n)
	}
	for what, g := range map[string]*ir.Graph{
		"operation": compile(d, op.Log, "dense", ir.Options{}),
		"path":      compile(d, op.Exp, "dense_1", ir.Options{}),
		"device":    compile(&fake{name: d.name + "2"}, op.Exp, "dense", ir.Options{}),
		"options":   compile(d, op.Exp, "dense", ir.Options{Skip: []string{"fuse"}}),
	} {
		if g == first {
			t.Errorf("one program whatever the %s", what)
		}
	}
	if once := (ir.Options{Once: true}); compile(d, op.Exp, "dense", once) == first || compile(d, op.Exp, "once", once) == compile(d, op.Exp, "once", ir.Options{}) {
		t.Error("a program of Once is remembered, or was")
	}
	// The cache forgets, oldest first, instead of growing without end.
	for i := range 1024 {
		compile(d, op.Exp, fmt.Sprint(i), ir.Options{})
	}
	if compile(d, op.Exp, "dense", ir.Options{}) == first {
		t.Error("the oldest program is still there")
	}
	last := len(d.compiled)
	compile(d, op.Exp, "1023", ir.Options{})
	if len(d.compiled) != last {
		t.Error("the newest program is gone")
	}
	if _, _, err := backend.Compile(t.Context(), d, unary(t, op.Exp, op.Attr{}, ""), ir.Options{Skip: []string{"magic"}}); err == nil {
		t.Error("an unknown pass can be skipped")
	}
}

func TestUnsupported(t *testing.T) {
	d := &fake{name: "poor", lacks: []op.Code{op.Erf}}
	_, _, err := backend.Compile(t.Context(), d, unary(t, op.Erf, op.Attr{}, "dense"), ir.Options{})
	var e *backend.UnsupportedError
	if !errors.As(err, &e) || *e != (backend.UnsupportedError{Device: "poor", Op: op.Erf, DType: dtype.Float32, Path: "dense"}) {
		t.Fatalf("got error %v", err)
	}
	if want := `layer dense: device "poor" has no kernel for Erf on float32`; e.Error() != want {
		t.Errorf("got %q, want %q", e, want)
	}
	e.Path = ""
	if want := `device "poor" has no kernel for Erf on float32`; e.Error() != want {
		t.Errorf("got %q, want %q", e, want)
	}
}

// TestExpansion: what a device lacks is compiled as what it means, where that
// is known, down to operations the device has.
func TestExpansion(t *testing.T) {
	for _, c := range []op.Code{op.Softmax, op.LogSoftmax} {
		d := &fake{name: "plain " + c.String(), lacks: []op.Code{op.Softmax, op.LogSoftmax}}
		_, g, err := backend.Compile(t.Context(), d, unary(t, c, op.Attr{Axes: []int{0}}, "head"), ir.Options{Check: true, Skip: []string{"fuse", "multioutput"}})
		if err != nil {
			t.Fatal(err)
		}
		var ops []op.Code
		for _, v := range g.Values {
			ops = append(ops, v.Op)
			if v.Op != op.Param && v.Path != "head" {
				t.Errorf("%v: %v was recorded by %q", c, v.Op, v.Path)
			}
		}
		want := []op.Code{op.Param, op.Max, op.Sub, op.Exp, op.Sum, op.Div}
		if c == op.LogSoftmax {
			want = []op.Code{op.Param, op.Max, op.Sub, op.Exp, op.Sum, op.Log, op.Sub}
		}
		if !slices.Equal(ops, want) {
			t.Errorf("%v: got %v, want %v", c, ops, want)
		}
		if !g.Outputs[0].Type.Equal(op.Type{DType: dtype.Float32, Shape: op.Shape{4}}) {
			t.Errorf("%v: the result is %v", c, g.Outputs[0].Type)
		}
		d = &fake{name: "poorer " + c.String(), lacks: []op.Code{c, op.Max}}
		_, _, err = backend.Compile(t.Context(), d, unary(t, c, op.Attr{Axes: []int{0}}, "head"), ir.Options{})
		if want := fmt.Sprintf("layer head: device %q has no kernel for Max on float32", d.name); err == nil || err.Error() != want {
			t.Errorf("%v: got error %v, want %q", c, err, want)
		}
	}
}
