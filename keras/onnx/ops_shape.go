package onnx

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// cut is what Slice keeps of an axis: count elements from start on. step may be
// negative.
type cut struct{ axis, start, count, step int }

// slices reads the operands or attributes of Slice for a shape.
func (c *call) slices(s op.Shape) (all []cut) {
	var starts, ends, axes, steps []int
	if c.has(1) {
		starts, ends = c.knownInts(1), c.knownInts(2)
		if c.has(3) {
			axes = c.knownInts(3)
		}
		if c.has(4) {
			steps = c.knownInts(4)
		}
	} else {
		starts, ends, axes = c.ints("starts"), c.ints("ends"), c.ints("axes")
	}
	if axes == nil {
		axes = identity(len(starts))
	}
	if steps == nil {
		steps = slices.Repeat([]int{1}, len(starts))
	}
	if len(ends) != len(starts) || len(axes) != len(starts) || len(steps) != len(starts) || len(starts) > len(s) {
		c.fail("got %d starts, %d ends, %d axes and %d steps for %v", len(starts), len(ends), len(axes), len(steps), s)
	}
	seen := map[int]bool{}
	for i := range starts {
		axis := c.axis(axes[i], len(s))
		if seen[axis] {
			c.fail("axis %d is given twice", axis)
		}
		seen[axis] = true
		n, step := s[axis], steps[i]
		if step == 0 {
			c.fail("a step is 0")
		}
		at := func(x, low, high int) int {
			if x < 0 {
				x += n
			}
			return min(max(x, low), high)
		}
		x := cut{axis: axis, step: step}
		if step > 0 {
			x.start = at(starts[i], 0, n)
			x.count = max(0, (at(ends[i], 0, n)-x.start+step-1)/step)
		} else {
			x.start = at(starts[i], -1, n-1)
			end := -1
			if ends[i] > -op.Limit { // of which the smallest means: past the first element
				end = at(ends[i], -1, n-1)
			}
			x.count = max(0, (x.start-end+(-step)-1)/(-step))
		}
		all = append(all, x)
	}
	return all
}

func opSlice(c *call) []*value {
	x := c.x(0)
	s := x.Shape()
	a := op.Attr{Start: make([]int, len(s)), Limit: s.Clone(), Stride: slices.Repeat([]int{1}, len(s))}
	changed := false
	for _, k := range c.slices(s) {
		if k.step < 0 {
			order := make([]int32, k.count)
			for i := range order {
				order[i] = int32(k.start + i*k.step)
			}
			x = gather(x, tensor.New(order, len(order)), k.axis)
			a.Limit[k.axis] = k.count
			continue
		}
		a.Start[k.axis], a.Stride[k.axis] = k.start, k.step
		a.Limit[k.axis] = k.start
		if k.count > 0 {
			a.Limit[k.axis] = k.start + (k.count-1)*k.step + 1
		}
		if k.start+k.count*k.step == s[k.axis] { // as the whole rest of an axis is written
			a.Limit[k.axis] = s[k.axis]
		}
		changed = changed || a.Start[k.axis] != 0 || a.Limit[k.axis] != s[k.axis] || k.step != 1
	}
	if !changed {
		return c.one(x)
	}
	return c.one(tensor.Record(op.Slice, a, x))
}

// gather returns the elements of x at indices of an axis.
func gather(x, indices *tensor.Tensor, axis int) *tensor.Tensor {
	if axis == 0 {
		return x.Gather(indices)
	}
	n, k := x.Rank(), indices.Rank()
	front := append([]int{axis}, slices.Delete(identity(n), axis, axis+1)...)
	y := x.Transpose(front...).Gather(indices) // [indices… before… after…]
	var back []int
	for i := range axis {
		back = append(back, k+i)
	}
	back = append(back, identity(k)...)
	for i := axis; i < n-1; i++ {
		back = append(back, k+i)
	}
	return y.Transpose(back...)
}

// index returns operand i as indices into an axis of n elements: negative ones count from
// its end.
func (c *call) index(i, n int) *tensor.Tensor {
	if k := c.in[i].c; k != nil && k.ints() != nil {
		all := slices.Clone(k.ints())
		for j, v := range all {
			if v < 0 {
				all[j] += int64(n)
			}
			if all[j] < 0 || all[j] >= int64(n) {
				c.fail("index %d is outside of an axis of %d elements", v, n)
			}
		}
		return newInts(typeInt64, k.shape(), all).tensor(c.dtype(c.in[i].typ))
	}
	x := c.x(i)
	if x.DType() == dtype.Uint8 {
		x = x.Cast(dtype.Int32)
	}
	return x
}

func opGather(c *call) []*value {
	x := c.x(0)
	axis := c.axis(c.int("axis", 0), x.Rank())
	if k := c.in[1].c; k != nil && len(k.shape()) == 0 && k.ints() != nil { // one element
		at := k.ints()[0]
		n := int64(x.Dim(axis))
		if at < 0 {
			at += n
		}
		if at < 0 || at >= n {
			c.fail("index %d is outside of axis %d of %v", k.ints()[0], axis, x.Type())
		}
		return c.one(x.Slice(axis, int(at), int(at)+1).Squeeze(axis))
	}
	return c.one(gather(x, c.index(1, x.Dim(axis)), axis))
}

// opGatherElements takes along an axis: the last one, after a transposition.
func opGatherElements(c *call) []*value {
	x := c.x(0)
	axis := c.axis(c.int("axis", 0), x.Rank())
	at := c.index(1, x.Dim(axis))
	n := x.Rank()
	if at.Rank() != n {
		c.fail("indices %v of %v, want as many axes", at.Type(), x.Type())
	}
	perm := append(slices.Delete(identity(n), axis, axis+1), axis)
	if axis != n-1 {
		x, at = x.Transpose(perm...), at.Transpose(perm...)
	}
	var parts []*tensor.Tensor // one index for each row at a time
	k := at.Dim(-1)
	if k > 1024 {
		c.fail("it takes %d elements of each row, want at most 1024", k)
	}
	for i := range k {
		one := at.At(-1, i)
		s := append(one.Shape().Clone(), x.Dim(-1))
		if !x.Shape().Equal(s) {
			x = x.SliceAll(make([]int, len(s)), s, slices.Repeat([]int{1}, len(s)))
		}
		parts = append(parts, x.TakeAlongAxis(one))
	}
	if len(parts) == 0 {
		c.fail("it takes no element")
	}
	var y *tensor.Tensor
	if len(parts) == 1 {
		y = parts[0].ExpandDims(-1)
	} else {
		y = tensor.Stack(-1, parts...)
	}
	if axis != n-1 {
		back := make([]int, n)
		for i, p := range perm {
			back[p] = i
		}
		y = y.Transpose(back...)
	}
	return c.one(y)
}

// reshaped returns the shape of the result of Reshape, Flatten, Squeeze and Unsqueeze.
func (c *call) reshaped() op.Shape {
	s := c.shape(0)
	switch c.n.op {
	case "Flatten":
		axis := c.int("axis", 1)
		if axis < 0 {
			axis += len(s)
		}
		if axis < 0 || axis > len(s) {
			c.fail("axis %d does not exist in %v", axis, s)
		}
		return op.Shape{s[:axis].Size(), s[axis:].Size()}
	case "Squeeze":
		axes, given := c.intsOf("axes", 1)
		if !given {
			return slices.DeleteFunc(s.Clone(), func(d int) bool { return d == 1 })
		}
		out := op.Shape{}
		axes = c.axes(axes, len(s))
		for i, d := range s {
			if !slices.Contains(axes, i) {
				out = append(out, d)
			} else if d != 1 {
				c.fail("axis %d of %v does not have size 1", i, s)
			}
		}
		return out
	case "Unsqueeze":
		axes, _ := c.intsOf("axes", 1)
		if len(s)+len(axes) > maxRank {
			c.fail("the result has more than %d axes", maxRank)
		}
		axes = c.axes(axes, len(s)+len(axes))
		out := make(op.Shape, 0, len(s)+len(axes))
		rest := s
		for i := range len(s) + len(axes) {
			if slices.Contains(axes, i) {
				out = append(out, 1)
			} else {
				out, rest = append(out, rest[0]), rest[1:]
			}
		}
		return out
	}
	to := op.Shape(c.knownInts(1))
	if len(to) > maxRank {
		c.fail("the result has %d axes, more than %d", len(to), maxRank)
	}
	out, hole, known := to.Clone(), -1, 1
	for i, d := range to {
		switch {
		case d == -1 && hole >= 0:
			c.fail("shape %v has more than one -1", []int(to))
		case d == -1:
			hole = i
			continue
		case d < 0:
			c.fail("shape %v has a negative axis", []int(to))
		case d == 0 && c.int("allowzero", 0) == 0:
			if i >= len(s) {
				c.fail("shape %v copies axis %d, which %v does not have", to, i, s)
			}
			out[i] = s[i]
		}
		known = op.Times(known, out[i])
	}
	n := s.Size()
	if hole >= 0 {
		if known == 0 || n%known != 0 {
			c.fail("%v does not fill shape %v", s, []int(to))
		}
		out[hole] = n / known
	}
	if out.Size() != n {
		c.fail("%v has %d elements, shape %v takes %d", s, n, out, out.Size())
	}
	return out
}

func opReshape(c *call) []*value { return c.one(c.x(0).Reshape(c.reshaped()...)) }

// perm returns the permutation of Transpose.
func (c *call) perm(n int) []int {
	perm := c.ints("perm")
	if perm == nil {
		perm = identity(n)
		slices.Reverse(perm)
	}
	sorted := slices.Clone(perm)
	slices.Sort(sorted)
	if !slices.Equal(sorted, identity(n)) {
		c.fail("%v is no permutation of %d axes", perm, n)
	}
	return perm
}

func opTranspose(c *call) []*value {
	perm := c.perm(c.rank(0))
	if slices.IsSorted(perm) {
		return []*value{c.in[0]}
	}
	base, left := c.transposed(c.in[0], perm)
	if slices.IsSorted(left) {
		return c.one(base)
	}
	return []*value{{base: base, perm: left, typ: c.in[0].typ}}
}

func opConcat(c *call) []*value {
	var all []*tensor.Tensor
	for i := range c.in {
		x := c.x(i)
		if i > 0 && x.DType() != all[0].DType() {
			if x.DType().IsFloat() != all[0].DType().IsFloat() {
				c.fail("operands %v and %v differ in type", all[0].Type(), x.Type())
			}
			x = x.Cast(all[0].DType())
		}
		all = append(all, x)
	}
	return c.one(tensor.Concat(c.axis(c.int("axis", 0), all[0].Rank()), all...))
}

func opSplit(c *call) []*value {
	x := c.x(0)
	axis := c.axis(c.int("axis", 0), x.Rank())
	sizes, given := c.intsOf("split", 1)
	parts := len(c.n.out)
	if !given {
		each := (x.Dim(axis) + parts - 1) / max(parts, 1)
		for left := x.Dim(axis); len(sizes) < parts; left -= each {
			sizes = append(sizes, min(each, max(left, 0)))
		}
	}
	var out []*value
	at := 0
	for _, n := range sizes {
		if n < 0 || at+n > x.Dim(axis) {
			c.fail("parts of sizes %v of axis %d of %v", sizes, axis, x.Type())
		}
		out = append(out, c.one(x.Slice(axis, at, at+n))...)
		at += n
	}
	return out
}

func opExpand(c *call) []*value {
	x := c.x(0)
	dims, err := op.Broadcast(x.Shape(), c.sizesOf(1))
	if err != nil {
		c.fail("%w", err)
	}
	return c.one(x.BroadcastTo(dims...))
}

func opTile(c *call) []*value {
	x, times := c.x(0), c.sizesOf(1)
	s := x.Shape()
	if len(times) != len(s) || 2*len(s) > maxRank {
		c.fail("repeats %v of %v, want one for each axis", times, x.Type())
	}
	var apart, repeated, joined []int
	for i, d := range s {
		apart, repeated, joined = append(apart, 1, d), append(repeated, times[i], d), append(joined, op.Times(times[i], d))
	}
	return c.one(x.Reshape(apart...).BroadcastTo(repeated...).Reshape(joined...))
}

func opConstantOfShape(c *call) []*value {
	s := c.sizesOf(0)
	typ, x := int64(typeFloat), 0.0
	if a := c.n.attr("value"); a != nil && a.t != nil {
		if shape, err := a.t.shape(); err != nil || op.Shape(shape).Size() != 1 || a.t.external != nil {
			c.fail("attribute value: want one element, %v", err)
		}
		typ, x = a.t.typ, (&constant{proto: a.t}).floats()[0]
	}
	return c.as(tensor.Full(c.dtype(typ), x, s...), typ)
}

// opRange makes a range of more elements than are folded.
func opRange(c *call) []*value {
	start, limit, step := c.in[0].scalar(), c.in[1].scalar(), c.in[2].scalar()
	n := (limit - start + step) / step
	if !(n >= 0 && n <= 1<<31) || start != float64(int64(start)) || step != float64(int64(step)) {
		c.fail("a range from %v to %v by %v, want known integers", start, limit, step)
	}
	count := int((limit - start) / step)
	if float64(count)*step+start < limit && step > 0 || float64(count)*step+start > limit && step < 0 {
		count++
	}
	x := tensor.Iota(dtype.Int64, count)
	x = x.Mul(tensor.Scalar(dtype.Int64, step)).Add(tensor.Scalar(dtype.Int64, start))
	return c.one(x.Cast(c.dtype(c.in[0].typ)))
}

func opCast(c *call) []*value {
	to := int64(c.int("to", 0))
	if c.n.op == "CastLike" {
		to = c.in[1].typ
	}
	if elementSize(to) == 0 {
		c.fail("it casts to %s, which is not supported", typeName(to))
	}
	x := c.x(0)
	d := c.dtype(to)
	y := x
	switch {
	case d == dtype.Bool && x.DType() != dtype.Bool:
		y = x.NotEqual(tensor.Scalar(x.DType(), 0))
	case x.DType().IsFloat() && to == typeInt8, x.DType().IsFloat() && to == typeUint8:
		y = x.Cast(dtype.Int32).Cast(d)
	default:
		y = x.Cast(d)
	}
	if y == x {
		return []*value{{t: y, typ: to, w: c.in[0].w, narrow: c.in[0].narrow}}
	}
	v := &value{t: y, typ: to}
	if x.DType().Is16() && d == dtype.Float32 {
		v.narrow = x
	}
	return []*value{v}
}

// opPad pads with a constant, the edge, or a reflection.
func opPad(c *call) []*value {
	x := c.x(0)
	n := x.Rank()
	pads, ok := c.intsOf("pads", 1)
	if !ok {
		c.fail("it has no pads")
	}
	low, high := make([]int, n), make([]int, n)
	if c.has(3) {
		axes := c.knownInts(3)
		if len(pads) != 2*len(axes) {
			c.fail("pads %v for axes %v", pads, axes)
		}
		for i, a := range axes {
			a = c.axis(a, n)
			low[a], high[a] = pads[i], pads[len(axes)+i]
		}
	} else {
		if len(pads) != 2*n {
			c.fail("pads %v for %v", pads, x.Type())
		}
		copy(low, pads[:n])
		copy(high, pads[n:])
	}
	for i := range low { // negative numbers cut off
		if from, to := max(0, -low[i]), x.Dim(i)-max(0, -high[i]); from > 0 || to < x.Dim(i) {
			if from > to {
				c.fail("pads %v cut off more than %v has", pads, x.Type())
			}
			x = x.Slice(i, from, to)
		}
		low[i], high[i] = max(0, low[i]), max(0, high[i])
	}
	mode := c.text("mode", "constant")
	if mode == "constant" {
		value := c.float("value", 0)
		if c.has(2) {
			if value = c.in[2].scalar(); value != value {
				c.fail("the value is computed from data; it must be a constant")
			}
		}
		return c.one(x.Pad(low, high, value))
	}
	for i := range low {
		size := x.Dim(i)
		if low[i] == 0 && high[i] == 0 {
			continue
		}
		if size < 1 || op.Times(size, 1) > maxFolded || low[i] > maxFolded || high[i] > maxFolded || mode == "reflect" && max(low[i], high[i]) >= size {
			c.fail("mode %s: pads %d and %d of an axis of %d elements", mode, low[i], high[i], size)
		}
		order := make([]int32, low[i]+size+high[i])
		for k := range order {
			at := k - low[i]
			switch mode {
			case "edge":
				at = min(max(at, 0), size-1)
			case "reflect":
				if at < 0 {
					at = -at
				}
				if at >= size {
					at = 2*(size-1) - at
				}
			case "wrap":
				at = ((at % size) + size) % size
			default:
				c.fail("mode %q is not supported", mode)
			}
			order[k] = int32(at)
		}
		x = gather(x, tensor.New(order, len(order)), i)
	}
	return c.one(x)
}

// opOneHot compares indices with 0, 1, 2 ….
func opOneHot(c *call) []*value {
	depth := c.in[1].scalar()
	if !(depth >= 1 && depth <= maxFolded) {
		c.fail("depth %v, want a known number from 1", depth)
	}
	x, values := c.x(0), c.x(2)
	if values.Shape().Size() != 2 {
		c.fail("values %v, want two", values.Type())
	}
	values = values.Reshape(2)
	axis := c.int("axis", -1)
	if axis < 0 {
		axis += x.Rank() + 1
	}
	axis = c.axis(axis, x.Rank()+1)
	n := int(depth)
	row := make([]int, x.Rank()+1)
	for i := range row {
		row[i] = 1
	}
	row[axis] = n
	if x.DType().IsFloat() {
		x = x.Cast(dtype.Int64)
	}
	count := tensor.Scalar(x.DType(), depth)
	x = tensor.Where(x.LessScalar(0), x.Add(count), x)
	is := x.ExpandDims(axis).Equal(tensor.Iota(x.DType(), n).Reshape(row...))
	return c.as(tensor.Where(is, values.At(0, 1), values.At(0, 0)), c.in[2].typ)
}

func opDepthToSpace(c *call) []*value {
	x := c.x(0)
	b := c.int("blocksize", 0)
	if x.Rank() != 4 || b < 1 || b > maxFolded || x.Dim(1)%op.Times(b, b) != 0 {
		c.fail("blocks of %d of %v", b, x.Type())
	}
	n, ch, h, w := x.Dim(0), x.Dim(1)/(b*b), x.Dim(2), x.Dim(3)
	if c.text("mode", "DCR") == "CRD" {
		return c.one(x.Reshape(n, ch, b, b, h, w).Transpose(0, 1, 4, 2, 5, 3).Reshape(n, ch, h*b, w*b))
	}
	return c.one(x.Reshape(n, b, b, ch, h, w).Transpose(0, 3, 4, 1, 5, 2).Reshape(n, ch, h*b, w*b))
}

func opSpaceToDepth(c *call) []*value {
	x := c.x(0)
	b := c.int("blocksize", 0)
	if x.Rank() != 4 || b < 1 || x.Dim(2)%b != 0 || x.Dim(3)%b != 0 {
		c.fail("blocks of %d of %v", b, x.Type())
	}
	n, ch, h, w := x.Dim(0), x.Dim(1), x.Dim(2)/b, x.Dim(3)/b
	return c.one(x.Reshape(n, ch, h, b, w, b).Transpose(0, 3, 5, 1, 2, 4).Reshape(n, ch*b*b, h, w))
}

// opTrilu keeps a triangle of matrices.
func opTrilu(c *call) []*value {
	x := c.x(0)
	k := 0
	if c.has(1) {
		all := c.knownInts(1)
		if len(all) != 1 {
			c.fail("k has %d elements, want one", len(all))
		}
		k = all[0]
	}
	if x.Rank() < 2 {
		c.fail("got %v, want matrices", x.Type())
	}
	n, m := x.Dim(-2), x.Dim(-1)
	away := tensor.Iota(dtype.Int64, m).Sub(tensor.Iota(dtype.Int64, n).Reshape(n, 1))
	limit := tensor.Scalar(dtype.Int64, float64(k))
	keep := away.GreaterEqual(limit)
	if c.int("upper", 1) == 0 {
		keep = away.LessEqual(limit)
	}
	if x.DType() == dtype.Bool {
		return c.one(x.And(keep))
	}
	return c.one(tensor.Where(keep, x, tensor.Scalar(x.DType(), 0)))
}

// flatIndex makes one axis of the first k axes of x, and indices into that of at, whose
// last axis has an index for each of them.
func flatIndex(x, at *tensor.Tensor) (flat, index *tensor.Tensor) {
	s, k := x.Shape(), at.Dim(-1)
	for i := range k {
		one := at.At(-1, i)
		if one = tensor.Where(one.LessScalar(0), one.AddScalar(float64(s[i])), one); i == 0 {
			index = one
		} else {
			index = index.MulScalar(float64(s[i])).Add(one)
		}
	}
	if k > 1 {
		x = x.Reshape(append([]int{s[:k].Size()}, s[k:]...)...)
	}
	return x, index
}

// opGatherND takes what at its last axis points to.
func opGatherND(c *call) []*value {
	x, at := c.x(0), c.x(1)
	if at.Rank() < 1 || at.Dim(-1) < 1 || at.Dim(-1) > x.Rank() || at.DType() != dtype.Int64 || c.int("batch_dims", 0) != 0 {
		c.fail("indices %v of %v, want as many in their last axis as %v has axes, and no batch_dims", at.Type(), x.Type(), x.Shape())
	}
	x, at = flatIndex(x, at)
	return c.one(x.Gather(at))
}

// opScatterND adds or writes rows: what the export writes for a sum by index.
func opScatterND(c *call) []*value {
	x, at, rows := c.x(0), c.x(1), c.x(2)
	if at.Rank() < 1 || at.Dim(-1) < 1 || at.Dim(-1) > x.Rank() || at.DType() != dtype.Int64 && at.DType() != dtype.Int32 {
		c.fail("indices %v of %v, want as many in their last axis as %v has axes", at.Type(), x.Type(), x.Shape())
	}
	s := x.Shape()
	x, at = flatIndex(x, at)
	if rows.DType() != x.DType() {
		rows = rows.Cast(x.DType())
	}
	switch how := c.text("reduction", "none"); how {
	case "add":
		sum := rows.ScatterAdd(at, x.Dim(0))
		if k := c.in[0].c; k != nil && k.small() && !slices.ContainsFunc(k.floats(), func(f float64) bool { return f != 0 }) {
			return c.one(sum.Reshape(s...))
		}
		return c.one(x.Add(sum).Reshape(s...))
	case "none":
		return c.one(tensor.ScatterUpdate(x, at, rows).Reshape(s...))
	default:
		c.fail("reduction %q is not supported", how)
	}
	return nil
}

// opCumSum multiplies by a triangle of ones.
func opCumSum(c *call) []*value {
	x := c.x(0)
	at := c.knownInts(1)
	if len(at) != 1 || c.int("exclusive", 0) != 0 || !x.DType().IsFloat() && x.DType() == dtype.Bool {
		c.fail("want one axis, sums that include the element, and numbers")
	}
	axis := c.axis(at[0], x.Rank())
	n := x.Dim(axis)
	if n > 4096 {
		c.fail("an axis of %d elements, want at most 4096", n)
	}
	i := tensor.Iota(dtype.Int32, n)
	upper := i.Reshape(n, 1).LessEqual(i) // element k adds to the sums from k on
	if c.int("reverse", 0) != 0 {
		upper = i.Reshape(n, 1).GreaterEqual(i)
	}
	work := x
	if !x.DType().IsFloat() {
		work = x.Cast(dtype.Float64)
	}
	perm := append(slices.Delete(identity(x.Rank()), axis, axis+1), axis)
	back := make([]int, len(perm))
	for i, p := range perm {
		back[p] = i
	}
	y := work.Transpose(perm...)
	s := y.Shape()
	y = y.Reshape(s[:len(s)-1].Size(), n).MatMul(upper.Cast(work.DType())).Reshape(s...)
	return c.one(y.Transpose(back...).Cast(x.DType()))
}
