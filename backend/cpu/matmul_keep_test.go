package cpu

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestKeptOperands: packed weights are kept from run to run, made anew after
// every way to write to their buffer, and never change a bit.
func TestKeptOperands(t *testing.T) {
	const n, k = 300, 150
	weights := func(seed uint64, d dtype.DType) []byte {
		return randomArray(rand.New(rand.NewPCG(seed, 1)), d, k, n).data
	}
	isatest.ForEach(t, func(t *testing.T) {
		for _, c := range []struct {
			m int
			d dtype.DType
		}{{20, dtype.Float32}, {20, dtype.BFloat16}, {20, dtype.Float16}, {600, dtype.Float32}, {600, dtype.Float16}, {2, dtype.Float32}, {3, dtype.BFloat16}} {
			m, d := c.m, c.d
			if isatest.Emulated() && testing.Short() && m > 100 {
				continue // other blocks of the same Go code
			}
			p := matMulProgram(t, op.Attr{}, d, m, n, k)
			x, _ := New().Alloc(m * k * d.Size())
			if err := x.CopyIn(randomArray(rand.New(rand.NewPCG(1, 1)), d, m, k).data); err != nil {
				t.Fatal(err)
			}
			w, _ := New().Alloc(k * n * d.Size())
			multiply := func(w driver.Buffer) []byte {
				out := &Buffer{storage: exec.Aligned(m * n * d.Size())}
				if err := p.Run(context.Background(), []driver.Buffer{x, w}, []driver.Buffer{out}); err != nil {
					t.Fatal(err)
				}
				return out.storage
			}
			for seed, write := range []func(data []byte){
				func(data []byte) { _ = w.CopyIn(data) },
				func(data []byte) {
					_ = w.(*Buffer).Fill(len(data), func(dst []byte) error { copy(dst, data); return nil })
				},
				func(data []byte) { w, _ = New().Alloc(len(data)); _ = w.CopyIn(data) },
				func(data []byte) { // as the output of a program
					g := ir.New(1)
					typ := op.Type{DType: d, Shape: op.Shape{k, n}}
					g.Output(record(t, g, op.Identity, op.Attr{}, param(t, g, 0, typ)), -1)
					if err := plan(t, g).Run(context.Background(), []driver.Buffer{&Buffer{storage: data}}, []driver.Buffer{w}); err != nil {
						t.Fatal(err)
					}
				},
				func(data []byte) { // in place: w becomes data + (w - w)
					g := ir.New(2)
					typ := op.Type{DType: d, Shape: op.Shape{k, n}}
					old := param(t, g, 1, typ)
					zero := record(t, g, op.Sub, op.Attr{}, old, old)
					g.Output(record(t, g, op.Add, op.Attr{}, param(t, g, 0, typ), zero), 1)
					p := plan(t, g)
					if g.Donated[0] != 1 {
						t.Fatal("the update is not in place")
					}
					if err := p.Run(context.Background(), []driver.Buffer{&Buffer{storage: data}, w}, []driver.Buffer{w}); err != nil {
						t.Fatal(err)
					}
				},
			} {
				data := weights(uint64(seed), d)
				write(data)
				want := multiply(&Buffer{storage: data}) // not known, so packed for this run
				for range 3 {
					if !bytes.Equal(multiply(w), want) {
						t.Fatalf("%v: other bits after write %d", d, seed)
					}
				}
			}
			if keeps := len(p.plan.Packed) > 0; keeps {
				before := multiply(w)
				r, err := p.get()
				if err != nil {
					t.Fatal(err)
				}
				clear(r.Packed[0].Data) // the copy is what is read
				p.put(r)
				if bytes.Equal(multiply(w), before) {
					t.Errorf("%v: the packed copy is not read", d)
				}
			} else if isa.Current() >= isa.AVX2 && d == dtype.Float32 {
				t.Errorf("float32 weights are not kept")
			}
		}
	})
}

// TestCheck: what passes by the version of a buffer is an error that names it.
func TestCheck(t *testing.T) {
	exec.CheckingPacked = true
	defer func() { exec.CheckingPacked = false }()
	const m, n, k = 20, 300, 150
	setup := func() (p *Program, run func() error, w *Buffer) {
		p = matMulProgram(t, op.Attr{}, dtype.Float32, m, n, k)
		x, w, out := newBuffer(New(), 4*m*k), newBuffer(New(), 4*k*n), newBuffer(New(), 4*m*n)
		run = func() error {
			return p.Run(context.Background(), []driver.Buffer{x, w}, []driver.Buffer{out})
		}
		for range 4 {
			if err := run(); err != nil {
				t.Fatal(err)
			}
		}
		return p, run, w
	}
	wantError := func(what string, err error, want ...string) {
		t.Helper()
		for _, s := range want {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: error %v, want %q", what, err, s)
			}
		}
	}
	_, run, w := setup()
	w.storage[0]++
	wantError("written between runs", run(), "before the program of 3 values", "input 1", "float32[150 300]")

	p, run, _ := setup()
	if len(p.plan.Packed) > 0 {
		r, err := p.get()
		if err != nil {
			t.Fatal(err)
		}
		r.Packed[0].Data[0]++
		p.put(r)
		wantError("a stale copy", run(), "MatMul", "packed copy", "packed anew")
	} else if isa.Current() >= isa.AVX2 {
		t.Error("float32 weights are not kept")
	}
	p, run, _ = setup()
	p.steps[0].kernel = strayWrite{p.steps[0].kernel, 1}
	wantError("written by a kernel", run(), "changed the buffer of input 1", "MatMul")
}

// strayWrite is a kernel that also writes to the value at pos.
type strayWrite struct {
	exec.Kernel
	pos int
}

func (k strayWrite) Run(r *exec.Run) {
	k.Kernel.Run(r)
	r.Values[k.pos][0]++
}

// TestChangingOperands: what changes from run to run is not packed to be kept.
func TestChangingOperands(t *testing.T) {
	p := matMulProgram(t, op.Attr{}, dtype.Float32, 20, 300, 150)
	x, _ := New().Alloc(4 * 20 * 150)
	w, _ := New().Alloc(4 * 150 * 300)
	packed := func() bool {
		if err := p.Run(context.Background(), []driver.Buffer{x, w}, []driver.Buffer{&Buffer{storage: exec.Aligned(4 * 20 * 300)}}); err != nil {
			t.Fatal(err)
		}
		r, err := p.get()
		if err != nil {
			t.Fatal(err)
		}
		defer p.put(r)
		return len(r.Packed) > 0 && r.Packed[0].Data != nil
	}
	for range 3 {
		if err := w.CopyIn(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
		if packed() {
			t.Error("a changing operand is packed to be kept")
		}
	}
	if keeps := len(p.plan.Packed) > 0; packed() != keeps {
		t.Errorf("an operand of two runs is packed to be kept: %v, want %v", !keeps, keeps)
	}
}

// TestOverwrittenOperands: a program that overwrites its weights keeps nothing.
func TestOverwrittenOperands(t *testing.T) {
	g := ir.New(2)
	x := param(t, g, 0, op.Type{DType: dtype.Float32, Shape: op.Shape{20, 150}})
	w := param(t, g, 1, op.Type{DType: dtype.Float32, Shape: op.Shape{150, 300}})
	g.Output(record(t, g, op.MatMul, op.Attr{}, x, w), -1)
	g.Output(record(t, g, op.Neg, op.Attr{}, w), 1)
	p := plan(t, g)
	if len(p.plan.Packed) != 0 {
		t.Errorf("keeps %v bytes of a weight that it overwrites", p.plan.Packed)
	}
}
