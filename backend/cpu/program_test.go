package cpu

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func TestRegistered(t *testing.T) {
	d, err := backend.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	about := d.(driver.Describer).Describe()
	if about.Device != "cpu" || about.ISA == "" || about.Hardware == "" || about.Threads < 1 || len(about.Arithmetic) != 4 {
		t.Errorf("Describe is %+v", about)
	}
}

func TestBuffer(t *testing.T) {
	b, err := New().Alloc(5)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CopyIn([]byte{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if err := b.CopyOut(got); err != nil || string(got) != "\x01\x02\x03\x00\x00" {
		t.Errorf("CopyOut gave %v, %v", got, err)
	}
	if b.CopyIn(make([]byte, 6)) == nil || b.CopyOut(make([]byte, 6)) == nil {
		t.Error("copies longer than the buffer succeeded")
	}
	if _, err := New().Alloc(-1); err == nil {
		t.Error("Alloc(-1) succeeded")
	}
}

// chain is two operations on an int32[3], -(x+x), which are not fused in watched runs.
func chain(t *testing.T, o ir.Options) *Program {
	t.Helper()
	g := ir.New(1)
	x := param(t, g, 0, op.Type{DType: dtype.Int32, Shape: op.Shape{3}})
	g.Output(record(t, g, op.Neg, op.Attr{}, record(t, g, op.Add, op.Attr{}, x, x)), -1)
	if err := ir.Optimize(g, o); err != nil {
		t.Fatal(err)
	}
	p, err := New().Compile(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*Program)
}

func three() (in, out []driver.Buffer) {
	x := arrayOf(dtype.Int32, op.Shape{3}, func(i int) float64 { return float64(i) })
	return []driver.Buffer{&Buffer{storage: x.data}}, []driver.Buffer{&Buffer{storage: exec.Aligned(12)}}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	in, out := three()
	if err := chain(t, ir.Options{}).Run(ctx, in, out); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestWatched(t *testing.T) {
	p := chain(t, ir.Options{Watch: true})
	in, out := three()
	var seen []string
	err := p.RunWatched(context.Background(), in, out, func(v *ir.Value, data []byte) error {
		seen = append(seen, v.Op.String())
		if got, want := dtype.View[int32](data)[2], map[op.Code]int32{op.Add: 4, op.Neg: -4}[v.Op]; got != want {
			t.Errorf("%v showed %d, want %d", v.Op, got, want)
		}
		return nil
	})
	if got := strings.Join(seen, " "); err != nil || got != "Add Neg" {
		t.Errorf("saw %q, %v", got, err)
	}
	stop := errors.New("stop")
	if err := p.RunWatched(context.Background(), in, out, func(*ir.Value, []byte) error { return stop }); err != stop {
		t.Errorf("got %v, want the watcher's error", err)
	}
}

func TestTiming(t *testing.T) {
	p := chain(t, ir.Options{Watch: true})
	in, out := three()
	p.SetTiming(true)
	for range 2 {
		if err := p.Run(context.Background(), in, out); err != nil {
			t.Fatal(err)
		}
	}
	times := p.Times()
	if len(times) != len(p.graph.Values) {
		t.Fatalf("%d times for %d values", len(times), len(p.graph.Values))
	}
	for i, v := range p.graph.Values {
		if leaf := v.Op == op.Param; leaf != (times[i] == 0) {
			t.Errorf("%v took %d ns", v.Op, times[i])
		}
	}
}

func TestRunErrors(t *testing.T) {
	p := chain(t, ir.Options{})
	in, out := three()
	ctx := context.Background()
	for _, c := range []struct {
		in, out []driver.Buffer
		want    string
	}{
		{in, nil, "got 1 inputs and 0 outputs, want 1 and 1"},
		{[]driver.Buffer{nil}, out, "input 0 is a <nil>, want a buffer of device cpu"},
		{in, []driver.Buffer{&Buffer{storage: make([]byte, 8)}}, "output 0 has 8 bytes, want 12"},
	} {
		if err := p.Run(ctx, c.in, c.out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %q", err, c.want)
		}
	}
	g := ir.New(0)
	g.Output(record(t, g, op.Iota, op.Attr{DType: dtype.Int32, Dims: op.Shape{2}}), -1)
	if _, err := New().Compile(t.Context(), g); err == nil || !strings.Contains(err.Error(), "was not optimized") {
		t.Errorf("compiling a graph without a plan gave %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
