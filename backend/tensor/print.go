package tensor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// NumPy's limits: a tensor of more elements is printed with this many at each
// end of an axis.
const (
	printedElements = 1000
	printedEdge     = 3
)

// String returns the type of t and its elements in rows and columns, as NumPy
// prints them. Of more than 1000 elements it prints the first and last three
// along each axis. Outside a Function it computes t if that is not done yet; a
// tensor of a recording or of a model under construction has a type only.
func (t *Tensor) String() string {
	switch {
	case t.err != nil:
		return "broken tensor: " + t.err.Error()
	case t.parts != nil:
		s := make([]string, len(t.parts))
		sep := ", "
		for i, p := range t.parts {
			if s[i] = p.String(); strings.Contains(s[i], "\n") {
				sep = ",\n"
			}
		}
		return "(" + strings.Join(s, sep) + ")"
	case t.symbolic || t.data == nil && (IsRecorded(t) || Recording() != 0):
		return t.typ.String()
	}
	data, err := t.Float64s()
	if err != nil {
		return t.typ.String() + " " + err.Error()
	}
	shape := t.typ.Shape
	p := printer{shape: shape, data: data, all: len(data) <= printedElements}
	p.choose(t.typ.DType, shape, 0)
	sep := " "
	if len(shape) > 1 {
		sep = "\n"
	}
	var b strings.Builder
	b.WriteString(t.typ.String() + sep)
	p.next = 0
	p.write(&b, shape, 1)
	return b.String()
}

// printer writes the elements of a tensor, all in columns of one width.
type printer struct {
	shape Shape
	data  []float64
	all   bool
	texts []string // of the elements that are printed, in order
	next  int
	width int
}

// shown calls f for the indices of an axis of n elements that are printed; gap
// is called where some are left out.
func (p *printer) shown(n int, f func(i int), gap func()) {
	for i := 0; i < n; i++ {
		if !p.all && n > 2*printedEdge && i == printedEdge {
			gap()
			i = n - printedEdge
		}
		f(i)
	}
}

// choose formats the elements from data[at] on, of the axes shape.
func (p *printer) choose(d dtype.DType, shape Shape, at int) {
	if len(shape) == 0 {
		s := format(d, p.data[at])
		p.texts, p.width = append(p.texts, s), max(p.width, len(s))
		return
	}
	inner := shape[1:].Size()
	p.shown(shape[0], func(i int) { p.choose(d, shape[1:], at+i*inner) }, func() {})
}

// write writes the next elements, of the axes shape, in brackets that begin in
// column indent.
func (p *printer) write(b *strings.Builder, shape Shape, indent int) {
	if len(shape) == 0 {
		width := p.width
		if len(p.shape) == 0 {
			width = 0
		}
		fmt.Fprintf(b, "%*s", width, p.texts[p.next])
		p.next++
		return
	}
	sep := " "
	if len(shape) > 1 {
		sep = strings.Repeat("\n", len(shape)-1) + strings.Repeat(" ", indent)
	}
	b.WriteByte('[')
	first := true
	separate := func() {
		if !first {
			b.WriteString(sep)
		}
		first = false
	}
	p.shown(shape[0], func(int) {
		separate()
		p.write(b, shape[1:], indent+1)
	}, func() {
		separate()
		b.WriteString("...")
	})
	b.WriteByte(']')
}

// format writes an element: 6 digits of a float.
func format(d dtype.DType, v float64) string {
	switch {
	case d == dtype.Bool:
		return strconv.FormatBool(v != 0)
	case !d.IsFloat():
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
