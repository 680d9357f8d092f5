package plot

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series is numbers with a name: the elements of a weight, of activations, of
// gradients.
type Series struct {
	Name   string
	Values []float32
}

// Exponents draws which share of each series is in each binade, 2^e to 2^(e+1),
// with the range of the normal numbers of float16 and of its subnormal ones,
// and what is below: 0 in float16 (Micikevicius et al., Mixed Precision
// Training, figure 3). The legend has the share of each series that is 0 or
// not finite, which has no binade, and of the rest that float16 loses. The
// range of bfloat16, that of float32, is wider than what is drawn unless a
// series reaches it.
func Exponents(path string, all ...Series) error {
	if len(all) == 0 {
		return fmt.Errorf("plot: %s: no series given", path)
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "binary exponents", "exponent e of 2^e", "share of the elements, %"
	p.Legend.Top = true
	first, last, high := minSubnormal, maxExponent, 0.
	for i, s := range all {
		if len(s.Values) == 0 {
			return fmt.Errorf("plot: %s: series %q has no values", path, s.Name)
		}
		b := binades(s.Values)
		line := make(plotter.XYs, 0, 2*len(b.counts))
		for e, n := range b.counts {
			y := 100 * float64(n) / float64(len(s.Values))
			x := float64(b.first + e)
			line = append(line, plotter.XY{X: x, Y: y}, plotter.XY{X: x + 1, Y: y})
			high = max(high, y)
		}
		if len(line) > 0 {
			first, last = min(first, b.first), max(last, b.first+len(b.counts)-1)
			l, err := plotter.NewLine(line)
			if err != nil {
				return fmt.Errorf("plot: %s: %w", path, err)
			}
			l.Color, l.Width = colors[i%len(colors)], vg.Points(1.5)
			p.Add(l)
			p.Legend.Add(fmt.Sprintf("%s: %.2g %% zero or not finite, %.2g %% lost in float16", s.Name,
				100*float64(b.none)/float64(len(s.Values)), 100*float64(b.lost)/float64(len(s.Values))), l)
		} else {
			p.Legend.Add(s.Name + ": zero or not finite")
		}
	}
	for _, limit := range []struct {
		at    int
		label string
	}{
		{minSubnormal, "float16: least"}, {minNormal, "least normal"}, {maxExponent + 1, "largest"},
		{-126, "bfloat16: least normal"}, {128, "largest"},
	} {
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
	return save(path, 18*vg.Centimeter, 10*vg.Centimeter, p.Draw)
}

// Exponents of float16: of the least number above 0, of the least normal one,
// of the largest.
const (
	minSubnormal = -24
	minNormal    = -14
	maxExponent  = 15
)

// exponents counts numbers by their binades from first on.
type exponents struct {
	first  int
	counts []int
	none   int // zero or not finite
	lost   int // 0 or infinite in float16, and neither before
}

func binades(values []float32) exponents {
	const lowest = -149
	var counts [128 - lowest]int
	b := exponents{}
	low, high := len(counts), -1
	for _, v := range values {
		x := math.Abs(float64(v))
		if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
			b.none++
			continue
		}
		if x <= 0x1p-25 || x >= 65520 { // what rounds to 0 and to infinity
			b.lost++
		}
		e := math.Ilogb(x) - lowest
		counts[e]++
		low, high = min(low, e), max(high, e)
	}
	if high >= 0 {
		b.first, b.counts = low+lowest, counts[low:high+1]
	}
	return b
}
