package tensor_test

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestValueOf: the elements of every value of Digests have its digest.
func TestValueOf(t *testing.T) {
	w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{8, 8}, func(x []float64) error { fill(x, 1); return nil })
	twin := tensor.NewVariable("w", dtype.Float32, tensor.Shape{8, 8}, func(x []float64) error { fill(x, 2); return nil })
	fn := tensor.Function(func(x T) T {
		y := x.MatMul(w.Value()).Relu().MatMul(twin.Value())
		w.Assign(w.Value().Sub(y.Mean().MulScalar(0.1)))
		return y
	}, &owner{[]V{w}})
	x := tensor.New(randoms(3, 5*8, -1, 1), 5, 8).Cast(dtype.Float32)
	all := must[[]tensor.Digest](t)(fn.Digests(ctx, x))
	sums := map[uint64]bool{}
	for _, d := range all {
		typ, data, err := fn.ValueOf(ctx, x, d.ID)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.Sum256(data)
		var got uint64
		for i := range 8 {
			got |= uint64(h[i]) << (8 * i)
		}
		if got != d.Sum || !typ.Equal(d.Type) {
			t.Errorf("%s: got %v with the digest %x, want %v with %x", d.ID, typ, got, d.Type, d.Sum)
		}
		sums[d.Sum] = true
	}
	if len(sums) < 6 {
		t.Errorf("got %v", all)
	}
	_, _, err := fn.ValueOf(ctx, x, "w/Param#2")
	wantError(t, "ValueOf", err, "ValueOf: the step has no value w/Param#2")
}

// TestCopies: what is kept of variables is what it is made from, and the very memory that the next
// run reads.
func TestCopies(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out: TestCopiesOff")
	}
	w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{64, 600}, func(x []float64) error { fill(x, 1); return nil })
	n := tensor.NewState("n", dtype.Float32, tensor.Shape{}, nil)
	fn := tensor.Function(func(x T) T {
		n.Assign(n.Value().AddScalar(1))
		return x.MatMul(w.Value().Cast(dtype.BFloat16)).Cast(dtype.Float32)
	}, &owner{[]V{n}})
	x := tensor.New(randoms(3, 5*64, -1, 1), 5, 64).Cast(dtype.BFloat16)
	if got := must[[]tensor.Copy](t)(fn.Copies(x)); len(got) > 0 {
		t.Errorf("before the first call: got %v", got)
	}
	var want []float32
	for range 3 {
		y, err := fn.Call(ctx, x)
		if err != nil {
			t.Fatal(err)
		}
		want = must[[]float32](t)(y.Values())
	}
	all := must[[]tensor.Copy](t)(fn.Copies(x))
	if len(all) == 0 || all[0].Name != "w (bfloat16)" || all[0].Type.DType != dtype.BFloat16 {
		t.Fatalf("got %v", all)
	}
	cast := must[[]byte](t)(w.Value().Cast(dtype.BFloat16).Bytes())
	if !slices.Equal(cast, all[0].Data) {
		t.Error("the copy is not the variable's cast")
	}
	for _, c := range all[1:] {
		if !strings.HasSuffix(c.Name, "/MatMul") {
			t.Errorf("got %s", c.Name)
		}
	}
	last := all[len(all)-1].Data // packed, where the processor has a kernel that packs
	last[3] ^= 0x40              // the exponent of a float32, and of the second of two 16-bit floats
	y, err := fn.Call(ctx, x)
	if err != nil {
		t.Fatal(err)
	}
	if got := must[[]float32](t)(y.Values()); slices.Equal(got, want) {
		t.Errorf("a bit of %s was flipped, and nothing differs", all[len(all)-1].Name)
	}
}

// TestCopiesOff: without caches nothing is kept.
func TestCopiesOff(t *testing.T) {
	off, err := backend.ParseSkips("caches")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.SetSkips(backend.SetSkips(off))
	w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{64, 601}, func(x []float64) error { fill(x, 1); return nil })
	fn := tensor.Function(func(x T) T { return x.MatMul(w.Value().Cast(dtype.BFloat16)) })
	x := tensor.New(randoms(3, 5*64, -1, 1), 5, 64).Cast(dtype.BFloat16)
	for range 3 {
		if _, err := fn.Call(ctx, x); err != nil {
			t.Fatal(err)
		}
	}
	if got := must[[]tensor.Copy](t)(fn.Copies(x)); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}
