//go:build cuda && linux && amd64

package cuda

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/cublaslt"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// A product of operands that hold numbers of 8-bit floats (op.RoundE4M3,
// RoundE5M2, in whatever type) is one of 8-bit floats on GPUs that multiply
// those. GPUs take operands along whose rows the terms lie, so some are wanted
// with rows for columns as well.
//
// A value that such products alone read is written as 8-bit floats by what
// computes it, into the first half of the place that the plan has for it in 16
// bits or more, and with rows for columns into the second half. Other operands
// are stored as 8-bit floats in working memory, for one product.

// eightProduct is such a product.
type eightProduct struct {
	problem cublaslt.Problem
	scale   any // an address of a float32 that the sums are multiplied by, or 0
}

// packing is how a value is stored in 8 bits: as a matrix, and turned.
type packing struct {
	format        cublaslt.Format
	turned        bool
	rows, columns int
}

// name is that of the format in package ptx.
func (p packing) name() string {
	if p.format == cublaslt.E5M2 {
		return "e5m2"
	}
	return "e4m3"
}

// behind is a parameter: an address so many bytes behind that of a value.
type behind struct {
	v     *ir.Value
	bytes int
}

// eightBits reports whether the GPU multiplies 8-bit floats, and the library
// has those products: on Hopper from CUDA 11.8 on, on Ada from CUDA 12.
func (d *Device) eightBits() bool {
	if d.lt.handle == nil || !d.settings.eight {
		return false
	}
	v := d.lt.handle.Library().Version
	return d.capability() >= 90 && v >= 111100 || d.capability() == 89 && v >= 120000
}

// eightFrom is how many bytes come from memory in the time that a product saves:
// less than the kernels that store its operands take to start.
const eightFrom = 8 << 20

// formatOf is the 8-bit floats that have all elements of v, or 0.
func formatOf(v *ir.Value) cublaslt.Format {
	switch v.Op {
	case op.Reshape, op.Barrier, op.Identity, op.Transpose:
		return formatOf(v.Args[0])
	case op.Cast:
		if v.Type.DType.IsFloat() && v.Args[0].Type.DType.IsFloat() {
			return formatOf(v.Args[0])
		}
	case op.RoundE4M3:
		return cublaslt.E4M3
	case op.RoundE5M2:
		return cublaslt.E5M2
	case op.ExtraOutput:
		if body := v.Args[0].Attr.Body; body != nil {
			return formatIn(body, body.ExtraOutputs[v.Attr.Index])
		}
	}
	if body := v.Attr.Body; body != nil && (v.Op == op.Fused || v.Op.Info().Epilogue) {
		return formatIn(body, int32(len(body.Inputs)+len(body.Code)-1))
	}
	return 0
}

// formatIn is formatOf of what a body computes.
func formatIn(body *op.Body, i int32) cublaslt.Format {
	typeOf := func(i int32) dtype.DType {
		if int(i) < len(body.Inputs) {
			return body.Inputs[i]
		}
		return body.Code[int(i)-len(body.Inputs)].DType
	}
	for int(i) >= len(body.Inputs) {
		in := body.Code[int(i)-len(body.Inputs)]
		switch {
		case in.Op == op.RoundE4M3:
			return cublaslt.E4M3
		case in.Op == op.RoundE5M2:
			return cublaslt.E5M2
		case in.Op != op.Cast && in.Op != op.Identity || !in.DType.IsFloat() || !typeOf(in.Args[0]).IsFloat():
			return 0
		}
		i = in.Args[0]
	}
	return 0
}

// rootOf is the value that was computed where v lies, element for element.
func rootOf(v *ir.Value) *ir.Value {
	for v.Op != op.Result && v.View() {
		v = v.Args[0]
	}
	return v
}

// matrixOf is operand i of a product as it is stored, and whether the product
// wants it turned.
func matrixOf(g product, i int) (rows, columns int, turned bool) {
	if i == 0 {
		rows, columns = stored(g.m, g.k, g.transA)
		return rows, columns, g.transA
	}
	rows, columns = stored(g.k, g.n, g.transB)
	return rows, columns, !g.transB
}

// findEight finds the products of 8-bit floats, and what is stored for them.
func (b *builder) findEight(g *ir.Graph) {
	b.eight, b.packed = map[*ir.Value]eightProduct{}, map[*ir.Value]packing{}
	if !b.p.device.eightBits() {
		return
	}
	for _, v := range g.Values {
		if v.Op == op.MatMul {
			if p, ok := b.eightProblem(v); ok {
				b.eight[v] = eightProduct{p, uint64(0)}
			}
		}
	}
	if len(b.eight) == 0 {
		return
	}
	alone := map[*ir.Value]bool{} // whether such products alone read a value
	for _, v := range g.Values {
		_, eight := b.eight[v]
		for i, a := range v.Args {
			if a = rootOf(a); a != rootOf(v) && v.Op != op.ExtraOutput {
				seen, known := alone[a]
				alone[a] = eight && i < 2 && (seen || !known)
			}
		}
	}
	clash := map[*ir.Value]bool{}
	for _, v := range g.Values {
		if _, ok := b.eight[v]; !ok {
			continue
		}
		for i, a := range v.Args[:2] {
			if a = rootOf(a); !alone[a] || !b.packable(a) {
				continue
			}
			rows, columns, turned := matrixOf(productOf(v), i)
			p, known := b.packed[a]
			clash[a] = clash[a] || known && p.turned && turned && (p.rows != rows || p.columns != columns)
			if turned || !known {
				p.rows, p.columns = rows, columns
			}
			p.format, p.turned = formatOf(a), p.turned || turned
			b.packed[a] = p
		}
	}
	for a := range clash {
		if clash[a] {
			delete(b.packed, a)
		}
	}
	b.p.packed = b.packed
}

// packable reports whether v may be stored in 8 bits by the chain that computes
// it: it lies over nothing that the chain reads.
func (b *builder) packable(v *ir.Value) bool {
	from := v
	if v.Op == op.ExtraOutput {
		from = v.Args[0]
	}
	chain := from.Op.Info().Class == op.Elementwise || from.Attr.Body != nil && from.Op.Info().Epilogue
	if v.Slot.Place != ir.Arena || !chain || formatOf(v) == 0 || v.Type.DType.Size() < 2 {
		return false
	}
	return !slices.ContainsFunc(from.Args, func(a *ir.Value) bool {
		return a.Slot.Place == ir.Arena && a.Slot.Offset < v.Slot.Offset+v.Type.Bytes() && v.Slot.Offset < a.Slot.Offset+a.Type.Bytes()
	})
}

// eightProblem is the problem of a product of 8-bit floats, if v is one, pays,
// and the library has it.
func (b *builder) eightProblem(v *ir.Value) (p cublaslt.Problem, ok bool) {
	d, g := b.p.device, productOf(v)
	x, y := v.Args[0], v.Args[1]
	const unit = 16
	if len(g.batch.sizes) > 0 || v.Type.Shape.Size() == 0 || g.k == 0 || g.m%unit != 0 || g.n%unit != 0 || g.k%unit != 0 {
		return p, false
	}
	p = cublaslt.Problem{
		M: g.m, N: g.n, K: g.k, TransB: true, In: dtype.Uint8, Out: v.Type.DType, Batch: 1,
		Eight: [2]cublaslt.Format{formatOf(x), formatOf(y)}, Align: [3]int{unit, unit, unit},
	}
	if v.Attr.Body != nil {
		p.Out = v.Attr.DType
	}
	if p.Eight[0] == 0 || p.Eight[1] == 0 || x.Type.DType == dtype.Float64 || min(b.alignment(x), b.alignment(y), b.alignment(v)) < unit {
		return p, false
	}
	// The forward pass does with fewer bits in its sums, which are of rounded
	// values; gradients do not.
	p.Fast = p.Eight[0] == cublaslt.E4M3 && p.Eight[1] == cublaslt.E4M3
	// Products of 8-bit floats take half of the time. A turned operand is read and
	// written once more; one that other operations read too is stored twice.
	saved := 2 * g.m * g.n * g.k / operationsPerByte / 2
	costs := 0
	for i := range 2 {
		rows, columns, turned := matrixOf(g, i)
		if costs += rows * columns; turned {
			costs += rows * columns
		}
	}
	if !d.settings.eightAll && (saved < eightFrom || saved < costs) {
		return p, false
	}
	const most = 64 * 65535 // rows of blocks
	return p, max(g.m, g.n, g.k) <= most && d.product(p) != nil
}

// eightValue makes the calls of a product of 8-bit floats with what follows it:
// the library multiplies by the scales of the operands, and rounds.
func (b *builder) eightValue(v *ir.Value, e eightProduct) error {
	if u, scale, ok := scaled(v); ok {
		q := e.problem
		q.Out, q.Scaled = u.Attr.DType, true
		if b.p.device.product(q) != nil {
			b.pos[u] = b.pos[v]
			if p, ok := b.packed[v]; ok {
				b.packed[u] = p
			}
			v, e = u, eightProduct{q, scale}
		}
	}
	b.current = &e
	defer func() { b.current = nil }()
	if v.Attr.Body != nil {
		return b.followed(v)
	}
	return b.contraction(v)
}

// eightMatmul makes the calls of b.current as v with what follows it, if the
// library has all of that.
func (b *builder) eightMatmul(v *ir.Value, f following) bool {
	p := b.current.problem
	if f.bias != nil && !p.Out.Is16() {
		return false
	}
	m := b.p.device.productWith(p, f)
	if m == nil {
		return false
	}
	g := productOf(v)
	x, y := b.eightOperand(v, g, 0), b.eightOperand(v, g, 1)
	b.libraryCall(v, m, x, y, f.parameter(), b.current.scale, v)
	return true
}

// eightOperand is the address of operand i in 8 bits with terms along rows.
func (b *builder) eightOperand(v *ir.Value, g product, i int) any {
	a := v.Args[i]
	rows, columns, turned := matrixOf(g, i)
	n := rows * columns
	if _, ok := b.packed[rootOf(a)]; ok {
		if turned {
			return behind{rootOf(a), n}
		}
		return rootOf(a)
	}
	to, e5m2 := b.hold(n), 0
	if b.current.problem.Eight[i] == cublaslt.E5M2 {
		e5m2 = 1
	}
	if turned {
		b.turnEight(v, a.Type.DType, a, to, rows, columns, e5m2)
	} else {
		b.each(v, "eight_"+a.Type.DType.String(), n/4, to, a, n, e5m2)
	}
	return to
}

// turnEight stores a matrix of a type in 8 bits with rows for columns.
func (b *builder) turnEight(v *ir.Value, t dtype.DType, from, to any, rows, columns, e5m2 int) {
	b.call(v, "eight_turned_"+t.String(), [3]int{(columns + 63) / 64, (rows + 63) / 64, 1}, [3]int{256, 1, 1}, to, from, rows, columns, e5m2)
}

// scaled is a product without the multiplication by a scalar, and the rounding,
// that come first of what follows it; scale is the scalar.
func scaled(v *ir.Value) (u *ir.Value, scale *ir.Value, ok bool) {
	body := v.Attr.Body
	if body == nil || len(body.ExtraOutputs) > 0 || body.Inputs[0] != dtype.Float32 {
		return nil, nil, false
	}
	inputs, own := len(body.Inputs), v.Op.Info().Args
	readers := make([]int, inputs+len(body.Code))
	for _, in := range body.Code {
		for _, a := range in.Args[:in.Op.Info().Args] {
			readers[a]++
		}
	}
	mul := slices.IndexFunc(body.Code, func(in op.Instr) bool {
		return in.Op == op.Mul && in.DType == dtype.Float32 && (in.Args[0] == 0) != (in.Args[1] == 0) && int(in.Args[0]+in.Args[1]) < inputs
	})
	if mul < 0 || readers[0] != 1 {
		return nil, nil, false
	}
	by := body.Code[mul].Args[0] + body.Code[mul].Args[1]
	scale = v.Args[own+int(by)-1]
	if scale.Type.DType != dtype.Float32 || scale.Type.Shape.Size() != 1 {
		return nil, nil, false
	}
	gone, product, t := []int{inputs + mul}, int32(inputs+mul), dtype.Float32
	if readers[product] == 1 {
		cast := slices.IndexFunc(body.Code, func(in op.Instr) bool { return in.Op == op.Cast && in.Args[0] == product })
		if cast >= 0 && body.Code[cast].DType.Is16() {
			gone, product, t = append(gone, inputs+cast), int32(inputs+cast), body.Code[cast].DType
		}
	}
	if readers[by] == 1 {
		gone = append(gone, int(by))
	}
	slices.Sort(gone)
	number := func(i int32) int32 { // in the body that is left
		if i == product {
			return 0
		}
		before, _ := slices.BinarySearch(gone, int(i))
		return i - int32(before)
	}
	rest := &op.Body{}
	u = &ir.Value{Op: v.Op, Type: v.Type, Attr: v.Attr, Path: v.Path, Slot: v.Slot, Args: slices.Clone(v.Args[:own])}
	for i, d := range body.Inputs {
		switch {
		case i == 0:
			rest.Inputs = append(rest.Inputs, t)
		case !slices.Contains(gone, i):
			rest.Inputs, u.Args = append(rest.Inputs, d), append(u.Args, v.Args[own+i-1])
		}
	}
	for i, in := range body.Code {
		if slices.Contains(gone, inputs+i) {
			continue
		}
		for k := range in.Op.Info().Args {
			in.Args[k] = number(in.Args[k])
		}
		rest.Code = append(rest.Code, in)
	}
	u.Attr.DType, u.Attr.Body = t, rest
	if len(rest.Code) == 0 {
		u.Attr.Body = nil
	}
	return u, scale, true
}

// unpack makes a type's elements of the 8-bit floats at the beginning of data.
func (p packing) unpack(data []byte, t dtype.DType) {
	x := make([]float64, len(data)/t.Size())
	for i, u := range data[:len(x)] {
		if p.format == cublaslt.E5M2 {
			dtype.ToF64(x[i:i+1], []byte{0, u}, dtype.Float16) // its upper half
			continue
		}
		switch e, m := int(u>>3&15), float64(u&7); {
		case u&127 == 127:
			x[i] = math.NaN()
		case e == 0:
			x[i] = math.Ldexp(m, -9)
		default:
			x[i] = math.Ldexp(8+m, e-10)
		}
		if u&128 != 0 {
			x[i] = -x[i]
		}
	}
	dtype.FromF64(data, x, t)
}
