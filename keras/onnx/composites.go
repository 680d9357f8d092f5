package onnx

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// composites are operations that ONNX has no node for, as expressions of nodes. x and y
// are the operands; a number is a constant of their type. The export writes them, and
// the import finds them again, so that an exported model computes the same bits when it
// is imported.
//
// Near 0, ln(1+x) and eˣ-1 lose their digits; these forms, by Kahan, keep them.
var composites = map[op.Code]string{
	op.Square:    "Mul(x,x)",
	op.Rsqrt:     "Reciprocal(Sqrt(x))",
	op.Log1p:     "Where(Less(Abs(x),1),Where(Equal(Add(x,1),1),x,Mul(Log(Add(x,1)),Div(x,Sub(Add(x,1),1)))),Log(Add(x,1)))",
	op.Expm1:     "Where(Less(Abs(x),1),Where(Equal(Exp(x),1),x,Mul(Sub(Exp(x),1),Div(x,Log(Exp(x))))),Sub(Exp(x),1))",
	op.NormalCDF: "Mul(Add(Erf(Mul(x,0.7071067811865476)),1),0.5)",
	op.NormalPDF: "Mul(Exp(Mul(Mul(x,x),-0.5)),0.3989422804014327)",
	op.Mod:       "Sub(x,Mul(y,Floor(Div(x,y))))",
	op.NotEqual:  "Not(Equal(x,y))",
	op.IsFinite:  "Not(Or(IsNaN(x),IsInf(x)))",
}

// expression is a parsed expression: an operand, a number or a node.
type expression struct {
	operand byte // 'x' or 'y', 0 for others
	number  float64
	op      string // of a node, "" for others
	args    []*expression
}

// parse parses an expression of composites. It panics if it is none: the table is wrong.
func parse(text string) *expression {
	x, rest := parseAt(text)
	if rest != "" {
		panic(fmt.Sprintf("onnx: %q is left of expression %q", rest, text))
	}
	return x
}

func parseAt(text string) (*expression, string) {
	n := strings.IndexAny(text, "(,)")
	if n < 0 {
		n = len(text)
	}
	word, rest := text[:n], text[n:]
	x := &expression{}
	switch {
	case strings.HasPrefix(rest, "("):
		x.op = word
		for rest[0] != ')' {
			var arg *expression
			arg, rest = parseAt(rest[1:])
			x.args = append(x.args, arg)
		}
		return x, rest[1:]
	case word == "x" || word == "y" || word == "z":
		x.operand = word[0]
	default:
		var err error
		if x.number, err = strconv.ParseFloat(word, 64); err != nil {
			panic("onnx: expression: " + err.Error())
		}
	}
	return x, rest
}

// composite writes the nodes of an expression on operands of type from, in float32 where
// that has 16 bits, as Mezzo computes. The result has type to.
func (e *exporter) composite(text string, from, to dtype.DType, in []string) string {
	wide := from
	if from.Is16() {
		wide = dtype.Float32
	}
	operands := make([]string, len(in))
	for i, x := range in {
		operands[i] = e.castFrom(x, from, wide)
	}
	out := e.write(parse(text), wide, operands, map[string]string{})
	if to == from {
		out = e.castFrom(out, wide, to)
	}
	return out
}

// write writes an expression; equal parts are written once.
func (e *exporter) write(x *expression, d dtype.DType, operands []string, made map[string]string) string {
	switch {
	case x.operand != 0:
		return operands[x.operand-'x']
	case x.op == "":
		return e.number(d, x.number)
	}
	in := make([]string, len(x.args))
	for i, a := range x.args {
		in[i] = e.write(a, d, operands, made)
	}
	key := x.op + strings.Join(in, "\x00")
	if name, ok := made[key]; ok {
		return name
	}
	made[key] = e.emit(x.op, in)
	return made[key]
}
