package gemm

import "unsafe"

// Dots multiplies rows of a matrix by a vector of float32: d[i] = Σ s[i*lds+p]·x[p]
// for p < n. Rows are 4 or fewer; sums have a fixed order for each n.
type Dots func(d, x, s unsafe.Pointer, lds, rows, n int)

// Adds adds rows of a matrix, each times an element of a vector of float32:
// d[j] += Σ x[i]·s[i*lds+j] for j < n. Rows are 4 or fewer. On pairs x is bfloat16, rows are any
// number from one on, and sums are formed as a [Kernel] on pairs does; an odd last row has no
// partner.
type Adds func(d, x, s unsafe.Pointer, lds, rows, n int)

// rowsBy is a routine of a number of rows.
type rowsBy func(d, x, s unsafe.Pointer, lds, n int)

// dotsBy makes Dots of routines for four rows and for one, whose columns are a
// multiple of lanes.
func dotsBy(e Element, lanes int, four, one rowsBy) Dots {
	return func(d, x, s unsafe.Pointer, lds, rows, n int) {
		whole := n / lanes * lanes
		if rows == 4 {
			four(d, x, s, lds, whole)
		} else {
			for i := range rows {
				one(at(d, i, 4), x, at(s, i, lds), 0, whole)
			}
		}
		for i := range rows {
			sum := (*float32)(at(d, i, 4))
			for p := whole; p < n; p++ {
				*sum += float32(e.load(at(s, i, lds), p) * *(*float32)(at(x, p, 4)))
			}
		}
	}
}

// addsBy makes Adds of routines for four rows and for one, whose columns are a
// multiple of lanes. The last columns are those of a vector that overlaps the one before, so
// that every column is rounded in the same way; only fewer columns than lanes are added in Go,
// which rounds products.
func addsBy(e Element, lanes int, four, one rowsBy) Adds {
	add := func(d, x, s unsafe.Pointer, lds, rows, n int) {
		if rows == 4 {
			four(d, x, s, lds, n)
			return
		}
		for i := range rows {
			one(d, at(x, i, 4), at(s, i, lds), 0, n)
		}
	}
	return func(d, x, s unsafe.Pointer, lds, rows, n int) {
		whole, last := n/lanes*lanes, n-lanes
		switch {
		case whole < n && last >= 0:
			var both [16]float32 // the columns that two vectors have
			kept := both[:whole-last]
			copy(kept, unsafe.Slice((*float32)(at(d, last, 4)), len(kept)))
			add(at(d, last, 4), x, at(s, last, e.Size()), lds, rows, lanes)
			copy(unsafe.Slice((*float32)(at(d, last, 4)), len(kept)), kept)
		case whole < n:
			for i := range rows {
				for j := range n {
					*(*float32)(at(d, j, 4)) += float32(e.load(at(s, i, lds), j) * *(*float32)(at(x, i, 4)))
				}
			}
		}
		add(d, x, s, lds, rows, whole)
	}
}
