package tensor

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Pool makes tensors whose memory it reuses: a data pipeline fills one batch after the
// other without garbage. Memory comes back in two steps, so that no tensor changes
// while its reader may still read it:
//
//   - The reader calls Release (or runs Func.Each, which does) when it needs the tensor
//     no more.
//   - The pipeline calls BeginTurn before it passes an element to the reader, and EndTurn
//     when the reader requests the next one. Memory released by then goes back to the
//     pool; all other memory belongs to its tensor for good, and the garbage collector
//     frees it.
//
// Every Get makes a new Tensor, so a reader that keeps a tensor keeps its
// elements. Reading a tensor after its memory went back is an error.
//
// The zero value is an empty pool. Its methods may be called from several
// goroutines.
type Pool struct {
	mu   sync.Mutex
	idle []storage // memory without a lease, the one that came last at the end
}

// mostIdle bounds the memory that waits: of batches of ever new sizes, most
// would wait for ever.
const mostIdle = 16

// lease says whose the memory of a pooled tensor is.
type lease struct {
	pool  *Pool
	state atomic.Int32
	turns atomic.Int32 // readers that it was handed to, one by the other
}

const (
	leased   = iota // the reader's, in its turn
	released        // the same, but the reader has called Release
	owned           // the tensor's for good
	returned        // the pool's
)

// errReturned is the error of reading a tensor whose memory went back.
var errReturned = errors.New("the memory of this batch was handed back to its dataset and holds other samples now: " +
	"Fit, Evaluate, PredictDataset, Adapt and Func.Each hand back what they have run on, as Release does; keep a Clone instead")

// pooled is a tensor with its storage, in one allocation.
type pooled struct {
	tensor  Tensor
	storage storage
	lease   lease
}

// Get returns a tensor with undefined elements, to be filled with Overwrite. It
// keeps t.Shape.
func (p *Pool) Get(t op.Type) (*Tensor, error) {
	x := &pooled{}
	var ok bool
	if x.storage, ok = p.take(t.Bytes()); !ok {
		s, err := allocate(t.Bytes())
		if err != nil {
			return nil, err
		}
		x.storage = *s
	}
	x.lease.pool = p
	x.storage.lease = &x.lease
	x.tensor = Tensor{op: op.Param, typ: t, data: &x.storage, seq: sequence.Add(1), argument: -1}
	return &x.tensor, nil
}

func (p *Pool) take(bytes int) (s storage, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.idle {
		if s.buf.Bytes() == bytes {
			p.idle = slices.Delete(p.idle, i, i+1)
			return s, true
		}
	}
	return s, false
}

// give takes memory back. If there is too much, it replaces the memory that has waited
// longest.
func (p *Pool) give(s *storage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == mostIdle {
		p.idle[0].buf.Free()
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, storage{buf: s.buf, device: s.device})
}

// BeginTurn marks tensors of a Pool, alone or in tuples, as passed to a reader, which
// may pass them on. It ignores nil and tensors of no Pool.
func BeginTurn(ts ...*Tensor) { eachLease(ts, func(s *storage) { s.lease.turns.Add(1) }) }

// EndTurn tells tensors, after BeginTurn, that their reader has asked for the
// next element: with the last one memory that was released goes back, other
// memory stays with its tensor for good.
func EndTurn(ts ...*Tensor) {
	eachLease(ts, func(s *storage) {
		l := s.lease
		if l.turns.Add(-1) > 0 {
			return
		}
		switch {
		case l.state.CompareAndSwap(leased, owned):
		case l.state.CompareAndSwap(released, returned):
			l.pool.give(s)
		}
	})
}

// HandBack is Release for tensors of a Pool only: results of Functions are kept.
func HandBack(ts ...*Tensor) { eachLease(ts, (*storage).release) }

func eachLease(ts []*Tensor, f func(*storage)) {
	for _, t := range ts {
		switch {
		case t == nil:
		case t.parts != nil:
			eachLease(t.parts, f)
		case t.data != nil && t.data.lease != nil:
			f(t.data)
		}
	}
}

// release does nothing outside the turn of a reader: whoever still has the
// tensor then has kept it.
func (s *storage) release() {
	if s.lease != nil && s.lease.turns.Load() > 0 {
		s.lease.state.CompareAndSwap(leased, released)
	}
}

// keep gives the memory to its tensor for good.
func (s *storage) keep() {
	if s.lease != nil && !s.lease.state.CompareAndSwap(leased, owned) {
		s.lease.state.CompareAndSwap(released, owned)
	}
}

// held returns an error when the memory went back to its pool.
func (s *storage) held() error {
	if s.lease != nil && s.lease.state.Load() == returned {
		return errReturned
	}
	return nil
}

// Clone computes t if needed and returns a copy with its own memory, which no Release
// affects. The copy of a tuple is a tuple.
func (t *Tensor) Clone() (*Tensor, error) {
	if t.parts != nil {
		parts := make([]*Tensor, len(t.parts))
		for i, p := range t.parts {
			var err error
			if parts[i], err = p.Clone(); err != nil {
				return nil, err
			}
		}
		return Tuple(parts...), nil
	}
	if err := t.readable(); err != nil {
		return nil, err
	}
	s, err := t.data.copy(t.typ.Bytes())
	if err != nil {
		return nil, err
	}
	return fromStorage(t.typ, s), nil
}
