package cpu

import (
	"math"
	"math/bits"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/philox"
)

// random is RandomUniform.
type random struct {
	state, out, n int
	stream        uint64
}

const randomGrain = 4096 // numbers of a chunk, a multiple of philox's block

func newRandom(b *builder, v *ir.Value) kernel {
	return &random{b.at(v.Args[0]), b.at(v), v.Type.Shape.Size(), v.Attr.Stream}
}

const randomCost = 4 // of a number, in simple operations

func (k *random) run(r *run) { r.parallel(k, (k.n+randomGrain-1)/randomGrain, randomCost*k.n) }

func (k *random) chunk(r *run, _ *worker, i int) {
	lo, hi := i*randomGrain, min(k.n, (i+1)*randomGrain)
	k.fill(r, lo, dtype.View[float32](r.values[k.out])[lo:hi])
}

// fill makes up to randomGrain numbers from number lo on.
func (k *random) fill(r *run, lo int, out []float32) {
	d := k.of(r)
	if lo%4 != 0 { // philox makes four at a time
		var four [4]float32
		philox.UniformAt(d.seed, d.counter, d.stream, uint64(lo&^3), four[:])
		n := copy(out, four[lo%4:])
		lo, out = lo+n, out[n:]
	}
	d.uniform(lo, out)
}

// of is what the state of a run draws.
func (k *random) of(r *run) draw {
	state := dtype.View[int64](r.values[k.state])
	return draw{uint64(state[0]), uint64(state[1]), k.stream}
}

// atLeast says which of up to randomGrain numbers from number lo on are not
// less than x.
func (d draw) atLeast(lo int, out []byte, x float32) {
	bound := math.Ceil(float64(x) * (1 << 24)) // numbers are whole ones of 2⁻²⁴
	switch {
	case !(bound < 1<<24): // or NaN
		clear(out)
		return
	case bound <= 0:
		for i := range out {
			out[i] = 1
		}
		return
	}
	compare := func(out []byte, lo int) { // to the end of its block of numbers
		var numbers [128]float32
		philox.UniformAt(d.seed, d.counter, d.stream, uint64(lo&^3), numbers[:lo%4+len(out)])
		for i, v := range numbers[lo%4:][:len(out)] {
			out[i] = truth(v >= x)
		}
	}
	if n := min(len(out), -lo&3); n > 0 {
		compare(out[:n], lo)
		lo, out = lo+n, out[n:]
	}
	if v := vectors(); v != nil && v.PhiloxAtLeast != nil && d.within(lo) {
		n := len(out) / 128 * 128
		first, k0, k1, c1, c2, c3 := d.words(lo)
		v.PhiloxAtLeast(out[:n], first, k0, k1, c1, c2, c3, uint32(bound)<<8)
		lo, out = lo+n, out[n:]
	}
	for len(out) > 0 {
		n := min(len(out), 64)
		compare(out[:n], lo)
		lo, out = lo+n, out[n:]
	}
}

// madeByReader reports whether value i, random numbers or rows of a table, need
// not be in memory: one element-wise value reads them, element for element,
// while what they are made of is what it was. It makes them in its registers,
// which costs less than to write and read them.
func madeByReader(g *ir.Graph, i int) bool {
	v := g.Values[i]
	if slices.ContainsFunc(v.Args, func(a *ir.Value) bool { return a.Slot.Place != ir.Input }) || v.Slot.Place != ir.Arena {
		return false // an argument may be overwritten, or the numbers are a result
	}
	var reader *ir.Value
	for at, u := range g.Values[i+1:] {
		if !slices.Contains(u.Args, v) {
			continue
		}
		if reader != nil || i+1+at >= g.Commit || u.Op.Info().Class != op.Elementwise || u.View() || u.Type.Shape.Size() != v.Type.Shape.Size() {
			return false
		}
		reader = u
	}
	return reader != nil
}

// draw names random numbers as package philox does.
type draw struct{ seed, counter, stream uint64 }

// within reports whether the blocks of randomGrain numbers from number lo on
// have the same upper word.
func (d draw) within(lo int) bool { return uint32(lo/4) < 1<<32-randomGrain }

// words are the number of the block that number lo begins, in its lower word,
// and the other words as package philox has them.
func (d draw) words(lo int) (first, k0, k1, c1, c2, c3 uint32) {
	c3 = uint32(d.stream) ^ bits.RotateLeft32(uint32(d.counter>>32), 16) ^ bits.RotateLeft32(uint32(d.stream>>32), 8)
	return uint32(lo / 4), uint32(d.seed), uint32(d.seed >> 32), uint32(uint64(lo) / 4 >> 32), uint32(d.counter), c3
}

// uniform is [philox.UniformAt] for up to randomGrain numbers, in assembly where
// there is some.
func (d draw) uniform(lo int, out []float32) {
	if v := vectors(); v != nil && d.within(lo) {
		n := len(out) / 128 * 128
		first, k0, k1, c1, c2, c3 := d.words(lo)
		v.Philox(out[:n], first, k0, k1, c1, c2, c3)
		lo, out = lo+n, out[n:]
	}
	philox.UniformAt(d.seed, d.counter, d.stream, uint64(lo), out)
}

// counting is Iota: a row of ascending numbers, repeated.
type counting struct {
	out, row int
	dtype    dtype.DType
}

func newIota(b *builder, v *ir.Value) kernel {
	s := v.Type.Shape
	return &counting{b.at(v), s[len(s)-1], v.Type.DType}
}

func (k *counting) run(r *run) {
	out, size := r.values[k.out], k.dtype.Size()
	if len(out) == 0 {
		return
	}
	for i := range k.row {
		r.one[0] = int64(i)
		dtype.FromI64(out[i*size:(i+1)*size], r.one[:], k.dtype)
	}
	repeat(out, k.row*size)
}
