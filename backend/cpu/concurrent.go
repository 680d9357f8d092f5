package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// concurrent runs the kernels of two values that the plan marks as Concurrent as one
// task, in the step of the first. A chunk of a scan is a block of sequences that goes
// through all steps: two scans of one block each use two cores.
type concurrent struct{ kernels [2]exec.Concurrent }

// concurrentEnd is the remaining step of the second kernel.
type concurrentEnd struct{}

func (concurrentEnd) Run(*exec.Run) {}

func (k *concurrent) Run(r *exec.Run) {
	n, work := 0, 0
	for _, c := range k.kernels {
		c.Begin(r)
		n, work = n+c.Chunks(), work+c.Work()
	}
	r.Parallel(k, n, work)
}

func (k *concurrent) Chunk(r *exec.Run, w *exec.Worker, i int) {
	if n := k.kernels[0].Chunks(); i < n {
		k.kernels[0].Chunk(r, w, i)
	} else {
		k.kernels[1].Chunk(r, w, i-n)
	}
}

// runConcurrently joins the kernels of values that are concurrent. Runs that are watched
// use the kernels one by one.
func (b *compiler) runConcurrently(g *ir.Graph) {
	steps := b.program.steps
	for i := 1; i < len(steps); i++ {
		first, second := &steps[i-1], &steps[i]
		if !g.Values[second.pos].Concurrent || first.pos != second.pos-1 {
			continue
		}
		k := &concurrent{}
		shared := 0
		for j, s := range []*step{first, second} {
			c, ok := s.kernel.(exec.Concurrent)
			if !ok {
				shared = -1
				break
			}
			if shared = c.Share(shared); shared < 0 {
				break
			}
			k.kernels[j] = c
		}
		if shared < 0 {
			continue
		}
		b.ReserveShared(shared)
		first.alone, first.kernel = first.kernel, k
		second.alone, second.kernel = second.kernel, concurrentEnd{}
	}
}
