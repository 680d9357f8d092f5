package attention

import (
	"math"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// scoreRows is rows of scores in scratch memory, ld bytes apart: of a head's queries
// from t on and its n keys from s on. The queries see no key before lo. all is n padded
// for the product that reads the rows, which also have room for whole vectors.
type scoreRows struct {
	x           unsafe.Pointer
	ld          int
	rows        int
	lo, n, all  int
	batch, head int
	t, s        int
}

func (b *scoreRows) row(i int) []float32 { return floatsAt(unsafe.Add(b.x, i*b.ld), b.n) }

// clear sets all weights to 0.
func (b *scoreRows) clear(pairs bool) {
	for i := range b.rows {
		if row := unsafe.Add(b.x, i*b.ld); pairs {
			clear(unsafe.Slice((*uint16)(row), b.all))
		} else {
			clear(floatsAt(row, b.all))
		}
	}
}

// cut sets the scores before lo to -∞.
func (b *scoreRows) cut() {
	for i := range b.rows {
		lanes.Fill(b.row(i)[:b.lo], float32(math.Inf(-1)))
	}
}

// weigh is vec.Scores.Weigh, or WeighBF16 for pairs, with scores multiplied by scale. s
// is scratch memory.
func (b *scoreRows) weigh(pairs bool, scale float32, top, sum, s []float32) {
	if v := vec.Native(); v != nil && v.Scores != nil {
		f := v.Weigh
		if pairs {
			f = v.WeighBF16
		}
		s[0] = scale
		f(b.x, b.ld, b.n, tiling.RoundUp(b.all, v.Lanes), b.rows, unsafe.Pointer(&top[0]), unsafe.Pointer(&sum[0]), unsafe.Pointer(&s[0]))
		return
	}
	for i := range b.rows {
		x := floatsAt(unsafe.Add(b.x, i*b.ld), b.all+product.RowPad/4)
		top[i] = max(top[i], maxRow(x[:b.n]))
		sum[i] = expRow(x[:b.n], scale, max(top[i], -math.MaxFloat32), 1, s)
		clear(x[b.n:b.all])
	}
}

// slopes is vec.Scores.Slopes, or SlopesBF16 for pairs, with scores multiplied by scale
// and dx, laid out like x, by by.
func (b *scoreRows) slopes(dx unsafe.Pointer, pairs bool, scale, by float32, top, inverse, mean, s []float32) {
	if v := vec.Native(); v != nil && v.Scores != nil {
		f := v.Slopes
		if pairs {
			f = v.SlopesBF16
		}
		s[0], s[1] = scale, by
		f(b.x, dx, b.ld, b.n, tiling.RoundUp(b.all, v.Lanes), b.rows, unsafe.Pointer(&top[0]), unsafe.Pointer(&inverse[0]), unsafe.Pointer(&mean[0]), unsafe.Pointer(&s[0]))
		return
	}
	for i := range b.rows {
		x, d := floatsAt(unsafe.Add(b.x, i*b.ld), b.all+product.RowPad/4), floatsAt(unsafe.Add(dx, i*b.ld), b.all)
		expRow(x[:b.n], scale, top[i], inverse[i], s)
		if by == 1 {
			addRow(d[:b.n], -mean[i])
		} else {
			scaleAddRow(d[:b.n], by, -mean[i])
		}
		mulRow(d[:b.n], x)
		clear(x[b.n:b.all])
		clear(d[b.n:])
	}
}

// choose sets elements to v[0] where flags, in rows step bytes apart, are 0; all of v
// has that value. For pairs it must be 0.
func (b *scoreRows) choose(flags []byte, step int, pairs bool, v []float32) {
	if s := vec.Native(); s != nil && s.Scores != nil {
		f := s.Choose
		if pairs {
			f = s.ChooseU16
		}
		f(b.x, unsafe.Pointer(&flags[0]), b.ld, step, b.n, b.rows, v[0])
		return
	}
	for i := range b.rows {
		whereRow(b.row(i), flags[i*step:], v)
	}
}

// hide sets the scores that the mask hides to -∞. If it hides all keys of a query, it
// sets the query's row of dx, laid out like the scores, to 0; dx may be nil.
func (k *attention) hide(r *exec.Run, b scoreRows, dx unsafe.Pointer) {
	if k.Mask < 0 {
		return
	}
	m := r.Values[k.mask]
	at, step := b.batch*k.maskStep[0]+b.head*k.maskStep[1]+b.t*k.maskStep[2], k.maskStep[2]
	if k.maskStep[3] != 0 {
		b.choose(m[at+b.s:], step, false, hidden[:])
		return
	}
	for i := range b.rows {
		if m[at+i*step] != 0 {
			continue
		}
		lanes.Fill(b.row(i), float32(math.Inf(-1)))
		if dx != nil {
			clear(floatsAt(unsafe.Add(dx, i*b.ld), b.n))
		}
	}
}

// sees reports whether query t sees any key. It is called only where no weight is above
// 0, which is rare.
func (k *attention) sees(r *exec.Run, batch, head, t int) bool {
	lo, hi := k.Seen(k.attr, t)
	if k.Mask < 0 {
		return lo < hi
	}
	at := batch*k.maskStep[0] + head*k.maskStep[1] + t*k.maskStep[2]
	for s := lo; s < hi; s++ {
		if r.Values[k.mask][at+s*k.maskStep[3]] != 0 {
			return true
		}
	}
	return false
}

// takeRows reserves scratch memory for loops over rows of scores and for dropout.
func (k *attention) takeRows(l *tiling.Layout, rows int) {
	k.atNumbers = l.Take(4 * lanes.PassNumbers)
	if k.dropout != nil {
		k.atKeep = l.Take(rows*keepStep(k.blockKeys) + 2*randomPart)
		k.atRandom = l.Take(4 * randomPart)
	}
}

// numbers returns scratch memory for the arguments and results of vector loops.
func (k *attention) numbers(w *exec.Worker) []float32 {
	return lanes.ViewOf[float32](w.Scratch[k.atNumbers:], lanes.PassNumbers)
}

const randomPart = 512 // draws per call

// keepStep returns the bytes from a row of n flags to the next. Flags are drawn 256 at
// a time, from up to 7 before the row on.
func keepStep(n int) int { return tiling.RoundUp(n+7, 256) + 64 }

// dropoutFlags returns a flag for each weight, 1 where dropout keeps it, in rows step
// bytes apart.
func (k *attention) dropoutFlags(r *exec.Run, w *exec.Worker, b scoreRows) (flags []byte, step int) {
	flags, step = w.Scratch[k.atKeep:], keepStep(k.blockKeys)
	d := elementwise.DrawOf(r.Values[k.state], k.dropout.stream, k.dropout.bits16)
	number := ((b.batch*k.Heads+b.head)*k.Queries+b.t)*k.Keys + b.s
	rows, n := b.rows, b.n
	if n == k.Keys { // rows are contiguous
		rows, n, step = 1, rows*n, n
	}
	const first = 64
	for i := range rows {
		from := (number + i*k.Keys) &^ 7 // draws come in groups of 8
		before := number + i*k.Keys - from
		out := flags[first-before+i*step:][:tiling.RoundUp(before+n, 256)]
		for at := 0; at < len(out); at += randomPart {
			k.dropout.keep(out[at:min(len(out), at+randomPart)], lanes.ViewOf[float32](w.Scratch[k.atRandom:], randomPart), d, from+at)
		}
	}
	return flags[first:], step
}
