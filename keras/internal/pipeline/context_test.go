package pipeline

import (
	"context"
	"iter"
	"testing"
)

// BenchmarkGenerated is what an element of a generator costs, in the goroutine of
// its reader and in one of its own.
func BenchmarkGenerated(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	open := func(context.Context, int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := 0; yield(i, nil); i++ {
			}
		}
	}
	for name, opener := range map[string]Opener[int]{"in turn": Generated(open), "interruptible": Interruptible(open)} {
		b.Run(name, func(b *testing.B) {
			i := 0
			for range opener(Start{Context: ctx}, Forever) {
				if i++; i == b.N {
					break
				}
			}
		})
	}
}
