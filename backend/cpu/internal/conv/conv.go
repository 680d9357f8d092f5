// Package conv has convolutions and their gradients by the input and by the kernels.
//
// Where to look:
//
//   - algorithms.go: the tables of algorithms, from which [New] chooses.
//   - conv.go: what all algorithms share, the epilogues that micro-kernels compute, and the
//     direct algorithm in Go; 1×1 convolutions are products of matrices.
//   - implicit.go, implicit_run.go: implicit GEMM, without a matrix of patches;
//     border.go cuts the result into regions whose windows meet the border alike.
//   - tiles.go, tiles_pack.go: implicit GEMM on tile registers (AMX).
//   - quantized.go: implicit GEMM on 8-bit integers; quantized_depthwise.go: with one kernel
//     for each channel.
//   - winograd.go, winograd_grad.go, winograd_1d.go: Winograd's transforms.
//   - depthwise.go, depthwise_vector.go, depthwise_window.go: one kernel per channel.
//   - small_channel.go, planes.go, kn2row.go, wgrad_small.go, wgrad_dots.go: few channels.
//   - wgrad.go, wgrad_taps.go, wgrad_rows.go, wgrad_side.go, wgrad_tiles.go: the gradient by the kernels.
package conv

import (
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// convolution holds the geometry and the operands of a convolution or gradient, for all
// algorithms.
type convolution struct {
	window.Geometry
	code           op.Code
	channels, outs int // of the input and of the forward result
	groups         int
	perGroup       int // input channels of a group
	outsPerGroup   int
	a, b, dst      int // positions of the operands and of the result in the plan
	from, to       dtype.DType
	after          *elementwise.Epilogue // or nil
}

func newConvolution(b *exec.Builder, v *ir.Value) convolution {
	x, w, y := v.Args[0].Type.Shape, v.Args[1].Type.Shape, v.Type.Shape
	switch v.Op {
	case op.ConvInputGrad:
		x, y = y, x
	case op.ConvKernelGrad:
		w, y = y, w
	}
	n := len(w) - 2
	k := convolution{
		Geometry: window.New(&v.Attr, x, w[:n], y), code: v.Op,
		channels: x[n+1], outs: w[n+1], groups: max(v.Attr.Groups, 1), perGroup: w[n],
		a: b.At(v.Args[0]), b: b.At(v.Args[1]), dst: b.At(v), from: v.Args[0].Type.DType, to: v.Type.DType,
	}
	k.outsPerGroup = k.outs / k.groups
	if v.Attr.Body != nil {
		k.to = v.Attr.DType // the type of the convolution that the fused chain reads
	}
	return k
}

// addEpilogue makes the epilogue of v, if v has one. Its scratch memory begins after scratch
// bytes; it is applied to at most most elements at a time.
func (k *convolution) addEpilogue(b *exec.Builder, v *ir.Value, scratch, most int) {
	b.ReserveScratch(scratch)
	if k.after = elementwise.NewEpilogue(b, v, 2, v.Type.Shape[len(v.Type.Shape)-1]); k.after != nil {
		k.after.Place(b, scratch, most)
	}
}

// sumEpilogue is an epilogue that micro-kernels and routines of package gemm compute in the
// result: micro-kernels add the first term to the sum, and a routine adds the second one, which
// is followed by a relu. The bits are those of the chain.
type sumEpilogue struct {
	terms [2]sumTerm
	then  gemm.Epilogue // or nil
	row   int           // bytes of a row of the result
}

// sumTerm is a term of the epilogue: a bias, or a value like the result.
type sumTerm struct {
	pos  int // or -1
	full bool
}

// newSumEpilogue returns the epilogue of v in float32, whose result has so many columns, or nil
// if chains must compute it.
func newSumEpilogue(b *exec.Builder, v *ir.Value, set *gemm.Set, cols int) *sumEpilogue {
	terms, relu, ok := termsOf(v)
	if !ok || v.Type.DType != dtype.Float32 || len(terms) == 0 {
		return nil
	}
	if set.AddRelu == nil {
		return nil // NEON's kernels that go through runs add s to the sum of the first run, not of all
	}
	k := &sumEpilogue{terms: [2]sumTerm{{pos: -1}, {pos: -1}}, row: 4 * cols}
	for i, a := range terms {
		s := a.Type.Shape
		full := s.Size() == v.Type.Shape.Size() && len(s) == len(v.Type.Shape)
		bias := s.Size() == cols && s[len(s)-1] == cols
		if b.Produced[a] != nil || b.CastOf[a] != nil || !full && !bias || i > 0 && a.Slot == v.Slot {
			return nil // a second term is read after the sum was written
		}
		k.terms[i] = sumTerm{b.At(a), full && !bias}
	}
	switch {
	case relu && len(terms) == 2:
		k.then = set.AddRelu
	case relu:
		k.then = set.Relu
	}
	if k.then == nil && (relu || len(terms) == 2) {
		return nil
	}
	return k
}

// termsOf returns up to two terms that the epilogue of v adds to the sum one after the other, and
// whether a relu follows. It is not ok if the epilogue is another one.
func termsOf(v *ir.Value) (terms []*ir.Value, relu, ok bool) {
	body, t := v.Attr.Body, v.Type.DType
	if body == nil || v.Attr.DType != t || len(body.ExtraOutputs) > 0 {
		return nil, false, false
	}
	last := int32(0) // value that the next instruction must read
	for i, ins := range body.Code {
		a := ins.Args
		switch {
		case ins.DType != t || relu:
			return nil, false, false
		case ins.Op == op.Relu && a[0] == last:
			relu = true
		case ins.Op == op.Add && len(terms) < 2 && (a[0] == last || a[1] == last):
			other := a[0] + a[1] - last
			if other <= 0 || int(other) >= len(body.Inputs) || body.Inputs[other] != t {
				return nil, false, false
			}
			terms = append(terms, v.Args[1+other])
		default:
			return nil, false, false
		}
		last = int32(len(body.Inputs) + i)
	}
	return terms, relu, true
}

// term returns the address of term i for the elements of the result from at bytes on, and the
// bytes between its rows where those of the result are ld bytes apart.
func (k *sumEpilogue) term(r *exec.Run, i, at, ld int) (unsafe.Pointer, int) {
	t := k.terms[i]
	if !t.full {
		at, ld = at%k.row, 0
	}
	return unsafe.Pointer(&r.Values[t.pos][at]), ld
}

// end computes the rest of the epilogue for rows at d, up to 32 columns of them.
func (k *sumEpilogue) end(r *exec.Run, rows int, d unsafe.Pointer, at, ld int, mask uint) {
	if k.then == nil {
		return
	}
	var y unsafe.Pointer
	ldy := ld
	if k.terms[1].pos >= 0 {
		y, ldy = k.term(r, 1, at, ld)
	}
	product.Then(k.then, rows, d, ld, y, ldy, mask)
}

// over reports whether the result of v lies where a term does: then sums must not be written to
// it before the term is read.
func (k *sumEpilogue) over(b *exec.Builder, v *ir.Value) bool {
	for _, t := range k.terms {
		if t.full && b.Graph.Values[t.pos].Slot == v.Slot {
			return true
		}
	}
	return false
}

// whole computes all of the epilogue for rows of sums at d, at bytes after the result's first
// element. Scratch has room for a vector of channels.
func (k *sumEpilogue) whole(r *exec.Run, set *gemm.Set, rows int, d unsafe.Pointer, at int, scratch []byte) {
	first, alone := set.Add, k.terms[1].pos < 0
	if alone && k.then != nil {
		first = set.AddRelu
	}
	const vector = 4 * window.VectorChannels
	for c := 0; c < k.row; c += vector {
		d, at, mask := unsafe.Add(d, c), at+c, uint(1)<<min(window.VectorChannels, (k.row-c)/4)-1
		y, ld := k.term(r, 0, at, k.row)
		if 2*k.row == vector && ld == 0 && rows%2 == 0 { // two rows at a time, as product.Then does it
			bias := unsafe.Slice((*byte)(y), k.row)
			copy(scratch[copy(scratch, bias):], bias)
			first(rows/2, d, vector, unsafe.Pointer(&scratch[0]), 0, 1<<window.VectorChannels-1)
		} else {
			product.Then(first, rows, d, k.row, y, ld, mask)
		}
		if !alone {
			k.end(r, rows, d, at, k.row, mask)
		}
	}
}

// putRow stores x as the elements of the result from element at on, through the epilogue if
// there is one.
func putRow[T lanes.Real](k *convolution, r *exec.Run, w *exec.Worker, at int, x []T) {
	size := k.to.Size()
	if k.after == nil {
		lanes.StoreReal(r.Values[k.dst][at*size:(at+len(x))*size], x, k.to)
		return
	}
	product := k.after.Rows(w, len(x))
	elementwise.PutProduct(k.after, product, x)
	k.after.Apply(r, w, at, len(x), len(x), product)
}

// macs returns the number of multiplications, roughly: those with padding count.
func (k *convolution) macs() int {
	return k.Batch * k.OutSize * k.WindowSize * k.perGroup * k.outs
}

// directConv is a convolution, or a gradient of one, in portable Go: loops over the
// definition. Its result is cut into rows of pixels, or of a kernel's elements, each summed up
// by one worker in a fixed order.
type directConv[T lanes.Real] struct {
	convolution
	wideA, wideB wide[T]
	work         func(k *directConv[T], a, b, acc []T, unit int)
	units, width int // rows of the result, elements of each
}

func makeConv[T lanes.Real](b *exec.Builder, v *ir.Value, c convolution) exec.Kernel {
	k := &directConv[T]{convolution: c}
	k.wideA = wide[T]{pos: k.a, dtype: k.from, n: v.Args[0].Type.Shape.Size()}
	k.wideB = wide[T]{pos: k.b, dtype: k.from, n: v.Args[1].Type.Shape.Size(), offset: k.wideA.bytes()}
	b.ReserveShared(k.wideA.bytes() + k.wideB.bytes())
	switch v.Op {
	case op.Conv:
		k.units, k.width, k.work = k.Batch*k.OutSize/k.Out[2], k.Out[2]*k.outs, forward[T]
	case op.ConvInputGrad:
		k.units, k.width, k.work = k.Batch*k.In[0]*k.In[1], k.In[2]*k.channels, inputGrad[T]
	case op.ConvKernelGrad:
		k.units, k.width, k.work = k.WindowSize*k.perGroup, k.outs, kernelGrad[T]
	}
	k.addEpilogue(b, v, k.width*lanes.SizeOf[T](), k.width)
	return k
}

func (k *directConv[T]) Run(r *exec.Run) {
	k.wideA.Run(r)
	k.wideB.Run(r)
	if k.width > 0 {
		r.Parallel(k, k.units, k.macs())
	}
}

func (k *directConv[T]) Chunk(r *exec.Run, w *exec.Worker, i int) {
	acc := lanes.ViewOf[T](w.Scratch, k.width)
	clear(acc)
	k.work(k, k.wideA.view(r), k.wideB.view(r), acc, i)
	putRow(&k.convolution, r, w, i*k.width, acc)
}

// forward computes a row of pixels of the result.
func forward[T lanes.Real](k *directConv[T], x, w, acc []T, row int) {
	image, oz, oy := window.SplitRow(row, k.Out)
	tap := 0
	for kz := range k.Size[0] {
		z, inZ := k.At(0, oz, kz)
		for ky := range k.Size[1] {
			y, inY := k.At(1, oy, ky)
			for kx := range k.Size[2] {
				kernels := w[tap*k.perGroup*k.outs:]
				tap++
				if !inZ || !inY {
					continue
				}
				for ox := range k.Out[2] {
					px, ok := k.At(2, ox, kx)
					if !ok {
						continue
					}
					pixel := x[(((image*k.In[0]+z)*k.In[1]+y)*k.In[2]+px)*k.channels:][:k.channels]
					sums := acc[ox*k.outs:][:k.outs]
					for g := range k.groups {
						o := g * k.outsPerGroup
						addScaled(sums[o:o+k.outsPerGroup], pixel[g*k.perGroup:][:k.perGroup], kernels[o:], 1, k.outs)
					}
				}
			}
		}
	}
}

// inputGrad computes a row of pixels of the input's gradient.
func inputGrad[T lanes.Real](k *directConv[T], g, w, acc []T, row int) {
	image, z, y := window.SplitRow(row, k.In)
	tap := 0
	for kz := range k.Size[0] {
		oz, inZ := k.Window(0, z, kz)
		for ky := range k.Size[1] {
			oy, inY := k.Window(1, y, ky)
			for kx := range k.Size[2] {
				kernels := w[tap*k.perGroup*k.outs:]
				tap++
				if !inZ || !inY {
					continue
				}
				for x := range k.In[2] {
					ox, ok := k.Window(2, x, kx)
					if !ok {
						continue
					}
					pixel := g[(((image*k.Out[0]+oz)*k.Out[1]+oy)*k.Out[2]+ox)*k.outs:][:k.outs]
					sums := acc[x*k.channels:][:k.channels]
					for c := range sums {
						o := c / k.perGroup * k.outsPerGroup
						sums[c] += dot(pixel[o:o+k.outsPerGroup], kernels[c%k.perGroup*k.outs+o:])
					}
				}
			}
		}
	}
}

// kernelGrad computes the gradient of the weights for one input channel of a group and one
// element of the window.
func kernelGrad[T lanes.Real](k *directConv[T], x, g, acc []T, unit int) {
	c, tap := unit%k.perGroup, unit/k.perGroup
	kz, ky, kx := tap/(k.Size[1]*k.Size[2]), tap/k.Size[2]%k.Size[1], tap%k.Size[2]
	lo, hi, first := k.Under(kx)
	if lo == hi {
		return
	}
	for row := range k.Batch * k.Out[0] * k.Out[1] {
		image, oz, oy := window.SplitRow(row, k.Out)
		z, inZ := k.At(0, oz, kz)
		y, inY := k.At(1, oy, ky)
		if !inZ || !inY {
			continue
		}
		pixels := x[(((image*k.In[0]+z)*k.In[1]+y)*k.In[2]+first)*k.channels:]
		grads := g[(row*k.Out[2]+lo)*k.outs:]
		step := k.Stride[2] * k.channels
		for group := range k.groups {
			o := group * k.outsPerGroup
			from := pixels[group*k.perGroup+c:][:(hi-lo-1)*step+1]
			addScaled(acc[o:o+k.outsPerGroup], from, grads[o:], step, k.outs)
		}
	}
}

// addScaled adds Σ x[i·step]·row i to acc, for rows that are ld apart. Four rows
// at a time halve the loads and stores of acc.
func addScaled[T lanes.Real](acc, x, rows []T, step, ld int) {
	n := len(acc)
	i, at := 0, 0
	for ; i+3*step < len(x); i, at = i+4*step, at+4*ld {
		x0, x1, x2, x3 := x[i], x[i+step], x[i+2*step], x[i+3*step]
		r0, r1, r2, r3 := rows[at:][:n], rows[at+ld:][:n], rows[at+2*ld:][:n], rows[at+3*ld:][:n]
		for j := range acc {
			acc[j] += T(x0*r0[j]) + T(x1*r1[j]) + (T(x2*r2[j]) + T(x3*r3[j]))
		}
	}
	for ; i < len(x); i, at = i+step, at+ld {
		x0, r0 := x[i], rows[at:][:n]
		for j := range acc {
			acc[j] += T(x0 * r0[j])
		}
	}
}

// dot is Σ a·b over the elements of a.
func dot[T lanes.Real](a, b []T) T {
	var s0, s1, s2, s3 T
	b = b[:len(a)]
	for len(a) >= 4 && len(b) >= 4 {
		s0 += T(a[0] * b[0])
		s1 += T(a[1] * b[1])
		s2 += T(a[2] * b[2])
		s3 += T(a[3] * b[3])
		a, b = a[4:], b[4:]
	}
	for i := range a {
		s0 += T(a[i] * b[i])
	}
	return s0 + s1 + (s2 + s3)
}

// wide is an operand with elements of type T: read in place, or converted into the shared
// memory from offset on.
type wide[T lanes.Real] struct {
	pos, n, offset int
	dtype          dtype.DType
}

func (w *wide[T]) bytes() int {
	if w.dtype.Size() == lanes.SizeOf[T]() {
		return 0
	}
	return tiling.RoundUp(w.n*lanes.SizeOf[T](), 64)
}

func (w *wide[T]) Run(r *exec.Run) {
	if w.bytes() > 0 {
		r.Parallel(w, tiling.CeilDiv(w.n, tiling.Grain), w.n)
	}
}

func (w *wide[T]) Chunk(r *exec.Run, _ *exec.Worker, i int) {
	lo, hi := i*tiling.Grain, min(w.n, (i+1)*tiling.Grain)
	size := w.dtype.Size()
	lanes.RealView(r.Values[w.pos][lo*size:hi*size], w.dtype, w.view(r)[lo:hi])
}

func (w *wide[T]) view(r *exec.Run) []T {
	if w.bytes() == 0 {
		return lanes.ViewOf[T](r.Values[w.pos], w.n)
	}
	return lanes.ViewOf[T](r.Shared[w.offset:], w.n)
}

// plainProduct reports whether the convolution is a matrix product: with one row for each
// pixel, or for each image if the window is as large as the image.
func (k *convolution) plainProduct(v *ir.Value) bool {
	if k.groups != 1 || k.Low != [3]int{} {
		return false
	}
	point := k.WindowSize == 1 && k.In == k.Out
	return point || k.Size == k.In && k.OutSize == 1 && !slices.ContainsFunc(v.Args[2:], func(a *ir.Value) bool {
		_, ok := inProduct(v, a)
		return !ok
	})
}

// newPlainProduct makes the kernel of the matrix product that computes k.
func newPlainProduct(b *exec.Builder, v *ir.Value, k *convolution) exec.Kernel {
	u := b.Alias(v)
	u.Op = op.MatMul
	u.Attr = op.Attr{DType: v.Attr.DType, Body: v.Attr.Body, TransA: v.Op == op.ConvKernelGrad, TransB: v.Op == op.ConvInputGrad}
	if k.WindowSize == 1 && v.Op != op.ConvKernelGrad {
		return product.NewConv(b, u) // the single element of the window is broadcast
	}
	rows, depth := k.Batch*k.OutSize, k.WindowSize*k.channels
	x, w, y := op.Shape{rows, depth}, op.Shape{depth, k.outs}, op.Shape{rows, k.outs}
	shapes := map[op.Code][3]op.Shape{op.Conv: {x, w, y}, op.ConvInputGrad: {y, w, x}, op.ConvKernelGrad: {x, y, w}}[v.Op]
	u.Args = append([]*ir.Value{b.Alias(v.Args[0]), b.Alias(v.Args[1])}, v.Args[2:]...)
	u.Args[0].Type.Shape, u.Args[1].Type.Shape, u.Type.Shape = shapes[0], shapes[1], shapes[2]
	for i, a := range u.Args[2:] {
		u.Args[2+i] = b.Alias(a)
		u.Args[2+i].Type.Shape, _ = inProduct(v, a)
	}
	return product.NewConv(b, u)
}

// inProduct is the shape of an operand of the epilogue of v where v, with a window that
// covers all of the image or is one pixel, is a product of matrices with two axes. ok
// is false if it has none.
func inProduct(v, a *ir.Value) (s op.Shape, ok bool) {
	s = a.Type.Shape
	last, whole := len(s)-1, s.Size() == v.Type.Shape.Size()
	switch {
	case s.Size() == 1:
		return op.Shape{}, true
	case v.Op == op.Conv && last == len(v.Type.Shape)-1: // its axes of space are 1
		return op.Shape{s[0], s[last]}, true
	case v.Op == op.Conv, v.Op == op.ConvKernelGrad && s[:last].Size() == 1:
		return op.Shape{1, s[last]}, true
	case v.Op == op.ConvInputGrad && whole:
		return op.Shape{s[0], s[1:].Size()}, true
	case v.Op == op.ConvKernelGrad && (whole || last == len(v.Type.Shape)-1 && v.Type.Shape[:last-1].Size() == 1):
		return op.Shape{s[:last].Size(), s[last]}, true
	}
	return nil, false
}
