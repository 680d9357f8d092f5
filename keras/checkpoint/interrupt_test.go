package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
)

// TestInterrupt: a training whose context ends, in whatever hook, loses no step
// and goes on to the same bits; no state is saved but for that.
func TestInterrupt(t *testing.T) {
	for name, s := range settings() {
		t.Run(name, func(t *testing.T) {
			steps := 0
			count := keras.Callback{BatchEnd: func(context.Context, *keras.Run) error { steps++; return nil }}
			want, err := s.run(t, nil, 0, count)
			check(t, err)
			total := steps
			for _, every := range []int{1, 2, 5, 9} {
				d := &Directory{Path: t.TempDir(), Keep: 1}
				steps = 0
				var got result
				lives := 0
				for ; lives < 100; lives++ {
					ctx, cancel := context.WithCancel(background)
					hooks := every + lives // so that each life gets on, and ends in another hook
					strike := func(context.Context, *keras.Run) error {
						if hooks--; hooks == 0 {
							cancel()
						}
						return nil
					}
					got, err = s.runUntil(ctx, t, d, 0, count,
						keras.Callback{TrainBegin: strike, EpochBegin: strike, BatchBegin: strike, BatchEnd: strike, TestBegin: strike, TestEnd: strike, EpochEnd: strike})
					cancel()
					if err == nil {
						break
					}
					var stop *keras.Interrupted
					if !errors.Is(err, context.Canceled) || !errors.As(err, &stop) || stop.Saved != (steps > 0) {
						t.Fatalf("life %d, after %d steps: got %v, want a context that was cancelled, and a state where there is one", lives, steps, err)
					}
				}
				if got != want || steps != total || lives < 2 {
					t.Errorf("interrupted after %d hooks and more: %d lives, %d steps: got\n%v, want\n%v in %d steps", every, lives, steps, got, want, total)
				}
			}
		})
	}
}

// TestInterruptAnywhere: the same at moments that nobody chose. The time of a life grows up to
// that of several whole trainings, however slow the machine is.
func TestInterruptAnywhere(t *testing.T) {
	s := settings()["mixed_float16, loss scale"]
	began := time.Now()
	want, err := s.run(t, nil, 0)
	check(t, err)
	most := time.Since(began) / 20 // of the first life
	random := rand.New(rand.NewPCG(3, 4))
	d := &Directory{Path: t.TempDir()}
	got, lives := result{}, 0
	for ; lives < 200; lives++ {
		ctx, cancel := context.WithTimeout(background, time.Duration(random.Int64N(int64(most)*int64(lives+1))))
		got, err = s.runUntil(ctx, t, d, 0)
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if got != want || lives < 2 {
		t.Errorf("%d lives: got\n%v, want\n%v", lives, got, want)
	}
}

// TestInterruptedError: what the message says, and what happens when the state
// cannot be saved.
func TestInterruptedError(t *testing.T) {
	s := settings()["float32, Adam, schedule, averages"]
	strike := func(at int) (context.Context, keras.Callback) {
		ctx, cancel := context.WithCancel(background)
		return ctx, keras.Callback{BatchEnd: func(context.Context, *keras.Run) error {
			if at--; at == 0 {
				cancel()
			}
			return nil
		}}
	}
	ctx, c := strike(7)
	_, err := s.runUntil(ctx, t, nil, 0, c)
	wantError(t, err, "Fit: interrupted after step 2 of epoch 2: context canceled")
	ctx, c = strike(7)
	_, err = s.runUntil(ctx, t, &Directory{Path: t.TempDir()}, 0, c)
	wantError(t, err, "Fit: interrupted after step 2 of epoch 2, which is saved: context canceled")
	ctx, c = strike(2)
	full := &failing{err: errors.New("no space left on device")}
	_, err = s.runUntil(ctx, t, full, 0, c)
	var stop *keras.Interrupted
	if !errors.Is(err, full.err) || !errors.As(err, &stop) || stop.Saved || stop.Step != 2 {
		t.Errorf("got %v, want both errors and nothing saved", err)
	}
	if full.ctx == nil || full.ctx.Err() != nil {
		t.Error("the state was to be saved with the context that has ended")
	}
}

// failing is a Checkpointer that keeps nothing.
type failing struct {
	err error
	ctx context.Context
}

func (f *failing) Load(context.Context) (*keras.State, error) { return nil, nil }
func (f *failing) Save(ctx context.Context, s *keras.State) error {
	f.ctx = ctx
	return fmt.Errorf("%d: %w", s.Epoch, f.err)
}
