package recurrent

import (
	"fmt"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// With few rows, a step's time is that of reading the recurrent kernel. If the kernel
// is too large for one core's L2, workers share it by columns: each computes all gates
// of some units at a step, and its cache keeps their columns until the next step.
// Products with the input's kernel are computed before, for all steps at once.

const (
	sharedRows   = 16      // most rows of a batch
	columnBytes  = 1 << 20 // smallest packed recurrent kernel
	columnInputs = 1 << 24 // most bytes for the input products of all steps
)

// columnScan is a scan whose workers share each step by columns.
type columnScan[T lanes.Real] struct {
	*scan[T]
	width  int // units per chunk
	inputs columnInput[T]
	tasks  []columnStep[T]

	// Offsets in the shared memory: the input products, rows of all gates; their bias;
	// c of even and odd steps; the recurrent bias.
	atInput, atOffsets, atBias int
	atStates                   [2]int
}

// columnInput is the task that computes the input products.
type columnInput[T lanes.Real] struct{ *columnScan[T] }

// columnStep is the task that computes a step.
type columnStep[T lanes.Real] struct {
	*columnScan[T]
	step int
}

// scanProblem is the input of the choice of a scan's algorithm.
type scanProblem[T lanes.Real] struct {
	*scan[T]
	b *exec.Builder
}

// scanAlgorithms are the algorithms of RNN.
func scanAlgorithms[T lanes.Real]() []exec.Algorithm[scanProblem[T]] {
	return []exec.Algorithm[scanProblem[T]]{
		{
			Name: "columns",
			Applies: func(p scanProblem[T]) string {
				switch fused := p.Cell == op.LSTMCell && p.cells.LSTM != nil || p.Cell == op.GRUCell && p.cells.GRU != nil; {
				case !fused || p.products[0].set == nil:
					return "no loop for the cell"
				case p.batch > sharedRows:
					return fmt.Sprintf("a batch of %d", p.batch)
				case p.inputBytes() > columnInputs:
					return "the inputs of the gates are too large"
				}
				return ""
			},
			Pays: func(p scanProblem[T]) string {
				recurrent := 0
				for i := range p.gates {
					recurrent += p.products[i].bytes()
				}
				if recurrent < columnBytes {
					return "few units"
				}
				return ""
			},
			Build: func(p scanProblem[T]) exec.Kernel { return newColumnScan(p.b, p.scan) },
		},
		{
			Name:    "rows",
			Applies: func(scanProblem[T]) string { return "" },
			Build:   func(p scanProblem[T]) exec.Kernel { return p.scan },
		},
	}
}

// Algorithms returns the names of the algorithms of RNN.
func Algorithms() []string { return exec.Names(scanAlgorithms[float32]()) }

// inputBytes returns the size of the input products of all steps.
func (k *scan[T]) inputBytes() int {
	return tiling.RoundUp(k.steps*k.batch, scanRows) * k.gates * k.wide * lanes.SizeOf[T]()
}

// newColumnScan returns a scan that shares k's steps by columns.
func newColumnScan[T lanes.Real](b *exec.Builder, k *scan[T]) exec.Kernel {
	inputs := k.inputBytes()
	c := &columnScan[T]{scan: k, width: tiling.Even(k.units, tiling.CeilDiv(k.units, tiling.MinChunks), k.products[0].tiles.NR)}
	c.inputs.columnScan = c
	// The batch is one block; a scan by rows has several.
	k.padded = tiling.RoundUp(k.batch, k.unit())
	for i := range k.atGates {
		k.atGates[i] = k.block()
	}
	b.ReserveScratch(k.scratch)
	for i := range k.steps {
		c.tasks = append(c.tasks, columnStep[T]{c, i})
	}
	last := &k.products[len(k.products)-1]
	at := tiling.RoundUp(last.at+last.bytes(), 64)
	take := func(n int) int {
		place := at
		at += tiling.RoundUp(n*lanes.SizeOf[T](), 64)
		return place
	}
	c.atInput = take(inputs / lanes.SizeOf[T]())
	c.atOffsets, c.atBias = take(k.gates*k.wide), take(k.wide)
	for i := range c.atStates {
		c.atStates[i] = take(k.padded * k.wide)
	}
	b.ReserveShared(at)
	return c
}

// shared returns n elements of the shared memory.
func (c *columnScan[T]) shared(r *exec.Run, at, n int) []T { return lanes.ViewOf[T](r.Shared[at:], n) }

// row returns the input products from the first row of step t on.
func (c *columnScan[T]) row(r *exec.Run, t int) []T {
	width := c.gates * c.wide
	return c.shared(r, c.atInput, tiling.RoundUp(c.steps*c.batch, scanRows)*width)[t*c.batch*width:]
}

func (c *columnScan[T]) Run(r *exec.Run) {
	if !c.prepare(r) {
		return
	}
	out := r.Values[c.out]
	_, before, _ := c.place(0)
	copy(c.outputs(out, before, 0, c.batch), r.Values[c.h])
	if c.c >= 0 {
		copy(c.states(out, before, 0, c.batch), r.Values[c.c])
		c.read(c.shared(r, c.atStates[0], c.batch*c.wide), r.Values[c.c])
	}
	convert := func(to []T, data []byte) { copy(to, lanes.RealView(data, c.dtype, to)) }
	if c.v >= 0 {
		n := c.units * c.dtype.Size()
		for g := range c.gates {
			convert(c.shared(r, c.atOffsets+g*c.ld(), c.units), r.Values[c.v][g*n:][:n])
		}
	}
	if c.b >= 0 {
		convert(c.shared(r, c.atBias, c.units), r.Values[c.b])
	}
	n := tiling.CeilDiv(c.units, c.width)
	r.Parallel(&c.inputs, n, c.steps*c.batch*c.units*c.gates*(1+c.features/16))
	for i := range c.tasks {
		r.Parallel(&c.tasks[i], n, c.batch*c.units*c.gates*(8+c.units/16))
	}
}

// span returns the units of chunk i.
func (c *columnScan[T]) span(i int) (from, end int) {
	return i * c.width, min(c.units, (i+1)*c.width)
}

// Chunk computes the input products of some units for all steps.
func (c *columnInput[T]) Chunk(r *exec.Run, w *exec.Worker, i int) {
	from, end := c.span(i)
	rows, width := c.steps*c.batch, c.gates*c.wide
	in, x := c.row(r, 0), r.Values[c.x]
	products := c.products[c.gates:]
	if len(products) == 0 {
		size := c.dtype.Size()
		offsets := c.shared(r, c.atOffsets, width)
		for j := range rows {
			for g := range c.gates {
				to := in[j*width+g*c.wide:][from:end]
				if c.w >= 0 {
					copy(to, offsets[g*c.wide:][from:end])
					continue
				}
				at := (j*c.gates + g) * c.units
				copy(to, lanes.RealView(x[(at+from)*size:(at+end)*size], c.dtype, to))
			}
		}
		return
	}
	c.begin()
	defer c.end()
	ld := c.features * c.dtype.Size()
	for first := 0; first < rows; first += scanRows {
		n := min(scanRows, rows-first)
		a := products[0].operand(r, x[first*ld:], ld, n, w.Scratch[c.operand:])
		for g := range products {
			offsets := pointer(c.shared(r, c.atOffsets+g*c.ld(), c.wide)[from:])
			d := pointer(in[first*width+g*c.wide+from:])
			products[g].columns(r, from, end, n, a, offsets, 0, d, width*lanes.SizeOf[T]())
		}
	}
}

// Chunk computes a step of some units.
func (s *columnStep[T]) Chunk(r *exec.Run, w *exec.Worker, i int) {
	c := s.columnScan
	c.begin()
	defer c.end()
	from, end := c.span(i)
	t, before, after := c.place(s.step)
	rows, out, size := c.batch, r.Values[c.out], c.dtype.Size()
	state := c.shared(r, c.atStates[s.step%2], rows*c.wide)
	next := c.shared(r, c.atStates[(s.step+1)%2], rows*c.wide)
	hBytes, lastBytes := c.outputs(out, after, 0, rows), c.outputs(out, before, 0, rows)
	a := c.products[0].operand(r, lastBytes, c.units*size, rows, w.Scratch[c.operand:])

	in, inLD := c.row(r, t), c.gates*c.ld()
	block := func(x []T) vec.Operand { return vec.Operand{P: pointer(x[from:]), Stride: c.ld()} }
	stored := func(data []byte) vec.Operand { return c.storedAt(data[from*size:], c.units) }
	// multiply computes the pre-activations of a gate.
	multiply := func(g, product int, s unsafe.Pointer, lds int) vec.Operand {
		d := c.room(c.blockOf(w, c.atGates[g], c.padded), c.saved(out, t, g, 0, rows))
		c.products[product].columns(r, from, end, rows, a, s, lds, pointer(d[from:]), c.ld())
		return block(d)
	}
	input := func(g int) unsafe.Pointer { return pointer(in[g*c.wide+from:]) }
	sums, results := w.Operands[:], w.Operands[6:]
	if c.Cell == op.LSTMCell {
		for g := range c.gates {
			sums[g] = multiply(g, g, input(g), inLD)
		}
		sums[4], sums[5] = block(state), block(next)
		results[4], results[5] = stored(hBytes), stored(c.states(out, after, 0, rows))
	} else {
		sums[0], sums[1] = multiply(0, 0, input(0), inLD), multiply(1, 1, input(1), inLD)
		sums[2] = vec.Operand{P: pointer(in[2*c.wide+from:]), Stride: inLD}
		sums[3] = multiply(3, 2, pointer(c.shared(r, c.atBias, c.wide)[from:]), 0)
		sums[4] = stored(lastBytes)
		results = w.Operands[5:]
		results[4] = stored(hBytes)
	}
	for g := range c.Cell.Saved() {
		results[g] = stored(c.saved(out, t, g, 0, rows))
	}
	if c.Cell == op.LSTMCell {
		c.cells.LSTM(w.Operands[:12], rows, end-from)
	} else {
		c.cells.GRU(w.Operands[:10], rows, end-from)
	}
	if c.mask < 0 {
		return
	}
	for i, on := range r.Values[c.mask][t*c.batch:][:rows] {
		if on != 0 {
			continue
		}
		at, n := (i*c.units+from)*size, (end-from)*size
		copy(hBytes[at:][:n], lastBytes[at:])
		if c.c >= 0 {
			copy(next[i*c.wide:][from:end], state[i*c.wide:][from:end])
			copy(c.states(out, after, 0, rows)[at:][:n], c.states(out, before, 0, rows)[at:])
		}
	}
}
