//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"
	"time"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/cublaslt"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// library is cublasLt for a device, where it was found.
type library struct {
	handle  *cublaslt.Handle
	missing error // why there is no handle
	// chosen is how each product is computed that a program has; nil: not by the
	// library.
	chosen map[cublaslt.Problem]*cublaslt.Matmul
}

func openLibrary(driver int) library {
	l := library{chosen: map[cublaslt.Problem]*cublaslt.Matmul{}}
	var lt *cublaslt.Library
	if lt, l.missing = cublaslt.Open(driver); l.missing != nil {
		return l
	}
	if l.handle, l.missing = lt.NewHandle(); l.missing != nil {
		l.handle = nil
	}
	return l
}

func (l *library) close() error {
	for _, m := range l.chosen {
		if m != nil {
			m.Close()
		}
	}
	if l.handle == nil {
		return nil
	}
	return l.handle.Close()
}

// workspaceBytes is what the library may work in: on Hopper its fast
// algorithms want more.
func (d *Device) workspaceBytes() int {
	if d.gpu.Major >= 9 {
		return 32 << 20
	}
	return 4 << 20
}

// product finds how the library computes a product best, or nil when it does
// not. The search is made once for each problem.
func (d *Device) product(p cublaslt.Problem) *cublaslt.Matmul {
	if d.lt.handle == nil {
		return nil
	}
	m, known := d.lt.chosen[p]
	if known {
		return m
	}
	m, err := d.lt.handle.Matmul(p, d.workspaceBytes())
	if err == nil && (p.Activation == cublaslt.Relu || d.settings.autotune && m.Choices() > 1) {
		if err = d.tune(m); err != nil {
			m.Close()
		}
	}
	if err != nil {
		m = nil // our own kernels have every product
		d.noteBroken(fmt.Sprintf("a product %+v", p))
	}
	d.lt.chosen[p] = m
	return m
}

// noteBroken keeps the error of a GPU that failed while the library's algorithms for
// something were tried: libraries turn it into one of their own, but everything that
// comes after it fails as well.
func (d *Device) noteBroken(what string) {
	if err := d.stream.Wait(); err != nil && d.broken == nil {
		d.broken = fmt.Errorf("cuda: the GPU failed while algorithms for %s were tried: %w", what, err)
	}
}

var errNoAlgorithm = errors.New("cuda: no algorithm of the library works")

// tune chooses the fastest algorithm of those that work, and that keep a NaN
// in an activation. It computes with memory of its own.
func (d *Device) tune(m *cublaslt.Matmul) (err error) {
	a, b, out := m.Bytes()
	at := [...]int{0, aligned(a), aligned(a) + aligned(b)}
	bias := at[2] + aligned(out)
	other := max(4, m.N*m.Out.Size()) // a scale lies there, or a matrix that is added
	if m.Adds {
		other = out
	}
	workspace := bias + aligned(other)
	memory, err := api.Alloc(workspace + d.workspaceBytes())
	if errors.Is(err, api.ErrOutOfMemory) && m.Activation == cublaslt.NoActivation {
		return nil // the first choice it is
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.Release(memory)) }()
	run := func() error {
		base := uint64(memory)
		return m.Run(d.stream.Handle(), base+uint64(at[0]), base+uint64(at[1]), base+uint64(bias), base+uint64(bias), base+uint64(at[2]), base+uint64(workspace))
	}
	choose := func(i int) error {
		m.Choose(i)
		return nil
	}
	return d.fastest(m.Choices(), choose, memory, workspace, run, func() (bool, error) {
		if m.Activation != cublaslt.Relu {
			return true, nil
		}
		return d.keepsNaN(memory, workspace, memory+api.Ptr(at[2]), m.Out, run)
	})
}

// fastest chooses the algorithm that runs fastest, or without measuring the
// first one, of those that run and that are right. The operands lie in so many
// bytes of memory.
func (d *Device) fastest(choices int, choose func(int) error, memory api.Ptr, bytes int, run func() error, right func() (bool, error)) error {
	const ordinary = 0x2d // in every byte, a number of all float types
	best, least := -1, time.Duration(0)
	for i := range choices {
		if err := choose(i); err != nil {
			return err
		}
		if ok, err := right(); err != nil {
			return err
		} else if !ok {
			continue
		}
		if err := d.stream.Fill(memory, ordinary, bytes); err != nil {
			return err
		}
		if run() != nil { // also loads the code
			continue
		}
		if err := d.stream.Wait(); err != nil || !d.settings.autotune {
			return err
		}
		const repeats = 5
		begin := time.Now()
		for range repeats {
			if err := run(); err != nil {
				return err
			}
		}
		if err := d.stream.Wait(); err != nil {
			return err
		}
		if t := time.Since(begin); best < 0 || t < least {
			best, least = i, t
		}
	}
	if best < 0 {
		return errNoAlgorithm
	}
	return choose(best)
}

// keepsNaN reports whether what run computes of NaNs, in so many bytes of
// memory, is NaN. An algorithm that does not run at all keeps none.
func (d *Device) keepsNaN(memory api.Ptr, bytes int, out api.Ptr, t dtype.DType, run func() error) (bool, error) {
	const nan = 0xff // in every byte, a NaN of all float types
	if err := d.stream.Fill(memory, nan, bytes); err != nil {
		return false, err
	}
	if run() != nil {
		return false, nil
	}
	first := make([]byte, t.Size())
	if err := d.stream.CopyOut(first, out); err != nil {
		return false, err
	}
	if err := d.stream.Wait(); err != nil {
		return false, err
	}
	var x [1]float64
	dtype.ToF64(x[:], first, t)
	return x[0] != x[0], nil
}

// problem is what the library is asked for a product, and whether it has
// products of its kind.
func (b *builder) problem(v *ir.Value, g product) (cublaslt.Problem, bool) {
	p := cublaslt.Problem{
		M: g.m, N: g.n, K: g.k, TransA: g.transA, TransB: g.transB, In: v.Args[0].Type.DType, Out: v.Type.DType,
		Batch: 1, Align: [3]int{b.alignment(v.Args[0]), b.alignment(v.Args[1]), b.alignment(v)},
	}
	p.TF32 = p.In == dtype.Float32 && b.p.device.tf32()
	if len(g.batch.sizes) == 1 {
		p.Batch, p.StrideA, p.StrideB = g.batch.sizes[0], g.batch.strides[0][0], g.batch.strides[1][0]
	}
	return p, g.k > 0 && len(g.batch.sizes) <= 1 && cublaslt.Supports(p.In, p.Out)
}

// libraryProduct makes v a call of the library, if it has one that does all
// that follows the product, and reports whether it did. Where it has only the
// product itself, alone is true.
func (b *builder) libraryProduct(v *ir.Value, g product, f following) (done, alone bool) {
	d := b.p.device
	p, ok := b.problem(v, g)
	if !ok {
		return false, false
	}
	if q, ok := b.paddedProblem(p); ok {
		if m := d.productWith(q, f); m != nil {
			b.paddedProduct(v, p, q, m, f)
			return true, false
		}
		if f != (following{}) && d.product(q) != nil {
			return false, true
		}
	}
	m := d.productWith(p, f)
	if m == nil {
		return false, f != (following{}) && d.product(p) != nil
	}
	b.libraryCall(v, m, v.Args[0], v.Args[1], f.parameter(), uint64(0), v)
	return true, false
}

// addedProduct makes v, a product to which a matrix is added, a call of the library, if it
// has one, and reports whether it did.
func (b *builder) addedProduct(v *ir.Value) bool {
	body := v.Attr.Body
	if v.Op != op.MatMul || len(body.Code) != 1 || len(body.Inputs) != 2 || body.Code[0].Op != op.Add || body.Code[0].Args[0]+body.Code[0].Args[1] != 1 || v.Type.Shape.Size() == 0 {
		return false
	}
	c := v.Args[len(v.Args)-1]
	if _, eight := b.eight[v]; eight || c.Type.DType != v.Type.DType || !c.Type.Shape.Equal(v.Type.Shape) || v.Attr.DType != v.Type.DType || v.Type.DType.Is16() && !b.p.device.settings.epilogue {
		return false
	}
	p, ok := b.problem(v, productOf(v))
	if _, pads := b.paddedProblem(p); !ok || pads || b.meet(c, v) && c.Slot != v.Slot {
		return false
	}
	p.Adds, p.Align[2] = true, min(p.Align[2], b.alignment(c))
	m := b.p.device.product(p)
	if m != nil {
		b.libraryCall(v, m, v.Args[0], v.Args[1], uint64(0), c, v)
	}
	return m != nil
}

// productWith is product of a problem with what follows it.
func (d *Device) productWith(p cublaslt.Problem, f following) *cublaslt.Matmul {
	if p.Out.Is16() && f.bias != nil && !d.settings.epilogue {
		return nil
	}
	if f.relu {
		p.Activation = cublaslt.Relu
	}
	p.Bias = f.bias != nil
	return d.product(p)
}

// libraryCall calls the library with parameters that are addresses.
func (b *builder) libraryCall(v *ir.Value, m *cublaslt.Matmul, x, y, bias, scale, out any) {
	b.scratch = max(b.scratch, b.reserved+m.Workspace())
	b.call(v, "cublasLtMatmul", [3]int{}, [3]int{}, x, y, bias, scale, out, scratch(b.reserved))
	b.pending[len(b.pending)-1].product = m
}

// following is what calls can do to a product.
type following struct {
	bias *ir.Value // [n], or nil
	relu bool
}

// parameter is the address of the bias, or 0.
func (f following) parameter() any {
	if f.bias == nil {
		return uint64(0)
	}
	return f.bias
}

// simple reports whether all that follows a contraction of n columns is a
// bias, ReLU, or both, in the type of its product.
func simple(v *ir.Value, n int) (following, bool) {
	var f following
	body, t := v.Attr.Body, v.Attr.DType
	last := int32(0)
	for i, in := range body.Code {
		if in.DType != t {
			return f, false
		}
		switch {
		case in.Op == op.Add && i == 0 && len(body.Inputs) == 2 && in.Args[0]+in.Args[1] == 1:
			f.bias = v.Args[len(v.Args)-1]
			if s := f.bias.Type.Shape; f.bias.Type.DType != t || len(s) == 0 || s[len(s)-1] != n || s.Size() != n {
				return f, false
			}
		case in.Op == op.Relu && i == len(body.Code)-1 && in.Args[0] == last:
			f.relu = true
		default:
			return f, false
		}
		last = int32(len(body.Inputs) + i)
	}
	return f, len(body.Inputs) == 1 || f.bias != nil
}

// alignment is the power of two, up to 256, that the address of a value is a
// multiple of.
func (b *builder) alignment(v *ir.Value) int {
	at := v.Slot.Offset // in a buffer too, of a section
	if t, ok := b.temporary[v]; ok {
		at = int(t)
	} else if v.Slot.Place == ir.Static {
		at = b.p.static[v]
	}
	n := 256
	for at%n != 0 {
		n /= 2
	}
	return n
}

// runner is how a library computes a product or a convolution: what its
// parameters after the stream are the addresses of, cublaslt.Matmul and
// cudnn.Convolution say.
type runner interface {
	Run(stream uintptr, a, b, bias, scale, out, workspace uint64) error
}

// productCall is a call of a library among those of kernels: its parameters
// are words[first:first+6].
type productCall struct {
	call, first int
	m           runner
}

// issue puts calls on the stream, and returns the number of the one that
// failed.
func (p *Program) issue(from, to int) (int, error) {
	s, products, exchanges := p.device.stream, p.products, p.exchangeCalls
	for {
		for len(products) > 0 && products[0].call < from {
			products = products[1:]
		}
		for len(exchanges) > 0 && exchanges[0].call < from {
			exchanges = exchanges[1:]
		}
		next := to
		if len(products) > 0 {
			next = min(next, products[0].call)
		}
		if len(exchanges) > 0 {
			next = min(next, exchanges[0].call)
		}
		if n, err := s.Launch(p.calls[from:next], p.words); err != nil {
			return from + n, err
		}
		if next == to {
			return to, nil
		}
		var err error
		if len(products) > 0 && products[0].call == next {
			w := p.words[products[0].first:]
			err = products[0].m.Run(s.Handle(), w[0], w[1], w[2], w[3], w[4], w[5])
		} else {
			err = p.exchange(exchanges[0])
		}
		if err != nil {
			return next, err
		}
		from = next + 1
	}
}
