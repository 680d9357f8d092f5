package cpu

import (
	"math/bits"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
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

func (k *random) run(r *run) { r.parallel(k, (k.n+randomGrain-1)/randomGrain, 4*k.n) }

func (k *random) chunk(r *run, w *worker, i int) {
	state := dtype.View[int64](r.values[k.state])
	lo, hi := i*randomGrain, min(k.n, (i+1)*randomGrain)
	out := dtype.View[float32](r.values[k.out])[lo:hi]
	uniformAt(uint64(state[0]), uint64(state[1]), k.stream, lo, out)
}

// uniformAt is [philox.UniformAt] for up to randomGrain numbers, in assembly
// where there is some.
func uniformAt(seed, counter, stream uint64, first int, out []float32) {
	if v := vectors(); v != nil && uint32(first/4) < 1<<32-randomGrain {
		// The words as package philox has them.
		c3 := uint32(stream) ^ bits.RotateLeft32(uint32(counter>>32), 16) ^ bits.RotateLeft32(uint32(stream>>32), 8)
		n := len(out) / 128 * 128
		v.Philox(out[:n], uint32(first/4), uint32(seed), uint32(seed>>32), uint32(uint64(first)/4>>32), uint32(counter), c3)
		first, out = first+n, out[n:]
	}
	philox.UniformAt(seed, counter, stream, uint64(first), out)
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
