package doctor

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/mezzo-ml/mezzo/backend/dtype"
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

// waterfall is the error of each value along the step.
type waterfall struct {
	Width, Height string
	Bars          []mark
	Local         string // ticks: what values lose by themselves
	Lines         []mark
	Labels        []text
	Zones         []zone
	Pins          []pin
}

type zone struct{ X, W, Y, H, Class, Name, Middle string }

// pin is a number at a suspect, or the mark of the origin.
type pin struct{ X, Y, Class, Text, Title string }

const (
	waterLeft, waterRight, waterTop, waterBottom = 62.0, 1088.0, 54.0, 300.0
	decadeLow, decadeHigh                        = -8.0, 1.0
)

// errorHeight is where an error is on the axis.
func errorHeight(e float64) float64 {
	x := decadeLow
	if e > 0 {
		x = min(max(math.Log10(e), decadeLow), decadeHigh)
	}
	return waterBottom - (x-decadeLow)/(decadeHigh-decadeLow)*(waterBottom-waterTop)
}

func (p *page) waterfall() {
	var at []int // positions of the values that are shown
	firstGrad, lastGrad := -1, -1
	for i := range p.values {
		t := &p.values[i]
		if t.Shadow == nil || t.Op == op.Const || t.Op == op.Param && t.Shadow.X.NaNs+t.Shadow.X.Infinities == 0 {
			continue
		}
		if isGradient(t.Path) {
			if firstGrad < 0 {
				firstGrad = len(at)
			}
			lastGrad = len(at)
		}
		at = append(at, i)
	}
	if len(at) == 0 {
		return
	}
	w := &waterfall{Width: "1100", Height: "344"}
	p.Waterfall = w
	if firstGrad < 0 {
		firstGrad, lastGrad = len(at), len(at)-1
	}
	per := (len(at) + maxColumns - 1) / maxColumns
	columns := (len(at) + per - 1) / per
	pitch := (waterRight - waterLeft) / float64(columns)
	x := func(k int) float64 { return waterLeft + (float64(k/per)+0.5)*pitch }
	for _, z := range []struct {
		name, class string
		from, to    int
	}{{"forward", "forward", 0, firstGrad}, {"backward", "backward", firstGrad, lastGrad + 1}, {"update", "update", lastGrad + 1, len(at)}} {
		if z.to <= z.from {
			continue
		}
		left, right := waterLeft+float64(z.from/per)*pitch, waterLeft+float64((z.to-1)/per+1)*pitch
		name := z.name
		if right-left < 60 {
			name = ""
		}
		w.Zones = append(w.Zones, zone{px(left), px(right - left), px(waterTop - 34), px(waterBottom - waterTop + 34), z.class, name, px((left + right) / 2)})
	}
	p.decades(w)
	var local strings.Builder
	pinned := map[string]int{} // columns of the worst values of suspects
	for k := 0; k < len(at); k += per {
		group := at[k:min(k+per, len(at))]
		worst, most := group[0], 0.0
		bad, cause := int64(0), false
		for _, i := range group {
			t := &p.values[i]
			if badness(t) > badness(&p.values[worst]) {
				worst = i
			}
			if n := t.Shadow.X.NaNs + t.Shadow.X.Infinities; n > 0 {
				bad += n
				cause = cause || beyond(t.Type.DType, t.Shadow) || !p.inherits(t)
			}
			if t.Local != nil {
				if l := relative(t.Local); !math.IsInf(l, 0) {
					most = max(most, l)
				}
			}
			if s := p.suspectOf(t); s != "" && !isGradient(t.Path) {
				if old, ok := pinned[s]; !ok || badness(t) > badness(&p.values[at[old]]) {
					pinned[s] = k + slices.Index(group, i)
				}
			}
		}
		t := &p.values[worst]
		class, top := "forward", errorHeight(relative(t.Shadow))
		switch {
		case k > lastGrad:
			class = "update"
		case k >= firstGrad:
			class = "backward"
		}
		title := fmt.Sprintf("%s %v: error %s", clip(string(t.ID), maxTitle), t.Type, short(relative(t.Shadow)))
		if t.Local != nil {
			title += fmt.Sprintf(", of its own %s", short(relative(t.Local)))
		}
		if bad > 0 {
			class, top = "inherited", waterTop-14
			if cause {
				class = "bad"
			}
			title += fmt.Sprintf("; %d elements are not finite", bad)
		}
		if len(group) > 1 {
			title = fmt.Sprintf("%d values, the worst: %s", len(group), title)
		}
		w.Bars = append(w.Bars, mark{"bar " + class, fmt.Sprintf("M%s %sV%s", px(x(k)), px(waterBottom), px(top)), title})
		if most > 0 {
			fmt.Fprintf(&local, "M%s %sh%s", px(x(k)-pitch/2), px(errorHeight(most)), px(max(pitch, 1.5)))
		}
	}
	w.Local = local.String()
	last := -100.0
	for _, s := range slices.SortedFunc(mapsKeys(pinned), func(a, b string) int { return cmp.Compare(pinned[a], pinned[b]) }) {
		if p.layers[s] > 9 {
			continue
		}
		px0 := max(x(pinned[s]), last+19)
		last = px0
		w.Pins = append(w.Pins, pin{px(px0), px(waterBottom + 18), "suspect", strconv.Itoa(p.layers[s]), "suspect: " + clip(s, maxTitle)})
	}
	if k, ok := slices.BinarySearch(at, p.origin); ok && p.origin >= 0 {
		label, anchor := clip(string(p.values[p.origin].ID), 48), "origin"
		if x(k) > 800 {
			anchor = "origin end"
		}
		w.Lines = append(w.Lines, mark{"origin", fmt.Sprintf("M%s %sV%s", px(x(k)), px(waterTop-34), px(waterBottom+6)), "first seen at " + label})
		shift := 6.0
		if anchor != "origin" {
			shift = -6
		}
		w.Labels = append(w.Labels, text{px(x(k) + shift), px(waterTop - 21), anchor, label})
	}
}

// decades draws the axis of errors and the line of the tolerance.
func (p *page) decades(w *waterfall) {
	for d := decadeLow; d <= decadeHigh; d++ {
		y := errorHeight(math.Pow(10, d))
		w.Lines = append(w.Lines, mark{"grid", fmt.Sprintf("M%s %sH%s", px(waterLeft), px(y), px(waterRight)), ""})
		label := "10" + superscript(int(d))
		switch d {
		case 0:
			label = "1"
		case 1:
			label = "10"
		case -1:
			label = "0.1"
		case -2:
			label = "0.01"
		}
		w.Labels = append(w.Labels, text{px(waterLeft - 8), px(y + 4), "tick end", label})
	}
	if p.Tolerance > 0 {
		y := errorHeight(p.Tolerance)
		w.Lines = append(w.Lines, mark{"limit", fmt.Sprintf("M%s %sH%s", px(waterLeft), px(y), px(waterRight)), fmt.Sprintf("tolerance %v", p.Tolerance)})
	}
}

func mapsKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// heat is the share of elements of each exponent, by layers.
type heat struct {
	Width, Height, ViewBox string
	Panels                 []heatPanel
	Labels                 []text
	Rows                   []heatRow
	Type                   string
}

type heatPanel struct {
	Name   string
	X      string
	Levels []mark
	Lines  []mark
	Labels []text
	Box    mark
}

type heatRow struct {
	X, Y, W, H, Title, Class string
}

const heatLevels = 7

type heatLayer struct {
	name    string
	layers  int
	bins    [2][op.StatsBins]float64 // forward, backward
	count   [2]float64
	suspect int
}

// add adds the exponents of a shadow. Coarse bins are spread over their exponents.
func (l *heatLayer) add(side int, s *op.Statistics) {
	l.count[side] += float64(s.Count)
	if !s.Coarse {
		for i, n := range s.Y.Bins {
			l.bins[side][i] += float64(n)
		}
		return
	}
	low, high := 0, op.StatsBins-1
	if s.Y.Smallest > 0 {
		low, high = op.StatsBin(math.Ilogb(s.Y.Smallest)), op.StatsBin(math.Ilogb(s.Y.Largest))
	}
	borders := append([]int{0}, make([]int, 0, len(op.StatsBorders)+1)...)
	for _, b := range op.StatsBorders {
		borders = append(borders, op.StatsBin(b))
	}
	borders = append(borders, op.StatsBins)
	for i := range borders[1:] {
		from, to := max(borders[i], low), min(borders[i+1]-1, high)
		for b := from; b <= to; b++ {
			l.bins[side][b] += float64(s.Y.Bins[borders[i]]) / float64(to-from+1)
		}
	}
}

// heatLayers are the layers of the heat map with the exponents of their values, and the
// 16-bit type that most of them have.
func (p *page) heatLayers() (rows []*heatLayer, main dtype.DType) {
	narrow := map[dtype.DType]int{}
	for i := range p.values {
		if t := &p.values[i]; t.Shadow != nil && t.Type.DType.Is16() && t.Op != op.Const {
			narrow[t.Type.DType]++
		}
	}
	main = dtype.Float16
	if narrow[dtype.BFloat16] > narrow[dtype.Float16] {
		main = dtype.BFloat16
	}
	index := map[string]*heatLayer{}
	for i := range p.values {
		t := &p.values[i]
		if t.Shadow == nil || t.Op == op.Const || t.Op == op.Param || t.Path == "" || len(narrow) > 0 && t.Type.DType != main {
			continue
		}
		name := tapLayer(t)
		l := index[name]
		if l == nil {
			if isGradient(t.Path) || strings.HasPrefix(name, "metrics/") { // an optimizer, a metric
				continue
			}
			l = &heatLayer{name: name, layers: 1, suspect: p.layers[p.suspectOf(t)]}
			index[name] = l
			rows = append(rows, l)
		}
		side := 0
		if isGradient(t.Path) {
			side = 1
		}
		l.add(side, t.Shadow)
	}
	return rows, main
}

func (p *page) heat() {
	rows, main := p.heatLayers()
	if len(rows) == 0 {
		return
	}
	rows = mergeRows(rows)
	low, high := op.StatsBins, 0
	for _, l := range rows {
		for side := range l.bins {
			for b, n := range l.bins[side] {
				if n > 1e-4*l.count[side] {
					low, high = min(low, b), max(high, b)
				}
			}
		}
	}
	subnormal, normal, largest := math.Ilogb(main.SmallestSubnormal()), math.Ilogb(main.SmallestNormal()), math.Ilogb(main.Max())+1
	if main == dtype.Float16 {
		low, high = min(low, op.StatsBin(subnormal)-3), max(high, op.StatsBin(largest)+3)
	}
	if main == dtype.Float16 { // the columns at the edges have all that is beyond them
		low, high = max(low, op.StatsBin(subnormal)-12), min(high, op.StatsBin(largest)+16)
	}
	if high <= low {
		return
	}
	const left, top, gap = 218.0, 50.0, 26.0
	height := min(max(300/float64(len(rows)), 13), 18)
	width := (1088 - left - gap) / 2
	cell := width / float64(high-low+1)
	bottom := top + height*float64(len(rows))
	h := &heat{Width: "1100", Height: px(bottom + 34), Type: main.String()}
	p.Heat = h
	for side, name := range []string{"forward: values", "backward: gradients, with the loss scale"} {
		x0 := left + float64(side)*(width+gap)
		q := heatPanel{Name: name, X: px(x0)}
		paths := make([]strings.Builder, heatLevels)
		for i, l := range rows {
			y := top + height*(float64(i)+0.5)
			at := func(b int) int {
				n := l.bins[side][b]
				switch b {
				case low:
					n = sum(l.bins[side][:low+1])
				case high:
					n = sum(l.bins[side][high:])
				}
				if n == 0 {
					return -1
				}
				share := n / l.count[side]
				// 1e-5 and less, …, a tenth and more
				return min(max(int(heatLevels+1.2*math.Log10(share/0.3)), 0), heatLevels-1)
			}
			for b := low; b <= high; {
				level, n := at(b), 1
				for b+n <= high && at(b+n) == level {
					n++
				}
				if level >= 0 {
					fmt.Fprintf(&paths[level], "M%s %sh%s", px(x0+cell*float64(b-low)), px(y), px(cell*float64(n)))
				}
				b += n
			}
		}
		for level := range paths {
			if paths[level].Len() > 0 {
				q.Levels = append(q.Levels, mark{Class: fmt.Sprintf("heat h%d", level), Path: paths[level].String(), Title: px(height - 1.5)})
			}
		}
		q.Box = mark{Path: fmt.Sprintf("M%s %sh%sv%sh-%sz", px(x0), px(top), px(width), px(bottom-top), px(width))}
		for _, limit := range []struct {
			exponent    int
			class, name string
		}{{subnormal, "limit", "0"}, {normal, "limit soft", "subnormal"}, {largest, "limit", "∞"}} {
			b := op.StatsBin(limit.exponent)
			if b < low || b > high {
				continue
			}
			x := x0 + cell*float64(b-low)
			q.Lines = append(q.Lines, mark{limit.class, fmt.Sprintf("M%s %sV%s", px(x), px(top-5), px(bottom+5)), fmt.Sprintf("2^%d", limit.exponent)})
			class := "tick end"
			if limit.name == "∞" {
				class, x = "tick", x+4
			} else {
				x -= 4
			}
			if limit.name == "subnormal" && cell*10 < 52 {
				continue
			}
			q.Labels = append(q.Labels, text{px(x), px(top - 9), class + " limit", limit.name})
		}
		step := 8
		if high-low > 90 {
			step = 32
		}
		for e := -256; e <= 256; e += step {
			b := e + 127
			if b < low || b > high {
				continue
			}
			q.Labels = append(q.Labels, text{px(x0 + cell*(float64(b-low))), px(bottom + 20), "tick middle", power(e)})
		}
		h.Panels = append(h.Panels, q)
	}
	for i, l := range rows {
		y := top + height*float64(i)
		class := "row"
		if l.suspect > 0 {
			class = "row suspect"
		}
		name := clip(l.name, 30)
		if l.layers > 1 {
			name = fmt.Sprintf("%s (%d)", clip(l.name, 24), l.layers)
		}
		h.Labels = append(h.Labels, text{px(left - 10), px(y + height/2 + 3.5), class, name})
		title := clip(l.name, maxTitle)
		if l.layers > 1 {
			title += fmt.Sprintf(" and %d layers that follow", l.layers-1)
		}
		h.Rows = append(h.Rows, heatRow{"0", px(y), "1096", px(height), title, class})
	}
	h.ViewBox = fmt.Sprintf("0 0 1100 %s", h.Height)
}

func sum(x []float64) (all float64) {
	for _, v := range x {
		all += v
	}
	return all
}

// mergeRows joins neighbours until at most maxRows are left. Suspects stay alone where
// they are few.
func mergeRows(rows []*heatLayer) []*heatLayer {
	if len(rows) <= maxRows {
		return rows
	}
	per := (len(rows) + maxRows - 21) / (maxRows - 20)
	var merged []*heatLayer
	alone := 0
	for _, l := range rows {
		if l.suspect > 0 && l.suspect <= 9 && alone < 9 {
			alone++
			merged = append(merged, l)
			continue
		}
		if n := len(merged); n > 0 && merged[n-1].layers < per && (merged[n-1].suspect == 0 || merged[n-1].suspect > 9) {
			last := merged[n-1]
			last.layers++
			for side := range l.bins {
				last.count[side] += l.count[side]
				for b, x := range l.bins[side] {
					last.bins[side][b] += x
				}
			}
			continue
		}
		merged = append(merged, l)
	}
	return merged
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

// graph is the values around the origin: what it reads and what reads it.
type graph struct {
	Height, ViewBox string
	Nodes           []graphNode
	Edges           []mark
	Name            string
}

type graphNode struct {
	X, Y, Class, Title  string
	TextX, Y1, Y2, Y3   string
	Op, Path, Type, Say string
}

const (
	nodeWidth, nodeHeight, nodePitch, columnPitch = 188.0, 62.0, 76.0, 222.0
	maxNodes                                      = 5 // in a column
)

func (p *page) graph() {
	if p.origin < 0 {
		return
	}
	g := &graph{Name: clip(string(p.values[p.origin].ID), maxTitle)}
	p.Graph = g
	readers := map[int][]int{}
	for i := range p.values {
		for _, a := range p.values[i].Args {
			if r := readers[a]; len(r) == 0 || r[len(r)-1] != i {
				readers[a] = append(r, i)
			}
		}
	}
	columns := make([][]int, 5)
	columns[2] = []int{p.origin}
	column := map[int]int{p.origin: 2}
	spread := func(from, to int, next func(int) []int) {
		for _, i := range columns[from] {
			for _, k := range next(i) {
				if _, ok := column[k]; !ok && len(columns[to]) < maxNodes {
					columns[to] = append(columns[to], k)
					column[k] = to
				}
			}
		}
	}
	operands := func(i int) []int { return p.values[i].Args }
	used := func(i int) []int { return readers[i] }
	spread(2, 1, operands)
	spread(1, 0, operands)
	spread(2, 3, used)
	spread(3, 4, used)
	most := 1
	for _, c := range columns {
		most = max(most, len(c))
	}
	height := float64(most)*nodePitch + 8
	g.Height, g.ViewBox = px(height), fmt.Sprintf("0 0 1100 %s", px(height))
	place := map[int][2]float64{}
	for c, list := range columns {
		for k, i := range list {
			place[i] = [2]float64{8 + float64(c)*columnPitch, height/2 + (float64(k)-float64(len(list)-1)/2)*nodePitch - nodeHeight/2}
		}
	}
	for c, list := range columns {
		for _, i := range list {
			t := &p.values[i]
			x, y := place[i][0], place[i][1]
			n := graphNode{X: px(x), Y: px(y), TextX: px(x + 12), Y1: px(y + 19), Y2: px(y + 36), Y3: px(y + 52), Op: t.Op.String(), Path: clip(t.Path, 25), Type: clip(t.Type.String(), 25), Class: "node"}
			n.Title = string(t.ID)
			if len(n.Title) > 2*maxTitle {
				n.Title = clip(n.Title, 2*maxTitle)
			}
			switch s := t.Shadow; {
			case s == nil:
				n.Say = n.Type
			case s.X.NaNs+s.X.Infinities > 0:
				n.Say = fmt.Sprintf("%d of %d not finite", s.X.NaNs+s.X.Infinities, s.Count)
				n.Class = "node bad"
			case t.Op == op.Const:
				n.Say = fmt.Sprintf("%v", t.Constant)
			default:
				n.Say = fmt.Sprintf("up to %s, error %s", short(s.Y.Largest), short(relative(s)))
			}
			n.Title += " " + t.Type.String()
			if i == p.origin {
				n.Class += " focus"
			}
			g.Nodes = append(g.Nodes, n)
			for _, a := range t.Args {
				if from, ok := column[a]; !ok || from >= c {
					continue
				}
				x1, y1, x2, y2 := place[a][0]+nodeWidth, place[a][1]+nodeHeight/2, x, y+nodeHeight/2
				m := (x1 + x2) / 2
				g.Edges = append(g.Edges, mark{"edge", fmt.Sprintf("M%s %sC%s %s %s %s %s %s", px(x1), px(y1), px(m), px(y1), px(m), px(y2), px(x2), px(y2)), ""})
			}
		}
	}
}

// maxSuspects is how many layers the table has.
const maxSuspects = 40

type numbered struct {
	Number     int
	Layer, Why string
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
