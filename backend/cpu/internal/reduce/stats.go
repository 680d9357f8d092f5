package reduce

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

const (
	statsSegment  = 32 * lanes.Block // elements of a segment, at least
	statsElements = 256              // of a value whose elements are taken one at a time, at most
)

// stats is Stats. The elements are cut into segments, each of which yields a vector
// like the result; the vectors are joined in order.
//
// A segment goes through blocks. The exponents of a block are counted first. So it is
// known whether all of its elements are finite, as they nearly always are: then
// extremes and sums come from loops that need not ask. Other blocks, and float64, are
// taken element by element.
type stats struct {
	x, y, out         int
	fromX, fromY      dtype.DType
	normal            float64 // the smallest normal number of x
	n                 int
	segment, segments int
	each              bool // element by element
	atX, atY, atPairs int  // places in scratch memory of converted elements, and of the results of loops
	partSize          int  // bytes of a vector
}

func NewStats(b *exec.Builder, v *ir.Value) exec.Kernel {
	x, y := v.Args[0].Type, v.Args[1].Type
	n := x.Shape.Size()
	k := &stats{
		x: b.At(v.Args[0]), y: b.At(v.Args[1]), out: b.At(v), fromX: x.DType, fromY: y.DType, normal: x.DType.SmallestNormal(), n: n,
		segment:  tiling.RoundUp(max(statsSegment, tiling.CeilDiv(n, mostSegments)), lanes.Block),
		partSize: 8 * op.StatsSize,
		each:     n <= statsElements || x.DType == dtype.Float64 || y.DType == dtype.Float64,
	}
	k.segments = max(1, tiling.CeilDiv(n, k.segment))
	if k.segments > 1 {
		b.ReserveShared(k.partSize * k.segments)
	}
	var l tiling.Layout
	k.atX, k.atY = l.Take(8*lanes.Block), l.Take(8*lanes.Block)
	k.atPairs = l.Take(vec.PairScratch)
	b.ReserveScratch(int(l))
	return k
}

func (k *stats) Run(r *exec.Run) {
	const operations = 16 // of an element
	r.Parallel(k, k.segments, operations*k.n)
	out := dtype.View[float64](r.Values[k.out])
	if k.segments > 1 {
		copy(out, k.part(r, 0))
		for i := 1; i < k.segments; i++ {
			joinStats(out, k.part(r, i))
		}
	}
	for _, m := range [][]float64{out[op.StatsX:], out[op.StatsY:]} {
		if math.IsInf(m[op.StatsSmallest], 1) {
			m[op.StatsSmallest] = 0
		}
	}
	out[op.StatsCount], out[op.StatsResolution] = float64(k.n), 1
}

// part is the vector of a segment.
func (k *stats) part(r *exec.Run, segment int) []float64 {
	if k.segments == 1 {
		return dtype.View[float64](r.Values[k.out])
	}
	return dtype.View[float64](r.Shared[segment*k.partSize : (segment+1)*k.partSize])
}

// joinStats joins the vector of a segment to those before it.
func joinStats(all, part []float64) {
	largest := max(all[op.StatsLargestError], part[op.StatsLargestError])
	type extremes struct{ largest, smallest float64 }
	var found [2]extremes
	for i, at := range []int{op.StatsX, op.StatsY} {
		a, p := all[at:], part[at:]
		found[i] = extremes{max(a[op.StatsLargest], p[op.StatsLargest]), min(a[op.StatsSmallest], p[op.StatsSmallest])}
	}
	for i, v := range part {
		all[i] += v
	}
	all[op.StatsLargestError] = largest
	for i, at := range []int{op.StatsX, op.StatsY} {
		all[at+op.StatsLargest], all[at+op.StatsSmallest] = found[i].largest, found[i].smallest
	}
}

func (k *stats) Chunk(r *exec.Run, w *exec.Worker, c int) {
	p := k.part(r, c)
	clear(p)
	p[op.StatsX+op.StatsSmallest], p[op.StatsY+op.StatsSmallest] = math.Inf(1), math.Inf(1)
	lo, hi := c*k.segment, min(k.n, (c+1)*k.segment)
	if k.each {
		for ; lo < hi; lo += lanes.Block {
			k.eachOf(r, w, p, lo, min(hi, lo+lanes.Block))
		}
		return
	}
	var exponentsX, exponentsY dtype.ExponentCounter
	infinite := 0 // so far
	for ; lo < hi; lo += lanes.Block {
		end := min(hi, lo+lanes.Block)
		x, y := k.block(r, w, &exponentsX, k.x, k.fromX, k.atX, lo, end), k.block(r, w, &exponentsY, k.y, k.fromY, k.atY, lo, end)
		was := infinite
		if infinite = exponentsX.Count(255) + exponentsY.Count(255); infinite == was {
			k.addFinite(w, p, x, y)
			continue
		}
		var s vec.PairSums
		for i, v := range x {
			addPair(p, &s, float64(v), float64(y[i]))
		}
		addSums(p, s)
	}
	countBins(p[op.StatsX:], &exponentsX)
	countBins(p[op.StatsY:], &exponentsY)
	for _, n := range p[op.StatsX+op.StatsBin0:][:op.StatsBin(math.Ilogb(k.normal))] {
		p[op.StatsSubnormal] += n
	}
}

// block returns elements as float32, and counts their exponents.
func (k *stats) block(r *exec.Run, w *exec.Worker, c *dtype.ExponentCounter, value int, from dtype.DType, at, lo, hi int) []float32 {
	size := from.Size()
	data := r.Values[value][lo*size : hi*size]
	x := lanes.RealView(data, from, lanes.ViewOf[float32](w.Scratch[at:], lanes.Block))
	if from == dtype.BFloat16 {
		c.AddBF16(dtype.View[uint16](data))
	} else {
		c.AddF32(x)
	}
	return x
}

// countBins adds the counts of exponents to bins: field 0 has also the zeros, and the
// last one what is not finite.
func countBins(m []float64, c *dtype.ExponentCounter) {
	bins := m[op.StatsBin0:][:op.StatsBins]
	for i := range bins[:op.StatsBins-1] {
		bins[i] = float64(c.Count(uint8(i)))
	}
	bins[0] -= m[op.StatsZeros]
}

// eachOf adds elements lo to hi-1, and their bins.
func (k *stats) eachOf(r *exec.Run, w *exec.Worker, p []float64, lo, hi int) {
	load := func(value int, from dtype.DType, at int) []float64 {
		size := from.Size()
		x := lanes.ViewOf[float64](w.Scratch[at:], hi-lo)
		dtype.ToF64(x, r.Values[value][lo*size:hi*size], from)
		return x
	}
	x, y := load(k.x, k.fromX, k.atX), load(k.y, k.fromY, k.atY)
	var s vec.PairSums
	for i, v := range x {
		addPair(p, &s, v, y[i])
		bin(p[op.StatsX:], v)
		bin(p[op.StatsY:], y[i])
		if size := math.Abs(v); size != 0 && size < k.normal {
			p[op.StatsSubnormal]++
		}
	}
	addSums(p, s)
}

// bin counts v, unless it is 0 or not finite.
func bin(m []float64, v float64) {
	if v != 0 && v-v == 0 {
		exponent := int(math.Float64bits(v)>>52&0x7ff) - 1023 // -1023 of a subnormal number
		m[op.StatsBin0+op.StatsBin(exponent)]++
	}
}

// addPair adds a pair of elements to p, without bins, and to the sums of a block.
func addPair(p []float64, s *vec.PairSums, x, y float64) {
	finiteX, finiteY := addMagnitude(p[op.StatsX:], x), addMagnitude(p[op.StatsY:], y)
	if x == 0 && y != 0 && finiteY {
		p[op.StatsFlushed]++
	}
	if finiteX && finiteY {
		p[op.StatsFinite]++
		s.Add(x, y)
	}
}

// addMagnitude adds an element, without its square, and reports whether it is finite.
func addMagnitude(m []float64, v float64) (finite bool) {
	switch size := math.Abs(v); {
	case v != v:
		m[op.StatsNaNs]++
		return false
	case math.IsInf(v, 0):
		m[op.StatsInfinities]++
		return false
	case v == 0:
		m[op.StatsZeros]++
	default:
		m[op.StatsLargest], m[op.StatsSmallest] = max(m[op.StatsLargest], size), min(m[op.StatsSmallest], size)
	}
	return true
}

// addFinite adds pairs that are finite, without bins.
func (k *stats) addFinite(w *exec.Worker, p []float64, x, y []float32) {
	p[op.StatsFinite] += float64(len(x))
	if v := vec.Current(); v != nil {
		if n := len(x) &^ 15; n > 0 {
			scratch := w.Scratch[k.atPairs:][:vec.PairScratch]
			addSums(p, v.PairSums(dtype.View[float64](scratch), x[:n], y[:n]))
			addMagnitudes(p, v.PairMagnitudes(dtype.View[float32](scratch), x[:n], y[:n]))
			x, y = x[n:], y[n:]
		}
	}
	if len(x) > 0 {
		addSums(p, vec.SumPairs(x, y))
		addMagnitudes(p, vec.MagnitudesOfPairs(x, y))
	}
}

// addSums adds the sums of some pairs.
func addSums(p []float64, s vec.PairSums) {
	p[op.StatsSquaredError] += s.SquaredErrors
	p[op.StatsX+op.StatsSquares] += s.SquaresX
	p[op.StatsY+op.StatsSquares] += s.SquaresY
	p[op.StatsProducts] += s.Products
	p[op.StatsLargestError] = max(p[op.StatsLargestError], s.LargestError)
}

// addMagnitudes adds zeros and extremes of some pairs.
func addMagnitudes(p []float64, m vec.PairMagnitudes) {
	p[op.StatsFlushed] += float64(m.Zeros[0] - m.BothZero)
	for i, at := range []int{op.StatsX, op.StatsY} {
		q := p[at:]
		q[op.StatsZeros] += float64(m.Zeros[i])
		q[op.StatsLargest] = max(q[op.StatsLargest], float64(m.Largest[i]))
		q[op.StatsSmallest] = min(q[op.StatsSmallest], float64(m.Smallest[i]))
	}
}
