package keras

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/console"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers/kerasstate"
)

// Summary writes a table of the model's layers to w (Keras: Model.summary):
// name and class, output shape, number of parameters, compute and variable
// type. If the model is not a plain chain, it also shows to what each layer is
// connected. What a Sequential model that is not built does not know yet is
// "?". The table is at most as wide as the terminal, or 100 columns without
// one; longer cells are wrapped. With the option ExpandNested the layers of models that
// are layers have rows, too.
func (m *Model) Summary(w io.Writer, options ...SummaryOption) error {
	_, err := io.WriteString(w, m.summary(console.Of(w).Width(), slices.Contains(options, ExpandNested)))
	return err
}

// SummaryOption changes what Summary writes.
type SummaryOption int

// ExpandNested lists the layers of nested models below them (Keras: expand_nested=True).
const ExpandNested SummaryOption = 1

// expanded appends the rows of the layers in l, if it is a model, to rows.
func expanded(rows [][]string, l layers.Layer, chain bool, depth int) [][]string {
	inner, ok := l.(*modelLayer)
	if !ok {
		return rows
	}
	for _, n := range inner.model.nodes {
		row := inner.model.row(n, chain)
		row[0] = strings.Repeat("   ", depth) + "└ " + row[0]
		rows = expanded(append(rows, row), n.layer, chain, depth+1)
	}
	return rows
}

// summary is the text of Summary with a table of at most so many columns.
func (m *Model) summary(columns int, nested bool) string {
	chain := m.chain()
	header := []string{"Layer (type)", "Output Shape", "Param #", "Compute", "Variable"}
	if !chain {
		header = append(header, "Connected to")
	}
	var rows [][]string
	if m.built {
		for _, t := range m.in.Unpack() {
			if !chain {
				rows = append(rows, []string{m.inputName(t) + " (Input)", shapeText(t.Shape()), "0", t.DType().String(), "-", "-"})
			}
		}
		for _, n := range m.nodes {
			rows = append(rows, m.row(n, chain))
			if nested {
				rows = expanded(rows, n.layer, chain, 0)
			}
		}
	} else {
		names := m.stackNames()
		for i, l := range m.stack {
			rows = append(rows, []string{names[i] + " (" + classOf(l) + ")", "?", "0 (unbuilt)", "?", "?"})
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Model: %q\n", m.name)
	table(&b, header, rows, columns)
	m.footer(&b)
	return b.String()
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

// stackNames are the names that the layers of a Sequential model will have when
// it is built.
func (m *Model) stackNames() []string {
	numbers := newNames()
	given := map[layers.Layer]string{}
	all := make([]string, len(m.stack))
	for i, l := range m.stack {
		name, again := given[l]
		if !again {
			name = cmp.Or(layers.BaseOf(l).LayerName(), l.Config().Name)
			if name == "" {
				name = numbers.next(snakeClass(l))
			}
			given[l], numbers.layers[name] = name, l
		}
		all[i] = name
	}
	return all
}

// classOf returns the class of a layer; for a model, the model's class.
func classOf(l layers.Layer) string {
	n, ok := l.(*modelLayer)
	named, isNamed := l.(interface{ ClassName() string })
	switch {
	case isNamed:
		return named.ClassName()
	case !ok:
		return layers.Class(l)
	case n.model.stack != nil:
		return "Sequential"
	}
	return "Functional"
}

// inputName is the name of an input.
func (m *Model) inputName(t *Tensor) string {
	return m.InputNames()[slices.Index(m.in.Unpack(), t)]
}

func (m *Model) row(n *node, chain bool) []string {
	b := layers.BaseOf(n.layer)
	params := 0
	for _, w := range b.Weights() {
		params += w.Shape().Size()
	}
	var shapes []string
	for _, t := range n.out {
		shapes = append(shapes, shapeText(t.Shape()))
	}
	compute, variable := layerTypes(n.layer)
	row := []string{b.LayerName() + " (" + classOf(n.layer) + ")", strings.Join(shapes, ", "), thousands(params), compute, variable}
	if !chain {
		var from []string
		for _, t := range n.in.Unpack() {
			switch o, ok := tensor.OriginOf(t).(*origin); {
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

// layerTypes returns the types that a layer computes and stores in; for a model, those
// of the layers inside, as it computes nothing itself.
func layerTypes(l layers.Layer) (compute, variable string) {
	var in, of []string
	add := func(all []string, d DType) []string {
		if s := d.String(); !slices.Contains(all, s) {
			return append(all, s)
		}
		return all
	}
	var visit func(l layers.Layer)
	visit = func(l layers.Layer) {
		if n, ok := l.(*modelLayer); ok {
			for _, inner := range n.model.layers {
				visit(inner)
			}
			return
		}
		p := layers.BaseOf(l).Policy()
		if in = add(in, p.Compute); p.HasInt8() {
			of = add(of, dtype.Int8)
		}
		of = add(of, p.Variable)
	}
	visit(l)
	return strings.Join(in, ", "), strings.Join(of, ", ")
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

// table draws Keras's box, of at most so many columns: a heavy header over a
// light body.
func table(b *strings.Builder, header []string, rows [][]string, columns int) {
	width := columnWidths(append([][]string{header}, rows...), columns)
	rule := func(left, fill, cross, right string) {
		for _, w := range width {
			b.WriteString(left)
			b.WriteString(strings.Repeat(fill, w+2))
			left = cross
		}
		b.WriteString(right + "\n")
	}
	line := func(bar string, cells []string) {
		wrapped := make([][]string, len(cells))
		height := 1
		for i, c := range cells {
			wrapped[i] = wrap(c, width[i])
			height = max(height, len(wrapped[i]))
		}
		for k := range height {
			for i, w := range width {
				cell := ""
				if k < len(wrapped[i]) {
					cell = wrapped[i][k]
				}
				pad := strings.Repeat(" ", w-uniseg.StringWidth(cell))
				if header[i] == "Param #" {
					fmt.Fprintf(b, "%s %s%s ", bar, pad, cell)
				} else {
					fmt.Fprintf(b, "%s %s%s ", bar, cell, pad)
				}
			}
			b.WriteString(bar + "\n")
		}
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

// columnWidths returns the widths of the widest cells if the table fits into so many
// columns with its rules. Otherwise it narrows the widest columns: first without
// breaking words, then breaking them only at underscores, then down to 6.
func columnWidths(rows [][]string, columns int) []int {
	n := len(rows[0])
	width, total := make([]int, n), 3*n+1
	least := [3][]int{make([]int, n), make([]int, n), slices.Repeat([]int{6}, n)}
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], uniseg.StringWidth(c))
			for _, word := range strings.Fields(c) {
				least[0][i] = max(least[0][i], uniseg.StringWidth(word))
				for _, piece := range strings.SplitAfter(word, "_") {
					least[1][i] = max(least[1][i], uniseg.StringWidth(piece))
				}
			}
		}
	}
	for _, w := range width {
		total += w
	}
	for _, limit := range least {
		for total > columns {
			widest := -1
			for i, w := range width {
				if w > limit[i] && (widest < 0 || w > width[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			width[widest]--
			total--
		}
	}
	return width
}

// wrap cuts a text into lines of a width: at spaces, else behind underscores,
// else anywhere. All are indented as the text is, if that leaves half of the width.
func wrap(text string, width int) []string {
	words := strings.TrimLeft(text, " ")
	if indent := len(text) - len(words); 0 < indent && indent <= width/2 {
		lines := wrap(words, width-indent)
		for i := range lines {
			lines[i] = text[:indent] + lines[i]
		}
		return lines
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" {
			if with := line + " " + word; uniseg.StringWidth(with) <= width {
				line = with
				continue
			}
			lines = append(lines, line)
		}
		for uniseg.StringWidth(word) > width {
			fits := cut(word, width)
			if at := strings.LastIndexByte(fits, '_'); at > 0 {
				fits = fits[:at+1]
			}
			lines, word = append(lines, fits), word[len(fits):]
		}
		line = word
	}
	return append(lines, line)
}

// cut returns the longest beginning of a text, of at least one character, that
// is no wider than width.
func cut(text string, width int) string {
	rest, state, at := text, -1, 0
	for w := 0; rest != ""; {
		var cluster string
		var n int
		cluster, rest, n, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if w += n; w > width && at > 0 {
			break
		}
		at += len(cluster)
	}
	return text[:at]
}

// footer sums the parameters and describes what the model does for precision on its
// own.
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
		if ofKeras, ok := kerasstate.Variables(m.training.optimizer); ok {
			vs = ofKeras // without counters for StepResult
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

// precisionNotes describes where the model computes or stores in wider types than its
// layers' policies.
func (m *Model) precisionNotes() []string {
	if !m.built {
		return nil
	}
	var notes []string
	for i, t := range m.out.Unpack() {
		if !t.DType().Is16() || m.keepDType {
			continue
		}
		name := m.outputNames()[i]
		notes = append(notes, fmt.Sprintf("Output %s: %v is returned as float32; a softmax or sigmoid at its end is computed in float32, and a probability loss on it from the logits", name, t.DType()))
	}
	if m.training != nil && m.training.scaler != nil {
		notes = append(notes, "Loss scaling: on, because a layer computes in float16")
		for _, g := range m.training.scaler.Groups {
			notes = append(notes, fmt.Sprintf("Layers %s have a loss scale of their own", g.Layers))
		}
	}
	return append(notes, m.float8Notes()...)
}

// float8Notes says which formats mixed_float8_adaptive has chosen.
func (m *Model) float8Notes() []string {
	count := map[layers.Float8Format]int{}
	var wide []string
	var visit func(ls []layers.Layer)
	visit = func(ls []layers.Layer) {
		for _, l := range ls {
			if inner := ModelOf(l); inner != nil {
				visit(inner.Layers())
				continue
			}
			b := layers.BaseOf(l)
			visit(b.Sublayers())
			if !b.Policy().Adaptive {
				continue
			}
			formats, ok, err := layers.Float8Formats(l)
			if err != nil || !ok { // while it trains, or a layer without products
				continue
			}
			for i, f := range formats {
				if count[f]++; f == layers.Wide16 {
					wide = append(wide, b.Path()+" "+[]string{"inputs", "kernel", "gradients"}[i])
				}
			}
		}
	}
	visit(m.Layers())
	if len(count) == 0 {
		return nil
	}
	note := fmt.Sprintf("Formats of 8-bit products: %d tensors in E4M3, %d in E5M2, %d in bfloat16", count[layers.E4M3], count[layers.E5M2], count[layers.Wide16])
	if len(wide) > 0 {
		note += ": " + strings.Join(wide, ", ")
	}
	return []string{note}
}
