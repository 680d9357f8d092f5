//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// BenchmarkProducts measures products and convolutions on a GPU: those of the
// library, and, under MEZZO_CUDA_LIBS=-, our own. TFLOP/s are those of 16
// calls one behind the other.
func BenchmarkProducts(b *testing.B) {
	d := open(b)
	defer d.Close()
	for _, dt := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32} {
		for _, s := range [][3]int{{4096, 4096, 4096}, {8192, 4096, 784}, {8192, 8192, 8192}, {784, 4096, 8192}, {4096, 768, 3072}, {8192, 10, 4096}, {8192, 16, 4096}, {128, 64, 784}} {
			for _, layout := range []string{"nn", "nt", "tn"} {
				b.Run(fmt.Sprintf("MatMul/%v/%d·%d·%d/%s", dt, s[0], s[1], s[2], layout), func(b *testing.B) {
					x, y := op.Shape{s[0], s[2]}, op.Shape{s[2], s[1]}
					if layout[0] == 't' {
						x[0], x[1] = x[1], x[0]
					}
					if layout[1] == 't' {
						y[0], y[1] = y[1], y[0]
					}
					measure(b, d, dt, op.MatMul, op.Attr{TransA: layout[0] == 't', TransB: layout[1] == 't'}, x, y, 2*float64(s[0])*float64(s[1])*float64(s[2]))
				})
			}
		}
		for _, channels := range [][2]int{{64, 64}, {420, 1000}, {424, 1000}} { // the CNN's second convolution, and padded
			x, w, y := op.Shape{128, 28, 28, channels[0]}, op.Shape{3, 3, channels[0], channels[1]}, op.Shape{128, 26, 26, channels[1]}
			type result struct {
				op.Code
				out dtype.DType
			}
			list := []result{{op.Conv, dt}, {op.ConvInputGrad, dt}, {op.ConvKernelGrad, dt}}
			if dt.Is16() { // what optimizers get
				list = append(list, result{op.ConvKernelGrad, dtype.Float32})
			}
			for _, c := range list {
				b.Run(fmt.Sprintf("%v/%v/%v/%v", c.Code, dt, c.out, channels), func(b *testing.B) {
					a := op.Attr{Stride: []int{1, 1}, Dilation: []int{1, 1}, Low: []int{0, 0}, High: []int{0, 0}, DType: c.out}
					first, second := x, w
					switch c.Code {
					case op.ConvInputGrad:
						first, a.Dims = y, x
					case op.ConvKernelGrad:
						second, a.Dims = y, w
					}
					measure(b, d, dt, c.Code, a, first, second, 2*float64(y.Size())*float64(9*channels[0]))
				})
			}
		}
	}
}

func measure(b *testing.B, d *Device, dt dtype.DType, c op.Code, a op.Attr, x, y op.Shape, flops float64) {
	const calls = 16
	g := ir.New(2)
	types := []op.Type{{DType: dt, Shape: x}, {DType: dt, Shape: y}}
	var args []*ir.Value
	var in, out []driver.Buffer
	r := rand.New(rand.NewPCG(1, 2))
	for i, t := range types {
		args = append(args, g.Add(op.Param, op.Attr{Index: i, Dims: t.Shape, DType: dt}, t, ""))
		buffer, err := d.Alloc(t.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		defer buffer.Free()
		data := make([]byte, t.Bytes())
		some := numbers(r, dt, min(t.Shape.Size(), 1<<16))
		for at := 0; at < t.Shape.Size(); at += len(some) {
			n := min(len(some), t.Shape.Size()-at)
			dtype.FromF64(data[at*dt.Size():][:n*dt.Size()], some[:n], dt)
		}
		if err := buffer.CopyIn(data); err != nil {
			b.Fatal(err)
		}
		in = append(in, buffer)
	}
	result, err := op.Infer(c, a, types...)
	if err != nil {
		b.Fatal(err)
	}
	g.Output(g.Add(c, a, result, "", args...), -1)
	if err := ir.Optimize(g, ir.Options{}); err != nil {
		b.Fatal(err)
	}
	p, err := d.Compile(b.Context(), g)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	buffer, err := d.Alloc(result.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	defer buffer.Free()
	out = append(out, buffer)
	run := func(n int) {
		for range n {
			if err := p.Run(context.Background(), in, out); err != nil {
				b.Fatal(err)
			}
		}
		var last [2]byte
		if err := buffer.CopyOut(last[:]); err != nil { // waits
			b.Fatal(err)
		}
	}
	run(2) // the second one is captured
	for b.Loop() {
		run(calls)
	}
	b.ReportMetric(flops*calls*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOP/s")
}
