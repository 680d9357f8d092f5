package cpu

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestKeptOperands: packed weights are kept from run to run, made anew after
// every way to write to their buffer, and never change a bit.
func TestKeptOperands(t *testing.T) {
	const m, n, k = 20, 300, 150
	weights := func(seed uint64, d dtype.DType) []byte {
		return randomArray(rand.New(rand.NewPCG(seed, 1)), d, k, n).data
	}
	forEachISA(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			p := matMulProgram(t, op.Attr{}, d, m, n, k)
			x, _ := New().Alloc(m * k * d.Size())
			if err := x.CopyIn(randomArray(rand.New(rand.NewPCG(1, 1)), d, m, k).data); err != nil {
				t.Fatal(err)
			}
			w, _ := New().Alloc(k * n * d.Size())
			multiply := func(w driver.Buffer) []byte {
				out := &Buffer{data: aligned(m * n * d.Size())}
				if err := p.Run(context.Background(), []driver.Buffer{x, w}, []driver.Buffer{out}); err != nil {
					t.Fatal(err)
				}
				return out.data
			}
			for seed, write := range []func(data []byte){
				func(data []byte) { _ = w.CopyIn(data) },
				func(data []byte) { copy(w.(*Buffer).Data(), data) },
				func(data []byte) { w, _ = New().Alloc(len(data)); _ = w.CopyIn(data) },
				func(data []byte) { // as the output of a program
					g := ir.New(1)
					typ := op.Type{DType: d, Shape: op.Shape{k, n}}
					g.Output(record(t, g, op.Identity, op.Attr{}, param(t, g, 0, typ)), -1)
					if err := plan(t, g).Run(context.Background(), []driver.Buffer{&Buffer{data: data}}, []driver.Buffer{w}); err != nil {
						t.Fatal(err)
					}
				},
			} {
				data := weights(uint64(seed), d)
				write(data)
				want := multiply(&Buffer{data: data}) // not known, so packed for this run
				for range 3 {
					if !bytes.Equal(multiply(w), want) {
						t.Fatalf("%v: other bits after write %d", d, seed)
					}
				}
			}
			// A write that the buffer does not learn of goes unnoticed.
			before := multiply(w)
			copy(w.(*Buffer).data, weights(9, d))
			product, _ := p.steps[len(p.steps)-1].kernel.(*product)
			if kept := product != nil && product.keeps; kept != bytes.Equal(multiply(w), before) {
				t.Errorf("%v: keeps %v, but the results say otherwise", d, kept)
			}
			if current() >= isaAVX2 && d == dtype.Float32 && !product.keeps {
				t.Errorf("float32 weights are not kept")
			}
		}
	})
}

// TestChangingOperands: what changes from run to run is not packed to be kept.
func TestChangingOperands(t *testing.T) {
	p := matMulProgram(t, op.Attr{}, dtype.Float32, 20, 300, 150)
	x, _ := New().Alloc(4 * 20 * 150)
	w, _ := New().Alloc(4 * 150 * 300)
	packed := func() bool {
		if err := p.Run(context.Background(), []driver.Buffer{x, w}, []driver.Buffer{&Buffer{data: aligned(4 * 20 * 300)}}); err != nil {
			t.Fatal(err)
		}
		r := p.get()
		defer p.put(r)
		return len(r.kept) > 0 && r.kept[0].data != nil
	}
	for range 3 {
		if err := w.CopyIn(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
		if packed() {
			t.Error("a changing operand is packed to be kept")
		}
	}
	if keeps := len(p.kept) > 0; packed() != keeps {
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
	if len(p.kept) != 0 {
		t.Errorf("keeps %v bytes of a weight that it overwrites", p.kept)
	}
}
