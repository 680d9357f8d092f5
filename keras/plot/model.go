package plot

import (
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// node is a box of a model: an input or a call of a layer.
type node struct {
	title, detail string
	from          []int // nodes
	depth, column int
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
	columns := map[int]int{}
	for i := range nodes {
		nodes[i].column = columns[nodes[i].depth]
		columns[nodes[i].depth]++
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

// boxes draws the nodes, those of a depth side by side.
func boxes(path string, nodes []node) error {
	const high, gapX, gapY, pad = 1.1 * vg.Centimeter, 0.6 * vg.Centimeter, 0.8 * vg.Centimeter, 0.3 * vg.Centimeter
	title, detail := text(9), text(8)
	wide := 2 * vg.Centimeter
	depths, count := 0, map[int]int{}
	for _, n := range nodes {
		wide = max(wide, title.Width(n.title)+2*pad, detail.Width(n.detail)+2*pad)
		depths = max(depths, n.depth+1)
		count[n.depth]++
	}
	columns := 1
	for _, c := range count {
		columns = max(columns, c)
	}
	w := vg.Length(columns)*(wide+gapX) + gapX
	h := vg.Length(depths)*(high+gapY) + gapY
	centre := func(n node) vg.Point {
		return vg.Point{
			X: w/2 + (vg.Length(n.column)-vg.Length(count[n.depth]-1)/2)*(wide+gapX),
			Y: h - gapY - high/2 - vg.Length(n.depth)*(high+gapY),
		}
	}
	for _, s := range []*draw.TextStyle{&title, &detail} {
		s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
	}
	return save(path, w, h, func(c draw.Canvas) {
		line := draw.LineStyle{Color: grey, Width: vg.Points(1)}
		for _, n := range nodes { // boxes hide the ends of lines that pass them
			for _, f := range n.from {
				from, to := centre(nodes[f]), centre(n)
				from.Y, to.Y = from.Y-high/2, to.Y+high/2
				c.StrokeLines(line, []vg.Point{from, to})
				const tip = 1.5 * vg.Millimeter
				c.FillPolygon(grey, []vg.Point{to, {X: to.X - tip/2, Y: to.Y + tip}, {X: to.X + tip/2, Y: to.Y + tip}})
			}
		}
		for _, n := range nodes {
			p := centre(n)
			box := []vg.Point{{X: p.X - wide/2, Y: p.Y - high/2}, {X: p.X + wide/2, Y: p.Y - high/2}, {X: p.X + wide/2, Y: p.Y + high/2}, {X: p.X - wide/2, Y: p.Y + high/2}}
			c.FillPolygon(color.RGBA{235, 243, 250, 255}, box)
			c.StrokeLines(draw.LineStyle{Color: blue, Width: vg.Points(1)}, append(box, box[0]))
			c.FillText(title, vg.Point{X: p.X, Y: p.Y + high/5}, n.title)
			c.FillText(detail, vg.Point{X: p.X, Y: p.Y - high/4}, n.detail)
		}
	})
}
