package keras

import (
	"bytes"
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
)

// TestTrace: a traced step trains as any other, and shows each layer forward,
// backward and in the update, every lane in order of time.
func TestTrace(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	model := func() *Model {
		m := Sequential(&layers.Dense{Units: 256, Activation: "relu", Name: "wide"}, &layers.Dense{Units: 1, Name: "head"})
		check(t, m.Compile(lineConfig()))
		return m
	}
	a, b := model(), model()
	batch := Batch{X: NewTensor(numbers(512*256), 512, 256), Y: NewTensor(numbers(512), 512, 1)}
	var out bytes.Buffer
	for i := range 3 {
		check(t, a.TrainStep(background, batch))
		out.Reset()
		if i < 2 {
			check(t, b.TrainStep(background, batch))
		} else {
			check(t, b.Trace(background, batch, &out))
		}
	}
	check(t, a.TrainStep(background, batch))
	times, err := b.StepTimes(background, batch)
	check(t, err)
	for _, path := range []string{"wide", "wide/grad", "head"} {
		if times[path] <= 0 {
			t.Errorf("%s took %v in %v, want a time", path, times[path], times)
		}
	}
	if !same(bits(t, a, a.Optimizer()), bits(t, b, b.Optimizer())) {
		t.Error("a traced or timed step makes other bits")
	}
	var file struct {
		TraceEvents []struct {
			Name, Ph string
			Ts, Dur  float64
			Pid, Tid int
			Args     map[string]string
		}
	}
	check(t, json.Unmarshal(out.Bytes(), &file))
	var names []string
	ends := map[int]float64{}
	for _, e := range file.TraceEvents {
		if e.Ph == "M" {
			names = append(names, e.Args["name"])
			continue
		}
		if e.Ph != "X" || e.Pid != 1 || e.Dur < 0 || e.Ts < ends[e.Tid] {
			t.Errorf("got event %+v after %v of its lane, want a complete one that begins later", e, ends[e.Tid])
		}
		ends[e.Tid] = e.Ts + e.Dur
		if e.Tid == 0 {
			names = append(names, e.Name)
		}
	}
	text := strings.Join(names, "\n")
	for _, want := range []string{"step", "worker 0", "wide MatMul", "head MatMul", "wide/grad MatMul", "sgd/wide/kernel"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if i, j := slices.Index(names, "wide MatMul"), slices.Index(names, "wide/grad MatMul"); i < 0 || j < i {
		t.Errorf("the forward pass is at %d, the backward pass at %d", i, j)
	}
}
