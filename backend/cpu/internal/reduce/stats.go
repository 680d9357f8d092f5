package reduce

import (
	"math"
	"math/bits"

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
	countsSize    = 4 * 256          // bytes of a count of each exponent field
)

// stats is Stats. The elements are cut into segments, each of which yields a vector
// like the result; the vectors are joined in order.
//
// A segment goes through blocks. Extremes come first: they say whether all elements of
// a block are finite, as they nearly always are, and between which exponents they lie.
// Then exponents are counted by vectors, and sums need not ask. Other blocks, and
// float64, are taken element by element.
type stats struct {
	x, y, out         int
	fromX, fromY      dtype.DType
	normal            float64 // the smallest normal number of x
	n                 int
	segment, segments int
	each              bool // element by element
	atX, atY          int  // places in scratch memory of converted elements
	atFields          int  // of the exponent fields of a block
	atCounts          int  // of counts of fields
	atLoops           int  // of the results of vector loops
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
	k.atFields, k.atCounts, k.atLoops = l.Take(2*lanes.Block), l.Take(2*countsSize), l.Take(vec.StatsScratch)
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
	var f fields
	f.init(k, w)
	for ; lo < hi; lo += lanes.Block {
		end := min(hi, lo+lanes.Block)
		x := k.block(r, w, k.x, k.fromX, k.atX, lo, end)
		y := x
		if !f.same {
			y = k.block(r, w, k.y, k.fromY, k.atY, lo, end)
		}
		n := f.addVectors(p, x, y)
		f.addPortable(p, x[n:], y[n:])
	}
	for i, at := range []int{op.StatsX, op.StatsY} {
		f.bins(p[at:], i)
	}
	for _, n := range p[op.StatsX+op.StatsBin0:][:op.StatsBin(math.Ilogb(k.normal))] {
		p[op.StatsSubnormal] += n
	}
}

// block returns elements as float32.
func (k *stats) block(r *exec.Run, w *exec.Worker, value int, from dtype.DType, at, lo, hi int) []float32 {
	size := from.Size()
	return lanes.RealView(r.Values[value][lo*size:hi*size], from, lanes.ViewOf[float32](w.Scratch[at:], lanes.Block))
}

// fields counts the exponent fields of pairs of float32.
type fields struct {
	same     bool // y is x
	set      *vec.Set
	scratch  []byte
	block    [2][]byte                // the fields of a block
	counts   [2]*[256]uint32          // of what addVectors added
	portable [2]dtype.ExponentCounter // of what addPortable added
	infinite int                      // elements that are not finite, so far
}

func (f *fields) init(k *stats, w *exec.Worker) {
	f.same, f.set, f.scratch = k.x == k.y, vec.Current(), w.Scratch[k.atLoops:][:vec.StatsScratch]
	for i := range 2 {
		f.block[i] = w.Scratch[k.atFields+i*lanes.Block:][:lanes.Block]
		f.counts[i] = (*[256]uint32)(lanes.ViewOf[uint32](w.Scratch[k.atCounts+i*countsSize:], 256))
		clear(f.counts[i][:])
	}
}

// bins adds the counts of fields to bins. Field 0 has also the zeros, and the last one
// what is not finite.
func (f *fields) bins(m []float64, i int) {
	if f.same {
		i = 0
	}
	bins := m[op.StatsBin0:][:op.StatsBins]
	for e := range bins[:op.StatsBins-1] {
		bins[e] = float64(int(f.counts[i][e]) + f.portable[i].Count(uint8(e)))
	}
	bins[0] -= m[op.StatsZeros]
}

// addVectors adds the first pairs, without bins, and returns how many. These are
// none if there are elements that are not finite, or subnormal numbers of float32.
func (f *fields) addVectors(p []float64, x, y []float32) int {
	const infinity, normal = 0x7f800000, 0x800000
	n := len(x) &^ 63
	if f.set == nil || n == 0 {
		return 0
	}
	x, y = x[:n], y[:n]
	operands := 2
	if f.same {
		operands = 1
	}
	var largest, smallest [2]uint32
	for i, v := range [][]float32{x, y}[:operands] {
		largest[i], smallest[i] = f.set.Magnitudes(f.scratch, f.block[i][:n], v)
		if largest[i] >= infinity || smallest[i] < normal && largest[i] != 0 {
			return 0
		}
	}
	var m vec.PairMagnitudes
	for i := range operands {
		m.Largest[i], m.Smallest[i] = math.Float32frombits(largest[i]), math.Float32frombits(smallest[i])
		m.Zeros[i] = n
		if largest[i] == 0 {
			m.Smallest[i] = float32(math.Inf(1))
		} else {
			m.Zeros[i] -= f.set.CountFields(f.scratch, f.counts[i], f.block[i][:n], uint8(smallest[i]>>23), uint8(largest[i]>>23))
		}
		f.counts[i][0] += uint32(m.Zeros[i])
	}
	p[op.StatsFinite] += float64(n)
	if f.same {
		m.Largest[1], m.Smallest[1], m.Zeros[1], m.BothZero = m.Largest[0], m.Smallest[0], m.Zeros[0], m.Zeros[0]
		squares := f.set.Folds.SumSquares(x)
		addSums(p, vec.PairSums{SquaresX: squares, SquaresY: squares, Products: squares})
	} else {
		if m.Zeros[0] > 0 && m.Zeros[1] > 0 {
			m.BothZero = bothZero(f.block[0][:n], f.block[1][:n])
		}
		addSums(p, f.set.PairSums(f.scratch, x, y))
	}
	addMagnitudes(p, m)
	return n
}

// bothZero counts the places, a multiple of eight, where x and y are 0, in words of
// eight bytes.
func bothZero(x, y []byte) int {
	const low = 0x7f7f7f7f7f7f7f7f
	a, b := dtype.View[uint64](x), dtype.View[uint64](y)
	b = b[:len(a)]
	n := 0
	for i, v := range a {
		v |= b[i]
		n += bits.OnesCount64(^((v&low + low) | v | low))
	}
	return n
}

// addPortable adds pairs, without bins.
func (f *fields) addPortable(p []float64, x, y []float32) {
	if len(x) == 0 {
		return
	}
	f.portable[0].AddF32(x)
	if !f.same {
		f.portable[1].AddF32(y)
	}
	was := f.infinite
	if f.infinite = f.portable[0].Count(255) + f.portable[1].Count(255); f.infinite == was {
		p[op.StatsFinite] += float64(len(x))
		addSums(p, vec.SumPairs(x, y))
		addMagnitudes(p, vec.MagnitudesOfPairs(x, y))
		return
	}
	var s vec.PairSums
	for i, v := range x {
		addPair(p, &s, float64(v), float64(y[i]))
	}
	addSums(p, s)
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
