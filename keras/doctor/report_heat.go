package doctor

import (
	_ "embed"
	"fmt"
	"math"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

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
