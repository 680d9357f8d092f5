package images

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestGate enters from many goroutines: never more than fit are in together.
func TestGate(t *testing.T) {
	g := &gate{size: 10}
	var held atomic.Int64
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for k := range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if k%5 == 0 {
					go cancel()
				}
				n, err := g.enter(ctx, 1+(i*7+k)%13)
				cancel()
				if err != nil {
					continue
				}
				if now := held.Add(int64(n)); now > 10 {
					t.Errorf("%d are held, want at most 10", now)
				}
				runtime.Gosched()
				held.Add(-int64(n))
				g.leave(n)
			}
		})
	}
	wait.Wait()
	if g.held != 0 || len(g.wait) != 0 {
		t.Errorf("at the end %d are held and %d wait", g.held, len(g.wait))
	}
	n, err := g.enter(t.Context(), 100)
	if n != 10 || err != nil {
		t.Errorf("more than fit: got %d, error %v, want 10", n, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := g.enter(ctx, 1); err != stop {
		t.Errorf("got error %v, want that of the context", err)
	}
}
