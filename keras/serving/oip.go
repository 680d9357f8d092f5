package serving

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/mezzo-ml/mezzo/keras"
)

// handleOIP registers the Open Inference Protocol, version 2
// (github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md)
// with Triton's extension for binary tensor data
// (github.com/triton-inference-server/server, docs/protocol/extension_binary_data.md).
func (h *handler) handleOIP(m guard) {
	m.HandleFunc("GET /v2", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, map[string]any{"name": "mezzo", "version": "1", "extensions": []string{"binary_tensor_data"}})
	})
	for _, model := range []string{"/v2/models/{model}", "/v2/models/{model}/versions/{version}"} {
		m.HandleFunc("GET "+model, h.oipMetadata)
		m.HandleFunc("GET "+model+"/ready", h.oipReady)
		m.HandleFunc("POST "+model+"/infer", h.inference("oip", h.oipInfer))
	}
}

// oipVersion finds the version of a path.
func (h *handler) oipVersion(r *http.Request) (*version, error) {
	number, err := parseVersion(r.PathValue("version"))
	if err != nil {
		return nil, err
	}
	return h.s.find(r.PathValue("model"), selector{number: number})
}

func (h *handler) oipReady(w http.ResponseWriter, r *http.Request) {
	v, err := h.oipVersion(r)
	if err != nil {
		fail(w, err)
		return
	}
	defer v.release()
	replyReady(w, h.s.Ready(), v.name)
}

func (h *handler) oipMetadata(w http.ResponseWriter, r *http.Request) {
	v, err := h.oipVersion(r)
	if err != nil {
		fail(w, err)
		return
	}
	defer v.release()
	type tensorMetadata struct {
		Name     string `json:"name"`
		Datatype string `json:"datatype"`
		Shape    []int  `json:"shape"`
	}
	all := func(specs []TensorSpec) (ts []tensorMetadata) {
		for _, s := range specs {
			ts = append(ts, tensorMetadata{s.Name, Datatype(s.DType), s.Shape})
		}
		return ts
	}
	served, _ := h.s.Versions(v.name)
	versions := []string{}
	for _, n := range served {
		versions = append(versions, strconv.Itoa(n))
	}
	reply(w, http.StatusOK, map[string]any{"name": v.name, "versions": versions, "platform": "mezzo_keras", "inputs": all(v.in), "outputs": all(v.out)})
}

// oipRequest is the JSON of an inference request.
type oipRequest struct {
	id           string
	binaryOutput bool
	inputs       []oipInput
	outputs      []oipOutput // none: all
}

type oipInput struct {
	tensor Tensor
	binary int // bytes of binary data; -1: JSON
}

type oipOutput struct {
	name   string
	binary bool
}

// parseOIP reads the body of a request for v, whose first n bytes are JSON.
func parseOIP(v *version, body []byte, n int) (*oipRequest, error) {
	q := &oipRequest{}
	s := &scanner{text: body[:n]}
	hasInputs := false
	err := s.members(func(key string) (err error) {
		switch key {
		case "id":
			q.id, err = s.string()
		case "parameters":
			p, err := s.parameters()
			q.binaryOutput = p.binaryOutput
			return err
		case "inputs":
			if hasInputs {
				return s.errorf("inputs are given twice")
			}
			hasInputs = true
			return s.elements(func() error {
				if len(q.inputs) == len(v.in) {
					return s.errorf("got more inputs than the %d of the model", len(v.in))
				}
				in, err := s.oipInput(v)
				q.inputs = append(q.inputs, in)
				return err
			})
		case "outputs":
			return s.elements(func() error {
				if len(q.outputs) == len(v.out) {
					return s.errorf("got more outputs than the %d of the model", len(v.out))
				}
				out, err := s.oipOutput(v)
				q.outputs = append(q.outputs, out)
				return err
			})
		default:
			return s.skip()
		}
		return err
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, err
	}
	return q, q.takeBinary(body[n:])
}

// takeBinary gives the inputs with binary data their bytes.
func (q *oipRequest) takeBinary(rest []byte) error {
	for i := range q.inputs {
		in := &q.inputs[i]
		if in.binary < 0 {
			continue
		}
		if in.binary > len(rest) {
			return fmt.Errorf("input %q: binary_data_size is %d, but %d bytes are left", in.tensor.Name, in.binary, len(rest))
		}
		in.tensor.Data, rest = rest[:in.binary:in.binary], rest[in.binary:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes of binary data are left over", len(rest))
	}
	return nil
}

// oipParameters are the parameters of requests, inputs and outputs that are known.
type oipParameters struct {
	binary, binaryOutput bool
	size                 int // of binary data; -1: not given
}

func (s *scanner) parameters() (oipParameters, error) {
	p := oipParameters{size: -1}
	err := s.members(func(key string) (err error) {
		switch key {
		case "binary_data":
			p.binary, err = s.bool()
		case "binary_data_output":
			p.binaryOutput, err = s.bool()
		case "binary_data_size":
			p.size, err = s.size()
		case "classification", "shared_memory_region":
			return s.errorf("parameter %s is not supported", key)
		default:
			return s.skip()
		}
		return err
	})
	return p, err
}

// size reads an integer from 0 to 2³¹-1.
func (s *scanner) size() (int, error) {
	text, err := s.number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, s.errorf("got %s, want an integer from 0 to %d", quoted(text), math.MaxInt32)
	}
	return int(n), nil
}

// oipInput reads an input. Its data is read last, when its type is known.
func (s *scanner) oipInput(v *version) (in oipInput, err error) {
	in.binary = -1
	name, datatype, dataAt := "", "", -1
	err = s.members(func(key string) (err error) {
		switch key {
		case "name":
			name, err = s.string()
		case "datatype":
			datatype, err = s.string()
		case "shape":
			in.tensor.Shape = nil
			return s.elements(func() error {
				if len(in.tensor.Shape) > maxDepth {
					return s.errorf("a shape has more than %d axes", maxDepth)
				}
				d, err := s.size()
				in.tensor.Shape = append(in.tensor.Shape, d)
				return err
			})
		case "data":
			s.peek()
			dataAt = s.at
			return s.skip()
		case "parameters":
			p, err := s.parameters()
			in.binary = p.size
			return err
		default:
			return s.skip()
		}
		return err
	})
	if err != nil {
		return in, err
	}
	i, err := v.inputAt(name)
	if err != nil {
		return in, err
	}
	spec := v.in[i]
	t := &in.tensor
	t.Name, t.DType = spec.Name, ParseDatatype(datatype)
	switch {
	case t.DType != spec.DType:
		return in, fmt.Errorf("input %q: got datatype %s, want %s", spec.Name, quoted(datatype), Datatype(spec.DType))
	case dataAt >= 0 && in.binary >= 0:
		return in, fmt.Errorf("input %q has data and binary_data_size, want one of them", spec.Name)
	case in.binary >= 0:
		return in, nil
	case dataAt < 0:
		return in, fmt.Errorf("input %q has no data", spec.Name)
	}
	if t.Data, err = s.elementsAt(dataAt, spec.DType, t.Shape); err != nil {
		return in, fmt.Errorf("input %q: %w", spec.Name, err)
	}
	return in, nil
}

// elementsAt reads the elements of a shape, nested or as one list, from a place
// that was passed over.
func (s *scanner) elementsAt(at int, d keras.DType, shape []int) ([]byte, error) {
	n, ok := bytesOf(shape, 1)
	if !ok {
		return nil, fmt.Errorf("shape %s is too large", shapeText(shape))
	}
	e := newElementReader(d, n)
	if err := e.read(&scanner{text: s.text, at: at}, 0); err != nil {
		return nil, err
	}
	if e.count != n {
		return nil, fmt.Errorf("got %d elements, want the %d of shape %s", e.count, n, shapeText(shape))
	}
	if got := e.shape(); len(got) != 1 && !slices.Equal(got, shape) {
		return nil, fmt.Errorf("got lists of shape %v, want %s or one flat list", got, shapeText(shape))
	}
	return e.data, nil
}

func (s *scanner) oipOutput(v *version) (out oipOutput, err error) {
	err = s.members(func(key string) (err error) {
		switch key {
		case "name":
			out.name, err = s.string()
		case "parameters":
			p, err := s.parameters()
			out.binary = p.binary
			return err
		default:
			return s.skip()
		}
		return err
	})
	if err == nil && !slices.Contains(namesOf(v.out), out.name) {
		err = fmt.Errorf("there is no output %s; want %q", quoted(out.name), namesOf(v.out))
	}
	return out, err
}

func (h *handler) oipInfer(w http.ResponseWriter, r *http.Request, o *Observation) error {
	v, err := h.oipVersion(r)
	if err != nil {
		return err
	}
	defer v.release()
	o.Model, o.Version = v.name, v.number
	body, err := h.body(w, r)
	if err != nil {
		return v.named(err)
	}
	n := len(body)
	if header := r.Header.Get("Inference-Header-Content-Length"); header != "" {
		length, err := strconv.ParseUint(header, 10, 31)
		if err != nil || length > uint64(len(body)) {
			return v.named(badRequest("Inference-Header-Content-Length: got %s, want at most the %d bytes of the body", quoted(header), len(body)))
		}
		n = int(length)
	}
	q, err := parseOIP(v, body, n)
	if err != nil {
		return v.named(badRequest("%w", err))
	}
	in := make([]Tensor, len(q.inputs))
	for i := range q.inputs {
		in[i] = q.inputs[i].tensor
	}
	out, err := v.infer(r.Context(), in, o)
	if err != nil {
		return err
	}
	return v.writeOIP(w, q, out)
}

// writeOIP answers a request: the outputs that it names, in its order.
func (v *version) writeOIP(w http.ResponseWriter, q *oipRequest, out []Tensor) error {
	wanted := q.outputs
	if len(wanted) == 0 {
		for _, t := range out {
			wanted = append(wanted, oipOutput{name: t.Name})
		}
	}
	b := make([]byte, 0, 256)
	b = appendText(append(b, `{"model_name":`...), v.name)
	b = append(strconv.AppendInt(append(b, `,"model_version":"`...), int64(v.number), 10), '"')
	if q.id != "" {
		b = appendText(append(b, `,"id":`...), q.id)
	}
	b = append(b, `,"outputs":[`...)
	var raw [][]byte
	for i, o := range wanted {
		t := out[slices.IndexFunc(out, func(t Tensor) bool { return t.Name == o.name })]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"name":`...), t.Name)
		b = append(append(b, `,"datatype":"`...), Datatype(t.DType)...)
		b = append(b, `","shape":[`...)
		for k, d := range t.Shape {
			if k > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(d), 10)
		}
		if o.binary || q.binaryOutput {
			b = strconv.AppendInt(append(b, `],"parameters":{"binary_data_size":`...), int64(len(t.Data)), 10)
			b = append(b, "}}"...)
			raw = append(raw, t.Data)
			continue
		}
		b = append(b, `],"data":`...)
		var err error
		if b, err = appendElements(b, t, []int{len(t.Data) / t.DType.Size()}, false); err != nil {
			return v.named(badRequest("output %q: %w", t.Name, err))
		}
		b = append(b, '}')
	}
	b = append(b, "]}"...)
	if raw == nil {
		write(w, http.StatusOK, "application/json", b)
		return nil
	}
	w.Header().Set("Inference-Header-Content-Length", strconv.Itoa(len(b)))
	write(w, http.StatusOK, "application/octet-stream", append([][]byte{b}, raw...)...)
	return nil
}
