package pipeline

import (
	"iter"

	"github.com/mezzo-ml/mezzo/backend/philox"
)

// Order is the sequence in which n samples leave a window of buffer samples in
// an epoch: a function of seed and epoch.
func Order(n, buffer int, seed uint64, epoch int) []int32 {
	order := make([]int32, 0, n)
	window := make([]int32, 0, min(n, buffer))
	random := &picker{seed: seed, epoch: uint64(epoch)}
	for i := range n {
		if len(window) < buffer {
			window = append(window, int32(i))
			continue
		}
		j := random.below(len(window))
		order = append(order, window[j])
		window[j] = int32(i)
	}
	for len(window) > 0 {
		j := random.below(len(window))
		last := len(window) - 1
		order = append(order, window[j])
		window[j] = window[last]
		window = window[:last]
	}
	return order
}

// Shuffle mixes a stream through a window of buffer elements, in the order of
// Order. To open it in its middle it reads what comes before, but passes
// nothing on.
func Shuffle[T any](inner Opener[T], buffer int, seed uint64) Opener[T] {
	buffer = max(buffer, 1)
	return func(at Start, hold Hold) iter.Seq2[T, error] {
		from := at
		from.Skip = 0
		return Past(shuffled(inner(from, hold.InAnyOrder()), buffer, seed, at.Epoch), at.Skip)
	}
}

func shuffled[T any](in iter.Seq2[T, error], buffer int, seed uint64, epoch int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		random := &picker{seed: seed, epoch: uint64(epoch)}
		var window []T
		for x, err := range in {
			if err != nil {
				yield(x, err)
				return
			}
			if len(window) < buffer {
				window = append(window, x)
				continue
			}
			j := random.below(len(window))
			out := window[j]
			window[j] = x
			if !yield(out, nil) {
				return
			}
		}
		for len(window) > 0 {
			j := random.below(len(window))
			last := len(window) - 1
			out := window[j]
			window[j] = window[last]
			window = window[:last]
			if !yield(out, nil) {
				return
			}
		}
	}
}

// picker draws whole numbers from Philox, keyed by seed and epoch.
type picker struct {
	seed, epoch, next uint64
	words             [64]uint32
	left              int
}

// shuffleStream keeps the numbers of shuffles apart from those of layers.
const shuffleStream = 0x73687566666c65

// below returns a number in 0 … n-1. The bias of the multiplication is below
// n/2³², far under what any number of epochs could show.
func (r *picker) below(n int) int {
	if r.left == 0 {
		philox.Words(r.seed, r.epoch, shuffleStream, r.next, r.words[:])
		r.next += uint64(len(r.words))
		r.left = len(r.words)
	}
	r.left--
	return int(uint64(r.words[r.left]) * uint64(n) >> 32)
}
