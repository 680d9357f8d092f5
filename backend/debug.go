package backend

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Debug holds the switches of MEZZO_DEBUG: a comma-separated list, described in
// docs/debugging.md.
type Debug struct {
	Plan   bool // "plan": print each plan with slots and bytes when it is compiled, and nanoseconds per value after its third run
	Passes bool // "passes": print how many values each pass leaves
	Graph  bool // "graph": print each graph as recorded
	Eager  bool // "eager": compile and run each recorded operation at once
	NaN    bool // "nan": stop at the first value that is NaN or infinite
	Check  bool // "check": verify the graph between passes, in shuffled order; guards around the memory of kernels
	Pprof  bool // "pprof": label work with layer and operation, for profiles

	// Autocast is "autocast": print what tensor.Autocast lets compute in 16 bits, and why.
	Autocast bool

	// Trace is the file of "trace=FILE", "trace.json" of "trace": the third run
	// of each plan in Chrome's trace format.
	Trace string
}

// DebugSettings lists the words MEZZO_DEBUG understands.
var DebugSettings = []string{"plan", "passes", "graph", "eager", "nan", "check", "pprof", "autocast", "trace"}

// ParseDebug reads a value of MEZZO_DEBUG.
func ParseDebug(list string) (Debug, error) {
	var d Debug
	field := map[string]*bool{"plan": &d.Plan, "passes": &d.Passes, "graph": &d.Graph, "eager": &d.Eager, "nan": &d.NaN, "check": &d.Check, "pprof": &d.Pprof, "autocast": &d.Autocast}
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		if file, ok := strings.CutPrefix(word, "trace="); ok && file != "" {
			d.Trace = file
			continue
		}
		if word == "trace" {
			d.Trace = "trace.json"
			continue
		}
		f, ok := field[word]
		if !ok {
			return Debug{}, fmt.Errorf("MEZZO_DEBUG: unknown word %q; want a comma-separated list of %s", word, strings.Join(DebugSettings, ", "))
		}
		*f = true
	}
	return d, nil
}

// DebugFromEnv is MEZZO_DEBUG, read once. An unknown word is reported on
// standard error and the rest holds: a debugging aid must not stop a program.
var DebugFromEnv = sync.OnceValue(func() Debug {
	words := strings.Split(os.Getenv("MEZZO_DEBUG"), ",")
	good := slices.DeleteFunc(slices.Clone(words), func(w string) bool {
		_, err := ParseDebug(w)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return err != nil
	})
	d, _ := ParseDebug(strings.Join(good, ","))
	return d
})

// tracePasses is an ir.Options.Trace that prints how many values each pass
// leaves, and then calls next if that is not nil.
func tracePasses(next func(string, *ir.Graph)) func(string, *ir.Graph) {
	return func(pass string, g *ir.Graph) {
		what := "pass " + pass
		if pass == "" {
			what = "recorded"
		}
		fmt.Fprintf(os.Stderr, "%s: %d values\n", what, len(g.Values))
		if next != nil {
			next(pass, g)
		}
	}
}

// AlgorithmFamilies lists the families that MEZZO_ALGORITHM can force an algorithm of.
var AlgorithmFamilies = []string{"matmul", "conv", "wgrad", "attention", "pool", "rnn", "int8"}

// ParseAlgorithms reads a value of MEZZO_ALGORITHM: a comma-separated list of
// family:name.
func ParseAlgorithms(list string) (map[string]string, error) {
	all := map[string]string{}
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		family, name, ok := strings.Cut(word, ":")
		if !ok || name == "" || !slices.Contains(AlgorithmFamilies, family) {
			return nil, fmt.Errorf("MEZZO_ALGORITHM: got %q; want a comma-separated list of family:algorithm with a family of %s", word, strings.Join(AlgorithmFamilies, ", "))
		}
		all[family] = name
	}
	return all, nil
}

// algorithms is MEZZO_ALGORITHM, read once.
var algorithms = sync.OnceValue(func() map[string]string {
	all, err := ParseAlgorithms(os.Getenv("MEZZO_ALGORITHM"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return all
})

// ForcedAlgorithm returns the algorithm that MEZZO_ALGORITHM names for a family of
// operations, or "".
func ForcedAlgorithm(family string) string { return algorithms()[family] }

// deviceSetting is MEZZO_DEVICE, read once: the device to use by name.
var deviceSetting = sync.OnceValue(func() string { return os.Getenv("MEZZO_DEVICE") })
