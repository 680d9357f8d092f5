package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// bench runs one operation and reports its rates: of arithmetic unless flops is 0, and
// of useful bytes, each operand and result counted once.
func bench(b *testing.B, name string, flops int, c op.Code, a op.Attr, types ...op.Type) {
	b.Run(name, func(b *testing.B) {
		rng := rand.New(rand.NewPCG(1, 1))
		g := ir.New(len(types))
		var inputs []array
		var vals []*ir.Value
		bytes := 0
		for i, t := range types {
			inputs = append(inputs, randomArray(rng, t.DType, t.Shape...))
			vals = append(vals, param(b, g, i, t))
			bytes += t.Bytes()
		}
		v := record(b, g, c, a, vals...)
		g.Output(v, -1)
		p := plan(b, g)
		in, out := buffers(p, inputs)
		for b.Loop() {
			if err := p.Run(context.Background(), in, out); err != nil {
				b.Fatal(err)
			}
		}
		seconds := b.Elapsed().Seconds() / float64(b.N)
		if flops > 0 {
			b.ReportMetric(float64(flops)/seconds/1e9, "GFLOP/s")
		}
		b.ReportMetric(float64(bytes+v.Type.Bytes())/seconds/1e9, "GB/s")
	})
}

func BenchmarkMatMul(b *testing.B) {
	for _, d := range dtype.Floats() {
		for _, s := range [][3]int{{512, 512, 512}, {128, 784, 512}, {1, 1024, 1024}, {32, 3072, 768}} {
			m, k, n := s[0], s[1], s[2]
			bench(b, fmt.Sprintf("%v/%dx%dx%d", d, m, k, n), 2*m*n*k, op.MatMul, op.Attr{},
				op.Type{DType: d, Shape: op.Shape{m, k}}, op.Type{DType: d, Shape: op.Shape{k, n}})
		}
	}
}

func BenchmarkElementwise(b *testing.B) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32} {
		t := op.Type{DType: d, Shape: op.Shape{512, 1024}}
		row := op.Type{DType: d, Shape: op.Shape{1024}}
		bench(b, fmt.Sprintf("Add/%v", d), 0, op.Add, op.Attr{}, t, t)
		bench(b, fmt.Sprintf("AddRow/%v", d), 0, op.Add, op.Attr{}, t, row)
		for _, c := range []op.Code{op.Relu, op.Exp, op.Tanh, op.Sigmoid, op.Log, op.Sqrt} {
			bench(b, fmt.Sprintf("%v/%v", c, d), 0, c, op.Attr{}, t)
		}
	}
}

func BenchmarkReduce(b *testing.B) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.Float32} {
		t := op.Type{DType: d, Shape: op.Shape{1024, 1024}}
		for axis := range 2 {
			bench(b, fmt.Sprintf("Sum%d/%v", axis, d), 0, op.Sum, op.Attr{Axes: []int{axis}}, t)
			bench(b, fmt.Sprintf("Max%d/%v", axis, d), 0, op.Max, op.Attr{Axes: []int{axis}}, t)
		}
		bench(b, fmt.Sprintf("Softmax/%v", d), 0, op.Softmax, op.Attr{Axes: []int{1}}, t)
		bench(b, fmt.Sprintf("AllFinite/%v", d), 0, op.AllFinite, op.Attr{}, t)
		bench(b, fmt.Sprintf("Transpose/%v", d), 0, op.Transpose, op.Attr{Perm: []int{1, 0}}, t)
	}
}
