package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Options choose what Optimize does. The zero value is the default.
type Options struct {
	// Skip names optional passes to leave out ([OptionalPasses] lists them).
	// No result changes by a bit.
	Skip []string

	// Check verifies the graph after each pass and shuffles it before each, as far as
	// its order is free, so that no pass depends on order.
	Check bool

	// Watch keeps every value alive in its own memory, so that a run can show each one:
	// no fusion, no shared buffers, no donated inputs.
	Watch bool

	// Unbounded allows plans that need more memory than the device may use, for plans
	// that are only inspected.
	Unbounded bool

	// Once says that the program is not remembered for graphs like this one: it is large,
	// and seldom run again by others.
	Once bool

	// Packs, when not nil, reports whether the device wants the results of an operation as
	// one vector: then the pass split leaves it as it is.
	Packs func(op.Code) bool

	// Trace, when not nil, is called with the graph before the first pass
	// (name "") and after each one.
	Trace func(pass string, g *Graph)
}

// Key returns a key of the options for the cache of compiled programs.
func (o Options) Key() string {
	skip := slices.Clone(o.Skip)
	slices.Sort(skip)
	return fmt.Sprintf("skip=%s check=%v watch=%v", strings.Join(slices.Compact(skip), ","), o.Check, o.Watch)
}

func (o Options) skips(name string) bool { return slices.Contains(o.Skip, name) }
