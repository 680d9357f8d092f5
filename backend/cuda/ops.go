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
		op.Iota:             (*builder).iota,
		op.RandomUniform:    (*builder).random,
		op.Sum:              (*builder).reduce,
		op.Mean:             (*builder).reduce,
		op.Prod:             (*builder).reduce,
		op.Max:              (*builder).reduce,
		op.Min:              (*builder).reduce,
		op.SumSquares:       (*builder).reduce,
		op.AllFinite:        (*builder).reduce,
		op.ArgMax:           (*builder).arg,
		op.ArgMin:           (*builder).arg,
		op.MatMul:           (*builder).contraction,
		op.Softmax:          (*builder).softmax,
		op.LogSoftmax:       (*builder).softmax,
		op.SoftmaxGrad:      (*builder).softmaxGrad,
		op.LayerNorm:        (*builder).normalize,
		op.LayerNormGrad:    (*builder).normalizeGrad,
		op.Reshape:          (*builder).copy,
		op.Barrier:          (*builder).copy,
		op.Result:           (*builder).copy,
		op.Transpose:        (*builder).copy,
		op.BroadcastTo:      (*builder).copy,
		op.Slice:            (*builder).copy,
		op.Concat:           (*builder).concat,
		op.Pad:              (*builder).pad,
		op.Gather:           (*builder).gather,
		op.TakeAlongAxis:    (*builder).along,
		op.ScatterAlongAxis: (*builder).along,
		op.ScatterAdd:       (*builder).scatter,
		op.ScatterUpdate:    (*builder).scatterUpdate,
		op.Unique:           (*builder).unique,

		op.Conv:            (*builder).contraction,
		op.ConvInputGrad:   (*builder).contraction,
		op.ConvKernelGrad:  (*builder).contraction,
		op.MaxPool:         (*builder).pool,
		op.MaxPoolGrad:     (*builder).pool,
		op.MaxPoolGradGrad: (*builder).pool,
		op.AvgPool:         (*builder).pool,
		op.AvgPoolGrad:     (*builder).pool,

		op.Moments:         (*builder).moments,
		op.BatchNormReduce: (*builder).batchNormReduce,

		op.AttentionForward: (*builder).attention,
		op.AttentionGrad:    (*builder).attentionGrad,

		op.RNN:     (*builder).rnn,
		op.RNNGrad: (*builder).rnnGrad,
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
	c, args := b.chainOf(v, body, v.Args)
	b.update(v, c, args)
	return nil
}

// chain makes a kernel of what body computes of operands, whose result is v.
func (b *builder) chain(v *ir.Value, body *op.Body, operands []*ir.Value) {
	c, args := b.chainOf(v, body, operands)
	b.launch(v, c, args, v.Type.Shape.Size())
}

// chainOf is a chain with its parameters, but for the gate.
func (b *builder) chainOf(v *ir.Value, body *op.Body, operands []*ir.Value) (ptx.Chain, []any) {
	var strides [][]int
	args := make([]any, 0, len(operands)+2)
	for _, a := range operands {
		strides = append(strides, broadcast(a.Type.Shape, v.Type.Shape))
		args = append(args, a)
	}
	results := []int{len(body.Code) - 1}
	args = append(args, v)
	for i, x := range body.ExtraOutputs {
		results = append(results, int(x)-len(body.Inputs))
		args = append(args, b.extra(v, i))
	}
	d := collapse(v.Type.Shape, append(strides, rowMajor(v.Type.Shape))...)
	c := ptx.Chain{
		Dims: d.sizes, Strides: d.strides[:len(operands)],
		Body: body, Results: results, Predicated: b.pos[v] >= b.p.graph.Commit, Aligned: true,
	}
	for i, a := range args[len(operands):] {
		if p, ok := b.packed[a.(*ir.Value)]; ok {
			if c.Eight == nil {
				c.Eight = make([]string, len(results))
			}
			c.Eight[i] = p.name()
		}
	}
	for _, a := range args {
		x := a.(*ir.Value)
		c.Aligned = c.Aligned && b.alignment(x)%min(16, ptx.PerThread*x.Type.DType.Size()) == 0
	}
	return c, args
}

// launch makes the call of a chain on a box of n elements.
func (b *builder) launch(v *ir.Value, c ptx.Chain, args []any, n int) {
	blocks := ptx.Blocks(n)
	if c.Group != nil {
		blocks = c.Group.Blocks()
	}
	results := args[len(args)-len(c.Results):]
	if c.Predicated {
		args = append(args, faultWord{})
	}
	c.Name = fmt.Sprintf("chain_%d", len(b.chains))
	b.chains = append(b.chains, c)
	b.call(v, c.Name, [3]int{blocks, 1, 1}, [3]int{ptx.Threads, 1, 1}, args...)
	b.pending[len(b.pending)-1].chain = true
	if c.Eight == nil {
		return
	}
	for _, a := range results {
		a := a.(*ir.Value)
		if p := b.packed[a]; p.turned {
			b.turnEight(v, dtype.Uint8, a, behind{a, p.rows * p.columns}, p.rows, p.columns, 0)
		}
	}
}

// extra finds the value of an extra result.
func (b *builder) extra(v *ir.Value, index int) *ir.Value {
	for _, u := range b.p.graph.Values[b.pos[v]+1:] {
		if u.Op == op.ExtraOutput && u.Args[0] == v && u.Attr.Index == index {
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
	n, kernel, block := v.Type.Shape.Size(), "random_uniform", 4
	if v.Attr.Bits == 16 {
		kernel, block = "random_halves", 8
	}
	b.each(v, kernel, (n+block-1)/block, v, v.Args[0], n, v.Attr.Stream)
	return nil
}

// splitAt cuts a shape at an axis: the elements before it, its size, and those
// behind it.
func splitAt(s op.Shape, axis int) (outer, n, inner int) {
	return s[:axis].Size(), s[axis], s[axis+1:].Size()
}

func (b *builder) arg(v *ir.Value) error {
	x := v.Args[0]
	outer, n, inner := splitAt(x.Type.Shape, v.Attr.Axes[0])
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
	case op.Result:
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

// turn makes a matrix [rows columns] of one [columns rows], of elements of a
// size: parameters are values or working memory.
func (b *builder) turn(v *ir.Value, to, from any, rows, columns, size int) {
	d, _ := digits(v, dims{sizes: []int{rows, columns}, strides: [][]int{{1, rows}}}) // two axes
	b.each(v, fmt.Sprint("collect_", size), rows*columns, append([]any{to, from, rows * columns, 0}, d...)...)
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
	b.each(v, "unique", n, v, int(v.Type.DType), scratch(0), idx, is64, n, v.Attr.Padding)
	return nil
}

func (b *builder) scatterUpdate(v *ir.Value) error {
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
	if v.Op == op.TakeAlongAxis {
		b.each(v, fmt.Sprint("take_along_", v.Type.DType.Size()), v.Type.Shape.Size(), b.indexed(v, x, idx, 1, x.Type.Shape[len(x.Type.Shape)-1])...)
	} else {
		b.each(v, fmt.Sprint("put_along_", v.Type.DType.Size()), v.Type.Shape.Size(), b.indexed(v, x, idx, 1, v.Attr.Size)...)
	}
	return nil
}

func (b *builder) scatter(v *ir.Value) error {
	x, idx := v.Args[0], v.Args[1]
	b.fill(v, 0)
	width := v.Type.Shape[1:].Size()
	args := b.indexed(v, x, idx, width, v.Attr.Size)
	b.each(v, "scatter_add_"+v.Type.DType.String(), x.Type.Shape.Size(), slices.Insert(args, 2, any(int(v.Type.DType)))...)
	return nil
}
