package reduce

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// arg is the kernel of ArgMax and ArgMin over axes [outer, n, inner]. It scans the
// reduced axis for a tile of inner positions at a time.
type arg[T lanes.Number] struct {
	src, out        int
	dtype           dtype.DType
	n, inner, tiles int
	units, group    int
	better          func(v, best T) bool
	best            func(x []byte) int // of a contiguous row, -1 if it has a NaN; nil without assembly
	prefetch        bool               // operand is large: prefetch rows in long runs
	short           func(index []int32, x []T)
}

func NewArg(b *exec.Builder, v *ir.Value) exec.Kernel {
	switch lanes.TypeOf(v.Args[0].Type.DType) {
	case lanes.F32:
		k := makeArg[float32](b, v)
		s, sign := vec.Native(), uint32(0)
		if s == nil {
			return k
		}
		if v.Op == op.ArgMin {
			sign = 1 << 31
		}
		k.best = bestOf(s, k.dtype, sign != 0)
		k.prefetch = v.Args[0].Type.Bytes() >= lanes.NonTemporalBytes
		if k.inner == 1 && k.n <= s.Lanes {
			k.short = func(index []int32, x []float32) { s.ArgRows(index, x, k.n, sign) }
		}
		return k
	case lanes.F64:
		return makeArg[float64](b, v)
	}
	return makeArg[int64](b, v)
}

func makeArg[T lanes.Number](b *exec.Builder, v *ir.Value) *arg[T] {
	x, axis := v.Args[0].Type, v.Attr.Axes[0]
	k := &arg[T]{src: b.At(v.Args[0]), out: b.At(v), dtype: x.DType, n: x.Shape[axis], inner: x.Shape[axis+1:].Size()}
	// A NaN is better than any number, and nothing is better than a NaN.
	k.better = func(v, best T) bool { return v > best || v != v && best == best }
	if v.Op == op.ArgMin {
		k.better = func(v, best T) bool { return v < best || v != v && best == best }
	}
	k.tiles = max(1, (k.inner+lanes.Block-1)/lanes.Block)
	k.units = x.Shape[:axis].Size() * k.tiles
	if k.inner == 0 {
		k.units = 0
	}
	k.group = max(1, tiling.Grain/(k.n*max(1, min(k.inner, lanes.Block))))
	b.ReserveScratch(2 * 8 * lanes.Block)
	return k
}

func (k *arg[T]) Run(r *exec.Run) {
	r.Parallel(k, (k.units+k.group-1)/k.group, k.units*min(k.inner, lanes.Block)*k.n)
}

func (k *arg[T]) Chunk(r *exec.Run, w *exec.Worker, c int) {
	out := dtype.View[int32](r.Values[k.out])
	if k.short != nil {
		most := 2 * lanes.Block / k.n // rows that fit in scratch memory
		for lo, hi := c*k.group, min(k.units, (c+1)*k.group); lo < hi; lo += most {
			rows := min(most, hi-lo)
			k.short(out[lo:lo+rows], k.load(r, w, lo*k.n, rows*k.n, 1))
		}
		return
	}
	if k.prefetch && k.inner == 1 {
		size := k.n * k.dtype.Size()
		vec.Native().PrefetchLoad(r.Values[k.src][c*k.group*size : min(k.units, (c+1)*k.group)*size])
	}
	for u := c * k.group; u < min(k.units, (c+1)*k.group); u++ {
		o, col := u/k.tiles, u%k.tiles*lanes.Block
		cols := min(lanes.Block, k.inner-col)
		at := o*k.n*k.inner + col
		if k.inner == 1 {
			out[o] = k.row(r, w, at)
			continue
		}
		k.columns(r, w, at, out[o*k.inner+col:][:cols])
	}
}

// load returns elements at to at+n-1 as T, converted in block part of scratch memory.
func (k *arg[T]) load(r *exec.Run, w *exec.Worker, at, n, part int) []T {
	s := k.dtype.Size()
	scratch := w.Scratch[part*8*lanes.Block:]
	x := lanes.ViewOf[T](scratch, n)
	data := r.Values[k.src][at*s : (at+n)*s]
	if part == 1 && k.dtype != dtype.Bool && lanes.Native(k.dtype) {
		return dtype.View[T](data)
	}
	if k.dtype == dtype.Bool {
		dtype.ToI64(any(x).([]int64), data, dtype.Bool)
	} else {
		lanes.Load(scratch[:n*lanes.SizeOf[T]()], data, k.dtype, lanes.TypeOf(k.dtype))
	}
	return x
}

// bestOf returns the function that finds the first largest or smallest element of a
// row.
func bestOf(s *vec.Set, d dtype.DType, least bool) func(x []byte) int {
	switch d {
	case dtype.Float16:
		return bestIn(&s.F16, least)
	case dtype.BFloat16:
		return bestIn(&s.BF16, least)
	}
	return bestIn(&s.Folds, least)
}

func bestIn[T float32 | uint16](f *vec.Folds[T], least bool) func(x []byte) int {
	const part = 8 * lanes.Block
	best, better := f.RowMax, func(a, b float64) bool { return a > b }
	if least {
		best, better = f.Min, func(a, b float64) bool { return a < b }
	}
	return func(data []byte) int {
		x := dtype.View[T](data)
		at, top := 0, best(x[:min(part, len(x))])
		for i := part; i < len(x); i += part {
			if v := best(x[i:min(i+part, len(x))]); v != v || better(v, top) {
				at, top = i, v
			}
		}
		if top != top {
			return -1
		}
		return at + f.Find(x[at:], float32(top))
	}
}

func (k *arg[T]) row(r *exec.Run, w *exec.Worker, at int) int32 {
	if k.best != nil {
		data, size := r.Values[k.src], k.dtype.Size()
		lo, hi := at*size, (at+k.n)*size
		if i := k.best(data[lo:hi]); i >= 0 {
			return int32(i)
		}
	}
	var best T
	var index int32
	for done := 0; done < k.n; done += lanes.Block {
		x := k.load(r, w, at+done, min(lanes.Block, k.n-done), 1)
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

func (k *arg[T]) columns(r *exec.Run, w *exec.Worker, at int, index []int32) {
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
