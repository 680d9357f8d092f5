package ir

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// separable records a depthwise convolution of images of size by size by 8 and a convolution of
// single pixels, or of window pixels, behind it. The first one may be an output, too.
func separable(size, window int, output bool) *builder {
	b := build()
	one, zero := []int{1, 1}, []int{0, 0}
	x := b.do(op.Exp, b.param(f32, 1, size, size, 8))
	y := b.op(op.Conv, op.Attr{Stride: one, Dilation: one, Low: one, High: one, Groups: 8}, x, b.param(f32, 3, 3, 1, 8))
	z := b.op(op.Conv, op.Attr{Stride: one, Dilation: one, Low: zero, High: zero}, y, b.param(f32, window, window, 8, 16))
	b.Output(b.op(op.Max, op.Attr{Axes: []int{1, 2}}, z), -1)
	if output {
		b.Output(y, -1)
	}
	return b
}

// TestSeparable: the result of a pair does not lie where its source does; Verify checks that, and
// finds a plan in which it does.
func TestSeparable(t *testing.T) {
	b := separable(12, 1, false)
	text := optimize(t, b, "", Options{Check: true})
	if strings.Count(text, "  joined to the one before\n") != 1 {
		t.Fatalf("got\n%s\nwant one pair", text)
	}
	for i, v := range b.Values {
		if !v.Joined {
			continue
		}
		slot := v.Slot
		v.Slot = b.Values[i-1].Args[0].Slot
		if err := b.Verify(); err == nil || !strings.Contains(err.Error(), "is joined to") {
			t.Errorf("got %v, want an error: a result is written over the source", err)
		}
		v.Slot = slot
	}
	if err := b.Verify(); err != nil {
		t.Error(err)
	}
}

// TestSeparableNot: what is read elsewhere, has larger windows or much memory is no pair.
func TestSeparableNot(t *testing.T) {
	for name, b := range map[string]*builder{
		"an output": separable(12, 1, true), "windows": separable(12, 2, false), "much memory": separable(100, 1, false),
	} {
		if text := optimize(t, b, "", Options{Check: true}); strings.Contains(text, "joined to the one before") {
			t.Errorf("%s: got\n%s\nwant no pair", name, text)
		}
	}
	if text := optimize(t, separable(12, 1, false), "", Options{Check: true, Skip: []string{"separable"}}); strings.Contains(text, "joined to the one before") {
		t.Errorf("the pass was skipped, got\n%s", text)
	}
}
