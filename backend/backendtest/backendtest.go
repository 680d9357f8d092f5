// Package backendtest, without compatibility promise, is the conformance suite
// of devices: a device is correct when the suite passes.
//
// Main functions: [Run] tests a device, [Bench] measures it, [Support] renders
// which operations it has kernels for, [Cases] goes through the cases that the
// three share.
//
// Rules: the suite is driven by the table of package op, so an operation
// without a case fails it by name. Every case is compared with an interpreter
// in float64 (reference.go): copies, comparisons, casts, integers and the
// operations that IEEE 754 defines to the last bit; sums within the tolerance
// of their accumulator times the magnitude of their terms; other functions
// within dtype.Tolerance. Beyond single operations it tests what a program
// promises: fusion and the other passes change no bit, inputs are untouched
// until the commit, results do not depend on the number of workers.
package backendtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Run tests d as subtests of t: first every operation on every element type
// that it takes, "Add/float16", then the promises of programs. With -short it
// leaves most of the large cases out.
//
// Where d supports neither an operation nor what it expands to, compiling it
// must fail with a *backend.UnsupportedError; Run logs how many cases that
// were.
func Run(t *testing.T, d driver.Device) {
	RunSome(t, d, func(Case) bool { return true })
}

// RunSome is [Run] with the cases that choose reports true for.
func RunSome(t *testing.T, d driver.Device, choose func(Case) bool) {
	run(t, d, func(k Case) bool {
		return testing.Short() && k.Large && k.DType != dtype.BFloat16 || !choose(k)
	})
}

// run leaves the cases out that skip picks.
func run(t *testing.T, d driver.Device, skip func(Case) bool) {
	unsupported := 0
	for _, c := range operations() {
		t.Run(c.String(), func(t *testing.T) {
			tested := false
			for _, dt := range dtype.All() {
				list, err := casesOf(c, dt)
				if err != nil {
					t.Fatal(err)
				}
				if len(list) == 0 {
					continue
				}
				tested = true
				t.Run(dt.String(), func(t *testing.T) {
					for _, k := range list {
						if skip(k) {
							continue
						}
						err := k.Test(d)
						if u := (*backend.UnsupportedError)(nil); errors.As(err, &u) && !d.Supports(u.Op, u.DType) {
							unsupported++
							continue
						}
						if err != nil {
							t.Errorf("%s: %v", k.Class, err)
						}
					}
				})
			}
			if !tested {
				t.Errorf("operation %v has no case on any element type", c)
			}
		})
	}
	if unsupported > 0 {
		t.Logf("%d cases are not supported by device %q", unsupported, d.Name())
	}
	t.Run("Fusion", func(t *testing.T) { testFusion(t, d) })
	t.Run("Program", func(t *testing.T) { testProgram(t, d) })
	t.Run("Training", func(t *testing.T) { testTraining(t, d) })
}

// graph is the program of a case.
func (c Case) graph() *ir.Graph {
	in := c.inputs()
	g := ir.New(len(in))
	args := make([]*ir.Value, len(in))
	for i, t := range in {
		args[i] = param(g, i, t)
	}
	if c.Op == op.Param {
		g.Output(add(g, op.Identity, op.Attr{}, args[0]), -1)
		return g
	}
	v := add(g, c.Op, c.Attr, args...)
	if c.Op == op.Const { // is no output
		v = add(g, op.Identity, op.Attr{}, v)
	}
	g.Output(v, -1)
	return g
}

// Test runs the case on d, and returns an error if a result is wrong.
func (c Case) Test(d driver.Device) error {
	args := c.arguments()
	out, err := compute(d, c.graph(), ir.Options{Check: true}, args)
	if c.wantErr {
		return checkIndexError(err, c.Op)
	}
	if err != nil {
		return err
	}
	want, err := c.reference(args)
	if err != nil {
		return err
	}
	return want.check(out[0])
}

// reference evaluates the case.
func (c Case) reference(args []array) (result, error) {
	if c.Op == op.Param {
		return evaluate(op.Identity, op.Attr{}, args)
	}
	return evaluate(c.Op, c.Attr, args)
}

// checkIndexError wants the error of the index that Case.outOfRange places.
func checkIndexError(err error, c op.Code) error {
	var e *driver.IndexError
	switch {
	case !errors.As(err, &e):
		return fmt.Errorf("index out of range: got error %w, want a *driver.IndexError", err)
	case e.Op != c || e.Position != 1 || e.Got != -1 && e.Got != 4 || e.Size != 4:
		return fmt.Errorf("got %+v, want op %v, size 4 and the index at position 1, -1 or 4", *e, c)
	}
	return nil
}

// param appends input i.
func param(g *ir.Graph, i int, t op.Type) *ir.Value {
	return g.Add(op.Param, op.Attr{Index: i, DType: t.DType, Dims: t.Shape}, t, "")
}

// add appends an operation. It panics when the operation does not take its
// arguments: a mistake in the suite.
func add(g *ir.Graph, c op.Code, a op.Attr, args ...*ir.Value) *ir.Value {
	types := make([]op.Type, len(args))
	for i, x := range args {
		types[i] = x.Type
	}
	t, err := op.Infer(c, a, types...)
	if err != nil {
		panic(fmt.Sprintf("backendtest: %v: %v", c, err))
	}
	return g.Add(c, a, t, "", args...)
}

// compute compiles g through the cache of package backend and runs it once.
func compute(d driver.Device, g *ir.Graph, o ir.Options, in []array) ([]array, error) {
	p, plan, err := backend.Compile(context.Background(), d, g, o)
	if err != nil {
		return nil, err
	}
	return execute(context.Background(), d, p, plan, in)
}
