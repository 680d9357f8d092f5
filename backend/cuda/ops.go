//go:build cuda && linux && amd64

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/ptx"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// builders make the calls of the operations that are not element-wise.
var builders map[op.Code]func(*builder, *ir.Value) error

func init() {
	builders = map[op.Code]func(*builder, *ir.Value) error{
		op.Iota:          (*builder).iota,
		op.RandomUniform: (*builder).random,
		op.Sum:           (*builder).reduce,
		op.Mean:          (*builder).reduce,
		op.Prod:          (*builder).reduce,
		op.Max:           (*builder).reduce,
		op.Min:           (*builder).reduce,
		op.SumSquares:    (*builder).reduce,
		op.AllFinite:     (*builder).reduce,
		op.ArgMax:        (*builder).arg,
		op.ArgMin:        (*builder).arg,
		op.MatMul:        (*builder).contraction,
		op.Softmax:       (*builder).softmax,
		op.LogSoftmax:    (*builder).softmax,
		op.SoftmaxGrad:   (*builder).softmaxGrad,
		op.Normalize:     (*builder).normalize,
		op.NormalizeGrad: (*builder).normalizeGrad,
		op.Reshape:       (*builder).copy,
		op.Barrier:       (*builder).copy,
		op.Part:          (*builder).copy,
		op.Transpose:     (*builder).copy,
		op.BroadcastTo:   (*builder).copy,
		op.Slice:         (*builder).copy,
		op.Concat:        (*builder).concat,
		op.Pad:           (*builder).pad,
		op.Gather:        (*builder).gather,
		op.TakeAlong:     (*builder).along,
		op.PutAlong:      (*builder).along,
		op.ScatterAdd:    (*builder).scatter,
		op.PutRows:       (*builder).putRows,
		op.Unique:        (*builder).unique,

		op.Conv:           (*builder).contraction,
		op.ConvInputGrad:  (*builder).contraction,
		op.ConvKernelGrad: (*builder).contraction,
		op.MaxPool:        (*builder).pool,
		op.MaxPoolGrad:    (*builder).pool,
		op.MaxPoolTake:    (*builder).pool,
		op.AvgPool:        (*builder).pool,
		op.AvgPoolGrad:    (*builder).pool,
	}
}

func floatBits(x float64) uint64 { return math.Float64bits(x) }

// dims is a box with the strides of several operands, neighbouring axes that
// all operands go through alike taken together and sizes of 1 left out.
type dims struct {
	sizes   []int
	strides [][]int // of each operand
}

func collapse(sizes []int, strides ...[]int) dims {
	d := dims{strides: make([][]int, len(strides))}
	for i, n := range sizes {
		if n == 1 {
			continue
		}
		last := len(d.sizes) - 1
		joins := last >= 0
		for k, s := range strides {
			joins = joins && d.strides[k][last] == s[i]*n
		}
		if joins {
			d.sizes[last] *= n
			for k, s := range strides {
				d.strides[k][last] = s[i]
			}
			continue
		}
		d.sizes = append(d.sizes, n)
		for k, s := range strides {
			d.strides[k] = append(d.strides[k], s[i])
		}
	}
	return d
}

// rowMajor is the strides of a dense array.
func rowMajor(shape []int) []int {
	s, n := make([]int, len(shape)), 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

// broadcast is the strides of an operand of one shape that is repeated to
// another one.
func broadcast(from, to op.Shape) []int {
	s := make([]int, len(to))
	dense := rowMajor(from)
	for i := range from {
		if from[i] != 1 {
			s[len(to)-len(from)+i] = dense[i]
		}
	}
	return s
}

// elementwise makes a chain of an operation or of a Fused value.
func (b *builder) elementwise(v *ir.Value) error {
	if v.Type.Shape.Size() == 0 {
		return nil
	}
	body := v.Attr.Body
	if v.Op != op.Fused {
		in := op.Instr{Op: v.Op, DType: v.Type.DType}
		body = &op.Body{}
		for i, a := range v.Args {
			body.Inputs = append(body.Inputs, a.Type.DType)
			in.Args[i] = int32(i)
		}
		body.Code = []op.Instr{in}
	}
	b.chain(v, body, v.Args)
	return nil
}

// chain makes a kernel of what body computes of operands, whose result is v.
func (b *builder) chain(v *ir.Value, body *op.Body, operands []*ir.Value) {
	var strides [][]int
	args := make([]any, 0, len(operands)+2)
	for _, a := range operands {
		strides = append(strides, broadcast(a.Type.Shape, v.Type.Shape))
		args = append(args, a)
	}
	results := []int{len(body.Code) - 1}
	args = append(args, v)
	for i, x := range body.Extra {
		results = append(results, int(x)-len(body.Inputs))
		args = append(args, b.extra(v, i))
	}
	d := collapse(v.Type.Shape, append(strides, rowMajor(v.Type.Shape))...)
	c := ptx.Chain{
		Name: fmt.Sprintf("chain_%d", len(b.chains)), Dims: d.sizes, Strides: d.strides[:len(operands)],
		Body: body, Results: results, Gated: b.pos[v] >= b.p.graph.Commit, Aligned: true,
	}
	for _, a := range args {
		x := a.(*ir.Value)
		c.Aligned = c.Aligned && b.alignment(x)%min(16, ptx.PerThread*x.Type.DType.Size()) == 0
	}
	if c.Gated {
		args = append(args, faultWord{})
	}
	b.chains = append(b.chains, c)
	b.call(v, c.Name, [3]int{ptx.Blocks(v.Type.Shape.Size()), 1, 1}, [3]int{ptx.Threads, 1, 1}, args...)
	b.pending[len(b.pending)-1].chain = true
}

// extra finds the value of an extra result.
func (b *builder) extra(v *ir.Value, index int) *ir.Value {
	for _, u := range b.p.graph.Values[b.pos[v]+1:] {
		if u.Op == op.Extra && u.Args[0] == v && u.Attr.Index == index {
			return u
		}
	}
	panic("cuda: a Fused value without one of its extra results") // ir.Verify checks it
}

func (b *builder) iota(v *ir.Value) error {
	s := v.Type.Shape
	b.each(v, "iota", s.Size(), v, int(v.Type.DType), s.Size(), s[len(s)-1])
	return nil
}

func (b *builder) random(v *ir.Value) error {
	n := v.Type.Shape.Size()
	b.each(v, "random_uniform", (n+3)/4, v, v.Args[0], n, v.Attr.Stream)
	return nil
}

// Numbers of the reductions in reduce.cu.
const (
	sum = iota
	mean
	prod
	maximum
	minimum
	sumSquares
	allFinite
)

var reductions = map[op.Code]int{
	op.Sum: sum, op.Mean: mean, op.Prod: prod, op.Max: maximum, op.Min: minimum, op.SumSquares: sumSquares, op.AllFinite: allFinite,
}

// wide is the type that a kernel computes a type in.
func wide(t dtype.DType) dtype.DType {
	switch t {
	case dtype.Float16, dtype.BFloat16, dtype.Float32:
		return dtype.Float32
	case dtype.Float64:
		return dtype.Float64
	}
	return dtype.Int64
}

// box is the parameters of a Box: up to four sizes, of which the first is not
// needed, and strides.
func box(v *ir.Value, sizes, strides []int) ([]any, error) {
	if len(sizes) > 4 {
		return nil, fmt.Errorf("cuda: layer %s: %v over %d separate groups of axes, want at most 4", v.Path, v.Op, len(sizes))
	}
	n, s := []int{1, 1, 1, 1}, []int{0, 0, 0, 0}
	copy(n[4-len(sizes):], sizes)
	copy(s[4-len(sizes):], strides)
	return []any{n[1], n[2], n[3], s[0], s[1], s[2], s[3]}, nil
}

func (b *builder) reduce(v *ir.Value) error {
	x, how := v.Args[0], reductions[v.Op]
	axes := v.Attr.Axes
	if how == sumSquares || how == allFinite {
		axes = nil
		for i := range x.Type.Shape {
			axes = append(axes, i)
		}
	}
	var kept, folded, keptStrides, foldedStrides []int
	dense := rowMajor(x.Type.Shape)
	for i, n := range x.Type.Shape {
		if slices.Contains(axes, i) {
			folded, foldedStrides = append(folded, n), append(foldedStrides, dense[i])
		} else {
			kept, keptStrides = append(kept, n), append(keptStrides, dense[i])
		}
	}
	k, f := collapse(kept, keptStrides), collapse(folded, foldedStrides)
	outputs, n := op.Shape(kept).Size(), op.Shape(folded).Size()
	if outputs == 0 {
		return nil
	}
	keptBox, err := box(v, k.sizes, k.strides[0])
	if err != nil {
		return err
	}
	foldedBox, err := box(v, f.sizes, f.strides[0])
	if err != nil {
		return err
	}
	// A thread for each output where neighbours lie together, else a block.
	last := len(k.sizes) - 1
	byThread := n <= 32 || last >= 0 && k.strides[0][last] == 1 && k.sizes[last] >= 32
	parts := max(1, min(512/max(outputs, 1), n/2048))
	if byThread {
		parts = max(1, min(512*256/outputs, n/64))
	}
	per := max(1, (n+parts-1)/parts)
	parts = max(1, (n+per-1)/per)
	divisor := float64(n)
	if n == 0 {
		divisor = math.NaN()
	}
	if n == 0 && (how == maximum || how == minimum) {
		b.fill(v, ofNothing(v.Type.DType, how == minimum))
		return nil
	}
	to, target, first := int(v.Type.DType), any(v), how
	acc, kernel := wide(x.Type.DType), x.Type.DType.String()
	if v.Type.DType == dtype.Float64 && acc == dtype.Float32 {
		acc, kernel = dtype.Float64, kernel+"_wide"
	}
	if parts > 1 {
		to, target = int(acc), scratch(0)
		b.scratch = max(b.scratch, parts*outputs*acc.Size())
		if how == mean {
			first = sum
		}
	}
	b.reduction(v, byThread, kernel, outputs, parts, []any{x, target, to, first, n, per, divisor}, keptBox, foldedBox)
	if parts > 1 {
		second := how
		switch how {
		case sumSquares:
			second = sum
		case allFinite:
			second = minimum
		}
		keptBox, _ = box(v, []int{outputs}, []int{1})
		foldedBox, _ = box(v, []int{parts}, []int{outputs})
		byThread = outputs >= 32
		b.reduction(v, byThread, acc.String(), outputs, 1, []any{scratch(0), v, int(v.Type.DType), second, parts, parts, divisor}, keptBox, foldedBox)
	}
	return nil
}

// ofNothing is the smallest number of a type, the maximum of no elements, or
// the largest one.
func ofNothing(t dtype.DType, largest bool) float64 {
	switch {
	case t.IsFloat():
		return math.Inf(map[bool]int{false: -1, true: 1}[largest])
	case largest:
		return t.Max()
	case t == dtype.Int32 || t == dtype.Int64:
		return -t.Max() - 1
	}
	return 0
}

func (b *builder) reduction(v *ir.Value, byThread bool, from string, outputs, parts int, args, kept, folded []any) {
	if byThread {
		args = slices.Concat(args, []any{outputs}, kept, folded)
		b.call(v, "reduce_thread_"+from, [3]int{(outputs + 255) / 256, parts, 1}, [3]int{256, 1, 1}, args...)
		return
	}
	b.call(v, "reduce_block_"+from, [3]int{outputs, parts, 1}, [3]int{256, 1, 1}, slices.Concat(args, kept, folded)...)
}

// around cuts a shape at an axis: the elements before it, its size, and those
// behind it.
func around(s op.Shape, axis int) (outer, n, inner int) {
	return s[:axis].Size(), s[axis], s[axis+1:].Size()
}

func (b *builder) arg(v *ir.Value) error {
	x := v.Args[0]
	outer, n, inner := around(x.Type.Shape, v.Attr.Axes[0])
	smallest := 0
	if v.Op == op.ArgMin {
		smallest = 1
	}
	b.each(v, "arg_"+x.Type.DType.String(), outer*inner, x, v, smallest, outer, n, inner)
	return nil
}

// digits is the parameters DIGITS of move.cu.
func digits(v *ir.Value, d dims) ([]any, error) {
	const most = 8
	if len(d.sizes) > most {
		return nil, fmt.Errorf("cuda: layer %s: %v over %d axes, want at most %d", v.Path, v.Op, len(d.sizes), most)
	}
	args := make([]any, 2*most)
	for i := range most {
		args[i], args[most+i] = 1, 0
	}
	for i, n := range d.sizes {
		args[most-len(d.sizes)+i], args[2*most-len(d.sizes)+i] = n, d.strides[0][i]
	}
	return args, nil
}

// copy collects the elements of the argument in the order of the result.
func (b *builder) copy(v *ir.Value) error {
	x, shape := v.Args[0], v.Type.Shape
	dense := rowMajor(x.Type.Shape)
	strides, offset := rowMajor(shape), 0
	switch v.Op {
	case op.Part:
		offset = v.Attr.Start[0]
	case op.Transpose:
		for i, from := range v.Attr.Perm {
			strides[i] = dense[from]
		}
	case op.BroadcastTo:
		strides = broadcast(x.Type.Shape, shape)
	case op.Slice:
		for i := range shape {
			step := 1
			if v.Attr.Stride != nil {
				step = v.Attr.Stride[i]
			}
			strides[i] = dense[i] * step
			offset += dense[i] * v.Attr.Start[i]
		}
	}
	d, err := digits(v, collapse(shape, strides))
	if err != nil {
		return err
	}
	b.each(v, fmt.Sprint("collect_", v.Type.DType.Size()), shape.Size(), append([]any{v, x, shape.Size(), offset}, d...)...)
	return nil
}

// distribute puts the elements of x where a box in the result is that begins
// at an element.
func (b *builder) distribute(v, x *ir.Value, offset int) error {
	d, err := digits(v, collapse(x.Type.Shape, rowMajor(v.Type.Shape)))
	if err != nil {
		return err
	}
	b.each(v, fmt.Sprint("distribute_", v.Type.DType.Size()), x.Type.Shape.Size(), append([]any{v, x, x.Type.Shape.Size(), offset}, d...)...)
	return nil
}

func (b *builder) concat(v *ir.Value) error {
	at, stride := 0, rowMajor(v.Type.Shape)[v.Attr.Axes[0]]
	for _, x := range v.Args {
		if err := b.distribute(v, x, at*stride); err != nil {
			return err
		}
		at += x.Type.Shape[v.Attr.Axes[0]]
	}
	return nil
}

// fill sets all elements of v.
func (b *builder) fill(v *ir.Value, x float64) {
	var bits [8]byte
	size := v.Type.DType.Size()
	dtype.FromF64(bits[:size], []float64{x}, v.Type.DType)
	n := v.Type.Shape.Size()
	b.each(v, fmt.Sprint("fill_", size), n, v, n, binary.LittleEndian.Uint64(bits[:]))
}

func (b *builder) pad(v *ir.Value) error {
	b.fill(v, v.Attr.Value)
	offset := 0
	for i, s := range rowMajor(v.Type.Shape) {
		offset += s * v.Attr.Low[i]
	}
	return b.distribute(v, v.Args[0], offset)
}

func (b *builder) unique(v *ir.Value) error {
	idx := v.Args[0]
	n, is64 := idx.Type.Shape.Size(), wideIndex(idx)
	b.scratch = max(b.scratch, 8*n)
	b.each(v, "unique_firsts", n, scratch(0), idx, is64, n)
	b.each(v, "unique", n, v, int(v.Type.DType), scratch(0), idx, is64, n, v.Attr.N)
	return nil
}

func (b *builder) putRows(v *ir.Value) error {
	table, idx, rows := v.Args[0], v.Args[1], v.Args[2]
	if v.Slot != table.Slot {
		if err := b.copy(v); err != nil {
			return err
		}
	}
	n, width := idx.Type.Shape.Size(), v.Type.Shape[1:].Size()
	b.each(v, fmt.Sprint("put_rows_", v.Type.DType.Size()), n*width, v, rows, idx, wideIndex(idx), n, width, v.Type.Shape[0], faultWord{})
	return nil
}

// wideIndex is 1 for indices of 64 bits.
func wideIndex(idx *ir.Value) int { return idx.Type.DType.Size() / 8 }

// indexed is the parameters that kernels with indices share.
func (b *builder) indexed(v, x, idx *ir.Value, width, limit int) []any {
	p := b.p
	if p.number == 0 {
		p.device.numbered++
		p.number = p.device.numbered
		p.device.programs[p.number] = p
	}
	return []any{v, x, idx, wideIndex(idx), idx.Type.Shape.Size(), width, limit, faultWord{}, p.number<<valueBits | b.pos[v]}
}

func (b *builder) gather(v *ir.Value) error {
	x, idx := v.Args[0], v.Args[1]
	width := x.Type.Shape[1:].Size()
	b.each(v, fmt.Sprint("gather_", v.Type.DType.Size()), v.Type.Shape.Size(), b.indexed(v, x, idx, width, x.Type.Shape[0])...)
	return nil
}

func (b *builder) along(v *ir.Value) error {
	x, idx := v.Args[0], v.Args[1]
	if v.Op == op.TakeAlong {
		b.each(v, fmt.Sprint("take_along_", v.Type.DType.Size()), v.Type.Shape.Size(), b.indexed(v, x, idx, 1, x.Type.Shape[len(x.Type.Shape)-1])...)
	} else {
		b.each(v, fmt.Sprint("put_along_", v.Type.DType.Size()), v.Type.Shape.Size(), b.indexed(v, x, idx, 1, v.Attr.N)...)
	}
	return nil
}

func (b *builder) scatter(v *ir.Value) error {
	x, idx := v.Args[0], v.Args[1]
	b.fill(v, 0)
	width := v.Type.Shape[1:].Size()
	args := b.indexed(v, x, idx, width, v.Attr.N)
	b.each(v, "scatter_add_"+v.Type.DType.String(), x.Type.Shape.Size(), slices.Insert(args, 2, any(int(v.Type.DType)))...)
	return nil
}
