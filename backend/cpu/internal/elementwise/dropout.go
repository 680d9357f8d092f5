package elementwise

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// dropoutLoop is the loop of a body that is a dropout or its gradient: kept elements are
// scaled, the others are 0, from memory to memory. Loads and stores overlap the
// generation of random numbers.
type dropoutLoop struct {
	operand      int // index of the dropped operand
	factor, none int // block buffers: the scale and the value of dropped elements
	scale        vec.PhiloxScale
	size         int // of an element
}

// findDropout looks for a body that compares random numbers and selects by the result.
func (c *code) findDropout(operands []operand, list []instr) {
	v := vec.Native()
	if c.draw == nil || v.PhiloxScale.F32 == nil || len(list) != 2 || len(c.results) != 1 || !list[0].draws {
		return
	}
	ins, r := &list[1], &c.results[0]
	if ins.low == nil && (ins.chain == nil || ins.chain.masked == nil) || ins.dst != r.reg {
		return
	}
	var numbers, rows []int
	for _, a := range ins.args {
		switch {
		case a == c.draw.dst:
		case isNumber(a, operands):
			numbers = append(numbers, a)
		default:
			rows = append(rows, a)
		}
	}
	if len(rows) != 1 || len(numbers) != 2 || rows[0] >= len(operands) {
		return
	}
	if o := &operands[rows[0]]; o.Access != Full || o.Producer != nil || o.DType != r.DType {
		return
	}
	all := v.PhiloxScale
	if r.nonTemporal {
		all = v.PhiloxScaleNT
	}
	scale := map[dtype.DType]vec.PhiloxScale{dtype.Float32: all.F32, dtype.Float16: all.F16, dtype.BFloat16: all.BF16}[r.DType]
	if scale != nil {
		c.dropout = &dropoutLoop{rows[0], numbers[0], numbers[1], scale, r.DType.Size()}
	}
}

// run computes elements from lo on, as many before hi as it can, and returns the end.
// It computes none if d is nil or elsewhere is true.
func (d *dropoutLoop) run(r *exec.Run, k *Chain, c *code, regs [][]byte, lo, hi int, elsewhere bool) int {
	if d == nil || elsewhere {
		return lo
	}
	number := func(reg int) float32 { return dtype.View[float32](regs[reg])[0] }
	s, all := number(d.factor), c.draw.random.of(r)
	bound, none := bound16(number(c.draw.number))
	if lo%8 != 0 || none || !(s > 0 && s <= math.MaxFloat32) || math.Float32bits(number(d.none)) != 0 {
		return lo
	}
	x, dst := r.Values[k.Operands[d.operand].Pos], r.Values[k.outs[0]]
	for hi-lo >= 256 && all.within(lo) {
		n := min(randomGrain, (hi-lo)/256*256)
		first, k0, k1, c1, c2, c3 := all.words(lo)
		d.scale(dst[lo*d.size:(lo+n)*d.size], x[lo*d.size:], first, k0, k1, c1, c2, c3, bound, s)
		lo += n
	}
	return lo
}
