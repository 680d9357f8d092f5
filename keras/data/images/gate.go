package images

import (
	"context"
	"slices"
	"sync"
)

// gate bounds what several goroutines hold together.
type gate struct {
	mu   sync.Mutex
	size int
	held int
	wait []*visitor // first come, first served
}

type visitor struct {
	n    int
	turn chan struct{} // closed when it has entered
}

// enter waits until n fit in, and returns how many leave must be given. More
// than the size of the gate wait until they are alone.
func (g *gate) enter(ctx context.Context, n int) (int, error) {
	n = min(n, g.size)
	v := &visitor{n, make(chan struct{})}
	g.mu.Lock()
	g.wait = append(g.wait, v)
	g.admit()
	g.mu.Unlock()
	select {
	case <-v.turn:
		return n, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	i := slices.Index(g.wait, v)
	if i >= 0 {
		g.wait = slices.Delete(g.wait, i, i+1)
		g.admit()
	}
	g.mu.Unlock()
	if i < 0 { // it has entered meanwhile
		g.leave(n)
	}
	return 0, context.Cause(ctx)
}

func (g *gate) leave(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held -= n
	g.admit()
}

func (g *gate) admit() {
	for len(g.wait) > 0 && g.held+g.wait[0].n <= g.size {
		g.held += g.wait[0].n
		close(g.wait[0].turn)
		g.wait = slices.Delete(g.wait, 0, 1)
	}
}
