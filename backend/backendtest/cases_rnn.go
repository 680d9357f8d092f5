package backendtest

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() {
	register(rnnCases, op.RNN)
	register(rnnGradCases, op.RNNGrad)
	register(partCases, op.Result)
}

// recurrentCells are the cells that scans have.
var recurrentCells = []op.Cell{op.TanhCell, op.ReluCell, op.LSTMCell, op.GRUCell, op.GRUBeforeCell}

// scanClasses are the sizes of recurrent operations.
var scanClasses = []struct {
	name                string
	steps, batch, units int
}{
	{"one", 1, 1, 1},
	{"odd", 3, 5, 7},
	{"blocks", 3, 37, 16},
	{"empty", 2, 0, 3},
	{"noSteps", 0, 3, 4},
	{"largePanel", 4, 32, 64},
	{"largeRagged", 3, 70, 50},
	{"largeSteps", 9, 33, 16}, // more rows than a gradient keeps at a time
}

// eachScan goes through cells, sizes, directions and masks.
func eachScan(f func(name string, s *op.Scan, steps, batch, units int)) {
	for _, cell := range recurrentCells {
		for i, c := range scanClasses {
			for _, masked := range []bool{false, true} {
				s := &op.Scan{Cell: cell, Masked: masked, Reverse: i%2 == 1 != masked}
				f(fmt.Sprintf("%s/%s", c.name, s), s, c.steps, c.batch, c.units)
			}
		}
	}
}

// recurrentKernels are of a size at which outputs neither vanish nor explode.
func recurrentKernels(units int) fill {
	return each(uniform(-1/float64(units+1), 1/float64(units+1)), fewInt)
}

func rnnCases(b *builder) {
	i := 0
	eachScan(func(name string, s *op.Scan, steps, batch, units int) {
		g := s.Cell.Gates() * units
		args, fills := []op.Type{b.t(steps, batch, g), b.t(units, g), b.t(batch, units)}, []fill{numbers, recurrentKernels(units), numbers}
		if s.Cell.HasState() {
			args, fills = append(args, b.t(batch, units)), append(fills, numbers)
		}
		if s.Cell.HasBias() {
			args, fills = append(args, b.t(units)), append(fills, numbers)
		}
		mask := func(s *op.Scan, args []op.Type, fills []fill) ([]op.Type, []fill) {
			if s.Masked {
				return append(args, op.Type{DType: dtype.Bool, Shape: op.Shape{steps, batch}}), append(fills, numbers)
			}
			return args, fills
		}
		all, fill := mask(s, args, fills)
		b.add(name, op.Attr{Scan: s}, all, fill...).Large = large(name)
		product, features := *s, []int{28, 1, 65, 0}[i%4]
		i++
		product.Product = true
		all = slices.Clone(args)
		all[0] = b.t(steps, batch, features)
		all, fill = mask(&product, append(all, b.t(features, g), b.t(g)), append(slices.Clone(fills), recurrentKernels(features), numbers))
		b.add(name+"/product", op.Attr{Scan: &product}, all, fill...).Large = large(name)
	})
}

func rnnGradCases(b *builder) {
	// What RNN saved is between -1 and 1.
	small := each(uniform(-1, 1), fewInt)
	i := 0
	eachScan(func(name string, s *op.Scan, steps, batch, units int) {
		i++
		s.Steps, s.Last, s.State = i%3 != 0, i%3 != 1, s.Cell.HasState() && i%2 == 0
		g := s.Cell.Gates() * units
		args := []op.Type{b.t(s.Sections(steps, batch, units).Elements), b.t(units, g)}
		fills := []fill{small, recurrentKernels(units)}
		if s.Steps {
			args, fills = append(args, b.t(steps, batch, units)), append(fills, small)
		}
		for _, on := range []bool{s.Last, s.State} {
			if on {
				args, fills = append(args, b.t(batch, units)), append(fills, small)
			}
		}
		mask := func(args []op.Type, fills []fill) ([]op.Type, []fill) {
			if s.Masked {
				return append(args, op.Type{DType: dtype.Bool, Shape: op.Shape{steps, batch}}), append(fills, numbers)
			}
			return args, fills
		}
		all, fill := mask(slices.Clone(args), slices.Clone(fills))
		b.add(name, op.Attr{Scan: s, Dims: op.Shape{steps, batch, units}}, all, fill...).Large = large(name)
		weights, features := *s, []int{28, 1, 65, 0}[i%4]
		weights.Weights, weights.Features = true, i%3 > 0
		all, fill = append(args, b.t(steps, batch, features)), append(fills, small)
		if weights.Features {
			all, fill = append(all, b.t(features, g)), append(fill, recurrentKernels(features))
		}
		all, fill = mask(all, fill)
		b.add(name+"/weights", op.Attr{Scan: &weights, Dims: op.Shape{steps, batch, units, features}}, all, fill...).Large = large(name)
	})
}

func partCases(b *builder) {
	for _, c := range []struct {
		name     string
		n, start int
		shape    op.Shape
	}{
		{"all", 6, 0, op.Shape{2, 3}},
		{"middle", 40, 7, op.Shape{3, 5}},
		{"aligned", 200, 64, op.Shape{64}},
		{"scalar", 5, 4, op.Shape{}},
		{"empty", 5, 5, op.Shape{0, 2}},
		{"large", 70001, 1, op.Shape{70, 1000}},
	} {
		b.add(c.name, op.Attr{Start: []int{c.start}, Dims: c.shape}, []op.Type{b.t(c.n)}, numbers).Large = large(c.name)
	}
}
