package reduce

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// normalize is the kernel of LayerNorm. A row is read from memory once; its statistics
// and the result are computed in L1.
type normalize struct {
	lanes.Rows
	x, gain, shift, out int
	from                dtype.DType
	rows, features      int
	group               int // rows per chunk
	epsilon             float64
	uncentered          bool
	batch               int // rows stored together
	atX, atOut, atRaw   int
	atRows              [2]int // 16-bit rows in float32
	pipelined           bool   // see rowPipeline
}

const (
	normalizeBlock = 1 << 15 // elements per chunk, at most
	normalizeShare = 1 << 12 // elements that are worth a chunk
	normalizeBatch = 1 << 11 // elements stored together
)

func makeLayerNorm(b *exec.Builder, v *ir.Value) normalize {
	x := v.Args[0].Type
	k := normalize{
		x: b.At(v.Args[0]), gain: b.At(v.Args[1]), out: b.At(v), from: x.DType,
		rows: x.Shape[0], features: x.Shape[1], epsilon: v.Attr.Epsilon, uncentered: v.Attr.Uncentered,
	}
	k.group = max(1, normalizeBlock/max(1, k.features))
	k.batch = max(1, normalizeBatch/max(1, k.features))
	return k
}

func NewLayerNorm(b *exec.Builder, v *ir.Value) exec.Kernel {
	k := makeLayerNorm(b, v)
	k.Rows = lanes.NewRows(v.Type, k.features, k.from)
	elements := min(normalizeBlock, max(normalizeShare, tiling.CeilDiv(k.rows*k.features, tiling.MinChunks)))
	k.group = max(1, elements/max(1, k.features))
	k.shift = b.At(v.Args[2])
	n := k.batch * k.features
	var l tiling.Layout
	l.Take(4 * lanes.PassNumbers)
	k.atX, k.atOut, k.atRaw = l.Take(4*k.features), l.Take(4*n), l.Take(2*n)
	k.layoutRows(&l)
	b.ReserveScratch(int(l))
	return &k
}

func (k *normalize) Run(r *exec.Run) {
	if n := k.rows * k.features; n > 0 {
		r.Parallel(k, tiling.CeilDiv(k.rows, k.group), 2*n)
	}
}

// statistics returns the mean of a row and 1/√(variance+epsilon).
func (k *normalize) statistics(wide []float32, x []byte, s []float32) (mean, scale float32) {
	m, v := k.MomentsOf(wide, x, k.uncentered, s)
	return float32(m), float32(1 / math.Sqrt(v+k.epsilon))
}

// rowPipeline overlaps the rows of a chunk: while a row is written, the next one is
// converted and summed, which gives the processor arithmetic to do during memory
// accesses.
type rowPipeline struct {
	rows        [2][]float32 // of even rows and of odd ones
	row         int          // row with known statistics, or -1
	mean, scale float32
}

// layoutRows reserves scratch memory for 16-bit rows in float32, and decides
// whether rows are pipelined.
func (k *normalize) layoutRows(l *tiling.Layout) {
	if k.In == dtype.Float32 {
		return
	}
	n := 4 * k.features
	k.atRows = [2]int{l.TakeApart(n), l.TakeApart(n)}
	k.pipelined = k.Stores.NormalizeKeep != nil && !k.Staged && k.Whole(k.features) == k.features && k.features <= lanes.SumPart
}

// newPipeline returns the pipeline of a chunk before its first row.
func (k *normalize) newPipeline(w *exec.Worker) rowPipeline {
	t := rowPipeline{row: -1}
	if k.In != dtype.Float32 {
		for i, at := range k.atRows {
			t.rows[i] = lanes.ViewOf[float32](w.Scratch[at:], k.features)
		}
	}
	return t
}

// settled computes the statistics of a row from the sums a and b of its deviations from
// from and of their squares.
func (k *normalize) settled(t *rowPipeline, row int, from, a, b float32, s []float32) {
	m, v := k.Settle(t.rows[row%2], from, float64(a), float64(b), k.uncentered, s)
	t.row, t.mean, t.scale = row, float32(m), float32(1/math.Sqrt(v+k.epsilon))
}

func (k *normalize) Chunk(r *exec.Run, w *exec.Worker, c int) {
	s, conv, t := lanes.ViewOf[float32](w.Scratch, lanes.PassNumbers), w.Scratch[k.atX:], k.newPipeline(w)
	gain, shift := dtype.View[float32](r.Values[k.gain]), dtype.View[float32](r.Values[k.shift])
	end := min(k.rows, (c+1)*k.group)
	for i := c * k.group; i < end; i += k.batch {
		last := min(end, i+k.batch)
		to := r.Values[k.out][i*k.features*k.To.Size() : last*k.features*k.To.Size()]
		out, size := to, k.features*k.In.Size()
		if k.Staged {
			out = w.Scratch[k.atOut:][:4*(last-i)*k.features]
		}
		first := i
		if k.from == dtype.Float32 && k.ManyRows(k.features) {
			first = last
			x := dtype.View[float32](r.Values[k.x])
			for j := i; j < last; j += lanes.MostRows {
				end := min(last, j+lanes.MostRows)
				k.NormalizeRows(out[(j-i)*size:(end-i)*size], x[j*k.features:end*k.features], gain, shift, k.epsilon, k.uncentered, s, r.Values[k.x][end*size:])
			}
		}
		for j := first; j < last; j++ {
			x := k.Row(r.Values[k.x], j, k.features, k.from, conv)
			wide := k.Widened(x, t.rows[j%2])
			if t.row != j {
				t.mean, t.scale = k.statistics(wide, x, s)
			}
			s[0], s[1] = t.mean, t.scale
			row, ahead := out[(j-i)*size:(j-i+1)*size], k.Next(r.Values[k.x], j, k.features, k.from)
			if !k.pipelined || j+1 == end {
				k.NormalizeRow(row, wide, gain, shift, s, ahead)
				continue
			}
			next := t.rows[(j+1)%2]
			from := k.CenterOf(next, ahead, k.uncentered)
			s[2] = from
			k.Stores.NormalizeKeep(row, wide, gain, shift, next, ahead, s, ahead[min(size, len(ahead)-size):])
			k.settled(&t, j+1, from, s[3], s[4], s)
		}
		if k.Staged {
			k.Store(to, out, w.Scratch[k.atRaw:])
		}
	}
	k.Fence()
}

// normalizeGrad is the kernel of LayerNormGrad. Rows are processed as in normalize.
// Gradients of gains and shifts are sums over rows, per chunk in float64 (in float32
// for blocks of rows), which are joined at the end.
type normalizeGrad struct {
	normalize
	grad                    int
	gradType                dtype.DType
	dx, dgain, dshift       exec.Result
	chunks                  int
	atGrad, atGain, atShift int
	atGained, atQuiet       int
	join                    joinLayerNormGrad
}

const normalizeRows = 128 // rows summed in float32

func NewLayerNormGrad(b *exec.Builder, v *ir.Value) exec.Kernel {
	k := &normalizeGrad{normalize: makeLayerNorm(b, v), grad: b.At(v.Args[2]), gradType: v.Args[2].Type.DType}
	parts := b.Results(v)
	k.dx, k.dgain, k.dshift = parts[0], parts[1], parts[2]
	k.Rows = lanes.NewRows(k.dx.Type, k.features, k.from, k.gradType)
	k.join.normalizeGrad = k
	// Each chunk has its own sums: at most 64 chunks, and sums no larger than x.
	k.chunks = max(1, min(64, tiling.CeilDiv(k.rows, k.group), k.rows/8))
	k.group = max(1, tiling.CeilDiv(k.rows, k.chunks))
	k.chunks = max(1, tiling.CeilDiv(k.rows, k.group))
	b.ReserveShared(16 * k.chunks * k.features)
	n := 4 * k.features
	var l tiling.Layout
	l.Take(4 * lanes.PassNumbers)
	k.atGain, k.atShift, k.atGained = l.TakeApart(n), l.TakeApart(n), l.TakeApart(n)
	k.atX, k.atQuiet, k.atGrad = l.TakeApart(n), l.TakeApart(n), l.Take(n)
	k.atOut, k.atRaw = l.Take(k.batch*n), l.Take(k.batch*n/2)
	b.ReserveScratch(max(int(l), 16*lanes.Block)) // also for the join
	return k
}

func (k *normalizeGrad) Run(r *exec.Run) {
	if k.features == 0 {
		return
	}
	n := k.rows * k.features
	r.Parallel(k, k.chunks, 4*n)
	r.Parallel(&k.join, tiling.CeilDiv(k.features, lanes.Block), 2*k.chunks*k.features)
}

// sums returns a chunk's sums for gains and shifts.
func (k *normalizeGrad) sums(r *exec.Run, c int) (gain, shift []float64) {
	s := lanes.ViewOf[float64](r.Shared[16*c*k.features:], 2*k.features)
	return s[:k.features], s[k.features:]
}

func (k *normalizeGrad) Chunk(r *exec.Run, w *exec.Worker, c int) {
	s := lanes.ViewOf[float32](w.Scratch, lanes.PassNumbers)
	part := func(at int) []float32 { return lanes.ViewOf[float32](w.Scratch[at:], k.features) }
	convX, convG, dgain, dshift, gained := w.Scratch[k.atX:], w.Scratch[k.atGrad:], part(k.atGain), part(k.atShift), part(k.atGained)
	gain, dx := k.quiet(dtype.View[float32](r.Values[k.gain]), part(k.atQuiet)), k.dx.In(r)
	allGain, allShift := k.sums(r, c)
	clear(allGain)
	clear(allShift)
	end := min(k.rows, (c+1)*k.group)
	for first := c * k.group; first < end; first += normalizeRows {
		clear(dgain)
		clear(dshift)
		for i := first; i < min(end, first+normalizeRows); i += k.batch {
			last := min(end, first+normalizeRows, i+k.batch)
			out, size := w.Scratch[k.atOut:], k.features*k.In.Size()
			if dx != nil && !k.Staged {
				out = dx[i*size:]
			}
			for j := i; j < last; j++ {
				x := k.Row(r.Values[k.x], j, k.features, k.from, convX)
				g := k.Row(r.Values[k.grad], j, k.features, k.gradType, convG)
				wide := k.Widened(x, part(k.atX))
				mean, scale := k.statistics(wide, x, s)
				s[0], s[1] = mean, scale
				k.GradRowSums(dgain, dshift, gained, wide, g, gain, s, k.Next(r.Values[k.x], j, k.features, k.from))
				if dx == nil {
					continue
				}
				n := float32(k.features)
				s[2], s[3] = -scale*scale*(s[3]/n), -scale*(s[2]/n)
				if k.uncentered {
					s[3] = 0
				}
				k.GradRow(out[(j-i)*size:(j-i+1)*size], wide, gained, s, k.Next(r.Values[k.grad], j, k.features, k.gradType))
			}
			if dx != nil && k.Staged {
				to := k.features * k.To.Size()
				k.Store(dx[i*to:last*to], out[:(last-i)*size], w.Scratch[k.atRaw:])
			}
		}
		sumEach(allGain, dgain)
		sumEach(allShift, dshift)
	}
	k.Fence()
}

// quiet returns gain with NaNs that are representable in bfloat16, so that results are
// rounded without a check for NaNs.
func (k *normalizeGrad) quiet(gain, t []float32) []float32 {
	if k.In != dtype.BFloat16 {
		return gain
	}
	for i, g := range gain {
		if g != g {
			g = float32(math.NaN())
		}
		t[i] = g
	}
	return t
}

// joinLayerNormGrad is the task that adds up the chunks' sums.
type joinLayerNormGrad struct{ *normalizeGrad }

func (k *joinLayerNormGrad) Chunk(r *exec.Run, w *exec.Worker, i int) {
	lo, hi := i*lanes.Block, min(k.features, (i+1)*lanes.Block)
	gain, shift := lanes.ViewOf[float64](w.Scratch, hi-lo), lanes.ViewOf[float64](w.Scratch[8*lanes.Block:], hi-lo)
	clear(gain)
	clear(shift)
	for c := range k.chunks {
		a, b := k.sums(r, c)
		sumEach(gain, a[lo:hi])
		sumEach(shift, b[lo:hi])
	}
	if to := k.dgain.In(r); to != nil {
		dtype.FromF64(to[4*lo:4*hi], gain, dtype.Float32)
	}
	if to := k.dshift.In(r); to != nil {
		dtype.FromF64(to[4*lo:4*hi], shift, dtype.Float32)
	}
}
