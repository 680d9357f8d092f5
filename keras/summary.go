package keras

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// Summary writes a table of the model's layers to w (Keras: Model.summary):
// name and class, output shape, parameters, and the types each computes and
// stores in; for models that are not a plain chain, what each is connected to.
// A Sequential model that is not built yet shows "?" for what is not known.
func (m *Model) Summary(w io.Writer) error {
	chain := m.chain()
	header := []string{"Layer (type)", "Output Shape", "Param #", "Compute", "Variable"}
	if !chain {
		header = append(header, "Connected to")
	}
	var rows [][]string
	if m.built {
		for _, t := range m.in.Parts() {
			if !chain {
				rows = append(rows, []string{m.inputName(t) + " (Input)", shapeText(t.Shape()), "0", t.DType().String(), "-", "-"})
			}
		}
		for _, n := range m.nodes {
			rows = append(rows, m.row(n, chain))
		}
	} else {
		for _, l := range m.stack {
			rows = append(rows, []string{nameOf(l) + " (" + layers.Class(l) + ")", "?", "0 (unbuilt)", "?", "?"})
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Model: %q\n", m.name)
	table(&b, header, rows)
	m.footer(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// chain reports whether every layer takes the output of the one before.
func (m *Model) chain() bool {
	if !m.built {
		return true
	}
	if m.in.IsTuple() || m.out.IsTuple() {
		return false
	}
	last := m.in
	for _, n := range m.nodes {
		if n.in != last || n.tuple {
			return false
		}
		last = n.out[0]
	}
	return true
}

func nameOf(l layers.Layer) string {
	if n := layers.BaseOf(l).LayerName(); n != "" {
		return n
	}
	if n := l.Config().Name; n != "" {
		return n
	}
	return layers.SnakeClass(l)
}

func (m *Model) inputName(t *Tensor) string {
	i := slices.Index(m.in.Parts(), t)
	if i == 0 {
		return "input_layer"
	}
	return fmt.Sprintf("input_layer_%d", i)
}

func (m *Model) row(n *node, chain bool) []string {
	b := layers.BaseOf(n.layer)
	params := 0
	for _, w := range b.Weights() {
		params += w.Shape().Size()
	}
	class := layers.Class(n.layer)
	if l, ok := n.layer.(*modelLayer); ok {
		class = "Functional"
		if l.model.stack != nil {
			class = "Sequential"
		}
	}
	var shapes []string
	for _, t := range n.out {
		shapes = append(shapes, shapeText(t.Shape()))
	}
	p := b.Policy()
	row := []string{b.LayerName() + " (" + class + ")", strings.Join(shapes, ", "), thousands(params), p.Compute.String(), p.Variable.String()}
	if !chain {
		var from []string
		for _, t := range n.in.Parts() {
			switch o, ok := t.Origin().(*origin); {
			case !ok:
				from = append(from, "constant")
			case o.node == nil:
				from = append(from, m.inputName(t))
			default:
				from = append(from, layers.BaseOf(o.node.layer).LayerName())
			}
		}
		row = append(row, strings.Join(from, ", "))
	}
	return row
}

// shapeText prints a shape as Keras does: (None, 784).
func shapeText(s Shape) string {
	parts := make([]string, len(s))
	for i, d := range s {
		parts[i] = fmt.Sprint(d)
		if d == tensor.Unknown {
			parts[i] = "None"
		}
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// table draws Keras's box: a heavy header over a light body.
func table(b *strings.Builder, header []string, rows [][]string) {
	width := make([]int, len(header))
	for _, r := range append([][]string{header}, rows...) {
		for i, c := range r {
			width[i] = max(width[i], uniseg.StringWidth(c))
		}
	}
	rule := func(left, fill, cross, right string) {
		for _, w := range width {
			b.WriteString(left)
			b.WriteString(strings.Repeat(fill, w+2))
			left = cross
		}
		b.WriteString(right + "\n")
	}
	line := func(bar string, cells []string) {
		for i, w := range width {
			pad := strings.Repeat(" ", w-uniseg.StringWidth(cells[i]))
			if header[i] == "Param #" {
				fmt.Fprintf(b, "%s %s%s ", bar, pad, cells[i])
			} else {
				fmt.Fprintf(b, "%s %s%s ", bar, cells[i], pad)
			}
		}
		b.WriteString(bar + "\n")
	}
	rule("┏", "━", "┳", "┓")
	line("┃", header)
	if len(rows) == 0 {
		rule("└", "─", "┴", "┘")
		return
	}
	rule("┡", "━", "╇", "┩")
	for i, r := range rows {
		if i > 0 {
			rule("├", "─", "┼", "┤")
		}
		line("│", r)
	}
	rule("└", "─", "┴", "┘")
}

// footer adds up the parameters and says what the model does on its own for
// precision.
func (m *Model) footer(b *strings.Builder) {
	type sum struct{ n, bytes int }
	add := func(s *sum, t op.Type) {
		s.n += t.Shape.Size()
		s.bytes += t.Bytes()
	}
	var trainable, frozen, slots sum
	for _, w := range m.Weights() {
		if w.Trainable() {
			add(&trainable, w.Type())
		} else {
			add(&frozen, w.Type())
		}
	}
	if m.training != nil {
		vs := m.training.optimizer.Variables()
		if k, ok := m.training.optimizer.(interface{ KerasVariables() []*Variable }); ok {
			vs = k.KerasVariables() // without counters for StepResult
		}
		for _, v := range vs {
			add(&slots, v.Type())
		}
	}
	print := func(name string, s sum) {
		fmt.Fprintf(b, " %s params: %s (%s)\n", name, thousands(s.n), bytesText(s.bytes))
	}
	print("Total", sum{trainable.n + frozen.n + slots.n, trainable.bytes + frozen.bytes + slots.bytes})
	print("Trainable", trainable)
	print("Non-trainable", frozen)
	if slots.n > 0 {
		print("Optimizer", slots)
	}
	for _, note := range m.precisionNotes() {
		fmt.Fprintf(b, " %s\n", note)
	}
}

func bytesText(n int) string {
	f, units := float64(n), []string{"B", "KB", "MB", "GB"}
	for f >= 1024 && len(units) > 1 {
		f, units = f/1024, units[1:]
	}
	return fmt.Sprintf("%.2f %s", f, units[0])
}

// precisionNotes says where the model computes or stores wider than its
// layers' policies, so that nobody has to guess.
func (m *Model) precisionNotes() []string {
	if !m.built {
		return nil
	}
	var notes []string
	for i, t := range m.out.Parts() {
		if !t.DType().Is16() || m.keepDType {
			continue
		}
		name := m.outputNames()[i]
		notes = append(notes, fmt.Sprintf("Output %s: %v is returned as float32; a softmax or sigmoid at its end is computed in float32, and a probability loss on it from the logits", name, t.DType()))
	}
	if m.training != nil && m.training.scaler != nil {
		notes = append(notes, "Loss scaling: on, because a layer computes in float16")
	}
	return notes
}
