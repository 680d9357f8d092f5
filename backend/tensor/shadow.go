package tensor

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// shadow is a value that is computed from variables and kept from run to run. Mostly it
// is a copy of one in a 16-bit type: the
// half-precision weights next to the master weights of Micikevicius et al., "Mixed
// Precision Training", 2018. Programs that cast the variable as it was at their start
// read the copy, and programs that assign the variable write both in the same pass over
// memory. Any other write of the variable makes the copy stale, and the next program
// that reads it updates it.
//
// A copy exists only for a variable and type that a Function casts, and programs do not
// keep it that compute layers again in their gradients: see trace.recast. Kernels into
// which a normalization is folded are the other kind: see capture.derive.
type shadow struct {
	of    *Variable   // which owns it
	from  []*Variable // that it is computed from: of alone for a copy
	typ   op.Type
	name  string
	graph *ir.Graph // that computes it; its inputs are from
	key   string    // of the graph; "" for a copy

	mu    sync.Mutex // programs that only read may run at a time
	made  []uint64   // the versions of the buffers of from that it was made from; 0: none
	store *storage
	make  driver.Program
	fresh *storage // of check
	in    []driver.Buffer
	now   []uint64
	out   [1]driver.Buffer
}

// shadow returns the copy of v in type d; recordings are made one at a time.
func (v *Variable) shadow(d dtype.DType) *shadow {
	for _, h := range v.shadows {
		if h.typ.DType == d {
			return h
		}
	}
	h := &shadow{of: v, from: []*Variable{v}, typ: op.Type{DType: d, Shape: v.typ.Shape}, name: fmt.Sprintf("%s (%v)", v.name, d), graph: ir.New(1)}
	p := h.graph.Add(op.Param, op.Attr{DType: v.typ.DType, Dims: v.typ.Shape}, v.typ, v.name)
	h.graph.Output(h.graph.Add(op.Cast, op.Attr{DType: d}, h.typ, h.name, p), -1)
	v.shadows = append(v.shadows, h)
	return h
}

// path names h where values are named: "dense/kernel (float16)".
func (h *shadow) path() string { return h.name }

// mark says which version of the one variable h holds; 0 is none.
func (h *shadow) mark(version uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.made = append(h.made[:0], version)
}

// versions finds the buffers that h is computed from, and their versions.
func (h *shadow) versions(ctx context.Context) (d driver.Device, err error) {
	h.in, h.now = h.in[:0], h.now[:0]
	for _, v := range h.from {
		s, err := v.ensure(ctx)
		if err != nil {
			return nil, err
		}
		h.in, h.now, d = append(h.in, s.buf), append(h.now, s.buf.Version()), s.device
	}
	return d, nil
}

// current reports whether the elements of h were made from the buffers that versions found.
func (h *shadow) current() bool {
	return slices.Equal(h.made, h.now) && !slices.Contains(h.now, 0)
}

// ensure returns the elements of h; if read is set, they are computed from the variables'
// current values.
func (h *shadow) ensure(ctx context.Context, read bool) (*storage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, err := h.versions(ctx)
	if err != nil {
		return nil, err
	}
	if h.store == nil {
		if h.store, err = allocate(h.typ.Bytes()); err != nil {
			return nil, fmt.Errorf("variable %s: %w", h.path(), err)
		}
	}
	if read && !h.current() {
		if err := h.compute(d, h.store); err != nil {
			return nil, fmt.Errorf("variable %s: %w", h.path(), err)
		}
		h.made = append(h.made[:0], h.now...)
	}
	return h.store, nil
}

// kept returns the elements of a copy that is current, nil for another one.
func (h *shadow) kept() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.versions(context.Background()); err != nil || h.store == nil || !h.current() {
		return nil, err
	}
	return host(h.store.buf, h.typ.Bytes())
}

// check reports a copy that passes for current and is not what is computed anew.
func (h *shadow) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, err := h.versions(context.Background())
	if err != nil {
		return err
	}
	if h.store == nil || !h.current() {
		return nil
	}
	if h.fresh == nil {
		if h.fresh, err = allocate(h.typ.Bytes()); err != nil {
			return err
		}
	}
	if err := h.compute(d, h.fresh); err != nil {
		return err
	}
	got, err := host(h.store.buf, h.typ.Bytes())
	if err != nil {
		return err
	}
	want, err := host(h.fresh.buf, h.typ.Bytes())
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("variable %s: the copy that is kept differs from the one computed anew, and the versions %v that it was made from are the variables'", h.path(), h.made)
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

// compute computes h from the buffers that versions found, on their device as any
// program would.
func (h *shadow) compute(d driver.Device, to *storage) error {
	if h.make == nil {
		program, _, err := backend.Compile(context.Background(), d, h.graph, ir.Options{})
		if err != nil {
			return err
		}
		h.make, h.graph = program, nil
	}
	h.out[0] = to.buf
	return h.make.Run(context.Background(), h.in, h.out[:])
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
