// Command bench times operations and whole training steps under each policy,
// with what every user of Mezzo has: tensors recorded in a keras.Function, and
// Model.TrainStep.
//
// It prints the time of a call, GFLOP/s or GB/s, and the share of the peak
// measured around the same repetition: of what the processors can multiply
// (cpu.Peak) or, where memory is the limit, of what a plain copy of as many
// bytes reaches. A float16 row is measured against the float32 peak: that is
// what it computes in.
//
// With -peers PYTHON the scripts of docs/benchmarks/peers run next to it in
// that interpreter's environment, taking turns with Mezzo repetition by
// repetition, and the table gets the ratio of PyTorch's and of Keras's time to
// Mezzo's. Above 1 Mezzo is faster. -peer names others: numpy is OpenBLAS, whose
// products NumPy uses. The policies of a row take turns as well, so that what
// else runs on the machine slows all of them alike; where float32 is among them
// its time is divided by that of each.
//
// With -random N -seed S it draws N shapes each of products, convolutions and
// attention that nobody chose, and prints the distribution of the first peer's time
// divided by Mezzo's and the worst rows; -least 10ms -reps 5 is enough for that.
//
// With -memory it prints what the steps need and that they do not grow; with -latency,
// the 50th and 99th percentile of the times of single calls, also those of peers, and
// of arithmetic alone on all processors: what the machine itself allows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	stepRows = flag.String("rows", "", `training steps to time, comma-separated patterns such as "mlp*", or "none" (default all; none if -ops is given)`)
	opRows   = flag.String("ops", "", `operations to time, comma-separated patterns such as "mm-*", or "none" (default all; none if -rows is given)`)
	policies = flag.String("policies", "float32,mixed_bfloat16,mixed_float16", "policies, comma-separated; operations run in their compute type")
	threads  = flag.Int("threads", 0, "threads, also of the peers (default: all processors)")
	peerEnv  = flag.String("peers", "", "Python interpreter with torch, keras and tensorflow, to compare with (default: no comparison)")
	peerDir  = flag.String("peerdir", "docs/benchmarks/peers", "directory of the peers' scripts")
	peerOnly = flag.String("peer", "torch,keras", "peers, comma-separated")
	settings = flag.String("settings", "", `peers' settings to try, comma-separated patterns such as "eager*" (default all)`)
	reps     = flag.Int("reps", 9, "accepted repetitions, of which the median is printed")
	least    = flag.Duration("least", 100*time.Millisecond, "shortest repetition")
	shapes   = flag.Int("random", 0, "draw so many shapes of each of -kinds, and print how the first peer's times compare with Mezzo's")
	shapeSet = flag.String("kinds", "mm,conv,attention", "kinds of operations for -random, comma-separated")
	seed     = flag.Uint64("seed", 1, "of -random")
	worst    = flag.Int("worst", 20, "how many of the worst rows -random prints")
	memory   = flag.Bool("memory", false, "print what training steps need in memory, instead of times")
	single   = flag.Int("latency", 0, "time so many single calls of each of -rows, and print the 50th and 99th percentile")
	int8s    = flag.Bool("int8", false, "quantize the models of -rows that predict to 8-bit integers (Model.QuantizeStatic), as onnxruntime's peer does; not under mixed_float16")
	examined = flag.Bool("doctor", false, "print what it costs to examine training steps (keras/doctor), in steps under float32")
)

// row is one line of the table for each policy: an operation or a training
// step.
type row struct {
	name string
	spec spec // what peers build for it

	// A call does so many floating-point operations, two for a
	// multiplication and its addition; or, when bytes is set, its limit is
	// memory, and bytes is what it cannot but read and write, each array once,
	// with elements of the given size where they are of the compute type.
	flops float64
	bytes func(size int) float64

	policies    []string // under which it makes a difference; nil = all
	onlyPlanned bool     // for -memory alone

	build   func(ctx context.Context) (func() error, error)
	network func() (network, error) // of training steps, compiled
}

// spec says what a peer is to build: its "kind", and sizes by name.
type spec map[string]any

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// pick returns the rows whose names match one of the patterns. other is the
// list for the other kind of rows: naming only those leaves these out.
func pick(rows []row, patterns, other string) ([]row, error) {
	switch {
	case patterns == "" && other == "":
		return rows, nil
	case patterns == "" || patterns == "none":
		return nil, nil
	}
	var picked []row
	for pattern := range strings.SplitSeq(patterns, ",") {
		found := false
		for _, r := range rows {
			match, err := path.Match(pattern, r.name)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", pattern, err)
			}
			found = found || match
			if match && !slices.ContainsFunc(picked, func(p row) bool { return p.name == r.name }) {
				picked = append(picked, r)
			}
		}
		if !found {
			var names []string
			for _, r := range rows {
				names = append(names, r.name)
			}
			return nil, fmt.Errorf("no row matches %q; have %s", pattern, strings.Join(names, ", "))
		}
	}
	return picked, nil
}

func run(ctx context.Context, w io.Writer) error {
	if *threads > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(*threads))
	}
	names := strings.Split(*policies, ",")
	for _, p := range names {
		if _, err := policy.Parse(p); err != nil {
			return err
		}
	}
	ops, err := pick(operations(), *opRows, *stepRows)
	if err != nil {
		return fmt.Errorf("-ops: %w", err)
	}
	all := append(trainingSteps(), predictions()...)
	if *examined {
		all = append(all, bert("bert-base", models.BERTBase, 128, 8))
	}
	steps, err := pick(all, *stepRows, *opRows)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	fmt.Fprintf(w, "%s; %s; %d threads\n\n", policy.EffectiveText(), runtime.Version(), runtime.GOMAXPROCS(0))
	if *memory {
		return memoryTable(ctx, w, steps, names)
	}
	if *examined {
		return doctorTable(ctx, w, steps, names)
	}
	table := &table{w: w, policies: names}
	defer table.close()
	if *peerEnv != "" {
		table.peerNames = strings.Split(*peerOnly, ",")
		if err := table.start(ctx); err != nil {
			return err
		}
	}
	if *single > 0 {
		return table.latencies(ctx, steps, *single)
	}
	if *shapes > 0 {
		if *peerEnv == "" {
			return errors.New("-random compares with a peer; name its interpreter with -peers")
		}
		return table.random(ctx, *shapes, *seed, strings.Split(*shapeSet, ","), *worst)
	}
	table.header()
	for _, r := range append(ops, steps...) {
		if r.onlyPlanned {
			continue
		}
		if err := table.measure(ctx, r); err != nil {
			return fmt.Errorf("%s, %w", r.name, err)
		}
	}
	return nil
}

// table is what is printed: a line for each row and policy.
type table struct {
	w         io.Writer
	policies  []string
	peerNames []string
	peers     map[string][]*peer // under a policy: a process builds one row under one
}

// start starts the peers.
func (t *table) start(ctx context.Context) error {
	t.peers = map[string][]*peer{}
	for _, policy := range t.policies {
		for _, name := range t.peerNames {
			p, err := startPeer(ctx, *peerEnv, *peerDir, name, runtime.GOMAXPROCS(0))
			if err != nil {
				return err
			}
			t.peers[policy] = append(t.peers[policy], p)
		}
	}
	for _, p := range t.peers[t.policies[0]] {
		fmt.Fprintf(t.w, "%s: %s\n", p.name, p.version)
	}
	fmt.Fprintln(t.w)
	return nil
}

func (t *table) close() {
	for _, peers := range t.peers {
		for _, p := range peers {
			p.close()
		}
	}
}

// compared reports whether the times under other policies are compared with
// float32's.
func (t *table) compared() bool {
	return len(t.policies) > 1 && slices.Contains(t.policies, "float32")
}

func (t *table) header() {
	fmt.Fprint(t.w, "| row | policy | ms | rate | share of peak |")
	columns := 5
	if t.compared() {
		fmt.Fprint(t.w, " float32 / it |")
		columns++
	}
	for _, name := range t.peerNames {
		fmt.Fprintf(t.w, " %s, ms | %s / Mezzo |", name, name)
		columns += 2
	}
	fmt.Fprint(t.w, "\n|", strings.Repeat("---|", columns), "\n")
}

// entry is a row under one policy: Mezzo, and each peer.
type entry struct {
	policy string
	work   float64
	unit   string
	ours   *contender
	peers  []*contender
}

// measure measures a row under all policies in turns and prints it.
func (t *table) measure(ctx context.Context, r row) error {
	var entries []*entry
	var contenders []*contender
	for _, name := range t.policies {
		if r.policies != nil && !slices.Contains(r.policies, name) {
			continue
		}
		e, err := t.enter(ctx, r, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		entries = append(entries, e)
		contenders = append(append(contenders, e.ours), e.peers...)
	}
	if err := compete(ctx, contenders, *reps); err != nil {
		return err
	}
	full := slices.IndexFunc(entries, func(e *entry) bool { return e.policy == "float32" })
	for _, e := range entries {
		share, float32s := "–", "–"
		if rate := median(e.ours.peaks); rate > 0 {
			share = fmt.Sprintf("%.0f %%", 100*median(e.ours.shares(e.work)))
		}
		seconds := e.ours.median()
		fmt.Fprintf(t.w, "| %s | %s | %s | %.4g %s | %s |", r.name, columnPolicy(r, e.policy), e.ours.ms(), e.work/seconds/1e9, e.unit, share)
		if t.compared() {
			if full >= 0 && e.policy != "float32" {
				float32s = fmt.Sprintf("%.2f", entries[full].ours.median()/seconds)
			}
			fmt.Fprintf(t.w, " %s |", float32s)
		}
		for _, c := range e.peers {
			if c.runner == nil {
				fmt.Fprintf(t.w, " %s | – |", c.label)
				continue
			}
			fmt.Fprintf(t.w, " %s (%s) | %.2f |", c.ms(), c.label, c.median()/seconds)
		}
		if _, err := fmt.Fprintln(t.w); err != nil {
			return err
		}
	}
	return nil
}

// enter builds a row under a policy, warms it up, and finds each peer's fastest
// setting for it.
func (t *table) enter(ctx context.Context, r row, name string) (*entry, error) {
	defer policy.SetGlobal(policy.SetGlobal(name))
	call, err := r.build(ctx)
	if err != nil {
		return nil, err
	}
	p := policy.Global()
	compute := p.Compute
	if p.Auto.IsFloat() {
		compute = p.Auto
	}
	e := &entry{policy: name, work: r.flops, unit: "GFLOP/s", ours: &contender{runner: own(call), probe: arithmetic(compute)}}
	e.ours.best = new(float64)
	if r.bytes != nil {
		e.ours.best = nil // rates of copies vary
		e.work, e.unit = r.bytes(compute.Size()), "GB/s"
		e.ours.probe = newCopies(int(e.work)).rate
	}
	if err := e.ours.calibrate(*least); err != nil {
		return nil, err
	}
	for _, p := range t.peers[name] {
		best, err := p.best(r.spec, name, *least)
		if err != nil {
			return nil, err
		}
		best.probe, best.best = e.ours.probe, e.ours.best
		e.peers = append(e.peers, best)
	}
	return e, nil
}

// columnPolicy is the policy of a training step, the element type of an
// operation.
func columnPolicy(r row, name string) string {
	if r.spec["kind"] == "step" {
		return name
	}
	p, _ := policy.Parse(name)
	return p.Compute.String()
}
