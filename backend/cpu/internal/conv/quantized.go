package conv

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// quantizedConv is op.QuantizedConv by implicit GEMM on 8-bit integers. A chunk is some rows
// of an image of the result. It quantizes the rows of the input that they need, with the
// padding around them, to bytes in scratch memory. There the elements of a window are a few
// runs of bytes, one for each tap, and windows of a row are a constant number of bytes
// apart, so that micro-kernels read them in place. Sums in int32 are rescaled and go
// through the epilogue while they are in the cache, and with Attr.Requantize become bytes
// again there. The input may be such bytes.
//
// A panel has 32 columns, which kernels compute in groups. If two pixels of the result fit into
// a group, its columns are those of several pixels side by side: their windows are one window
// that is a little wider, whose kernels have zeros where another pixel's window is.
type quantizedConv struct {
	convolution
	set                 *gemm.Bytes
	scales, scale, zero int // positions of the kernels' scales, the input's scale and its zero point
	requantize          bool
	outScale, outZero   int // positions of the result's scale and zero point

	taps        []int    // offsets of the runs of a window, in elements
	tapBytes    []int    // the same in bytes
	runs        [][3]int // their first elements
	run         int      // elements of a run
	whole       bool     // runs are whole rows of a window, and not single elements
	deep        int      // of all runs, each padded to what kernels take
	side        int      // pixels side by side in a panel
	apart       int      // elements from one row of windows to the next: of side pixels
	panels      int      // of a group
	panelBytes  int
	place       int // of the packed kernels in Run.Packed
	keep        bool
	padded      [3]int // size of the quantized part of the input, of a whole image
	pitch       int    // elements of a row of it
	rows        int    // of the result, in a chunk
	wide        int    // bytes of a staged element
	strip       int    // pixels whose sums are computed before they are stored
	ld          int    // of the sums
	period      int    // elements of rescales and of biases
	bias        int    // position of the bias if it is all of the epilogue but perhaps for a ReLU, or -1
	relu        bool
	atSums      int // in scratch memory
	atFloats    int
	atPixels    int
	pack, slide quantizedPass
}

// quantizedPass is one of the passes over a convolution.
type quantizedPass struct {
	*quantizedConv
	chunk func(*quantizedConv, *exec.Run, *exec.Worker, int)
}

func (p *quantizedPass) Chunk(r *exec.Run, w *exec.Worker, i int) { p.chunk(p.quantizedConv, r, w, i) }

const (
	quantizedStage = 1 << 17 // bytes of quantized rows of the input in a chunk, about
	quantizedSums  = 1 << 13 // elements of a strip, about
	quantizedChunk = 1 << 18 // multiplications of a chunk that is not worth cutting
)

// NewQuantized makes the kernel of an op.QuantizedConv.
func NewQuantized(b *exec.Builder, v *ir.Value) exec.Kernel {
	k := &quantizedConv{
		convolution: newConvolution(b, v),
		scales:      b.At(v.Args[2]), scale: b.At(v.Args[3]), zero: b.At(v.Args[4]),
	}
	if k.to = v.Attr.DType; k.to == dtype.Invalid {
		k.to = k.from
	}
	if k.requantize = v.Attr.Requantize; k.requantize {
		n := len(v.Args) - 2
		k.outScale, k.outZero = b.At(v.Args[n]), b.At(v.Args[n+1])
	}
	k.side, k.wide = 1, 1
	if k.depthwise() && k.WindowSize <= exactWindow {
		d := newQuantizedDepthwise(b, v, k)
		chosen(b, v, d)
		return d
	}
	k.regroup(gemm.AllBytes()[0].MR())
	k.set, k.side = k.bytes()
	k.wide = k.set.Size()
	k.layTaps()
	k.deep = len(k.taps) * tiling.RoundUp(max(k.run, 1), k.set.Deep)
	k.apart = k.side * k.Stride[2] * k.channels
	k.panels = tiling.CeilDiv(k.side*k.outsPerGroup, gemm.ByteColumns)
	k.panelBytes = k.set.PanelBytes(k.deep)
	k.place = b.ReservePacked(k.groups * k.panels * k.panelBytes)
	k.keep = backend.Keeps(backend.PackedOperands) && b.ReadOnly(v.Args[1]) && b.ReadOnly(v.Args[4])
	k.cut()
	k.tapBytes = k.offsets()

	k.ld = k.groups * tiling.RoundUp(k.side*k.outsPerGroup, k.set.Group)
	k.period = k.outs * max(512/max(k.outs, 1), 1)
	b.ReserveShared(2 * 4 * k.period)
	k.bias, k.relu = biasOf(b, v)
	var scratch tiling.Layout
	k.atPixels = scratch.Take(k.wide*(k.staged(k.rows)+k.set.MR()*k.apart+k.run+k.set.Deep) + 64)
	k.atSums = scratch.Take(4 * (k.strip + k.set.MR()*k.side) * tiling.CeilDiv(k.ld, k.side))
	k.atFloats = scratch.Take(4 * max(k.strip*k.outs, lanes.Block))
	k.addEpilogue(b, v, int(scratch), k.strip*k.outs)
	k.pack, k.slide = quantizedPass{k, (*quantizedConv).packPanel}, quantizedPass{k, (*quantizedConv).rowsOf}
	chosen(b, v, k)
	return k
}

// chosen notes the kernel of v for MEZZO_DEBUG=plan.
func chosen(b *exec.Builder, v *ir.Value, k exec.Kernel) {
	if b.Choices == nil {
		b.Choices = map[int]exec.Choice{}
	}
	b.Choices[b.At(v)] = exec.Choice{Algorithm: "int8", Kernel: k}
}

const (
	tileRows    = 12  // windows in a row below which most of a tile register would be empty
	pixelsOfRow = 256 // the most of a row that regroup makes
	wideReads   = 8   // windows below which panels of int16 are read too seldom
)

// regroup cuts the pixels of all images into other rows if windows are single pixels, which
// have no neighbours: into rows that are multiples of mr, or waste less of the last kernel's
// rows, and are long, since a row reads all panels.
func (k *quantizedConv) regroup(mr int) {
	if k.WindowSize != 1 || k.Stride != [3]int{1, 1, 1} || k.Low != [3]int{} || k.In != k.Out {
		return
	}
	total := k.Batch * k.OutSize
	kernels := func(row int) int { return total / row * tiling.CeilDiv(row, mr) }
	best := max(k.Out[2], 1)
	for row := 1; row <= min(max(total/tiling.MinChunks, mr), pixelsOfRow); row++ {
		if total%row == 0 && (kernels(row) < kernels(best) || kernels(row) == kernels(best) && row > best) {
			best = row
		}
	}
	k.Batch, k.OutSize = 1, total
	k.Out = [3]int{1, total / best, best}
	k.In, k.InSize = k.Out, total
}

// bytes returns the kernels of the level in use for the convolution, and the pixels side by
// side in a panel.
func (k *quantizedConv) bytes() (set *gemm.Bytes, side int) {
	for _, set = range gemm.AllBytes() {
		side = 1
		if k.groups == 1 {
			side = max(min(set.Group/max(k.outs, 1), k.Out[2]), 1)
		}
		if set.Begin != nil && tiling.CeilDiv(k.Out[2], side) < tileRows || set.Widen != nil && k.Batch*k.OutSize < wideReads {
			continue
		}
		break
	}
	return set, side // the last one is portable
}

// addEpilogue makes what follows the convolution, if anything does.
func (k *quantizedConv) addEpilogue(b *exec.Builder, v *ir.Value, scratch, most int) {
	b.ReserveScratch(scratch)
	if k.requantize { // the result of the epilogue stays in scratch memory
		v = b.Alias(v)
		v.Args, v.Slot = v.Args[:len(v.Args)-2], ir.Slot{}
	}
	if k.after = elementwise.NewEpilogue(b, v, v.Op.Info().Args, k.outs); k.after != nil {
		k.after.Place(b, scratch, most)
	}
}

// layTaps finds the runs of bytes of a window, where rows of the quantized input have the
// size that all windows need.
func (k *quantizedConv) layTaps() {
	for i := range k.padded {
		k.padded[i] = max((k.Out[i]-1)*k.Stride[i]+(k.Size[i]-1)*k.Dilation[i]+1, 0)
	}
	across := k.Size[2]
	k.run = k.perGroup
	if k.whole = k.groups == 1 && (k.Dilation[2] == 1 || k.side > 1); k.whole {
		k.run = ((k.Size[2]-1)*k.Dilation[2] + 1 + (k.side-1)*k.Stride[2]) * k.channels
		across = 1
	}
	k.pitch = k.padded[2] * k.channels
	for z := range k.Size[0] {
		for y := range k.Size[1] {
			for x := range across {
				k.runs = append(k.runs, [3]int{z, y, x})
			}
		}
	}
	k.taps = make([]int, len(k.runs)) // offsets depend on the rows of a chunk: see cut
}

// cut chooses the rows of a chunk and the pixels of a strip.
func (k *quantizedConv) cut() {
	rows := k.Out[1]
	for rows > 1 {
		chunks := max(k.Batch*k.Out[0]*tiling.CeilDiv(k.Out[1], rows), 1)
		if k.wide*k.staged(rows) <= quantizedStage && (chunks >= tiling.MinChunks || k.macs()/chunks <= quantizedChunk) {
			break
		}
		rows = tiling.CeilDiv(rows, 2)
	}
	k.rows = max(rows, 1)
	k.strip = min(tiling.RoundUp(max(quantizedSums/max(k.outs, 1), 1), k.side*k.set.MR()), tiling.RoundUp(max(k.Out[2], 1), k.side))
	for i, r := range k.runs {
		k.taps[i] = (r[0]*k.height(k.rows)*k.Dilation[0]+r[1]*k.Dilation[1])*k.pitch + r[2]*k.Dilation[2]*k.channels
	}
}

// offsets returns the taps in bytes.
func (k *quantizedConv) offsets() []int {
	all := slices.Clone(k.taps)
	for i := range all {
		all[i] *= k.wide
	}
	return all
}

// height is the rows of the input that some rows of the result need.
func (k *quantizedConv) height(rows int) int {
	return (rows-1)*k.Stride[1] + (k.Size[1]-1)*k.Dilation[1] + 1
}

// staged is the elements of the input that some rows of the result need.
func (k *quantizedConv) staged(rows int) int {
	return ((k.Size[0]-1)*k.Dilation[0] + 1) * k.height(rows) * k.pitch
}

// String describes the kernel for MEZZO_DEBUG=plan.
func (k *quantizedConv) String() string {
	side := ""
	if k.side > 1 {
		side = fmt.Sprintf(" of %d pixels", k.side)
	}
	return fmt.Sprintf("%s, %d runs of %d elements, chunks of %d rows, %d panels%s", k.set.Algorithm, len(k.taps), k.run, k.rows, k.groups*k.panels, side)
}

// Run computes the convolution.
func (k *quantizedConv) Run(r *exec.Run) {
	if k.Batch*k.OutSize*k.outs == 0 {
		return
	}
	k.fillBiases(r)
	if _, good := r.PackedMemory(k.place, k.keep, k.b, k.zero); !good {
		r.Parallel(&k.pack, k.groups*k.panels, k.groups*k.panels*k.panelBytes)
	}
	k.fillRescales(r)
	// A multiplication takes a small part of an element operation's time.
	r.Parallel(&k.slide, k.Batch*k.Out[0]*tiling.CeilDiv(k.Out[1], k.rows), k.macs()/16+k.Batch*k.OutSize*k.outs)
}

// fillRescales computes the factors of sums, and repeats them.
func (k *quantizedConv) fillRescales(r *exec.Run) {
	rescales, scales, scale := k.rescales(r), lanes.ViewOf[float32](r.Values[k.scales], k.outs), k.inputScale(r)
	for i, s := range scales {
		rescales[i] = 1 / (s * scale)
	}
	repeatFirst(rescales, k.outs)
}

// repeatFirst repeats the first n elements.
func repeatFirst(x []float32, n int) {
	for ; n > 0 && n < len(x); n *= 2 {
		copy(x[n:], x[:n])
	}
}

func (k *quantizedConv) rescales(r *exec.Run) []float32 {
	return lanes.ViewOf[float32](r.Shared, k.period)
}

func (k *quantizedConv) inputScale(r *exec.Run) float32 {
	return lanes.ViewOf[float32](r.Values[k.scale], 1)[0]
}

func (k *quantizedConv) zeroPoint(r *exec.Run) int32 { return int32(int8(r.Values[k.zero][0])) }

// packPanel packs panel i, one of a group.
func (k *quantizedConv) packPanel(r *exec.Run, _ *exec.Worker, i int) {
	group, first := i/k.panels, i%k.panels*gemm.ByteColumns
	dst := r.Packed[k.place].Data[i*k.panelBytes:][:k.panelBytes]
	clear(dst)
	start := lanes.ViewOf[int32](dst, gemm.ByteColumns)
	w := lanes.ViewOf[int8](r.Values[k.b], k.WindowSize*k.perGroup*k.outs)
	zero := k.zeroPoint(r) + int32(k.set.Offset)
	columns := min(gemm.ByteColumns, k.side*k.outsPerGroup-first)
	for t, run := range k.runs {
		at := t * k.deep / len(k.taps) // of the run
		elements := 1
		if k.whole {
			elements = k.Size[2]
		}
		for e := range elements {
			x := run[2] + e
			tap := ((run[0]*k.Size[1]+run[1])*k.Size[2] + x) * k.perGroup * k.outs
			for c := range k.perGroup {
				kernels := w[tap+c*k.outs+group*k.outsPerGroup:]
				for j := range columns {
					pixel, o := (first+j)/k.outsPerGroup, (first+j)%k.outsPerGroup
					p := at + c
					if k.whole {
						p += (e*k.Dilation[2] + pixel*k.Stride[2]) * k.channels
					}
					k.set.SetPanel(dst, k.set.PanelIndex(k.deep, p, j), kernels[o])
					start[j] -= zero * int32(kernels[o])
				}
			}
		}
	}
}

// chunkOf returns the rows of chunk i: their image, plane, first row and number.
func (k *quantizedConv) chunkOf(i int) (image, z, first, rows int) {
	parts := tiling.CeilDiv(k.Out[1], k.rows)
	first = i % parts * k.rows
	return i / parts / k.Out[0], i / parts % k.Out[0], first, min(k.rows, k.Out[1]-first)
}

// rowsOf computes the rows of chunk i.
func (k *quantizedConv) rowsOf(r *exec.Run, w *exec.Worker, i int) {
	image, z, first, rows := k.chunkOf(i)
	k.stage(r, w, image, z, first)
	if k.set.Begin != nil {
		k.set.Begin()
		defer k.set.End()
	}
	for y := range rows {
		pixel := ((image*k.Out[0]+z)*k.Out[1] + first + y) * k.Out[2]
		for x := 0; x < k.Out[2]; x += k.strip {
			n := min(k.strip, k.Out[2]-x)
			k.sums(r, w, y*k.Stride[1]*k.pitch+x*k.Stride[2]*k.channels, n)
			k.store(r, w, pixel+x, n)
		}
	}
}

// eachStaged calls f for the rows of the input that the rows of a chunk need: where the row
// lies in scratch memory, in elements, which of its elements lie in the input, and where
// these begin there. Planes are as high as those of k.rows rows.
func (k *quantizedConv) eachStaged(image, z, first int, f func(row, lo, hi, at int)) {
	lo, hi := max(k.Low[2], 0), min(k.padded[2], k.In[2]+k.Low[2])
	lo, hi = min(lo, k.padded[2])*k.channels, max(min(lo, k.padded[2]), hi)*k.channels
	height := k.height(k.rows)
	for pz := range (k.Size[0]-1)*k.Dilation[0] + 1 {
		inZ := z*k.Stride[0] + pz - k.Low[0]
		for py := range height {
			row := (pz*height + py) * k.pitch
			inY := first*k.Stride[1] + py - k.Low[1]
			if inZ < 0 || inZ >= k.In[0] || inY < 0 || inY >= k.In[1] || lo == hi {
				f(row, 0, 0, 0)
				continue
			}
			f(row, lo, hi, ((image*k.In[0]+inZ)*k.In[1]+inY)*k.In[2]*k.channels+lo-k.Low[2]*k.channels)
		}
	}
}

// stage quantizes what the rows of a chunk need of the input.
func (k *quantizedConv) stage(r *exec.Run, w *exec.Worker, image, z, first int) {
	scale, zero := k.inputScale(r), k.zeroPoint(r)
	padding, size := byte(zero+int32(k.set.Offset)), k.from.Size()
	k.eachStaged(image, z, first, func(row, lo, hi, at int) {
		to := w.Scratch[k.atPixels+k.wide*row:][:k.wide*k.pitch]
		k.pad(to[:k.wide*lo], padding)
		k.pad(to[k.wide*hi:], padding)
		to = to[k.wide*lo : k.wide*hi]
		bytes := to[len(to)-(hi-lo):] // which are widened where they are
		switch {
		case lo == hi:
			return
		case k.from == dtype.Int8 && k.set.Widen != nil:
			bytes = r.Values[k.a][at:][:hi-lo]
		case k.from == dtype.Int8:
			copyBytes(to, r.Values[k.a][at:], k.set.Offset)
		default:
			k.quantize(w, bytes, r.Values[k.a][at*size:], scale, zero, k.set.Offset)
		}
		if k.set.Widen != nil {
			k.set.Widen(to, bytes)
		}
	})
}

// pad fills staged elements with what stands for 0.
func (k *quantizedConv) pad(to []byte, x byte) {
	all := uint64(x) * 0x0101010101010101
	if k.set.Widen != nil {
		all = uint64(uint16(int8(x))) * 0x0001000100010001
	}
	for len(to) >= 8 {
		binary.LittleEndian.PutUint64(to, all)
		to = to[8:]
	}
	for i := range to {
		to[i] = byte(all >> (8 * i))
	}
}

// quantize quantizes elements of x and adds an offset.
func (k *quantizedConv) quantize(w *exec.Worker, to, x []byte, scale float32, zero int32, offset int) {
	low, high, z := float32(-128-zero), float32(127-zero), zero+int32(offset)
	if k.from == dtype.Float32 {
		lanes.Quantize(to, lanes.ViewOf[float32](x, len(to)), scale, low, high, z)
		return
	}
	buffer, size := lanes.ViewOf[float32](w.Scratch[k.atFloats:], lanes.Block), k.from.Size()
	for at := 0; at < len(to); at += lanes.Block {
		n := min(lanes.Block, len(to)-at)
		lanes.ToF32(buffer[:n], x[at*size:(at+n)*size], k.from)
		lanes.Quantize(to[at:at+n], buffer[:n], scale, low, high, z)
	}
}

// copyBytes copies elements of x, int8, and adds an offset, 0 or 128, to each.
func copyBytes(to, x []byte, offset int) {
	if offset == 0 {
		copy(to, x)
		return
	}
	const signs = 0x8080808080808080
	x = x[:len(to)]
	i := 0
	for ; i+32 <= len(to); i += 32 {
		a, b := (*[4]uint64)(unsafe.Pointer(&x[i])), (*[4]uint64)(unsafe.Pointer(&to[i]))
		b[0], b[1], b[2], b[3] = a[0]^signs, a[1]^signs, a[2]^signs, a[3]^signs
	}
	for ; i+8 <= len(to); i += 8 {
		*(*uint64)(unsafe.Pointer(&to[i])) = *(*uint64)(unsafe.Pointer(&x[i])) ^ signs
	}
	for ; i < len(to); i++ {
		to[i] = x[i] ^ 0x80
	}
}

// sums computes the sums of n pixels whose first window lies at some offset of the
// quantized input.
func (k *quantizedConv) sums(r *exec.Run, w *exec.Worker, offset, n int) {
	packed := r.Packed[k.place].Data
	for p := range k.groups * k.panels { // which a small cache holds
		group, first := p/k.panels, p%k.panels*gemm.ByteColumns
		for at, rows := 0, 0; at < n; at += rows * k.side {
			var kernel gemm.BytesKernel
			kernel, rows = k.take(tiling.CeilDiv(n-at, k.side))
			a := unsafe.Pointer(&w.Scratch[k.atPixels+k.wide*(offset+at*k.Stride[2]*k.channels+group*k.perGroup)])
			d := unsafe.Pointer(&w.Scratch[k.atSums+4*(at/k.side*k.ld+group*(k.ld/k.groups)+first)])
			kernel(unsafe.Pointer(&k.tapBytes[0]), len(k.taps), k.deep/len(k.taps)/4, a, k.wide*k.apart, unsafe.Pointer(&packed[p*k.panelBytes]), d, 4*k.ld, min(k.side*k.outsPerGroup-first, gemm.ByteColumns))
		}
	}
}

// take returns the kernel for the next of n rows of windows. What lies behind them may be
// read, and their sums are dropped.
func (k *quantizedConv) take(n int) (gemm.BytesKernel, int) {
	all := k.set.Rows
	for rows, f := range all {
		if f != nil && (rows >= n || rows == len(all)-1) {
			return f, rows
		}
	}
	panic("unreachable")
}

// biasOf returns the position of the bias of v, a QuantizedConv with Attr.Requantize, if its
// epilogue is one sum with a vector, and perhaps a ReLU; -1 otherwise.
func biasOf(b *exec.Builder, v *ir.Value) (at int, relu bool) {
	body, outs := v.Attr.Body, v.Type.Shape[len(v.Type.Shape)-1]
	if !v.Attr.Requantize || body == nil || len(body.Inputs) != 2 || body.Inputs[0] != dtype.Float32 || body.Inputs[1] != dtype.Float32 {
		return -1, false
	}
	x := v.Args[v.Op.Info().Args]
	s := x.Type.Shape
	sum := body.Code[0]
	relu = len(body.Code) == 2 && body.Code[1].Op == op.Relu && body.Code[1].DType == dtype.Float32 && body.Code[1].Args[0] == 2
	switch {
	case len(body.Code) > 1 && !relu, sum.Op != op.Add, sum.DType != dtype.Float32, min(sum.Args[0], sum.Args[1]) != 0, max(sum.Args[0], sum.Args[1]) != 1:
		return -1, false
	case len(s) == 0, s.Size() != outs, s[len(s)-1] != outs:
		return -1, false
	}
	return b.At(x), relu
}

// fillBiases repeats the bias in shared memory.
func (k *quantizedConv) fillBiases(r *exec.Run) {
	if k.bias < 0 {
		return
	}
	to := k.biases(r)
	repeatFirst(to, copy(to, lanes.ViewOf[float32](r.Values[k.bias], k.outs)))
}

func (k *quantizedConv) biases(r *exec.Run) []float32 {
	return lanes.ViewOf[float32](r.Shared[4*k.period:], k.period)
}

// storeAtOnce quantizes the sums of n pixels, int32 or exact in float32, in one loop, and reports
// whether it can. A ReLU is a lower bound of 0, which NaN becomes, too, so the zero point must be
// the integer that NaN becomes without.
func (k *quantizedConv) storeAtOnce(r *exec.Run, w *exec.Worker, pixel, n int, exact bool) bool {
	set := vec.Current()
	if k.bias < 0 || set == nil {
		return false
	}
	scale, zero := k.outQuantization(r)
	low, high := float32(-128-zero), float32(127-zero)
	if k.relu && !(low == 0 && scale > 0 && scale <= math.MaxFloat32) {
		return false
	}
	rescales, biases := k.rescales(r), k.biases(r)
	dst := r.Values[k.dst][pixel*k.outs:][:n*k.outs]
	k.eachRun(len(dst), func(at, to, sums, channel int) {
		x := w.Scratch[k.atSums+4*sums:]
		if exact {
			set.RequantizeF32(dst[at:to], lanes.ViewOf[float32](x, to-at), rescales[channel:], biases[channel:], scale, low, high, zero)
			return
		}
		set.RequantizeI32(dst[at:to], lanes.ViewOf[int32](x, to-at), rescales[channel:], biases[channel:], scale, low, high, zero)
	})
	return true
}

// store rescales the sums of n pixels and stores them, or what follows.
func (k *quantizedConv) store(r *exec.Run, w *exec.Worker, pixel, n int) {
	if k.requantize && k.storeAtOnce(r, w, pixel, n, false) {
		return
	}
	values, product := k.valuesOf(r, w, pixel, n)
	k.rescale(r, w, values)
	k.storeValues(r, w, pixel*k.outs, values, product)
}

// valuesOf returns the memory for the sums of n pixels times their scales, and the same as
// the operand of the epilogue if there is one.
func (k *quantizedConv) valuesOf(r *exec.Run, w *exec.Worker, pixel, n int) (values []float32, product []byte) {
	elements := n * k.outs
	switch {
	case k.after != nil:
		product = k.after.Rows(w, elements)
		return lanes.ViewOf[float32](product, elements), product
	case k.to == dtype.Float32 && !k.requantize:
		return lanes.ViewOf[float32](r.Values[k.dst][pixel*k.outs*4:], elements), nil
	}
	return lanes.ViewOf[float32](w.Scratch[k.atFloats:], elements), nil
}

// storeValues stores what valuesOf returned, from element at on, or what follows.
func (k *quantizedConv) storeValues(r *exec.Run, w *exec.Worker, at int, values []float32, product []byte) {
	switch {
	case k.requantize:
		k.storeQuantized(r, w, at, values, product)
	case k.after != nil:
		if k.to.Is16() {
			lanes.RoundTo(values, values, k.to)
		}
		k.after.Apply(r, w, at, len(values), k.strip*k.outs, product)
	case k.to != dtype.Float32:
		size := k.to.Size()
		lanes.FromF32(r.Values[k.dst][at*size:][:len(values)*size], values, k.to)
	}
}

// storeQuantized quantizes elements of the result, from element at on, or what the epilogue
// makes of them. Product is their memory if there is an epilogue.
func (k *quantizedConv) storeQuantized(r *exec.Run, w *exec.Worker, at int, values []float32, product []byte) {
	if k.to.Is16() {
		lanes.RoundTo(values, values, k.to)
	}
	n := len(values)
	if k.after != nil {
		d := k.after.Result()
		to := w.Scratch[k.atFloats:][:n*d.Size()]
		k.after.ApplyTo(r, w, at, n, k.strip*k.outs, product, to)
		if d == dtype.Float32 {
			values = lanes.ViewOf[float32](to, n)
		} else {
			lanes.ToF32(values, to, d)
		}
	}
	scale, zero := k.outQuantization(r)
	lanes.Quantize(r.Values[k.dst][at:at+n], values, scale, float32(-128-zero), float32(127-zero), zero)
}

// outQuantization returns the scale and the zero point of the result.
func (k *quantizedConv) outQuantization(r *exec.Run) (scale float32, zero int32) {
	return lanes.ViewOf[float32](r.Values[k.outScale], 1)[0], int32(int8(r.Values[k.outZero][0]))
}

// rescale converts the sums of the pixels of values to float32 and rescales them.
func (k *quantizedConv) rescale(r *exec.Run, w *exec.Worker, values []float32) {
	rescales := k.rescales(r)
	k.eachRun(len(values), func(at, to, sums, channel int) {
		scaleSums(values[at:to], w.Scratch[k.atSums+4*sums:], rescales[channel:])
	})
}

// eachRun calls f for the runs of n elements of the result whose sums are contiguous: from
// one element to another, where their sums begin, and the channel of the first.
func (k *quantizedConv) eachRun(n int, f func(at, to, sums, channel int)) {
	// Columns of a group, or of pixels side by side, are contiguous in the result.
	width := k.side * k.outsPerGroup
	if k.side*k.outs == k.ld {
		for at := 0; at < n; at += k.period {
			f(at, min(at+k.period, n), at, 0)
		}
		return
	}
	each := k.ld / k.groups
	for row := 0; row*k.side*k.outs < n; row++ {
		for g := range k.groups {
			at := row*k.side*k.outs + g*k.outsPerGroup
			f(at, min(at+width, n), row*k.ld+g*each, g*k.outsPerGroup)
		}
	}
}

func scaleSums(to []float32, sums []byte, by []float32) {
	x := lanes.ViewOf[int32](sums, len(to))
	if v := vec.Current(); v != nil {
		v.ScaleI32(to, x, by)
		return
	}
	for i, s := range x {
		to[i] = float32(s) * by[i]
	}
}
