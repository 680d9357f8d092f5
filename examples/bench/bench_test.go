package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/policy"
)

// small are the kinds of rows at sizes that take no time.
func small() []row {
	f, d := square(2, 6, 4, 8), convolution{"conv1d", op.Shape{2, 9, 4}, op.Shape{3, 2, 6}, 2, 1, 2}
	return []row{
		product(8, 5, 7, false, false), product(8, 5, 7, true, false), product(8, 5, 7, false, true), linear(8, 5, 7),
		conv(f, "forward"), conv(f, "input"), conv(f, "kernel"), conv(d, "forward"), conv(d, "input"), conv(d, "kernel"), channelsFirst(2, 6, 4, 8),
		biasRelu(16, 8), softmax(16, 8), normalization(16, 8, false), normalization(16, 8, true),
		cast(16, 8, false), cast(16, 8, true), dropout(16, 8), embedding(50, 8, 16, false), embedding(50, 8, 16, true), adam(100),
		attention(heads{2, 5, 2, 4}, false), attention(heads{2, 5, 2, 4}, true), batched(3, 8, 5, 7, false), batched(3, 8, 5, 7, true),
		recurrent("lstm", 2, 3, 5, 4), recurrent("gru", 2, 3, 5, 4), recurrent("rnn", 2, 3, 5, 4), recurrentClassifier("lstm", 4, 6, 2), recurrentClassifier("gru", 4, 6, 2),
		recurrentClassifier("rnn", 4, 6, 2), recurrentClassifier("custom", 4, 6, 2),
		mlp([]int{12, 8, 3}, 4), cnn(12, [2]int{2, 3}, 4), digitsCNN("digits", [2]int{2, 3}, 4),
		unet("unet", models.UNet{Size: 44, Filters: 2, Depth: 2, Classes: 3}, 2),
		bert("bert", models.BERT{Vocabulary: 20, Positions: 8, Types: 2, Hidden: 4, Layers: 2, Heads: 2, Intermediate: 8, Dropout: 0.1}, 5, 3),
	}
}

// TestTable runs each kind of row under each policy and looks at what it
// prints.
func TestTable(t *testing.T) {
	defer func(n int, d time.Duration) { *reps, *least = n, d }(*reps, *least)
	*reps, *least = 1, 0
	full := regexp.MustCompile(`^\| \S+ \| (\S+) \| ~?[0-9.e+-]+ \| [0-9.e+-]+ (GFLOP|GB)/s \| (–|[0-9]+ %) \| (–|[0-9]+\.[0-9]{2}) \|$`)
	for _, r := range small() {
		var b bytes.Buffer
		table := &table{w: &b, policies: []string{"float32", "mixed_bfloat16", "mixed_float16"}}
		table.header()
		if err := table.measure(context.Background(), r); err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		want := len(table.policies)
		if r.policies != nil {
			want = len(r.policies)
		}
		if len(lines) != 2+want {
			t.Errorf("%s: got %d lines, want a header of two and one for each of %d policies:\n%s", r.name, len(lines), want, b.String())
		}
		columns := strings.Count(lines[0], "|")
		for i, line := range lines[2:] {
			cells := full.FindStringSubmatch(line)
			if cells == nil || strings.Count(line, "|") != columns {
				t.Errorf("%s: got %q below %q", r.name, line, lines[0])
			} else if alone := r.policies != nil || i == 0; alone != (cells[len(cells)-1] == "–") {
				t.Errorf("%s: got %q, want float32's time divided by its own beside a line of float32 only", r.name, line)
			}
		}
	}
}

// TestRows checks what tells rows apart, and that peers know each kind.
func TestRows(t *testing.T) {
	dir := "../../docs/benchmarks/peers/"
	known := map[string]string{}
	for _, file := range []string{"torch_peer.py", "keras_peer.py", "numpy_peer.py", "torch_models.py", "keras_models.py"} {
		b, err := os.ReadFile(dir + file)
		if err != nil {
			t.Fatal(err)
		}
		known[file] = string(b)
	}
	seen := map[string]bool{}
	for _, r := range append(operations(), trainingSteps()...) {
		if seen[r.name] {
			t.Errorf("two rows are named %s", r.name)
		}
		seen[r.name] = true
		if (r.flops > 0) == (r.bytes != nil) {
			t.Errorf("%s: got %v operations and bytes %v, want one of them", r.name, r.flops, r.bytes != nil)
		}
		if _, err := json.Marshal(r.spec); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		kind, suffix := r.spec["kind"].(string), "_peer.py"
		if kind == "step" {
			kind, suffix = r.spec["model"].(string), "_models.py"
		}
		peers := []string{"torch", "keras"}
		if r.spec["kind"] == "mm" || r.spec["kind"] == "linear" {
			peers = append(peers, "numpy")
		}
		for _, p := range peers {
			if !strings.Contains(known[p+suffix], `"`+kind+`":`) {
				t.Errorf("%s: %s%s does not know %q", r.name, p, suffix, kind)
			}
		}
	}
}

// TestFlops compares with numbers worked out by hand.
func TestFlops(t *testing.T) {
	for _, c := range []struct {
		r    row
		want float64
	}{
		// 2·8192·(2·784·64 + 3·64·64 + 3·64·10)
		{mlp([]int{784, 64, 64, 10}, 8192), 1876951040},
		// 2·128·(2·26²·9·32 + 3·11²·9·32·64 + 3·1600·10)
		{cnn(28, [2]int{32, 64}, 128), 1824817152},
		{recurrentClassifier("lstm", 128, 28, 128), 1615790080}, // 2·128·(28·512·(2·28 + 3·128) + 3·128·10)
		{product(2, 3, 5, false, false), 60},
		{conv(square(128, 13, 32, 64), "input"), 570949632},                                   // 2·128·11²·9·32·64
		{conv(convolution{"", op.Shape{2, 9, 4}, op.Shape{3, 2, 6}, 2, 1, 2}, "kernel"), 720}, // 2·2·5·3·2·6
	} {
		if c.r.flops != c.want {
			t.Errorf("%s: got %.0f floating-point operations, want %.0f", c.r.name, c.r.flops, c.want)
		}
	}
}

func TestPick(t *testing.T) {
	rows := small()
	for _, c := range []struct {
		patterns, other string
		want            int
	}{{"", "", len(rows)}, {"", "mlp8-b4", 0}, {"none", "", 0}, {"mlp8-b4", "", 1}, {"mm-*,mm-8x5x7", "", 3}, {"*", "x", len(rows)}} {
		got, err := pick(rows, c.patterns, c.other)
		if err != nil || len(got) != c.want {
			t.Errorf("%q next to %q: got %d rows, %v; want %d", c.patterns, c.other, len(got), err, c.want)
		}
	}
	if _, err := pick(rows, "mlp9", ""); err == nil || !strings.Contains(err.Error(), `no row matches "mlp9"; have mm-8x5x7, `) {
		t.Errorf("got %v", err)
	}
}

// TestMemory holds the large network of the digits to what mixed precision is
// for: a step in mixed_float16 needs at most 0.6 times the memory of float32.
// What kernels work in, which is no smaller for 16-bit types, comes on top.
func TestMemory(t *testing.T) {
	peak := func(name string) keras.Bytes {
		need, err := planned(digitsCNN("bigcnn", [2]int{420, 1000}, 128), name)
		if err != nil {
			t.Fatal(err)
		}
		return need.Peak - need.Workspace
	}
	full := peak("float32")
	for _, name := range []string{"mixed_bfloat16", "mixed_float16"} {
		if got := float64(peak(name)) / float64(full); got > 0.6 {
			t.Errorf("%s: a step needs %.3f times the memory of float32, want at most 0.6", name, got)
		}
	}
}

// TestLatencies looks at the lines of single calls: of Mezzo, and of arithmetic alone.
func TestLatencies(t *testing.T) {
	defer func(d time.Duration) { *least = d }(*least)
	*least = 0
	var b bytes.Buffer
	table := &table{w: &b, policies: []string{"float32"}}
	if err := table.latencies(context.Background(), []row{mlp([]int{12, 8, 3}, 4)}, 40); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 4 {
		t.Fatalf("got %d lines, want a header of two, one of Mezzo, and one of the machine:\n%s", len(lines), b.String())
	}
	for i, side := range []string{"Mezzo", "bare machine"} {
		var shortest, p50, p99, ratio float64
		_, cells, _ := strings.Cut(lines[2+i], "| "+side+" | ")
		if _, err := fmt.Sscanf(cells, "%g | %g | %g | %g |", &shortest, &p50, &p99, &ratio); err != nil {
			t.Errorf("%q: %v", lines[2+i], err)
		}
		if shortest <= 0 || shortest > p50 || p50 > p99 || math.Abs(ratio-p99/p50) > 0.01*ratio+0.01 {
			t.Errorf("%q: want times that grow, and the ratio of the last two", lines[2+i])
		}
	}
}

// TestBare counts the calls of arithmetic alone.
func TestBare(t *testing.T) {
	times, err := newBare(10 * time.Microsecond).each(7)
	if err != nil || len(times) != 7 || slices.Min(times) <= 0 {
		t.Errorf("got %v, %v, want seven times", times, err)
	}
	wall, _, err := newBare(time.Nanosecond).repeat(3)
	if err != nil || wall <= 0 {
		t.Errorf("got %v, %v, want the time of three calls", wall, err)
	}
}

// TestSteady takes a thousand steps of small networks, whose heap must not
// grow.
func TestSteady(t *testing.T) {
	for _, r := range []row{mlp([]int{12, 8, 3}, 4), cnn(12, [2]int{2, 3}, 4)} {
		for _, name := range []string{"float32", "mixed_float16"} {
			var b bytes.Buffer
			if err := growth(context.Background(), &b, r, name); err != nil {
				t.Fatal(err)
			}
			cells := strings.Split(strings.TrimSuffix(b.String(), " |\n"), " | ")
			got, err := strconv.ParseFloat(cells[len(cells)-1], 64)
			// The runtime itself makes a few objects in a thousand steps.
			if err != nil || got >= 0.1 {
				t.Errorf("%s, %s: got %s allocations a step (%v), want none", r.name, name, cells[len(cells)-1], err)
			}
		}
	}
	if keras.Float32 != policy.Global().Compute {
		t.Errorf("the global policy is %v after the rows", policy.Global())
	}
}

// TestRandom: a seed always draws the same shapes, and all of them can be built.
func TestRandom(t *testing.T) {
	defer policy.SetGlobal(policy.SetGlobal("mixed_bfloat16"))
	for _, k := range kinds {
		a, b := rand.New(rand.NewPCG(5, 0)), rand.New(rand.NewPCG(5, 0))
		names, built := map[string]bool{}, 0
		for range 100 {
			r, again := k.draw(a), k.draw(b)
			if r.name != again.name {
				t.Fatalf("%s: the same seed draws %s and %s", k.name, r.name, again.name)
			}
			names[r.name] = true
			if r.flops < 1e6 {
				built++
				call, err := r.build(t.Context())
				if err == nil {
					err = call()
				}
				if err != nil {
					t.Errorf("%s: %v", r.name, err)
				}
			}
		}
		if len(names) < 90 || built == 0 {
			t.Errorf("%s: %d different shapes of 100, %d built", k.name, len(names), built)
		}
	}
}

// TestDistribution prints what is known.
func TestDistribution(t *testing.T) {
	var b bytes.Buffer
	table := &table{w: &b, peerNames: []string{"torch"}}
	var all []comparison
	for i := range 100 {
		all = append(all, comparison{row: row{name: fmt.Sprint("row", i), flops: 1e3}, ours: 1e-6, theirs: float64(i+1) * 2e-8, label: "mm"})
	}
	if err := table.distribution(kinds[0], "float32", 7, all, 1); err != nil {
		t.Fatal(err)
	}
	if err := table.random(t.Context(), 1, 1, []string{"mm", "product"}, 1); err == nil || !strings.Contains(err.Error(), `got "product"`) {
		t.Errorf("an unknown kind: %v", err)
	}
	want := "mm, float32: torch's time / Mezzo's on 100 shapes of seed 7: 5th percentile 0.12, median 1.02, 95th 1.92, worst 0.02; 49 % below 1\n\n" +
		"| row | µs | GFLOP/s | torch, µs | torch / Mezzo |\n|---|---|---|---|---|\n| row0 | 1 | 1 | 0.02 (mm) | 0.02 |\n\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
