// Package enginetest is the conformance suite of distribution's engines. No
// compatibility promise: it is for tests of engines.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/distribution"
)

// Conformance makes every collective call of an engine, with lengths of 0, 1 and odd
// numbers of bytes, and returns what is wrong. All ranks call it. After it the engine is
// as before.
func Conformance(ctx context.Context, e distribution.Engine) error {
	rank, size := e.Rank(), e.Size()
	if rank < 0 || rank >= size {
		return fmt.Errorf("Rank %d of Size %d", rank, size)
	}
	if l, n := e.LocalRank(), e.LocalSize(); l < 0 || l >= n || n > size {
		return fmt.Errorf("LocalRank %d of LocalSize %d, with Size %d", l, n, size)
	}
	if e.Name() == "" {
		return errors.New("Name is empty")
	}
	for _, part := range []int{0, 1, 3, 64, 1000, 4096, 100_003} {
		if err := exchanges(ctx, e, part); err != nil {
			return fmt.Errorf("parts of %d bytes: %w", part, err)
		}
	}
	for i := range 50 { // calls one right after the other do not mix
		if err := exchanges(ctx, e, i%7); err != nil {
			return fmt.Errorf("call %d of many: %w", i, err)
		}
	}
	if s, ok := e.(distribution.Summer); ok {
		for _, n := range []int{0, 1, 1001} {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(rank*1000 + i)
			}
			if err := s.AllReduce(ctx, x); err != nil {
				return fmt.Errorf("AllReduce: %w", err)
			}
			for i, got := range x { // integers below 2²⁴: exact in any order
				if want := float32(size*i + 1000*size*(size-1)/2); got != want {
					return fmt.Errorf("AllReduce of %d elements: element %d is %v, want %v", n, i, got, want)
				}
			}
		}
	}
	return e.Barrier(ctx)
}

// element is byte i of what rank from sends to rank to.
func element(from, to, i int) byte { return byte(from*31 + to*17 + i*7 + i>>8) }

func exchanges(ctx context.Context, e distribution.Engine, part int) error {
	rank, size := e.Rank(), e.Size()
	send, recv, want := make([]byte, size*part), make([]byte, size*part), make([]byte, size*part)
	for r := range size {
		for i := range part {
			send[r*part+i] = element(rank, r, i)
			want[r*part+i] = element(r, rank, i)
		}
	}
	if err := e.AllToAll(ctx, send, recv); err != nil {
		return fmt.Errorf("AllToAll: %w", err)
	}
	if !bytes.Equal(recv, want) {
		return errors.New("AllToAll: wrong elements")
	}
	for r := range size {
		for i := range part {
			want[r*part+i] = element(r, 0, i)
		}
	}
	own := make([]byte, part)
	for i := range own {
		own[i] = element(rank, 0, i)
	}
	clear(recv)
	if err := e.AllGather(ctx, own, recv); err != nil {
		return fmt.Errorf("AllGather: %w", err)
	}
	if !bytes.Equal(recv, want) {
		return errors.New("AllGather: wrong elements")
	}
	for root := range size {
		b := make([]byte, part)
		for i := range b {
			b[i] = element(rank, root, i)
		}
		if err := e.Broadcast(ctx, b, root); err != nil {
			return fmt.Errorf("Broadcast: %w", err)
		}
		for i, x := range b {
			if x != element(root, root, i) {
				return fmt.Errorf("Broadcast from rank %d: wrong byte %d", root, i)
			}
		}
	}
	return e.Barrier(ctx)
}

// Run calls Conformance on engines that are ranks of one group in this process.
func Run(t *testing.T, engines []distribution.Engine) {
	t.Helper()
	errs := make(chan error)
	for _, e := range engines {
		go func() {
			err := Conformance(t.Context(), e)
			if err != nil {
				e.Abort(1, err)
			}
			errs <- err
		}()
	}
	for range engines {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
