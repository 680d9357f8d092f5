package servinggrpc

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/serving"
)

// tf is tensorflow.serving.PredictionService and ModelService
// (github.com/tensorflow/serving, tensorflow_serving/apis/{model,predict,
// get_model_metadata,get_model_status}.proto; TensorProto and DataType:
// github.com/tensorflow/tensorflow, tensorflow/core/framework/{tensor,types}.proto).
type tf struct{ s *serving.Server }

// tfTypes has a type's number in DataType, and the field of its values in
// TensorProto.
var tfTypes = map[keras.DType]struct {
	number int
	values protowire.Number
}{
	dtype.Float32: {1, 5}, dtype.Float64: {2, 6}, dtype.Int32: {3, 7}, dtype.Uint8: {4, 7},
	dtype.Int64: {9, 10}, dtype.Bool: {10, 11}, dtype.BFloat16: {14, 13}, dtype.Float16: {19, 13},
}

// tfSpec is ModelSpec.
type tfSpec struct {
	name    string
	version int
	label   string
}

func (s *tfSpec) read(f field) error {
	return f.message(func(f field) (err error) {
		switch f.number {
		case 1:
			s.name, err = f.text()
		case 2: // Int64Value
			n := int64(0)
			err = f.message(func(f field) (err error) {
				if f.number == 1 {
					n, err = f.integer()
				}
				return err
			})
			if err == nil && (n < 1 || n > math.MaxInt32) {
				err = fmt.Errorf("version %d: want a number of at least 1", n)
			}
			s.version, s.label = int(n), ""
		case 3:
			var signature string
			if signature, err = f.text(); err == nil && signature != "" && signature != signatureName {
				err = fmt.Errorf("signature_name is %.200q, want %s", signature, signatureName)
			}
		case 4:
			s.label, err = f.text()
			s.version = 0
		}
		return err
	})
}

// signatureName is what TensorFlow calls the one signature of a model.
const signatureName = "serving_default"

// tfSpecOf is ModelSpec of a version.
func tfSpecOf(name string, version int, signature string) (m message) {
	var number message
	number.integer(1, version)
	m.text(1, name)
	m.blob(2, number)
	m.text(3, signature)
	return m
}

// tfRequest is PredictRequest.
type tfRequest struct {
	spec   tfSpec
	inputs [][]byte // entries of a map of TensorProto
	filter []string // none: all outputs
}

// read reads the message, but not yet its inputs.
func (r *tfRequest) read(request []byte) error {
	return fields(request, func(f field) (err error) {
		switch f.number {
		case 1:
			err = r.spec.read(f)
		case 2:
			var b []byte
			if b, err = f.blob(); err == nil {
				r.inputs, err = appendBounded(r.inputs, b)
			}
		case 3:
			var name string
			if name, err = f.text(); err == nil {
				r.filter, err = appendBounded(r.filter, name)
			}
		}
		return err
	})
}

// maxRepeated bounds the bytes of tensors whose message has fewer values than the
// shape: 20 bytes of a request could stand for gigabytes.
const maxRepeated = 4 << 20

// decode reads the inputs for a version.
func (r *tfRequest) decode(info serving.Info) ([]serving.Tensor, error) {
	if len(r.inputs) > len(info.Inputs) {
		return nil, fmt.Errorf("got %d inputs, more than the %d of the model", len(r.inputs), len(info.Inputs))
	}
	for _, name := range r.filter {
		if !slices.ContainsFunc(info.Outputs, func(s serving.TensorSpec) bool { return s.Name == name }) {
			return nil, fmt.Errorf("there is no output %.200q", name)
		}
	}
	in := make([]serving.Tensor, len(r.inputs))
	repeated := 0
	for i, b := range r.inputs {
		name, proto := "", []byte(nil)
		err := fields(b, func(f field) (err error) {
			switch f.number {
			case 1:
				name, err = f.text()
			case 2:
				proto, err = f.blob()
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		spec, err := info.Input(name)
		if err != nil {
			return nil, err
		}
		if in[i], err = tfInput(proto, spec, info, &repeated); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// tfInput reads TensorProto. repeated counts the bytes of values that are not in
// the message.
func tfInput(proto []byte, spec serving.TensorSpec, info serving.Info, repeated *int) (t serving.Tensor, err error) {
	t.Name = spec.Name
	number, content := int64(0), []byte(nil)
	err = fields(proto, func(f field) (err error) {
		switch f.number {
		case 1:
			number, err = f.integer()
		case 2:
			t.Shape, err = tfShape(f, t.Shape)
		case 4:
			content, err = f.blob()
		}
		return err
	})
	if err != nil {
		return t, fmt.Errorf("input %q: %w", t.Name, err)
	}
	for d, is := range tfTypes {
		if int64(is.number) == number {
			t.DType = d
		}
	}
	if t.DType == dtype.Invalid {
		return t, fmt.Errorf("input %q: got DataType %d, want %d (%s)", t.Name, number, tfTypes[spec.DType].number, spec.DType)
	}
	if err := checkInput(t, spec, info); err != nil {
		return t, err
	}
	if len(content) > 0 {
		t.Data = content
		return t, nil
	}
	if t.Data, err = tfValues(proto, t, repeated); err != nil {
		return t, fmt.Errorf("input %q: %w", t.Name, err)
	}
	return t, nil
}

// tfShape reads TensorShapeProto and appends its axes.
func tfShape(f field, shape []int) ([]int, error) {
	err := f.message(func(f field) (err error) {
		switch f.number {
		case 2:
			size := int64(0)
			err = f.message(func(f field) (err error) {
				if f.number == 1 {
					size, err = f.integer()
				}
				return err
			})
			if err == nil {
				shape, err = appendAxis(shape, size)
			}
		case 3:
			if f.value != 0 {
				err = fmt.Errorf("the shape has an unknown rank")
			}
		}
		return err
	})
	return shape, err
}

// tfValues reads the typed values of TensorProto. As in TensorFlow the last one
// stands for those that are left out, and zeros for none.
func tfValues(proto []byte, t serving.Tensor, repeated *int) ([]byte, error) {
	number := tfTypes[t.DType].values
	e := &elements{dtype: t.DType, most: elementsOf(t.Shape)}
	err := fields(proto, func(f field) error {
		switch f.number {
		case number:
			return e.add(f)
		case 1, 2, 3, 4:
			return nil
		}
		return fmt.Errorf("got values in field %d, want %d for %s", f.number, number, t.DType)
	})
	if err != nil || e.count() == e.most {
		return e.data, err
	}
	size := t.DType.Size()
	if e.most > (maxRepeated-*repeated)/size {
		return nil, fmt.Errorf("got %d values for the shape %v, want all of them: at most %d bytes may be left out", e.count(), []int(t.Shape), maxRepeated)
	}
	*repeated += e.most * size
	last := make([]byte, size)
	if n := len(e.data); n > 0 {
		copy(last, e.data[n-size:])
	}
	all := append(make([]byte, 0, e.most*size), e.data...)
	for len(all) < cap(all) {
		all = append(all, last...)
	}
	return all, nil
}

func (s tf) predict(ctx context.Context, request []byte) (m message, err error) {
	var r tfRequest
	malformed := r.read(request)
	res, err := s.s.Infer(ctx, serving.Request{Model: r.spec.name, Version: r.spec.version, Label: r.spec.label, Protocol: "tfserving-grpc", Decode: func(info serving.Info) ([]serving.Tensor, error) {
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
	for _, t := range res.Outputs {
		if r.filter != nil && !slices.Contains(r.filter, t.Name) {
			continue
		}
		var entry, proto message
		proto.integer(1, tfTypes[t.DType].number)
		proto.blob(2, tfShapeOf(t.Shape))
		proto.appendTyped(tfTypes[t.DType].values, t.DType, t.Data)
		entry.text(1, t.Name)
		entry.blob(2, proto)
		m.blob(1, entry)
	}
	m.blob(2, tfSpecOf(r.spec.name, res.Version, signatureName))
	return m, nil
}

// tfShapeOf is TensorShapeProto.
func tfShapeOf(shape []int) (m message) {
	for _, d := range shape {
		var axis message
		axis.integer(1, d)
		m.blob(2, axis)
	}
	return m
}

// modelMetadata answers GetModelMetadataRequest with the signature, the one
// metadata that TensorFlow Serving has.
func (s tf) modelMetadata(_ context.Context, request []byte) (m message, err error) {
	var spec tfSpec
	err = fields(request, func(f field) (err error) {
		switch f.number {
		case 1:
			err = spec.read(f)
		case 2:
			var name string
			if name, err = f.text(); err == nil && name != "signature_def" {
				err = fmt.Errorf("metadata_field is %.200q, want signature_def", name)
			}
		}
		return err
	})
	if err != nil {
		return nil, invalid(err)
	}
	info, err := s.s.Describe(spec.name, spec.version, spec.label)
	if err != nil {
		return nil, err
	}
	var signature, named, signatures, packed, entry message
	for i, specs := range [][]serving.TensorSpec{info.Inputs, info.Outputs} {
		for _, t := range specs {
			var one, of message // TensorInfo, and its entry
			of.text(1, t.Name)
			of.integer(2, tfTypes[t.DType].number)
			of.blob(3, tfShapeOf(t.Shape))
			one.text(1, t.Name)
			one.blob(2, of)
			signature.blob(protowire.Number(1+i), one)
		}
	}
	signature.text(3, "tensorflow/serving/predict")
	named.text(1, signatureName)
	named.blob(2, signature)
	signatures.blob(1, named)
	packed.text(1, "type.googleapis.com/tensorflow.serving.SignatureDefMap") // google.protobuf.Any
	packed.blob(2, signatures)
	entry.text(1, "signature_def")
	entry.blob(2, packed)
	m.blob(1, tfSpecOf(info.Model, info.Version, ""))
	m.blob(2, entry)
	return m, nil
}

// States of a version, and the code of one that did not load (UNKNOWN).
const (
	tfAvailable = 30
	tfEnd       = 50
	tfUnknown   = 2
)

// modelStatus answers GetModelStatusRequest: a version or all, the newest first. Why
// a version did not load is for the server's log.
func (s tf) modelStatus(_ context.Context, request []byte) (m message, err error) {
	var spec tfSpec
	err = fields(request, func(f field) error {
		if f.number == 1 {
			return spec.read(f)
		}
		return nil
	})
	if err != nil {
		return nil, invalid(err)
	}
	served, failed := s.s.Versions(spec.name)
	if spec.version != 0 || spec.label != "" || served == nil && len(failed) == 0 {
		info, err := s.s.Describe(spec.name, spec.version, spec.label)
		if err != nil {
			return nil, err
		}
		served, failed = []int{info.Version}, nil
	}
	states := map[int]int{}
	for _, n := range served {
		states[n] = tfAvailable
	}
	for n := range failed {
		if states[n] == 0 { // its file has changed, and what was loaded before goes on
			states[n] = tfEnd
		}
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(states))) {
		var one, status message
		one.integer(1, n)
		one.integer(2, states[n])
		if states[n] == tfEnd {
			status.integer(1, tfUnknown)
			status.text(2, "the version did not load; see the server's log")
		}
		one.blob(3, status)
		m.blob(1, one)
	}
	return m, nil
}
