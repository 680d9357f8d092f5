package elementwise

import (
	"math"
	"math/bits"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/philox"
)

// random is the kernel of RandomUniform.
type random struct {
	state, out, n int
	stream        uint64
	bits16        bool
}

const randomGrain = 4096 // numbers per chunk, a multiple of philox's block

func NewRandom(b *exec.Builder, v *ir.Value) exec.Kernel {
	return &random{b.At(v.Args[0]), b.At(v), v.Type.Shape.Size(), v.Attr.Stream, v.Attr.Bits == 16}
}

const randomCost = 4 // per number, in simple operations

func (k *random) Run(r *exec.Run) { r.Parallel(k, (k.n+randomGrain-1)/randomGrain, randomCost*k.n) }

func (k *random) Chunk(r *exec.Run, _ *exec.Worker, i int) {
	lo, hi := i*randomGrain, min(k.n, (i+1)*randomGrain)
	k.Produce(r, lo, dtype.View[float32](r.Values[k.out])[lo:hi])
}

// Produce draws up to randomGrain numbers from number lo on.
func (k *random) Produce(r *exec.Run, lo int, out []float32) {
	d := k.of(r)
	if before := lo % d.inBlock(); before != 0 {
		var block [8]float32
		d.numbers(lo-before, block[:d.inBlock()])
		n := copy(out, block[before:d.inBlock()])
		lo, out = lo+n, out[n:]
	}
	d.Uniform(lo, out)
}

// of returns the draw of a run's state.
func (k *random) of(r *exec.Run) Draw { return DrawOf(r.Values[k.state], k.stream, k.bits16) }

// AtLeast sets out to which of up to randomGrain 16-bit numbers from number lo on are
// at least x. It requires package vec.
func (d Draw) AtLeast(lo int, out []byte, x float32) {
	bound, none := bound16(x)
	if none {
		clear(out)
		return
	}
	f := vec.Native().PhiloxAtLeast
	for len(out) > 0 {
		before := lo % 8
		n := min(len(out), 256)
		if before != 0 { // up to the end of a block
			n = min(len(out), 8-before)
		}
		if n == 256 && d.within(lo) {
			n = len(out) / 256 * 256
			first, k0, k1, c1, c2, c3 := d.words(lo)
			f(out[:n], first, k0, k1, c1, c2, c3, bound)
		} else {
			var numbers [256]float32
			d.numbers(lo-before, numbers[:before+n])
			for i, v := range numbers[before:][:n] {
				out[i] = lanes.Truth(v >= x)
			}
		}
		lo, out = lo+n, out[n:]
	}
}

// bound16 returns the smallest 16-bit draw whose number is at least x, or none.
func bound16(x float32) (bound uint16, none bool) {
	b := math.Ceil(float64(x) * (1 << 16))
	if !(b < 1<<16) { // also NaN
		return 0, true
	}
	return uint16(max(b, 0)), false
}

// Fusible reports whether value i, random numbers or rows of a table, can be fused into
// its one consumer: an element-wise value that reads it element for element, while its
// arguments are unchanged. The consumer then computes it in its block buffers, which
// saves a store and a load.
func Fusible(g *ir.Graph, i int) bool {
	v := g.Values[i]
	if slices.ContainsFunc(v.Args, func(a *ir.Value) bool { return a.Slot.Place != ir.Input }) || v.Slot.Place != ir.Arena {
		return false // an argument may be overwritten, or the value is a result
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

// Draw identifies random numbers, see package philox.
type Draw struct {
	seed, counter, stream uint64
	bits16                bool // draws have 16 bits
}

// DrawOf returns the draw of a state.
func DrawOf(state []byte, stream uint64, bits16 bool) Draw {
	s := dtype.View[int64](state)
	return Draw{uint64(s[0]), uint64(s[1]), stream, bits16}
}

// inBlock returns the numbers in one block of philox.
func (d Draw) inBlock() int {
	if d.bits16 {
		return 8
	}
	return 4
}

// within reports whether the blocks of randomGrain numbers from number lo on have the
// same upper word.
func (d Draw) within(lo int) bool { return uint32(lo/d.inBlock()) < 1<<32-randomGrain }

// words returns the lower word of the index of number lo's block, and the other words
// of philox's key and counter.
func (d Draw) words(lo int) (first, k0, k1, c1, c2, c3 uint32) {
	c3 = uint32(d.stream) ^ bits.RotateLeft32(uint32(d.counter>>32), 16) ^ bits.RotateLeft32(uint32(d.stream>>32), 8)
	block := uint64(lo / d.inBlock())
	return uint32(block), uint32(d.seed), uint32(d.seed >> 32), uint32(block >> 32), uint32(d.counter), c3
}

// Uniform draws up to randomGrain numbers from number lo on, which must begin a block.
func (d Draw) Uniform(lo int, out []float32) {
	if v := vec.Native(); v != nil && d.within(lo) {
		n, f := len(out)/128*128, v.Philox
		if d.bits16 {
			n, f = len(out)/256*256, v.Philox16
		}
		first, k0, k1, c1, c2, c3 := d.words(lo)
		f(out[:n], first, k0, k1, c1, c2, c3)
		lo, out = lo+n, out[n:]
	}
	d.numbers(lo, out)
}

// numbers is Uniform without assembly.
func (d Draw) numbers(lo int, out []float32) {
	if d.bits16 {
		philox.Uniform16At(d.seed, d.counter, d.stream, uint64(lo), out)
	} else {
		philox.UniformAt(d.seed, d.counter, d.stream, uint64(lo), out)
	}
}

// counting is the kernel of Iota: a row of ascending numbers, repeated.
type counting struct {
	out, row int
	dtype    dtype.DType
}

func NewIota(b *exec.Builder, v *ir.Value) exec.Kernel {
	s := v.Type.Shape
	return &counting{b.At(v), s[len(s)-1], v.Type.DType}
}

func (k *counting) Run(r *exec.Run) {
	out, size := r.Values[k.out], k.dtype.Size()
	if len(out) == 0 {
		return
	}
	for i := range k.row {
		r.One[0] = int64(i)
		dtype.FromI64(out[i*size:(i+1)*size], r.One[:], k.dtype)
	}
	exec.Repeat(out, k.row*size)
}
