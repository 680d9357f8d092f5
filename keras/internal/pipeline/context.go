package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"time"
)

// Ended is the error of a context that has ended, and nil before. errors.Is
// finds both ctx.Err() and context.Cause(ctx) in it.
func Ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != err {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// EndedBy reports whether err came from the end of ctx.
func EndedBy(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// WithCause returns err. Where it came from the end of ctx, errors.Is finds both
// ctx.Err() and context.Cause(ctx) in the result.
func WithCause(ctx context.Context, err error) error {
	if err == nil || !EndedBy(ctx, err) {
		return err
	}
	if !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// grace is how long a reader waits for a generator to return after the context
// has ended. Generators that look at the context return at once.
const grace = 100 * time.Millisecond

// Interruptible is Generated for functions of the program, which may block and
// not look at the context. When the context ends the reader goes on without the
// generator: it gets the context's error as the last element. The goroutine of
// the generator ends when the generator returns, or yields.
func Interruptible[T any](open func(ctx context.Context, epoch int) iter.Seq2[T, error]) Opener[T] {
	return func(at Start, _ Hold) iter.Seq2[T, error] {
		in := func(yield func(T, error) bool) { open(at.Context, at.Epoch)(yield) }
		if at.Context.Done() == nil {
			return Past(in, at.Skip)
		}
		return Past(interruptible(at.Context, in), at.Skip)
	}
}

// interruptible runs a sequence in a goroutine of its own, in turns with the
// reader: never ahead of it.
func interruptible[T any](ctx context.Context, in iter.Seq2[T, error]) iter.Seq2[T, error] {
	type item struct {
		x   T
		err error
	}
	return func(yield func(T, error) bool) {
		if ctx.Err() != nil {
			Failure[T](Ended(ctx))(yield)
			return
		}
		items, more := make(chan item), make(chan struct{})
		left, ended := make(chan struct{}), make(chan struct{})
		var failure any // a panic of the generator, passed on to the reader
		exited := true  // by runtime.Goexit
		go func() {
			defer close(ended)
			defer func() {
				if failure = recover(); failure != nil {
					exited = false
				}
			}()
			in(func(x T, err error) bool {
				select {
				case items <- item{x, err}:
				case <-left:
					return false
				}
				select {
				case <-more:
					return true
				case <-left:
					return false
				}
			})
			exited = false
		}()
		abandoned := false
		leave := sync.OnceFunc(func() { close(left) })
		defer func() {
			leave()
			if abandoned {
				return
			}
			<-ended
			if failure != nil {
				panic(failure)
			}
			if exited {
				runtime.Goexit()
			}
		}()
		for {
			select {
			case it := <-items:
				if !yield(it.x, it.err) || it.err != nil {
					return
				}
				more <- struct{}{}
			case <-ended:
				return
			case <-ctx.Done():
				leave()
				timer := time.NewTimer(grace)
				defer timer.Stop()
				select {
				case <-ended:
				case <-timer.C:
					abandoned = true
				}
				Failure[T](Ended(ctx))(yield)
				return
			}
		}
	}
}
