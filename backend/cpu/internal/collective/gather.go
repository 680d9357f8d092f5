package collective

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// gatherStart is the kernel of AllGatherStart: it packs this rank's parts of the tensors.
type gatherStart struct {
	attr  *op.AllReduce
	args  []int
	dst   int
	state int // index in Run.States
}

// NewGatherStart returns the kernel of AllGatherStart.
func NewGatherStart(b *exec.Builder, v *ir.Value) exec.Kernel {
	a := v.Attr.AllReduce
	k := &gatherStart{attr: a, dst: b.At(v)}
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

func (k *gatherStart) Run(r *exec.Run) {
	r.Parallel(k, len(k.args), k.attr.Gathered())
	if k.attr.Ranks > 1 && !r.Over() {
		r.Failed = r.States[k.state].(*exchange).begin(r.Values[k.dst])
	}
}

// Chunk packs the part of one tensor.
func (k *gatherStart) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	at := 0
	for _, s := range k.attr.Shapes[:c] {
		at += op.PartOf(s.Size(), k.attr.Ranks)
	}
	size := k.attr.Wire.Size()
	copy(r.Values[k.dst][at*size:], r.Values[k.args[c]][:op.PartOf(k.attr.Shapes[c].Size(), k.attr.Ranks)*size])
}

// gatherDone is the kernel of AllGatherDone.
type gatherDone struct {
	attr    *op.AllReduce
	src     int
	state   int
	results []exec.Result
}

// NewGatherDone returns the kernel of AllGatherDone. Its argument must be computed by the
// same program.
func NewGatherDone(b *exec.Builder, v *ir.Value) exec.Kernel {
	return &gatherDone{attr: v.Attr.AllReduce, src: b.At(v.Args[0]), state: b.StateOf(v.Args[0]), results: b.Results(v)}
}

func (k *gatherDone) Run(r *exec.Run) {
	if k.attr.Ranks > 1 {
		if k.state < 0 {
			r.Failed = fmt.Errorf("cpu: AllGatherDone: another program has begun %v", k.attr)
			return
		}
		if r.Failed = r.States[k.state].(*exchange).wait(); r.Failed != nil {
			return
		}
	}
	r.Parallel(k, len(k.attr.Shapes)*k.attr.Ranks, k.attr.Elements())
}

// Chunk unpacks one rank's part of one tensor.
func (k *gatherDone) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	a := k.attr
	tensor, rank := c/a.Ranks, c%a.Ranks
	all := r.Values[k.src]
	if a.Ranks > 1 {
		all = r.States[k.state].(*exchange).sums
	}
	at := rank * a.Gathered()
	for _, s := range a.Shapes[:tensor] {
		at += op.PartOf(s.Size(), a.Ranks)
	}
	n := a.Shapes[tensor].Size()
	part := op.PartOf(n, a.Ranks)
	lo, hi := min(n, rank*part), min(n, (rank+1)*part)
	to := k.results[tensor].In(r)
	if lo == hi || to == nil {
		return
	}
	d := k.results[tensor].DType
	size := a.Wire.Size()
	convert(to[lo*d.Size():hi*d.Size()], all[at*size:(at+hi-lo)*size], d, a.Wire)
}

// newGather returns the exchange of an AllGather.
func newGather(a *op.AllReduce) *exchange {
	e := &exchange{attr: a, gather: true, done: make(chan error, 1)}
	if a.Ranks > 1 {
		e.sums = exec.Aligned(a.Ranks * a.Gathered() * a.Wire.Size())
	}
	return e
}
