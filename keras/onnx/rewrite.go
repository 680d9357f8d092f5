package onnx

import (
	"math"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// ownDomain is the domain of the nodes that rewrite makes.
const ownDomain = "mezzo"

// rewriter finds groups of nodes that are one operation of Mezzo.
type rewriter struct {
	initializers map[string]*tensorProto
	producers    map[string]*nodeProto // by their first result
	uses         map[string]int
	own          bool // the file is Mezzo's: attention is where a name says so
}

// patterns are the expressions that rewrite looks for, beside composites, and what they
// are: other programs write some operations otherwise. The first that fits counts.
var patterns []pattern

type pattern struct {
	name string
	expr *expression
}

// otherForms are forms of PyTorch and TensorFlow.
var otherForms = []struct{ name, text string }{
	{"GELU", "Mul(Mul(x,Add(Erf(Div(x,1.4142135623730951)),1)),0.5)"},
	{"GELU", "Mul(Mul(x,0.5),Add(Erf(Div(x,1.4142135623730951)),1))"},
	{"GELU", "Mul(x,Mul(0.5,Add(Erf(Div(x,1.4142135623730951)),1)))"},
	{"GELU", "Mul(Mul(x,0.5),Add(Erf(Mul(x,0.7071067811865476)),1))"},
	{"NormalCDF", "Mul(Add(Erf(Div(x,1.4142135623730951)),1),0.5)"},
	{"Rsqrt", "Div(1,Sqrt(x))"},
	{"Square", "Pow(x,2)"},
}

func init() {
	for _, c := range op.Codes() {
		if text, ok := composites[c]; ok {
			patterns = append(patterns, pattern{c.String(), parse(text)})
		}
	}
	for _, f := range otherForms {
		patterns = append(patterns, pattern{f.name, parse(f.text)})
	}
	// Larger ones first: the smaller are parts of them.
	slices.SortStableFunc(patterns, func(a, b pattern) int { return b.expr.size() - a.expr.size() })
}

func (x *expression) size() int {
	n := 1
	for _, a := range x.args {
		n += a.size()
	}
	return n
}

// rewrite returns the nodes of g with one node in place of the last of each group that is
// one operation of Mezzo. The others of the group stay, and are left out if nothing else
// reads them.
func rewrite(g *graphProto, x *program, own bool) []*nodeProto {
	r := &rewriter{initializers: x.byName, producers: make(map[string]*nodeProto, len(g.nodes)), uses: map[string]int{}, own: own}
	for _, o := range x.outputs {
		r.uses[o]++
	}
	for _, n := range g.nodes {
		for _, s := range n.in {
			r.uses[s]++
		}
		if len(n.out) > 0 && n.out[0] != "" && r.producers[n.out[0]] == nil {
			r.producers[n.out[0]] = n
		}
	}
	out := make([]*nodeProto, len(g.nodes))
	for i, n := range g.nodes {
		out[i] = n
		if len(n.out) != 1 || n.domain != "" || r.producers[n.out[0]] != n {
			continue
		}
		if y := r.whole(n); y != nil {
			y.name, y.out = n.name, n.out
			if y.domain == "" && y.op != "RMSNormalization" {
				y.domain = ownDomain
			}
			out[i] = y
		}
	}
	return out
}

// whole returns the node for the group that ends with n, or nil.
func (r *rewriter) whole(n *nodeProto) *nodeProto {
	switch n.op {
	case "MatMul":
		return r.attention(n)
	case "Mul":
		if y := r.rms(n); y != nil {
			return y
		}
	case "Add":
		if y := r.groupNorm(n); y != nil {
			return y
		}
	}
	for _, p := range patterns {
		if p.expr.op != n.op {
			continue
		}
		bound := map[byte]string{}
		if !r.matchNode(p.expr, n, bound) {
			continue
		}
		y := &nodeProto{op: p.name, in: []string{bound['x']}}
		if in, ok := bound['y']; ok {
			y.in = append(y.in, in)
		}
		return y
	}
	return nil
}

// node returns the node of an operation that computes a value, or nil.
func (r *rewriter) node(name, kind string) *nodeProto {
	if n := r.producers[name]; n != nil && n.domain == "" && n.op == kind {
		return n
	}
	return nil
}

// scalar returns the value of a constant of one element; NaN for others.
func (r *rewriter) scalar(name string) float64 {
	t := r.initializers[name]
	if n := r.node(name, "Constant"); t == nil && n != nil {
		if a := n.attr("value"); a != nil {
			t = a.t
		} else if a := n.attr("value_float"); a != nil {
			return float64(a.f)
		}
	}
	if t == nil || t.external != nil {
		return math.NaN()
	}
	shape, err := t.shape()
	if err != nil || op.Shape(shape).Size() != 1 || len(shape) > 1 {
		return math.NaN()
	}
	x := (&constant{proto: t}).floats()
	if len(x) != 1 {
		return math.NaN()
	}
	return x[0]
}

// match reports whether a value is an expression, and binds its operands.
func (r *rewriter) match(x *expression, name string, bound map[byte]string) bool {
	switch {
	case x.operand != 0:
		if have, ok := bound[x.operand]; ok {
			return have == name
		}
		bound[x.operand] = name
		return true
	case x.op == "":
		return float32(r.scalar(name)) == float32(x.number)
	}
	n := r.node(name, x.op)
	return n != nil && r.matchNode(x, n, bound)
}

func (r *rewriter) matchNode(x *expression, n *nodeProto, bound map[byte]string) bool {
	if len(n.in) != len(x.args) || n.op != x.op || slices.Contains(n.in, "") {
		return false
	}
	before := make(map[byte]string, len(bound))
	for k, v := range bound {
		before[k] = v
	}
	all := func(in []string) bool {
		for i, a := range x.args {
			if !r.match(a, in[i], bound) {
				return false
			}
		}
		return true
	}
	if all(n.in) {
		return true
	}
	if n.op != "Mul" && n.op != "Add" && n.op != "Equal" || len(n.in) != 2 {
		return false
	}
	clear(bound)
	for k, v := range before {
		bound[k] = v
	}
	return all([]string{n.in[1], n.in[0]})
}

// rms finds x·(mean(x²)+ε)^-½ times a gain.
func (r *rewriter) rms(n *nodeProto) *nodeProto {
	for i := range n.in {
		if len(n.in) != 2 {
			return nil
		}
		normal, gain := r.node(n.in[i], "Mul"), n.in[1-i]
		if normal == nil || len(normal.in) != 2 {
			continue
		}
		x, scale := normal.in[0], normal.in[1]
		root := r.node(scale, "Reciprocal")
		if root == nil || len(root.in) != 1 {
			continue
		}
		sqrt := r.node(root.in[0], "Sqrt")
		if sqrt == nil || len(sqrt.in) != 1 {
			continue
		}
		sum := r.node(sqrt.in[0], "Add")
		if sum == nil || len(sum.in) != 2 {
			continue
		}
		mean, epsilon := r.node(sum.in[0], "ReduceMean"), r.scalar(sum.in[1])
		if mean == nil || len(mean.in) != 1 || !(epsilon >= 0) {
			continue
		}
		axes, keep := mean.attr("axes"), mean.attr("keepdims")
		if axes == nil || len(axes.ints) != 1 || axes.ints[0] != -1 || keep != nil && keep.i == 0 {
			continue
		}
		if !r.match(parse("Mul(x,x)"), mean.in[0], map[byte]string{'x': x}) {
			continue
		}
		return &nodeProto{op: "RMSNormalization", in: []string{x, gain}, attrs: []*attribute{intAttr("axis", -1), floatAttr("epsilon", epsilon)}}
	}
	return nil
}

// groupNorm finds instance normalization of groups of channels, with a gain and a shift
// of each channel.
func (r *rewriter) groupNorm(n *nodeProto) *nodeProto {
	for i := range n.in {
		if len(n.in) != 2 {
			return nil
		}
		product, shift := r.node(n.in[i], "Mul"), n.in[1-i]
		if product == nil || len(product.in) != 2 {
			continue
		}
		for k := range product.in {
			back, gain := r.node(product.in[k], "Reshape"), product.in[1-k]
			if back == nil || len(back.in) != 2 {
				continue
			}
			norm := r.node(back.in[0], "InstanceNormalization")
			if norm == nil || len(norm.in) != 3 || !r.all(norm.in[1], 1) || !r.all(norm.in[2], 0) {
				continue
			}
			grouped := r.node(norm.in[0], "Reshape")
			if grouped == nil || len(grouped.in) != 2 {
				continue
			}
			y := &nodeProto{op: "GroupNorm", in: []string{grouped.in[0], gain, shift, norm.in[1], back.in[1]}, attrs: []*attribute{floatAttr("epsilon", 1e-5)}}
			if a := norm.attr("epsilon"); a != nil {
				y.attrs = []*attribute{a}
			}
			return y
		}
	}
	return nil
}

// all reports whether a value is a constant vector of one number.
func (r *rewriter) all(name string, x float64) bool {
	t := r.initializers[name]
	if n := r.node(name, "Constant"); t == nil && n != nil && n.attr("value") != nil {
		t = n.attr("value").t
	}
	if t == nil || t.external != nil {
		return false
	}
	if shape, err := t.shape(); err != nil || len(shape) != 1 {
		return false
	}
	all := (&constant{proto: t}).floats()
	return all != nil && !slices.ContainsFunc(all, func(v float64) bool { return v != x })
}

// attention finds softmax(q·k·scale, masked)·v. Whether q, k and v have four axes is known
// when it is recorded.
func (r *rewriter) attention(n *nodeProto) *nodeProto {
	if len(n.in) != 2 || r.own && !strings.HasPrefix(lastSegment(n.name), attentionName) {
		return nil
	}
	weights, mask := n.in[0], ""
	if where := r.node(weights, "Where"); where != nil && len(where.in) == 3 && r.scalar(where.in[2]) == 0 {
		mask, weights = where.in[0], where.in[1]
	}
	softmax := r.node(weights, "Softmax")
	if softmax == nil || len(softmax.in) != 1 || r.uses[weights] > 1 {
		return nil
	}
	if axis := softmax.attr("axis"); axis == nil || axis.i != -1 && axis.i != 3 {
		return nil
	}
	scores := softmax.in[0]
	if where := r.node(scores, "Where"); where != nil && len(where.in) == 3 && r.scalar(where.in[2]) <= hidden/2 {
		if mask != "" && where.in[0] != mask {
			return nil
		}
		mask, scores = where.in[0], where.in[1]
	} else if mask != "" {
		return nil
	}
	scale := 1.0
	if x := r.node(scores, "Mul"); x != nil && len(x.in) == 2 && !math.IsNaN(r.scalar(x.in[1])) {
		scale, scores = r.scalar(x.in[1]), x.in[0]
	} else if x := r.node(scores, "Div"); x != nil && len(x.in) == 2 && !math.IsNaN(r.scalar(x.in[1])) {
		scale, scores = 1/r.scalar(x.in[1]), x.in[0]
	}
	product := r.node(scores, "MatMul")
	if product == nil || len(product.in) != 2 || math.IsInf(scale, 0) {
		return nil
	}
	y := &nodeProto{op: "Attention", in: []string{product.in[0], product.in[1], n.in[1]}, attrs: []*attribute{floatAttr("scale", scale)}}
	if mask == "" {
		return y
	}
	// A mask and a constant mask, such as that of causal attention.
	if and := r.node(mask, "And"); and != nil && len(and.in) == 2 {
		y.in = append(y.in, and.in...)
	} else {
		y.in = append(y.in, mask)
	}
	return y
}
