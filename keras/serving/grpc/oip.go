package servinggrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/serving"
)

// oip is inference.GRPCInferenceService
// (github.com/kserve/open-inference-protocol, specification/protocol/open_inference_grpc.proto).
type oip struct{ s *serving.Server }

// oipModel reads the fields that ModelReady and ModelMetadata have in common.
func oipModel(request []byte) (name string, version int, err error) {
	err = fields(request, func(f field) (err error) {
		switch f.number {
		case 1:
			name, err = f.text()
		case 2:
			version, err = oipVersion(f)
		}
		return err
	})
	if err != nil {
		return "", 0, invalid(err)
	}
	return name, version, nil
}

// oipVersion reads the number of a version, "" for the default.
func oipVersion(f field) (int, error) {
	text, err := f.text()
	if err != nil || text == "" {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("version %.200q: want a number of at least 1", text)
	}
	return int(n), nil
}

func (o oip) serverMetadata(context.Context, []byte) (m message, err error) {
	m.text(1, "mezzo")
	m.text(2, "1")
	return m, nil
}

func (o oip) modelReady(_ context.Context, request []byte) (message, error) {
	name, version, err := oipModel(request)
	if err != nil {
		return nil, err
	}
	_, err = o.s.Describe(name, version, "")
	return flagged(err == nil && o.s.Ready()), nil
}

func (o oip) modelMetadata(_ context.Context, request []byte) (m message, err error) {
	name, version, err := oipModel(request)
	if err != nil {
		return nil, err
	}
	info, err := o.s.Describe(name, version, "")
	if err != nil {
		return nil, err
	}
	served, _ := o.s.Versions(name)
	m.text(1, info.Model)
	for _, n := range served {
		m.text(2, strconv.Itoa(n))
	}
	m.text(3, "mezzo_keras")
	for _, s := range info.Inputs {
		m.blob(4, oipTensor(s.Name, s.DType, s.Shape))
	}
	for _, s := range info.Outputs {
		m.blob(5, oipTensor(s.Name, s.DType, s.Shape))
	}
	return m, nil
}

// oipTensor is TensorMetadata, and InferOutputTensor without its contents.
func oipTensor(name string, d keras.DType, shape []int) (m message) {
	m.text(1, name)
	m.text(2, serving.Datatype(d))
	m.shape(3, shape)
	return m
}

// oipRequest is ModelInferRequest.
type oipRequest struct {
	model   string
	version int
	id      string
	inputs  [][]byte // InferInputTensor
	outputs []string // none: all
	raw     [][]byte
}

// read reads the message, but not yet its inputs.
func (r *oipRequest) read(request []byte) error {
	return fields(request, func(f field) (err error) {
		switch f.number {
		case 1:
			r.model, err = f.text()
		case 2:
			r.version, err = oipVersion(f)
		case 3:
			r.id, err = f.text()
		case 4:
			err = checkParameter(f)
		case 5:
			var b []byte
			if b, err = f.blob(); err == nil {
				r.inputs, err = appendBounded(r.inputs, b)
			}
		case 6:
			name := ""
			err = f.message(func(f field) (err error) {
				switch f.number {
				case 1:
					name, err = f.text()
				case 2:
					err = checkParameter(f)
				}
				return err
			})
			if err == nil {
				r.outputs, err = appendBounded(r.outputs, name)
			}
		case 7:
			var b []byte
			if b, err = f.blob(); err == nil {
				r.raw, err = appendBounded(r.raw, b)
			}
		}
		return err
	})
}

// checkParameter refuses parameters without which the answer would be another one.
func checkParameter(f field) error {
	return f.message(func(f field) error {
		if f.number != 1 {
			return nil
		}
		name, err := f.text()
		if err == nil && (name == "shared_memory_region" || name == "classification") {
			err = fmt.Errorf("parameter %s is not supported", name)
		}
		return err
	})
}

// decode reads the inputs for a version.
func (r *oipRequest) decode(info serving.Info) ([]serving.Tensor, error) {
	if len(r.inputs) > len(info.Inputs) {
		return nil, fmt.Errorf("got %d inputs, more than the %d of the model", len(r.inputs), len(info.Inputs))
	}
	if r.raw != nil && len(r.raw) != len(r.inputs) {
		return nil, fmt.Errorf("got %d raw_input_contents for %d inputs", len(r.raw), len(r.inputs))
	}
	for _, name := range r.outputs {
		if !slices.ContainsFunc(info.Outputs, func(s serving.TensorSpec) bool { return s.Name == name }) {
			return nil, fmt.Errorf("there is no output %.200q", name)
		}
	}
	in := make([]serving.Tensor, len(r.inputs))
	for i, b := range r.inputs {
		t, contents, err := oipInput(b, info)
		if err != nil {
			return nil, err
		}
		switch {
		case r.raw == nil:
			if t.Data, err = oipContents(t, contents); err != nil {
				return nil, fmt.Errorf("input %q: %w", t.Name, err)
			}
		case contents != nil:
			return nil, fmt.Errorf("input %q has contents beside raw_input_contents", t.Name)
		default:
			t.Data = r.raw[i]
		}
		in[i] = t
	}
	return in, nil
}

// oipInput reads InferInputTensor and checks its type and shape. contents is its
// InferTensorContents, nil if it has none.
func oipInput(b []byte, info serving.Info) (t serving.Tensor, contents []byte, err error) {
	datatype := ""
	err = fields(b, func(f field) (err error) {
		switch f.number {
		case 1:
			t.Name, err = f.text()
		case 2:
			datatype, err = f.text()
		case 3:
			err = f.integers(func(v uint64) (err error) {
				t.Shape, err = appendAxis(t.Shape, int64(v))
				return err
			})
		case 4:
			err = checkParameter(f)
		case 5:
			var more []byte
			if more, err = f.blob(); contents == nil {
				contents = more
			} else { // two messages are one that has the fields of both
				contents = append(contents[:len(contents):len(contents)], more...)
			}
		}
		return err
	})
	if err != nil {
		return t, nil, err
	}
	spec, err := info.Input(t.Name)
	if err != nil {
		return t, nil, err
	}
	t.Name, t.DType = spec.Name, serving.ParseDatatype(datatype)
	if t.DType == dtype.Invalid {
		return t, nil, fmt.Errorf("input %q: got datatype %.200q, want %s", t.Name, datatype, serving.Datatype(spec.DType))
	}
	return t, contents, checkInput(t, spec, info)
}

// checkInput compares a type and a shape with the model before values are read.
func checkInput(t serving.Tensor, spec serving.TensorSpec, info serving.Info) error {
	err := spec.Check(t.DType, t.Shape)
	if err == nil && t.Shape[0] > info.MaxBatch {
		err = fmt.Errorf("got %d rows, want at most %d", t.Shape[0], info.MaxBatch)
	}
	if err != nil {
		return fmt.Errorf("input %q: %w", spec.Name, err)
	}
	return nil
}

// oipContents reads InferTensorContents, which has a field for each group of types.
func oipContents(t serving.Tensor, contents []byte) ([]byte, error) {
	numbers := map[keras.DType]int{dtype.Bool: 1, dtype.Int32: 2, dtype.Int64: 3, dtype.Uint8: 4, dtype.Float32: 6, dtype.Float64: 7}
	number := numbers[t.DType]
	if number == 0 {
		return nil, errors.New("16-bit floats have no contents; send raw_input_contents")
	}
	e := &elements{dtype: t.DType, most: elementsOf(t.Shape)}
	err := fields(contents, func(f field) error {
		if int(f.number) != number {
			return fmt.Errorf("contents have field %d, want %d for datatype %s", f.number, number, serving.Datatype(t.DType))
		}
		return e.add(f)
	})
	if err == nil && e.count() != e.most {
		err = fmt.Errorf("got %d elements, want the %d of shape %v", e.count(), e.most, []int(t.Shape))
	}
	return e.data, err
}

func (o oip) modelInfer(ctx context.Context, request []byte) (m message, err error) {
	var r oipRequest
	malformed := r.read(request)
	res, err := o.s.Infer(ctx, serving.Request{Model: r.model, Version: r.version, Protocol: "oip-grpc", Decode: func(info serving.Info) ([]serving.Tensor, error) {
		if malformed != nil {
			return nil, malformed
		}
		return r.decode(info)
	}})
	switch {
	case malformed != nil:
		return nil, invalid(malformed)
	case err != nil:
		return nil, err
	}
	wanted := r.outputs
	if wanted == nil {
		for _, t := range res.Outputs {
			wanted = append(wanted, t.Name)
		}
	}
	m.text(1, r.model)
	m.text(2, strconv.Itoa(res.Version))
	m.text(3, r.id)
	var raw message
	for _, name := range wanted {
		t := res.Outputs[slices.IndexFunc(res.Outputs, func(t serving.Tensor) bool { return t.Name == name })]
		m.blob(5, oipTensor(t.Name, t.DType, t.Shape))
		raw.blob(6, t.Data)
	}
	return append(m, raw...), nil
}
