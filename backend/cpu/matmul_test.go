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
	"time"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// matMulProgram is a product alone.
func matMulProgram(t testing.TB, a op.Attr, d dtype.DType, m, n, k int) *Program {
	t.Helper()
	return followedProgram(t, a, d, m, n, k, 0, func(_ *ir.Graph, v *ir.Value) *ir.Value { return v })
}

// followedProgram is a product and what follows it, which may have more inputs.
func followedProgram(t testing.TB, a op.Attr, d dtype.DType, m, n, k, more int, follow func(*ir.Graph, *ir.Value) *ir.Value) *Program {
	t.Helper()
	x, y := op.Shape{m, k}, op.Shape{k, n}
	if a.TransA {
		slices.Reverse(x)
	}
	if a.TransB {
		slices.Reverse(y)
	}
	g := ir.New(2 + more)
	v := record(t, g, op.MatMul, a, param(t, g, 0, op.Type{DType: d, Shape: x}), param(t, g, 1, op.Type{DType: d, Shape: y}))
	g.Output(follow(g, v), -1)
	return plan(t, g)
}

// someOperands are random operands for a program.
func someOperands(p *Program) (in []array) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, v := range p.graph.Params {
		in = append(in, randomArray(rng, v.Type.DType, v.Type.Shape...))
	}
	return in
}

// TestMatMulBlocks runs products of sizes at which blocking changes, on every
// instruction set: against float64 for some elements, with the same bits for
// any number of workers, and without writing beside the result.
func TestMatMulBlocks(t *testing.T) {
	isatest.SkipRace(t)
	shapes := []struct {
		name    string
		m, n, k int
	}{
		{"tiny", 5, 9, 17}, {"row", 1, 70, 200}, {"column", 70, 1, 200}, {"longRow", 1, 1203, 517}, {"longColumn", 1203, 1, 517}, {"widestRow", 1, 9000, 70},
		{"shortRow", 1, 10, 300}, {"dot", 1, 1, 300}, {"lean", 64, 64, 64}, {"ragged", 45, 83, 61},
		{"shared", 331, 170, 161}, {"steps", 60, 70, 1101}, {"sharedSteps", 90, 161, 1537},
		{"conflicts", 130, 257, 1024}, {"tall", 1000, 17, 64}, {"wide", 17, 1100, 64}, {"narrow", 300, 10, 300}, {"even", 128, 128, 256},
		{"conflictSteps", 130, 161, 2048}, {"evenColumns", 90, 256, 40}, {"gapsDown", 300, 256, 1000},
		{"slices", 70, 45, 2100}, {"turned", 300, 37, 2100}, {"nothing", 9, 7, 0},
		{"rank1", 61, 171, 1}, {"shortColumn", 900, 1, 5}, {"columnOfOne", 300, 1, 1}, {"oddRows", 300, 3, 11}, {"longNarrow", 260, 5, 1345},
		{"narrowRow", 1, 9, 700},
		{"blocks", 300, 650, 1200}, {"manyRows", 1030, 40, 70},
		{"wholeStrips", 130, 650, 2301}, {"whole", 130, 300, 2301}, {"oddStrips", 200, 95, 33}, {"panelStrips", 60, 1100, 700}, {"lowStrips", 226, 600, 40}, {"lowLastStrip", 289, 200, 64},
		{"narrowLastPanel", 100, 43, 90}, {"fewRows", 9, 300, 71}, {"fewOddRows", 11, 170, 1031}, {"twoMicroTiles", 25, 290, 601}, {"fewSlices", 16, 70, 2101},
	}
	// The collector finds pointers that point nowhere, and interrupts kernels.
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				runtime.GC()
			}
		}
	}()
	type operands struct {
		in   []array
		want []someElement
	}
	cases := map[string]operands{}
	isatest.ForEach(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for i, s := range shapes {
				if isa.Current() == isa.Portable && s.m*s.n*s.k > 1<<20 {
					continue // blocks of another driver, which TestMatMul covers
				}
				if isatest.Emulated() && testing.Short() && s.m*s.n*s.k > 1<<20 {
					continue // the smaller ones have the same micro-tiles
				}
				for trans := range 4 {
					if !isatest.InTurn(i + trans + int(d)) {
						continue
					}
					a := op.Attr{TransA: trans&1 != 0, TransB: trans&2 != 0}
					if trans == 1 && d.Is16() {
						a.DType = dtype.Float32
					}
					what := fmt.Sprintf("%v %s %+v", d, s.name, a)
					p := matMulProgram(t, a, d, s.m, s.n, s.k)
					c, ok := cases[what]
					if !ok {
						c.in = someOperands(p)
						c.want = someElements(c.in, a, s.m, s.n, s.k)
						cases[what] = c
					}
					var first []byte
					for _, procs := range []int{1, 3} {
						got := runProcs(t, p, c.in, procs)
						if first == nil {
							first = got.data
							checkSome(t, what, c.want, got, s.k)
						} else if !bytes.Equal(first, got.data) {
							t.Errorf("%s: other bits with %d workers", what, procs)
						}
					}
				}
			}
		}
	})
}

// TestMatMulOddRows: a row of an odd number of bfloat16, whose last pair reaches the next
// row, does not depend on what is there.
func TestMatMulOddRows(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		for _, s := range [][3]int{{60, 40, 7}, {60, 90, 33}, {60, 5, 101}, {60, 600, 651}} { // m, n, k
			m, n, k := s[0], s[1], s[2]
			if isatest.Emulated() && testing.Short() && m*n*k > 1<<20 {
				continue // steps of the same micro-tiles
			}
			p := matMulProgram(t, op.Attr{}, dtype.BFloat16, m, n, k)
			in := someOperands(p)
			want := runProcs(t, p, in, 1).data
			for _, x := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32} {
				a := array{in[0].Type, bytes.Clone(in[0].data)}
				for i := 3; i < m; i += 17 {
					dtype.FromF32(a.data[2*i*k:2*i*k+2], []float32{x}, dtype.BFloat16)
				}
				got := runProcs(t, p, []array{a, in[1]}, 1).data
				for i := range m {
					if row := 2 * n; (i-3)%17 != 0 && !bytes.Equal(got[i*row:(i+1)*row], want[i*row:(i+1)*row]) {
						t.Errorf("%d×%d×%d: row %d depends on %v in another row", m, k, n, i, x)
					}
				}
			}
		}
	})
}

// TestMatMulSingleRow: a row of few columns alone, which micro-kernels for one row compute where
// it is in memory, has the bits that it has among others.
func TestMatMulSingleRow(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		for _, k := range []int{1, 2, 3, 17, 700, 1025, 4099} {
			for n := 9; n <= 66; n += 1 + n/40*4 {
				if !isatest.InTurn(n + k) {
					continue
				}
				several := matMulProgram(t, op.Attr{}, dtype.Float32, 3, n, k)
				in := someOperands(several)
				want := runProcs(t, several, in, 1).data[4*n : 8*n]
				single := matMulProgram(t, op.Attr{}, dtype.Float32, 1, n, k)
				row := array{single.graph.Params[0].Type, in[0].data[4*k : 8*k]}
				if got := runProcs(t, single, []array{row, in[1]}, 2).data; !bytes.Equal(got, want) {
					t.Errorf("1×%d×%d: other bits than in a batch of three", k, n)
				}
			}
		}
	})
}

// runProcs runs p with a number of workers.
func runProcs(t *testing.T, p *Program, in []array, procs int) array {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	inputs, _ := buffers(p, in)
	typ := p.graph.Outputs[0].Type
	out, check := guarded(typ.Bytes())
	if err := p.Run(context.Background(), inputs, []driver.Buffer{out}); err != nil {
		t.Fatal(err)
	}
	check(t)
	return array{typ, out.storage}
}

// value is element i.
func (a array) value(i int) float64 { return a.part(i, 1)[0] }

// part is n elements from one on.
func (a array) part(from, n int) []float64 {
	size := a.DType.Size()
	x := make([]float64, n)
	dtype.ToF64(x, a.data[from*size:][:n*size], a.DType)
	return x
}

// someElement is an element of a product, in float64.
type someElement struct {
	row, col       int
	sum, magnitude float64 // of its terms
}

// someElements are the corners of a product and some other elements.
func someElements(in []array, a op.Attr, m, n, k int) (list []someElement) {
	x, y := in[0].values(), in[1].values()
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 40 {
		e := someElement{row: rng.IntN(m), col: rng.IntN(n)}
		switch i {
		case 0:
			e.row, e.col = m-1, n-1
		case 1:
			e.row, e.col = m-1, 0
		case 2:
			e.row, e.col = 0, n-1
		}
		for p := range k {
			u, v := e.row*k+p, p*n+e.col
			if a.TransA {
				u = p*m + e.row
			}
			if a.TransB {
				v = e.col*k + p
			}
			e.sum += x[u] * y[v]
			e.magnitude += math.Abs(x[u] * y[v])
		}
		list = append(list, e)
	}
	return list
}

// checkSome compares some elements of a product with float64.
func checkSome(t *testing.T, what string, want []someElement, got array, k int) {
	t.Helper()
	rel, _ := got.DType.Tolerance()
	for _, e := range want {
		// One rounding of float32 for each product, of both signs: their sum
		// grows as √k relative to the magnitudes.
		tol := rel*math.Abs(e.sum) + e.magnitude*dtype.Float32.Epsilon()*math.Sqrt(float64(k)+1)
		if g := got.value(e.row*got.Shape[1] + e.col); math.Abs(g-e.sum) > tol || g != g {
			t.Fatalf("%s: element (%d, %d): got %v, want %v ± %v", what, e.row, e.col, g, e.sum, tol)
		}
	}
}
