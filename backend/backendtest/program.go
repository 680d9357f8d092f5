package backendtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// testProgram tests what driver.Program, backend.Compile and the optional
// interfaces promise.
func testProgram(t *testing.T, d driver.Device) {
	t.Run("Donation", func(t *testing.T) { testDonation(t, d) })
	t.Run("Overwriting", func(t *testing.T) { testOverwriting(t, d) })
	t.Run("Canceled", func(t *testing.T) { testCanceled(t, d) })
	t.Run("IndexErrorChangesNothing", func(t *testing.T) { testFailure(t, d) })
	t.Run("Concurrent", func(t *testing.T) { testConcurrent(t, d) })
	t.Run("Workers", func(t *testing.T) { testWorkers(t, d) })
	t.Run("Cache", func(t *testing.T) { testCache(t, d) })
	t.Run("Watcher", func(t *testing.T) { testWatcher(t, d) })
	t.Run("UnusedInput", func(t *testing.T) { testUnusedInput(t, d) })
	t.Run("SameArgument", func(t *testing.T) { testSameArgument(t, d) })
	t.Run("Buffer", func(t *testing.T) { testBuffer(t, d) })
	t.Run("Versions", func(t *testing.T) { testVersions(t, d) })
}

var f32 = dtype.Float32

func typ(d dtype.DType, shape ...int) op.Type { return op.Type{DType: d, Shape: shape} }

// sample makes the elements of some inputs.
func sample(seed uint64, types ...op.Type) []array {
	r := seeded(seed)
	var in []array
	for _, t := range types {
		in = append(in, array{t, numbers(r, t)})
	}
	return in
}

// updateGraph is w ← w - lr·g over the old w, with Σw² of the old one.
func updateGraph(n int) *ir.Graph {
	g := ir.New(3)
	w, grad, lr := param(g, 0, typ(f32, n)), param(g, 1, typ(f32, n)), param(g, 2, typ(f32))
	next := add(g, op.Sub, op.Attr{}, w, add(g, op.Mul, op.Attr{}, grad, lr))
	norm := add(g, op.SumSquares, op.Attr{}, w)
	g.Output(next, 0)
	g.Output(norm, -1)
	return g
}

func updateInputs(n int) []array { return sample(1, typ(f32, n), typ(f32, n), typ(f32)) }

func testDonation(t *testing.T, d driver.Device) {
	in := updateInputs(1023)
	out, err := compute(d, updateGraph(1023), ir.Options{Check: true}, in)
	if err != nil {
		t.Fatal(err)
	}
	want, err := interpret(updateGraph(1023), in)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameBits(out[0], want[0]); err != nil {
		t.Errorf("updated variable: %v", err)
	}
	// The old value was read before it was overwritten.
	norm, _ := evaluate(op.SumSquares, op.Attr{}, in[:1])
	if err := norm.check(out[1]); err != nil {
		t.Errorf("norm of the old variable: %v", err)
	}
	_, plan, err := backend.Compile(t.Context(), d, updateGraph(1023), ir.Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Donated[0] != 0 {
		t.Errorf("output 0 overwrites input %d, want 0", plan.Donated[0])
	}
}

// testOverwriting updates variables from themselves, read at other positions
// than those being written: the old elements count.
func testOverwriting(t *testing.T, d driver.Device) {
	square := typ(f32, 33, 33)
	firstRow := op.Attr{Start: []int{0, 0}, Limit: []int{1, 33}, Stride: []int{1, 1}}
	down := op.Attr{Start: []int{0, 0}, Limit: []int{32, 33}, Stride: []int{1, 1}}
	for name, build := range map[string]func(g *ir.Graph, a, b *ir.Value){
		"swap": func(g *ir.Graph, a, b *ir.Value) {
			g.Output(add(g, op.Identity, op.Attr{}, b), 0)
			g.Output(add(g, op.Identity, op.Attr{}, a), 1)
		},
		"each from the other": func(g *ir.Graph, a, b *ir.Value) {
			g.Output(add(g, op.Add, op.Attr{}, a, b), 0)
			g.Output(add(g, op.Sub, op.Attr{}, b, a), 1)
		},
		"transposed": func(g *ir.Graph, a, b *ir.Value) {
			g.Output(add(g, op.Add, op.Attr{}, a, add(g, op.Transpose, op.Attr{Perm: []int{1, 0}}, a)), 0)
			g.Output(add(g, op.Transpose, op.Attr{Perm: []int{1, 0}}, b), 1)
		},
		"first row": func(g *ir.Graph, a, b *ir.Value) {
			g.Output(add(g, op.Sub, op.Attr{}, a, add(g, op.Slice, firstRow, a)), 0)
			g.Output(add(g, op.Sub, op.Attr{}, add(g, op.Slice, firstRow, b), b), 1)
		},
		"shifted": func(g *ir.Graph, a, b *ir.Value) {
			g.Output(add(g, op.Pad, op.Attr{Low: []int{1, 0}, High: []int{0, 0}}, add(g, op.Slice, down, a)), 0)
			g.Output(add(g, op.MatMul, op.Attr{}, a, b), 1)
		},
		"both over one": func(g *ir.Graph, a, b *ir.Value) {
			g.Output(add(g, op.Add, op.Attr{}, a, b), 0)
			g.Output(add(g, op.Mul, op.Attr{}, a, b), 0)
		},
		"reshaped": func(g *ir.Graph, a, b *ir.Value) {
			flat := add(g, op.Reshape, op.Attr{Dims: op.Shape{33 * 33}}, a)
			g.Output(add(g, op.Neg, op.Attr{}, flat), 0)
			g.Output(add(g, op.Add, op.Attr{}, add(g, op.Reshape, op.Attr{Dims: op.Shape{33, 33}}, flat), b), 1)
		},
	} {
		graph := func() *ir.Graph {
			g := ir.New(2)
			build(g, param(g, 0, square), param(g, 1, square))
			return g
		}
		// Small integers: sums and products of them are exact.
		in := []array{newArray(square), newArray(square)}
		for i := range in {
			in[i].data = few(seeded(uint64(i)), square)
		}
		want, err := interpret(graph(), in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := compute(d, graph(), ir.Options{Check: true}, in)
		if err == nil {
			err = sameOutputs(got, want)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testCanceled(t *testing.T, d driver.Device) {
	p, plan, err := backend.Compile(t.Context(), d, updateGraph(1023), ir.Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	// execute checks that no input has changed.
	if _, err := execute(ctx, d, p, plan, updateInputs(1023)); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
}

// testFailure fails in the middle of a program that updates in place.
func testFailure(t *testing.T, d driver.Device) {
	g := ir.New(3)
	w, idx, rows := param(g, 0, typ(f32, 4, 2)), param(g, 1, typ(dtype.Int32, 3)), param(g, 2, typ(f32, 5, 2))
	sum := add(g, op.Sum, op.Attr{Axes: []int{0}}, add(g, op.Gather, op.Attr{}, rows, idx))
	g.Output(add(g, op.Sub, op.Attr{}, w, sum), 0)
	// Another update, which depends on nothing that fails.
	next := add(g, op.Mul, op.Attr{}, rows, rows)
	g.Output(next, 2)
	in := sample(2, w.Type, idx.Type, rows.Type)
	in[1].data = values(0, 7, 1)(nil, idx.Type)
	_, err := compute(d, g, ir.Options{Check: true}, in)
	if e := (*driver.IndexError)(nil); !errors.As(err, &e) {
		t.Errorf("got error %v, want a *driver.IndexError", err)
	}
}

// busyGraph has enough of everything to be shared out over workers.
func busyGraph() (*ir.Graph, []op.Type) {
	types := []op.Type{typ(f32, 129, 257), typ(f32, 257, 131), typ(dtype.BFloat16, 300, 301), typ(dtype.Int64, 2), typ(dtype.Int32, 129)}
	g := ir.New(len(types))
	var p []*ir.Value
	for i, t := range types {
		p = append(p, param(g, i, t))
	}
	prod := add(g, op.MatMul, op.Attr{}, p[0], p[1])
	g.Output(prod, -1)
	g.Output(add(g, op.Softmax, op.Attr{Axes: []int{1}}, prod), -1)
	g.Output(add(g, op.Sum, op.Attr{Axes: []int{0, 1}}, add(g, op.Tanh, op.Attr{}, prod)), -1)
	g.Output(add(g, op.Mean, op.Attr{Axes: []int{0}}, p[0]), -1)
	g.Output(add(g, op.Sum, op.Attr{Axes: []int{1}}, p[2]), -1)
	g.Output(add(g, op.SumSquares, op.Attr{DType: f32}, p[2]), -1)
	g.Output(add(g, op.Prod, op.Attr{Axes: []int{0}}, p[1]), -1)
	g.Output(add(g, op.MatMul, op.Attr{TransA: true, DType: f32}, p[2], p[2]), -1)
	g.Output(add(g, op.RandomUniform, op.Attr{Dims: op.Shape{40001}, Stream: 3}, p[3]), -1)
	g.Output(add(g, op.RandomUniform, op.Attr{Dims: op.Shape{40001}, Stream: 3, Bits: 16}, p[3]), -1)
	g.Output(add(g, op.ScatterAdd, op.Attr{Size: 7}, p[0], p[4]), -1)
	return g, types
}

func busyInputs(seed uint64) []array {
	_, types := busyGraph()
	in := sample(seed, types...)
	in[4].data = indices(7)(seeded(seed), types[4])
	return in
}

// testConcurrent runs one program in two goroutines with different inputs.
func testConcurrent(t *testing.T, d driver.Device) {
	g, _ := busyGraph()
	p, plan, err := backend.Compile(t.Context(), d, g, ir.Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	const goroutines = 2
	runs := 5
	if testing.Short() {
		runs = 2
	}
	var want [goroutines][]array
	for i := range want {
		if want[i], err = execute(context.Background(), d, p, plan, busyInputs(uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range want {
		wg.Go(func() {
			for range runs {
				got, err := execute(context.Background(), d, p, plan, busyInputs(uint64(i)))
				if err == nil {
					err = sameOutputs(got, want[i])
				}
				if err != nil {
					t.Errorf("goroutine %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
}

func sameOutputs(got, want []array) error {
	for i := range want {
		if err := sameBits(got[i], want[i]); err != nil {
			return fmt.Errorf("output %d: %w", i, err)
		}
	}
	return nil
}

// testWorkers wants the same bits for every GOMAXPROCS, both of a program
// compiled under it and of one compiled before.
func testWorkers(t *testing.T, d driver.Device) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	in := busyInputs(1)
	g, _ := busyGraph()
	first, plan, err := backend.Compile(t.Context(), d, g, ir.Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	var want []array
	for _, n := range []int{1, 2, 3, 8} {
		runtime.GOMAXPROCS(n)
		g, _ := busyGraph()
		if err := ir.Optimize(g, ir.Options{Check: true}); err != nil {
			t.Fatal(err)
		}
		fresh, err := d.Compile(t.Context(), g) // past the cache
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range map[string]driver.Program{"compiled before": first, "compiled for it": fresh} {
			got, err := execute(context.Background(), d, p, plan, in)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			}
			if err := sameOutputs(got, want); err != nil {
				t.Errorf("GOMAXPROCS %d, %s, differs from 1: %v", n, name, err)
			}
		}
		if err := fresh.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

func testCache(t *testing.T, d driver.Device) {
	compile := func(g *ir.Graph, o ir.Options) driver.Program {
		p, _, err := backend.Compile(t.Context(), d, g, o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := compile(updateGraph(9), ir.Options{})
	if compile(updateGraph(9), ir.Options{}) != p {
		t.Error("a graph of the same structure gives another program")
	}
	if compile(updateGraph(10), ir.Options{}) == p {
		t.Error("a graph of another shape gives the same program")
	}
	for _, o := range []ir.Options{{Watch: true}, {Check: true}, {Skip: ir.OptionalPasses()[:1]}} {
		if compile(updateGraph(9), o) == p {
			t.Errorf("options %q give the same program", o.Key())
		}
	}
}

// testWatcher wants every computed value of the plan to be shown once, with
// the elements that its arguments, as shown, give.
func testWatcher(t *testing.T, d driver.Device) {
	in := updateInputs(1023)
	p, plan, err := backend.Compile(t.Context(), d, updateGraph(1023), ir.Options{Watch: true, Check: true})
	if err != nil {
		t.Fatal(err)
	}
	w, ok := p.(driver.Watcher)
	if !ok {
		t.Skipf("the programs of device %q are no driver.Watcher", d.Name())
	}
	b, err := prepare(d, plan, in)
	if err != nil {
		t.Fatal(err)
	}
	defer b.free()
	seen := map[*ir.Value]array{}
	for _, v := range plan.Values {
		if v.Op == op.Param {
			seen[v] = in[v.Attr.Index]
		}
	}
	err = w.RunWatched(context.Background(), b.in, b.out, func(v *ir.Value, data []byte) error {
		if !slices.Contains(plan.Values, v) {
			t.Errorf("saw %v, which is not in the plan", v)
			return nil
		}
		got := array{v.Type, slices.Clone(data)}
		if v.Op != op.Param {
			if _, again := seen[v]; again {
				t.Errorf("saw %v twice", v)
			}
			want, err := evaluate(v.Op, v.Attr, valuesOf(seen, v.Args))
			if err != nil {
				return err
			}
			if err := want.check(got); err != nil {
				t.Errorf("%v: %v", v, err)
			}
		}
		seen[v] = got
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range plan.Values {
		if _, ok := seen[v]; !ok && v.Op != op.Const {
			t.Errorf("did not see %v", v)
		}
	}
	out, err := b.outputs()
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range plan.Outputs {
		if err := sameBits(out[i], seen[v]); err != nil {
			t.Errorf("output %d is not what was seen: %v", i, err)
		}
	}
	stop := errors.New("seen enough")
	err = w.RunWatched(context.Background(), b.in, b.out, func(*ir.Value, []byte) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("an error of see: got %v, want it back", err)
	}
}

// testUnusedInput passes nil for an input that the graph does not use.
func testUnusedInput(t *testing.T, d driver.Device) {
	g := ir.New(2)
	g.Output(add(g, op.Neg, op.Attr{}, param(g, 1, typ(f32, 3))), -1)
	p, plan, err := backend.Compile(t.Context(), d, g, ir.Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	in := sample(1, typ(f32, 3))
	b, err := prepare(d, plan, in)
	if err != nil {
		t.Fatal(err)
	}
	defer b.free()
	if err := p.Run(context.Background(), []driver.Buffer{nil, b.in[0]}, b.out); err != nil {
		t.Fatal(err)
	}
	out, err := b.outputs()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := evaluate(op.Neg, op.Attr{}, in)
	if err := want.check(out[0]); err != nil {
		t.Error(err)
	}
}

// testSameArgument gives an operation one value as all of its arguments.
func testSameArgument(t *testing.T, d driver.Device) {
	in := sample(1, typ(f32, 33, 33))
	for c, a := range map[op.Code]op.Attr{
		op.Add: {}, op.Div: {}, op.MatMul: {TransB: true}, op.Concat: {Axes: []int{1}}, op.Maximum: {},
	} {
		g := ir.New(1)
		x := param(g, 0, in[0].Type)
		g.Output(add(g, c, a, x, x), -1)
		out, err := compute(d, g, ir.Options{Check: true}, in)
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		want, err := evaluate(c, a, []array{in[0], in[0]})
		if err == nil {
			err = want.check(out[0])
		}
		if err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func testBuffer(t *testing.T, d driver.Device) {
	b, err := d.Alloc(9)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	got := []byte("not zeros")
	if err := b.CopyOut(got); err != nil || string(got) != string(make([]byte, 9)) {
		t.Errorf("a new buffer holds %q (error %v), want zeros", got, err)
	}
	if err := b.CopyIn([]byte("abc")); err != nil {
		t.Error(err)
	}
	if err := b.CopyOut(got[:4]); err != nil || string(got[:4]) != "abc\x00" {
		t.Errorf("got %q (error %v), want the three bytes that were copied in, and a zero", got[:4], err)
	}
	if err := b.CopyIn(make([]byte, 10)); err == nil {
		t.Error("10 bytes went into a buffer of 9 without an error")
	}
	if err := b.CopyOut(make([]byte, 10)); err == nil {
		t.Error("10 bytes came out of a buffer of 9 without an error")
	}
}

// testVersions writes to buffers in every way there is: the version is another
// after each, and the same after reading.
func testVersions(t *testing.T, d driver.Device) {
	const n = 100
	alloc := func() driver.Buffer {
		b, err := d.Alloc(4 * n)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	weight, step, out, other := alloc(), alloc(), alloc(), alloc()
	versions := map[uint64]bool{0: true}
	check := func(what string, err error, changed ...driver.Buffer) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for i, b := range []driver.Buffer{weight, step, out, other} {
			v := b.Version()
			if want := slices.Contains(changed, b); want == versions[v] {
				t.Errorf("%s: buffer %d has version %d; that it is a new one is %v, want %v", what, i, v, !versions[v], want)
			}
		}
		for _, b := range changed {
			versions[b.Version()] = true
		}
	}
	check("Alloc", nil, weight, step, out, other)
	check("CopyIn", weight.CopyIn(make([]byte, 4*n)), weight)
	check("CopyIn of a part", weight.CopyIn(make([]byte, 4)), weight)
	check("CopyOut", weight.CopyOut(make([]byte, 4*n)))
	if h, ok := weight.(driver.HostBuffer); ok {
		_ = h.Data()
		check("Data", nil)
	}
	if f, ok := weight.(driver.DirectWriter); ok {
		check("Fill", f.Fill(4*n, func([]byte) error { return nil }), weight)
	}
	if c, ok := weight.(driver.Copier); ok {
		check("CopyFrom", c.CopyFrom(step, 4*n), weight)
	}
	g := ir.New(2)
	w, s := param(g, 0, typ(f32, n)), param(g, 1, typ(f32, n))
	g.Output(add(g, op.Sub, op.Attr{}, w, s), 0)
	g.Output(add(g, op.Mul, op.Attr{}, s, s), -1)
	p, plan, err := backend.Compile(t.Context(), d, g, ir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Donated[0] != 0 {
		t.Fatalf("outputs overwrite the inputs %v, want the first to overwrite input 0", plan.Donated)
	}
	run := func() error {
		return p.Run(context.Background(), []driver.Buffer{weight, step}, []driver.Buffer{weight, out})
	}
	for range 3 { // with memory of its own, then as the device repeats it
		check("a program that updates in place", run(), weight, out)
	}
	if s, ok := p.(driver.AsyncProgram); ok {
		check("Start", s.Start(context.Background(), []driver.Buffer{weight, step}, []driver.Buffer{weight, out}), weight, out)
	}
	if tr, ok := p.(driver.Tracer); ok {
		_, err := tr.RunTraced(context.Background(), []driver.Buffer{weight, step}, []driver.Buffer{weight, out})
		check("RunTraced", err, weight, out)
	}
}
