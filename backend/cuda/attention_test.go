//go:build cuda && linux && amd64

package cuda

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestAttention: attention and its gradient are one and two kernels, and on
// TF32, which the suite does not use, what they are in float32.
func TestAttention(t *testing.T) {
	d := open(t)
	defer d.Close()
	const batch, queries, keys, heads, groups, features, values = 1, 70, 45, 2, 1, 72, 10
	r := rand.New(rand.NewPCG(1, 2))
	q, k, v := op.Shape{batch, queries, heads, features}, op.Shape{batch, keys, groups, features}, op.Shape{batch, keys, groups, values}
	y := op.Shape{batch, queries, heads, values}
	var in [][]float64
	for _, s := range []op.Shape{q, k, v, y} {
		in = append(in, numbers(r, dtype.Float32, s.Size()))
	}
	outputs := map[bool][2][]float64{}
	for _, tf32 := range []bool{false, true} {
		d.settings = settings{tf32: tf32}
		g := newGraph(t)
		a := op.Attr{Causal: true, Scale: 1 / math.Sqrt(features)}
		args := []*ir.Value{g.param(dtype.Float32, q...), g.param(dtype.Float32, k...), g.param(dtype.Float32, v...)}
		by := g.param(dtype.Float32, y...)
		both := g.add(op.AttentionForward, a, args...)
		part := func(start int, s ...int) *ir.Value {
			return g.add(op.Result, op.Attr{Start: []int{start}, Dims: s}, both)
		}
		out, statistics := part(0, y...), part(y.Size(), 2, batch, heads, queries)
		grad := g.add(op.AttentionGrad, a, append(args, out, statistics, by)...)
		got, names := g.run(d, ir.Options{Check: true}, in, g.add(op.Identity, op.Attr{}, out), grad)
		how := map[bool]string{false: "plain", true: "tensor"}[tf32]
		names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "collect_") }) // parts that lie where no value may
		var want []string
		for _, what := range []string{"forward", "query_grad", "key_grad"} {
			want = append(want, "attention_"+what+"_"+how+"_float32")
		}
		if !slices.Equal(names, want) {
			t.Errorf("kernels %v, want %v", names, want)
		}
		outputs[tf32] = [2][]float64{got[0], got[1]}
	}
	// A product of numbers of 11 bits is off by 2^-10 of its size, which is a
	// third, squared, on average. Scores are sums of 72 products times 0.12, all
	// with different signs; weights are off by what scores are, and the gradients
	// are sums of up to 70·2 of their products.
	for i, name := range []string{"result", "gradients"} {
		exact, rounded := outputs[false][i], outputs[true][i]
		size := 0.0
		for _, x := range exact {
			size = max(size, math.Abs(x))
		}
		differ := false
		for j, x := range exact {
			if !(math.Abs(rounded[j]-x) <= 0x1p-8*size) {
				t.Fatalf("%s: element %d is %v as TF32 and %v in float32, the largest one %v", name, j, rounded[j], x, size)
			}
			differ = differ || rounded[j] != x
		}
		if !differ {
			t.Errorf("%s: nothing was rounded to TF32", name)
		}
	}
}

// TestAttentionOneKey: queries all of whose weight is on one key have no gradient,
// not even a rounding error times keys as large as those are, in any arithmetic and
// for features of several chunks.
func TestAttentionOneKey(t *testing.T) {
	d := open(t)
	defer d.Close()
	const batch, queries, keys, heads, groups, features, values = 1, 70, 45, 2, 1, 130, 70
	r := rand.New(rand.NewPCG(3, 4))
	q, k, v := op.Shape{batch, queries, heads, features}, op.Shape{batch, keys, groups, features}, op.Shape{batch, keys, groups, values}
	y := op.Shape{batch, queries, heads, values}
	for _, c := range []struct {
		dtype dtype.DType
		tf32  bool
	}{{dtype.Float32, false}, {dtype.Float32, true}, {dtype.BFloat16, false}, {dtype.Float16, false}} {
		d.settings = settings{tf32: c.tf32}
		var in [][]float64
		for i, s := range []op.Shape{q, k, v, y} {
			x := numbers(r, c.dtype, s.Size())
			for j := range x {
				if i < 2 {
					x[j] *= 0x1p13
				}
			}
			in = append(in, x)
		}
		g := newGraph(t)
		a := op.Attr{Scale: 1}
		args := []*ir.Value{g.param(c.dtype, q...), g.param(c.dtype, k...), g.param(c.dtype, v...)}
		by := g.param(c.dtype, y...)
		both := g.add(op.AttentionForward, a, args...)
		part := func(start int, s ...int) *ir.Value {
			return g.add(op.Result, op.Attr{Start: []int{start}, Dims: s}, both)
		}
		out, statistics := part(0, y...), part(y.Size(), 2, batch, heads, queries)
		if c.dtype != dtype.Float32 {
			out = g.add(op.Cast, op.Attr{DType: c.dtype}, out)
		}
		grad := g.add(op.AttentionGrad, a, append(args, out, statistics, by)...)
		got, _ := g.run(d, ir.Options{Check: true}, in, g.add(op.Identity, op.Attr{}, statistics), grad)
		for i := range batch * heads * queries {
			if w := got[0][batch*heads*queries+i]; w != 1 {
				t.Fatalf("%v: the largest weight of query %d is %v, want 1", c, i, w)
			}
		}
		for i, x := range got[1][:q.Size()+k.Size()] {
			if x != 0 {
				t.Fatalf("%v: element %d of the gradients by queries and keys is %v, want 0", c, i, x)
			}
		}
	}
}
