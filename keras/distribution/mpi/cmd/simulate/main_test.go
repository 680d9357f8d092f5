package main

import (
	"io"
	"math"
	"os"
	"strings"
	"testing"
)

// TestSimulate compares the model with closed forms.
func TestSimulate(t *testing.T) {
	n := network{"", 1e-3, 1e9}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12*want {
			t.Errorf("%s: got %v s, want %v", what, got, want)
		}
	}
	// One bucket begins when the backward pass ends.
	w := workload{step: 1, backward: 0.5, bytes: 1e6, bucket: 1e6, pack: 1e9}
	step, exchanges := w.simulate(n, 4)
	near("one bucket", exchanges, 2*(3e-3+0.75e-3)+3e-3)
	near("one bucket", step, 1+exchanges)
	// Exchanges that are shorter than the rest of the backward pass are hidden, but the
	// last one.
	w = workload{step: 10, backward: 0.5, bytes: 4e6, bucket: 1e6, pack: 1e9}
	step, exchanges = w.simulate(n, 4)
	near("four buckets", exchanges, 4*(2*(3e-3+0.75e-3)+3e-3))
	near("four buckets", step, 10+exchanges/4)
	// If the network is the bottleneck, the first bucket alone is waited for.
	w.step = 1e-6
	step, exchanges = w.simulate(n, 4)
	near("slow network", step, 0.5e-6+0.5e-6/4+exchanges)
	// Pieces are packed and unpacked while others are exchanged.
	const piece = 2 << 20 / 1e9
	near("four pieces", n.exchange(4*pieceBytes, 1e9, 4), 4*(2*(3e-3+0.75*piece)+piece)+2*piece)
	near("pieces of many ranks", n.exchange(8<<20, 1e9, 32), 2*(31e-3+31./32*4*piece)+3*4*piece)
	near("no network", network{"", 0, 1e30}.exchange(4*pieceBytes, 1e9, 4), 9*piece)
	// One rank exchanges nothing.
	if step, exchanges = w.simulate(n, 1); step != w.step || exchanges != 0 {
		t.Errorf("one rank: got %v and %v, want %v and 0", step, exchanges, w.step)
	}
	w = workload{bytes: 80e6, bucket: 25 << 20}
	if b := w.buckets(); len(b) != 5 || b[0] != firstBucket || b[4] != 80e6-firstBucket-3*(25<<20) {
		t.Errorf("buckets of %v", b)
	}
}

func TestRefused(t *testing.T) {
	for _, args := range []string{"-step 0", "-backward 2", "-bytes -1", "-bytes 1e300 -bucket 1", "-pack 0", "-pack NaN", "file"} {
		if err := run(io.Discard, strings.Fields(args)); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

// TestPage compares the tables of docs/distributed.md with what the command prints.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../../../docs/distributed.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(page), "go run ./cmd/simulate ")[1:]
	if len(examples) != 2 {
		t.Fatalf("docs/distributed.md calls simulate %d times, want 2", len(examples))
	}
	for _, e := range examples {
		args, _, _ := strings.Cut(e, "\n")
		blocks := strings.SplitN(e, "```\n", 4) // the end of the command, the beginning and the end of the table
		var out strings.Builder
		if err := run(&out, strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if len(blocks) < 4 || out.String() != blocks[2] {
			t.Errorf("docs/distributed.md has for %s\n%swant\n%s", args, blocks[len(blocks)-1], out.String())
		}
	}
}
