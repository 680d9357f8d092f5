package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestConvCuts runs convolutions of sizes at which work is cut in other ways,
// several images to a chunk, bands of an image, parts of the columns, on every
// instruction set: against the portable kernels, and with the same bits for any
// number of workers.
func TestConvCuts(t *testing.T) {
	isatest.SkipEmulated(t, "TestConvLevels compares the same kernels")
	isatest.SkipRace(t)
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
		{"inSource", op.Shape{9, 9, 10, 64}, op.Shape{3, 3, 32, 64}, 1, 0, 2},
		{"patches", op.Shape{5, 12, 11, 3}, op.Shape{3, 3, 3, 32}, 1, 1, 1},
		{"patchesStride", op.Shape{5, 12, 11, 3}, op.Shape{3, 3, 3, 32}, 2, 1, 1},
		{"fewPixels", op.Shape{3, 5, 3, 192}, op.Shape{3, 3, 192, 192}, 1, 1, 1},
		{"sharedColumns", op.Shape{3, 2, 70, 33}, op.Shape{1, 5, 33, 64}, 1, 1, 1},
	}
	type key struct {
		shape int
		d     dtype.DType
		c     op.Code
	}
	args := map[key][]array{}
	rng := rand.New(rand.NewPCG(37, 38))
	compile := func(c op.Code, a op.Attr, in []array) *Program {
		g := ir.New(2)
		g.Output(record(t, g, c, a, param(t, g, 0, in[0].Type), param(t, g, 1, in[1].Type)), -1)
		return plan(t, g)
	}
	isatest.ForEach(t, func(t *testing.T) {
		if isa.Current() == isa.Portable {
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
					}
					p := compile(c, a, args[k])
					got := runProcs(t, p, args[k], 1)
					if !bytes.Equal(got.data, runProcs(t, p, args[k], 3).data) {
						t.Errorf("%s, %v of %v: other bits with 3 workers", s.name, c, d)
					}
					// As in TestConvLevels.
					terms := max(y.Shape.Size()/y.Shape[3], s.w.Size())
					near(t, fmt.Sprint(s.name, " ", c, " ", d), got, portable(t, c, a, args[k]...).values(), 8*math.Sqrt(float64(terms)))
				}
			}
		}
	})
}

// TestConvNotFinite: infinities and NaN of float16 reach what reads them as
// without tile registers, whatever part of an operand they are in, and leave
// runs after them alone. What follows is applied once.
func TestConvNotFinite(t *testing.T) {
	if set := gemm.Current(); set == nil || set.Panels == nil {
		return // no pieces
	}
	level := isa.Current()
	rng := rand.New(rand.NewPCG(45, 46))
	two := []int{2, 2}
	ones, zeros := []int{1, 1}, []int{0, 0}
	used := 0
	for _, s := range []struct {
		x, w op.Shape
		step []int
		rare string // the algorithm of the kernels' gradient in float32, if not by transforms
	}{
		{op.Shape{3, 12, 13, 32}, op.Shape{3, 3, 32, 40}, two, "blocks"}, // windows beside each other
		{op.Shape{2, 9, 40, 33}, op.Shape{1, 3, 33, 32}, ones, "rows"},   // elements side by side
	} {
		a := op.Attr{Stride: s.step, Dilation: ones, Low: zeros, High: zeros}
		typ := func(s op.Shape) op.Type { return op.Type{DType: dtype.Float16, Shape: s} }
		y, err := op.Infer(op.Conv, a, typ(s.x), typ(s.w))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []op.Code{op.Conv, op.ConvInputGrad, op.ConvKernelGrad} {
			a, shapes := convArguments(c, a, s.x, s.w, y.Shape)
			args := []array{randomArray(rng, dtype.Float16, shapes[0]...), randomArray(rng, dtype.Float16, shapes[1]...)}
			compile := func() *Program {
				g := ir.New(2)
				v := record(t, g, c, a, param(t, g, 0, args[0].Type), param(t, g, 1, args[1].Type))
				g.Output(record(t, g, op.Relu, op.Attr{}, v), -1)
				if err := ir.Optimize(g, ir.Options{}); err != nil {
					t.Fatal(err)
				}
				p, err := shared.Compile(t.Context(), g)
				if err != nil {
					t.Fatal(err)
				}
				return p.(*Program)
			}
			p := compile()
			isa.Use(isa.AVX512)
			restore := exec.Force("wgrad", s.rare)
			vector := compile()
			restore()
			isa.Use(level)
			if p.choices[len(p.graph.Values)-1].Algorithm == "amx" {
				used++
			}
			clean := runProcs(t, p, args, 1)
			for i, bits := range []uint16{0x7c00, 0xfc00, 0x7e00, 0x7c01} {
				arg := args[i%2]
				half := dtype.View[uint16](arg.data)
				at := rng.IntN(len(half))
				old := half[at]
				half[at] = bits
				got, want := runProcs(t, p, args, 1+i), runProcs(t, vector, args, 1)
				if !bytes.Equal(got.data, want.data) {
					t.Errorf("%v of %v and %v: with %#x at %d of operand %d, other bits than on vector registers", c, s.x, s.w, bits, at, i%2)
				}
				half[at] = old
			}
			if !bytes.Equal(runProcs(t, p, args, 2).data, clean.data) {
				t.Errorf("%v of %v and %v: other bits after an operand that was not finite", c, s.x, s.w)
			}
		}
	}
	if used < 5 {
		t.Errorf("%d of 6 on tile registers", used)
	}
}
