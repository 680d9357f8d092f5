package plot

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/exponents"
)

// Series is numbers with a name: the elements of a weight, of activations, of
// gradients.
type Series struct {
	Name   string
	Values []float32
}

var half, bfloat = exponents.LimitsOf(keras.Float16), exponents.LimitsOf(keras.BFloat16)

// limits are where the 16-bit types begin and end.
var limits = []struct {
	at    int
	label string
}{
	{half.Subnormal, "float16: least"}, {half.Normal, "least normal"}, {half.Overflow, "largest"},
	{bfloat.Subnormal, "bfloat16: least"}, {bfloat.Normal, "bfloat16: least normal"}, {bfloat.Overflow, "largest"},
}

// Exponents draws which share of each series is in each binade, 2^e to 2^(e+1),
// with the range of the normal numbers of float16 and of its subnormal ones,
// and what is below: 0 in float16 (Micikevicius et al., Mixed Precision
// Training, figure 3). The legend has the share of each series that is 0 or
// not finite, which has no binade, and of the rest that float16 loses. The
// range of bfloat16, which is the range of float32, is drawn where a series
// reaches it; else the sides say how far it goes.
func Exponents(path string, all ...Series) error {
	if len(all) == 0 {
		return fmt.Errorf("plot: %s: no series given", path)
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "binary exponents", "exponent e of 2^e", "share of the elements, %"
	p.Legend.Top = true
	first, last, high := half.Subnormal, half.Overflow-1, 0.
	for i, s := range all {
		if len(s.Values) == 0 {
			return fmt.Errorf("plot: %s: series %q has no values", path, s.Name)
		}
		var h exponents.Histogram
		h.Add(s.Values...)
		low, top, ok := h.Range()
		var line plotter.XYs
		for e := low; ok && e <= top; e++ {
			y := 100 * float64(h.Binade(e)) / float64(h.Count)
			line = append(line, plotter.XY{X: float64(e), Y: y}, plotter.XY{X: float64(e + 1), Y: y})
			high = max(high, y)
		}
		if ok {
			first, last = min(first, low), max(last, top)
			l, err := plotter.NewLine(line)
			if err != nil {
				return fmt.Errorf("plot: %s: %w", path, err)
			}
			l.Color, l.Width = colors[i%len(colors)], vg.Points(1.5)
			p.Add(l)
			p.Legend.Add(fmt.Sprintf("%s: %s zero or not finite, %s lost in float16", s.Name,
				exponents.Percent(h.Zeros+h.NonFinite, h.Count), exponents.Percent(h.Float16Zeros+h.Float16Infinities, h.Count)), l)
		} else {
			p.Legend.Add(s.Name + ": zero or not finite")
		}
	}
	for _, limit := range limits {
		if limit.at < first || limit.at > last+1 {
			continue
		}
		x := float64(limit.at)
		line, err := plotter.NewLine(plotter.XYs{{X: x, Y: 0}, {X: x, Y: high * 1.25}})
		if err != nil {
			return fmt.Errorf("plot: %s: %w", path, err)
		}
		line.Color, line.Dashes = grey, []vg.Length{vg.Points(3), vg.Points(3)}
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: high * 1.25}}, Labels: []string{limit.label}})
		if err != nil {
			return fmt.Errorf("plot: %s: %w", path, err)
		}
		label.TextStyle[0] = text(7)
		label.TextStyle[0].Rotation = math.Pi / 2
		label.Offset.X = -vg.Points(1.5)
		label.TextStyle[0].XAlign, label.TextStyle[0].YAlign = draw.XRight, draw.YBottom
		p.Add(line, label)
	}
	var ticks plot.ConstantTicks
	for e := first - 1; e <= last+2; e++ {
		tick := plot.Tick{Value: float64(e)}
		if step := 5 * (1 + (last-first)/100); e%step == 0 {
			tick.Label = fmt.Sprint(e)
		}
		ticks = append(ticks, tick)
	}
	p.X.Tick.Marker = ticks
	p.X.Min, p.X.Max = float64(first-1), float64(last+2)
	p.Y.Min, p.Y.Max = 0, max(high*1.5, 1) // room for the legend
	const w = 18 * vg.Centimeter
	return save(path, w, 10*vg.Centimeter, func(c draw.Canvas) {
		p.Draw(draw.Crop(c, 2*vg.Millimeter, -4*vg.Millimeter, 0, -2*vg.Millimeter))
		beyond(c, first, last, vg.Millimeter)
	})
}

// beyond says at the sides of a picture, on the line of the labels, which limits
// of bfloat16 lie outside of the binades from first to last.
func beyond(c draw.Canvas, first, last int, y vg.Length) {
	style := text(7)
	style.Color = grey
	if bfloat.Normal < first {
		c.FillText(style, vg.Point{X: c.Min.X + vg.Millimeter, Y: y}, fmt.Sprintf("< bfloat16: least %d, least normal %d", bfloat.Subnormal, bfloat.Normal))
	}
	if bfloat.Overflow > last+1 {
		style.XAlign = draw.XRight
		c.FillText(style, vg.Point{X: c.Max.X - vg.Millimeter, Y: y}, fmt.Sprintf("bfloat16: largest %d >", bfloat.Overflow))
	}
}
