package tensor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// domain is a set of variables that are read and written together: variables that plans
// have in common, such as the weights of a model and the slots of its optimizer. A run
// that assigns variables holds the domain exclusively; other runs and readers share it.
// So a reader of weights during training sees them as they are between two steps.
//
// Compiling a plan unites its variables' domains (union-find), so that a run takes one
// lock for any number of variables. Unrelated trainings do not wait for each other.
type domain struct {
	mu     sync.RWMutex
	parent atomic.Pointer[domain] // the domain that it became a part of, or nil
	seq    uint64                 // locks are taken in this order
}

// domain returns the domain of v, after unions.
func (v *Variable) domain() *domain {
	d := v.in.Load()
	if d == nil {
		if d = (&domain{seq: sequence.Add(1)}); !v.in.CompareAndSwap(nil, d) {
			d = v.in.Load()
		}
	}
	return d.root()
}

func (d *domain) root() *domain {
	for {
		p := d.parent.Load()
		if p == nil {
			return d
		}
		d = p
	}
}

// lock takes the domain that d is part of, shared or alone, and returns it.
func (d *domain) lock(alone bool) *domain {
	for {
		d = d.root()
		if alone {
			d.mu.Lock()
		} else {
			d.mu.RLock()
		}
		if d.parent.Load() == nil {
			return d
		}
		d.unlock(alone) // it was united with another meanwhile
	}
}

func (d *domain) unlock(alone bool) {
	if alone {
		d.mu.Unlock()
	} else {
		d.mu.RUnlock()
	}
}

// rootsOf lists the domains of variables in the order of locking, each once.
func rootsOf(vs []*Variable) []*domain {
	var all []*domain
	for _, v := range vs {
		all = append(all, v.domain())
	}
	slices.SortFunc(all, func(a, b *domain) int { return cmp.Compare(a.seq, b.seq) })
	return slices.Compact(all)
}

// lockAll locks the domains of variables, shared or exclusively. unlock unlocks them.
func lockAll(vs []*Variable, alone bool) (unlock func()) {
	for {
		all := rootsOf(vs)
		for _, d := range all {
			if alone {
				d.mu.Lock()
			} else {
				d.mu.RLock()
			}
		}
		unlock = func() {
			for _, d := range all {
				d.unlock(alone)
			}
		}
		if !slices.ContainsFunc(all, func(d *domain) bool { return d.parent.Load() != nil }) {
			return unlock
		}
		unlock()
	}
}

// unite unites the domains of variables and returns the union; nil if there are none.
func unite(vs []*Variable) *domain {
	if len(vs) == 0 {
		return nil
	}
	if all := rootsOf(vs); len(all) == 1 {
		return all[0]
	}
	defer lockAll(vs, true)()
	all := rootsOf(vs)
	for _, d := range all[1:] {
		d.parent.Store(all[0])
	}
	return all[0]
}

// BytesOf returns copies of the elements of several variables, little-endian, as
// they are at one time: between two steps of a training that goes on.
func BytesOf(vs ...*Variable) ([][]byte, error) {
	if current() != nil {
		for _, v := range vs {
			return nil, v.unreadable()
		}
	}
	for _, v := range vs {
		if _, err := v.ensure(context.Background()); err != nil {
			return nil, err
		}
	}
	defer lockAll(vs, false)()
	all := make([][]byte, len(vs))
	for i, v := range vs {
		all[i] = make([]byte, v.typ.Bytes())
		if err := v.store.Load().buf.CopyOut(all[i]); err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.name, err)
		}
	}
	return all, nil
}

// SetBytesOf writes the elements of several variables at one time: between two
// steps of a training that goes on. When sizes do not fit nothing changes.
func SetBytesOf(vs []*Variable, data [][]byte) error {
	if len(vs) != len(data) {
		return fmt.Errorf("elements of %d variables given, want %d", len(data), len(vs))
	}
	for i, v := range vs {
		switch {
		case len(data[i]) != v.typ.Bytes():
			return fmt.Errorf("variable %s: %d bytes given, %v takes %d", v.name, len(data[i]), v.typ, v.typ.Bytes())
		case current() != nil && v.leaf != nil:
			return fmt.Errorf("variable %s: Set inside a Function; use Assign", v.name)
		}
		v.mu.Lock()
		seen := v.value != nil || v.making != nil
		v.mu.Unlock()
		if seen {
			if _, err := v.ensure(context.Background()); err != nil {
				return err
			}
		}
	}
	defer lockAll(vs, true)()
	for i, v := range vs {
		if err := v.overwrite(data[i]); err != nil {
			return err
		}
	}
	return nil
}
