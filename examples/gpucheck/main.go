// Command gpucheck is what to carry to a machine with a GPU: it says what is
// there, compares the device with float64 arithmetic and with the processor,
// and times operations and training steps. It prints Markdown, for
// docs/benchmarks/cuda.md.
//
//	CGO_CFLAGS=-IDIR go build -tags cuda ./examples/gpucheck
//	./gpucheck -only inventory,conformance,curves
//	./gpucheck -only ops,steps,seeds -torch torch.json
//
// Every operation's cases and every measurement are a process of its own with a time
// limit, so that one that fails, hangs or breaks the GPU's context leaves the others,
// and every row is printed when it is known. With -small all sizes are so small that
// the fake driver of the tests runs them. docs/gpu-queue.md has the questions, and
// first.sh, second.sh and third.sh the calls that answer them.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"
)

var (
	only     = flag.String("only", "inventory,conformance,curves,ops,steps,seeds", "sections, comma-separated")
	device   = flag.String("device", "cuda", "the device to check, by name")
	small    = flag.Bool("small", false, "small sizes, for the fake driver")
	duration = flag.Duration("least", 300*time.Millisecond, "shortest repetition of a measurement")
	limit    = flag.Duration("limit", 2*time.Minute, "longest process of a measurement")
	cases    = flag.String("cases", "", `conformance cases, comma-separated prefixes such as "Softmax/float16" (default: all that are not large)`)
	rows     = flag.String("rows", "", `operations, training steps and seeds, comma-separated names (default: all)`)
	parallel = flag.Int("parallel", 1, "processes of the conformance suite at a time")
	under    = flag.String("policies", "float32,mixed_bfloat16,mixed_float16", "policies of curves, ops and steps, comma-separated")
	torch    = flag.String("torch", "", "figures of docs/benchmarks/peers/torch_cuda.py to compare with, a file of JSON")
	specs    = flag.Bool("specs", false, "print what torch_cuda.py is to time, as JSON, and end")
	child    = flag.String("child", "", "what to do as a process of its own; used by the program itself")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer) error {
	switch {
	case *child != "":
		return work(ctx, w, *child)
	case *specs:
		return json.NewEncoder(w).Encode(stepSpecs())
	}
	sections := map[string]func(context.Context, io.Writer) error{
		"inventory": inventory, "conformance": conformance, "curves": curves, "ops": operations, "steps": steps, "seeds": seeds,
	}
	for name := range strings.SplitSeq(*only, ",") {
		f := sections[name]
		if f == nil {
			return fmt.Errorf("-only: got %q, want inventory, conformance, curves, ops, steps or seeds", name)
		}
		begin := time.Now()
		if err := f(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(w, "\n(%s: %.0f s)\n\n", name, time.Since(begin).Seconds())
	}
	return nil
}

// task is what a child does: its kind, and what the kind needs.
type task struct {
	Kind   string // "conformance", "curve", "op", "step", "seed"
	Name   string // of an operation or a row
	Policy string
}

// work does a task and prints its result, one line of JSON.
func work(ctx context.Context, w io.Writer, text string) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return fmt.Errorf("-child: %w", err)
	}
	f := map[string]func(context.Context, task) (any, error){
		"conformance": checkCases, "curve": train, "op": timeOperation, "step": timeStep, "seed": timeSeed,
	}[t.Kind]
	if f == nil {
		return fmt.Errorf("-child: got kind %q", t.Kind)
	}
	result, err := f(ctx, t)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(result)
}

// spawn has a task done on a device, and reads its result.
func spawn(ctx context.Context, device string, t task, result any, env ...string) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	args := []string{"-child", string(text), "-least", duration.String(), "-cases", *cases}
	if *small {
		args = append(args, "-small")
	}
	cmd := exec.CommandContext(ctx, own, args...)
	cmd.Env = slices.Concat(os.Environ(), []string{"MEZZO_DEVICE=" + device}, env)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	at := ""
	if i := strings.LastIndex(stderr.String(), caseLine); i >= 0 {
		at, _, _ = strings.Cut(stderr.String()[i+len(caseLine):], "\n")
		at = " in " + at
	}
	if ctx.Err() != nil {
		return fmt.Errorf("not done after %v%s", *limit, at)
	}
	if err != nil {
		return fmt.Errorf("%w%s: %s", err, at, lastLine(stderr.String()))
	}
	return json.Unmarshal([]byte(lastLine(string(out))), result)
}

// caseLine begins a line on standard error with the case that a process is at.
const caseLine = "case: "

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// row writes a row of a table in Markdown, head also what divides it from the others.
func row(w io.Writer, cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

func head(w io.Writer, cells ...string) {
	row(w, cells...)
	fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(cells)))
}

// named reports whether -rows has a row.
func named(name string) bool {
	return *rows == "" || slices.Contains(strings.Split(*rows, ","), name)
}
