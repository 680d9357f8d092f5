package ir

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// directions records the scans of a bidirectional layer over units; the input of the
// second may depend on the first, and so many elements are computed between them.
func directions(stacked bool, between int) *builder {
	b := build()
	const steps, batch, units = 3, 1, 4
	x, h := b.do(op.Exp, b.param(f32, steps, batch, units)), b.param(f32, batch, units)
	scan := func(x *Value, reverse bool) *Value {
		u := b.do(op.Neg, b.param(f32, units, units))
		s := &op.Scan{Cell: op.TanhCell, Reverse: reverse, Steps: true}
		r := b.op(op.RNN, op.Attr{Scan: s}, x, u, h)
		at := s.Sections(steps, batch, units).Outputs
		return b.op(op.Result, op.Attr{Start: []int{at.Start}, Dims: op.Shape{steps, batch, units}}, r)
	}
	first := scan(x, false)
	if stacked {
		x = first
	}
	if between > 0 {
		big := b.broadcast(b.sum(x, f32, 0, 1, 2), between)
		b.Output(b.op(op.Max, op.Attr{Axes: []int{0}}, b.do(op.Exp, big)), -1)
		x = b.do(op.Add, x, b.broadcast(b.op(op.Max, op.Attr{Axes: []int{0}}, big), steps, batch, units))
	}
	b.Output(b.do(op.Add, first, scan(x, true)), -1)
	return b
}

// Both directions are next to each other, and no slot of one is an argument's of the
// other: Verify checks that, and finds a plan in which one is.
func TestHorizontal(t *testing.T) {
	b := directions(false, 0)
	text := optimize(t, b, "", Options{Check: true})
	if strings.Count(text, "  with the one before\n") != 1 {
		t.Fatalf("got\n%s\nwant one pair of scans", text)
	}
	for i, v := range b.Values {
		if !v.Concurrent {
			continue
		}
		slot := v.Slot
		v.Slot = b.Values[i-1].Args[0].Slot
		if err := b.Verify(); err == nil || !strings.Contains(err.Error(), "is concurrent with") {
			t.Errorf("got %v, want an error: a result is written over an argument of the other scan", err)
		}
		v.Slot = slot
		b.Values[i-1].Concurrent = true
		if err := b.Verify(); err == nil || !strings.Contains(err.Error(), "is concurrent with") {
			t.Errorf("got %v, want an error: three in a group", err)
		}
		b.Values[i-1].Concurrent = false
	}
	if err := b.Verify(); err != nil {
		t.Error(err)
	}
}

// Scans that depend on each other, or between which much is computed, are no pairs.
func TestHorizontalNot(t *testing.T) {
	for name, b := range map[string]*builder{
		"stacked": directions(true, 0), "much between": directions(false, horizontalBytes),
	} {
		if text := optimize(t, b, "", Options{Check: true}); strings.Contains(text, "with the one before") {
			t.Errorf("%s: got\n%s\nwant no pair", name, text)
		}
	}
	if text := optimize(t, directions(false, 0), "", Options{Check: true, Skip: []string{"horizontal"}}); strings.Contains(text, "with the one before") {
		t.Errorf("the pass was skipped, got\n%s", text)
	}
}
