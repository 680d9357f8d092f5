package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// arg is ArgMax and ArgMin: axes are outer, the one reduced, inner. It goes
// through the reduced axis for a tile of inner positions at a time.
type arg[T number] struct {
	src, out        int
	dtype           dtype.DType
	n, inner, tiles int
	units, group    int
	better          func(v, best T) bool
}

func newArg(b *builder, v *ir.Value) kernel {
	switch domainOf(v.Args[0].Type.DType) {
	case inF32:
		return makeArg[float32](b, v)
	case inF64:
		return makeArg[float64](b, v)
	}
	return makeArg[int64](b, v)
}

func makeArg[T number](b *builder, v *ir.Value) kernel {
	x, axis := v.Args[0].Type, v.Attr.Axes[0]
	k := &arg[T]{src: b.at(v.Args[0]), out: b.at(v), dtype: x.DType, n: x.Shape[axis], inner: x.Shape[axis+1:].Size()}
	// A NaN is better than any number, and nothing is better than a NaN.
	k.better = func(v, best T) bool { return v > best || v != v && best == best }
	if v.Op == op.ArgMin {
		k.better = func(v, best T) bool { return v < best || v != v && best == best }
	}
	k.tiles = max(1, (k.inner+block-1)/block)
	k.units = x.Shape[:axis].Size() * k.tiles
	if k.inner == 0 {
		k.units = 0
	}
	k.group = max(1, moveGrain/(k.n*max(1, min(k.inner, block))))
	b.wantScratch(2 * 8 * block)
	return k
}

func (k *arg[T]) run(r *run) {
	r.parallel(k, (k.units+k.group-1)/k.group, k.units*min(k.inner, block)*k.n)
}

func (k *arg[T]) chunk(r *run, w *worker, c int) {
	out := dtype.View[int32](r.values[k.out])
	for u := c * k.group; u < min(k.units, (c+1)*k.group); u++ {
		o, col := u/k.tiles, u%k.tiles*block
		cols := min(block, k.inner-col)
		at := o*k.n*k.inner + col
		if k.inner == 1 {
			out[o] = k.row(r, w, at)
			continue
		}
		k.columns(r, w, at, out[o*k.inner+col:][:cols])
	}
}

// load is elements at … at+n-1, in half number part of the scratch memory if
// they must be converted.
func (k *arg[T]) load(r *run, w *worker, at, n, part int) []T {
	s := k.dtype.Size()
	scratch := w.scratch[part*8*block:]
	x := viewOf[T](scratch, n)
	if data := r.values[k.src][at*s : (at+n)*s]; k.dtype == dtype.Bool {
		dtype.ToI64(any(x).([]int64), data, dtype.Bool)
	} else {
		load(scratch[:n*sizeOf[T]()], data, k.dtype)
	}
	return x
}

func (k *arg[T]) row(r *run, w *worker, at int) int32 {
	var best T
	var index int32
	for done := 0; done < k.n; done += block {
		x := k.load(r, w, at+done, min(block, k.n-done), 0)
		if done == 0 {
			best = x[0]
		}
		for i, v := range x {
			if k.better(v, best) {
				best, index = v, int32(done+i)
			}
		}
	}
	return index
}

func (k *arg[T]) columns(r *run, w *worker, at int, index []int32) {
	best := k.load(r, w, at, len(index), 0)
	clear(index)
	for j := 1; j < k.n; j++ {
		for i, v := range k.load(r, w, at+j*k.inner, len(index), 1) {
			if k.better(v, best[i]) {
				best[i], index[i] = v, int32(j)
			}
		}
	}
}
