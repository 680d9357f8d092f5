package scenario

import (
	"flag"
	"math"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

var (
	every  = flag.Bool("every", false, "run each scenario under every policy, and large batches, as CI does: twice as long")
	full   = flag.Bool("full", false, "with -every, compare instruction sets under every policy, and run scenarios also with caches or passes alone left out: four times as long")
	device = flag.String("device", "cpu", "compare this device with plain Go, instead of the instruction sets of the processor")
	survey = flag.Bool("survey", false, "with -v, say how near differences come to their tolerances")
)

var policies = []string{"float32", "mixed_float16", "mixed_bfloat16"}

// caches are what MEZZO_SKIP can name besides passes.
var caches = func() (names []string) {
	for _, c := range backend.Caches {
		names = append(names, string(c))
	}
	return names
}()

// configs are what scenarios run under: for each level (the lowest and the highest one,
// without -every), caches and passes on and off; of all, the second of the first level is the reference, which computes
// with plain Go and keeps nothing. Other levels keep plans and programs.
func configs(t testing.TB) (byLevel [][]config) {
	words, err := levels()
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case *device != "cpu":
	case testing.Short():
		words = words[len(words)-1:]
	case !*every && !*full && len(words) > 2:
		words = []string{words[0], words[len(words)-1]}
	}
	devices := slices.Repeat([]string{"cpu"}, len(words))
	if *device != "cpu" {
		words, devices = []string{"portable", "portable"}, []string{"cpu", *device}
	}
	for i, l := range words {
		none := everything
		if i > 0 && *device == "cpu" && !*full {
			// A program that is compiled anew in every call takes several times as
			// long, and is compiled in the same way for every level.
			none = allBut("plans", "programs")
		}
		list := []config{
			{Device: devices[i], Level: l, Procs: 2},
			{Device: devices[i], Level: l, Skip: none, Procs: 1},
			{Device: devices[i], Level: l, Skip: ir.OptionalPasses(), Procs: 1},
			{Device: devices[i], Level: l, Skip: caches, Procs: 3},
		}
		if !*full {
			list = list[:2]
		}
		byLevel = append(byLevel, list)
	}
	return byLevel
}

// TestScenarios runs each scenario under every instruction set of this
// processor, with caches and passes on and off. Within an instruction set all
// bits agree, and all agree with the reference within the tolerances.
//
// Each scenario runs under one policy: scenario i under number i modulo 3, in plain Go
// and on the highest level. With -every, which CI sets, it runs under this one on all
// levels, and under the other two on the highest level, with caches and passes on and off.
// With -full too it runs under all three on all levels.
func TestScenarios(t *testing.T) {
	byLevel := configs(t)
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			for j, p := range policies {
				inTurn := j == i%len(policies)
				if testing.Short() {
					inTurn = i%4 == 0 && j == i/4%len(policies)
				}
				switch {
				case inTurn, *every && *full, *every && *device != "cpu":
					t.Run(p, func(t *testing.T) { s.test(t, p, byLevel) })
				case *every && !testing.Short():
					t.Run(p, func(t *testing.T) { s.test(t, p, byLevel[len(byLevel)-1:]) })
				}
			}
		})
	}
}

// size is the size of the perturbations that tolerances are measured with.
func (s scenario) size(policy string) float64 {
	if s.recurrent && policy == "mixed_bfloat16" {
		return coarse
	}
	return perturbation
}

func (s scenario) test(t *testing.T, policy string, byLevel [][]config) {
	reference := byLevel[0][1]
	tasks := []task{{reference, job{Scenario: s.name, Policy: policy}}}
	for _, l := range byLevel {
		for _, c := range l {
			if c.String() != reference.String() {
				tasks = append(tasks, task{c, job{Scenario: s.name, Policy: policy}})
			}
		}
	}
	plain := len(tasks)
	perturbed := byLevel[0][0] // where perturbations are measured
	if len(byLevel) > 1 {
		if *device == "cpu" {
			perturbed = byLevel[1][0] // three times as fast as plain Go
		}
		for i := range trials {
			tasks = append(tasks, task{perturbed, job{Scenario: s.name, Policy: policy, Noise: uint64(1 + i), Size: s.size(policy)}})
		}
	}
	answers := pool.doAll(t, tasks)
	of := map[string][]record{}
	for i, a := range answers {
		if a.Err != "" {
			t.Fatalf("%v: %s", tasks[i].config, a.Err)
		}
		for _, b := range a.Broken {
			t.Errorf("%v: not so: %s", tasks[i].config, b)
		}
		if i < plain {
			of[tasks[i].config.String()] = a.Records
		}
	}
	for _, l := range byLevel {
		for _, c := range l[1:] {
			if err := sameBits(of[l[0].String()], of[c.String()]); err != nil {
				t.Errorf("%v and %v differ: %v", c, l[0], err)
			}
		}
	}
	if len(byLevel) == 1 {
		return
	}
	tolerance, err := tolerances(of[perturbed.String()], s.size(policy), recordsOf(answers[plain:])...)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(tolerance, func(x float64) bool { return math.IsInf(x, 1) }) {
		t.Error("the scenario is chaotic: across instruction sets it says nothing; give it other data or another rate")
	}
	for _, l := range byLevel[1:] {
		worst, at, err := closeTo(answers[0].Records, of[l[0].String()], tolerance)
		if err != nil {
			t.Errorf("%v and %v differ: %v", l[0], reference, err)
		}
		if *survey {
			t.Logf("%v: largest difference to %v: %.3f of its tolerance, at %s", l[0], reference, worst, at)
		}
	}
}

func recordsOf(answers []answer) (lists [][]record) {
	for _, a := range answers {
		lists = append(lists, a.Records)
	}
	return lists
}

// TestTolerances seeds a small error and sees that it is far outside the
// tolerances: what is predicted and judged between trainings is computed with
// weights of one step before. In 16 bits one step moves a model by not much more
// than rounding does. As in [TestScenarios], each runs under one policy, with
// -every and -full under all three.
func TestTolerances(t *testing.T) {
	words, err := levels()
	if err != nil {
		t.Fatal(err)
	}
	best := config{Level: words[len(words)-1], Procs: 1}
	least := map[string]float64{"float32": 100, "mixed_float16": 5, "mixed_bfloat16": 2} // tolerances that the error is off by
	for i, name := range []string{
		"predict between steps", "fit and evaluate, nothing written in between", "batch normalization in both modes", "pictures",
		"depthwise and separable convolutions", "LSTM", "a stateful LSTM", "texts with padding", "embeddings of which few rows move",
	} {
		s := scenarios[slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })]
		for j, p := range policies {
			if !(*every && *full) && j != i%len(policies) {
				continue
			}
			tasks := []task{{best, job{Scenario: s.name, Policy: p, Fault: "stale"}}}
			for i := range 1 + trials { // the first without noise
				tasks = append(tasks, task{best, job{Scenario: s.name, Policy: p, Noise: uint64(i), Size: s.size(p)}})
			}
			answers := pool.doAll(t, tasks)
			for _, a := range answers {
				if a.Err != "" {
					t.Fatalf("%s: %s", name, a.Err)
				}
			}
			lists := recordsOf(answers)
			tolerance, err := tolerances(lists[1], s.size(p), lists[2:]...)
			if err != nil {
				t.Fatal(err)
			}
			worst, at, _ := closeTo(lists[1], lists[0], tolerance)
			if worst < least[p] {
				t.Errorf("%s, %s: weights of one step before are off by %.3g tolerances, want %v", name, p, worst, least[p])
			}
			if *survey {
				t.Logf("%s, %s: weights of one step before are off by %.3g tolerances, at %s", name, p, worst, at)
			}
		}
		if testing.Short() {
			break
		}
	}
}
