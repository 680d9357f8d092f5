package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// cellSpec is a cell's loop: its operands, in capitals if they are stored, the
// definition for one element, and the operands that it writes.
type cellSpec struct {
	name     string
	operands string
	loop     func(c Cells) CellLoop
	f        func(x []float64)
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

var cellSpecs = []cellSpec{
	{"LSTM", "ifgocnIFGOHS", func(c Cells) CellLoop { return c.LSTM }, func(x []float64) {
		x[6], x[7], x[8], x[9] = logistic(x[0]), logistic(x[1]), math.Tanh(x[2]), logistic(x[3])
		x[5] = x[7]*x[4] + x[6]*x[8]
		x[10], x[11] = x[9]*math.Tanh(x[5]), x[5]
	}},
	{"LSTMGrad", "IFGOCLhdWXYZ", func(c Cells) CellLoop { return c.LSTMGrad }, func(x []float64) {
		i, f, g, o, t := x[0], x[1], x[2], x[3], math.Tanh(x[4])
		d := x[7] + x[6]*o*(1-t*t)
		x[8], x[9], x[10], x[11] = d*g*i*(1-i), d*x[5]*f*(1-f), d*i*(1-g*g), x[6]*t*o*(1-o)
		x[7] = d * f
	}},
	{"GRU", "zrgqLZRGQH", func(c Cells) CellLoop { return c.GRU }, func(x []float64) {
		x[5], x[6], x[8] = logistic(x[0]), logistic(x[1]), x[3]
		x[7] = math.Tanh(x[2] + x[6]*x[3])
		x[9] = x[7] + x[5]*(x[4]-x[7])
	}},
	{"GRUGrad", "ZRGQLhpABCD", func(c Cells) CellLoop { return c.GRUGrad }, func(x []float64) {
		z, r, g, q, last, dh := x[0], x[1], x[2], x[3], x[4], x[5]
		dg := dh * (1 - z) * (1 - g*g)
		x[6], x[7], x[8], x[9], x[10] = dh*z, dh*(last-g)*z*(1-z), dg*q*r*(1-r), dg, dg*r
	}},
}

// matrix is rows of elements of a type, with others between and around them that must
// not change.
type matrix struct {
	d              dtype.DType
	data           []byte
	stride, at, sz int
}

const guardByte = 0xa5

func newMatrix(d dtype.DType, rows, n, extra int) *matrix {
	m := &matrix{d: d, sz: d.Size(), stride: (n + extra) * d.Size(), at: 64}
	m.data = make([]byte, 128+rows*m.stride)
	for i := range m.data {
		m.data[i] = guardByte
	}
	return m
}

func (m *matrix) element(r, i int) []byte { return m.data[m.at+r*m.stride+i*m.sz:][:m.sz] }

func (m *matrix) get(r, i int) float64 {
	var x [1]float64
	dtype.ToF64(x[:], m.element(r, i), m.d)
	return x[0]
}

func (m *matrix) set(r, i int, x float64) { dtype.FromF64(m.element(r, i), []float64{x}, m.d) }

// TestCells compares cells with the same functions in float64: each function may be 16
// units off, or 2⁻¹² for cells that store bfloat16, and stored results are rounded
// once.
func TestCells(t *testing.T) {
	forEachSet(t, func(t *testing.T, s *Set) {
		types := map[string]struct {
			d dtype.DType
			c Cells
		}{
			"float32": {dtype.Float32, s.CellsF32}, "float16": {dtype.Float16, s.CellsF16}, "bfloat16": {dtype.BFloat16, s.CellsBF16},
		}
		if s.Common.CellsF32.LSTM != nil {
			for d, c := range map[dtype.DType]Cells{dtype.Float32: s.Common.CellsF32, dtype.Float16: s.Common.CellsF16, dtype.BFloat16: s.Common.CellsBF16} {
				types["common "+d.String()] = struct {
					d dtype.DType
					c Cells
				}{d, c}
			}
		}
		if s.CellsConvertBF16.LSTM != nil && cpu.X86.HasAVX512BF16 {
			types["converted bfloat16"] = struct {
				d dtype.DType
				c Cells
			}{dtype.BFloat16, s.CellsConvertBF16}
		}
		for name, ty := range types {
			for _, spec := range cellSpecs {
				for _, n := range []int{0, 1, 7, 8, 15, 16, 17, 24, 40, 61} {
					if n%s.CellLanes == 0 {
						t.Run(fmt.Sprintf("%s/%s/%d", name, spec.name, n), func(t *testing.T) { testCell(t, spec, ty.d, spec.loop(ty.c), n) })
					}
				}
			}
		}
	})
}

func testCell(t *testing.T, spec cellSpec, stored dtype.DType, loop CellLoop, n int) {
	const rows = 3
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	var all []*matrix
	var operands []Operand
	for k, c := range spec.operands {
		d := dtype.Float32
		if c < 'a' {
			d = stored
		}
		m := newMatrix(d, rows, n, k%3)
		for r := range rows {
			for i := range n {
				x := 8 * rng.NormFloat64()
				if c < 'a' && strings.HasSuffix(spec.name, "Grad") { // gates
					x = rng.Float64()
				}
				m.set(r, i, x)
			}
		}
		if k < 4 && n > 0 {
			m.set(1, n-1, math.NaN())
		}
		all = append(all, m)
		operands = append(operands, Operand{unsafe.Pointer(&m.data[m.at]), m.stride})
	}
	want := make([][]float64, 0, rows*n)
	for r := range rows {
		for i := range n {
			x := make([]float64, len(all))
			for k, m := range all {
				x[k] = m.get(r, i)
			}
			spec.f(x)
			want = append(want, x)
		}
	}
	loop(operands, rows, n)
	unit := 0x1p-24
	if stored == dtype.BFloat16 {
		unit = 0x1p-12 / 16
	}
	for k, m := range all {
		for r := range rows {
			for i := range n {
				got, want := m.get(r, i), want[r*n+i][k]
				// Terms are at most 32 in size, and products have two functions.
				tol := 32*unit*(math.Abs(want)+1) + m.d.Epsilon()*math.Abs(want) + m.d.SmallestSubnormal()
				if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > tol {
					t.Fatalf("operand %d, element %d of row %d is %v, want %v ± %v", k, i, r, got, want, tol)
				}
			}
			end := m.at + r*m.stride + n*m.sz
			for _, b := range m.data[end : m.at+(r+1)*m.stride] {
				if b != guardByte {
					t.Fatalf("operand %d is written behind row %d", k, r)
				}
			}
		}
		for _, b := range append(m.data[:m.at:m.at], m.data[m.at+rows*m.stride:]...) {
			if b != guardByte {
				t.Fatalf("operand %d is written outside", k)
			}
		}
	}
}
