package ir

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// quantizedGraph is a graph with quantized convolutions of [1 8 4] by [1 4 4].
type quantizedGraph struct{ *builder }

func (b quantizedGraph) scales() (scale, zero *Value) {
	return b.param(f32), b.param(dtype.Int8)
}

func (b quantizedGraph) conv(x, scale, zero *Value) *Value {
	attr := op.Attr{Stride: []int{1}, Dilation: []int{1}, Low: []int{0}, High: []int{0}}
	return b.op(op.QuantizedConv, attr, x, b.param(dtype.Int8, 1, 4, 4), b.param(f32, 4), scale, zero)
}

// TestRequantize: a convolution stores 8-bit integers if quantized convolutions with one
// scale and one zero point are all that reads its result.
func TestRequantize(t *testing.T) {
	for _, c := range []struct {
		name   string
		int8s  int // values of int8 that are no params
		record func(b quantizedGraph, x *Value)
	}{
		{"chain", 2, func(b quantizedGraph, x *Value) {
			for range 3 {
				s, z := b.scales()
				x = b.conv(x, s, z)
			}
			b.Output(x, -1)
		}},
		{"epilogue", 1, func(b quantizedGraph, x *Value) {
			s, z := b.scales()
			x = b.do(op.Relu, b.do(op.Add, b.conv(x, s, z), b.param(f32, 4)))
			s, z = b.scales()
			b.Output(b.do(op.Relu, b.conv(x, s, z)), -1)
		}},
		{"bfloat16", 1, func(b quantizedGraph, x *Value) {
			s, z := b.scales()
			x = b.do(op.Relu, b.conv(b.cast(x, bf16), s, z))
			s, z = b.scales()
			b.Output(b.conv(x, s, z), -1)
		}},
		{"one scale", 1, func(b quantizedGraph, x *Value) {
			s, z := b.scales()
			x = b.conv(x, s, z)
			s, z = b.scales()
			b.Output(b.do(op.Add, b.conv(x, s, z), b.conv(x, s, z)), -1)
		}},
		{"two scales", 0, func(b quantizedGraph, x *Value) {
			s, z := b.scales()
			x = b.conv(x, s, z)
			s, z = b.scales()
			s2, z2 := b.scales()
			b.Output(b.do(op.Add, b.conv(x, s, z), b.conv(x, s2, z2)), -1)
		}},
		{"residual", 0, func(b quantizedGraph, x *Value) {
			s, z := b.scales()
			x = b.conv(x, s, z)
			s, z = b.scales()
			b.Output(b.do(op.Add, b.conv(x, s, z), x), -1)
		}},
		{"output", 0, func(b quantizedGraph, x *Value) {
			s, z := b.scales()
			x = b.conv(x, s, z)
			b.Output(x, -1)
			s, z = b.scales()
			b.Output(b.conv(x, s, z), -1)
		}},
		{"scale of the result", 0, func(b quantizedGraph, x *Value) {
			s, z := b.scales()
			x = b.conv(x, s, z)
			s = b.reshape(b.op(op.Max, op.Attr{Axes: []int{0, 1, 2}}, x))
			b.Output(b.conv(x, s, z), -1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, skip := range []bool{false, true} {
				b := quantizedGraph{build()}
				c.record(b, b.param(f32, 1, 8, 4))
				want, o, after := c.int8s, Options{}, "requantize"
				if skip {
					want, o.Skip, after = 0, []string{"requantize"}, "epilogue"
				}
				text := optimize(t, b.builder, after, o)
				if got := strings.Count(text, "requantize"); got != want {
					t.Errorf("%d convolutions store integers, want %d:\n%s", got, want, text)
				}
			}
		})
	}
}

// TestRequantizeWatch: watched programs show every result as it was recorded.
func TestRequantizeWatch(t *testing.T) {
	b := quantizedGraph{build()}
	x := b.param(f32, 1, 8, 4)
	for range 2 {
		s, z := b.scales()
		x = b.conv(x, s, z)
	}
	b.Output(x, -1)
	if text := optimize(t, b.builder, "", Options{Watch: true}); strings.Contains(text, "requantize") {
		t.Errorf("a watched program has results of int8:\n%s", text)
	}
}
