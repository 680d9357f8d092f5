package cpu

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Loops over a row of scores, in assembly where there is some.

func scaleRow(x []float32, by float32) {
	if v := vectors(); v != nil {
		v.MulScalar(x, x, by)
		return
	}
	for i := range x {
		x[i] *= by
	}
}

func addRow(x []float32, c float32) {
	if v := vectors(); v != nil {
		v.AddScalar(x, x, c)
		return
	}
	for i := range x {
		x[i] += c
	}
}

func logRow(x []float32) {
	if v := vectors(); v != nil {
		v.Log(x, x)
		return
	}
	for i, v := range x {
		x[i] = float32(math.Log(float64(v)))
	}
}

func maxRow(x []float32) float32 {
	if v := vectors(); v != nil {
		return float32(v.Max(x))
	}
	return float32(maxRun(x))
}

// expRow is e to the power of x·scale+c, in place, and returns the sum. What is
// behind x, up to a whole vector, is overwritten by 0: rows of scores have room
// for it. s is scratch memory.
func expRow(x []float32, scale, c float32, s []float32) float64 {
	if v := vectors(); v != nil {
		whole := wholeRow(x, v.Lanes)
		s[0], s[1] = scale*math.Log2E, c*math.Log2E
		v.Exp2Sum(whole, whole, s)
		return float64(s[2])
	}
	if scale != 1 {
		scaleRow(x, scale)
	}
	addRow(x, c)
	expAll(x, x)
	return sumRun[float32, float64](x)
}

// expRowBF16 is expRow that rounds to bfloat16, where there are vectors. x is
// changed, and so is what is behind dst, as it is behind x.
func expRowBF16(dst []uint16, x []float32, scale, c float32, s []float32) float64 {
	v := vectors()
	whole := wholeRow(x, v.Lanes)
	s[0], s[1] = scale*math.Log2E, c*math.Log2E
	if current() >= isaAVX512BF16 {
		v.Exp2SumConvertBF16(dst[:len(whole)], whole, s)
	} else {
		v.Exp2SumBF16(dst[:len(whole)], whole, s)
	}
	return float64(s[2])
}

// wholeRow is x up to a whole vector, with -∞ behind it.
func wholeRow(x []float32, lanes int) []float32 {
	whole := x[:roundUp(len(x), lanes)]
	fillRow(whole[len(x):], float32(math.Inf(-1)))
	return whole
}

// whereRow puts v[0] where keep is 0.
func whereRow(x []float32, keep []byte, v []float32) {
	if s := vectors(); s != nil {
		for len(x) > 0 {
			n := min(len(x), len(v))
			s.Where(x[:n], keep[:n], x[:n], v[:n])
			x, keep = x[n:], keep[n:]
		}
		return
	}
	for i := range x {
		if keep[i] == 0 {
			x[i] = v[0]
		}
	}
}

var hidden = func() (x [block]float32) {
	for i := range x {
		x[i] = float32(math.Inf(-1))
	}
	return
}()

// hide puts -∞ in place of the scores that the mask hides from a query; all
// reports that it hides all of them.
func (k *attention) hide(r *run, b, h, t, s int, x []float32) (all bool) {
	if k.Mask < 0 || len(x) == 0 {
		return len(x) == 0
	}
	m := r.values[k.mask]
	at := b*k.maskStep[0] + h*k.maskStep[1] + t*k.maskStep[2]
	if k.maskStep[3] == 0 {
		if m[at] == 0 {
			fillRow(x, float32(math.Inf(-1)))
		}
		return m[at] == 0
	}
	whereRow(x, m[at+s:at+s+len(x)], hidden[:])
	return false
}

func fillRow(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// nothing reports whether the mask hides all keys from s on of a query. It is
// asked in the rare case that no score is above -∞.
func (k *attention) nothing(r *run, b, h, t, s, n int) bool {
	if k.Mask < 0 {
		return n == 0
	}
	at := b*k.maskStep[0] + h*k.maskStep[1] + t*k.maskStep[2]
	for i := range n {
		if r.values[k.mask][at+(s+i)*k.maskStep[3]] != 0 {
			return false
		}
	}
	return true
}

// dropout is how weights are dropped: number i of the draw decides on weight i
// of [B H T S], wherever the blocks begin.
type dropout struct {
	stream uint64
	rate   []float32 // repeated
	scale  float32   // of what is kept
}

func newDropout(a op.Attr) *dropout {
	d := &dropout{stream: a.Stream, scale: float32(a.KeepScale()), rate: make([]float32, block)}
	fillRow(d.rate, float32(a.Rate))
	return d
}

// keep writes 1 for the weights from number first on that are kept, 0 for the
// others. random is scratch memory for 192 numbers more.
func (d *dropout) keep(keep []byte, random []float32, seed, counter uint64, first int) {
	from := first &^ 3
	n := roundUp(first-from+len(keep), 128)
	draw{seed, counter, d.stream}.uniform(from, random[:n])
	random = random[first-from:]
	v := vectors()
	for len(keep) > 0 {
		n := min(len(keep), block)
		if v != nil {
			v.LessEqual(keep[:n], d.rate[:n], random[:n])
		} else {
			for i := range keep[:n] {
				keep[i] = truth(random[i] >= d.rate[0])
			}
		}
		keep, random = keep[n:], random[n:]
	}
}
