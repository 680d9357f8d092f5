package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestScanWorkers: on every instruction set a scan and its gradient have the
// same bits for every number of workers, and a run allocates nothing.
func TestScanWorkers(t *testing.T) {
	const steps, batch, units = 3, 70, 20
	forEachISA(t, func(t *testing.T) {
		for _, d := range dtype.Floats() {
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
			}
		}
	})
}

// TestLoopWorkers: so have loops, whose parts begin at cache lines or not.
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
		got := out[0].(*Buffer).data
		if want == nil {
			want = bytes.Clone(got)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s: other bits with %d workers", name, procs)
		}
		if procs == 1 {
			if n := testing.AllocsPerRun(2, run); n > 0 {
				t.Errorf("%s: a run allocates %v times, want 0", name, n)
			}
		}
	}
}
