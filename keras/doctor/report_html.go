package doctor

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Parse(reportHTML))

// WriteHTML writes the report as one HTML file, which needs nothing else: no scripts
// and no styles. It shows the error of each value along the step, the exponents of each
// layer beside the limits of its type, the loss scales that fit, the suspects, the worst
// values, and the graph around the origin. Steps of many values are drawn in summary,
// so that the size of the file is bounded.
func (r *Report) WriteHTML(w io.Writer) error {
	p := page{Report: r, Healthy: r.Kind == Healthy, layers: map[string]int{}}
	if r.Taps != nil {
		p.values = r.Taps.Values
	}
	p.focus()
	p.header()
	p.waterfall()
	p.heat()
	p.scale()
	p.worst()
	p.graph()
	var b bytes.Buffer
	if err := reportTemplate.Execute(&b, &p); err != nil {
		return err
	}
	// Names may have characters that are none of a text.
	_, err := w.Write(bytes.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' || r == 0xFFFE || r == 0xFFFF {
			return unicode.ReplacementChar
		}
		return r
	}, b.Bytes()))
	return err
}

// Sizes of the drawings.
const (
	maxColumns = 460 // of the waterfall
	maxRows    = 90  // of the heat map
	maxWorst   = 20  // values in the table
	maxTitle   = 80  // characters of a name that is shown
)

// page is what the template shows.
type page struct {
	*Report
	Healthy       bool
	Literal, JSON string // of the map
	Facts         []fact
	Waterfall     *waterfall
	Heat          *heat
	LossScale     *scaleBar
	Worst         []worstValue
	Graph         *graph

	values []tensor.Tap
	origin int            // position of the origin or, without one, of the worst value; -1
	layers map[string]int // suspects by layer, counting from 1
}

type fact struct{ Name, Value, Note string }

// text is a text in a drawing; Class selects its style.
type text struct {
	X, Y  string
	Class string
	Text  string
}

// mark is a path with an explanation.
type mark struct{ Class, Path, Title string }

// px formats a coordinate.
func px(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }

// clip shortens a name in its middle.
func clip(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most/2]) + "…" + string(r[len(r)-(most-most/2-1):])
}

var superscripts = strings.NewReplacer("-", "⁻", "0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴", "5", "⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹")

func superscript(n int) string { return superscripts.Replace(strconv.Itoa(n)) }

func power(exponent int) string { return "2" + superscript(exponent) }

// short formats a number for people.
func short(x float64) string {
	switch {
	case math.IsInf(x, 0):
		return "∞"
	case math.IsNaN(x):
		return "NaN"
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// tapLayer is the layer of a value, forward or backward.
func tapLayer(t *tensor.Tap) string { return strings.TrimSuffix(t.Path, "/grad") }

// badness orders values: those with elements that are not finite, then by error.
func badness(t *tensor.Tap) float64 {
	s := t.Shadow
	if s == nil {
		return -1
	}
	if s.X.NaNs+s.X.Infinities > 0 {
		return math.MaxFloat64
	}
	return min(relative(s), 1e300)
}

func (p *page) focus() {
	for i, s := range p.Suspects {
		p.layers[s.Layer] = i + 1
	}
	p.origin = -1
	if o := p.Origin; o != nil {
		p.origin = slices.IndexFunc(p.values, func(t tensor.Tap) bool { return t.ID == o.ID })
		return
	}
	if p.Healthy {
		return
	}
	for i := range p.values { // the first value of the likeliest suspect with a visible error
		if t := &p.values[i]; t.Shadow != nil && p.layers[p.suspectOf(t)] == 1 && badness(t) >= visible {
			p.origin = i
			return
		}
	}
}

// suspectOf is the layer in the list of suspects that recorded a value, or "".
func (p *page) suspectOf(t *tensor.Tap) string {
	for path := tapLayer(t); path != ""; path = path[:max(strings.LastIndexByte(path, '/'), 0)] {
		if _, ok := p.layers[path]; ok {
			return path
		}
	}
	if _, ok := p.layers[string(t.ID)]; ok {
		return string(t.ID)
	}
	return ""
}

// percent formats a share or a relative error.
func percent(x float64) string {
	switch {
	case math.IsInf(x, 0) || math.IsNaN(x):
		return "∞"
	case x >= 10:
		return fmt.Sprintf("%.3g×", x)
	case x >= 0.995:
		return fmt.Sprintf("%.0f %%", 100*x)
	}
	return fmt.Sprintf("%.2g %%", 100*x)
}

func (p *page) header() {
	if !p.Before.Finite {
		p.Facts = append(p.Facts, fact{"step", "not finite", "the loss or a gradient"})
	} else {
		p.Facts = append(p.Facts, fact{"loss off by", percent(p.Before.Loss), fmt.Sprintf("at most %s is healthy", percent(p.Tolerance))},
			fact{"worst gradient off by", percent(p.Before.Gradient), clip(p.Before.Worst, 40)})
	}
	if p.Remedy.Verified {
		p.Facts = append(p.Facts, fact{"with the remedy", percent(max(p.Remedy.After.Loss, p.Remedy.After.Gradient)), "verified by running it"})
	}
	p.Facts = append(p.Facts, fact{"values compared", strconv.Itoa(p.compared()), "the step was run " + times(p.Trials)})
	if p.Remedy.Map != nil {
		p.Literal = p.Remedy.Map.GoString()
		b, _ := json.MarshalIndent(p.Remedy.Map, "", "  ") // a map of strings
		p.JSON = string(b)
	}
}

func (p *page) compared() (n int) {
	for i := range p.values {
		if p.values[i].Shadow != nil {
			n++
		}
	}
	return n
}

// inherits reports whether an operand of a value has elements that are not finite.
func (p *page) inherits(t *tensor.Tap) bool {
	return slices.ContainsFunc(t.Args, func(a int) bool {
		for p.values[a].Shadow == nil && len(p.values[a].Args) > 0 { // it moves elements
			a = p.values[a].Args[0]
		}
		s := p.values[a].Shadow
		return s != nil && s.X.NaNs+s.X.Infinities > 0
	})
}

// scaleBar is the range of loss scales that fit.
type scaleBar struct {
	Fits   bool
	Bar    zone
	Ticks  []text
	Marks  []mark
	Labels []text
	Text   string
}

func (p *page) scale() {
	a := p.Scale
	if !a.Known {
		return
	}
	present := math.Log2(max(a.Present, math.SmallestNonzeroFloat32))
	low, high := max(a.Low, -60), min(a.High, 80) // of gradients that are 0 there is no limit
	from, to := min(low, high, int(present), 0)-3, max(low, high, int(present), 15)+3
	x := func(e float64) float64 { return 30 + (e-float64(from))/float64(to-from)*1040 }
	b := &scaleBar{Fits: a.Fits(), Text: a.String()}
	p.LossScale = b
	l, r := x(float64(low)), x(float64(high))
	b.Bar = zone{X: px(min(l, r)), W: px(max(math.Abs(r-l), 2)), Y: "34", H: "22", Class: "fits", Name: power(low) + " … " + power(high), Middle: px((l + r) / 2)}
	if !b.Fits {
		b.Bar.Class, b.Bar.Name = "misfits", "none fits"
	}
	step := 4
	if to-from > 60 {
		step = 8
	}
	for e := from; e <= to; e++ {
		if e%step == 0 {
			b.Ticks = append(b.Ticks, text{px(x(float64(e))), "80", "tick middle", power(e)})
		}
	}
	at := func(e float64, class, label string) {
		b.Marks = append(b.Marks, mark{class, fmt.Sprintf("M%s 24V62", px(x(e))), label})
		anchor := " middle"
		switch {
		case x(e) > 980:
			anchor = " end"
		case x(e) < 110:
			anchor = ""
		}
		b.Labels = append(b.Labels, text{px(x(e)), "16", class + anchor, label})
	}
	at(present, "present", fmt.Sprintf("now %v", a.Present))
	if s := p.Remedy.Scale; s > 0 && s != a.Present {
		at(math.Log2(s), "remedy", fmt.Sprintf("remedy %v", s))
	}
}

// worstValue is a row of the table of values.
type worstValue struct {
	ID, Type, Error, Local, Largest, Headroom, Flushed, Bad string
	Class                                                   string
}

func (p *page) worst() {
	var at []int
	for i := range p.values {
		if t := &p.values[i]; t.Shadow != nil && t.Op != op.Const && badness(t) > 0 {
			at = append(at, i)
		}
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(badness(&p.values[b]), badness(&p.values[a])) })
	for _, i := range at[:min(len(at), maxWorst)] {
		t := &p.values[i]
		s := t.Shadow
		v := worstValue{ID: clip(string(t.ID), maxTitle), Type: t.Type.String(), Error: short(relative(s)), Local: "–", Largest: short(s.Y.Largest), Headroom: "–", Flushed: "–", Bad: "–"}
		if t.Local != nil {
			v.Local = short(relative(t.Local))
		}
		if h := headroom(t); !math.IsInf(h, 0) && !math.IsNaN(h) {
			v.Headroom = strings.Replace(strconv.FormatFloat(h, 'f', 1, 64), "-", "−", 1)
			if h < 0 {
				v.Class = "over"
			}
		}
		if s.Flushed > 0 {
			v.Flushed = percent(share(s.Flushed, s.Count))
		}
		if n := s.X.NaNs + s.X.Infinities; n > 0 {
			v.Bad = fmt.Sprintf("%d NaN, %d ∞", s.X.NaNs, s.X.Infinities)
		}
		p.Worst = append(p.Worst, v)
	}
}

// maxSuspects is how many layers the table has.
const maxSuspects = 40

type numbered struct {
	Number     int
	Layer, Why string
}

// lostUpdate is a weight whose updates are lost, and which share of them.
type lostUpdate struct{ Name, Share, Width string }

// LostUpdates are the weights that lose the most updates.
func (p *page) LostUpdates() (all []lostUpdate) {
	names := slices.SortedFunc(maps.Keys(p.Lost), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.Lost[b], p.Lost[a]), cmp.Compare(a, b))
	})
	for _, n := range names[:min(len(names), maxWorst)] {
		all = append(all, lostUpdate{clip(n, 2*maxTitle), percent(p.Lost[n]), px(100 * p.Lost[n])})
	}
	return all
}

// ShownSuspects are the suspects of the table.
func (p *page) ShownSuspects() (all []numbered) {
	for i, s := range p.Suspects[:min(len(p.Suspects), maxSuspects)] {
		all = append(all, numbered{i + 1, clip(s.Layer, 2*maxTitle), clip(s.Why, 4*maxTitle)})
	}
	return all
}

// Sentence is the summary, which may begin with the word layer.
func (p *page) Sentence() string {
	if p.Summary == "" {
		return ""
	}
	return strings.ToUpper(p.Summary[:1]) + p.Summary[1:]
}

// MoreSuspects is how many the table leaves out.
func (p *page) MoreSuspects() int { return max(len(p.Suspects)-maxSuspects, 0) }

// ShownNoise are the variables that the footer names.
func (p *page) ShownNoise() []string {
	if len(p.Noise) > maxSuspects {
		return append(slices.Clone(p.Noise[:maxSuspects]), "…")
	}
	return p.Noise
}
