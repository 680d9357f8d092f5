package gemm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// TestOrdered: the kernels of ordered sets have the same bits for every set and form.
func TestOrdered(t *testing.T) {
	g := rand.New(rand.NewPCG(5, 6))
	for _, k := range []int{0, 1, 7, 64, 333} {
		const rows, cols = 14, 64
		a, b, c := make([]float32, rows*k+rows), make([]float32, cols*k+cols), make([]float32, rows*cols)
		for _, x := range [][]float32{a, b, c} {
			for i := range x {
				x[i] = float32(g.NormFloat64()) * float32(math.Ldexp(1, g.IntN(9)-4))
			}
		}
		at := make([]float32, len(a)) // transposed, by rows of so many elements
		for i := range rows {
			for p := range k {
				at[p*rows+i] = a[i*k+p]
			}
		}
		for _, term := range []bool{false, true} {
			for i := range rows {
				for j := range cols {
					var want float32
					for p := range k {
						want = portablemath.FMA32(a[i*k+p], b[p*cols+j], want)
					}
					if term {
						want += c[i*cols+j]
					}
					for l, s := range ordered {
						if !supported(l) || j+s.F32.NR > cols && j > 0 || i > 0 && i != 5 || j%16 != 0 {
							continue
						}
						checkOrdered(t, s, k, i, j, rows, cols, a, at, b, c, term, want)
					}
					if j+portableNR <= cols {
						checkOrdered(t, portableOrdered, k, i, j, rows, cols, a, at, b, c, term, want)
					}
				}
			}
		}
	}
}

func checkOrdered(t *testing.T, s *Set, k, i, j, rows, cols int, a, at, b, c []float32, term bool, want float32) {
	t.Helper()
	var from unsafe.Pointer
	if term {
		from = unsafe.Pointer(&c[i*cols+j])
	}
	d := make([]float32, s.F32.NR)
	mask := uint(1)<<s.F32.NR - 1
	for _, inner := range []bool{false, true} {
		kernel, x, ld := s.F32.Rows[1], unsafe.Pointer(&a[i*k]), 4*k
		if inner {
			kernel, x, ld = s.F32.Inner[1], unsafe.Pointer(&at[i]), 4*rows
		}
		kernel(k, x, ld, unsafe.Pointer(&b[j]), 4*cols, from, 4*cols, unsafe.Pointer(&d[0]), 4*s.F32.NR, mask)
		if math.Float32bits(d[0]) != math.Float32bits(want) {
			t.Fatalf("%s: a sum of %d products, transposed %v, with a term %v: %x, want %x", s.Name, k, inner, term, d[0], want)
		}
	}
}

// supported reports whether this processor has a level.
func supported(l isa.Level) bool { return slices.Contains(isa.Levels(), l) }
