package keras

import (
	"bytes"
	"flag"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

var shapes = flag.Int("shapes", 200, "random shapes of TestManyShapes; 5000 take some minutes")

// TestManyShapes trains on batches of ever new shapes: memory stays where it is
// once as many plans are there as are kept, one line of the log says so, and
// weights have the bits of a training that keeps one plan only.
func TestManyShapes(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	const plans = 16
	train := func(keep, n int, each func(step int)) []byte {
		m := Sequential(&layers.Embedding{InputDim: 100, OutputDim: 16}, &layers.GRU{Units: 16}, &layers.Dense{Units: 10, Activation: "softmax"})
		check(t, m.SetSeed(7))
		m.KeepPlans(keep)
		check(t, m.BuildOn(InputOf(Int32, -1)))
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.SparseCategoricalCrossentropy{}}))
		r := rand.New(rand.NewPCG(1, 2))
		for i := range n {
			rows, steps := 1+r.IntN(16), 1+r.IntN(100)
			x, y := make([]int32, rows*steps), make([]int32, rows)
			for j := range x {
				x[j] = int32(r.IntN(100))
			}
			for j := range y {
				y[j] = int32(r.IntN(10))
			}
			check(t, m.TrainStep(background, Batch{X: NewTensor(x, rows, steps), Y: NewTensor(y, rows)}))
			if each != nil {
				each(i)
			}
		}
		var all []byte
		for _, v := range m.Variables() {
			b, err := v.Bytes()
			check(t, err)
			all = append(all, b...)
		}
		return all
	}
	var early, late float64
	used := func(step int) {
		switch step {
		case 4 * plans:
			early = inUse()
		case *shapes - 1:
			late = inUse()
		}
	}
	got := train(plans, *shapes, used)
	t.Logf("%d shapes, %d plans kept: %.1f MiB in use after %d of them, %.1f MiB at the end; %s", *shapes, plans, early, 4*plans, late, resident())
	// Programs that the process remembers come to 256 besides; each is some 100 KiB here.
	if late > early+60 {
		t.Errorf("memory grew from %.1f to %.1f MiB", early, late)
	}
	if n := strings.Count(log.String(), "keep changing their shapes"); n != 1 {
		t.Errorf("the log says %d times that shapes change, want once:\n%s", n, &log)
	}
	if n := min(*shapes, 100); !bytes.Equal(train(plans, n, nil), train(1, n, nil)) {
		t.Error("other weights with one plan")
	} else if n == *shapes && !bytes.Equal(got, train(1, n, nil)) {
		t.Error("other weights the second time")
	}
}

// inUse is the memory that is reachable, in MiB.
func inUse() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse) / (1 << 20)
}

// resident is what the system says of the process's memory, where it does.
func resident() string {
	text, _ := os.ReadFile("/proc/self/statm")
	if f := strings.Fields(string(text)); len(f) > 1 {
		if n, err := strconv.Atoi(f[1]); err == nil {
			return strconv.Itoa(n*os.Getpagesize()>>20) + " MiB resident"
		}
	}
	return "resident memory not known"
}
