package scenario

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/ir"
)

// TestPrograms runs fewPrograms with -short.
const somePrograms, fewPrograms = 30, 10

var (
	programs = flag.Int("programs", somePrograms, "how many random programs to try")
	seed     = flag.Uint64("seed", 1, "the seed of the first random program; those of the others follow")
	until    = flag.Duration("until", 0, "try random programs for so long, whatever their number")
	reducing = flag.Bool("reduce", true, "make programs that fail as short as they get")
	// The reference takes as long as many.
	acrossEvery = flag.Uint64("across", 5, "how many random programs share one that is also compared with the reference")
	findings    = flag.String("findings", "", "a file to append failures to as they are found; testing goes on then")
)

// A batch of random programs runs under the same few sets of options, in the
// same processes, so that what one program leaves behind meets the next.
const batchPrograms = 50

// allBut is everything that MEZZO_SKIP can name but some.
func allBut(names ...string) []string {
	return slices.DeleteFunc(slices.Concat(caches, ir.OptionalPasses()), func(s string) bool { return slices.Contains(names, s) })
}

// options draws the sets of options of a batch: a level with all caches and
// passes, with none, and with some of them, each on another number of threads.
// Programs that are compiled anew in every call take several times as long, so
// most batches remember them.
func options(g *rand.Rand, levels []string) []config {
	level := levels[g.IntN(len(levels))]
	if len(levels) > 1 && g.IntN(4) > 0 { // the reference has its level anyway
		level = levels[1+g.IntN(len(levels)-1)]
	}
	none := allBut("programs")
	if g.IntN(4) == 0 {
		none = everything
	}
	var some []string
	share := g.Float64()
	for _, name := range slices.Concat(caches, ir.OptionalPasses()) {
		if g.Float64() < share && (name != "programs" || g.IntN(4) == 0) {
			some = append(some, name)
		}
	}
	return []config{
		{Level: level, Procs: 1 + g.IntN(4)},
		{Level: level, Procs: 1 + g.IntN(4), Skip: none},
		{Level: level, Procs: 1 + g.IntN(4), Skip: some},
	}
}

// referenceConfig is what all levels are compared with.
func referenceConfig(level string) config {
	return config{Level: level, Skip: allBut("plans", "programs"), Procs: 1}
}

// TestPrograms runs random programs. What a program computes must not depend on
// the set of options that it runs under: to the bit within an instruction set,
// within the tolerances across them; and nothing that it computes may break a
// truth, such as that writing a weight's own bytes to it changes nothing.
func TestPrograms(t *testing.T) {
	words, err := levels()
	if err != nil {
		t.Fatal(err)
	}
	if *programs == somePrograms && testing.Short() {
		*programs = fewPrograms
	}
	start := time.Now()
	begun, tried, failed, runs, chaotic := 0, 0, 0, 0, 0
	// The next batch begins before this one ends, so that no processor waits for the
	// slowest configuration of a batch.
	begin := func() *batch {
		if *until > 0 && time.Since(start) > *until || *until == 0 && begun >= *programs {
			return nil
		}
		n := batchPrograms
		if *until == 0 {
			n = min(n, *programs-begun)
		}
		b := newBatch(*seed+uint64(begun), n, words)
		begun += n
		return b
	}
	for now, next := begin(), begin(); now != nil; now, next = next, begin() {
		h, list := now.trial, now.list
		results, err := now.results()
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range results {
			if f.chaotic {
				chaotic++
			}
			if f.what == "" {
				continue
			}
			failed++
			if !*reducing {
				t.Errorf("seed %d: %s: %v", list[i].Seed, f.what, f.configs)
				continue
			}
			text, again := h.report(t, list[:i+1], f)
			if !again && (f.across || f.halves) {
				failed-- // three perturbations moved it less than 24 do
				continue
			}
			if *findings == "" {
				t.Fatal(text)
			}
			file, err := os.OpenFile(*findings, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(file, text)
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			t.Error(text)
			break // those behind it ran in a process that it may have spoilt
		}
		tried += len(list)
		runs += len(list) * len(h.configs)
		if tried%1000 < len(list) {
			t.Logf("%d programs from seed %d on, %d failures", tried, *seed, failed)
		}
	}
	t.Logf("%d random programs from seed %d on, %d runs, %d failures, %d not comparable across levels to their end, %.1f programs/s", tried, *seed, runs, failed, chaotic, float64(tried)/time.Since(start).Seconds())
}

// batch is programs that are tried in the same processes.
type batch struct {
	trial   trial
	list    []program
	done    chan struct{}
	outcome []difference
	err     error
}

// newBatch begins to try n programs, from one seed on.
func newBatch(first uint64, n int, levels []string) *batch {
	b := &batch{
		trial: trial{reference: referenceConfig(levels[0]), configs: options(rand.New(rand.NewPCG(first, 9)), levels)},
		done:  make(chan struct{}),
	}
	for i := range n {
		b.list = append(b.list, generate(first+uint64(i)))
	}
	go func() {
		b.outcome, b.err = b.trial.try(b.list)
		close(b.done)
	}()
	return b
}

func (b *batch) results() ([]difference, error) {
	<-b.done
	return b.outcome, b.err
}

// trial runs programs under sets of options.
type trial struct {
	reference config
	configs   []config
}

// difference is why a program failed: under two configurations, or one.
type difference struct {
	what    string // "" is nothing
	configs []config
	across  bool // another level, by tolerance
	halves  bool // the same level, gradients accumulated over halves of batches
	chaotic bool // no failure: from some record on tolerances are infinite
}

// fresh starts workers of their own for configurations.
func fresh(configs ...config) (list []*worker, stop func(), err error) {
	stop = func() {
		for _, w := range list {
			w.stop()
		}
	}
	for _, c := range configs {
		w, err := start(c)
		if err != nil {
			stop()
			return nil, nil, err
		}
		list = append(list, w)
	}
	return list, stop, nil
}

// try runs programs one after the other in new workers and returns what is
// wrong with each.
func (h trial) try(list []program) ([]difference, error) {
	ws, stop, err := fresh(append(slices.Clone(h.configs), h.reference)...)
	if err != nil {
		return nil, err
	}
	defer stop()
	jobs := make([][]job, len(ws))
	for i := range list {
		j := job{Program: &list[i]}
		for k := range h.configs {
			jobs[k] = append(jobs[k], j)
		}
		if list[i].across() {
			jobs[len(ws)-1] = append(jobs[len(ws)-1], perturbedJobs(j, trials)...)
		}
		if list[i].halvable() {
			j.Halves = true
			jobs[0] = append(jobs[0], j)
			jobs[1] = append(jobs[1], perturbedJobs(job{Program: &list[i]}, trials)[1:]...)
		}
	}
	answers := doAll(ws, jobs)
	next := make([]int, len(ws))
	take := func(w int) answer {
		next[w]++
		return answers[w][next[w]-1]
	}
	out := make([]difference, len(list))
	for i, p := range list {
		var within []answer
		for k := range h.configs {
			within = append(within, take(k))
		}
		var noisy []answer
		if p.across() {
			for range 1 + trials {
				noisy = append(noisy, take(len(ws)-1))
			}
		}
		var halves []answer
		if p.halvable() {
			halves = append(halves, within[0], take(0))
			for range trials {
				halves = append(halves, take(1))
			}
		}
		out[i] = h.judge(p.size(), within, noisy, halves)
	}
	return out, nil
}

// perturbedJobs are a job and the same with so many perturbations.
func perturbedJobs(j job, n int) []job {
	list := []job{j}
	for i := range n {
		j.Noise, j.Size = uint64(1+i), j.Program.size()
		list = append(list, j)
	}
	return list
}

// across reports whether a program is also compared with the reference.
func (p program) across() bool { return p.Seed%*acrossEvery == 0 }

// halvable reports whether a program computes the same with the gradients of
// each batch accumulated over its halves, but for rounding: no layer looks at
// the whole batch or draws numbers, and all batches are even.
func (p program) halvable() bool {
	if p.Seed%*acrossEvery != 1 || p.Policy != "float32" {
		return false
	}
	for _, b := range p.Blocks {
		if b.Kind == "batchnorm" || b.Kind == "dropout" {
			return false
		}
	}
	for _, a := range p.Ops {
		switch a.Do {
		case "train", "skip":
			if a.Rows%2 != 0 {
				return false
			}
		case "fit":
			if a.Rows%a.Batch != 0 || a.Batch%2 != 0 {
				return false
			}
		}
	}
	return true
}

// atOnce is how many workers work at a time.
var atOnce = make(chan struct{}, runtime.NumCPU())

// doAll gives each worker its jobs.
func doAll(ws []*worker, jobs [][]job) [][]answer {
	answers := make([][]answer, len(ws))
	done := make(chan struct{})
	for i, w := range ws {
		go func() {
			atOnce <- struct{}{}
			for _, j := range jobs[i] {
				answers[i] = append(answers[i], w.do(j))
			}
			<-atOnce
			done <- struct{}{}
		}()
	}
	for range ws {
		<-done
	}
	return answers
}

// judge compares what came of a program: under each configuration, under the
// reference with and without perturbations, and with gradients accumulated over
// halves of batches.
func (h trial) judge(size float64, within, noisy, halves []answer) difference {
	base := within[0]
	for i, a := range within {
		if len(a.Broken) > 0 {
			return difference{what: "not so: " + a.Broken[0], configs: h.configs[i : i+1]}
		}
		pair := []config{h.configs[0], h.configs[i]}
		if a.Err != base.Err {
			return difference{what: fmt.Sprintf("one ends with %q, the other with %q", base.Err, a.Err), configs: pair}
		}
		if strings.HasPrefix(a.Err, "panic") || strings.HasPrefix(a.Err, "the worker") {
			return difference{what: a.Err, configs: h.configs[i : i+1]}
		}
		if err := sameBits(base.Records, a.Records); err != nil {
			return difference{what: err.Error(), configs: pair}
		}
	}
	var result difference
	if noisy != nil {
		what, chaotic := farApart(size, noisy[0], base, noisy[1:])
		if what != "" {
			return difference{what: what, configs: []config{h.configs[0], h.reference}, across: true}
		}
		result.chaotic = chaotic
	}
	if halves != nil {
		for i := range halves {
			halves[i].Records = comparable(halves[i].Records)
		}
		what, chaotic := farApart(size, halves[0], halves[1], halves[2:])
		if what != "" {
			return difference{what: "with gradients accumulated over halves of batches: " + what, configs: h.configs[:2], halves: true}
		}
		result.chaotic = result.chaotic || chaotic
	}
	return result
}

// comparable are the records that exist with and without accumulation: those of
// what was predicted and judged.
func comparable(all []record) []record {
	return slices.DeleteFunc(slices.Clone(all), func(r record) bool {
		return r.Series != "predict" && r.Series != "evaluate loss" && r.Series != "val_loss" && r.Series != "read loss"
	})
}

// farApart says how two answers differ beyond the tolerances, "" if they do not,
// and whether the program is chaotic.
func farApart(size float64, want, got answer, perturbed []answer) (what string, chaotic bool) {
	for _, p := range perturbed {
		if p.Err != want.Err || len(p.Records) != len(want.Records) {
			return "", true // a perturbation leads elsewhere
		}
	}
	tolerance, err := tolerances(want.Records, size, recordsOf(perturbed)...)
	if err != nil {
		return "", true
	}
	vanish(want.Records, tolerance)
	chaotic = slices.ContainsFunc(tolerance, func(x float64) bool { return math.IsInf(x, 1) })
	if want.Err != got.Err && !chaotic {
		return fmt.Sprintf("one ends with %q, the other with %q", want.Err, got.Err), false
	}
	if _, _, err := closeTo(want.Records, got.Records, tolerance); err != nil && !(chaotic && len(want.Records) != len(got.Records)) {
		return err.Error(), chaotic
	}
	return "", chaotic
}

// again runs programs anew in new workers, under the configurations of a
// difference, and returns whether the last one fails in the same way. A
// difference across levels or of halves is tried with more perturbations.
func (d difference) again(t testing.TB, list []program) (difference, bool) {
	p := list[len(list)-1]
	ws, stop, err := fresh(d.configs...)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var jobs [][]job
	for range ws {
		var js []job
		for i := range list {
			js = append(js, job{Program: &list[i]})
		}
		jobs = append(jobs, js)
	}
	const more = 24
	switch {
	case d.across:
		jobs[1] = append(jobs[1], perturbedJobs(job{Program: &p}, more)[1:]...)
	case d.halves:
		jobs[0] = append(jobs[0], job{Program: &p, Halves: true})
		jobs[1] = append(jobs[1], perturbedJobs(job{Program: &p}, more)[1:]...)
	}
	answers := doAll(ws, jobs)
	n := len(list) - 1
	h := trial{configs: d.configs}
	var got difference
	switch {
	case d.across:
		h.reference, h.configs = d.configs[1], d.configs[:1]
		got = h.judge(p.size(), []answer{answers[0][n]}, append([]answer{answers[1][n]}, answers[1][n+1:]...), nil)
	case d.halves:
		got = h.judge(p.size(), []answer{answers[0][n]}, nil, append([]answer{answers[0][n], answers[0][n+1]}, answers[1][n+1:]...))
	default:
		var within []answer
		for _, a := range answers {
			within = append(within, a[n])
		}
		got = h.judge(p.size(), within, nil, nil)
	}
	same := got.what != "" && got.across == d.across && got.halves == d.halves && kindOf(got.what) == kindOf(d.what)
	return got, same
}

// kindOf tells failures apart that are surely not the same.
func kindOf(what string) string {
	for _, k := range []string{"not so", "panic", "one ends", "the worker"} {
		if strings.HasPrefix(what, k) {
			return k
		}
	}
	return "numbers"
}

// reducingFor is how long making a program shorter may take.
const reducingFor = 5 * time.Minute

// report makes a failure as short as it gets and prints it. The last program of
// the list failed in a process that ran the others before. It returns false when
// the failure does not come again; a difference across levels is tried again with
// more perturbations.
func (h trial) report(t testing.TB, list []program, f difference) (text string, again bool) {
	t.Helper()
	last := list[len(list)-1]
	text = fmt.Sprintf("random program of seed %d: %s\n", last.Seed, f.what)
	for _, c := range f.configs {
		text += "\t" + c.String() + "\n"
	}
	short := []program{last}
	if got, ok := f.again(t, short); ok {
		f = got
	} else if got, ok := f.again(t, list); ok {
		f = got
		before := shrink(slices.Clone(list[:len(list)-1]), func(l []program) bool {
			_, ok := f.again(t, append(slices.Clone(l), last))
			return ok
		})
		short = append(before, last)
		text += fmt.Sprintf("It fails only in a process that has run %d other programs before.\n", len(before))
	} else {
		return text + "It does not fail again.\n" + last.code(fmt.Sprintf("seed %d", last.Seed)), false
	}
	deadline := time.Now().Add(reducingFor)
	short = reduce(short, func(l []program) bool {
		if time.Now().After(deadline) {
			return false
		}
		_, ok := f.again(t, l)
		return ok
	})
	f.configs = f.simpler(t, short)
	got, _ := f.again(t, short)
	text += "\nReduced: " + got.what + "\n"
	for _, c := range f.configs {
		text += "\t" + c.String() + "\n"
	}
	for _, p := range short {
		text += "\n" + p.code(fmt.Sprintf("seed %d", p.Seed))
	}
	return text, true
}

// simpler returns the configurations of a difference with as few switches as
// still show it.
func (d difference) simpler(t testing.TB, list []program) []config {
	best := d
	try := func(change func(cs []config)) {
		c := best
		c.configs = nil
		for _, k := range best.configs {
			k.Skip = slices.Clone(k.Skip)
			c.configs = append(c.configs, k)
		}
		change(c.configs)
		if _, ok := c.again(t, list); ok {
			best = c
		}
	}
	try(func(cs []config) {
		for i := range cs {
			cs[i].Procs = 1
		}
	})
	for i := range best.configs {
		if best.across && i == 1 {
			continue
		}
		if slices.Equal(best.configs[i].Skip, everything) {
			try(func(cs []config) { cs[i].Skip = slices.Concat(caches, ir.OptionalPasses()) })
		}
		try(func(cs []config) { cs[i].Skip = nil })
		for _, name := range slices.Clone(best.configs[i].Skip) {
			try(func(cs []config) {
				cs[i].Skip = slices.DeleteFunc(cs[i].Skip, func(s string) bool { return s == name })
			})
		}
	}
	return best.configs
}

// shrink leaves out of list what it can while it still fails: halves, quarters
// … single elements (Zeller's delta debugging).
func shrink[T any](list []T, fails func([]T) bool) []T {
	for size := (len(list) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(list); {
			without := slices.Concat(list[:at], list[min(at+size, len(list)):])
			if fails(without) {
				list = without
			} else {
				at += size
			}
		}
	}
	return list
}

// reduce makes the last program as simple as it gets while it still fails.
func reduce(list []program, fails func([]program) bool) []program {
	before, p := list[:len(list)-1], list[len(list)-1]
	try := func(change func(q *program)) bool {
		q := p
		q.Ops, q.Blocks, q.Input = slices.Clone(p.Ops), slices.Clone(p.Blocks), slices.Clone(p.Input)
		change(&q)
		if fails(append(slices.Clone(before), q)) {
			p = q
			return true
		}
		return false
	}
	for again := true; again; {
		n := len(p.Ops)
		p.Ops = shrink(p.Ops, func(ops []action) bool {
			q := p
			q.Ops = ops
			return fails(append(slices.Clone(before), q))
		})
		again = len(p.Ops) < n
	}
	for i := 0; i < len(p.Blocks)-1; {
		if !try(func(q *program) { q.Blocks = slices.Delete(q.Blocks, i, i+1) }) {
			i++
		}
	}
	if p.Policy != "float32" {
		try(func(q *program) { q.Policy = "float32" })
	}
	try(func(q *program) { q.Optimizer = rule{Class: "SGD", Rate: q.Optimizer.Rate} })
	try(func(q *program) { q.Optimizer.EMA, q.Optimizer.Overwrite = false, 0 })
	try(func(q *program) { q.Optimizer.Clip = 0 })
	try(func(q *program) { q.Optimizer.Accumulate = 0 })
	try(func(q *program) { q.Optimizer.Scaled = false })
	for i := range p.Ops {
		if p.Ops[i].Times > 1 {
			try(func(q *program) { q.Ops[i].Times = 1 })
		}
		for p.Ops[i].Rows > 1 && try(func(q *program) { q.Ops[i].Rows /= 2; q.Ops[i].Batch = min(q.Ops[i].Batch, q.Ops[i].Rows) }) {
		}
		try(func(q *program) { q.Ops[i].Data, q.Ops[i].Model = 1, 0 })
	}
	for i := range p.Blocks {
		try(func(q *program) { q.Blocks[i].Name = "" })
		for p.Blocks[i].A > 1 && i < len(p.Blocks)-1 && try(func(q *program) { q.Blocks[i].A /= 2 }) {
		}
	}
	return append(slices.Clone(before), p)
}

// TestPrinted holds the printed form of programs against what they do: it is Go,
// and every action has one.
func TestPrinted(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(200) {
		p := generate(seed)
		for _, a := range p.Ops {
			seen[a.Do] = true
		}
		if _, err := format.Source([]byte("package p\n\nvar x = []scenario{\n" + p.code("a") + "}\n")); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, p.code("a"))
		}
	}
	for _, do := range []string{"train", "fit", "evaluate", "predict", "step", "read", "rate", "swap", "skip", "keep", "put", "save", "load", "clone", "freeze", "unfreeze", "seed", "honest"} {
		if !seen[do] {
			t.Errorf("no program of 200 does %q", do)
		}
	}
}

// TestShrink reduces a list to the two elements that matter.
func TestShrink(t *testing.T) {
	list := []byte("abcdefghijklmnop")
	got := shrink(list, func(l []byte) bool { return bytes.ContainsRune(l, 'c') && bytes.ContainsRune(l, 'n') })
	if string(got) != "cn" {
		t.Errorf("got %q", got)
	}
}
