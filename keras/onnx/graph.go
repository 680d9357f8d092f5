package onnx

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// Graph is a layer that computes the graph of an ONNX file; Import makes it. Weights are
// the initializers that are floats and have axes, under their names, all trainable but
// for the moving statistics of BatchNormalization.
//
// FLOAT in the file is the policy's compute type. Other element types are what they are.
// Shapes are computed while the layer is recorded, and dropout does nothing in training
// either. A file of package keras/saving has the graph in the layer's config, and the
// weights as of other layers; a program that loads it must import this package. Keras
// has no such layer.
//
// Inputs and results: those of the file.
type Graph struct {
	Proto       string   // the file without its weights, in base64; required
	Outputs     []string // names of the values that are returned; default: the file's outputs
	Name, DType string

	layers.Base
	program    *program
	weights    map[string]*layers.Weight
	constants  map[string]*constant // of initializers that are no weights
	batch      int                  // the file's, if it computes no other; 0: any
	signatures []signature          // of calls with unknown axes
}

// signature is the result of a call with axes of unknown size.
type signature struct {
	in  []op.Type
	out []op.Type
}

func init() { layers.Register("Graph", func() layers.Layer { return &Graph{} }) }

// Config implements layers.Layer.
func (g *Graph) Config() layers.Config { return layers.Config{Name: g.Name, DType: g.DType} }

// Build reads the graph and makes the weights.
func (g *Graph) Build(...layers.Shape) error {
	data, err := base64.StdEncoding.DecodeString(g.Proto)
	if err != nil || len(data) == 0 {
		return errors.New("Proto is no ONNX file in base64; Import makes a Graph")
	}
	p, err := decodeModel(data)
	if err != nil {
		return safeio.Short(err)
	}
	weights := map[string]bool{}
	for _, t := range p.graph.initializers {
		if t.external != nil {
			if t.external.file != weightFile {
				return errors.New("Proto has external data")
			}
			weights[t.name] = true
			size := elementSize(t.typ)
			if size == 0 {
				return fmt.Errorf("Proto: initializer %s is %s", safeio.Quote(t.name), typeName(t.typ))
			}
		}
	}
	x, err := p.program(g.Outputs)
	if err != nil {
		return safeio.Short(err)
	}
	x.weights = weights
	g.SetAutocast(false)
	g.weights, g.constants = map[string]*layers.Weight{}, map[string]*constant{}
	for _, t := range x.initializers {
		if !weights[t.name] {
			continue
		}
		shape, err := t.shape()
		if err != nil {
			return err
		}
		if x.kernels[t.name] {
			to := make([]int, len(shape))
			for i, p := range kernelLast(len(shape)) {
				to[i] = shape[p]
			}
			shape = to
		}
		options := []layers.WeightOption{}
		if x.frozen[t.name] {
			options = append(options, layers.NonTrainable())
		}
		w, err := g.AddWeight(inputName(t.name), shape, "zeros", options...)
		if err != nil {
			return err
		}
		g.weights[t.name] = w
	}
	g.program = x
	return nil
}

// CheckInput implements layers.InputChecker: Call checks its inputs.
func (g *Graph) CheckInput(...layers.Shape) error { return nil }

// Call computes the graph.
func (g *Graph) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	in := x.Unpack()
	if len(in) != len(g.program.inputs) {
		tensor.Fail("Call", "got %d inputs, want %d", len(in), len(g.program.inputs))
	}
	for _, t := range in {
		if !t.Shape().Known() {
			return g.infer(in)
		}
	}
	if n := in[0].Dim(0); g.batch > 0 && n != g.batch {
		tensor.Fail("Call", "got a batch of %d; the file was written for a batch of %d alone", n, g.batch)
	}
	out := g.compute(in)
	if len(out) == 1 {
		return out[0]
	}
	return tensor.Tuple(out...)
}

// trials are sizes that stand for unknown ones: of the batch, and of other axes.
var trials = [][2][2]int{{{5, 8}, {7, 16}}, {{5, 64}, {7, 96}}, {{5, 224}, {7, 256}}}

// infer returns placeholders of the types of the results for inputs with axes of unknown
// size: the graph is recorded for two sizes, and sizes that differ are unknown.
func (g *Graph) infer(in []*tensor.Tensor) *tensor.Tensor {
	types := make([]op.Type, len(in))
	for i, t := range in {
		types[i] = t.Type()
	}
	for _, s := range g.signatures {
		if slices.EqualFunc(s.in, types, op.Type.Equal) {
			return placeholders(s.out)
		}
	}
	out, err := g.inferFor(types)
	if err != nil {
		panic(&tensor.Error{Op: "Call", Err: err})
	}
	g.signatures = append(g.signatures, signature{types, out})
	return placeholders(out)
}

func placeholders(types []op.Type) *tensor.Tensor {
	var all []*tensor.Tensor
	for _, t := range types {
		all = append(all, tensor.Placeholder(t.DType, t.Shape...))
	}
	if len(all) == 1 {
		return all[0]
	}
	return tensor.Tuple(all...)
}

func (g *Graph) inferFor(types []op.Type) (out []op.Type, err error) {
	for i, trial := range trials {
		a, errA := g.try(types, trial[0])
		b, errB := g.try(types, trial[1])
		if errA == nil && errB == nil {
			out, wrong := reconcile(a, b, trial[0][0], trial[1][0])
			if wrong < 0 {
				return out, nil
			}
			errA = fmt.Errorf("the first axis of result %s, %v, is not the batch; leave it out by ImportOptions.Outputs", safeio.Quote(g.program.outputs[wrong]), out[wrong])
		}
		if i == 0 {
			err = cmp.Or(errA, errB) // of the smallest sizes
		}
	}
	// A file may be written for one size of the batch.
	n := g.program.inputs[0].dims[0].size
	if n < 1 || n > 1<<20 {
		return nil, err
	}
	for _, trial := range trials {
		a, errA := g.try(types, [2]int{int(n), trial[0][1]})
		b, errB := g.try(types, [2]int{int(n), trial[1][1]})
		if errA != nil || errB != nil {
			continue
		}
		g.batch = int(n)
		out, _ := reconcile(a, b, 0, 0)
		for i := range out {
			if len(out[i].Shape) > 0 {
				out[i].Shape[0] = tensor.Unknown
			}
		}
		return out, nil
	}
	return nil, err
}

// try records the graph with sizes for unknown axes and returns the types of the results.
func (g *Graph) try(types []op.Type, sizes [2]int) (out []op.Type, err error) {
	defer tensor.Catch(&err)
	var in []*tensor.Tensor
	for _, t := range types {
		shape := t.Shape.Clone()
		for i, d := range shape {
			if d == tensor.Unknown {
				shape[i] = sizes[min(i, 1)]
			}
		}
		in = append(in, tensor.Placeholder(t.DType, shape...))
	}
	for _, t := range g.compute(in) {
		if t.Err() != nil {
			return nil, t.Err()
		}
		out = append(out, t.Type())
	}
	return out, nil
}

// reconcile makes sizes that differ unknown. It returns the index of a result whose first
// axis is not the size of the batch, if that is given, else -1.
func reconcile(a, b []op.Type, n, m int) (out []op.Type, wrong int) {
	wrong = -1
	for i := range a {
		if len(a[i].Shape) != len(b[i].Shape) {
			return slices.Clone(a), i
		}
		t := op.Type{DType: a[i].DType, Shape: a[i].Shape.Clone()}
		for k := range t.Shape {
			if t.Shape[k] != b[i].Shape[k] {
				t.Shape[k] = tensor.Unknown
			}
		}
		if n > 0 && (len(t.Shape) == 0 || a[i].Shape[0] != n || b[i].Shape[0] != m) {
			wrong = i
		}
		out = append(out, t)
	}
	return out, wrong
}
