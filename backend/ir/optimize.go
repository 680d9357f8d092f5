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

// passes run in this order. passOrder lists which must come before which, and why; a
// test compares the two.
var passes = [...]pass{
	// Layers cast their inputs whatever the type, so chains of casts are common
	// and most do nothing. Gradients multiply by 1.
	{name: "simplify", run: simplify, optional: true},
	// Layers record the same cast of a weight, the same constant and, in
	// gradients, the same transpose again and again.
	{name: "cse", run: cse, optional: true},
	// A gradient may use a sum in float32 that a layer uses in 16 bits: it is
	// computed once and rounded.
	{name: "precisions", run: mergePrecisions, optional: true},
	// Gradients record values that no output depends on, and the passes above
	// leave values without uses.
	{name: "dce", run: deadCode, optional: true},
	// An operation with several results packs them into one vector. Writing each
	// result to its own slot saves copies and casts.
	{name: "split", run: split, optional: true, hides: true},
	// Dense layers multiply matrices; what follows works on sequences. In one shape,
	// it becomes an epilogue.
	{name: "reshapes", run: moveReshapes, optional: true, hides: true},
	// Element-wise operations are bound by memory: one pass over the operands of
	// a chain costs as much as the slowest operation of it.
	{name: "fuse", run: fuse, optional: true, hides: true},
	// An epilogue costs nothing while the product is in the cache.
	{name: "epilogue", run: epilogue, optional: true, hides: true},
	// Quantized convolutions one after the other exchange 8-bit integers.
	{name: "requantize", run: requantize, optional: true, hides: true},
	// A variable that is updated in place needs no second copy.
	{name: "donate", run: donate, optional: true, hides: true},
	// A plan is a list: this decides its order. Values that overwrite inputs
	// come last.
	{name: "schedule", run: schedule},
	// The slots of an optimizer and the weights that it updates with them take
	// one pass over memory. Which values can be computed together depends on the
	// order.
	{name: "multioutput", run: fuseOutputs, optional: true, hides: true},
	// The directions of a bidirectional layer can run on two cores.
	{name: "horizontal", run: fuseHorizontally, optional: true, hides: true},
	// A depthwise convolution and the product behind it read and write memory once.
	{name: "separable", run: joinSeparable, optional: true, hides: true},
	// Every value gets a slot; those in the arena do not overlap yet.
	{name: "slots", run: assignSlots},
	// Values with disjoint live ranges share memory.
	{name: "share", run: shareBuffers, optional: true, hides: true},
}

// passOrder lists pairs of passes of which the first must run before the
// second.
var passOrder = [...][2]string{
	{"simplify", "cse"},           // equal values cast in different ways become one
	{"cse", "precisions"},         // duplicates are found by equal arguments
	{"precisions", "dce"},         // values without uses are removed
	{"cse", "fuse"},               // two users of one value are seen as such
	{"dce", "fuse"},               // a dead user would keep a value out of a group
	{"dce", "reshapes"},           // a dead user would keep a Reshape in its place
	{"reshapes", "fuse"},          // values of one shape are fused
	{"cse", "split"},              // each result is read by one Result
	{"dce", "split"},              // a dead user would keep a value whole
	{"split", "fuse"},             // casts of results are folded into them, not into chains
	{"fuse", "epilogue"},          // a whole chain becomes the epilogue
	{"epilogue", "requantize"},    // the result of the epilogue is quantized
	{"requantize", "donate"},      // a scale is read earlier
	{"epilogue", "donate"},        // values that overwrite an input stay element-wise
	{"fuse", "donate"},            // the users of an old value are known after fusion
	{"donate", "schedule"},        // the order depends on donated inputs
	{"schedule", "multioutput"},   // needs the values between two values
	{"multioutput", "slots"},      // live ranges depend on the order
	{"multioutput", "horizontal"}, // nothing comes between the members of a pair
	{"horizontal", "slots"},       // live ranges depend on the order and on pairs
	{"horizontal", "separable"},   // nothing comes between the members of a pair
	{"separable", "slots"},        // live ranges depend on pairs
	{"slots", "share"},            // moves slots that were assigned
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

// Optimize turns g into a plan: fewer values, in the order to compute them,
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
	g.Commit, g.ArenaBytes, g.Watched, g.packs = len(g.Values), 0, o.Watch, o.Packs
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

// sort restores the one order that IDs and arguments determine: as recorded, but each
// value after its arguments. A pass whose result depends on the order begins with it.
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

// users maps every value to the values that have it as an argument, each once, in the
// order of the graph.
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

// updates reports whether v may overwrite an input, and run after other inputs were
// overwritten: it cannot fail and can be computed in place.
func updates(v *Value) bool { return elementwise(v) || v.Op.Info().InPlace }

// inPlace reports whether v can be computed over its argument i: it reads element j of
// that argument, and no other, before it writes element j of its result.
func (v *Value) inPlace(i int) bool { return elementwise(v) || v.Op.Info().InPlace && i == 0 }
