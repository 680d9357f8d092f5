package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestScanWorkers: at every level a scan and its gradient have the same bits for every
// number of workers, and a run allocates nothing.
func TestScanWorkers(t *testing.T) {
	isatest.SkipEmulated(t, "how work is shared does not depend on the processor")
	const steps, batch, units = 3, 70, 20
	isatest.ForEach(t, func(t *testing.T) {
		for _, d := range isatest.Floats() {
			for _, cell := range []op.Cell{op.TanhCell, op.LSTMCell, op.GRUCell, op.GRUBeforeCell} {
				s := &op.Scan{Cell: cell, Masked: true, Steps: true}
				product := &op.Scan{Cell: cell, Masked: true, Product: true}
				ty := func(shape ...int) op.Type { return op.Type{DType: d, Shape: shape} }
				wide := cell.Gates() * units
				mask := op.Type{DType: dtype.Bool, Shape: op.Shape{steps, batch}}
				types := []op.Type{ty(steps, batch, wide), ty(units, wide), ty(batch, units)}
				if cell.HasState() {
					types = append(types, ty(batch, units))
				}
				if cell.HasBias() {
					types = append(types, ty(units))
				}
				name := fmt.Sprintf("%v/%v", d, cell)
				sameForWorkers(t, name, op.RNN, op.Attr{Scan: s}, append(slices.Clone(types), mask)...)
				types[0] = ty(steps, batch, 11)
				sameForWorkers(t, name+" product", op.RNN, op.Attr{Scan: product}, append(types, ty(11, wide), ty(wide), mask)...)
				flat := s.Sections(steps, batch, units).Elements
				sameForWorkers(t, name+" gradient", op.RNNGrad, op.Attr{Scan: s, Dims: op.Shape{steps, batch, units}},
					ty(flat), ty(units, wide), ty(steps, batch, units), mask)
				// More blocks of rows than parts of sums, and several windows of a part.
				const many, features = 500, 5
				weights := &op.Scan{Cell: cell, Steps: true, Weights: true, Features: true}
				flat = weights.Sections(steps, many, units).Elements
				sameForWorkers(t, name+" weights", op.RNNGrad, op.Attr{Scan: weights, Dims: op.Shape{steps, many, units, features}},
					ty(flat), ty(units, wide), ty(steps, many, units), ty(steps, many, features), ty(features, wide))
			}
		}
	})
}

// TestScanColumns: at every level a scan of few rows with a large kernel, which workers
// share by columns, has the bits of the same rows in a larger batch, which they share
// by rows, for every number of workers. This does not hold for float16 on tile
// registers: few rows are multiplied in float32.
func TestScanColumns(t *testing.T) {
	isatest.SkipEmulated(t, "how work is shared does not depend on the processor")
	const steps, few, units, features = 3, 3, 376, 11
	batches := []int{few, 7, 16, 20} // by columns, but the last
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	isatest.ForEach(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
			for _, s := range []op.Scan{
				{Cell: op.LSTMCell, Masked: true},
				{Cell: op.LSTMCell, Masked: true, Product: true, Reverse: true},
				{Cell: op.GRUCell, Masked: true, Product: true},
			} {
				wide, width := s.Cell.Gates()*units, features
				if !s.Product {
					width = wide
				}
				results := map[int][]byte{}
				for _, batch := range batches {
					rng := rand.New(rand.NewPCG(2, 7))
					fill := func(shape ...int) array {
						return arrayOf(d, shape, func(int) float64 { return (rng.Float64() - 0.5) / 4 })
					}
					// Rows are those of the smallest batch, again and again.
					rows := func(ld int, width int) array {
						x := make([]float64, ld*few*width)
						for i := range x {
							x[i] = rng.Float64() - 0.5
						}
						shape := op.Shape{ld, batch, width}
						if ld == 1 {
							shape = shape[1:]
						}
						return arrayOf(d, shape, func(i int) float64 {
							row := i / width % batch % few
							return x[(i/width/batch*few+row)*width+i%width]
						})
					}
					args := []array{rows(steps, width), fill(units, wide), rows(1, units)}
					if s.Cell.HasState() {
						args = append(args, rows(1, units))
					}
					if s.Cell.HasBias() {
						args = append(args, fill(units))
					}
					if s.Product {
						args = append(args, fill(features, wide), fill(wide))
					}
					args = append(args, arrayOf(dtype.Bool, op.Shape{steps, batch}, func(i int) float64 { return float64((i/batch*5 + i%batch%few) % 4 & 1) }))
					g := ir.New(len(args))
					var vals []*ir.Value
					for i, a := range args {
						vals = append(vals, param(t, g, i, a.Type))
					}
					g.Output(record(t, g, op.RNN, op.Attr{Scan: &s}, vals...), -1)
					algorithm := "rows"
					if batch < batches[len(batches)-1] && isa.Current() != isa.Portable {
						algorithm = "columns"
					}
					restore := exec.Force("rnn", algorithm)
					p := plan(t, g)
					restore()
					if c := p.choices[len(p.graph.Values)-1]; c.Algorithm != algorithm {
						t.Errorf("%v, %v: a batch of %d is computed by %v, want %s", d, &s, batch, c, algorithm)
					}
					in, out := buffers(p, args)
					for _, procs := range []int{1, 2, 5} {
						runtime.GOMAXPROCS(procs)
						if err := p.Run(context.Background(), in, out); err != nil {
							t.Fatal(err)
						}
						data := out[0].(*Buffer).storage
						at := s.Sections(steps, batch, units)
						var got []byte
						for _, of := range []op.Section{at.Outputs, at.States, at.Saved} {
							size := batch * units * d.Size()
							for i := of.Start * d.Size(); i < (of.Start+of.Shape.Size())*d.Size(); i += size {
								got = append(got, data[i:][:few*units*d.Size()]...)
								for j := range batch {
									if row := units * d.Size(); !bytes.Equal(data[i+j*row:][:row], data[i+j%few*row:][:row]) {
										t.Fatalf("%v, %v: row %d of a batch of %d has other bits than the same row %d", d, &s, j, batch, j%few)
									}
								}
							}
						}
						if want := results[batch]; want != nil && !bytes.Equal(got, want) {
							t.Errorf("%v, %v: other bits with %d workers", d, &s, procs)
						}
						results[batch] = got
					}
				}
				if split := d == dtype.Float16 && gemm.Current() != nil && gemm.Current().Panels != nil; !split {
					for _, batch := range batches[1:] {
						if !bytes.Equal(results[few], results[batch]) {
							t.Errorf("%v, %v: other bits for %d rows than for %d", d, &s, few, batch)
						}
					}
				}
			}
		}
	})
}

// TestScanAhead: one sequence, whose inputs are multiplied several steps at a time, has the
// bits of the same sequence in a batch of three, whose inputs are multiplied at each step.
func TestScanAhead(t *testing.T) {
	const steps, units = 37, 48
	isatest.ForEach(t, func(t *testing.T) {
		for _, features := range []int{16, 11} {
			for _, s := range []op.Scan{
				{Cell: op.LSTMCell, Product: true},
				{Cell: op.LSTMCell, Product: true, Reverse: true, Masked: true},
				{Cell: op.GRUCell, Product: true, Masked: true},
				{Cell: op.GRUCell, Product: true, Reverse: true},
				{Cell: op.GRUBeforeCell, Product: true, Reverse: true},
				{Cell: op.TanhCell, Product: true},
			} {
				wide := s.Cell.Gates() * units
				var results [2][]byte
				for i, batch := range []int{1, 3} {
					rng := rand.New(rand.NewPCG(5, 6))
					fill := func(shape ...int) array { return randomArray(rng, dtype.Float32, shape...) }
					rows := func(ld, width int) array { // all rows of the batch are equal
						x := fill(ld, width).values()
						return arrayOf(dtype.Float32, op.Shape{ld, batch, width}, func(i int) float64 { return x[i/width/batch*width+i%width] })
					}
					args := []array{rows(steps, features), fill(units, wide)}
					for range 2 {
						if state := rows(1, units); len(args) == 2 || s.Cell.HasState() {
							state.Shape = op.Shape{batch, units}
							args = append(args, state)
						}
					}
					if s.Cell.HasBias() {
						args = append(args, fill(units))
					}
					args = append(args, fill(features, wide), fill(wide))
					if s.Masked {
						args = append(args, arrayOf(dtype.Bool, op.Shape{steps, batch}, func(i int) float64 { return float64(i / batch % 4 & 1) }))
					}
					data := eval(t, op.RNN, op.Attr{Scan: &s}, args...).data
					at := s.Sections(steps, batch, units)
					for _, of := range []op.Section{at.Outputs, at.States, at.Saved} {
						for j := of.Start; j < of.Start+of.Shape.Size(); j += batch * units {
							results[i] = append(results[i], data[4*j:][:4*units]...)
						}
					}
				}
				if !bytes.Equal(results[0], results[1]) {
					t.Errorf("%v, %d features: one sequence has other bits than three", &s, features)
				}
			}
		}
	})
}

// TestScanKept: a scan of few rows and steps caches packed kernels from run to run, and
// packs them again after they have been overwritten.
func TestScanKept(t *testing.T) {
	isatest.SkipEmulated(t, "packed operands do not depend on the processor")
	const steps, batch, units, features = 2, 3, 104, 90
	s := &op.Scan{Cell: op.LSTMCell, Product: true}
	wide := 4 * units
	isatest.ForEach(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			rng := rand.New(rand.NewPCG(3, 3))
			var args []array
			var vals []*ir.Value
			g := ir.New(6)
			for i, shape := range []op.Shape{{steps, batch, features}, {units, wide}, {batch, units}, {batch, units}, {features, wide}, {wide}} {
				args = append(args, randomArray(rng, d, shape...))
				vals = append(vals, param(t, g, i, args[i].Type))
			}
			g.Output(record(t, g, op.RNN, op.Attr{Scan: s}, vals...), -1)
			p := plan(t, g)
			if n := len(p.plan.Packed); isa.Current() >= isa.AVX2 && n != 2 {
				t.Errorf("%v: %d kernels are kept, want 2", d, n)
			}
			in, out := buffers(p, args)
			scan := func() []byte {
				if err := p.Run(context.Background(), in, out); err != nil {
					t.Fatal(err)
				}
				return bytes.Clone(out[0].(*Buffer).storage)
			}
			for _, changed := range []int{1, 4, 1} {
				if err := in[changed].CopyIn(randomArray(rng, d, args[changed].Shape...).data); err != nil {
					t.Fatal(err)
				}
				want := scan() // version not seen before, so packed for this run
				for range 3 {
					if !bytes.Equal(scan(), want) {
						t.Fatalf("%v: other bits with kernels that are kept", d)
					}
				}
			}
			before := scan()
			r, err := p.get()
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.Packed { // so that results show whether the copies are read
				clear(r.Packed[i].Data)
			}
			p.put(r)
			if same := bytes.Equal(scan(), before); same != (len(p.plan.Packed) == 0) {
				t.Errorf("%v: %d kernels are kept, but the results say otherwise", d, len(p.plan.Packed))
			}
		}
	})
}

// TestScanGradNotFinite: at every level weight gradients are non-finite where they
// depend on a non-finite gradient, and finite elsewhere.
func TestScanGradNotFinite(t *testing.T) {
	const steps, batch, units, features = 9, 40, 32, 40
	s := &op.Scan{Cell: op.LSTMCell, Steps: true, Weights: true}
	dims := op.Shape{steps, batch, units, features}
	flat := s.Sections(steps, batch, units).Elements
	wide := 4 * units
	for _, d := range dtype.Floats() {
		ty := func(shape ...int) op.Type { return op.Type{DType: d, Shape: shape} }
		types := []op.Type{ty(flat), ty(units, wide), ty(steps, batch, units), ty(steps, batch, features)}
		rng := rand.New(rand.NewPCG(3, 1))
		var args []array
		for _, ty := range types {
			args = append(args, arrayOf(d, ty.Shape, func(int) float64 { return (rng.Float64() - 0.5) / 4 }))
		}
		// At step 0, only the gates of a unit depend on the gradient of its output.
		const unit = 5
		first := args[2].data[unit*d.Size():][:d.Size()]
		dtype.FromF64(first, []float64{math.Inf(1)}, d)
		isatest.ForEach(t, func(t *testing.T) {
			g := ir.New(len(types))
			var vals []*ir.Value
			for i, ty := range types {
				vals = append(vals, param(t, g, i, ty))
			}
			g.Output(record(t, g, op.RNNGrad, op.Attr{Scan: s, Dims: dims}, vals...), -1)
			p := plan(t, g)
			in, out := buffers(p, args)
			if err := p.Run(context.Background(), in, out); err != nil {
				t.Fatal(err)
			}
			got := array{op.Type{DType: d.Accumulator()}, out[0].(*Buffer).storage}
			at := s.GradSections(dims)
			for i := range at.V.Start { // the kernels
				x := got.value(i)
				if bad := x-x != 0; bad != (i%wide%units == unit) {
					t.Fatalf("%v: element %d of the kernels' gradients is %v", d, i, x)
				}
			}
		})
	}
}

// TestLoopWorkers is TestScanWorkers for loops, whose parts begin at cache lines or
// not.
func TestLoopWorkers(t *testing.T) {
	for _, d := range dtype.Floats() {
		for _, units := range []int{7, 64} {
			ty := func(shape ...int) op.Type { return op.Type{DType: d, Shape: shape} }
			for kept := range 2 {
				l := &op.LoopBody{
					Steps: 5, Sequences: 1, States: 1, Kept: kept, Outputs: 1, Results: []int{6, 5},
					Code: []op.LoopInstr{{Op: op.MatMul, Args: []int{1, 2}}, {Op: op.Add, Args: []int{0, 3}}, {Op: op.Tanh, Args: []int{4}}, {Op: op.Square, Args: []int{5}}},
				}
				sameForWorkers(t, fmt.Sprintf("%v, %d units, %d kept", d, units, kept), op.Loop, op.Attr{Loop: l}, ty(5, 40, units), ty(40, units), ty(units, units))
			}
		}
	}
}

// sameForWorkers runs an operation with one, two and five workers.
func sameForWorkers(t *testing.T, name string, c op.Code, a op.Attr, types ...op.Type) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	g := ir.New(len(types))
	var args []array
	var vals []*ir.Value
	for i, ty := range types {
		args = append(args, randomArray(rng, ty.DType, ty.Shape...))
		vals = append(vals, param(t, g, i, ty))
	}
	g.Output(record(t, g, c, a, vals...), -1)
	p := plan(t, g)
	in, out := buffers(p, args)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var want []byte
	for _, procs := range []int{1, 2, 5} {
		runtime.GOMAXPROCS(procs)
		run := func() {
			if err := p.Run(context.Background(), in, out); err != nil {
				t.Fatal(err)
			}
		}
		run()
		got := out[0].(*Buffer).storage
		if want == nil {
			want = bytes.Clone(got)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s: other bits with %d workers", name, procs)
		}
		if procs == 1 {
			// An average, rounded down: up to four workers of the run before go to
			// sleep meanwhile, and the runtime allocates a waiting list's entry for
			// each after GOMAXPROCS has changed.
			if n := testing.AllocsPerRun(8, run); n > 0 {
				t.Errorf("%s: a run allocates %v times, want 0", name, n)
			}
		}
	}
}
