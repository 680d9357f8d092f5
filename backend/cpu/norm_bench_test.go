package cpu

import (
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// BenchmarkNorm is BenchmarkMemory for normalizations and softmaxes and the
// element-wise operations around them.
func BenchmarkNorm(b *testing.B) {
	f32 := dtype.Float32
	for _, d := range []dtype.DType{f32, dtype.BFloat16, dtype.Float16} {
		s := d.Size()
		typ := func(d dtype.DType, shape ...int) op.Type { return op.Type{DType: d, Shape: shape} }
		bench := func(name string, perElement int, a op.Attr, c op.Code, types func(n int) []op.Type) {
			benchMemory(b, name+"/"+d.String(), perElement, func(tb testing.TB, g *ir.Graph, n int) *ir.Value {
				var args []*ir.Value
				for i, t := range types(n) {
					args = append(args, param(tb, g, i, t))
				}
				return record(tb, g, c, a, args...)
			})
		}
		for _, c := range []int{3, 64, 1024} {
			// One matrix, as in batch normalization, and matrices of 784 rows.
			for _, rows := range []int{0, 784} {
				shape := func(n int) op.Shape {
					if rows == 0 || n < rows*c {
						return op.Shape{1, max(1, n/c), c}
					}
					return op.Shape{n / (rows * c), rows, c}
				}
				at := fmt.Sprintf("%d/%d", rows, c)
				bench("Moments/"+at, s, op.Attr{}, op.Moments, func(n int) []op.Type { return []op.Type{{DType: d, Shape: shape(n)}} })
				bench("BatchNormReduce/"+at, 2*s, op.Attr{}, op.BatchNormReduce, func(n int) []op.Type {
					x := shape(n)
					return []op.Type{{DType: d, Shape: x}, typ(f32, x[0], c), {DType: d, Shape: x}}
				})
				benchMemory(b, "Apply/"+at+"/"+d.String(), 2*s, func(tb testing.TB, g *ir.Graph, n int) *ir.Value {
					x := shape(n)
					y := record(tb, g, op.Cast, op.Attr{DType: f32}, param(tb, g, 0, op.Type{DType: d, Shape: x}))
					for i, c := range []op.Code{op.Sub, op.Mul, op.Add} {
						per := typ(f32, x[0], 1, x[2])
						y = record(tb, g, c, op.Attr{}, y, param(tb, g, i+1, per))
					}
					return record(tb, g, op.Cast, op.Attr{DType: d}, y)
				})
				benchMemory(b, "ApplyGrad/"+at+"/"+d.String(), 3*s, func(tb testing.TB, g *ir.Graph, n int) *ir.Value {
					x := shape(n)
					wide := func(i int) *ir.Value {
						return record(tb, g, op.Cast, op.Attr{DType: f32}, param(tb, g, i, op.Type{DType: d, Shape: x}))
					}
					per := func(i int) *ir.Value { return param(tb, g, i, typ(f32, x[0], 1, x[2])) }
					rec := func(c op.Code, args ...*ir.Value) *ir.Value { return record(tb, g, c, op.Attr{}, args...) }
					dy, v := wide(0), wide(1)
					y := rec(op.Add, rec(op.Mul, dy, per(2)), rec(op.Mul, rec(op.Sub, v, per(3)), per(4)))
					return record(tb, g, op.Cast, op.Attr{DType: d}, rec(op.Add, y, per(5)))
				})
			}
		}
		rows := func(width int, more ...func(x op.Type) op.Type) func(n int) []op.Type {
			return func(n int) []op.Type {
				x := typ(d, max(1, n/width), width)
				list := []op.Type{x}
				for _, m := range more {
					list = append(list, m(x))
				}
				return list
			}
		}
		same := func(x op.Type) op.Type { return x }
		per := func(x op.Type) op.Type { return typ(f32, x.Shape[1]) }
		bench("LayerNorm", 2*s, op.Attr{Epsilon: 1e-3}, op.LayerNorm, rows(768, per, per))
		bench("LayerNormGrad", 2*s+4, op.Attr{Epsilon: 1e-3}, op.LayerNormGrad, rows(768, per, same))
		for _, n := range []int{10, 1024, 8192} {
			bench(fmt.Sprintf("Softmax/%d", n), 2*s, op.Attr{Axes: []int{1}}, op.Softmax, rows(n))
			bench(fmt.Sprintf("LogSoftmax/%d", n), 2*s, op.Attr{Axes: []int{1}}, op.LogSoftmax, rows(n))
			bench(fmt.Sprintf("SoftmaxGrad/%d", n), 3*s, op.Attr{Axes: []int{1}}, op.SoftmaxGrad, rows(n, same))
		}
	}
}
