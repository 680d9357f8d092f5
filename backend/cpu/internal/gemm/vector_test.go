package gemm

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestVectorProducts compares Dots and Adds with float64 for all numbers of
// rows and lengths around whole registers.
func TestVectorProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	kinds := map[Element]dtype.DType{F32: dtype.Float32, F16: dtype.Float16, BF16: dtype.BFloat16}
	for _, set := range setsHere() {
		for e, d := range kinds {
			if set.Dots[e] == nil {
				continue
			}
			for _, n := range []int{0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 100} {
				const rows, guard = 4, 77
				ld := n + 3
				values := make([]float64, rows*ld+1)
				for i := range values {
					values[i] = rng.Float64() - 0.5
				}
				s := make([]byte, len(values)*e.Size())
				dtype.FromF64(s, values, d)
				x := make([]float32, n+rows)
				for i := range x {
					x[i] = rng.Float32() - 0.5
				}
				element := func(i, p int) float64 {
					return float64(e.load(unsafe.Pointer(&s[0]), i*ld+p))
				}
				for m := 1; m <= rows; m++ {
					dots, adds := make([]float32, m+1), make([]float32, n+1)
					dots[m], adds[n] = guard, guard
					set.Dots[e](unsafe.Pointer(&dots[0]), unsafe.Pointer(&x[0]), unsafe.Pointer(&s[0]), ld*e.Size(), m, n)
					set.Adds[e](unsafe.Pointer(&adds[0]), unsafe.Pointer(&x[0]), unsafe.Pointer(&s[0]), ld*e.Size(), m, n)
					if dots[m] != guard || adds[n] != guard {
						t.Errorf("%s %v: %d rows of %d: wrote beyond the result", set.Name, d, m, n)
					}
					// Each of n or m terms is below 1/4 and adds one rounding.
					tol := float64(n+rows) * float64(n+rows) / 4 * dtype.Float32.Epsilon()
					for i := range m {
						want := 0.
						for p := range n {
							want += element(i, p) * float64(x[p])
						}
						if math.Abs(float64(dots[i])-want) > tol {
							t.Errorf("%s %v: dot %d of %d by %d: got %v, want %v", set.Name, d, i, m, n, dots[i], want)
						}
					}
					for j := range n {
						want := 0.
						for i := range m {
							want += element(i, j) * float64(x[i])
						}
						if math.Abs(float64(adds[j])-want) > tol {
							t.Errorf("%s %v: sum %d of %d rows: got %v, want %v", set.Name, d, j, m, adds[j], want)
						}
					}
				}
			}
		}
	}
}

// TestAddsFour: AddsFour gives the bits of Adds.
func TestAddsFour(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	for _, set := range setsHere() {
		if set.AddsFour == nil {
			continue
		}
		for columns := 1; columns <= 16; columns++ {
			for _, n := range []int{1, 2, 5, 37} {
				apart, ld := n+columns%3, columns+n%4
				x, s := newGuarded(4*(3*apart+n)), newGuarded(4*((3*apart+n-1)*ld+columns))
				floats(rng, x.data, F32)
				floats(rng, s.data, F32)
				got := newGuarded(4 * (3*ld + columns))
				set.AddsFour(got.pointer(), 4*ld, x.pointer(), s.pointer(), 4*ld, apart, n, 1<<columns-1)
				got.check(t, set.Name+" AddsFour")
				for q := range 4 {
					want := newGuarded(4 * columns)
					for p := range n {
						at := q*apart + p
						set.Adds[F32](want.pointer(), unsafe.Add(x.pointer(), 4*at), unsafe.Add(s.pointer(), 4*ld*at), 4*ld, 1, columns)
					}
					if !bytes.Equal(got.data[4*q*ld:][:4*columns], want.data) {
						t.Fatalf("%s: slice %d of %d elements, %d columns: AddsFour has other bits than Adds", set.Name, q, n, columns)
					}
				}
			}
		}
	}
}

// TestAddPairs: Adds on pairs gives the bits of packing and of a kernel of one row.
func TestAddPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, set := range setsHere() {
		tiles := set.Pairs
		if tiles == nil || set.Adds[Pairs] == nil {
			continue
		}
		for _, rows := range []int{1, 2, 3, 8, 31, 32} {
			for _, n := range []int{0, 1, 15, 16, 17, 31, 32, 33, 64, 95, 129} {
				ld, pairs := 2*(n+rng.IntN(3)), (rows+1)/2
				x, s := newGuarded(2*rows), newGuarded(max(0, (rows-1)*ld+2*n))
				floats(rng, x.data, BF16)
				floats(rng, s.data, BF16)
				got, want := newGuarded(4*n), newGuarded(4*n)
				clear(got.data)
				set.Adds[Pairs](got.pointer(), x.pointer(), s.pointer(), ld, rows, n)
				both := newGuarded(4 * pairs) // with the partner of an odd last element
				clear(both.data)
				copy(both.data, x.data)
				for j := 0; j < n; j += tiles.NR {
					cols := min(tiles.NR, n-j)
					packed := newGuarded(4 * tiles.NR * pairs)
					set.Lanes[Pairs](packed.pointer(), 4*tiles.NR, at(s.pointer(), j, 2), ld, rows, 1<<cols-1, 1<<tiles.NR-1)
					tiles.Rows[1](pairs, both.pointer(), 0, packed.pointer(), 4*tiles.NR, nil, 0, at(want.pointer(), j, 4), 0, 1<<cols-1)
				}
				if !bytes.Equal(got.all, want.all) {
					t.Errorf("%s: %d rows of %d columns: other bits than a kernel", set.Name, rows, n)
				}
			}
		}
	}
}
