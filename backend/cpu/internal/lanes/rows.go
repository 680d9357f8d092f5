package lanes

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// RowStore converts and stores rows of float32 from scratch memory to a result. A
// large result is written with non-temporal stores, which do not read it first:
// most of it would be evicted from the caches before it is used.
type RowStore struct {
	To          dtype.DType
	NonTemporal bool
}

func NewRowStore(t op.Type) RowStore {
	return RowStore{t.DType, vec.Native() != nil && t.DType != dtype.Float64 && t.Bytes() >= NonTemporalBytes}
}

// Store writes float32s to their place in the result; raw is scratch memory for 16-bit
// results.
func (s RowStore) Store(dst, x, raw []byte) {
	if s.To != dtype.Float32 {
		to := dst
		if s.NonTemporal {
			to = raw[:len(dst)]
		}
		FromF32(to, dtype.View[float32](x), s.To)
		x = to
	}
	switch {
	case s.NonTemporal:
		vec.Native().CopyNT(dst, x)
	case s.To == dtype.Float32:
		copy(dst, x)
	}
}

// Fence makes non-temporal stores visible to other cores.
func (s RowStore) Fence() {
	if s.NonTemporal {
		vec.Native().Fence()
	}
}

// Rows are the loops of vec.Rows for rows of any length. Rows are bytes of elements of type In.
// s, of PassNumbers elements, passes numbers to the loops and returns sums.
//
// If bits must be portable, sums are of whole vectors of AVX-512 and of the rest in Go on every
// level; what is done element by element is the same on every level anyway.
type Rows struct {
	RowStore
	set    *vec.Set // or nil: everything in Go
	lanes  bool     // portable bits: sums are of multiples of laneVector
	v      *vec.Rows
	Stores *vec.RowStores
	In     dtype.DType
	// Results go through scratch memory in float32.
	Staged bool
}

// PassNumbers is the elements of s: numbers, sums, ends of rows, and room for sums in lanes.
const PassNumbers = lanesAt + laneScratch

// lanesAt is the offset in s of the room for sums in lanes, after numbers and ends.
const lanesAt = 10 * endOf

// endOf is the offset in s of the first end of a row, the elements after its last whole
// vector, and the distance to the next end: the first three as end returns them, the others
// filled up to a vector.
const endOf = 16

// NewRows returns the loops for rows of width elements of the given types and a result.
// Loops store the type of the rows.
func NewRows(result op.Type, width int, operands ...dtype.DType) Rows {
	p := Rows{RowStore: NewRowStore(result), set: vec.Native(), lanes: isa.PortableBits(), In: dtype.Float32}
	if p.set == nil {
		p.Staged, p.NonTemporal = result.DType != dtype.Float32, false
		return p
	}
	d := operands[0]
	same := !slices.ContainsFunc(operands, func(o dtype.DType) bool { return o != d })
	if same && result.DType == d {
		p.In = d
	}
	p.v = RowLoops(p.In)
	p.Stores = &p.v.RowStores
	switch fits := width*result.DType.Size()%vec.Line == 0; {
	case result.DType != p.In:
		p.Staged = true
	case p.NonTemporal && fits && p.v.NT != nil:
		p.Stores = p.v.NT
	case p.NonTemporal && p.In == dtype.Float32:
		p.Staged = true
	default:
		p.NonTemporal = false
	}
	return p
}

// RowLoops returns the loops for rows of a type of at most 32 bits.
func RowLoops(d dtype.DType) *vec.Rows {
	v := vec.Native()
	switch {
	case d == dtype.Float16:
		return &v.RowsF16
	case d == dtype.BFloat16 && isa.Current() >= isa.AVX512BF16 && !isa.PortableBits():
		return &v.RowsConvertBF16 // takes subnormal numbers for zero
	case d == dtype.BFloat16:
		return &v.RowsBF16
	}
	return &v.RowsF32
}

// Row returns row i of rows of n elements of type d, converted into conv unless d is
// the type of the passes.
func (p *Rows) Row(data []byte, i, n int, d dtype.DType, conv []byte) []byte {
	size := n * d.Size()
	x := data[i*size : (i+1)*size]
	if d == p.In {
		return x
	}
	ToF32(ViewOf[float32](conv, n), x, d)
	return conv[:4*n]
}

// Next returns the row after row i, or nil.
func (p *Rows) Next(data []byte, i, n int, d dtype.DType) []byte {
	if d != p.In {
		return nil
	}
	return data[(i+1)*n*d.Size():]
}

// Length returns the elements of a row.
func (p *Rows) Length(x []byte) int { return len(x) / p.In.Size() }

// Whole returns n rounded down to whole vectors.
func (p *Rows) Whole(n int) int {
	if p.set == nil {
		return 0
	}
	return n / p.set.Lanes * p.set.Lanes
}

// summed is Whole for sums: the same on every level for portable bits.
func (p *Rows) summed(n int) int {
	if v := p.sumVector(); v > 0 {
		return n / v * v
	}
	return 0
}

// sumVector returns the elements of which sums take a multiple, or 0.
func (p *Rows) sumVector() int {
	switch {
	case p.lanes:
		return laneVector
	case p.set != nil:
		return p.set.Lanes
	}
	return 0
}

// bytes returns the first n elements of a row.
func (p *Rows) bytes(x []byte, n int) []byte { return x[:n*p.In.Size()] }

// end returns the elements of row i after the first n, in float32.
func (p *Rows) end(x []byte, n, i int, s []float32) []float32 {
	x = x[n*p.In.Size():]
	if p.In == dtype.Float32 {
		return dtype.View[float32](x)
	}
	t := s[(i+1)*endOf:][:len(x)/2]
	ToF32(t, x, p.In)
	return t
}

// filled returns a whole vector that begins with the end of a row; i tells those of a call
// apart.
func filled(i int, x []float32, fill float32, s []float32) []float32 {
	t := s[(4+i)*endOf:][:endOf]
	Fill(t[copy(t, x):], fill)
	return t
}

// fma is x·y + z in Go: fused if bits must be portable, because that is what package vec does.
func (p *Rows) fma(x, y, z float32) float32 {
	if p.lanes {
		return portablemath.FMA32(x, y, z)
	}
	return float32(x*y) + z
}

// put stores the end of a row of the result.
func (p *Rows) put(dst []byte, n int, t []float32) {
	if p.In != dtype.Float32 {
		FromF32(dst[n*p.In.Size():], t, p.In)
	}
}

// Widened returns a row in float32 for passes that read it more than once: its own
// memory, or conv, where deviations leaves it.
func (p *Rows) Widened(x []byte, conv []float32) []float32 {
	if p.In != dtype.Float32 {
		return conv
	}
	return dtype.View[float32](x)
}

// deviations sums the deviations of row wide from s[0]; if x is not nil, it converts x
// to wide first.
func (p *Rows) deviations(wide []float32, x []byte, s []float32) {
	n := p.summed(len(wide))
	s[1], s[2] = 0, 0
	switch {
	case n == 0:
	case p.set == nil:
		l := newLaneSums(s[0], s[lanesAt:])
		l.add(wide[:n], nil)
		s[1], s[2] = l.fold(l.sum), l.fold(l.products)
	case x != nil:
		p.v.KeepDeviations(wide[:n], p.bytes(x, n), s)
	default:
		p.v.Deviations(wide[:n], s)
	}
	if n == len(wide) {
		return
	}
	if x != nil {
		ToF32(wide[n:], x[n*p.In.Size():], p.In)
	}
	// In Go there are four sums of each, over up to a whole row.
	var a, b [4]float64
	from, left := s[0], wide[n:]
	for ; len(left) >= 4; left = left[4:] {
		d0, d1, d2, d3 := float64(left[0]-from), float64(left[1]-from), float64(left[2]-from), float64(left[3]-from)
		a[0] += d0
		a[1] += d1
		a[2] += d2
		a[3] += d3
		b[0] += float64(d0 * d0)
		b[1] += float64(d1 * d1)
		b[2] += float64(d2 * d2)
		b[3] += float64(d3 * d3)
	}
	for _, v := range left {
		d := float64(v - from)
		a[0] += d
		b[0] += float64(d * d)
	}
	s[1] += float32(a[0] + a[1] + (a[2] + a[3]))
	s[2] += float32(b[0] + b[1] + (b[2] + b[3]))
}

// Products is Σ x·y: parts in float32, their sum in float64.
func (p *Rows) Products(x, y []byte, s []float32, ahead []byte) (sum float64) {
	const part = 4096
	all := p.Length(x)
	n := p.summed(all)
	for at := 0; at < n; at += part {
		lo, hi := at*p.In.Size(), min(at+part, n)*p.In.Size()
		if p.set == nil {
			l := newLaneSums(0, s[lanesAt:])
			l.add(dtype.View[float32](x[lo:hi]), dtype.View[float32](y[lo:hi]))
			s[0] = l.fold(l.products)
		} else {
			p.v.Products(x[lo:hi], y[lo:hi], s, ahead[min(lo, len(ahead)):])
		}
		sum += float64(s[0])
	}
	if n < all {
		b := p.end(y, n, 1, s)
		for i, v := range p.end(x, n, 0, s) {
			sum += float64(float64(v) * float64(b[i]))
		}
	}
	return sum
}

// Exp2Sum computes dst = 2^(x·scale + shift) and returns the sum: parts in float32, their sum in
// float64. In Go it has portable bits.
func (p *Rows) Exp2Sum(dst []float32, x []byte, scale, shift float32, s []float32, ahead []byte) (sum float64) {
	const part = 4096
	n := p.summed(len(dst))
	for at := 0; at < n; at += part {
		end := min(at+part, n)
		lo, hi := at*p.In.Size(), end*p.In.Size()
		sum += p.powers(p.v, dst[at:end], x[lo:hi], scale, shift, s, ahead[min(lo, len(ahead)):])
	}
	if n < len(dst) {
		last, rows := s[endOf:][:p.sumVector()], p.v
		if p.set != nil {
			rows = &p.set.RowsF32
		}
		Fill(last[copy(last, p.end(x, n, 0, s)):], float32(math.Inf(-1)))
		sum += p.powers(rows, last, BytesOf(last), scale, shift, s, nil)
		copy(dst[n:], last)
	}
	return sum
}

// powers is Exp2Sum of whole vectors by the loops of v, or in Go if it is nil.
func (p *Rows) powers(v *vec.Rows, dst []float32, x []byte, scale, shift float32, s []float32, ahead []byte) float64 {
	s[0], s[1] = scale, shift
	if v != nil {
		v.Exp2Sum(dst, x, s, ahead)
		return float64(s[2])
	}
	for i, a := range dtype.View[float32](x) {
		dst[i] = exp2F32(portablemath.FMA32(a, scale, shift))
	}
	return float64(laneSum(dst, s))
}

// ScaleRow computes dst = x·by.
func (p *Rows) ScaleRow(dst []byte, x []float32, by float32, s []float32) {
	n := p.Whole(len(x))
	s[0] = by
	if n > 0 {
		p.Stores.ScaleRow(p.bytes(dst, n), x, s)
	}
	if n < len(x) {
		t := p.end(dst, n, 0, s)
		for i, v := range x[n:] {
			t[i] = v * by
		}
		p.put(dst, n, t)
	}
}

// LessRow computes dst = x - s[0] - s[1].
func (p *Rows) LessRow(dst, x []byte, s []float32) {
	all := p.Length(x)
	n := p.Whole(all)
	if n > 0 {
		p.Stores.LessRow(p.bytes(dst, n), x, s)
	}
	if n < all {
		t := p.end(dst, n, 0, s)
		for i, v := range p.end(x, n, 1, s) {
			t[i] = v - s[0] - s[1]
		}
		p.put(dst, n, t)
	}
}

// NormalizeRow also prefetches ahead.
func (p *Rows) NormalizeRow(dst []byte, x, gain, shift, s []float32, ahead []byte) {
	n := p.Whole(len(x))
	if n > 0 {
		p.Stores.NormalizeRow(p.bytes(dst, n), x, gain, shift, s, ahead)
	}
	if n == len(x) {
		return
	}
	t := p.end(dst, n, 0, s)
	if p.set != nil {
		to := filled(0, nil, 0, s)[:p.set.Lanes]
		p.set.RowsF32.NormalizeRow(BytesOf(to), filled(1, x[n:], 0, s), filled(2, gain[n:len(x)], 0, s), filled(3, shift[n:len(x)], 0, s), s, nil)
		copy(t, to)
	} else {
		for i, v := range x {
			t[i] = p.fma((v-s[0])*s[1], gain[i], shift[i])
		}
	}
	p.put(dst, n, t)
}

// GradRowSums leaves grad·gain in gained. With portable bits its sums are those of AVX-512.
func (p *Rows) GradRowSums(dgain, dshift, gained, x []float32, grad []byte, gain, s []float32, ahead []byte) {
	all, n := len(dgain), p.Whole(len(dgain))
	s[2], s[3] = 0, 0
	if p.set == nil {
		p.gradSums(dgain, dshift, gained, x, dtype.View[float32](grad), gain, s)
	}
	if n > 0 {
		p.v.GradRowSums(dgain[:n], dshift, gained, x, grad, gain, s, ahead)
	}
	if p.set != nil && n < all {
		p.endGradSums(dgain[n:], dshift[n:all], gained[n:all], x[n:all], p.end(grad, n, 1, s), gain[n:all], s)
	}
	if p.lanes && (p.set == nil || p.set.Lanes < laneVector) {
		s[2], s[3] = p.laneGradSums(gained[:all], x, s)
	}
}

// endGradSums is GradRowSums of less than a vector, and adds to the sums in s.
func (p *Rows) endGradSums(dgain, dshift, gained, x, grad, gain, s []float32) {
	a, b := s[2], s[3]
	dg, ds, to := filled(0, dgain, 0, s)[:p.set.Lanes], filled(1, dshift, 0, s), filled(2, nil, 0, s)
	p.set.RowsF32.GradRowSums(dg, ds, to, filled(3, x, s[0], s), BytesOf(filled(4, grad, 0, s)), filled(5, gain, 0, s), s, nil)
	copy(dgain, dg)
	copy(dshift, ds)
	copy(gained, to)
	s[2] += a
	s[3] += b
}

// gradSums is GradRowSums in Go.
func (p *Rows) gradSums(dgain, dshift, gained, x, g, gain, s []float32) {
	var a, b float64
	for i, v := range x[:len(dgain)] {
		h, g := (v-s[0])*s[1], g[i]
		dgain[i] = p.fma(g, h, dgain[i])
		dshift[i] += g
		g *= gain[i]
		gained[i] = g
		a += float64(g)
		b += float64(float64(g) * float64(h))
	}
	s[2], s[3] = float32(a), float32(b)
}

func (p *Rows) GradRow(dst []byte, x, gained, s []float32, ahead []byte) {
	n := p.Whole(len(x))
	if n > 0 {
		p.Stores.GradRow(p.bytes(dst, n), x, gained, s, ahead)
	}
	if n == len(x) {
		return
	}
	t := p.end(dst, n, 0, s)
	if p.set != nil {
		to := filled(0, nil, 0, s)[:p.set.Lanes]
		p.set.RowsF32.GradRow(BytesOf(to), filled(1, x[n:], 0, s), filled(2, gained[n:len(x)], 0, s), s, nil)
		copy(t, to)
	} else {
		for i, v := range x {
			t[i] = p.fma(gained[i], s[1], p.fma(v-s[0], s[2], s[3]))
		}
	}
	p.put(dst, n, t)
}

// SoftmaxGradRow computes dst = y·(grad-sum).
func (p *Rows) SoftmaxGradRow(dst, y, grad []byte, sum float32, s []float32, ahead []byte) {
	all := p.Length(y)
	n := p.Whole(all)
	s[0] = sum
	if n > 0 {
		p.Stores.SoftmaxGradRow(p.bytes(dst, n), y, grad, s, ahead)
	}
	if n < all {
		t, g := p.end(dst, n, 0, s), p.end(grad, n, 1, s)
		for i, v := range p.end(y, n, 2, s) {
			t[i] = v * (g[i] - sum)
		}
		p.put(dst, n, t)
	}
}

// MomentsOf returns the mean and the biased variance of a row. Parts are summed in
// float32, their sums in float64, as deviations from the first element. If the mean
// turns out to be many standard deviations from it, so that they cancel, they are
// summed again as deviations from the mean. Later passes read wide.
func (p *Rows) MomentsOf(wide []float32, x []byte, uncentered bool, s []float32) (mean, variance float64) {
	if p.In == dtype.Float32 {
		x = nil
	}
	from := p.CenterOf(wide, x, uncentered)
	a, b := p.sumsFrom(wide, x, from, s)
	return p.Settle(wide, from, a, b, uncentered, s)
}

// ManyRows reports whether NormalizeRows takes rows of n float32.
func (p *Rows) ManyRows(n int) bool {
	return p.In == dtype.Float32 && p.set != nil && n > 0 && p.summed(n) == n && n <= SumPart
}

// MostRows is the most rows that NormalizeRows takes.
const MostRows = 16

// NormalizeRows normalizes rows of float32. First it sums all of them, then it computes their
// statistics, so that square roots and quotients of one row do not keep the processor waiting.
// The bits are those of row by row. The sums and statistics are in what gradients need of the
// room for sums in lanes.
func (p *Rows) NormalizeRows(dst []byte, x, gain, shift []float32, epsilon float64, uncentered bool, s []float32, ahead []byte) {
	width := len(gain)
	rows := len(x) / width
	room := s[lanesAt+laneGradsAt:]
	sums, moments := room[:3*rows], room[3*MostRows:][:2*rows]
	if uncentered {
		for i := range rows {
			sums[3*i] = 0
			p.v.Deviations(x[i*width:(i+1)*width], sums[3*i:])
		}
	} else {
		p.v.RowDeviations(x, width, sums)
	}
	for i := range rows {
		from, a, b := sums[3*i], float64(sums[3*i+1]), float64(sums[3*i+2])
		m, v := p.Settle(x[i*width:(i+1)*width], from, a, b, uncentered, s)
		moments[2*i], moments[2*i+1] = float32(m), float32(1/math.Sqrt(v+epsilon))
	}
	p.Stores.NormalizeRows(dst, x, gain, shift, moments, ahead)
}

// SumPart is the elements that are summed in float32.
const SumPart = 8192

// CenterOf returns the number that deviations of a row are taken from at first. It may
// change wide.
func (p *Rows) CenterOf(wide []float32, x []byte, uncentered bool) float32 {
	if uncentered {
		return 0
	}
	if x != nil {
		ToF32(wide[:1], p.bytes(x, 1), p.In)
	}
	return wide[0]
}

// sumsFrom returns the sums of a row's deviations from a number, and of their squares.
func (p *Rows) sumsFrom(wide []float32, x []byte, from float32, s []float32) (a, b float64) {
	size := p.In.Size()
	for at := 0; at < len(wide); at += SumPart {
		end := min(at+SumPart, len(wide))
		s[0] = from
		if x != nil {
			p.deviations(wide[at:end], x[at*size:end*size], s)
		} else {
			p.deviations(wide[at:end], nil, s)
		}
		a += float64(s[1])
		b += float64(s[2])
	}
	return a, b
}

// Settle returns the moments for the sums of deviations, or for more exact sums.
func (p *Rows) Settle(wide []float32, from float32, a, b float64, uncentered bool, s []float32) (mean, variance float64) {
	const many = 4
	n := float64(len(wide))
	a, b = a/n, b/n
	if uncentered {
		return 0, b
	}
	if variance = b - float64(a*a); a*a > many*many*variance {
		from = float32(float64(from) + a)
		a, b = p.sumsFrom(wide, nil, from, s)
		a, b = a/n, b/n
		variance = b - float64(a*a)
	}
	return float64(from) + a, math.Max(0, variance)
}

// Fill sets all elements of x to v.
func Fill(x []float32, v float32) {
	const few = 16
	for i := range x[:min(few, len(x))] {
		x[i] = v
	}
	for n := few; n < len(x); n *= 2 {
		copy(x[n:], x[:n])
	}
}

// NonTemporalBytes is the size from which on results are written by non-temporal
// stores: a result this large is evicted before it is read. An ordinary store reads
// its line first, so a non-temporal one saves a third of the traffic of a copy.
const NonTemporalBytes = 1 << 23
