package op

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestPartials: the partial sums of all ranks are the shards, each once and in order,
// and blocks of the one tree of sums, whatever the number of ranks.
func TestPartials(t *testing.T) {
	for shards := 1; shards <= 33; shards++ {
		tree := map[[2]int]bool{}
		var visit func(lo, hi int)
		visit = func(lo, hi int) {
			tree[[2]int{lo, hi}] = true
			half := 1
			for 2*half < hi-lo {
				half *= 2
			}
			if hi-lo > 1 {
				visit(lo, lo+half)
				visit(lo+half, hi)
			}
		}
		visit(0, shards)
		for ranks := 1; ranks <= shards; ranks++ {
			next := 0
			for rank := range ranks {
				first, end := ShardsOf(rank, ranks, shards)
				if first != next || end <= first {
					t.Fatalf("shards %d…%d of rank %d of %d, want them from %d on", first, end, rank, ranks, next)
				}
				for _, b := range Partials(rank, ranks, shards) {
					if b[0] != next || !tree[b] {
						t.Fatalf("%d shards, rank %d of %d: block %v, want one of the tree from %d on", shards, rank, ranks, b, next)
					}
					next = b[1]
				}
				if next != end {
					t.Fatalf("%d shards, rank %d of %d: blocks end at %d, want %d", shards, rank, ranks, next, end)
				}
			}
			if next != shards {
				t.Fatalf("%d shards of %d ranks: the last is %d", shards, ranks, next)
			}
		}
	}
	if got, want := Partials(0, 3, 8), [][2]int{{0, 2}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := fmt.Sprint(Partials(1, 3, 8), Partials(2, 3, 8)), "[[2 4] [4 5]] [[5 6] [6 8]]"; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestInferAllReduce(t *testing.T) {
	a := func(change func(*AllReduce)) Attr {
		x := &AllReduce{Rank: 1, Ranks: 3, Shards: 8, Shapes: []Shape{{3}, {2, 4}}, Wire: dtype.Float32}
		change(x)
		return Attr{AllReduce: x}
	}
	plain := a(func(*AllReduce) {})
	scatter := a(func(x *AllReduce) { x.Scatter = true })
	gather := a(func(x *AllReduce) { x.Shards, x.Scale, x.Wire = 3, 1, f16 })
	full := args(ty(f32, 3), ty(f32, 2, 4), ty(f32, 3), ty(f32, 2, 4))
	for _, c := range []struct {
		op   Code
		attr Attr
		args []Type
		want string
	}{
		{AllReduceStart, plain, full, "float32[96]"}, // 3 ranks, 2 rows, 16 elements
		{AllReduceStart, plain, append(full, ty(f32, 96)), "float32[96]"},
		{AllReduceStart, a(func(x *AllReduce) { x.Wire = f16 }), full, "float16[96]"},
		{AllReduceStart, plain, full[:3], "got 3 arguments, want 4"},
		{AllReduceStart, plain, args(ty(f16, 3), ty(f16, 2, 4), ty(f16, 3), ty(f16, 2, 4)), "got float16[3], want float32 or float64"},
		{AllReduceStart, plain, args(ty(f32, 3), ty(f32, 2, 4), ty(f32, 3), ty(f32, 2, 3)), "argument 3 is float32[2 3], want float32[2 4]"},
		{AllReduceStart, a(func(x *AllReduce) { x.Wire = dtype.Float64 }), full, "float32 cannot be sent as float64"},
		{AllReduceStart, a(func(x *AllReduce) { x.Rank = 3 }), full, "rank 3 of 3"},
		{AllReduceStart, a(func(x *AllReduce) { x.Shards = 2 }), full, "2 shards for 3 ranks"},
		{AllReduceStart, a(func(x *AllReduce) { x.Native = true }), full, "the engine adds up float32 of one shard for each rank, got 8 shards and float32"},
		{AllReduceStart, scatter, full, "float32[96]"}, // of 1 and 3 elements for each rank
		{AllReduceDone, scatter, args(ty(f32, 96)), "float32[4]"},
		{AllReduceStart, a(func(x *AllReduce) { x.Native, x.Scatter = true, true }), full, "the engine adds up whole vectors, got an exchange that scatters"},
		{AllReduceStart, Attr{}, full, "no AllReduce attribute"},
		{AllReduceDone, plain, args(ty(f32, 96)), "float32[11]"},
		{AllReduceDone, a(func(x *AllReduce) { x.Wire = f16 }), args(ty(f16, 96)), "float32[11]"},
		{AllReduceDone, plain, args(ty(f32, 95)), "got float32[95], want float32[96]"},
		{AllGatherStart, gather, args(ty(f16, 1), ty(f16, 3)), "float16[4]"},
		{AllGatherStart, gather, args(ty(f16, 1), ty(f16, 3), ty(f32, 96)), "float16[4]"},
		{AllGatherStart, gather, args(ty(f16, 1)), "got 1 arguments, want 2"},
		{AllGatherStart, gather, args(ty(f16, 1), ty(f16, 2)), "argument 1 is float16[2], want float16[3]"},
		{AllGatherStart, gather, args(ty(f16, 1), ty(f32, 3)), "argument 1 is float32[3], want float16[3]"},
		{AllGatherStart, plain, full, "tensors of float types are gathered as they are, got bucket 0 of 3 ranks, 8 shards, wire float32, scale 0: [[3] [2 4]]"},
		{AllGatherDone, gather, args(ty(f16, 4)), "float16[11]"},
		{AllGatherDone, gather, args(ty(f16, 5)), "got float16[5], want float16[4]"},
	} {
		r, err := Infer(c.op, c.attr, c.args...)
		got := r.String()
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v %v {%v}: got %q, want %q", c.op, c.args, c.attr, got, c.want)
		}
	}
}
