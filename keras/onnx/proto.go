package onnx

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of onnx.proto (IR version 8) that models need, as structs. The numbers of
// the fields never change, so they are read and written by hand: generated code would
// register its types, and two copies of it in one program panic.

// modelProto is a ModelProto.
type modelProto struct {
	irVersion         int64
	producer, version string
	doc               string
	graph             *graphProto
	opsets            []opset
	metadata          []property
}

// opset is an OperatorSetIdProto.
type opset struct {
	domain  string
	version int64
}

// property is a StringStringEntryProto.
type property struct{ key, value string }

// graphProto is a GraphProto.
type graphProto struct {
	name            string
	nodes           []*nodeProto
	initializers    []*tensorProto
	inputs, outputs []*valueInfo
	sparse          int // number of sparse initializers
}

// nodeProto is a NodeProto. An empty name in in is an optional input that is absent.
type nodeProto struct {
	name, op, domain string
	in, out          []string
	attrs            []*attribute
}

// Kinds of attributes: AttributeProto.AttributeType.
const (
	kindFloat   = 1
	kindInt     = 2
	kindString  = 3
	kindTensor  = 4
	kindGraph   = 5
	kindFloats  = 6
	kindInts    = 7
	kindStrings = 8
)

// attribute is an AttributeProto.
type attribute struct {
	name    string
	kind    int64
	i       int64
	f       float32
	s       string
	t       *tensorProto
	ints    []int64
	floats  []float32
	strings []string
}

// tensorProto is a TensorProto. Elements are in raw, little-endian; decodeTensor puts
// those of typed fields there.
type tensorProto struct {
	name     string
	typ      int64
	dims     []int64
	raw      []byte
	strings  []string
	external *location // the elements lie in another file
}

// location says where in a file beside the model the elements of a tensor lie.
type location struct {
	file           string
	offset, length int64
}

// valueInfo is a ValueInfoProto of a tensor.
type valueInfo struct {
	name   string
	typ    int64
	dims   []dim
	noRank bool   // no shape is given
	other  string // what it is if it is no tensor
}

// dim is an axis: a size, or a name where it is free.
type dim struct {
	size int64
	name string
}

// message is a message under construction; its methods append a field.
type message []byte

func (m *message) text(n protowire.Number, s string) {
	if s != "" {
		*m = protowire.AppendString(protowire.AppendTag(*m, n, protowire.BytesType), s)
	}
}

func (m *message) blob(n protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, n, protowire.BytesType), b)
}

func (m *message) num(n protowire.Number, v int64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, n, protowire.VarintType), uint64(v))
}

func (m *message) float(n protowire.Number, v float32) {
	*m = protowire.AppendFixed32(protowire.AppendTag(*m, n, protowire.Fixed32Type), math.Float32bits(v))
}

// header encodes t without its elements, for elements that follow or lie elsewhere.
func (t *tensorProto) header() message {
	var m message
	for _, d := range t.dims {
		m.num(1, d)
	}
	m.num(2, t.typ)
	m.text(8, t.name)
	if t.external != nil {
		for _, p := range []property{
			{"location", t.external.file}, {"offset", fmt.Sprint(t.external.offset)}, {"length", fmt.Sprint(t.external.length)},
		} {
			m.blob(13, p.encode())
		}
		m.num(14, 1)
	}
	return m
}

func (t *tensorProto) encode() []byte {
	m := t.header()
	if t.external == nil {
		m.blob(9, t.raw)
	}
	return m
}

func (p property) encode() []byte {
	var m message
	m.text(1, p.key)
	m.text(2, p.value)
	return m
}

func (v *valueInfo) encode() []byte {
	var shape, tensor, t, m message
	for _, d := range v.dims {
		var one message
		if d.name != "" {
			one.text(2, d.name)
		} else {
			one.num(1, d.size)
		}
		shape.blob(1, one)
	}
	tensor.num(1, v.typ)
	if !v.noRank {
		tensor.blob(2, shape)
	}
	t.blob(1, tensor)
	m.text(1, v.name)
	m.blob(2, t)
	return m
}

func (n *nodeProto) encode() []byte {
	var m message
	for _, s := range n.in {
		m.blob(1, []byte(s)) // "" is an input that is absent
	}
	for _, s := range n.out {
		m.blob(2, []byte(s))
	}
	m.text(3, n.name)
	m.text(4, n.op)
	m.text(7, n.domain)
	for _, a := range n.attrs {
		m.blob(5, a.encode())
	}
	return m
}

func (a *attribute) encode() []byte {
	var m message
	m.text(1, a.name)
	switch a.kind {
	case kindFloat:
		m.float(2, a.f)
	case kindInt:
		m.num(3, a.i)
	case kindString:
		m.blob(4, []byte(a.s))
	case kindTensor:
		m.blob(5, a.t.encode())
	case kindFloats:
		for _, f := range a.floats {
			m.float(7, f)
		}
	case kindInts:
		for _, i := range a.ints {
			m.num(8, i)
		}
	case kindStrings:
		for _, s := range a.strings {
			m.blob(9, []byte(s))
		}
	}
	m.num(20, a.kind)
	return m
}

// encodeAround encodes what comes before and after the initializers of a graph.
func (g *graphProto) encodeAround() (before, after message) {
	for _, n := range g.nodes {
		before.blob(1, n.encode())
	}
	before.text(2, g.name)
	for _, v := range g.inputs {
		after.blob(11, v.encode())
	}
	for _, v := range g.outputs {
		after.blob(12, v.encode())
	}
	return before, after
}

// encodeAround encodes what comes before and after the graph of a model.
func (m *modelProto) encodeAround() (before, after message) {
	before.num(1, m.irVersion)
	before.text(2, m.producer)
	before.text(3, m.version)
	before.text(6, m.doc)
	for _, o := range m.opsets {
		var one message
		one.text(1, o.domain)
		one.num(2, o.version)
		after.blob(8, one)
	}
	for _, p := range m.metadata {
		after.blob(14, p.encode())
	}
	return before, after
}

// intAttr, floatAttr, stringAttr and intsAttr make attributes.
func intAttr(name string, v int) *attribute {
	return &attribute{name: name, kind: kindInt, i: int64(v)}
}

func floatAttr(name string, v float64) *attribute {
	return &attribute{name: name, kind: kindFloat, f: float32(v)}
}

func stringAttr(name, v string) *attribute {
	return &attribute{name: name, kind: kindString, s: v}
}

func intsAttr(name string, v []int) *attribute {
	a := &attribute{name: name, kind: kindInts}
	for _, i := range v {
		a.ints = append(a.ints, int64(i))
	}
	return a
}
