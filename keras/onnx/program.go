package onnx

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// Versions of the operators that Import reads.
const (
	minOpset = 7
	maxOpset = 23
)

// program is a checked graph: its nodes can be computed in their order.
type program struct {
	opset        int64
	nodes        []*nodeProto // that the outputs depend on
	inputs       []*valueInfo // likewise
	outputs      []string
	initializers []*tensorProto // that nodes read
	weights      map[string]bool
	frozen       map[string]bool // weights that are not trainable
	kernels      map[string]bool // weights that are kernels of convolutions alone
	byName       map[string]*tensorProto
}

// program checks the graph of p and returns what its outputs depend on; names are those
// outputs, by default all.
func (p *modelProto) program(names []string) (*program, error) {
	g := p.graph
	x := &program{weights: map[string]bool{}, frozen: map[string]bool{}, kernels: map[string]bool{}, byName: map[string]*tensorProto{}}
	for _, o := range p.opsets {
		if o.domain == "" || o.domain == "ai.onnx" {
			x.opset = o.version
		}
	}
	switch {
	case x.opset < minOpset || x.opset > maxOpset:
		return nil, fmt.Errorf("it is written for operator set %d, want %d to %d", x.opset, minOpset, maxOpset)
	case g.sparse > 0:
		return nil, errors.New("it has sparse initializers, which are not supported")
	}
	for _, t := range g.initializers {
		if _, err := t.shape(); err != nil {
			return nil, fmt.Errorf("initializer %s: %w", safeio.Quote(t.name), err)
		}
		if t.name == "" || x.byName[t.name] != nil {
			return nil, fmt.Errorf("initializer %s: the name is empty, or another has it", safeio.Quote(t.name))
		}
		x.byName[t.name] = t
	}
	x.outputs = names
	if len(names) == 0 {
		for _, o := range g.outputs {
			x.outputs = append(x.outputs, o.name)
		}
	}
	if len(x.outputs) == 0 {
		return nil, errors.New("it has no outputs")
	}
	rewritten := rewrite(g, x, p.producer == producer)
	if err := x.take(g, rewritten); err != nil {
		return nil, err
	}
	if err := x.supported(); err != nil {
		return nil, err
	}
	for _, property := range p.metadata {
		if property.key == fixedKey {
			for _, name := range strings.Split(property.value, "\n") {
				x.frozen[name] = true
			}
		}
	}
	x.findWeights()
	return x, nil
}

// take checks that each value is computed once and before it is read, and keeps what the
// outputs depend on.
func (x *program) take(g *graphProto, nodes []*nodeProto) error {
	defined := map[string]bool{}
	for name := range x.byName {
		defined[name] = true
	}
	for _, v := range g.inputs {
		if x.byName[v.name] != nil { // old files list initializers as inputs
			continue
		}
		if v.name == "" || defined[v.name] {
			return fmt.Errorf("input %s: the name is empty, or another value has it", safeio.Quote(v.name))
		}
		defined[v.name] = true
	}
	for _, n := range nodes {
		for _, s := range n.in {
			if s != "" && !defined[s] {
				return fmt.Errorf("node %s: input %s is not computed before it", n.describe(), safeio.Quote(s))
			}
		}
		for _, s := range n.out {
			if s != "" && defined[s] {
				return fmt.Errorf("node %s: result %s is computed twice", n.describe(), safeio.Quote(s))
			}
			defined[s] = true
		}
	}
	used := map[string]bool{}
	for _, name := range x.outputs {
		if !defined[name] || name == "" {
			return fmt.Errorf("output %s is no value of the graph", safeio.Quote(name))
		}
		used[name] = true
	}
	for _, n := range slices.Backward(nodes) {
		if slices.ContainsFunc(n.out, func(s string) bool { return s != "" && used[s] }) {
			x.nodes = append(x.nodes, n)
			for _, s := range n.in {
				used[s] = true
			}
		}
	}
	slices.Reverse(x.nodes)
	for _, v := range g.inputs {
		if used[v.name] && x.byName[v.name] == nil {
			if v.other != "" {
				return fmt.Errorf("input %s is %s, want a tensor", safeio.Quote(v.name), v.other)
			}
			x.inputs = append(x.inputs, v)
		}
	}
	for _, t := range g.initializers {
		if used[t.name] {
			x.initializers = append(x.initializers, t)
		}
	}
	return nil
}

// describe names a node in messages.
func (n *nodeProto) describe() string {
	return fmt.Sprintf("%s (%s)", safeio.Quote(n.name), safeio.Text(n.kind()))
}

// kind is the operation with its domain, unless that is ONNX's own.
func (n *nodeProto) kind() string {
	if n.domain == "" {
		return n.op
	}
	return n.domain + "." + n.op
}

// supported returns an *UnsupportedError for operations that have no counterpart.
func (x *program) supported() error {
	missing := map[string]*Unsupported{}
	for _, n := range x.nodes {
		if operations[n.kind()] != nil {
			continue
		}
		u := missing[n.kind()]
		if u == nil {
			u = &Unsupported{Operation: n.kind()}
			missing[n.kind()] = u
		}
		if u.Count++; len(u.Nodes) < 3 {
			u.Nodes = append(u.Nodes, n.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err := &UnsupportedError{}
	for _, name := range sortedKeys(missing) {
		err.Operations = append(err.Operations, *missing[name])
	}
	return err
}

// settings are the operands that are settings rather than data: an initializer that is
// only such an operand is a constant.
var settings = map[string][]int{
	"Clip": {1, 2}, "Pad": {1, 2, 3}, "Resize": {1, 2, 3}, "Upsample": {1}, "Slice": {1, 2, 3, 4}, "Reshape": {1},
	"Expand": {1}, "Tile": {1}, "Unsqueeze": {1}, "Squeeze": {1}, "Range": {0, 1, 2}, "ConstantOfShape": {0}, "OneHot": {1, 2},
	"Dropout": {1, 2}, "QuantizeLinear": {1, 2}, "DequantizeLinear": {1, 2}, "Split": {1}, "CumSum": {1}, "Trilu": {1},
	"Where": {0}, "ReduceSum": {1}, "Pow": {1}, "Equal": {0, 1}, "Less": {0, 1}, "Greater": {0, 1},
	"Shape": {0}, "Size": {0}, "Cast": nil,
}

// findWeights finds the initializers that become weights: floats with axes that are
// operands of a node. Statistics of batch normalization are not trainable.
func (x *program) findWeights() {
	other := map[string]bool{}
	for _, name := range x.outputs {
		other[name] = true
	}
	for _, n := range x.nodes {
		for i, s := range n.in {
			t := x.byName[s]
			if t == nil || len(t.dims) == 0 || len(t.raw) == 0 && t.external == nil || slices.Contains(settings[n.op], i) {
				continue
			}
			switch t.typ {
			case typeFloat, typeFloat16, typeDouble, typeBFloat16:
				x.weights[s] = true
			}
			if n.op == "BatchNormalization" && i >= 3 {
				x.frozen[s] = true
			}
			if (n.op == "Conv" || n.op == "ConvTranspose") && n.domain == "" && i == 1 && len(t.dims) > 2 {
				x.kernels[s] = true
			} else {
				other[s] = true
			}
		}
	}
	for name := range other {
		delete(x.kernels, name)
	}
}

// kernelLast returns the permutation of kernels [O I window…] to [window… I O], the layout
// in which convolutions read them.
func kernelLast(rank int) []int { return append(identity(rank)[2:], 1, 0) }

// doubles reports whether all weights are DOUBLE.
func (x *program) doubles() bool {
	n := 0
	for name := range x.weights {
		if x.byName[name].typ != typeDouble {
			return false
		}
		n++
	}
	return n > 0
}

func (x *program) outputNames(given []string) []string {
	if len(given) == 0 {
		return nil
	}
	return slices.Clone(given)
}

// input returns the Input of a model for an input of the file.
func (x *program) input(v *valueInfo, shapes map[string][]int) (*keras.Tensor, error) {
	if elementSize(v.typ) == 0 {
		return nil, fmt.Errorf("input %s is %s, which is not supported", safeio.Quote(v.name), typeName(v.typ))
	}
	if v.noRank || len(v.dims) == 0 {
		return nil, fmt.Errorf("input %s has no shape, want one that begins with the batch", safeio.Quote(v.name))
	}
	shape := make([]int, len(v.dims)-1)
	for i, d := range v.dims[1:] {
		if shape[i] = int(d.size); d.size < 1 {
			shape[i] = tensor.Unknown
		} else if d.size > op.Limit {
			return nil, fmt.Errorf("input %s has an axis of size %d", safeio.Quote(v.name), d.size)
		}
	}
	if given, ok := shapes[v.name]; ok {
		if len(given) != len(shape) {
			return nil, fmt.Errorf("Shapes of input %q is %v, want the shape of a sample of %v", v.name, given, op.Shape(shape))
		}
		shape = given
	}
	d := elementTypes[v.typ].to
	if v.typ == typeFloat {
		return keras.Input(shape...), nil
	}
	return keras.InputOf(d, shape...), nil
}

// strip encodes the model without the elements of the weights, and returns these.
func (p *modelProto) strip(x *program) ([]byte, map[string]*tensorProto) {
	data := map[string]*tensorProto{}
	bare := *p
	graph := *p.graph
	bare.graph = &graph
	graph.initializers = nil
	for _, t := range p.graph.initializers {
		if x.weights[t.name] {
			data[t.name] = t
			empty := *t
			empty.raw, empty.external = nil, &location{file: weightFile}
			t = &empty
		}
		graph.initializers = append(graph.initializers, t)
	}
	var out []byte
	for _, b := range bare.sections() {
		out = append(out, b...)
	}
	return out, data
}

// weightFile is the location of weights in a Graph's Proto: they are in the model's
// files.
const weightFile = "weights"
