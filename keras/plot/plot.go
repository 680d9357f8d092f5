// Package plot draws what training produces: curves of losses and metrics,
// histograms of binary exponents with the limits of the 16-bit types, confusion
// matrices and the wiring of models. What a file holds is told by its suffix:
// .png, .svg or .pdf, for models also .dot. Files are replaced as a whole.
package plot

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/guptarohit/asciigraph"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/console"
)

// Colours that are told apart also by the colour-blind (Okabe and Ito).
var (
	blue   = color.RGBA{0, 114, 178, 255}
	orange = color.RGBA{213, 94, 0, 255}
	colors = []color.Color{blue, orange, color.RGBA{0, 158, 115, 255}, color.RGBA{204, 121, 167, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{230, 159, 0, 255}}
	grey   = color.RGBA{120, 120, 120, 255}
)

// save draws into a file of the given size.
func save(path string, w, h vg.Length, render func(draw.Canvas)) error {
	format := strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), ".")
	if !slices.Contains([]string{"png", "svg", "pdf"}, format) {
		return fmt.Errorf("plot: %s: got suffix %q, want .png, .svg or .pdf", path, filepath.Ext(path))
	}
	c, err := draw.NewFormattedCanvas(w, h, format)
	if err != nil {
		return fmt.Errorf("plot: %s: %w", path, err)
	}
	render(draw.New(c))
	return write(path, func(w io.Writer) error {
		_, err := c.WriteTo(w)
		return err
	})
}

func write(path string, f func(io.Writer) error) error {
	if err := atomicfile.Write(atomicfile.System{}, path, func(w atomicfile.File) error { return f(w) }); err != nil {
		return fmt.Errorf("plot: %s: %w", path, err)
	}
	return nil
}

// History draws the named logs over the epochs, one panel each, together with the
// logs of the validation; without names all of them. Numbers that are not finite leave
// gaps.
func History(path string, h *keras.History, names ...string) error {
	if len(names) == 0 {
		for _, n := range h.Names() {
			if !strings.HasPrefix(n, "val_") {
				names = append(names, n)
			}
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("plot: %s: the history has no epochs", path)
	}
	var panels [][]*plot.Plot
	for _, name := range names {
		p, err := panel(h, name)
		if err != nil {
			return fmt.Errorf("plot: %s: %w", path, err)
		}
		panels = append(panels, []*plot.Plot{p})
	}
	return save(path, 16*vg.Centimeter, vg.Length(len(panels))*7*vg.Centimeter, func(c draw.Canvas) {
		tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: 8 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter, PadLeft: 2 * vg.Millimeter}
		for i, row := range plot.Align(panels, tiles, c) {
			panels[i][0].Draw(row[0])
		}
	})
}

// panel draws one log and that of the validation.
func panel(h *keras.History, name string) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = name, "epoch"
	p.Add(plotter.NewGrid())
	drawn := false
	for i, series := range []string{name, "val_" + name} {
		label := []string{"training", "validation"}[i]
		for k, part := range finiteParts(h, series) {
			line, err := plotter.NewLine(part)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", series, err)
			}
			line.Color, line.Width = colors[i], vg.Points(1.5)
			p.Add(line)
			if len(part) == 1 { // a line of one point is not seen
				dot, err := plotter.NewScatter(part)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", series, err)
				}
				dot.Color = colors[i]
				p.Add(dot)
			}
			if k == 0 {
				p.Legend.Add(label, line)
			}
			if k == 0 && i == 0 { // where the curve is not
				p.Legend.Top = part[len(part)-1].Y <= part[0].Y
			}
			drawn = true
		}
	}
	if !drawn {
		return nil, noValues(h, name)
	}
	p.X.Min, p.X.Max = spread(p.X.Min, p.X.Max)
	p.Y.Min, p.Y.Max = spread(p.Y.Min, p.Y.Max)
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{whole: true}, ticks{}
	return p, nil
}

func noValues(h *keras.History, name string) error {
	return fmt.Errorf("%q has no finite value, want one of %s", name, strings.Join(h.Names(), ", "))
}

// finiteParts are the runs of finite values of a log.
func finiteParts(h *keras.History, name string) []plotter.XYs {
	var parts []plotter.XYs
	open := false
	for i, y := range h.Get(name) {
		if math.IsNaN(y) || math.IsInf(y, 0) {
			open = false
			continue
		}
		if !open {
			parts, open = append(parts, nil), true
		}
		last := &parts[len(parts)-1]
		*last = append(*last, plotter.XY{X: float64(h.Epochs[i] + 1), Y: y})
	}
	return parts
}

// Terminal draws one log over the epochs, together with its value in the
// validation, in characters: height rows, and what stands below them, at most width columns
// (least: 20). On a terminal the curves differ in colour; elsewhere, and with
// NO_COLOR or TERM=dumb, in their characters.
func Terminal(w io.Writer, h *keras.History, name string, width, height int) error {
	return terminal(w, h, name, width, height, console.Of(w).Colors)
}

func terminal(w io.Writer, h *keras.History, name string, width, height int, colors bool) error {
	var series [][]float64
	var legends []string
	lo, hi := math.Inf(1), math.Inf(-1)
	for i, n := range []string{name, "val_" + name} {
		values := slices.Clone(h.Get(n))
		some := false
		for k, x := range values {
			if math.IsInf(x, 0) || math.IsNaN(x) {
				values[k] = math.NaN() // a gap
				continue
			}
			some, lo, hi = true, min(lo, x), max(hi, x)
		}
		if some {
			series = append(series, values)
			legends = append(legends, []string{name, "validation"}[i])
		}
	}
	if len(series) == 0 {
		return fmt.Errorf("plot: %w", noValues(h, name))
	}
	height = max(height, 1)
	low, high := spread(lo, hi)
	y := labels(low, high, (high-low)/float64(height))
	wide := max(len(y(lo)), len(y(hi)))
	for k := range height {
		wide = max(wide, len(y(lo+(hi-lo)*float64(k)/float64(height))))
	}
	const axis = 3 // columns of the axis beside the labels
	columns := max(width, 20) - wide - axis
	first, last := float64(h.Epochs[0]+1), float64(h.Epochs[len(h.Epochs)-1]+1)
	before := ""
	options := []asciigraph.Option{
		asciigraph.Height(height), asciigraph.Width(columns),
		asciigraph.YAxisValueFormatter(func(x float64) string { return fmt.Sprintf("%*s", wide, y(x)) }),
		asciigraph.XAxisRange(first, last), asciigraph.XAxisTickCount(epochTicks(last-first, columns)),
		asciigraph.XAxisValueFormatter(func(x float64) string { // of the nearest epoch, each once
			label := strconv.Itoa(int(math.Round(x)))
			if label == before {
				return ""
			}
			before = label
			return label
		}),
	}
	legend := ""
	if colors {
		options = append(options, asciigraph.SeriesColors(asciigraph.Default, asciigraph.Blue), asciigraph.SeriesLegends(legends...))
	} else {
		const dots = "•"
		options = append(options, asciigraph.SeriesChars(asciigraph.DefaultCharSet, asciigraph.CreateCharSet(dots)))
		marks := []string{"──", dots + dots}
		if legends[0] != name {
			marks = marks[1:]
		}
		for i, l := range legends {
			legend += "   " + marks[i] + " " + l
		}
		legend = "\n" + strings.Repeat(" ", wide) + legend
	}
	_, err := fmt.Fprintln(w, asciigraph.PlotMany(series, append(options, asciigraph.Caption(name+" over epochs"))...)+legend)
	return err
}

// epochTicks is how many epochs the axis names, of so many between the first and
// the last: as many as divide them, if any do.
func epochTicks(epochs float64, columns int) int {
	for _, n := range []int{5, 4, 6, 3} {
		if n <= columns/6+1 && math.Mod(epochs, float64(n-1)) == 0 && epochs > 0 {
			return n
		}
	}
	return min(5, max(2, columns/6))
}

// Confusion draws a matrix of counts: rows are true classes, columns predicted
// ones. classes may be nil: numbers then.
func Confusion(path string, counts [][]int, classes []string) error {
	n := len(counts)
	if n == 0 {
		return fmt.Errorf("plot: %s: no classes given", path)
	}
	if classes == nil {
		for i := range n {
			classes = append(classes, fmt.Sprint(i))
		}
	}
	if len(classes) != n {
		return fmt.Errorf("plot: %s: got %d names of classes, want %d", path, len(classes), n)
	}
	for i, row := range counts {
		if len(row) != n {
			return fmt.Errorf("plot: %s: row %d has %d counts, want %d", path, i, len(row), n)
		}
		for j, c := range row {
			if c < 0 {
				return fmt.Errorf("plot: %s: got count %d of class %d as %d, want 0 or more", path, c, i, j)
			}
		}
	}
	const cell = 1.2 * vg.Centimeter
	style := text(9)
	margin := cell
	for _, c := range classes {
		margin = max(margin, style.Width(c)+cell)
	}
	size := margin + vg.Length(n)*cell + cell/2
	return save(path, size, size, func(c draw.Canvas) {
		left, top := margin, size-margin
		centre := style
		centre.XAlign, centre.YAlign = draw.XCenter, draw.YCenter
		c.FillText(centre, vg.Point{X: left + vg.Length(n)*cell/2, Y: size - cell/3}, "predicted")
		side := centre
		side.Rotation = math.Pi / 2
		c.FillText(side, vg.Point{X: cell / 3, Y: top - vg.Length(n)*cell/2}, "true")
		for i, row := range counts {
			total := 0
			for _, x := range row {
				total += x
			}
			y := top - vg.Length(i)*cell
			name := style
			name.XAlign, name.YAlign = draw.XRight, draw.YCenter
			c.FillText(name, vg.Point{X: left - cell/6, Y: y - cell/2}, classes[i])
			name = style
			name.YAlign, name.Rotation = draw.YCenter, math.Pi/2
			c.FillText(name, vg.Point{X: left + (vg.Length(i)+0.5)*cell, Y: top + cell/6}, classes[i])
			for j, x := range row {
				share := float64(x) / math.Max(1, float64(total))
				fill := color.RGBA{uint8(255 - share*255), uint8(255 - share*(255-114)), uint8(255 - share*(255-178)), 255}
				x0 := left + vg.Length(j)*cell
				box := []vg.Point{{X: x0, Y: y}, {X: x0 + cell, Y: y}, {X: x0 + cell, Y: y - cell}, {X: x0, Y: y - cell}}
				c.FillPolygon(fill, box)
				label := centre
				if share > 0.5 {
					label.Color = color.White
				}
				c.FillText(label, vg.Point{X: x0 + cell/2, Y: y - cell/2}, fmt.Sprint(x))
			}
		}
	})
}

// text is a style of text of a size in points.
func text(size float64) draw.TextStyle {
	return draw.TextStyle{Color: color.Black, Font: font.From(plot.DefaultFont, vg.Points(size)), Handler: plot.DefaultTextHandler}
}
