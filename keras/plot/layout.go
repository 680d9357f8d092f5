package plot

import (
	"cmp"
	"image/color"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// place is what stands side by side with others in a row of the picture: the
// box of a node, or the way of a line past the boxes of that row.
type place struct {
	node  int   // -1: a way
	from  []int // places of the row before
	x     vg.Length
	order float64
}

// layered puts the nodes into rows by their depths. A line that skips rows, as
// residual connections do, has a place in each of them, so that no box hides it
// (Sugiyama, Tagawa, Toda 1981). Within a row places are in the order of the
// means of those that they come from.
func layered(nodes []node) [][]*place {
	var rows [][]*place
	at := make([][]int, len(nodes)) // index of the place in its row, then those of its way down, which all lines share
	for i, n := range nodes {
		for len(rows) <= n.depth {
			rows = append(rows, nil)
		}
		rows[n.depth] = append(rows[n.depth], &place{node: i})
	}
	for d := range rows {
		for k, p := range rows[d] {
			if p.node >= 0 && at[p.node] == nil {
				at[p.node] = []int{k}
			}
		}
	}
	for i, n := range nodes {
		p := rows[n.depth][at[i][0]]
		for _, f := range n.from {
			from := nodes[f].depth
			for d := from + 1; d < n.depth; d++ { // ways
				if len(at[f]) <= d-from {
					rows[d] = append(rows[d], &place{node: -1, from: []int{at[f][d-from-1]}})
					at[f] = append(at[f], len(rows[d])-1)
				}
			}
			p.from = append(p.from, at[f][n.depth-from-1])
		}
	}
	for d, row := range rows {
		for k, p := range row {
			p.order = float64(k)
			for i, f := range p.from {
				if i == 0 {
					p.order = 0
				}
				p.order += rows[d-1][f].order / float64(len(p.from))
			}
		}
		sorted := slices.Clone(row)
		slices.SortStableFunc(sorted, func(a, b *place) int { return cmp.Compare(a.order, b.order) })
		for k, p := range sorted {
			p.order = float64(k) - float64(len(row)-1)/2
		}
	}
	return rows
}

// boxes draws the nodes, those of a depth side by side.
func boxes(path string, nodes []node) error {
	const high, gapX, gapY, pad, way = 1.1 * vg.Centimeter, 0.6 * vg.Centimeter, 0.8 * vg.Centimeter, 0.3 * vg.Centimeter, 0.3 * vg.Centimeter
	title, detail := text(9), text(8)
	wide := 2 * vg.Centimeter
	for _, n := range nodes {
		wide = max(wide, title.Width(n.title)+2*pad, detail.Width(n.detail)+2*pad)
	}
	rows := layered(nodes)
	width := func(p *place) vg.Length {
		if p.node < 0 {
			return way
		}
		return wide
	}
	var w vg.Length
	for _, row := range rows {
		sum := gapX
		for _, p := range row {
			sum += width(p) + gapX
		}
		w = max(w, sum)
	}
	for _, row := range rows {
		sorted := slices.SortedStableFunc(slices.Values(row), func(a, b *place) int { return cmp.Compare(a.order, b.order) })
		x := w/2 + gapX/2
		for _, p := range row {
			x -= (width(p) + gapX) / 2
		}
		for _, p := range sorted {
			p.x = x + width(p)/2
			x += width(p) + gapX
		}
	}
	h := vg.Length(len(rows))*(high+gapY) + gapY
	middle := func(row int) vg.Length { return h - gapY - high/2 - vg.Length(row)*(high+gapY) }
	for _, s := range []*draw.TextStyle{&title, &detail} {
		s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
	}
	return save(path, w, h, func(c draw.Canvas) {
		line := draw.LineStyle{Color: grey, Width: vg.Points(1)}
		for d, row := range rows {
			for _, p := range row {
				to := vg.Point{X: p.x, Y: middle(d) + high/2}
				for _, f := range p.from {
					c.StrokeLines(line, []vg.Point{{X: rows[d-1][f].x, Y: middle(d-1) - high/2}, to})
				}
				if p.node < 0 {
					c.StrokeLines(line, []vg.Point{to, {X: p.x, Y: middle(d) - high/2}})
				} else if len(p.from) > 0 {
					const tip = 1.5 * vg.Millimeter
					c.FillPolygon(grey, []vg.Point{to, {X: to.X - tip/2, Y: to.Y + tip}, {X: to.X + tip/2, Y: to.Y + tip}})
				}
			}
		}
		for d, row := range rows {
			for _, p := range row {
				if p.node < 0 {
					continue
				}
				n, y := nodes[p.node], middle(d)
				box := []vg.Point{{X: p.x - wide/2, Y: y - high/2}, {X: p.x + wide/2, Y: y - high/2}, {X: p.x + wide/2, Y: y + high/2}, {X: p.x - wide/2, Y: y + high/2}}
				c.FillPolygon(color.RGBA{235, 243, 250, 255}, box)
				c.StrokeLines(draw.LineStyle{Color: blue, Width: vg.Points(1)}, append(box, box[0]))
				c.FillText(title, vg.Point{X: p.x, Y: y + high/5}, n.title)
				c.FillText(detail, vg.Point{X: p.x, Y: y - high/4}, n.detail)
			}
		}
	})
}
