package ptx

import (
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Vector reports whether each thread computes PerThread neighbours: then rows
// are cut into whole fours, along which an operand is read in one piece, or is
// the same element.
func (c *Chain) Vector() bool {
	last := len(c.Dims) - 1
	if !c.Aligned || last < 0 || c.Dims[last]%PerThread != 0 {
		return false
	}
	for _, s := range c.Strides {
		for k, stride := range s {
			if k == last && stride > 1 || k < last && s[last] == 1 && stride%PerThread != 0 {
				return false
			}
		}
	}
	return true
}

// loadVectors loads PerThread neighbours of each operand, or one element that
// stands for all of them.
func (w *writer) loadVectors(base []string, values [][]string) {
	places, last := w.places("%i"), len(w.c.Dims)-1
	for i, d := range w.c.Body.Inputs {
		if w.c.Strides[i][last] == 0 {
			v := w.load(base[i], places[i], "", d)
			for e := range values {
				values[e] = append(values[e], v)
			}
			continue
		}
		_, register := memory(d)
		list := make([]string, PerThread)
		for e := range list {
			list[e] = w.reg(register)
			values[e] = append(values[e], list[e])
		}
		w.move("ld", w.address(base[i], places[i], d.Size()), list, d)
	}
}

// storeVector stores the threads' neighbours of result i.
func (w *writer) storeVector(base string, i int, results [][]string, d dtype.DType) {
	list := make([]string, len(results))
	for e := range list {
		list[e] = results[e][i]
	}
	w.move("st", w.address(base, "%i", d.Size()), list, d)
}

// move loads or stores registers, 16 bytes or less at a time.
func (w *writer) move(what, address string, list []string, d dtype.DType) {
	access, _ := memory(d)
	n := min(len(list), 16/d.Size())
	for e := 0; e < len(list); e += n {
		if e > 0 {
			next := w.reg("u64")
			w.line("add.u64 %s, %s, %d", next, address, n*d.Size())
			address = next
		}
		vector, where := "{"+strings.Join(list[e:e+n], ", ")+"}", "["+address+"]"
		if what == "st" {
			vector, where = where, vector
		}
		w.line("%s.global.v%d.%s %s, %s", what, n, access, vector, where)
	}
}
