package exec

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// named is a kernel of an algorithm.
type named string

func (named) Run(*Run)         {}
func (n named) String() string { return "kernel " + string(n) }

// TestChoose: the first algorithm that applies, pays and fits is taken, or the forced
// one, and the choice says why.
func TestChoose(t *testing.T) {
	row := func(name, applies, pays string, fits bool) Algorithm[int] {
		return Algorithm[int]{
			Name:    name,
			Applies: func(int) string { return applies },
			Pays:    func(int) string { return pays },
			Build: func(int) Kernel {
				if !fits {
					return nil
				}
				return named(name)
			},
		}
	}
	table := []Algorithm[int]{
		row("never", "no units", "", true), row("slow", "", "too small", true), row("tight", "", "", false), row("good", "", "", true), row("last", "", "", true),
	}
	g := ir.New(1)
	v := g.Add(op.Param, op.Attr{DType: dtype.Float32}, op.Type{DType: dtype.Float32}, "")
	for force, want := range map[string]string{
		"":        "good: kernel good (not never: no units; not slow: too small; not tight: does not fit)",
		"slow":    "slow: kernel slow (forced)",
		"never":   "good: kernel good (not never, which is forced: no units; not never: no units; not slow: too small; not tight: does not fit)",
		"unknown": "good: kernel good (not never: no units; not slow: too small; not tight: does not fit)",
	} {
		b := NewBuilder(&Plan{Graph: g})
		restore := Force("test", force)
		k := Choose(b, v, "test", table, 0)
		restore()
		if got := b.Choices[0].String(); got != want {
			t.Errorf("forced %q: the choice is\n%s\nwant\n%s", force, got, want)
		}
		if name, _, _ := strings.Cut(want, ":"); k != named(name) {
			t.Errorf("forced %q: the kernel is %v, want that of %s", force, k, name)
		}
	}
	if got := Forced("test"); got != "" {
		t.Errorf("%q is forced after the test", got)
	}
}
