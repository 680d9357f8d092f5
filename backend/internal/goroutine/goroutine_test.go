package goroutine

import (
	"runtime"
	"sync"
	"testing"
)

// TestID: the IDs of goroutines that exist at the same time differ, and one's own
// stays, on a grown stack and on another thread, too.
func TestID(t *testing.T) {
	const n = 1000
	ids, numbers := make([]uint64, n), make([]uint64, n)
	var all, there sync.WaitGroup
	there.Add(n)
	for i := range n {
		all.Go(func() {
			ids[i], numbers[i] = ID(), number()
			there.Done()
			there.Wait() // now all exist
			if i%100 == 0 {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			if deep(1000) != ids[i] || number() != numbers[i] {
				t.Errorf("goroutine %d has another ID than before", numbers[i])
			}
		})
	}
	all.Wait()
	seen := map[uint64]uint64{0: 0}
	for i, id := range ids {
		if other, ok := seen[id]; ok {
			t.Errorf("goroutines %d and %d have ID %d", numbers[i], other, id)
		}
		seen[id] = numbers[i]
	}
}

// deep is ID with some hundred kilobytes of stack.
func deep(n int) uint64 {
	var room [128]byte
	if n == 0 {
		runtime.GC() // may move the stack
		return ID()
	}
	id := deep(n - 1)
	room[n%len(room)] = byte(id)
	return id
}

func BenchmarkID(b *testing.B) {
	for b.Loop() {
		ID()
	}
}
