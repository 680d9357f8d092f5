package onnx

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/golden")

// text prints a file: inputs, outputs, weights without their elements, and nodes.
func (p *modelProto) text() string {
	var s strings.Builder
	fmt.Fprintf(&s, "ir %d, opset %d, %s, graph %s\n", p.irVersion, p.opsets[0].version, p.producer, p.graph.name)
	for _, m := range p.metadata {
		fmt.Fprintf(&s, "metadata %s: %s\n", m.key, strings.ReplaceAll(m.value, "\n", " "))
	}
	info := func(what string, all []*valueInfo) {
		for _, v := range all {
			fmt.Fprintf(&s, "%s %s %s[", what, v.name, typeName(v.typ))
			for i, d := range v.dims {
				if i > 0 {
					s.WriteByte(' ')
				}
				if d.name != "" {
					s.WriteString(d.name)
				} else {
					fmt.Fprint(&s, d.size)
				}
			}
			s.WriteString("]\n")
		}
	}
	info("input", p.graph.inputs)
	info("output", p.graph.outputs)
	for _, t := range p.graph.initializers {
		fmt.Fprintf(&s, "weight %s %s%v\n", t.name, typeName(t.typ), t.dims)
	}
	for _, n := range p.graph.nodes {
		fmt.Fprintf(&s, "%s = %s(%s)", strings.Join(n.out, " "), n.op, strings.Join(n.in, ", "))
		for _, a := range n.attrs {
			fmt.Fprintf(&s, " %s=%s", a.name, a.value())
		}
		if n.name != n.out[0] {
			fmt.Fprintf(&s, "  # %s", n.name)
		}
		s.WriteByte('\n')
	}
	return s.String()
}

func (a *attribute) value() string {
	switch a.kind {
	case kindInt:
		return fmt.Sprint(a.i)
	case kindFloat:
		return fmt.Sprint(a.f)
	case kindString:
		return a.s
	case kindStrings:
		return fmt.Sprint(a.strings)
	case kindInts:
		return fmt.Sprint(a.ints)
	case kindTensor:
		c := &constant{proto: a.t}
		if x := c.floats(); len(x) <= 16 {
			return fmt.Sprintf("%s%v%v", typeName(a.t.typ), a.t.dims, x)
		}
		return fmt.Sprintf("%s%v", typeName(a.t.typ), a.t.dims)
	}
	return "?"
}

// TestGolden compares the nodes of exported models with testdata/golden, which -update
// rewrites.
func TestGolden(t *testing.T) {
	for _, e := range examples() {
		if e.name == "masked" { // hundreds of nodes, step by step
			continue
		}
		var b bytes.Buffer
		if err := Write(&b, e.model(t, "float32"), ExportOptions{}); err != nil {
			t.Fatal(err)
		}
		p, err := decodeModel(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "golden", strings.ReplaceAll(e.name, " ", "_")+".txt")
		got := p.text()
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
		}
	}
}
