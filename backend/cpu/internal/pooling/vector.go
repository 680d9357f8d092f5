package pooling

import (
	"math"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Vector is pooling and its gradients in loops over channels that keep a window in
// registers. For means, and gradients that are sums, 16-bit floats are converted to
// float32 row by row. A unit of work is a row of windows, or an image if overlapping
// windows add to a gradient. The windows of a row that lie within the input are one
// call per 32 channels; those at its edges are one call each.
type Vector struct {
	*pooling[float32]
	set      *gemm.Set
	code     op.Code
	lo, hi   int  // windows [lo, hi) of a row lie within the input
	wide     bool // operands are converted
	element  gemm.Element
	bytes    int          // bytes of an element as loops read it
	give     gemm.Windows // scatters gradients of maxima
	covers   bool         // windows cover all pixels
	add      bool         // gradients of windows overlap and are added
	positive bool         // the epilogue is the gradient of a relu whose result was pooled
	chunks   int
	after    *elementwise.Epilogue // of a gradient whose windows do not overlap, or nil
	lineSize int                   // bytes of a row of the input as loops read it
	atGrads  int                   // offsets in scratch memory
	atLines  int
	atRow    int
	atMean   int
	atPlaces int
}

// vectorSet returns the routines for an operation, or nil. If bits must be portable, gradients of
// overlapping windows, whose sums have another order in vectors, have none.
func (k *pooling[T]) vectorSet(c op.Code) *gemm.Set {
	if c == op.MaxPool || c == op.AvgPool || k.disjoint() {
		return gemm.Native()
	}
	return gemm.Current()
}

// newVector returns the kernel of v, or nil if it has no assembly for the windows. The
// epilogue of a gradient whose windows overlap is left to pooledChain.
func newVector(b *exec.Builder, v *ir.Value, k *pooling[float32]) *Vector {
	set := k.vectorSet(v.Op)
	grad := v.Op == op.MaxPoolGrad || v.Op == op.AvgPoolGrad
	if set == nil || set.Depthwise == nil || k.channels == 0 || v.Op == op.MaxPoolGradGrad || grad && !k.disjoint() && 8*k.InSize*k.channels > imageBytes {
		return nil
	}
	c := &Vector{pooling: k, set: set, code: v.Op, element: gemm.ElementOf[k.dtype], bytes: 4}
	c.add = grad && !k.disjoint()
	c.positive = !c.add && ofPositive(v)
	follow := v.Attr.Body != nil && !c.add && !c.positive && 4*k.InSize*k.channels <= imageBytes
	average := v.Op == op.AvgPool || v.Op == op.AvgPoolGrad
	if c.wide = k.dtype != dtype.Float32 && (average || c.add || follow); c.wide {
		c.element = gemm.F32
	} else {
		c.bytes = k.dtype.Size()
	}
	switch {
	case c.add:
		c.give = set.MaxPoolGradAdd
	case c.positive:
		c.give = set.ReluMaxPoolGrad[c.element]
	default:
		c.give = set.MaxPoolGrad[c.element]
	}
	missing := false
	switch v.Op {
	case op.MaxPool:
		missing = set.MaxPool[c.element] == nil
	case op.MaxPoolGrad:
		missing = c.give == nil
	case op.AvgPoolGrad:
		missing = c.add && set.DepthwiseAdd == nil
	}
	if missing {
		return nil
	}
	k.rows = k.Batch * k.OutSize / k.Out[2]
	k.places = nil
	reach := (k.Size[2] - 1) * k.Dilation[2]
	c.lo = min(k.Out[2], tiling.CeilDiv(k.Low[2], k.Stride[2]))
	c.hi = c.lo
	for c.hi < k.Out[2] && c.hi*k.Stride[2]-k.Low[2]+reach < k.In[2] {
		c.hi++
	}
	c.chunks = tiling.CeilDiv(k.rows, max(1, min(k.rows/tiling.MinChunks, poolChunk*k.Out[1]/(k.In[1]*k.In[2]*k.channels*k.dtype.Size()))))
	if c.add {
		c.chunks = k.Batch
	}
	c.covers = k.Size == k.Stride && k.Low == [3]int{} && k.In[2] == k.Out[2]*k.Stride[2] && k.Dilation == [3]int{1, 1, 1}
	need := 0
	take := func(n int) int {
		at := need
		need += tiling.RoundUp(n, 64)
		return at
	}
	c.lineSize = c.bytes * k.In[2] * k.channels
	lines := k.Size[0] * k.Size[1]
	switch {
	case c.add:
		lines = k.In[0] * k.In[1]
	case follow: // also rows between those of windows
		for row := range k.Out[1] {
			from, to := c.inputRows(row)
			lines = max(lines, to-from)
		}
	}
	if c.wide {
		c.atLines = take(lines * c.lineSize)
	}
	if grad && (c.wide || follow) {
		c.atGrads = take(lines * c.lineSize)
	}
	if c.wide {
		c.atRow = take(4 * k.Out[2] * k.channels)
	}
	c.atMean = take(4 * window.VectorChannels)
	c.atPlaces = take(24 * k.WindowSize) // pairs, and lines
	b.ReserveScratch(need)
	if follow {
		c.after = elementwise.NewEpilogue(b, v, 2, k.channels)
		c.after.Place(b, need, 0)
	}
	return c
}

const (
	imageBytes = 64 << 20 // most bytes of an image and its gradient in float32
	poolChunk  = 64 << 10 // about the bytes of the input per chunk, in consecutive rows
)

func (k *Vector) Run(r *exec.Run) {
	r.Parallel(k, k.chunks, k.Batch*k.OutSize*k.WindowSize*k.channels)
}

// Cuts implements exec.BatchTiled.
func (k *Vector) Cuts() (images, pieces, chunks int) {
	if k.add {
		return 0, 0, 0
	}
	return k.Batch, k.Batch, k.Batch
}

// Share implements exec.BatchTiled.
func (k *Vector) Share(base int) int { return base }

// Begin implements exec.BatchTiled.
func (k *Vector) Begin(*exec.Run) {}

// Piece implements exec.BatchTiled.
func (k *Vector) Piece(r *exec.Run, w *exec.Worker, i, pieces, shift int) {
	first, end := tiling.Cut(i, pieces, k.Batch)
	n := k.Out[0] * k.Out[1]
	if k.code == op.MaxPool || k.code == op.AvgPool { // its result is not the first kernel's
		shift = 0
	}
	for row := first * n; row < end*n; row++ {
		k.windowRow(r, w, row, shift*k.In[0]*k.In[1])
	}
}

// End implements exec.BatchTiled.
func (k *Vector) End(*exec.Run) {}

// poolRow is a row of windows: the rows of the input that it reads, and their
// addresses.
type poolRow struct {
	x, d, y unsafe.Pointer // the input, its gradient, and the windows
	count   int            // rows that exist
}

func (k *Vector) Chunk(r *exec.Run, w *exec.Worker, i int) {
	if !k.add {
		for row, end := tiling.Cut(i, k.chunks, k.rows); row < end; row++ {
			k.windowRow(r, w, row, 0)
		}
		return
	}
	size, n := k.dtype.Size(), k.InSize*k.channels
	to := r.Values[k.dst][i*n*size:][:n*size]
	var grads []float32
	if !k.wide {
		grads = dtype.View[float32](to)
	} else {
		grads = lanes.ViewOf[float32](w.Scratch[k.atGrads:], n)
		if k.code == op.MaxPoolGrad {
			lanes.ToF32(lanes.ViewOf[float32](w.Scratch[k.atLines:], n), r.Values[k.x][i*n*size:][:n*size], k.dtype)
		}
	}
	clear(grads)
	rows := k.Out[0] * k.Out[1]
	for row := range rows {
		k.windowRow(r, w, i*rows+row, 0)
	}
	if k.wide {
		lanes.FromF32(to, grads, k.dtype)
	}
}

// windowRow computes a row of windows. The rows of a gradient lie earlier rows before
// their usual place.
func (k *Vector) windowRow(r *exec.Run, w *exec.Worker, row, earlier int) {
	grad := k.code == op.MaxPoolGrad || k.code == op.AvgPoolGrad
	n := k.Out[2] * k.channels
	size := k.dtype.Size()
	var p poolRow
	input, windows := k.x, k.dst
	switch k.code {
	case op.MaxPoolGrad:
		windows = k.y
	case op.AvgPoolGrad:
		input, windows = k.dst, k.x
	}
	line := r.Values[windows][row*n*size:][:n*size]
	p.y = unsafe.Pointer(&line[0])
	var rows []float32
	if k.wide {
		rows = lanes.ViewOf[float32](w.Scratch[k.atRow:], n)
		p.y = unsafe.Pointer(&rows[0])
		if grad {
			lanes.ToF32(rows, line, k.dtype)
		}
	}
	from, to := k.inputRows(row)
	if grad && !k.add && k.after == nil {
		k.clearBetween(r, from, to, earlier)
	}
	// Addresses of the lines: in the operands, or in scratch memory.
	lines := lanes.ViewOf[int64](w.Scratch[k.atPlaces+16*k.WindowSize:], k.WindowSize)
	first := 0 // of lines
	if k.wide {
		p.x, p.d = unsafe.Pointer(&w.Scratch[k.atLines]), unsafe.Pointer(&w.Scratch[k.atGrads])
	}
	if k.after != nil {
		p.d = unsafe.Pointer(&w.Scratch[k.atGrads])
		if !k.wide && from < to {
			p.x = unsafe.Pointer(&r.Values[input][from*k.lineSize])
		}
		if !k.fills(from, to) {
			clear(w.Scratch[k.atGrads:][:(to-from)*k.lineSize])
		}
	}
	k.eachLine(row, func(_, line int) {
		switch {
		case k.after != nil:
			at := (line - from) * k.lineSize
			lines[p.count] = int64(at)
			if k.wide && k.code == op.MaxPoolGrad {
				lanes.ToF32(lanes.ViewOf[float32](w.Scratch[k.atLines+at:], k.lineSize/4), k.row(r, input, line), k.dtype)
			}
		case !k.wide:
			if p.count == 0 {
				first = line
			}
			lines[p.count] = int64((line - first) * k.lineSize)
		case k.add:
			lines[p.count] = int64(line % (k.In[0] * k.In[1]) * k.lineSize)
		default:
			at := p.count * k.lineSize
			lines[p.count] = int64(at)
			if k.code != op.AvgPoolGrad {
				lanes.ToF32(lanes.ViewOf[float32](w.Scratch[k.atLines+at:], k.lineSize/4), k.row(r, input, line), k.dtype)
			}
			if grad {
				clear(w.Scratch[k.atGrads+at:][:k.lineSize])
			}
		}
		p.count++
	})
	if !k.wide && k.after == nil && p.count > 0 {
		p.x = unsafe.Pointer(&r.Values[input][first*k.lineSize])
		if p.d = p.x; grad {
			p.d = unsafe.Pointer(&r.Values[k.dst][(first-earlier)*k.lineSize])
		}
	}
	for ox := 0; ox < k.Out[2]; {
		end := ox + 1
		if ox == k.lo && k.hi > k.lo {
			end = k.hi
		}
		k.windows(w, &p, lines, ox, end)
		ox = end
	}
	if k.after != nil {
		if n := (to - from) * k.lineSize; n > 0 {
			k.after.Apply(r, w, from*k.lineSize/4, n/4, 0, w.Scratch[k.atGrads:][:n])
		}
		return
	}
	if !k.wide || k.add {
		return
	}
	if !grad {
		lanes.FromF32(line, rows, k.dtype)
		return
	}
	i := 0
	k.eachLine(row, func(_, line int) {
		lanes.FromF32(k.row(r, k.dst, line-earlier), lanes.ViewOf[float32](w.Scratch[k.atGrads+i*k.lineSize:], k.lineSize/4), k.dtype)
		i++
	})
}

// row returns a row of pixels of the input, or of its gradient.
func (k *Vector) row(r *exec.Run, pos, line int) []byte {
	n := k.In[2] * k.channels * k.dtype.Size()
	return r.Values[pos][line*n : (line+1)*n]
}

// inputRows returns the rows of the input from a row of windows to the next, over all
// images; rows before an image's first windows belong to these.
func (k *Vector) inputRows(row int) (from, to int) {
	image, _, oy := window.SplitRow(row, k.Out)
	from, to = 0, k.In[1]
	if oy > 0 {
		from = oy*k.Stride[1] - k.Low[1]
	}
	if oy < k.Out[1]-1 {
		to = (oy+1)*k.Stride[1] - k.Low[1]
	}
	from = min(max(0, from), k.In[1])
	return image*k.In[1] + from, image*k.In[1] + max(from, min(to, k.In[1]))
}

// fills reports whether windows cover all pixels of the rows that they own.
func (k *Vector) fills(from, to int) bool { return k.covers && to-from == k.Size[1] }

// clearBetween clears rows of the gradient that windows do not fill.
func (k *Vector) clearBetween(r *exec.Run, from, to, earlier int) {
	if k.fills(from, to) {
		return
	}
	n := k.In[2] * k.channels * k.dtype.Size()
	clear(r.Values[k.dst][(from-earlier)*n : (to-earlier)*n])
}

// here is the offsets of a pixel and of its factor.
var here [2]int64

// windows computes windows from to to-1 of a row, which all have the same elements
// within the input.
func (k *Vector) windows(w *exec.Worker, p *poolRow, lines []int64, from, to int) {
	pixel := k.bytes * k.channels
	first, end := 0, k.Size[2] // elements of a row of the window
	for first < end {
		if _, ok := k.At(2, from, first); ok {
			break
		}
		first++
	}
	for end > first {
		if _, ok := k.At(2, from, end-1); ok {
			break
		}
		end--
	}
	n := to - from
	y, step := unsafe.Add(p.y, from*pixel), k.Stride[2]*pixel
	taps := p.count * (end - first)
	if taps == 0 {
		switch k.code {
		case op.MaxPool:
			k.fill(y, n*k.channels, math.Inf(-1))
		case op.AvgPool:
			k.fill(y, n*k.channels, math.NaN())
		}
		return
	}
	x0, _ := k.At(2, from, first)
	x, d := unsafe.Add(p.x, x0*pixel), p.d
	if k.code == op.MaxPoolGrad || k.code == op.AvgPoolGrad { // d is as large as x
		d = unsafe.Add(d, x0*pixel)
	}
	mean := lanes.ViewOf[float32](w.Scratch[k.atMean:], window.VectorChannels)
	if k.code == op.AvgPool || k.code == op.AvgPoolGrad {
		for i := range mean {
			mean[i] = 1 / float32(taps)
		}
	}
	places := k.placesOf(w, lines[:p.count], end-first)
	at := unsafe.Pointer(&places[0])
	for c := 0; c < k.channels; c += window.VectorChannels {
		mask := uint(1)<<min(window.VectorChannels, k.channels-c) - 1
		x, y, d := unsafe.Add(x, k.bytes*c), unsafe.Add(y, k.bytes*c), unsafe.Add(d, k.bytes*c)
		switch k.code {
		case op.MaxPool:
			k.set.MaxPool[k.element](n, taps, at, x, step, nil, 0, y, pixel, mask)
		case op.MaxPoolGrad:
			k.give(n, taps, at, x, step, y, pixel, d, step, mask)
		case op.AvgPool:
			k.set.Depthwise(n, taps, at, x, step, unsafe.Pointer(&mean[0]), 0, y, pixel, mask)
		case op.AvgPoolGrad:
			give := k.set.Depthwise
			if k.add {
				give = k.set.DepthwiseAdd
			}
			for i := range taps {
				give(n, 1, unsafe.Pointer(&here[0]), y, pixel, unsafe.Pointer(&mean[0]), 0, unsafe.Add(d, places[2*i]), step, mask)
			}
		}
	}
}

// fill sets n elements, as loops write them, to x.
func (k *Vector) fill(to unsafe.Pointer, n int, x float64) {
	d := dtype.Float32
	if !k.wide {
		d = k.dtype
	}
	one := [1]float64{x}
	for i := range n {
		dtype.FromF64(unsafe.Slice((*byte)(unsafe.Add(to, i*k.bytes)), k.bytes), one[:], d)
	}
}

// ofPositive reports whether the epilogue of the pooling gradient v is the gradient of
// a relu whose result was pooled: it passes where that result is above 0.
func ofPositive(v *ir.Value) bool {
	body := v.Attr.Body
	if v.Op != op.MaxPoolGrad || body == nil || len(body.Code) != 2 || body.Code[0].Op != op.Greater || body.Code[1].Op != op.Where {
		return false
	}
	// The epilogue's operands from 1 on are v's arguments from the third on.
	zero := func(i int32) bool {
		a := v.Args[i+1]
		return a.Op == op.Const && a.Attr.Data == nil && a.Attr.Value == 0 && !math.Signbit(a.Attr.Value)
	}
	positive, chosen := body.Code[0].Args, body.Code[1].Args
	comparison := int32(len(body.Inputs)) // index of its result
	return positive[0] > 0 && v.Args[positive[0]+1] == v.Args[0] && positive[1] > 0 && zero(positive[1]) &&
		chosen[0] == comparison && chosen[1] == 0 && chosen[2] > 0 && chosen[2] < comparison && zero(chosen[2]) && v.Type.DType == v.Args[0].Type.DType
}

// placesOf returns the offsets of a window's elements from its first pixel, n of each
// row. Each is followed by 0, the offset of the factor of means, unless only the
// largest is needed.
func (k *Vector) placesOf(w *exec.Worker, lines []int64, n int) []int64 {
	at := lanes.ViewOf[int64](w.Scratch[k.atPlaces:], 2*k.WindowSize)[:0]
	for _, line := range lines {
		for kx := range n {
			at = append(at, line+int64(kx*k.Dilation[2]*k.bytes*k.channels))
			if k.code == op.AvgPool || k.code == op.AvgPoolGrad {
				at = append(at, 0)
			}
		}
	}
	return at
}

// HasEpilogue reports whether the pooling has an epilogue.
func (k *Vector) HasEpilogue() bool { return k.after != nil }
