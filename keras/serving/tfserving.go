package serving

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
)

// handleTF registers TensorFlow Serving's REST API
// (github.com/tensorflow/serving, tensorflow_serving/g3doc/api_rest.md). A wildcard
// of ServeMux fills a segment of a path, so the method is cut off by hand.
func (h *handler) handleTF(m guard) {
	m.HandleFunc("GET /v1/models/{rest...}", h.tfGet)
	m.HandleFunc("POST /v1/models/{rest...}", h.inference("tfserving", h.tfPredict))
}

// tfPath is NAME[/versions/N|/labels/L][/metadata][:METHOD].
type tfPath struct {
	name     string
	by       selector
	metadata bool
	method   string
}

func parseTFPath(rest string) (p tfPath, err error) {
	rest, p.method, _ = strings.Cut(rest, ":")
	rest, p.metadata = strings.CutSuffix(rest, "/metadata")
	name, rest, more := strings.Cut(rest, "/")
	p.name = name
	if !more {
		return p, nil
	}
	kind, value, _ := strings.Cut(rest, "/")
	switch {
	case kind == "versions" && value != "":
		p.by.number, err = parseVersion(value)
	case kind == "labels" && value != "":
		p.by.label = value
	default:
		err = errorf(http.StatusNotFound, "there is no path %s below a model; want versions/NUMBER or labels/LABEL", quoted(rest))
	}
	return p, err
}

func (h *handler) tfGet(w http.ResponseWriter, r *http.Request) {
	p, err := parseTFPath(r.PathValue("rest"))
	if err == nil && p.method != "" {
		err = errorf(http.StatusMethodNotAllowed, "method %s: got GET, want POST", quoted(p.method))
	}
	if err != nil {
		fail(w, err)
		return
	}
	if !p.metadata {
		h.tfStatus(w, p)
		return
	}
	v, err := h.s.find(p.name, p.by)
	if err != nil {
		fail(w, err)
		return
	}
	defer v.release()
	reply(w, http.StatusOK, map[string]any{
		"model_spec": map[string]any{"name": v.name, "signature_name": "", "version": strconv.Itoa(v.number)},
		"metadata": map[string]any{"signature_def": map[string]any{"signature_def": map[string]any{
			"serving_default": map[string]any{"inputs": tfInfo(v.in), "outputs": tfInfo(v.out), "method_name": "tensorflow/serving/predict"},
		}}},
	})
}

// tfInfo is TensorInfo of TensorFlow's meta_graph.proto, by name.
func tfInfo(specs []TensorSpec) map[string]any {
	all := map[string]any{}
	for _, s := range specs {
		dims := []map[string]string{}
		for _, d := range s.Shape {
			dims = append(dims, map[string]string{"size": strconv.Itoa(d), "name": ""})
		}
		all[s.Name] = map[string]any{
			"name": s.Name, "dtype": datatypes[s.DType].tf,
			"tensor_shape": map[string]any{"dim": dims, "unknown_rank": false},
		}
	}
	return all
}

// tfStatus answers with the states of a version or of all, the newest first. Why a
// version did not load is for Server.Loaded.
func (h *handler) tfStatus(w http.ResponseWriter, p tfPath) {
	served, failed := h.s.Versions(p.name)
	if p.by != (selector{}) || served == nil && len(failed) == 0 {
		v, err := h.s.find(p.name, p.by)
		if err != nil {
			fail(w, err)
			return
		}
		v.release()
		served, failed = []int{v.number}, nil
	}
	type state struct {
		Version string            `json:"version"`
		State   string            `json:"state"`
		Status  map[string]string `json:"status"`
	}
	all := []state{}
	for _, n := range served {
		all = append(all, state{strconv.Itoa(n), "AVAILABLE", map[string]string{"error_code": "OK", "error_message": ""}})
	}
	for n := range failed {
		if slices.Contains(served, n) {
			continue // its file has changed, and what was loaded before goes on
		}
		all = append(all, state{strconv.Itoa(n), "END", map[string]string{"error_code": "UNKNOWN", "error_message": "the version did not load; see the server's log"}})
	}
	slices.SortStableFunc(all, func(a, b state) int {
		if len(a.Version) != len(b.Version) {
			return len(b.Version) - len(a.Version)
		}
		return strings.Compare(b.Version, a.Version)
	})
	reply(w, http.StatusOK, map[string]any{"model_version_status": all})
}

func (h *handler) tfPredict(w http.ResponseWriter, r *http.Request, o *Observation) error {
	p, err := parseTFPath(r.PathValue("rest"))
	if err != nil {
		return err
	}
	if p.method != "predict" || p.metadata {
		return errorf(http.StatusNotFound, "method %s: want predict", quoted(p.method))
	}
	v, err := h.s.find(p.name, p.by)
	if err != nil {
		return err
	}
	defer v.release()
	o.Model, o.Version = v.name, v.number
	body, err := h.body(w, r)
	if err != nil {
		return v.named(err)
	}
	in, byRow, err := parseTF(v, body)
	if err != nil {
		return v.named(badRequest("%w", err))
	}
	out, err := v.infer(r.Context(), in, o)
	if err != nil {
		return err
	}
	b, err := appendTF(out, byRow)
	if err != nil {
		return v.named(badRequest("%w", err))
	}
	write(w, http.StatusOK, "application/json", b)
	return nil
}

// parseTF reads the body of a request for v, and whether it lists rows
// ("instances") and not columns ("inputs").
func parseTF(v *version, body []byte) (in []Tensor, byRow bool, err error) {
	s := &scanner{text: body, nonFinite: true}
	c := newTFColumns(v)
	given := false
	err = s.members(func(key string) error {
		switch key {
		case "signature_name":
			name, err := s.string()
			if err == nil && name != "" && name != "serving_default" {
				err = s.errorf("signature_name is %s, want serving_default", quoted(name))
			}
			return err
		case "instances", "inputs":
			if given {
				return s.errorf("want instances or inputs, and once")
			}
			given, byRow = true, key == "instances"
			if byRow {
				return c.instances(s)
			}
			return c.inputs(s)
		}
		return s.skip()
	})
	if err == nil {
		err = s.end()
	}
	if err == nil && !given {
		err = errors.New("there are no instances and no inputs")
	}
	if err != nil {
		return nil, false, err
	}
	return c.tensors(), byRow, nil
}

// tfColumns collects the elements of each input.
type tfColumns struct {
	v       *version
	readers []*elementReader
	rows    []int // of each input, if it is read row by row
}

func newTFColumns(v *version) *tfColumns {
	c := &tfColumns{v: v, rows: make([]int, len(v.in))}
	for _, s := range v.in {
		most := math.MaxInt
		if n := s.Shape[1:].Size(); n != keras.Unknown {
			most = v.o.MaxBatch * n
		}
		c.readers = append(c.readers, newElementReader(s.DType, most))
	}
	return c
}

// tensors returns the inputs that were given.
func (c *tfColumns) tensors() (in []Tensor) {
	for i, e := range c.readers {
		if e.rank >= 0 {
			in = append(in, Tensor{c.v.in[i].Name, e.dtype, e.shape(), e.data})
		}
	}
	return in
}

// only returns an error if values without names could be for several inputs.
func (c *tfColumns) only() error {
	if len(c.v.in) > 1 {
		return fmt.Errorf("the model has the inputs %q; want an object with their names", namesOf(c.v.in))
	}
	return nil
}

// input returns the index of an input by name. Strings are told apart, because
// TensorFlow's clients write them as objects.
func (c *tfColumns) input(name string) (int, error) {
	i, err := c.v.inputAt(name)
	if err != nil && name == "b64" {
		err = errors.New(`{"b64": …} is a string; inputs are numbers or booleans`)
	}
	return i, err
}

func (c *tfColumns) read(s *scanner, i, depth int) error {
	if err := c.readers[i].read(s, depth); err != nil {
		return fmt.Errorf("input %q: %w", c.v.in[i].Name, err)
	}
	return nil
}

// inputs reads a batch, or an object of batches by input.
func (c *tfColumns) inputs(s *scanner) error {
	if s.peek() != '{' {
		if err := c.only(); err != nil {
			return err
		}
		return c.read(s, 0, 0)
	}
	return s.members(func(name string) error {
		i, err := c.input(name)
		if err != nil {
			return err
		}
		if c.readers[i].rank >= 0 {
			return s.errorf("input %q is given twice", name)
		}
		return c.read(s, i, 0)
	})
}

// instances reads a list of rows: of values, or of objects of values by input.
func (c *tfColumns) instances(s *scanner) error {
	n := 0
	err := s.elements(func() error {
		if n++; n > c.v.o.MaxBatch {
			return s.errorf("got more than %d rows", c.v.o.MaxBatch)
		}
		if s.peek() == '{' {
			return c.instance(s, n)
		}
		if err := c.only(); err != nil {
			return err
		}
		c.rows[0]++
		return c.row(s, 0)
	})
	if err != nil {
		return err
	}
	for i, e := range c.readers {
		if c.rows[i] != n {
			return fmt.Errorf("input %q is missing in row %d", c.v.in[i].Name, n-1)
		}
		if n == 0 {
			return errors.New("instances is an empty list")
		}
		e.dims[0] = n
	}
	return nil
}

// instance reads row n, counted from 1, an object of values by input.
func (c *tfColumns) instance(s *scanner, n int) error {
	err := s.members(func(name string) error {
		i, err := c.input(name)
		if err != nil {
			return err
		}
		if c.rows[i]++; c.rows[i] != n {
			return s.errorf("input %q is given twice in row %d, or missing before", name, n-1)
		}
		return c.row(s, i)
	})
	if err != nil {
		return err
	}
	for i, rows := range c.rows {
		if rows != n {
			return fmt.Errorf("input %q is missing in row %d", c.v.in[i].Name, n-1)
		}
	}
	return nil
}

// row reads one row of input i, as an element of a list of rows.
func (c *tfColumns) row(s *scanner, i int) error {
	if e := c.readers[i]; len(e.dims) == 0 {
		e.dims = append(e.dims, -1)
	}
	return c.read(s, i, 1)
}

// appendTF makes the answer: predictions by row, or outputs by column. One output
// is without its name.
func appendTF(out []Tensor, byRow bool) (b []byte, err error) {
	one := func(t Tensor, shape []int) {
		if err == nil {
			var more []byte
			if more, err = appendElements(b, t, shape, true); err == nil {
				b = more
			} else {
				err = fmt.Errorf("output %q: %w", t.Name, err)
			}
		}
	}
	names := func(each func(t Tensor)) {
		b = append(b, '{')
		for i, t := range out {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, t.Name)
			b = append(b, ':')
			each(t)
		}
		b = append(b, '}')
	}
	key := "outputs"
	if byRow {
		key = "predictions"
	}
	b = fmt.Appendf(b, "{%q:", key)
	switch {
	case len(out) == 1:
		one(out[0], out[0].Shape)
	case !byRow:
		names(func(t Tensor) { one(t, t.Shape) })
	default:
		b = append(b, '[')
		for i := range out[0].Shape[0] {
			if i > 0 {
				b = append(b, ',')
			}
			names(func(t Tensor) {
				row := len(t.Data) / t.Shape[0]
				t.Data = t.Data[i*row : (i+1)*row]
				one(t, t.Shape[1:])
			})
		}
		b = append(b, ']')
	}
	return append(b, '}'), err
}
