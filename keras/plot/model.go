package plot

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// node is a box of a model: an input or a call of a layer.
type node struct {
	title, detail string
	from          []int // nodes
	depth         int
}

// Model draws how the layers of a built model are connected (Keras:
// utils.plot_model), from the inputs down; with suffix .dot it writes what
// Graphviz draws.
func Model(path string, m *keras.Model) error {
	nodes, err := wiring(m)
	if err != nil {
		return fmt.Errorf("plot: %s: %w", path, err)
	}
	if strings.EqualFold(filepath.Ext(path), ".dot") {
		return write(path, func(w io.Writer) error { return dot(w, m.Name(), nodes) })
	}
	return boxes(path, nodes)
}

// wiring lists the boxes; each comes after those that it is fed from.
func wiring(m *keras.Model) ([]node, error) {
	g, err := m.Graph()
	if err != nil {
		return nil, err
	}
	var nodes []node
	for i, t := range g.Inputs {
		nodes = append(nodes, node{title: fmt.Sprintf("input %d", i), detail: fmt.Sprint(t)})
	}
	inputs := len(nodes)
	for _, c := range g.Calls {
		n := node{title: layers.BaseOf(c.Layer).LayerName() + ": " + layers.Class(c.Layer)}
		var out []string
		for _, t := range c.Out {
			out = append(out, fmt.Sprint(t))
		}
		n.detail = strings.Join(out, ", ")
		for _, r := range c.In {
			at := r.Part
			if r.Call >= 0 {
				at = inputs + r.Call
			}
			n.from = append(n.from, at)
			n.depth = max(n.depth, nodes[at].depth+1)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func dot(w io.Writer, name string, nodes []node) error {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n\tnode [shape=box, fontname=\"Helvetica\"];\n", quoted(name))
	for i, n := range nodes {
		fmt.Fprintf(&b, "\tn%d [label=%s];\n", i, quoted(n.title+"\n"+n.detail))
	}
	for i, n := range nodes {
		for _, f := range n.from {
			fmt.Fprintf(&b, "\tn%d -> n%d;\n", f, i)
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// quoted is a string of the DOT language, in which only quotes, backslashes
// and ends of lines are special.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
