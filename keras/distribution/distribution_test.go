package distribution_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/distribution/enginetest"
)

func TestLocalConformance(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 7} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { enginetest.Run(t, distribution.LocalEngines(size)) })
	}
	enginetest.Run(t, []distribution.Engine{distribution.World().Engine()})
}

// TestLocalErrors: an error, a panic, a departure and a wrong call of one rank are
// errors of all, which name the rank.
func TestLocalErrors(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(g *distribution.Group) error
		want string
	}{
		"error":     {func(g *distribution.Group) error { return errors.New("no data") }, "rank 1: no data"},
		"panic":     {func(g *distribution.Group) error { var p *int; *p = 1; return nil }, "rank 1: panic"},
		"departure": {func(g *distribution.Group) error { return nil }, "rank 1: it has left the group"},
		"length":    {func(g *distribution.Group) error { return g.AllGather(make([]byte, 2), make([]byte, 6)) }, "of 2 bytes"},
		"call":      {func(g *distribution.Group) error { return g.Barrier() }, "barrier"},
	} {
		t.Run(name, func(t *testing.T) {
			err := distribution.Local(t.Context(), 3, func(_ context.Context, g *distribution.Group) error {
				if g.Rank() == 1 {
					return c.run(g)
				}
				for {
					if err := g.AllGather(make([]byte, 1), make([]byte, 3)); err != nil {
						return err
					}
				}
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
			var rank *distribution.RankError
			if !errors.As(err, &rank) {
				t.Errorf("got %T, want a *RankError in it", err)
			}
		})
	}
}

// TestTimeout: a rank that hangs is named by the others.
func TestTimeout(t *testing.T) {
	hang := make(chan struct{})
	err := distribution.Local(t.Context(), 3, func(_ context.Context, g *distribution.Group) error {
		g.SetTimeout(20 * time.Millisecond)
		if g.Rank() == 2 {
			<-hang
			return nil
		}
		err := g.Barrier()
		if g.Rank() == 0 {
			close(hang)
		}
		return err
	})
	var rank *distribution.RankError
	if !errors.As(err, &rank) || rank.Rank != 2 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a *RankError of rank 2 that wraps context.DeadlineExceeded", err)
	}
}

func TestAgree(t *testing.T) {
	err := distribution.Local(t.Context(), 3, func(_ context.Context, g *distribution.Group) error {
		if err := g.Agree(nil); err != nil {
			return err
		}
		if least, most, err := g.Status(byte(g.Rank()+1), nil); least != 1 || most != 3 || err != nil {
			return fmt.Errorf("Status: got %d, %d and %v, want 1 and 3", least, most, err)
		}
		own := errors.New("no disk")
		var mine error
		if g.Rank() == 1 {
			mine = own
		}
		err := g.Agree(mine)
		var rank *distribution.RankError
		switch {
		case g.Rank() == 1 && err != own:
			return fmt.Errorf("on the rank itself: got %v", err)
		case g.Rank() != 1 && (!errors.As(err, &rank) || rank.Rank != 1 || rank.Err.Error() != "no disk"):
			return fmt.Errorf("on another rank: got %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

type vars []*tensor.Variable

func (v vars) Variables() []*tensor.Variable { return v }

func variable(name string, data ...float64) *tensor.Variable {
	return tensor.NewVariable(name, dtype.Float32, tensor.Shape{len(data)}, func(dst []float64) error {
		copy(dst, data)
		return nil
	})
}

// TestBroadcast: variables of rank 0 replace the others', and Same names the first that
// differs.
func TestBroadcast(t *testing.T) {
	err := distribution.Local(t.Context(), 3, func(_ context.Context, g *distribution.Group) error {
		a, b := variable("a", 1, 2), variable("b", float64(g.Rank()), 3)
		err := g.Same(vars{a}, vars{b})
		var rank *distribution.RankError
		if !errors.As(err, &rank) || rank.Rank != 1 || !strings.Contains(err.Error(), "variable b differs") {
			return fmt.Errorf("Same: got %v", err)
		}
		if err := g.Broadcast(vars{a}, vars{b, a}); err != nil {
			return err
		}
		if v, err := b.Values(); err != nil || v[0] != 0 || v[1] != 3 {
			return fmt.Errorf("got %v, %v, want rank 0's [0 3]", v, err)
		}
		if err := g.Same(vars{a, b}); err != nil {
			return err
		}
		if g.Rank() == 2 {
			b = variable("b", 1)
		}
		if err := g.Broadcast(vars{b}); err == nil || !strings.Contains(err.Error(), "rank 2: variable 0") {
			return fmt.Errorf("Broadcast of other shapes: got %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
