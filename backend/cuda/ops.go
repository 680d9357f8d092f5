//go:build cuda && linux && amd64

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
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

		op.AllReduceStart: (*builder).allReduceStart,
		op.AllReduceDone:  (*builder).allReduceDone,
		op.AllGatherStart: (*builder).allGatherStart,
		op.AllGatherDone:  (*builder).allGatherDone,

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
	if v.Op == op.GreaterEqual && v.Args[0].Op == op.RandomUniform && b.masks(v.Args[0]) {
		b.mask(v)
		return nil
	}
	if done, err := b.projected(v); done || err != nil {
		return err
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
	if b.addsToNormalize(v, body, v.Args) {
		b.meetRowSums(v)
		return nil
	}
	c, args := b.chainOf(v, body, v.Args)
	b.update(v, c, args, v.Args)
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

// masks reports whether random numbers are for the value computed next alone, which compares them
// with a bound, as dropout does: then that value makes them.
func (b *builder) masks(v *ir.Value) bool {
	u := b.onlyUser(v)
	return u != nil && u.Op == op.GreaterEqual && u.Args[0] == v && v.Attr.Bits == 16 && b.follows(u, v) && !b.p.graph.Watched &&
		u.Args[1].Type.Shape.Size() == 1 && u.Type.Shape.Size() == v.Type.Shape.Size() && b.alignment(u)%8 == 0 && !b.meet(u, v.Args[0])
}

// A launch makes the masks of several layers: they wait for each other until a value is built
// that has to do with what they read or write. A kernel has so many states as parameters:
// they are in buffers of the caller.
const statesAtOnce = 16

// mask makes a mask of random numbers.
func (b *builder) mask(v *ir.Value) {
	b.meetRowSums(v)
	if len(b.drops) == statesAtOnce {
		b.flushMasks()
	}
	b.drops = append(b.drops, v)
	if v.Slot.Place != ir.Arena || v.Args[1].Slot.Place != ir.Static {
		b.flushMasks()
	}
}

// meetMasks makes the masks that wait, if v has to do with one of them.
func (b *builder) meetMasks(v *ir.Value) {
	if slices.ContainsFunc(b.drops, func(m *ir.Value) bool { return b.meets(v, []*ir.Value{m}, []*ir.Value{m.Args[0].Args[0]}) }) {
		b.flushMasks()
	}
}

// flushMasks makes the masks that wait.
func (b *builder) flushMasks() {
	list := b.drops
	b.drops = nil
	if len(list) == 1 {
		v, r, n := list[0], list[0].Args[0], list[0].Type.Shape.Size()
		b.each(v, "random_mask", (n+7)/8, v, r.Args[0], n, r.Attr.Stream, v.Args[1])
		return
	}
	if len(list) == 0 {
		return
	}
	var words []any
	args, blocks := make([]any, statesAtOnce), 0
	for i, v := range list {
		r, n := v.Args[0], v.Type.Shape.Size()
		words = append(words, v, n, r.Attr.Stream, v.Args[1], blocks)
		args[i] = r.Args[0]
		blocks += (n + 8*256 - 1) / (8 * 256)
	}
	for i := len(list); i < statesAtOnce; i++ {
		args[i] = uint64(0)
	}
	b.call(list[0], "random_masks", [3]int{blocks, 1, 1}, [3]int{256, 1, 1}, append([]any{b.tableOf(words), len(list)}, args...)...)
}

// follows reports whether nothing is computed between v and u.
func (b *builder) follows(u, v *ir.Value) bool {
	return b.pos[u] > b.pos[v] &&
		!slices.ContainsFunc(b.p.graph.Values[b.pos[v]+1:b.pos[u]], func(x *ir.Value) bool { return x.Op != op.Const && x.Op != op.Param })
}

// onlyUser is the value that alone reads v, which is no output; nil: there are none, or
// several.
func (b *builder) onlyUser(v *ir.Value) *ir.Value {
	if users := b.users[v]; len(users) == 1 && v.Slot.Place == ir.Arena {
		return users[0]
	}
	return nil
}

func (b *builder) random(v *ir.Value) error {
	if b.masks(v) {
		return nil
	}
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

// digits is the parameters DIGITS of move.cu, of a box that has one axis or more.
func digits(v *ir.Value, d dims) ([]any, error) {
	const most = 8
	rank := len(d.sizes)
	if rank > most {
		return nil, fmt.Errorf("cuda: layer %s: %v over %d axes, want at most %d", v.Path, v.Op, rank, most)
	}
	sizes, strides, codes := make([]any, most-1), make([]any, most-1), make([]any, most-1)
	for i := range sizes { // the outermost axis has its stride alone
		sizes[i], strides[i], codes[i] = 1, 0, code(1)
		if k := i + 1 - (most - rank); k > 0 {
			sizes[i], strides[i] = d.sizes[k], d.strides[0][k]
			codes[i] = splitCode(d.sizes[k], d.sizes[k])
		}
	}
	return slices.Concat([]any{rank, d.strides[0][0]}, sizes, strides, codes), nil
}

// widest is the number of bytes, up to 16, that elements of a size can be moved by where
// they lie in a box from an offset on, and at the values' addresses.
func (b *builder) widest(d dims, offset, size int, values ...any) int {
	last, k := len(d.sizes)-1, 1
	if d.strides[0][last] != 1 {
		return size
	}
	for ; size*k < 16; k *= 2 {
		fits := d.sizes[last]%(2*k) == 0 && offset%(2*k) == 0
		for _, s := range d.strides[0][:last] {
			fits = fits && s%(2*k) == 0
		}
		for _, x := range values {
			fits = fits && b.begins(x)%(2*k*size) == 0
		}
		if !fits {
			break
		}
	}
	return size * k
}

// move calls collect or distribute of move.cu for the elements of a box, of a size, that
// lie from an offset on: those of from, or those of to.
func (b *builder) move(v *ir.Value, kernel string, to, from any, d dims, offset, size int) error {
	n := op.Shape(d.sizes).Size()
	if n == 0 {
		return nil
	}
	if len(d.sizes) == 0 {
		d = dims{sizes: []int{1}, strides: [][]int{{1}}}
	}
	if kernel == "collect_" && b.transpose(v, to, from, d, offset, size) {
		return nil
	}
	wide := b.widest(d, offset, size, to, from)
	if k := wide / size; k > 1 {
		last := len(d.sizes) - 1
		d = dims{sizes: slices.Clone(d.sizes), strides: [][]int{slices.Clone(d.strides[0])}}
		d.sizes[last] /= k
		for i := range last {
			d.strides[0][i] /= k
		}
		n, offset = n/k, offset/k
	}
	args, err := digits(v, d)
	if err != nil {
		return err
	}
	b.each(v, fmt.Sprint(kernel, wide), n, append([]any{to, from, n, offset}, args...)...)
	return nil
}

// transpose makes the call of a kernel that goes through tiles, where the box is that of
// transposed matrices, one behind the other.
func (b *builder) transpose(v *ir.Value, to, from any, d dims, offset, size int) bool {
	const least, tile = 8, 32
	last := len(d.sizes) - 1
	if last < 1 || last > 2 || offset != 0 || d.strides[0][last] == 1 || d.strides[0][last-1] != 1 || min(d.sizes[last], d.sizes[last-1]) < least {
		return false
	}
	rows, columns, matrices, apart := d.sizes[last-1], d.sizes[last], 1, 0
	if last == 2 {
		matrices, apart = d.sizes[0], d.strides[0][0]
	}
	across := (columns + tile - 1) / tile
	blocks := (rows + tile - 1) / tile * across
	if blocks >= 1<<31 {
		return false
	}
	b.call(v, fmt.Sprint("transpose_", size), [3]int{blocks, 1, min(matrices, 65535)}, [3]int{256, 1, 1}, to, from, rows, columns, across, d.strides[0][last], apart, matrices)
	return true
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
	return b.move(v, "collect_", v, x, collapse(shape, strides), offset, v.Type.DType.Size())
}

// turn makes a matrix [rows columns] of one [columns rows], of elements of a
// size: parameters are values or working memory.
func (b *builder) turn(v *ir.Value, to, from any, rows, columns, size int) {
	_ = b.move(v, "collect_", to, from, collapse([]int{rows, columns}, []int{1, rows}), 0, size) // two axes are not too many
}

// distribute puts the elements of x where a box in the result is that begins
// at an element.
func (b *builder) distribute(v, x *ir.Value, offset int) error {
	return b.move(v, "distribute_", v, x, collapse(x.Type.Shape, rowMajor(v.Type.Shape)), offset, v.Type.DType.Size())
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

// sorted calls kernels that sort indices, and returns where the indices lie then, as 64
// bits, and their positions, as 32. It holds working memory.
func (b *builder) sorted(v, idx *ir.Value) (keys, at any, err error) {
	n := idx.Type.Shape.Size()
	if n >= 1<<31 {
		return nil, nil, fmt.Errorf("cuda: layer %s: %v with %d indices, want less than 2^31", v.Path, v.Op, n)
	}
	const tile = 2048 // SORTED of move.cu
	count := min(tile, 1<<bits.Len(uint(max(n, 2)-1)))
	keys, at = b.hold(8*n), b.hold(4*n)
	b.call(v, "sort_tiles", [3]int{(n + count - 1) / count, 1, 1}, [3]int{256, 1, 1}, idx, wideIndex(idx), n, count, keys, at)
	if n <= count {
		return keys, at, nil
	}
	toKeys, toAt := any(b.hold(8*n)), any(b.hold(4*n))
	for run := count; run < n; run *= 2 {
		b.each(v, "sort_merge", n, keys, at, n, bits.TrailingZeros(uint(run)), toKeys, toAt)
		keys, at, toKeys, toAt = toKeys, toAt, keys, at
	}
	return keys, at, nil
}

func (b *builder) unique(v *ir.Value) error {
	idx := v.Args[0]
	n := idx.Type.Shape.Size()
	if n == 0 {
		return nil
	}
	defer func(held int) { b.reserved = held }(b.reserved)
	keys, at, err := b.sorted(v, idx)
	if err != nil {
		return err
	}
	firsts, ranks := b.hold(4*n), b.hold(4*(n+1))
	b.each(v, "unique_firsts", n, firsts, keys, at, n)
	b.call(v, "unique_ranks", [3]int{1, 1, 1}, [3]int{256, 1, 1}, ranks, firsts, n)
	b.each(v, "unique", n, v, int(v.Type.DType), firsts, ranks, idx, wideIndex(idx), n, v.Attr.Padding)
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
	if n*width == 0 {
		return nil
	}
	defer func(held int) { b.reserved = held }(b.reserved)
	keys, at, err := b.sorted(v, idx)
	if err != nil {
		return err
	}
	b.each(v, fmt.Sprint("put_rows_", v.Type.DType.Size()), n*width, v, rows, keys, at, n, width, v.Type.Shape[0], faultWord{}, splitCode(width, n*width))
	return nil
}

// wideIndex is 1 for indices of 64 bits.
func wideIndex(idx *ir.Value) int { return idx.Type.DType.Size() / 8 }

// indexed is the parameters that kernels with indices share.
func (b *builder) indexed(v, x, idx *ir.Value, width, limit int) []any {
	return []any{v, x, idx, wideIndex(idx), idx.Type.Shape.Size(), width, limit, faultWord{}, b.number()<<valueBits | b.pos[v]}
}

func (b *builder) gather(v *ir.Value) error {
	x, idx := v.Args[0], v.Args[1]
	width, size := x.Type.Shape[1:].Size(), v.Type.DType.Size()
	n := v.Type.Shape.Size()
	wide := size // bytes that are moved together
	for wide < 16 && width > 0 && width*size%(2*wide) == 0 && b.alignment(x)%(2*wide) == 0 && b.alignment(v)%(2*wide) == 0 {
		wide *= 2
	}
	width, n = width*size/wide, n*size/wide
	b.each(v, fmt.Sprint("gather_", wide), n, append(b.indexed(v, x, idx, width, x.Type.Shape[0]), splitCode(width, n))...)
	return nil
}

func (b *builder) along(v *ir.Value) error {
	x, idx := v.Args[0], v.Args[1]
	n := v.Type.Shape.Size()
	if v.Op == op.TakeAlongAxis {
		b.each(v, fmt.Sprint("take_along_", v.Type.DType.Size()), n, b.indexed(v, x, idx, 1, x.Type.Shape[len(x.Type.Shape)-1])...)
	} else {
		b.each(v, fmt.Sprint("put_along_", v.Type.DType.Size()), n, append(b.indexed(v, x, idx, 1, v.Attr.Size), splitCode(v.Attr.Size, n))...)
	}
	return nil
}

func (b *builder) scatter(v *ir.Value) error {
	x, idx := v.Args[0], v.Args[1]
	b.fill(v, 0)
	n, width := idx.Type.Shape.Size(), v.Type.Shape[1:].Size()
	if n*width == 0 {
		return nil
	}
	defer func(held int) { b.reserved = held }(b.reserved)
	keys, at, err := b.sorted(v, idx)
	if err != nil {
		return err
	}
	threads := min(128, (width+31)/32*32)
	args := b.indexed(v, x, idx, width, v.Attr.Size) // v, x, idx, wide, n …
	args = slices.Concat([]any{v, x, int(v.Type.DType), keys, at}, args[4:])
	b.call(v, "scatter_add_"+v.Type.DType.String(), [3]int{n, min((width+threads-1)/threads, 65535), 1}, [3]int{threads, 1, 1}, args...)
	return nil
}
