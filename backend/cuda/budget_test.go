//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// gpucheck is examples/gpucheck, built once: the file's contents.
var gpucheck = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "gpucheck")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "gpucheck")
	if out, err := exec.Command("go", "build", "-tags", "cuda", "-o", bin, queueScripts).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return os.ReadFile(bin)
})

// buildGPUCheck puts the program into a directory.
func buildGPUCheck(t *testing.T, dir string) string {
	t.Helper()
	data, err := gpucheck()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "gpucheck")
	if err := os.WriteFile(bin, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return bin
}

// TestLaunches: training steps of the models that are compared with PyTorch, at full
// size under mixed_float16 with Adam, launch no more as one graph than docs/cuda.md
// says, of no more kernels compiled at run time, that read and write no more, and take no longer by
// the estimate; nor less than nine tenths of it. The fake driver computes nothing of it.
func TestLaunches(t *testing.T) {
	fakeOnly(t)
	t.Parallel()
	page, err := os.ReadFile("../../docs/cuda.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| .* \(`+"`([\\w-]+)`"+`\) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|`).FindAllStringSubmatch(string(page), -1)
	if len(rows) != 7 {
		t.Errorf("docs/cuda.md has %d rows of launches, want 7", len(rows))
	}
	dir := t.TempDir()
	bin := buildGPUCheck(t, dir)
	for _, row := range rows {
		name, want := row[1], [4]int{}
		for i := range want {
			if want[i], err = strconv.Atoi(row[2+i]); err != nil {
				t.Fatal(err)
			}
		}
		log := filepath.Join(dir, name)
		cmd := exec.Command(bin, "-least", "1ms", "-child", `{"Kind":"step","Name":"`+name+`","Policy":"mixed_float16"}`)
		cmd.Env = append(os.Environ(), "FAKECUDA_DRY=1", "FAKECUDA_MEMORY=85899345920", "FAKECUDA_LAUNCHES="+log, "MEZZO_DEVICE=cuda", "MEZZO_TF32=1", "MEZZO_CUDA_EPILOGUE=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		var result struct{ Moved int }
		if err := json.Unmarshal(out, &result); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		lines, chains := lastGraph(string(text))
		took := estimate(lines, result.Moved)
		t.Logf("%s: %d launches of %d chains move %d MiB and take %d µs", name, len(lines), chains, result.Moved>>20, took)
		for i, got := range [4]int{len(lines), chains, result.Moved >> 20, took} {
			if got > want[i] || 10*got < 9*want[i] {
				t.Errorf("%s: docs/cuda.md says %v", name, want)
				break
			}
		}
	}
}

// The rates of the estimate, of an H100: what libraries and our own kernels reach of its 990
// TFLOP/s, and of memory, in operations and bytes a microsecond.
const (
	productRate, convolutionRate, ownRate, attentionRate = 550e6, 450e6, 200e6, 100e6
	memoryRate                                           = 2.4e6
)

// estimate is how many microseconds a step takes on an H100 whose launches are lines of a
// dry log and read and write so many bytes: one for each launch, for what multiplies the
// longer one of its operations and its operands, and for all others their bytes.
func estimate(lines []string, moved int) int {
	took, rest := float64(len(lines)), float64(moved)
	for _, l := range lines {
		words := strings.Fields(l)
		name, numbers := words[0], make([]float64, len(words))
		for i := range words[1:] {
			numbers[i], _ = strconv.ParseFloat(words[1+i], 64)
		}
		switch {
		case strings.HasPrefix(name, "cublasLt"):
			took, rest = took+max(numbers[0]/productRate, numbers[1]/memoryRate), rest-numbers[1]
		case strings.HasPrefix(name, "cudnn"):
			took, rest = took+max(numbers[0]/convolutionRate, numbers[1]/memoryRate), rest-numbers[1]
		case strings.HasPrefix(name, "conv_"): // rows, columns, terms and groups are parameters
			p := numbers[6:]
			took += 2 * p[7] * p[8] * p[9] * p[14] / ownRate
		case strings.HasPrefix(name, "attention_"): // blocks of 64 rows; steps and features are parameters
			p := numbers[6:]
			products := map[string]float64{"forward": 2, "query": 3, "key": 4}[strings.Split(name, "_")[1]]
			took += products * 2 * numbers[0] * 64 * p[18] * p[21] / attentionRate
		}
	}
	return int(took + max(0, rest)/memoryRate)
}

// lastGraph is what the last graph of a log launches that is the most frequent one,
// the training step, and the number of its chains.
func lastGraph(log string) (launches []string, chains int) {
	graphs := strings.Split(log, "graph\n")
	for _, g := range graphs[1:] {
		body, _, ok := strings.Cut(g, "end\n")
		if !ok {
			continue
		}
		lines := strings.Split(strings.TrimSpace(body), "\n")
		if len(lines) < len(launches) {
			continue
		}
		names := map[string]bool{}
		for _, l := range lines {
			if name, _, _ := strings.Cut(l, " "); strings.HasPrefix(name, "chain_") {
				names[name] = true
			}
		}
		launches, chains = lines, len(names)
	}
	return launches, chains
}

// TestIndices: operations with n indices read O(n log n) of them, each by the threads of a
// warp at most, also where all are equal and where they are more than one tile sorts; and their results are those of
// plain loops, with sums in the order of the rows.
func TestIndices(t *testing.T) {
	if log := os.Getenv("FAKECUDA_LAUNCHES"); log == "" {
		fakeOnly(t)
		log := filepath.Join(t.TempDir(), "launches")
		again(t, "TestIndices", "FAKECUDA_LAUNCHES="+log)
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		const warp = 32
		most := warp * indicesOfTest * bits.Len(indicesOfTest)
		for line := range strings.Lines(string(text)) {
			name, count, _ := counts(t, line)
			if count > most {
				t.Errorf("%s reads %d indices, want at most %d", name, count, most)
			}
		}
		for _, name := range []string{"sort_tiles", "sort_merge", "scatter_add_float16", "put_rows_4", "unique_firsts"} {
			if !strings.Contains(string(text), name+" ") {
				t.Errorf("no %s has run", name)
			}
		}
		return
	}
	d := open(t)
	defer d.Close()
	const n, limit, width = indicesOfTest, 700, 2
	for _, equal := range []bool{false, true} {
		index, x := make([]float64, n), make([]float64, n*width)
		for i := range index {
			if !equal {
				index[i] = float64(uint32(i+1) * 2654435761 >> 8 % limit)
			}
		}
		for i := range x {
			x[i] = float64(i%7) - 3
		}
		g := newGraph(t)
		idx, rows := g.param(dtype.Int32, n), g.param(dtype.Float16, n, width)
		table, single := g.param(dtype.Float32, limit, width), g.param(dtype.Float32, n, width)
		base := make([]float64, limit*width)
		for i := range base {
			base[i] = -100
		}
		sums := g.add(op.ScatterAdd, op.Attr{Size: limit}, rows, idx)
		unique := g.add(op.Unique, op.Attr{Padding: -1}, idx)
		put := g.add(op.ScatterUpdate, op.Attr{}, table, idx, single)
		single2 := make([]float64, n*width)
		for i := range single2 {
			single2[i] = float64(i)
		}
		got, _ := g.run(d, ir.Options{}, [][]float64{index, x, base, single2}, sums, unique, put)
		wantSum, wantPut, rank, order := make([]float64, limit*width), append([]float64{}, base...), map[float64]int{}, []float64{}
		for i, k := range index {
			if _, ok := rank[k]; !ok {
				rank[k] = len(order)
				order = append(order, k)
			}
			for c := range width {
				wantSum[int(k)*width+c] += x[i*width+c]
				wantPut[int(k)*width+c] = single2[i*width+c]
			}
		}
		for i := range wantSum {
			if got[0][i] != wantSum[i] || got[2][i] != wantPut[i] {
				t.Fatalf("equal=%v: element %d: sum %v and row %v, want %v and %v", equal, i, got[0][i], got[2][i], wantSum[i], wantPut[i])
			}
		}
		for i, k := range index {
			want := -1.0
			if i < len(order) {
				want = order[i]
			}
			if got[1][i] != float64(rank[k]) || got[1][n+i] != want {
				t.Fatalf("equal=%v: index %d has number %v, want %d; unique index %d is %v, want %v", equal, i, got[1][i], rank[k], i, got[1][n+i], want)
			}
		}
	}
}

// indicesOfTest takes three tiles of the sort, and is no power of two.
const indicesOfTest = 5000

// counts reads a line of FAKECUDA_LAUNCHES.
func counts(t *testing.T, line string) (name string, indices, swaps int) {
	t.Helper()
	if n, err := fmt.Sscan(line, &name, &indices, &swaps); err != nil {
		t.Fatalf("%q: %d words, %v", line, n, err)
	}
	return name, indices, swaps
}

// TestFaultsTakeFewLocks: of many threads that find an index out of range those take the
// lock that know of one before the one that was reported.
func TestFaultsTakeFewLocks(t *testing.T) {
	if os.Getenv("FAKECUDA_LAUNCHES") == "" {
		fakeOnly(t)
		log := filepath.Join(t.TempDir(), "launches")
		again(t, "TestFaultsTakeFewLocks", "FAKECUDA_LAUNCHES="+log)
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for line := range strings.Lines(string(text)) {
			if name, _, swaps := counts(t, line); name == "gather_4" {
				found = true
				if swaps < 1 || swaps > 8 { // threads of a block take turns where they wait
					t.Errorf("%d threads took the lock, want 1 to 8", swaps)
				}
			}
		}
		if !found {
			t.Errorf("no gather in\n%s", text)
		}
		return
	}
	d := open(t)
	const n = 3000
	g := newGraph(t)
	y := g.add(op.Gather, op.Attr{}, g.param(dtype.Float32, 5), g.param(dtype.Int32, n))
	g.Params = g.Params[:2]
	g.Output(y, -1)
	if err := ir.Optimize(g.Graph, ir.Options{Skip: []string{"split"}}); err != nil {
		t.Fatal(err)
	}
	p, err := d.Compile(t.Context(), g.Graph)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Repeat([]byte{9, 0, 0, 0}, n)
	err = p.Run(t.Context(), []driver.Buffer{alloc(t, d, make([]byte, 20)), alloc(t, d, bad)}, []driver.Buffer{alloc(t, d, make([]byte, 4*n))})
	var e *driver.IndexError
	if !errors.As(err, &e) || e.Got != 9 || e.Position != 0 {
		t.Errorf("got %v, want index 9 at position 0", err)
	}
}
