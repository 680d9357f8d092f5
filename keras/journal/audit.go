package journal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Segment is steps between two checkpoints that an audit computed again.
type Segment struct {
	From, To int64 // steps From+1 … To
	First    *Mismatch
}

// Audit computes up to n segments between checkpoints again, drawn at random by
// seed, in the order of their steps, and compares each step with the journal. A segment also ends
// with a comparison of the whole state with that of its second checkpoint.
func Audit(ctx context.Context, p Program, dir string, n int, seed uint64) ([]Segment, error) {
	r, err := open(dir)
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("journal: Audit: got %d segments, want a positive number", n)
	}
	all := r.pieces()
	random := rand.New(rand.NewPCG(seed, 0))
	order := random.Perm(len(all))
	order = order[:min(n, len(order))]
	slices.Sort(order)
	var done []Segment
	for _, i := range order {
		got, err := r.replay(ctx, p, all[i].from, all[i].end, all[i].to)
		if err != nil {
			return done, err
		}
		done = append(done, Segment{got.From, got.To, got.First})
	}
	return done, nil
}

// piece is steps from one checkpoint to the next.
type piece struct {
	from *saved // nil: the beginning
	end  int64
	to   *State // nil: there is no checkpoint
}

// pieces cuts the training at its checkpoints.
func (r *recording) pieces() (all []piece) {
	last, at := piece{}, r.log.States[0].Number
	for i := range r.files {
		to := &r.files[i].state
		if to.Number > at {
			last.end, last.to = to.Number, to
			all = append(all, last)
		}
		last, at = piece{from: &r.files[i]}, to.Number
	}
	if end := int64(len(r.log.Steps)); end > at { // killed, or still running
		all = append(all, piece{last.from, end, nil})
	}
	return all
}

// segments is how many segments an audit can choose from.
func (r *recording) segments() int { return len(r.pieces()) }
