package scenario

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// record is something that a program computed: a loss, predictions, the value
// of a variable.
type record struct {
	Name   string // "3 fit: val_loss": unique in its trace
	Series string // "val_loss": what it is one value of
	Wide   bool   // Data are float64, otherwise float32
	Exact  bool   // compared only within an instruction set: counts, and decisions that a last bit can turn
	Data   []byte // little-endian
}

// values decodes the numbers of a record.
func (r record) values() []float64 {
	if r.Wide {
		out := make([]float64, len(r.Data)/8)
		for i := range out {
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(r.Data[8*i:]))
		}
		return out
	}
	out := make([]float64, len(r.Data)/4)
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(r.Data[4*i:])))
	}
	return out
}

// norm is the L2 norm of the finite elements.
func norm(x []float64) float64 {
	var sum float64
	for _, v := range x {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			sum += v * v
		}
	}
	return math.Sqrt(sum)
}

// distance is the L2 norm of x - y. It is infinite when they differ in where
// they are not finite.
func distance(x, y []float64) float64 {
	if len(x) != len(y) {
		return math.Inf(1)
	}
	var sum float64
	for i := range x {
		switch a, b := x[i], y[i]; {
		case a == b || math.IsNaN(a) && math.IsNaN(b):
		case math.IsNaN(a-b) || math.IsInf(a-b, 0):
			return math.Inf(1)
		default:
			sum += (a - b) * (a - b)
		}
	}
	return math.Sqrt(sum)
}

// finite reports whether all of x are.
func finite(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// sameShape reports in what two traces are not comparable at all: other records,
// or another number of them.
func sameShape(want, got []record) error {
	for i := range min(len(want), len(got)) {
		if want[i].Name != got[i].Name || len(want[i].Data) != len(got[i].Data) {
			return fmt.Errorf("record %d is %q of %d bytes, want %q of %d bytes", i, got[i].Name, len(got[i].Data), want[i].Name, len(want[i].Data))
		}
	}
	if len(want) != len(got) {
		return fmt.Errorf("%d records, want %d", len(got), len(want))
	}
	return nil
}

// sameBits returns the first difference of two traces, to the bit. All NaNs are
// the same: their sign and payload say which operand of a sum came first.
func sameBits(want, got []record) error {
	if err := sameShape(want, got); err != nil {
		return err
	}
	for i, w := range want {
		if bytes.Equal(w.Data, got[i].Data) {
			continue
		}
		x, y := w.values(), got[i].values()
		for j := range x {
			if math.Float64bits(x[j]) != math.Float64bits(y[j]) && !(math.IsNaN(x[j]) && math.IsNaN(y[j])) {
				return fmt.Errorf("%s: element %d of %d is %v, want %v (difference of the whole: %.3g of %.3g)",
					w.Name, j, len(x), y[j], x[j], distance(x, y), norm(x))
			}
		}
	}
	return nil
}

// Two instruction sets may round differently: they add the terms of a sum in
// another order, and compute functions such as exp by other polynomials. What
// that may do to a trace is measured, not guessed. The program is run again with
// its data and first weights perturbed, at random, by relative errors of the size
// that levels may differ by; a 16-bit value is rounded another way then as often
// as it would be on another level. How far the trace moves is the program's
// condition times these errors, with the number of steps and their amplification
// by the optimizer in it.
//
// The size is perturbation: about what rounding does to sums of some hundred
// terms, which all levels accumulate in float32 or better whatever the policy
// (√512·2⁻²⁴ ≈ 2⁻¹⁹ in the mean, and twice that for what is computed with them). In
// programs with recurrent layers under bfloat16 it is coarse: the error that the
// functions of their cells may have then (vec.Cells). In random programs with
// attention under bfloat16 it is coarse, too: attention over two steps with weights
// of a half but for 1e-7 lies midway between two bfloat16 numbers wherever the sum of
// two values is odd, and which way it is rounded is a matter of the last bit of exp,
// which perturbed values are as far from as others. Under float16 it is the same with
// values that are neighbours; coarse16 is as large for the steps between its numbers.
//
// Two levels may differ by slack times the movement. Slack covers that rounding
// errors come anew in each layer and each step, while the perturbation comes
// with the data and the first weights only, and that the maximum of few trials is
// too small.
const (
	perturbation = 1.0 / (1 << 18)
	coarse       = 1.0 / (1 << 12)
	coarse16     = 1.0 / (1 << 15)
	trials       = 3
	slack        = 16
)

// gradientNorm is the series of gradients' norms, whether a program read them from
// the logs or from the optimizer's variable. Once a model is sure of its labels
// they are rounding errors of probabilities near 1: what they were before says how
// large those may be.
const gradientNorm = "gradient_norm"

// series is the Series, with all gradients' norms in one, and all losses: the loss of
// a model that is sure of its labels is the rounding error of a probability near 1,
// which the loss of its first steps says the size of. So are the gradients that such
// a model accumulates, whose rounding errors are part of those of their norm.
func (r record) series() string {
	switch {
	case strings.HasSuffix(r.Series, "/"+gradientNorm), strings.HasSuffix(r.Series, "_gradient_accumulator"):
		return gradientNorm
	case strings.HasSuffix(r.Series, "loss"):
		return "loss"
	}
	return r.Series
}

// result reports whether a record is a loss, a prediction or the norm of the
// gradients, and not a variable, which may be almost 0.
func (r record) result() bool {
	return strings.HasSuffix(r.Series, "loss") || r.Series == "predict" || strings.HasSuffix(r.Series, gradientNorm)
}

// tolerances returns the distance that another level's records may have from
// those of want, given traces of runs that were perturbed by errors of a size.
// Norms and movements are the largest so far in the series of a record: rounding
// errors of a loss do not become smaller as it does, and a number that happens
// to stay where it is gets no tolerance of 0. A quarter of the size is what a
// record is taken to move by at least, relative to its norm.
//
// Some programs are chaotic: a normalization of almost nothing, or a float16
// gradient at the edge of overflow, which decides whether a step is skipped. From
// the first result on that moves by a sixteenth of its norm, or becomes
// infinite, tolerances are infinite: nothing can be said.
func tolerances(want []record, size float64, perturbed ...[]record) ([]float64, error) {
	for _, p := range perturbed {
		if err := sameShape(want, p); err != nil {
			return nil, fmt.Errorf("perturbed: %w", err)
		}
	}
	move := map[string]float64{}
	tolerance := make([]float64, len(want))
	chaos := false
	for i, w := range want {
		if w.Exact {
			continue
		}
		x := w.values()
		if w.result() {
			for _, p := range perturbed {
				chaos = chaos || slack*distance(x, p[i].values()) > norm(x) && norm(x) > 0
			}
		}
		if chaos {
			tolerance[i] = math.Inf(1)
			continue
		}
		m := max(move[w.series()], size/4*norm(x))
		for _, p := range perturbed {
			m = max(m, distance(x, p[i].values()))
		}
		move[w.series()] = m
		tolerance[i] = slack * m
	}
	return tolerance, nil
}

// vanish makes tolerances of a random program infinite from the first gradient on that
// is smaller than its tolerance, which is set by the rounding errors of earlier ones.
// Such gradients are chaotic for an optimizer that divides by their size: it makes full
// steps of them. Scenarios, which must not be chaotic, are compared to their end.
func vanish(want []record, tolerance []float64) {
	if !slices.ContainsFunc(want, func(r record) bool {
		return strings.HasSuffix(r.Series, "/iteration") && !strings.HasPrefix(r.Series, "sgd")
	}) {
		return
	}
	chaos := false
	for i, w := range want {
		if w.Exact {
			continue
		}
		if n := norm(w.values()); w.series() == gradientNorm && tolerance[i] > n && n > 0 {
			chaos = true
		}
		if chaos {
			tolerance[i] = math.Inf(1)
		}
	}
}

// close returns the first difference of two traces beyond the tolerances, and
// the largest one as a multiple of its tolerance with the name of the record.
func closeTo(want, got []record, tolerance []float64) (worst float64, at string, err error) {
	if err := sameShape(want, got); err != nil {
		return math.Inf(1), "", err
	}
	for i, w := range want {
		if w.Exact {
			continue
		}
		x, y := w.values(), got[i].values()
		d := distance(x, y)
		if w.series() == gradientNorm && !finite(x) && !finite(y) {
			// Which of the two it is, is a matter of where zeros are padded: an
			// infinite gradient times one of them is NaN, where another kernel
			// leaves them out. The step is skipped.
			continue
		}
		if d == 0 || math.IsInf(tolerance[i], 1) {
			continue
		}
		if ratio := d / tolerance[i]; ratio > worst {
			worst, at = ratio, w.Name
		}
		if !(d <= tolerance[i]) && err == nil {
			err = fmt.Errorf("%s: %s, want %s: off by %.3g, tolerance %.3g", w.Name, short(y), short(x), d, tolerance[i])
		}
	}
	return worst, at, err
}

// short prints the first of some numbers.
func short(x []float64) string {
	if len(x) == 1 {
		return fmt.Sprint(x[0])
	}
	s := ""
	for _, v := range x[:min(len(x), 4)] {
		s += fmt.Sprintf("%.6g ", v)
	}
	return fmt.Sprintf("[%s… %d]", s, len(x))
}
