package tensor_test

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestDigests: they do not depend on threads, on passes or on caches, and name a variable
// that has changed, and all that is computed from it.
func TestDigests(t *testing.T) {
	for _, d := range computeTypes {
		t.Run(d.String(), func(t *testing.T) {
			w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{8, 8}, func(x []float64) error { fill(x, 1); return nil })
			other := tensor.NewVariable("other", dtype.Float32, tensor.Shape{8}, func(x []float64) error { fill(x, 2); return nil })
			fn := tensor.Function(func(x T) T {
				y := x.Cast(d).MatMul(w.Value().Cast(d)).Relu()
				w.Assign(w.Value().Sub(y.Cast(dtype.Float32).Mean().MulScalar(0.1)))
				return y.Cast(dtype.Float32).Add(other.Value().AddScalar(1))
			}, &owner{[]V{w}})
			x := tensor.New(randoms(3, 5*8, -1, 1), 5, 8).Cast(dtype.Float32)
			want := must[[]tensor.Digest](t)(fn.Digests(ctx, x))
			before := must[[]byte](t)(w.Bytes())
			for _, n := range []int{1, 3} {
				old := runtime.GOMAXPROCS(n)
				got := must[[]tensor.Digest](t)(fn.Digests(ctx, x))
				runtime.GOMAXPROCS(old)
				if !slices.EqualFunc(got, want, sameDigest) {
					t.Errorf("on %d threads: got %v, want %v", n, got, want)
				}
			}
			skips := must[*backend.Skips](t)(backend.ParseSkips("all"))
			defer backend.SetSkips(backend.SetSkips(skips))
			fn.Options(ir.Options{Skip: []string{"fuse"}})
			if got := must[[]tensor.Digest](t)(fn.Digests(ctx, x)); !slices.EqualFunc(got, want, sameDigest) {
				t.Errorf("without passes and caches: got %v, want %v", got, want)
			}
			if after := must[[]byte](t)(w.Bytes()); !slices.Equal(after, before) {
				t.Error("the variable has changed")
			}
			if err := other.Set(make([]float64, 8)); err != nil {
				t.Fatal(err)
			}
			got := must[[]tensor.Digest](t)(fn.Digests(ctx, x))
			var differ []string
			for i := range got {
				if got[i].Sum != want[i].Sum {
					differ = append(differ, string(got[i].ID))
				}
			}
			if s := strings.Join(differ, " "); s != "other/Param#0 /Add#0 /Add#1" {
				t.Errorf("got differences in %s, want the variable and two sums", s)
			}
		})
	}
}

func sameDigest(a, b tensor.Digest) bool {
	return a.ID == b.ID && a.Type.Equal(b.Type) && a.Sum == b.Sum
}

// TestDigestNaN: NaNs of any sign and payload are one value; other bits count.
func TestDigestNaN(t *testing.T) {
	id := tensor.Function(func(x T) T { return x.Neg() })
	of := func(x T) uint64 { return must[[]tensor.Digest](t)(id.Digests(ctx, x))[0].Sum }
	for _, c := range []struct {
		d           dtype.DType
		one, two, x []byte
	}{
		{dtype.Float64, []byte{1, 0, 0, 0, 0, 0, 0xf0, 0x7f}, []byte{0, 0, 0, 0, 0, 0, 0xf8, 0xff}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7f}},
		{dtype.Float32, []byte{1, 0, 0x80, 0x7f}, []byte{0, 0, 0xc0, 0xff}, []byte{0, 0, 0x80, 0x7f}},
		{dtype.Float16, []byte{1, 0x7c}, []byte{0, 0xfe}, []byte{0, 0x7c}},
		{dtype.BFloat16, []byte{0x81, 0x7f}, []byte{0xc0, 0xff}, []byte{0x80, 0x7f}},
	} {
		typ := op.Type{DType: c.d, Shape: tensor.Shape{1}}
		one, two, infinite := of(tensor.FromBytes(typ, c.one)), of(tensor.FromBytes(typ, c.two)), of(tensor.FromBytes(typ, c.x))
		if one != two || one == infinite {
			t.Errorf("%v: got %x and %x for two NaNs, %x for infinity", c.d, one, two, infinite)
		}
	}
	if of(f32(0)) == of(f32(float32(math.Copysign(0, -1)))) {
		t.Error("0 and -0 are one")
	}
}

// TestFlatten takes values apart and puts them together; other structures are errors.
func TestFlatten(t *testing.T) {
	type pair struct {
		X    T
		More []T
		None T
	}
	in := pair{X: tensor.Tuple(f32(1), f32(2)), More: []T{f32(3), nil}}
	ts, structure := tensor.Flatten(in)
	if len(ts) != 3 {
		t.Fatalf("got %d tensors, want 3", len(ts))
	}
	out := must[pair](t)(tensor.Unflatten[pair](structure, ts))
	if out.None != nil || len(out.More) != 2 || out.More[1] != nil || len(out.X.Unpack()) != 2 {
		t.Errorf("got %+v", out)
	}
	want(t, "the third", out.More[0], 3)
	for _, bad := range [][]int{nil, structure[1:], append(slices.Clone(structure), 1), {-3, -1, 0}, {-3, 1 << 40, 0}, {math.MinInt, 1, 1, 0}, {2, 1, 1, 0}} {
		if _, err := tensor.Unflatten[pair](bad, ts); err == nil {
			t.Errorf("structure %v is no error", bad)
		}
	}
	if _, err := tensor.Unflatten[pair](structure, ts[1:]); err == nil {
		t.Error("a tensor too few is no error")
	}
}
