package keras

import (
	"errors"
	"fmt"
	"slices"
)

// Nest is how Keras groups the inputs or the outputs of a model: as one tensor, a list
// of nests, or a dict of nests. Models here have tuples of the same tensors in the same
// order; tensors of a dict are ordered by their keys. Package saving reads nests from
// files and writes them again.
type Nest struct {
	Parts []*Nest  // of a list or dict; nil for a tensor
	Keys  []string // of a dict, sorted: one for each part; nil for a list
}

// Tensors counts the tensors of n.
func (n *Nest) Tensors() (count int) {
	if n.Parts == nil {
		return 1
	}
	for _, p := range n.Parts {
		count += p.Tensors()
	}
	return count
}

// listOf is the nest that n tensors have by default.
func listOf(n int) *Nest {
	if n == 1 {
		return &Nest{}
	}
	l := &Nest{}
	for range n {
		l.Parts = append(l.Parts, &Nest{})
	}
	return l
}

// SetNests sets how Keras groups the inputs and outputs of the model, which must be
// built. By default one tensor stands alone, and several are a list.
func (m *Model) SetNests(in, out *Nest) error {
	if !m.built {
		return m.errorf("SetNests: %w; call it on data or Build it first", ErrNotBuilt)
	}
	for _, c := range []struct {
		what string
		nest *Nest
		t    *Tensor
	}{{"inputs", in, m.in}, {"outputs", out, m.out}} {
		if err := c.nest.check(); err != nil {
			return m.errorf("SetNests: %s: %w", c.what, err)
		}
		if n := c.nest.Tensors(); n != c.t.Len() {
			return m.errorf("SetNests: got %d %s, want %d", n, c.what, c.t.Len())
		}
	}
	m.inNest, m.outNest = in, out
	return nil
}

func (n *Nest) check() error {
	if n == nil {
		return errors.New("got nil, want a nest")
	}
	if n.Keys != nil && (len(n.Keys) != len(n.Parts) || !slices.IsSorted(n.Keys)) {
		return fmt.Errorf("got keys %q of %d parts, want one for each, sorted", n.Keys, len(n.Parts))
	}
	for _, p := range n.Parts {
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

// Nests returns how Keras groups the inputs and outputs of a model; nil before it is
// built.
func (m *Model) Nests() (in, out *Nest) {
	if !m.built {
		return nil, nil
	}
	if m.inNest == nil {
		return listOf(m.in.Len()), listOf(m.out.Len())
	}
	return m.inNest, m.outNest
}
