package tensor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// turn gets a tensor of a pool full of x, and reads it in its turn.
func turn(t testing.TB, p *tensor.Pool, x byte, read func(T)) T {
	t.Helper()
	y := must[T](t)(p.Get(op.Type{DType: dtype.Uint8, Shape: tensor.Shape{3}}))
	err := tensor.Overwrite(y, func(dst []byte) error {
		for i := range dst {
			dst[i] = x
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	tensor.BeginTurn(nil, y)
	read(y)
	tensor.EndTurn(nil, y)
	return y
}

// TestPool: memory is used again after Release in a tensor's turn, and then only.
func TestPool(t *testing.T) {
	keep, release := func(T) {}, T.Release
	var p tensor.Pool
	early := must[T](t)(p.Get(op.Type{DType: dtype.Uint8, Shape: tensor.Shape{3}}))
	early.Release()
	tensor.BeginTurn(early)
	tensor.EndTurn(early)
	kept := turn(t, &p, 1, keep)
	kept.Release() // too late
	doubled := kept.Cast(dtype.Float32).MulScalar(2)
	hosted := turn(t, &p, 2, func(x T) { must[[]byte](t)(tensor.HostBytes(x)); x.Release() })
	tupled := turn(t, &p, 3, func(x T) { tensor.Tuple(x, f32(1)).Release(); want(t, "in its turn", x, 3, 3, 3) })
	nested := turn(t, &p, 4, func(x T) {
		tensor.BeginTurn(x)
		tensor.HandBack(x)
		tensor.EndTurn(x)
		want(t, "in the outer turn", x, 4, 4, 4)
	})
	clone := T(nil)
	lazy := T(nil)
	gone := turn(t, &p, 5, func(x T) {
		clone = must[T](t)(tensor.Tuple(x, x.Cast(dtype.Float32)).Clone())
		lazy = x.Cast(dtype.Float32)
		x.Release()
		x.Release()
	})
	pairs := turn(t, &p, 6, func(x T) { tensor.BeginTurn(x, x); x.Release(); tensor.EndTurn(tensor.Tuple(x, x)) })
	for i := range byte(20) {
		turn(t, &p, 100+i, release)
	}
	want(t, "released before its turn", early, 0, 0, 0)
	want(t, "kept", kept, 1, 1, 1)
	want(t, "computed later", doubled, 2, 2, 2)
	want(t, "with a slice of its memory", hosted, 2, 2, 2)
	want(t, "clone", clone.Unpack()[0], 5, 5, 5)
	want(t, "clone of what was not computed", clone.Unpack()[1], 5, 5, 5)

	const text = "the memory of this batch was handed back to its dataset"
	closed := tensor.Function(func(x T) T { return x.Add(gone.Cast(dtype.Float32)) })
	for name, err := range map[string]error{
		"Values":              second(gone.Values()),
		"Float64s":            second(gone.Float64s()),
		"Int64s":              second(gone.Int64s()),
		"Bytes":               second(gone.Bytes()),
		"Host":                second(tensor.HostBytes(gone)),
		"Clone":               second(gone.Clone()),
		"Overwrite":           tensor.Overwrite(gone, func([]byte) error { t.Error("it was overwritten"); return nil }),
		"recorded before":     second(lazy.Values()),
		"recorded later":      second(gone.Cast(dtype.Float32).Sum().Item()),
		"Eval":                tensor.Eval(ctx, gone.Cast(dtype.Float32)),
		"argument":            second(tensor.Function(func(x T) T { return x.Sum() }).Call(ctx, gone)),
		"Run":                 tensor.Function(func(x T) T { return x.Sum() }).Run(ctx, gone),
		"in a Function":       second(closed.Call(ctx, f32(1, 2, 3))),
		"part of a tuple":     second(tupled.Values()),
		"in a turn of two":    second(nested.Values()),
		"twice in an element": second(pairs.Values()),
	} {
		var e *tensor.Error
		if err == nil || !strings.Contains(err.Error(), text) || !errors.As(err, &e) {
			t.Errorf("%s: got error %v, want a *tensor.Error: %s", name, err, text)
		}
	}
	debugging(t, backend.Debug{Eager: true})
	if err := second(tensor.Function(func(x T) T { return x.Sum() }).Call(ctx, gone)); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("eager: got error %v, want %s", err, text)
	}
}

func second[R any](_ R, err error) error { return err }

// TestPoolMemory: one tensor after the other in the same memory, which costs one
// allocation each; sizes are kept apart.
func TestPoolMemory(t *testing.T) {
	var p tensor.Pool
	shape := op.Type{DType: dtype.Float32, Shape: tensor.Shape{1 << 12}}
	var x T
	fill := func(dst []byte) error { dst[0]++; return nil }
	next := func() {
		x, _ = p.Get(shape)
		if err := tensor.Overwrite(x, fill); err != nil {
			t.Error(err)
		}
		tensor.BeginTurn(x)
		x.Release()
		tensor.EndTurn(x)
	}
	next()
	if n := testing.AllocsPerRun(50, next); n > 1 {
		t.Errorf("a tensor from the pool takes %v allocations, want 1", n)
	}
	x = must[T](t)(p.Get(shape))
	if b := must[[]byte](t)(x.Bytes()); b[0] != 52 {
		t.Errorf("memory was filled %d times, want 52: it was not used again", b[0])
	}
	y := must[T](t)(p.Get(op.Type{DType: dtype.Float32, Shape: tensor.Shape{1 << 11}}))
	if b := must[[]byte](t)(y.Bytes()); len(b) != 1<<13 || b[0] != 0 {
		t.Errorf("got %d bytes, the first is %d, want 8192 new ones", len(b), b[0])
	}
}

// TestEachHandsBack: Each hands back what it ran on in its turn, and nothing
// while a Function that is recorded still needs it.
func TestEachHandsBack(t *testing.T) {
	var p tensor.Pool
	v := scalar("v", 0)
	fn := tensor.Function(func(x T) none { v.Assign(v.Value().Add(x.Cast(dtype.Float32).Sum())); return none{} }, vars{v})
	var passed []T
	seq := func(yield func(T, error) bool) {
		for i := range byte(3) {
			more := true
			passed = append(passed, turn(t, &p, i, func(x T) {
				for range 2 {
					more = more && yield(x, nil)
				}
			}))
			if !more {
				return
			}
		}
	}
	if err := fn.Each(ctx, seq); err != nil {
		t.Fatal(err)
	}
	want(t, "v", v, 2*3*(0+1+2))
	for i, x := range passed {
		if _, err := x.Values(); err == nil {
			t.Errorf("tensor %d was not handed back", i)
		}
	}
	passed = nil
	outer := tensor.Function(func(x T) T {
		if err := fn.Each(ctx, seq); err != nil {
			t.Error(err)
		}
		return x
	}, vars{v})
	for range 2 {
		must[T](t)(outer.Call(ctx, f32(1)))
	}
	want(t, "v", v, 3*18)
	for i, x := range passed { // in each recording, of which there are two where plans are not kept
		want(t, "recorded", x, float64(i%3), float64(i%3), float64(i%3))
	}
}
