package tensor

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// shadow is a copy of a variable in a 16-bit type, kept from run to run: the
// half-precision weights next to the master weights of Micikevicius et al., "Mixed
// Precision Training", 2018. Programs that cast the variable as it was at their start
// read the copy, and programs that assign the variable write both in the same pass over
// memory. Any other write of the variable makes the copy stale, and the next program
// that reads it updates it.
//
// A copy exists only for a variable and type that a Function casts, and programs do not
// keep it that compute layers again in their gradients: see trace.recast.
type shadow struct {
	of  *Variable
	typ op.Type

	// made is the version of the variable's buffer that the copy was made from;
	// 0 is no copy.
	made atomic.Uint64

	mu    sync.Mutex // programs that only read may run at a time
	store *storage
	cast  driver.Program // from the variable
	fresh *storage       // of check
	in    [1]driver.Buffer
	out   [1]driver.Buffer
}

// shadow returns the copy of v in type d; recordings are made one at a time.
func (v *Variable) shadow(d dtype.DType) *shadow {
	for _, h := range v.shadows {
		if h.typ.DType == d {
			return h
		}
	}
	h := &shadow{of: v, typ: op.Type{DType: d, Shape: v.typ.Shape}}
	v.shadows = append(v.shadows, h)
	return h
}

// path names h where values are named: "dense/kernel (float16)".
func (h *shadow) path() string { return fmt.Sprintf("%s (%v)", h.of.name, h.typ.DType) }

// ensure returns the elements of h; if read is set, they are the variable's current
// value.
func (h *shadow) ensure(ctx context.Context, read bool) (*storage, error) {
	from, err := h.of.ensure(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store == nil {
		if h.store, err = allocate(h.typ.Bytes()); err != nil {
			return nil, fmt.Errorf("variable %s: %w", h.path(), err)
		}
	}
	if now := from.buf.Version(); read && (now == 0 || h.made.Load() != now) {
		if err := h.castTo(h.store, from); err != nil {
			return nil, fmt.Errorf("variable %s: %w", h.path(), err)
		}
		h.made.Store(now)
	}
	return h.store, nil
}

// check reports a copy that passes for current and is not the variable rounded.
func (h *shadow) check() error {
	from, err := h.of.ensure(context.Background())
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store == nil || h.made.Load() == 0 || h.made.Load() != from.buf.Version() {
		return nil
	}
	if h.fresh == nil {
		if h.fresh, err = allocate(h.typ.Bytes()); err != nil {
			return err
		}
	}
	if err := h.castTo(h.fresh, from); err != nil {
		return err
	}
	got, err := host(h.store.buf, h.typ.Bytes())
	if err != nil {
		return err
	}
	want, err := host(h.fresh.buf, h.typ.Bytes())
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("variable %s: the copy that is kept differs from the variable cast anew, and the version %d that it was made from is the variable's", h.path(), h.made.Load())
	}
	return err
}

// checkShadows checks the copies that a run has read or written.
func (p *plan) checkShadows() error {
	check := func(h *shadow) error {
		if h == nil {
			return nil
		}
		if err := h.check(); err != nil {
			return fmt.Errorf("check: after %s: %w", p.graph.Describe(), err)
		}
		return nil
	}
	for i := range p.sources {
		if err := check(p.sources[i].shadow); err != nil {
			return err
		}
	}
	for i := range p.written {
		if err := check(p.written[i].shadow); err != nil {
			return err
		}
	}
	return nil
}

// castTo casts the variable, on its device as any program would.
func (h *shadow) castTo(to, from *storage) error {
	if h.cast == nil {
		g := ir.New(1)
		p := g.Add(op.Param, op.Attr{DType: h.of.typ.DType, Dims: h.of.typ.Shape}, h.of.typ, h.of.name)
		g.Output(g.Add(op.Cast, op.Attr{DType: h.typ.DType}, h.typ, h.path(), p), -1)
		program, _, err := backend.Compile(context.Background(), from.device, g, ir.Options{})
		if err != nil {
			return err
		}
		h.cast = program
	}
	h.in[0], h.out[0] = from.buf, to.buf
	return h.cast.Run(context.Background(), h.in[:], h.out[:])
}

// shadowOf returns the variable that t casts to 16 bits, as it is at the start of
// a recording, or nil.
func shadowOf(t *Tensor) *Variable {
	if t.op != op.Cast || !t.typ.DType.Is16() {
		return nil
	}
	a := t.args[0]
	for a.op == op.Barrier { // copies are there at all times
		a = a.args[0]
	}
	if a.variable == nil || a.typ.DType != dtype.Float32 && a.typ.DType != dtype.Float64 {
		return nil
	}
	return a.variable
}

// castAgain notes the variables that segments cast, see trace.recast.
func (tr *trace) castAgain(segments map[*segment]bool) {
	for s := range segments {
		for _, t := range s.tensors {
			if v := shadowOf(t); v != nil {
				if tr.recast == nil {
					tr.recast = map[*Variable]bool{}
				}
				tr.recast[v] = true
			}
		}
	}
}
