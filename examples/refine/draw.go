package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
)

// Colours that are told apart also by the colour-blind (Okabe and Ito).
var colors = map[string]color.Color{
	"float64":  color.RGBA{0, 0, 0, 255},
	"float32":  color.RGBA{0, 114, 178, 255},
	"bfloat16": color.RGBA{213, 94, 0, 255},
	"float16":  color.RGBA{0, 158, 115, 255},
}

// draw draws backward errors over the condition number, for the largest n, and
// times over n, for the smallest condition number. Systems that did not converge
// have no time.
func draw(path string, rows []row) error {
	format := strings.TrimPrefix(filepath.Ext(path), ".")
	if !slices.Contains([]string{"svg", "png", "pdf"}, format) {
		return fmt.Errorf("-plot: got %q, want a file .svg, .png or .pdf", path)
	}
	largest, smallest := 0, math.Inf(1)
	for _, r := range rows {
		largest, smallest = max(largest, r.n), min(smallest, r.condition)
	}
	errors, err := panel(fmt.Sprintf("n = %d", largest), "condition number", "backward error", rows, func(r row) (x, y float64, ok bool) {
		return r.condition, r.backward, r.n == largest && r.backward > 0
	})
	if err != nil {
		return err
	}
	times, err := panel(fmt.Sprintf("condition number %.0e", smallest), "n", "time, s", rows, func(r row) (x, y float64, ok bool) {
		return float64(r.n), r.time.Seconds(), r.condition == smallest && r.converged
	})
	if err != nil {
		return err
	}
	times.Legend.Top, times.Legend.Left = true, true
	c, err := vgdraw.NewFormattedCanvas(24*vg.Centimeter, 9*vg.Centimeter, format)
	if err != nil {
		return err
	}
	panels := [][]*plot.Plot{{errors, times}}
	tiles := vgdraw.Tiles{Rows: 1, Cols: 2, PadX: 8 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter, PadLeft: 2 * vg.Millimeter}
	for i, canvas := range plot.Align(panels, tiles, vgdraw.New(c))[0] {
		panels[0][i].Draw(canvas)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// panel draws one line for each type, on logarithmic axes.
func panel(title, x, y string, rows []row, point func(row) (x, y float64, ok bool)) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	for _, name := range []string{"float64", "float32", "bfloat16", "float16"} {
		var points plotter.XYs
		for _, r := range rows {
			if x, y, ok := point(r); ok && r.factors == name {
				points = append(points, plotter.XY{X: x, Y: y})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width, dots.Color = colors[name], vg.Points(1.5), colors[name]
		p.Add(line, dots)
		p.Legend.Add(name, line, dots)
	}
	// A logarithmic axis of one value has no length.
	p.X.Min, p.X.Max = p.X.Min/1.1, p.X.Max*1.1
	p.Y.Min, p.Y.Max = p.Y.Min/1.1, p.Y.Max*1.1
	return p, nil
}
