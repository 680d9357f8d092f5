package doctor

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/op"
)

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
