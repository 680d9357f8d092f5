package distribution_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/distribution"
)

// treeSum adds up numbers in the tree over the shards.
func treeSum[T float32 | float64](x []T) T {
	if len(x) == 1 {
		return x[0]
	}
	half := 1
	for 2*half < len(x) {
		half *= 2
	}
	return treeSum(x[:half]) + treeSum(x[half:])
}

// TestReplicas: the results are the sums of the tree over the shards, weighted by their
// rows, to the bit, for every number of ranks, in float32 and float64, with tensors
// that begin anywhere in the parts that ranks add up, in one exchange and in many.
func TestReplicas(t *testing.T) {
	const columns = 67
	for _, c := range []struct{ shards, rows int }{{1, 3}, {2, 6}, {4, 8}, {5, 7}, {8, 19}, {6, 4}} {
		r := rand.New(rand.NewPCG(1, uint64(c.shards)))
		x := make([]float64, c.rows*columns)
		for i := range x {
			x[i] = r.NormFloat64() * math.Exp2(float64(r.IntN(8)))
		}
		narrow := make([]float32, len(x))
		for i, v := range x {
			narrow[i] = float32(v)
		}
		// A shard's value is that of its first row.
		want32, want64 := make([]float32, columns), make([]float64, columns)
		for j := range columns {
			var s32 []float32
			var s64 []float64
			for s := range c.shards {
				first, end := s*c.rows/c.shards, (s+1)*c.rows/c.shards
				weight := float64(end-first) * float64(c.shards) / float64(c.rows)
				if first == end {
					s32, s64 = append(s32, 0), append(s64, 0)
					continue
				}
				s32, s64 = append(s32, narrow[first*columns+j]*float32(weight)), append(s64, x[first*columns+j]*weight)
			}
			want32[j], want64[j] = treeSum(s32)*float32(1/float64(c.shards)), treeSum(s64)*(1/float64(c.shards))
		}
		for ranks := 1; ranks <= c.shards; ranks++ {
			for _, bucket := range []int{0, 1} {
				err := distribution.Local(t.Context(), ranks, func(ctx context.Context, g *distribution.Group) error {
					dp := &distribution.DataParallel{Group: g, Shards: c.shards, BucketBytes: bucket}
					f := tensor.Function(func(in []*tensor.Tensor) []*tensor.Tensor {
						sums, others := dp.Replicas(c.rows, func(s distribution.Shard) (gradients, others []*tensor.Tensor) {
							a := in[0].Slice(0, s.First, s.First+1).Reshape(columns)
							b := in[1].Slice(0, s.First, s.First+1).Reshape(columns)
							return []*tensor.Tensor{a.Slice(0, 0, 3), nil, a.Slice(0, 3, columns), b}, []*tensor.Tensor{a}
						})
						if sums[1] != nil {
							tensor.Fail("test", "nil became %v", sums[1])
						}
						return []*tensor.Tensor{sums[0], sums[2], sums[3], others[0]}
					})
					out, err := f.Call(ctx, []*tensor.Tensor{tensor.New(narrow, c.rows, columns), tensor.New(x, c.rows, columns)})
					if err != nil {
						return err
					}
					var got []float64
					for _, o := range out {
						v, err := o.Float64s()
						if err != nil {
							return err
						}
						got = append(got, v...)
					}
					for j := range columns {
						if got[j] != float64(want32[j]) || got[2*columns+j] != float64(want32[j]) {
							return fmt.Errorf("float32: element %d is %v and %v, want %v", j, got[j], got[2*columns+j], want32[j])
						}
						if got[columns+j] != want64[j] {
							return fmt.Errorf("float64: element %d is %v, want %v", j, got[columns+j], want64[j])
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("%d ranks, %d shards, %d rows, buckets of %d: %v", ranks, c.shards, c.rows, bucket, err)
				}
			}
		}
	}
}

// TestPieces: an exchange that is cut into pieces has the bits of small ones, with every
// wire; so have its parts, where it is scattered, and what is gathered of them.
func TestPieces(t *testing.T) {
	const rows, columns = 7, 160_001
	cases := []distribution.DataParallel{{Shards: 5}, {Wire: dtype.BFloat16}, {Engine: true}}
	if testing.Short() {
		cases = cases[:1]
	}
	x := make([]float32, rows*columns)
	for i := range x {
		x[i] = float32(i%8191)/31 - 100
	}
	for _, d := range cases {
		err := distribution.Local(t.Context(), 3, func(ctx context.Context, g *distribution.Group) error {
			d := d
			d.Group = g
			p := d.Partition()
			f := tensor.Function(func(x *tensor.Tensor) []*tensor.Tensor {
				of := func(s distribution.Shard) (gradients, others []*tensor.Tensor) {
					y := x.MulScalar(1 / float64(s.First+3))
					gradients = []*tensor.Tensor{y, y.Slice(0, 1, 3).Cast(dtype.Float64)}
					for i := range rows {
						others = append(others, y.Slice(0, i, i+1))
					}
					return gradients, append(others, gradients[1].Slice(0, 0, 1), gradients[1].Slice(0, 1, 2))
				}
				whole, rest := d.Replicas(60, of)
				small := []*tensor.Tensor{tensor.Concat(0, rest[:rows]...), tensor.Concat(0, rest[rows:]...)}
				gathered := []*tensor.Tensor{p.Gather([]*tensor.Tensor{p.Own(whole[0])}, []tensor.Shape{{rows, columns}})[0], whole[1]}
				if d.Engine { // which has whole vectors
					return append(whole, small...)
				}
				parts, _ := d.ScatteredReplicas(60, of)
				return slices.Concat(whole, small, gathered, []*tensor.Tensor{p.Gather(parts[:1], []tensor.Shape{{rows, columns}})[0], p.Gather(parts[1:], []tensor.Shape{{2, columns}})[0]})
			})
			out, err := f.Call(ctx, tensor.New(x, rows, columns))
			if err != nil {
				return err
			}
			for i, o := range out {
				got, err := o.Bytes()
				if err != nil {
					return err
				}
				want, err := out[i%2].Bytes()
				if err != nil {
					return err
				}
				if !bytes.Equal(got, want) {
					return fmt.Errorf("rank %d: sum %d is not that of one exchange", g.Rank(), i)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

// TestRowsOfRank: they are the rows of the shards that Replicas records.
func TestRowsOfRank(t *testing.T) {
	for _, rows := range []int{1, 3, 5, 8, 13} {
		err := distribution.Local(t.Context(), 3, func(ctx context.Context, g *distribution.Group) error {
			dp := &distribution.DataParallel{Group: g, Shards: 5}
			first, end := dp.RowsOfRank(rows)
			from, to := rows, 0
			f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor {
				_, others := dp.Replicas(rows, func(s distribution.Shard) (gradients, others []*tensor.Tensor) {
					from, to = min(from, s.First), max(to, s.End)
					return nil, []*tensor.Tensor{x.Slice(0, s.First, s.End).Mean()}
				})
				return others[0]
			})
			if _, err := f.Call(ctx, tensor.New(make([]float32, rows), rows)); err != nil {
				return err
			}
			if first > from || end < to || rows >= 5 && (first < from || end > to) {
				return fmt.Errorf("rank %d of 3 uses rows %d to %d of %d, and reads %d to %d", g.Rank(), from, to, rows, first, end)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestReplicasAssign: floats that shards assign become their weighted mean, integers what
// the first shard assigns; each shard begins with the value before.
func TestReplicasAssign(t *testing.T) {
	err := distribution.Local(t.Context(), 2, func(ctx context.Context, g *distribution.Group) error {
		mean := variable("mean", 10)
		count := tensor.NewState("count", dtype.Int64, nil, nil)
		dp := &distribution.DataParallel{Group: g, Shards: 4}
		f := tensor.Function(func(x *tensor.Tensor) struct{} {
			dp.Replicas(10, func(s distribution.Shard) (gradients, others []*tensor.Tensor) {
				part := x.Slice(0, s.First, s.End)
				mean.Assign(mean.Value().MulScalar(0.5).Add(part.Mean().Reshape(1)))
				count.Assign(count.Value().AddScalar(1))
				return nil, []*tensor.Tensor{part.Mean()}
			})
			return struct{}{}
		}, vars{mean, count})
		if _, err := f.Call(ctx, tensor.New([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 10)); err != nil {
			return err
		}
		m, err := mean.Values()
		if err != nil {
			return err
		}
		n, err := count.Item()
		if err != nil {
			return err
		}
		if math.Abs(float64(m[0])-10.5) > 1e-5 || n != 1 {
			return fmt.Errorf("got %v and %v, want 10/2 + 5.5 and 1", m[0], n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDifferentPrograms: a rank that would exchange something else is an error before
// anything is exchanged.
func TestDifferentPrograms(t *testing.T) {
	err := distribution.Local(t.Context(), 2, func(ctx context.Context, g *distribution.Group) error {
		dp := &distribution.DataParallel{Group: g}
		n := 4 + g.Rank()
		f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor { return dp.AllReduce([]*tensor.Tensor{x})[0] })
		_, err := f.Call(ctx, tensor.New(make([]float32, n), n))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "rank 1: its program exchanges bucket 0") || !strings.Contains(err.Error(), "[[5]]; that of rank 0 exchanges") {
		t.Errorf("got %v, want the shapes of both ranks", err)
	}
}

func TestCheck(t *testing.T) {
	g := distribution.NewGroup(distribution.LocalEngines(4)[0])
	for _, c := range []struct {
		d    distribution.DataParallel
		want string
	}{
		{distribution.DataParallel{Shards: 3}, "DataParallel: Shards is 3, want at least the number of ranks, 4"},
		{distribution.DataParallel{Wire: dtype.Int32}, "DataParallel: Wire is int32, want float32, bfloat16 or float16"},
		{distribution.DataParallel{BucketBytes: -1}, "DataParallel: BucketBytes is -1, want a positive number"},
		{distribution.DataParallel{Shards: 8, Engine: true}, "DataParallel: Engine is set, and Shards or Wire, which an engine's own sum has not"},
		{distribution.DataParallel{Shards: 7, Wire: dtype.BFloat16}, ""},
	} {
		c.d.Group = g
		got := ""
		if err := c.d.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got %q, want %q", c.d, got, c.want)
		}
	}
}
