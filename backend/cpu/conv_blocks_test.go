package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestConvCuts runs convolutions of sizes at which work is cut in other ways,
// several images to a chunk, bands of an image, parts of the columns, on every
// instruction set: against the portable kernels, and with the same bits for any
// number of workers.
func TestConvCuts(t *testing.T) {
	shapes := []struct {
		name        string
		x, w        op.Shape
		stride, pad int
		groups      int
	}{
		{"images", op.Shape{40, 7, 7, 32}, op.Shape{3, 3, 32, 32}, 1, 1, 1},
		{"imagesStride", op.Shape{36, 9, 9, 20}, op.Shape{3, 3, 20, 64}, 2, 1, 1},
		{"imagesOneChannel", op.Shape{40, 14, 14, 1}, op.Shape{3, 3, 1, 32}, 1, 0, 1},
		{"bands", op.Shape{1, 70, 40, 16}, op.Shape{3, 3, 16, 32}, 1, 1, 1},
		{"wide", op.Shape{1, 8, 8, 128}, op.Shape{3, 3, 128, 300}, 1, 1, 1},
		{"point", op.Shape{20, 8, 8, 24}, op.Shape{1, 1, 24, 64}, 1, 0, 1},
		{"groups", op.Shape{20, 12, 12, 32}, op.Shape{3, 3, 8, 128}, 1, 1, 4},
		{"depthwise", op.Shape{20, 20, 20, 40}, op.Shape{3, 3, 1, 40}, 2, 1, 40},
	}
	type key struct {
		shape int
		d     dtype.DType
		c     op.Code
	}
	want, args := map[key][]float64{}, map[key][]array{}
	rng := rand.New(rand.NewPCG(37, 38))
	compile := func(c op.Code, a op.Attr, in []array) *Program {
		g := ir.New(2)
		g.Output(record(t, g, c, a, param(t, g, 0, in[0].Type), param(t, g, 1, in[1].Type)), -1)
		return plan(t, g)
	}
	forEachISA(t, func(t *testing.T) {
		level := current()
		if level == isaPortable {
			return
		}
		for i, s := range shapes {
			two := func(n int) []int { return []int{n, n} }
			a := op.Attr{Stride: two(s.stride), Dilation: two(1), Low: two(s.pad), High: two(s.pad), Groups: s.groups}
			y, err := op.Infer(op.Conv, a, op.Type{DType: dtype.Float32, Shape: s.x}, op.Type{DType: dtype.Float32, Shape: s.w})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
				for _, c := range []op.Code{op.Conv, op.ConvInputGrad, op.ConvKernelGrad} {
					a, shapes := convArguments(c, a, s.x, s.w, y.Shape)
					k := key{i, d, c}
					if args[k] == nil {
						args[k] = []array{randomArray(rng, d, shapes[0]...), randomArray(rng, d, shapes[1]...)}
						isaLevel.Store(uint32(isaPortable))
						want[k] = eval(t, c, a, args[k]...).values()
						isaLevel.Store(uint32(level))
					}
					p := compile(c, a, args[k])
					got := runProcs(t, p, args[k], 1)
					if !bytes.Equal(got.data, runProcs(t, p, args[k], 3).data) {
						t.Errorf("%s, %v of %v: other bits with 3 workers", s.name, c, d)
					}
					// As in TestConvLevels.
					terms := max(y.Shape.Size()/y.Shape[3], s.w.Size())
					near(t, fmt.Sprint(s.name, " ", c, " ", d), got, want[k], 8*math.Sqrt(float64(terms)))
				}
			}
		}
	})
}
