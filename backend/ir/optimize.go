package ir

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// pass is one step of Optimize.
type pass struct {
	name     string
	run      func(*Graph)
	optional bool // may be skipped by name; no result changes by a bit
	hides    bool // left out by Options.Watch: values vanish or share memory
}

// passes run in this order. What must stay in front of what, and why, is in
// passOrder, which a test holds against this table.
var passes = [...]pass{
	// Layers cast what they are given without looking at what it was, so
	// chains of casts are common and most do nothing.
	{name: "casts", run: casts, optional: true},
	// Layers record the same cast of a weight, the same constant and, in
	// gradients, the same transpose again and again.
	{name: "cse", run: cse, optional: true},
	// A gradient that wants a sum in float32 next to a layer that wants it in
	// 16 bits need not compute it twice.
	{name: "narrow", run: narrow, optional: true},
	// Gradients record more than anybody asked for, and the passes above
	// leave values behind that they replaced.
	{name: "dead", run: dead, optional: true},
	// What has several results is packed into one vector. Copies of what is read
	// of it, and casts, cost more than to write each to its place.
	{name: "apart", run: apart, optional: true, hides: true},
	// Element-wise operations wait for memory: a chain in one pass over its
	// operands costs as much as its slowest part.
	{name: "fuse", run: fuse, optional: true, hides: true},
	// What follows a product and reads it once costs nothing while the product
	// is in the cache.
	{name: "epilogue", run: epilogue, optional: true, hides: true},
	// A variable that is updated in place needs no second copy.
	{name: "donate", run: donate, optional: true, hides: true},
	// A plan is a list: this settles its order, and that all which overwrites
	// inputs comes last.
	{name: "schedule", run: schedule},
	// The slots of an optimizer and the weights that move with them are one
	// pass over memory; the order says what may be computed together.
	{name: "join", run: join, optional: true, hides: true},
	// Every value gets its place; arena values still lie side by side.
	{name: "memory", run: memory},
	// Values that are not alive at the same time share memory.
	{name: "reuse", run: reuse, optional: true, hides: true},
}

// passOrder lists pairs of passes of which the first must run before the
// second.
var passOrder = [...][2]string{
	{"casts", "cse"},       // equal values cast in different ways become one
	{"cse", "narrow"},      // twins are found by having the same arguments
	{"narrow", "dead"},     // what lost its last user goes
	{"cse", "fuse"},        // two users of one value are seen as such
	{"dead", "fuse"},       // a dead user would keep a value out of a group
	{"cse", "apart"},       // each part is read by one Part
	{"dead", "apart"},      // a dead reader would keep a value whole
	{"apart", "fuse"},      // casts of parts go into them, not into chains
	{"fuse", "epilogue"},   // whole chains move, not their first link
	{"epilogue", "donate"}, // what overwrites an input stays element-wise
	{"fuse", "donate"},     // who reads an old value is known after fusion
	{"donate", "schedule"}, // the order depends on what is overwritten
	{"schedule", "join"},   // what lies between two values is known
	{"join", "memory"},     // lifetimes depend on the order
	{"memory", "reuse"},    // reuse moves what memory has placed
}

// OptionalPasses lists the passes that Options.Skip may name, in the order
// they run.
func OptionalPasses() []string {
	var names []string
	for _, p := range passes {
		if p.optional {
			names = append(names, p.name)
		}
	}
	return names
}

// Optimize makes a plan of g: fewer values, in the order to compute them,
// each with its slot. Afterwards a value's ID is its position. Errors: an
// unknown name in o.Skip and, with o.Check, a graph that breaks a rule, with
// the name of the pass that did.
func Optimize(g *Graph, o Options) error {
	for _, name := range o.Skip {
		if !slices.Contains(OptionalPasses(), name) {
			return fmt.Errorf("ir: cannot skip pass %q; optional passes are %q", name, OptionalPasses())
		}
	}
	g.number()
	g.Donated = slices.Repeat([]int{-1}, len(g.Outputs))
	g.Commit, g.ArenaBytes, g.Watched = len(g.Values), 0, o.Watch
	if o.Check {
		if err := g.check(); err != nil {
			return fmt.Errorf("ir: before the first pass: %w", err)
		}
	}
	if o.Trace != nil {
		o.Trace("", g)
	}
	ordered := false
	for i, p := range passes {
		if p.optional && o.skips(p.name) || p.hides && o.Watch {
			continue
		}
		if o.Check && !ordered {
			// The seed is fixed: a failure must come again.
			g.shuffle(rand.New(rand.NewPCG(1, uint64(i))))
		}
		p.guarded(g)
		ordered = ordered || p.name == "schedule"
		if o.Check {
			if err := g.check(); err != nil {
				return fmt.Errorf("ir: after pass %s: %w", p.name, err)
			}
		}
		if o.Trace != nil {
			o.Trace(p.name, g)
		}
	}
	g.number()
	if o.Check {
		if err := g.Verify(); err != nil {
			return fmt.Errorf("ir: %w", err)
		}
	}
	return nil
}

// guarded runs p; a panic in it names the pass.
func (p pass) guarded(g *Graph) {
	defer func() {
		if r := recover(); r != nil {
			panic(fmt.Sprintf("ir: pass %s: %v", p.name, r))
		}
	}()
	p.run(g)
}

// number makes every value's ID its position.
func (g *Graph) number() {
	for i, v := range g.Values {
		v.ID = i
	}
}

// add appends a value made by a pass, with an ID that no other value has.
func (g *Graph) add(c op.Code, a op.Attr, t op.Type, path string, args ...*Value) *Value {
	id := 0
	for _, v := range g.Values {
		id = max(id, v.ID+1)
	}
	v := g.Add(c, a, t, path, args...)
	v.ID = id
	return v
}

// sort puts the values into the one order that IDs and arguments determine:
// as recorded, but each value after its arguments. A pass whose result depends
// on who comes first starts with it.
func (g *Graph) sort() {
	byID := slices.SortedFunc(slices.Values(g.Values), func(a, b *Value) int { return cmp.Compare(a.ID, b.ID) })
	w := walk{seen: make(map[*Value]bool, len(byID)), order: g.Values[:0]}
	for _, v := range byID {
		w.visit(v)
	}
	g.Values = w.order
}

// walk collects values, each after its arguments.
type walk struct {
	seen  map[*Value]bool
	order []*Value
}

func (w *walk) visit(v *Value) {
	if w.seen[v] {
		return
	}
	w.seen[v] = true
	for _, a := range v.Args {
		w.visit(a)
	}
	w.order = append(w.order, v)
}

// shuffle puts the values into a random topological order.
func (g *Graph) shuffle(r *rand.Rand) {
	users := g.users()
	waits := make(map[*Value]int, len(g.Values))
	var ready []*Value
	for _, v := range g.Values {
		waits[v] = distinct(v.Args)
		if waits[v] == 0 {
			ready = append(ready, v)
		}
	}
	order := make([]*Value, 0, len(g.Values))
	for len(ready) > 0 {
		i := r.IntN(len(ready))
		v := ready[i]
		ready = slices.Delete(ready, i, i+1)
		order = append(order, v)
		for _, u := range users[v] {
			if waits[u]--; waits[u] == 0 {
				ready = append(ready, u)
			}
		}
	}
	g.Values = order
}

// distinct counts the different values in args.
func distinct(args []*Value) int {
	n := 0
	for i, a := range args {
		if !slices.Contains(args[:i], a) {
			n++
		}
	}
	return n
}

// users lists for every value those that have it as an argument, each once,
// in the order of the graph.
func (g *Graph) users() map[*Value][]*Value {
	users := make(map[*Value][]*Value, len(g.Values))
	for _, v := range g.Values {
		for i, a := range v.Args {
			if !slices.Contains(v.Args[:i], a) {
				users[a] = append(users[a], v)
			}
		}
	}
	return users
}

// outputs is the set of values that are outputs.
func (g *Graph) outputs() map[*Value]bool {
	set := make(map[*Value]bool, len(g.Outputs))
	for _, v := range g.Outputs {
		set[v] = true
	}
	return set
}

func elementwise(v *Value) bool { return v.Op.Info().Class == op.Elementwise }

// updates reports whether v may overwrite an input, and be computed once others
// were overwritten: it cannot fail, and does with what lies there what an update
// in place does. Besides the element-wise operations that is PutRows, which
// reads nothing but the rows that it puts into its first argument.
func updates(v *Value) bool { return elementwise(v) || v.Op == op.PutRows }
