//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestMaxPool: maxima and their gradients, alone and of a ReLU before the pooling, are those
// of plain loops, by kernels for one channel and for four at a time. A window without a
// number above 0 passes no gradient to a ReLU, nor does one with a NaN.
func TestMaxPool(t *testing.T) {
	d := open(t)
	defer d.Close()
	for _, dt := range dtype.Floats() {
		for _, channels := range []int{3, 4, 12} {
			for _, stride := range []int{1, 2, 3} { // windows overlap, meet, and leave rows out
				for _, relu := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v/%d/%d/relu=%v", dt, channels, stride, relu), func(t *testing.T) {
						testMaxPool(t, d, dt, channels, stride, relu)
					})
				}
			}
		}
	}
}

func testMaxPool(t *testing.T, d *Device, dt dtype.DType, channels, stride int, relu bool) {
	const images, high, wide, size = 3, 7, 5, 2
	g := newGraph(t)
	x := g.param(dt, images, high, wide, channels)
	a := op.Attr{Window: []int{size, size}, Stride: []int{stride, stride}, Dilation: []int{1, 1}, Low: []int{0, 0}, High: []int{0, 0}}
	y := g.add(op.MaxPool, a, x)
	dy := g.param(dt, y.Type.Shape...)
	dx := g.add(op.MaxPoolGrad, a, x, dy)
	if relu {
		zero := g.Add(op.Const, op.Attr{DType: dt}, op.Type{DType: dt, Shape: op.Shape{}}, "test")
		dx = g.add(op.Where, op.Attr{}, g.add(op.Greater, op.Attr{}, x, zero), dx, zero)
	}
	r := rand.New(rand.NewPCG(9, 10))
	in := [][]float64{numbers(r, dt, x.Type.Shape.Size()), numbers(r, dt, y.Type.Shape.Size())}
	in[0][channels-1] = math.NaN()
	rows, columns := y.Type.Shape[1], y.Type.Shape[2]
	wantY, wantX := make([]float64, len(in[1])), make([]float64, len(in[0]))
	for i := range wantY {
		c, z, q, image := i%channels, i/channels%columns, i/channels/columns%rows, i/channels/columns/rows
		found := -1
		for w := range size * size {
			at := ((image*high+q*stride+w/size)*wide+z*stride+w%size)*channels + c
			if v := in[0][at]; found < 0 || in[0][found] == in[0][found] && (v > in[0][found] || v != v) {
				found = at
			}
		}
		if wantY[i] = in[0][found]; !relu || wantY[i] > 0 {
			wantX[found] += in[1][i]
		}
	}
	got, names := g.run(d, ir.Options{Check: true}, in, y, dx)
	four := ""
	if channels%4 == 0 && dt != dtype.Float64 {
		four = "four_"
	}
	gradient := "max_pool_spread_" + four + dt.String()
	if stride < size {
		gradient = "max_pool_grad_" + dt.String()
	}
	if names[0] != "max_pool_"+four+dt.String() || names[len(names)-1] != gradient {
		t.Errorf("kernels %v, want %s at the end", names, gradient)
	}
	tolerance := 4 * dt.Epsilon() // of sums of up to four
	for i, v := range got[0] {
		if v != wantY[i] && !(v != v && wantY[i] != wantY[i]) {
			t.Fatalf("maximum %d: got %v, want %v", i, v, wantY[i])
		}
	}
	for i, v := range got[1] {
		if !(math.Abs(v-wantX[i]) <= tolerance*math.Abs(wantX[i])+tolerance/4) {
			t.Fatalf("gradient %d: got %v, want %v", i, v, wantX[i])
		}
	}
}
