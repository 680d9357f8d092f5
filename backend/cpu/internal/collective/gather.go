package collective

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// gatherStart is the kernel of AllGatherStart: it packs this rank's parts of the tensors.
type gatherStart struct {
	attr  *op.AllReduce
	args  []int
	dst   int
	state int   // index in Run.States
	at    []int // where each part begins; at the end the length
	soon  bool  // there is work to do before the tensors are waited for
}

// NewGatherStart returns the kernel of AllGatherStart.
func NewGatherStart(b *exec.Builder, v *ir.Value) exec.Kernel {
	a := v.Attr.AllReduce
	k := &gatherStart{attr: a, dst: b.At(v), at: gatheredStarts(a), soon: overlaps(b, v)}
	for _, x := range v.Args[:len(a.Shapes)] {
		k.args = append(k.args, b.At(x))
	}
	bytes := 0
	if a.Ranks > 1 {
		bytes = a.Ranks * a.Gathered() * a.Wire.Size()
	}
	k.state = b.ReserveState(v, bytes, func() exec.State { return newGather(a) })
	return k
}

// gatheredStarts returns where the parts of the tensors begin in what a rank sends, and
// the length.
func gatheredStarts(a *op.AllReduce) (at []int) {
	n := 0
	for _, s := range a.Shapes {
		at = append(at, n)
		n += op.PartOf(s.Size(), a.Ranks)
	}
	return append(at, n)
}

func (k *gatherStart) Run(r *exec.Run) {
	r.States[k.state].(*exchange).pack(r, k, r.Values[k.dst], 1, k.soon)
}

// Chunk packs columns of the one row.
func (k *gatherStart) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	e := r.States[k.state].(*exchange)
	_, position, end, _ := e.chunk(e.piece, 1, c)
	size := k.attr.Wire.Size()
	for i := tensorAt(k.at, position); position < end; i++ {
		n := min(end, k.at[i+1]) - position
		copy(r.Values[k.dst][position*size:], r.Values[k.args[i]][(position-k.at[i])*size:(position-k.at[i]+n)*size])
		position += n
	}
}

// gatherDone is the kernel of AllGatherDone.
type gatherDone struct {
	attr    *op.AllReduce
	src     int
	state   int
	results []exec.Result
	at      []int // where each part begins in what a rank sends; at the end the length
	pieces
}

// NewGatherDone returns the kernel of AllGatherDone. Its argument must be computed by the
// same program.
func NewGatherDone(b *exec.Builder, v *ir.Value) exec.Kernel {
	a := v.Attr.AllReduce
	return &gatherDone{attr: a, src: b.At(v.Args[0]), state: b.StateOf(v.Args[0]), results: b.Results(v), at: gatheredStarts(a), pieces: piecesOf(a.Gathered(), a.Ranks, a.Wire)}
}

func (k *gatherDone) Run(r *exec.Run) { unpack(r, k, k.attr, k.state, k.pieces, k.attr.Ranks) }

// Chunk unpacks columns of one rank's parts.
func (k *gatherDone) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	a, i, all := k.attr, 0, r.Values[k.src]
	if a.Ranks > 1 {
		e := r.States[k.state].(*exchange)
		i, all = e.piece, e.sums
	}
	rank, position, end, at := k.chunk(i, a.Ranks, c)
	size := a.Wire.Size()
	src := all[at*size : (at+end-position)*size]
	for i := tensorAt(k.at, position); len(src) > 0; i++ {
		n := min(end, k.at[i+1]) - position
		from := rank*(k.at[i+1]-k.at[i]) + position - k.at[i]
		there := min(max(a.Shapes[i].Size()-from, 0), n) // behind the last element is anything
		if to := k.results[i].In(r); to != nil && there > 0 {
			d := k.results[i].DType
			convert(to[from*d.Size():(from+there)*d.Size()], src[:there*size], d, a.Wire)
		}
		src, position = src[n*size:], position+n
	}
}

// newGather returns the exchange of an AllGather.
func newGather(a *op.AllReduce) *exchange {
	e := &exchange{attr: a, gather: true, pieces: piecesOf(a.Gathered(), a.Ranks, a.Wire)}
	if a.Ranks > 1 {
		e.open()
		e.sums = exec.Aligned(a.Ranks * a.Gathered() * a.Wire.Size())
	}
	return e
}
