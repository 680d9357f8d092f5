package onnx

import (
	"bytes"
	"context"
	"flag"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
)

var mutations = flag.Int("mutations", 3000, "files that TestMutations changes")

// seeds are the files that are changed: those of every operation, and of exported models.
func seeds(t testing.TB) (all [][]byte) {
	t.Helper()
	for _, c := range operationCases(t) {
		all = append(all, c.Model)
	}
	for _, e := range examples() {
		var b bytes.Buffer
		if err := Write(&b, e.model(t, "float32"), ExportOptions{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, b.Bytes())
	}
	return all
}

// mutate changes some bytes of a file, cuts parts out, or inserts parts of another one.
func mutate(r *rand.Rand, data, other []byte) []byte {
	b := bytes.Clone(data)
	for range 1 + r.IntN(4) {
		if len(b) == 0 {
			break
		}
		at := r.IntN(len(b))
		switch r.IntN(7) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b[at] = byte(r.Uint32())
		case 2: // a larger varint
			b = append(b[:at:at], append(bytes.Repeat([]byte{0xff}, 1+r.IntN(9)), append([]byte{byte(r.IntN(128))}, b[at+1:]...)...)...)
		case 3:
			b = b[:at]
		case 4:
			b = append(b[:at:at], b[min(len(b), at+1+r.IntN(16)):]...)
		case 5:
			if len(other) > 0 {
				from := r.IntN(len(other))
				b = append(b[:at:at], append(bytes.Clone(other[from:min(len(other), from+1+r.IntN(32))]), b[at:]...)...)
			}
		case 6: // a small number, such as an axis or an element type
			b[at] = byte(r.IntN(24))
		}
	}
	return b
}

// checkRead reads a file; nil if it is damaged. No content makes it panic or take much
// memory.
func checkRead(t testing.TB, data []byte) *keras.Model {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := Read(bytes.NewReader(data), ImportOptions{})
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 64<<20+100*uint64(len(data)) {
		t.Errorf("%d bytes of memory for a file of %d", taken, len(data))
	}
	if err != nil {
		if len(err.Error()) > 4200 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		return nil
	}
	return m
}

// TestMutations reads changed files; go test -run TestMutations -mutations 100000 reads
// many.
func TestMutations(t *testing.T) {
	was, err := keras.MemoryLimit()
	if err == nil {
		err = keras.SetMemoryLimit(256 * keras.MiB)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer keras.SetMemoryLimit(was)
	all := seeds(t)
	r := rand.New(rand.NewPCG(1, 2))
	read, computed, places := 0, 0, map[string]int{}
	for i := range *mutations {
		data := all[i%len(all)]
		if r.IntN(4) > 0 {
			data = edit(r, data)
		}
		if r.IntN(2) > 0 {
			data = mutate(r, data, all[r.IntN(len(all))])
		}
		func() {
			defer func() {
				if p := recover(); p != nil {
					at := where(debug.Stack())
					if places[at]++; places[at] == 1 {
						t.Errorf("mutation %d of file %d: panic: %v\n%s", i, i%len(all), p, at)
					}
				}
			}()
			m := checkRead(t, data)
			if m == nil {
				return
			}
			read++
			types := m.InputTypes()
			n := 1
			for _, ty := range types {
				for k, d := range ty.Shape {
					if d == keras.Unknown {
						ty.Shape[k] = 3
					}
				}
				n = op.Times(n, ty.Shape.Size())
			}
			if n > 1<<16 {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if y, err := m.Predict(ctx, sample(types, 3)); err == nil {
				computed++
				y.Release()
			}
		}()
	}
	t.Logf("%d of %d changed files were read, %d were computed", read, *mutations, computed)
}

// where returns the lines of a stack that are in files of this package, but tests.
func where(stack []byte) string {
	var out []string
	for _, line := range strings.Split(string(stack), "\n") {
		if strings.Contains(line, "keras/onnx/") && strings.Contains(line, ".go:") && !strings.Contains(line, "_test.go") && len(out) < 3 {
			line, _, _ = strings.Cut(line, " +")
			out = append(out, strings.TrimSpace(line[strings.LastIndexByte(line, '/')+1:]))
		}
	}
	return strings.Join(out, " < ")
}

// FuzzImport: no file makes Read panic.
func FuzzImport(f *testing.F) {
	for i, data := range seeds(f) {
		if i%7 == 0 && len(data) < 2000 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkRead(t, data) })
}

// edit changes fields of a decoded file: operations, operands, attributes, shapes, types
// and elements, so that most of what is read reaches the operations.
func edit(r *rand.Rand, data []byte) []byte {
	p, err := decodeModel(data)
	if err != nil {
		return data
	}
	g := p.graph
	names := []string{""}
	for _, n := range g.nodes {
		names = append(append(names, n.in...), n.out...)
	}
	numbers := []int64{-1 << 63, -1 << 40, -9, -3, -2, -1, 0, 1, 2, 3, 4, 5, 8, 16, 100, 1 << 16, 1 << 31, 1 << 47, 1<<63 - 1}
	number := func() int64 { return numbers[r.IntN(len(numbers))] }
	kinds := sortedKeys(operations)
	for range 1 + r.IntN(3) {
		switch r.IntN(8) {
		case 0:
			p.opsets[r.IntN(len(p.opsets))].version = int64(5 + r.IntN(20))
		case 1:
			if len(g.initializers) > 0 {
				t := g.initializers[r.IntN(len(g.initializers))]
				switch r.IntN(4) {
				case 0:
					if len(t.dims) > 0 {
						t.dims[r.IntN(len(t.dims))] = number()
					}
				case 1:
					t.typ = int64(r.IntN(17))
				case 2: // the same elements in another shape
					n := int64(len(t.raw) / max(elementSize(t.typ), 1))
					t.dims = [][]int64{{n}, {1, n}, {n, 1}, {1, n, 1, 1}, {n, 1, 1}}[r.IntN(5)]
				default:
					if t.raw = bytes.Clone(t.raw); len(t.raw) > 0 {
						t.raw[r.IntN(len(t.raw))] = byte(r.IntN(256))
					}
				}
			}
		case 2:
			if len(g.inputs) > 0 {
				in := g.inputs[r.IntN(len(g.inputs))]
				if r.IntN(3) == 0 {
					in.typ = int64(r.IntN(17))
				} else if len(in.dims) > 0 {
					in.dims[r.IntN(len(in.dims))] = dim{size: number()}
				}
			}
		default:
			n := g.nodes[r.IntN(len(g.nodes))]
			switch k := r.IntN(6); {
			case k == 0:
				n.op = kinds[r.IntN(len(kinds))]
			case k == 1 && len(n.in) > 0:
				n.in[r.IntN(len(n.in))] = names[r.IntN(len(names))]
			case k == 2 && len(n.in) > 0:
				n.in = n.in[:r.IntN(len(n.in))]
			case len(n.attrs) > 0:
				a := n.attrs[r.IntN(len(n.attrs))]
				switch r.IntN(4) {
				case 0:
					a.kind = int64(1 + r.IntN(8))
					if a.kind == kindTensor && a.t == nil || a.kind == kindGraph {
						a.kind = kindInt
					}
				case 1:
					a.i = number()
				case 2:
					if len(a.ints) > 0 {
						a.ints[r.IntN(len(a.ints))] = number()
					}
				default:
					a.ints = append(a.ints, number())
				}
			default:
				n.in = append(n.in, names[r.IntN(len(names))])
			}
		}
	}
	var out []byte
	for _, b := range p.sections() {
		out = append(out, b...)
	}
	return out
}
