//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

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
	if folds(v) {
		b.foldWhole(v)
		return nil
	}
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
	return b.fold(v, x, how, collapse(kept, keptStrides), collapse(folded, foldedStrides))
}

// fold reduces x to v: k is the elements that v is made of, and f what is folded
// to each of them.
func (b *builder) fold(v, x *ir.Value, how int, k, f dims) error {
	outputs, n := op.Shape(k.sizes).Size(), op.Shape(f.sizes).Size()
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
		// A second launch for the parts is worth while where blocks would be few, or long.
		const wish, most, least, whole = 1024, 64, 64, 8192 // blocks; parts, and elements of each; of one part
		parts = 1
		if blocks := (outputs + 31) / 32; n > whole || blocks < 16 && n > 1024 {
			parts = max(1, min(wish/blocks, most, n/least))
		}
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
		to, target = int(acc), scratch(b.reserved)
		b.scratch = max(b.scratch, b.reserved+parts*outputs*acc.Size())
		if how == mean {
			first = sum
		}
	}
	if r := (rowSum{v: v, in: x, out: v, writes: []*ir.Value{v}, reads: []*ir.Value{x}, from: x.Type.DType, to: v.Type.DType, how: how, rows: n, columns: outputs, divisor: divisor}); byThread && parts == 1 &&
		len(k.sizes) == 1 && k.strides[0][0] == 1 && len(f.sizes) == 1 && b.p.graph.Values[b.pos[v]] == v && x.Slot.Place == ir.Arena && r.may(b) {
		r.stride = f.strides[0][0]
		b.rowSums = append(b.rowSums, r)
		return nil
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
		b.reduction(v, byThread, acc.String(), outputs, 1, []any{target, v, int(v.Type.DType), second, parts, parts, divisor}, keptBox, foldedBox)
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

// lanesOf is how many threads reduce_thread has for an output of n elements, and how many
// outputs a block has.
func lanesOf(n int) (lanes, across int) {
	switch {
	case n < 16:
		return 1, 256
	case n > 256:
		return 16, 32
	}
	return 8, 32
}

func (b *builder) reduction(v *ir.Value, byThread bool, from string, outputs, parts int, args, kept, folded []any) {
	if byThread {
		lanes, across := lanesOf(args[5].(int)) // elements of a part
		args = slices.Concat(args, []any{outputs, lanes}, kept, folded)
		b.call(v, "reduce_thread_"+from, [3]int{(outputs + across - 1) / across, parts, 1}, [3]int{across * lanes, 1, 1}, args...)
		return
	}
	b.call(v, "reduce_block_"+from, [3]int{outputs, parts, 1}, [3]int{256, 1, 1}, slices.Concat(args, kept, folded)...)
}

// rowSum is a reduction over the rows of a matrix: for each column the elements of the rows.
// The gradients of biases are such, and those of gain and shift of a layer normalization.
// They wait for each other, for one launch to do them all with the sums that a launch of
// each would form, until a value is built that has to do with what they read or write: see
// horizontal.go.
type rowSum struct {
	v             *ir.Value
	in, out       any // parameters
	writes, reads []*ir.Value
	from, to      dtype.DType
	how           int
	rows, columns int
	stride        int // of the rows
	divisor       float64
}

// may reports whether the sum may wait: where it writes is known to a table.
func (r *rowSum) may(b *builder) bool {
	return wide(r.from) == dtype.Float32 && r.to != dtype.Float64 && !b.p.graph.Watched &&
		!slices.ContainsFunc(r.writes, func(v *ir.Value) bool { return v.Slot.Place != ir.Arena || b.isTemporary(v) })
}

// partialSums is a parameter: an address in memory of the sums that wait, behind the
// working memory of the calls.
type partialSums int

// mostPartialSums is the most bytes of it, but for one operation that needs more.
const mostPartialSums = 16 << 20

// partial reserves memory that a sum reads that waits.
func (b *builder) partial(bytes int) partialSums {
	if b.partials > 0 && b.partials+bytes > mostPartialSums {
		b.flushRowSums()
	}
	at := partialSums(b.partials)
	b.partials += aligned(bytes)
	b.mostPartials = max(b.mostPartials, b.partials)
	return at
}

// flushRowSums makes the calls of the sums that wait.
func (b *builder) flushRowSums() {
	list := b.rowSums
	b.rowSums, b.partials = nil, 0
	if len(list) == 0 {
		return
	}
	if len(list) == 1 {
		b.sumRows(list[0])
		return
	}
	const across = 32
	var words []any
	blocks := 0
	for _, r := range list {
		lanes, _ := lanesOf(r.rows)
		words = append(words, r.in, r.out, int(r.from), int(r.to), r.how, r.rows, r.stride, r.columns, lanes, blocks, r.divisor)
		blocks += (r.columns + across - 1) / across
	}
	b.call(list[0].v, "reduce_columns", [3]int{blocks, 1, 1}, [3]int{512, 1, 1}, b.tableOf(words), len(list))
}

// sumRows makes the call of a sum alone.
func (b *builder) sumRows(r rowSum) {
	kept, _ := box(r.v, []int{r.columns}, []int{1})
	folded, _ := box(r.v, []int{r.rows}, []int{r.stride})
	b.reduction(r.v, true, r.from.String(), r.columns, 1, []any{r.in, r.out, int(r.to), r.how, r.rows, r.rows, r.divisor}, kept, folded)
}
