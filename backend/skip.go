package backend

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Cache names something that is kept from one run to the next. Each has one
// owner, which says when it is stale, and none changes a bit of a result: with
// all of them switched off everything is computed anew, which is the truth that
// the others are compared with.
type Cache string

// The caches, each with its owner.
const (
	PackedOperands Cache = "packed-operands" // weights in the order that product kernels read them: a CPU program, by the version of their buffer
	ShadowWeights  Cache = "shadow-weights"  // 16-bit copies of variables: the variable, by the version of its buffer
	Plans          Cache = "plans"           // compiled recordings: the Function, by the types of its arguments
	Programs       Cache = "programs"        // compiled graphs of the process: Compile, by the text of the graph
	Arenas         Cache = "arenas"          // memory of finished runs for the next ones: a program
	Results        Cache = "results"         // memory of released results for the next ones: a plan
	CapturedGraphs Cache = "captured-graphs" // launches captured by CUDA: a CUDA program, by the addresses of its buffers
)

// Caches lists them.
var Caches = []Cache{PackedOperands, ShadowWeights, Plans, Programs, Arenas, Results, CapturedGraphs}

// The words of what changes the last bits of results, depth-first of 16-bit types on AMX alone:
// see Folds and DepthFirst. Words for several things leave them out.
const (
	folding    = "folding"
	depthFirst = "depth-first"
)

// Skips is the caches and the optional passes of ir.Optimize that MEZZO_SKIP switches
// off.
type Skips struct {
	caches  map[Cache]bool
	passes  []string
	folding bool
	layers  bool // depth-first is switched off
	key     string
}

// ParseSkips reads a value of MEZZO_SKIP: a comma-separated list of caches and
// passes, "all" for all of them, "caches" or "passes" for all of a kind.
func ParseSkips(list string) (*Skips, error) {
	s := &Skips{caches: map[Cache]bool{}}
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		caches, passes := word == "all" || word == "caches", word == "all" || word == "passes"
		for _, c := range Caches {
			if caches || word == string(c) {
				s.caches[c] = true
			}
		}
		for _, p := range ir.OptionalPasses() {
			if (passes || word == p) && !slices.Contains(s.passes, p) {
				s.passes = append(s.passes, p)
			}
		}
		s.folding = s.folding || word == folding
		s.layers = s.layers || word == depthFirst
		if word != "" && word != folding && word != depthFirst && !caches && !passes && !s.caches[Cache(word)] && !slices.Contains(s.passes, word) {
			return nil, fmt.Errorf("MEZZO_SKIP: unknown word %q; want a comma-separated list of %s", word, strings.Join(SkipWords(), ", "))
		}
	}
	if s.layers {
		s.key = depthFirst + ","
	}
	for _, c := range Caches {
		if s.caches[c] {
			s.key += string(c) + ","
		}
	}
	return s, nil
}

// SkipWords lists the words that MEZZO_SKIP understands.
func SkipWords() []string {
	words := []string{"all", "caches", "passes"}
	for _, c := range Caches {
		words = append(words, string(c))
	}
	return append(append(words, folding, depthFirst), ir.OptionalPasses()...)
}

// skips is the current setting.
var skips = func() (now atomic.Pointer[Skips]) {
	s, err := ParseSkips(os.Getenv("MEZZO_SKIP"))
	if err != nil { // a debugging aid must not stop a program
		fmt.Fprintln(os.Stderr, err)
		s, _ = ParseSkips("")
	}
	now.Store(s)
	return
}()

// Keeps reports whether a cache is on. Its owner must ask before it stores something,
// and when it compiles code that could.
func Keeps(c Cache) bool { return !skips.Load().caches[c] }

// Folds reports whether predictions fold batch normalization into the kernels before it:
// see tensor.Func.FoldNormalization.
func Folds() bool { return !skips.Load().folding }

// DepthFirst reports whether predictions of a batch compute convolutions sample by sample, all
// layers of a sample before the next one, where that keeps activations in the caches. That
// depends on the instruction set, so that bits must not be portable.
func DepthFirst() bool { return !skips.Load().layers && CurrentBits() == FastBits }

// SkippedPasses lists the optional passes that every compilation leaves out.
func SkippedPasses() []string { return skips.Load().passes }

// SetSkips replaces the setting of MEZZO_SKIP and returns the one before, for tests.
// Earlier cached data and compiled programs are unaffected.
func SetSkips(s *Skips) (before *Skips) { return skips.Swap(s) }

// Skipping reports whether anything is switched off: plans, memory and allocations then
// differ from the expectations of tests.
func Skipping() bool { s := skips.Load(); return s.key != "" || len(s.passes) > 0 || s.folding }
