package plot

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/exponents"
)

// Layers draws the binary exponents of the numbers of each layer in a training
// step, as keras.Model.Exponents returns them: a column for the weights, the
// activations and the gradients, a row for each layer, darker where more of its
// numbers are. The limits of float16, and of bfloat16 where numbers come near
// them, are drawn in, or said at the sides; the shares of a row that are 0 or infinite in float16, and
// were neither before, stand at its ends.
func Layers(path string, all []keras.LayerExponents) error {
	if len(all) == 0 {
		return fmt.Errorf("plot: %s: no layers given", path)
	}
	columns := []struct {
		name string
		of   func(*keras.LayerExponents) *exponents.Histogram
	}{
		{"weights", func(e *keras.LayerExponents) *exponents.Histogram { return &e.Weights }},
		{"activations", func(e *keras.LayerExponents) *exponents.Histogram { return &e.Activations }},
		{"gradients", func(e *keras.LayerExponents) *exponents.Histogram { return &e.Gradients }},
	}
	first, last := half.Subnormal-2, half.Overflow
	style := text(8)
	margin := vg.Centimeter
	for i := range all {
		margin = max(margin, style.Width(all[i].Layer)+vg.Centimeter/2)
		for _, c := range columns {
			if low, top, ok := c.of(&all[i]).Range(); ok {
				first, last = min(first, low), max(last, top)
			}
		}
	}
	const row, top, bottom, gap = 0.6 * vg.Centimeter, 1.6 * vg.Centimeter, vg.Centimeter, vg.Centimeter / 2
	binade := max(0.14*vg.Centimeter, 6*vg.Centimeter/vg.Length(last-first+1))
	width := vg.Length(last-first+1) * binade
	w, h := margin+3*(width+gap), top+bottom+vg.Length(len(all))*row
	return save(path, w, h, func(c draw.Canvas) {
		for k, column := range columns {
			left := margin + vg.Length(k)*(width+gap)
			at := func(e int) vg.Length { return left + vg.Length(e-first)*binade }
			title := text(10)
			title.XAlign, title.YAlign = draw.XCenter, draw.YTop
			c.FillText(title, vg.Point{X: left + width/2, Y: h - gap/3}, column.name)
			for i := range all {
				y := h - top - vg.Length(i)*row
				if k == 0 {
					name := style
					name.XAlign, name.YAlign = draw.XRight, draw.YCenter
					c.FillText(name, vg.Point{X: left - gap/3, Y: y - row/2}, all[i].Layer)
				}
				strip(c, column.of(&all[i]), y, row*0.9, first, last, at)
			}
			for _, l := range limits {
				if l.at < first || l.at > last+1 {
					continue
				}
				line := draw.LineStyle{Color: grey, Width: vg.Points(0.7), Dashes: []vg.Length{vg.Points(3), vg.Points(2)}}
				c.StrokeLine2(line, at(l.at), bottom, at(l.at), h-top+gap/4)
				label := text(6)
				label.Rotation, label.YAlign = math.Pi/4, draw.YBottom
				c.FillText(label, vg.Point{X: at(l.at), Y: h - top + gap/4}, l.label)
			}
			tick := text(7)
			tick.XAlign, tick.YAlign = draw.XCenter, draw.YTop
			for e := first; e <= last+1; e++ {
				if step := 8 * (1 + (last-first)/100); e%step == 0 {
					c.FillText(tick, vg.Point{X: at(e), Y: bottom - gap/4}, fmt.Sprint(e))
				}
			}
		}
		axis := text(8)
		axis.XAlign = draw.XCenter
		c.FillText(axis, vg.Point{X: w / 2, Y: gap / 4}, "exponent e of 2^e")
		beyond(c, first, last, gap/4)
	})
}

// strip draws one row: the share of each binade as a shade.
func strip(c draw.Canvas, h *exponents.Histogram, y, height vg.Length, first, last int, at func(int) vg.Length) {
	var high int64 = 1
	for e := first; e <= last; e++ {
		high = max(high, h.Binade(e))
	}
	for e := first; e <= last; e++ {
		n := h.Binade(e)
		if n == 0 {
			continue
		}
		// The root shows what is rare.
		share := math.Sqrt(float64(n) / float64(high))
		fill := color.RGBA{uint8(235 - share*235), uint8(245 - share*(245-114)), uint8(255 - share*(255-178)), 255}
		c.FillPolygon(fill, []vg.Point{{X: at(e), Y: y}, {X: at(e + 1), Y: y}, {X: at(e + 1), Y: y - height}, {X: at(e), Y: y - height}})
	}
	lost := text(6)
	lost.Color, lost.YAlign = orange, draw.YCenter
	if h.Float16Zeros > 0 {
		c.FillText(lost, vg.Point{X: at(first), Y: y - height/2}, exponents.Percent(h.Float16Zeros, h.Count))
	}
	if h.Float16Infinities > 0 {
		lost.XAlign = draw.XRight
		c.FillText(lost, vg.Point{X: at(last + 1), Y: y - height/2}, exponents.Percent(h.Float16Infinities, h.Count))
	}
}
