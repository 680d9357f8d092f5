// Package ir is the graph that a device compiles: values in the order in which
// they are computed, the passes that improve it, and the plan of where each value
// lies in memory.
//
// Main types: [Graph] and [Value]. A graph is built by backend/tensor, put
// through [Optimize], and given to a driver.Device; after Optimize it is
// called a plan: a list of kernel calls on fixed slots of memory.
//
// Rules: a graph is in topological order at all times; a pass changes no bit
// of any result; devices trust a plan and check nothing.
//
// The passes are a table in optimize.go, in the order in which they run, each with
// its reason; passOrder says which must run before which. All but schedule and slots
// are optional ([Options].Skip). With Options.Check the graph is verified after each
// pass and shuffled before each, as far as its order is free.
//
// A granted donation lets an output overwrite an input. Everything that overwrites
// an input, and everything computed from it, can be computed in place and comes last,
// from Graph.Commit on. A run that fails before that point changes nothing; after it
// nothing can fail. If a donation is not granted, the output has its own buffer, and
// the caller swaps it with the old one after a successful run.
package ir

import (
	"slices"

	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Value is the result of one operation.
type Value struct {
	ID   int // position in Graph.Values after Optimize; unique before
	Op   op.Code
	Type op.Type
	Attr op.Attr
	Args []*Value
	Path string // recorder's path: "dense_1", "dense_1/grad", "rmsprop/dense_1/kernel"
	Slot Slot   // memory; set by the memory plan

	// Split reports that its results have their own slots and it has none: all its
	// users are Results. Set by a pass.
	Split bool

	// Concurrent reports that a device may compute the value at the same time as the one
	// directly before it: neither reads the other, and the slots of both and of their
	// arguments do not overlap. Set by a pass.
	Concurrent bool

	// Joined reports that a device may compute the value together with the one directly before
	// it, which is its first argument and which nothing else reads: its slot and those of that
	// one's arguments do not overlap. Set by a pass.
	Joined bool
}

// Place says which memory a slot is part of.
type Place uint8

// The places.
const (
	Nowhere Place = iota // not planned yet
	Arena                // the working memory of a run, from Offset
	Input                // the buffer of input Index
	Output               // the buffer of output Index
	Static               // a constant: belongs to the program
	Split                // no slot: each Result has its own
)

// Slot is where a value lies during a run.
//
// Slots of values that are live at the same time never overlap, with one exception: an
// element-wise value may have the same slot as arguments of the same shape and element
// size. A kernel must read element i of its operands before it writes element i, and
// may rely on no more. The result of an operation with [op.Info.InPlace] may have the
// slot of its first argument.
type Slot struct {
	Place  Place
	Index  int // Input, Output: which one
	Offset int // Arena: in bytes, a multiple of Align
}

// Align is the alignment of values in an arena, in bytes: a cache line, and
// the widest vector register.
const Align = 64

// Graph is a program.
//
// Values are in topological order. Params[i] is the Param of input i, or nil if the
// input is not used. Outputs may name any value except a Param or a Const, and none
// twice (the recorder inserts an Identity).
type Graph struct {
	Values  []*Value
	Params  []*Value
	Outputs []*Value

	// Donate names, for each output, the input whose buffer the caller would like it to
	// overwrite, or -1: an updated variable and the old one. Donated is the outcome: a
	// donation is not granted if no value reads the input, the sizes differ, or the
	// input is already overwritten.
	Donate []int

	// Set by Optimize.

	// Donated names, for each output, the input whose buffer it overwrites, or
	// -1. The caller passes that same buffer as input and output.
	Donated []int

	// Commit is the index in Values of the first value that overwrites an input. A run
	// that ends before it changes nothing. From it on there are only element-wise
	// operations and those with [op.Info.InPlace], which cannot fail, and the run goes
	// to its end. It is len(Values) if nothing is overwritten.
	Commit int

	// ArenaBytes is the working memory of a run.
	ArenaBytes int

	// Watched reports whether every value has its own memory, to be shown:
	// Options.Watch.
	Watched bool

	packs func(op.Code) bool // Options.Packs
}

// New returns an empty graph with n inputs.
func New(n int) *Graph { return &Graph{Params: make([]*Value, n)} }

// Add appends a value. t must come from op.Infer.
func (g *Graph) Add(c op.Code, a op.Attr, t op.Type, path string, args ...*Value) *Value {
	v := &Value{ID: len(g.Values), Op: c, Type: t, Attr: a, Args: args, Path: path}
	g.Values = append(g.Values, v)
	if c == op.Param {
		g.Params[a.Index] = v
	}
	return v
}

// Output appends an output; donate is the input it should overwrite, or -1.
func (g *Graph) Output(v *Value, donate int) {
	g.Outputs = append(g.Outputs, v)
	g.Donate = append(g.Donate, donate)
}

// String prints the graph in the format of golden files: a line for each
// value, then the outputs.
//
//	%3 = MatMul(%0 %1) float16[128 64] transB  # dense_1  @arena+4096
func (g *Graph) String() string {
	var s strings.Builder
	for _, v := range g.Values {
		fmt.Fprintf(&s, "%%%d = %v(", v.ID, v.Op)
		for i, a := range v.Args {
			if i > 0 {
				s.WriteByte(' ')
			}
			fmt.Fprintf(&s, "%%%d", a.ID)
		}
		fmt.Fprintf(&s, ") %v", v.Type)
		if a := v.Attr.String(); a != "" {
			fmt.Fprintf(&s, " %s", a)
		}
		if v.Path != "" {
			fmt.Fprintf(&s, "  # %s", v.Path)
		}
		if v.Slot.Place != Nowhere {
			fmt.Fprintf(&s, "  @%v", v.Slot)
		}
		if v.Concurrent {
			s.WriteString("  with the one before")
		}
		if v.Joined {
			s.WriteString("  joined to the one before")
		}
		s.WriteByte('\n')
	}
	for i, v := range g.Outputs {
		fmt.Fprintf(&s, "out %d = %%%d", i, v.ID)
		switch {
		case i < len(g.Donated) && g.Donated[i] >= 0:
			fmt.Fprintf(&s, " over input %d", g.Donated[i])
		case i < len(g.Donated):
		case g.Donate[i] >= 0:
			fmt.Fprintf(&s, " may overwrite input %d", g.Donate[i])
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// String prints "arena+4096", "in 2", "out 0", "static" or "split".
func (s Slot) String() string {
	switch s.Place {
	case Arena:
		return fmt.Sprintf("arena+%d", s.Offset)
	case Input:
		return fmt.Sprintf("in %d", s.Index)
	case Output:
		return fmt.Sprintf("out %d", s.Index)
	case Static:
		return "static"
	case Split:
		return "split"
	}
	return "nowhere"
}

// View reports whether v needs no computation in the plan because it lies in its
// argument's memory: a Reshape, a Barrier, an Identity that the plan merged, or a
// Result of a value in the arena.
func (v *Value) View() bool {
	if v.Slot.Place == Nowhere || !viewable(v) && v.Op != op.Result {
		return false
	}
	at := v.Args[0].Slot
	if v.Op == op.Result {
		if at.Place != Arena {
			return false
		}
		at.Offset += v.resultOffset()
	}
	return v.Slot == at
}

// resultOffset is where a Result begins in its argument, in bytes.
func (v *Value) resultOffset() int { return v.Attr.Start[0] * v.Type.DType.Size() }

// AppendKey appends an unambiguous encoding of the graph, as a key of the cache of
// compiled programs. It includes paths: a program names layers in its errors.
func (g *Graph) AppendKey(k []byte) []byte {
	put := func(n int) { k = append(k, byte(n), byte(n>>8), byte(n>>16), byte(n>>24)) }
	k = slices.Grow(k, 192*len(g.Values)) // what a value of a training step takes
	ids := make(map[*Value]int, len(g.Values))
	put(len(g.Values))
	put(len(g.Params))
	for i, v := range g.Values {
		ids[v] = i
		put(int(v.Op))
		k = append(k, byte(v.Type.DType))
		put(len(v.Type.Shape))
		for _, d := range v.Type.Shape {
			put(d)
			put(d >> 32)
		}
		k = v.Attr.AppendKey(k)
		put(len(v.Path))
		k = append(k, v.Path...)
		put(len(v.Args))
		for _, a := range v.Args {
			put(ids[a])
		}
	}
	put(len(g.Outputs))
	for i, v := range g.Outputs {
		put(ids[v])
		put(g.Donate[i])
	}
	return k
}

// Describe describes v for messages: "dense (MatMul float32[4 8])".
func (v *Value) Describe() string {
	if v.Path == "" {
		return fmt.Sprintf("%v %v", v.Op, v.Type)
	}
	return fmt.Sprintf("%s (%v %v)", v.Path, v.Op, v.Type)
}

// Describe describes g for messages: its size, and its first and last output.
func (g *Graph) Describe() string {
	name := fmt.Sprintf("the program of %d values", len(g.Values))
	if n := len(g.Outputs); n > 0 {
		name += fmt.Sprintf(" with the results %s … %s", g.Outputs[0].Describe(), g.Outputs[n-1].Describe())
	}
	return name
}

// DescribeBuffer describes the caller's buffer of output or input index, and what the
// program computes there.
func (g *Graph) DescribeBuffer(out bool, index int) string {
	name, place := fmt.Sprintf("the buffer of output %d", index), Output
	if !out {
		name, place = fmt.Sprintf("the buffer of input %d, %s", index, g.Params[index].Describe()), Input
	}
	for _, v := range g.Values {
		if v.Slot.Place == place && v.Slot.Index == index && v.Op != op.Param && !v.View() {
			name += "; written by " + v.Describe()
		}
	}
	return name
}
