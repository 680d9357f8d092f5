package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mezzo-ml/mezzo/policy"
)

// policies describes the policies of a point.
func (p *Point) policies() string {
	if len(p.Map) == 0 {
		return p.Policy
	}
	return fmt.Sprintf("%s with %#v", p.Policy, p.Map)
}

// short is policies for a column of a table: how many layers have others.
func (p *Point) short() string {
	of := map[string][]string{}
	for path, name := range p.Map {
		if name != p.Policy {
			of[name] = append(of[name], path)
		}
	}
	s := p.Policy
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if paths := of[name]; len(paths) == 1 {
			s += fmt.Sprintf(", %s %s", paths[0], name)
		} else {
			s += fmt.Sprintf(", %d layers %s", len(paths), name)
		}
	}
	return s
}

// String prints the points as a table: what was rejected with the reason, the choice, and
// the others, which are worse by the goal. Below it are the policies of the choice.
func (r *SearchResult) String() string {
	var s strings.Builder
	what := map[Goal]string{MinTime: "the fastest step", MinMemory: "the smallest step", MinError: "the most exact step"}[r.Goal]
	fmt.Fprintf(&s, "%s with a loss within %s of float32's over %d steps:\n", what, percent(r.Tolerance), r.Steps)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ttime\tmemory\tpredicted\tloss off by\tpolicies\t")
	row := func(mark string, p *Point, note string) {
		loss := "-"
		if v := p.Verified; v != nil && (v.OK || v.Loss != [2]float64{}) {
			loss = percent(v.Loss[0]) + ", " + percent(v.Loss[1])
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%s\t%s\t%s\n", mark, timeText(p.Seconds), p.Memory, percent(p.Predicted), loss, p.short(), note)
	}
	for i := range r.Rejected {
		row("no", &r.Rejected[i], r.Rejected[i].Verified.Why)
	}
	for i := range r.Points {
		switch p := &r.Points[i]; {
		case p == r.Chosen:
			row("yes", p, "")
		case p.Dominated:
			row("", p, "dominated")
		default:
			row("", p, "")
		}
	}
	w.Flush()
	for line := range strings.Lines(table.String()) {
		s.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if r.Chosen == nil {
		s.WriteString("no choice is within the budget\n")
	} else {
		fmt.Fprintf(&s, "the choice: %s\n", r.Chosen.policies())
	}
	return s.String()
}

// timeText prints seconds with three digits.
func timeText(seconds float64) string {
	d := time.Duration(seconds * 1e9)
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", seconds)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g µs", seconds*1e6)
}

type jsonSearch struct {
	Goal      Goal            `json:"goal"`
	Tolerance number          `json:"tolerance"`
	Steps     int             `json:"steps"`
	Chosen    *jsonPoint      `json:"chosen"`
	Points    []jsonPoint     `json:"points"`
	Rejected  []jsonPoint     `json:"rejected"`
	Layers    []jsonLayerCost `json:"layers"`
	Times     []StepTime      `json:"times"`
}

type jsonPoint struct {
	Policy    string            `json:"policy"`
	Map       policy.Map        `json:"map"`
	Seconds   number            `json:"seconds"`
	Memory    int64             `json:"memory"`
	Predicted number            `json:"predicted"`
	Dominated bool              `json:"dominated"`
	Verified  *jsonVerification `json:"verified"`
}

type jsonVerification struct {
	OK       bool      `json:"ok"`
	Why      string    `json:"why"`
	Loss     [2]number `json:"loss"`
	Skipped  [2]int    `json:"skipped"`
	Metric   number    `json:"metric"`
	Gradient number    `json:"gradient"`
	Worst    string    `json:"worst"`
}

type jsonLayerCost struct {
	Layer   string `json:"layer"`
	Policy  string `json:"policy"`
	Error   number `json:"error"`
	Seconds number `json:"seconds"`
	Memory  int64  `json:"memory"`
}

// MarshalJSON returns the result as JSON, in fields of snake_case. Numbers that JSON
// lacks are the strings "Infinity", "-Infinity" and "NaN". Memory is in bytes. "chosen"
// is null if there is none, "verified" where a point was not tried.
func (r *SearchResult) MarshalJSON() ([]byte, error) {
	j := jsonSearch{
		Goal: r.Goal, Tolerance: number(r.Tolerance), Steps: r.Steps,
		Points: jsonPoints(r.Points), Rejected: jsonPoints(r.Rejected), Layers: []jsonLayerCost{}, Times: append([]StepTime{}, r.Times...),
	}
	if r.Chosen != nil {
		j.Chosen = &j.Points[0]
	}
	for _, l := range r.Layers {
		j.Layers = append(j.Layers, jsonLayerCost{l.Layer, l.Policy, number(l.Error), number(l.Seconds), int64(l.Memory)})
	}
	return json.Marshal(j)
}

func jsonPoints(points []Point) []jsonPoint {
	all := []jsonPoint{}
	for _, p := range points {
		j := jsonPoint{p.Policy, p.Map, number(p.Seconds), int64(p.Memory), number(p.Predicted), p.Dominated, nil}
		if v := p.Verified; v != nil {
			j.Verified = &jsonVerification{v.OK, v.Why, [2]number{number(v.Loss[0]), number(v.Loss[1])}, v.Skipped, number(v.Metric), number(v.Gradient), v.Worst}
		}
		all = append(all, j)
	}
	return all
}
