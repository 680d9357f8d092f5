package null

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// update is a graph of inputs w, g and one that is not used, and outputs
// w-g, over w, and Σg.
func update() *ir.Graph {
	t := op.Type{DType: dtype.Float32, Shape: op.Shape{8}}
	g := ir.New(3)
	param := func(i int) *ir.Value {
		return g.Add(op.Param, op.Attr{DType: t.DType, Dims: t.Shape, Index: i}, t, "")
	}
	w, grad := param(0), param(1)
	param(2)
	g.Output(g.Add(op.Sub, op.Attr{}, t, "sgd", w, grad), 0)
	g.Output(g.Add(op.Sum, op.Attr{Axes: []int{0}}, op.Type{DType: t.DType}, "norm", grad), -1)
	return g
}

func alloc(t *testing.T, d *Device, bytes int) driver.Buffer {
	t.Helper()
	b, err := d.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wantError(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want an error with %q", what, err, want)
	}
}

func TestRegistered(t *testing.T) {
	d, err := backend.Open("null")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := d.(*Device); !ok || d.Name() != "null" || !d.Supports(op.MatMul, dtype.Float16) {
		t.Errorf("got device %T %q, want a *null.Device that supports everything", d, d.Name())
	}
}

func TestBuffers(t *testing.T) {
	d := New()
	a, b := alloc(t, d, 64), alloc(t, d, 8)
	if d.Allocated() != 72 {
		t.Errorf("%d bytes are allocated, want 72", d.Allocated())
	}
	if err := a.CopyIn([]byte{1, 2, 3}); err != nil {
		t.Error(err)
	}
	got := []byte{9, 9, 9, 9}
	if err := a.CopyOut(got); err != nil || string(got) != "\x01\x02\x03\x00" {
		t.Errorf("got %v, %v, want what was copied in and a zero", got, err)
	}
	if err := b.CopyOut(got); err != nil || string(got) != "\x00\x00\x00\x00" {
		t.Errorf("got %v, %v, want zeros", got, err)
	}
	wantError(t, "CopyIn", b.CopyIn(make([]byte, 9)), "got 9 bytes for a buffer of 8")
	_, err := d.Alloc(-1)
	wantError(t, "Alloc", err, "got -1 bytes")

	b.Free()
	wantError(t, "CopyOut", b.CopyOut(got), "was freed")
	leaks := d.Leaks()
	if len(leaks) != 1 || !strings.HasPrefix(leaks[0], "64 bytes from null_test.go:") {
		t.Errorf("got leaks %q, want one of 64 bytes from here", leaks)
	}
	wantError(t, "Close", d.Close(), "1 buffers were not freed: 64 bytes from null_test.go:")
	a.Free()
	if err := d.Close(); err != nil || d.Allocated() != 0 {
		t.Errorf("got %v with %d bytes, want nothing left", err, d.Allocated())
	}
	defer func() {
		if recover() == nil {
			t.Error("a second Free did not panic")
		}
	}()
	a.Free()
}

func TestRun(t *testing.T) {
	d := New()
	p, g, err := backend.Compile(t.Context(), d, update(), ir.Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	if g.Donated[0] != 0 || g.Donated[1] != -1 || g.Params[2] != nil {
		t.Fatalf("got donations %v and params %v, want output 0 over input 0 and no use of input 2", g.Donated, g.Params)
	}
	w, grad, norm, small := alloc(t, d, 32), alloc(t, d, 32), alloc(t, d, 4), alloc(t, d, 2)
	freed := alloc(t, d, 32)
	freed.Free()
	foreign := alloc(t, New(), 32)
	ctx := context.Background()
	list := func(b ...driver.Buffer) []driver.Buffer { return b }
	if err := p.Run(ctx, list(w, grad, nil), list(w, norm)); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		want    string
		in, out []driver.Buffer
	}{
		{"got 2 inputs and 2 outputs, want 3 and 2", list(w, grad), list(w, norm)},
		{"input 1: got no buffer for", list(w, nil, nil), list(w, norm)},
		{"input 1: got a buffer of 4 bytes for %1 Param float32[8], want 32", list(w, norm, nil), list(w, norm)},
		{"input 0: the buffer from null_test.go", list(freed, grad, nil), list(freed, norm)},
		{"input 1: the buffer is another device's", list(w, foreign, nil), list(w, norm)},
		{"output 0 overwrites input 0 but has another buffer", list(w, grad, nil), list(alloc(t, d, 32), norm)},
		{"output 1: got a buffer of 2 bytes", list(w, grad, nil), list(w, small)},
		{"output 1 has the buffer of input 1, which it does not overwrite", list(w, grad, nil), list(w, grad)},
		{"output 1 has the buffer of input 0, which it does not overwrite", list(w, grad, nil), list(w, w)},
	} {
		wantError(t, "Run", p.Run(ctx, c.in, c.out), c.want)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := p.Run(canceled, list(w, grad, nil), list(w, norm)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	wantError(t, "Run", p.Run(ctx, list(w, grad, nil), list(w, norm)), "was closed")
}

func TestSameOutputTwice(t *testing.T) {
	d := New()
	g := update()
	g.Donate[0] = -1
	p, _, err := backend.Compile(t.Context(), d, g, ir.Options{Skip: []string{"dce"}})
	if err != nil {
		t.Fatal(err)
	}
	in := []driver.Buffer{alloc(t, d, 32), alloc(t, d, 32), alloc(t, d, 32)}
	out := alloc(t, d, 32)
	wantError(t, "Run", p.Run(context.Background(), in, []driver.Buffer{out, out}), "outputs 0 and 1 have the same buffer")
}

func TestCompileVerifies(t *testing.T) {
	g := update()
	if err := ir.Optimize(g, ir.Options{}); err != nil {
		t.Fatal(err)
	}
	g.Commit = 0
	_, err := New().Compile(t.Context(), g)
	wantError(t, "Compile", err, "commit phase")
}
