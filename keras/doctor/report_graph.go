package doctor

import (
	_ "embed"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/op"
)

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
