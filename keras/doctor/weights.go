package doctor

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// WeightLoss says what becomes of a weight's elements in the type that its layer
// computes in.
type WeightLoss struct {
	Weight   string // its path
	Computes dtype.DType
	Count    int // elements

	Zero      int // not 0, and 0 in the compute type
	Subnormal int // below its smallest normal number, so with fewer digits; some processors take them for 0
	Infinite  int // finite, and beyond its largest number
	NonFinite int // NaN or infinite as they are stored

	Largest float64 // magnitude of a finite element
}

// Bad reports whether training with the weight cannot go well.
func (w WeightLoss) Bad() bool { return w.Infinite > 0 || w.NonFinite > 0 }

func (w WeightLoss) String() string {
	s := fmt.Sprintf("%s in %v:", w.Weight, w.Computes)
	part := func(n int, what string) {
		if n > 0 {
			s += fmt.Sprintf(" %d of %d elements %s;", n, w.Count, what)
		}
	}
	part(w.NonFinite, "are not finite")
	part(w.Infinite, fmt.Sprintf("become infinite (up to %.3g)", w.Largest))
	part(w.Zero, "become 0")
	part(w.Subnormal, "are subnormal")
	return s[:len(s)-1]
}

// CheckWeights says which weights of a built model lose elements in the type that their
// layers compute in: before the first step, of weights that were trained elsewhere and
// in another type. It reads all weights and computes nothing on the device. A model
// without such weights has an empty list.
func CheckWeights(m *keras.Model) (all []WeightLoss, err error) {
	if m == nil {
		return nil, fmt.Errorf("doctor: the model is nil")
	}
	seen := map[*layers.Weight]bool{}
	var check func(ls []layers.Layer) error
	check = func(ls []layers.Layer) error {
		for _, l := range ls {
			if inner := keras.ModelOf(l); inner != nil {
				if err := check(inner.Layers()); err != nil {
					return err
				}
				continue
			}
			b := layers.BaseOf(l)
			for _, w := range b.Weights() {
				if seen[w] || !w.DType().IsFloat() {
					continue
				}
				seen[w] = true
				d := w.ComputeDType()
				if auto := b.Policy().Auto; auto.Is16() && d == dtype.Float32 && len(w.Shape()) > 1 {
					d = auto // kernels of products
				}
				x, err := w.Float64s()
				if err != nil {
					return fmt.Errorf("doctor: weight %s: %w", w.Name(), err)
				}
				if loss := lossOf(x, d); loss.Zero+loss.Subnormal+loss.Infinite+loss.NonFinite > 0 {
					loss.Weight = w.Name()
					all = append(all, loss)
				}
			}
		}
		return nil
	}
	return all, check(m.Layers())
}

// lossOf counts what becomes of x in d.
func lossOf(x []float64, d dtype.DType) WeightLoss {
	w := WeightLoss{Computes: d, Count: len(x)}
	for _, v := range x {
		switch r := math.Abs(float64(d.Round(float32(v)))); {
		case math.IsNaN(v) || math.IsInf(v, 0):
			w.NonFinite++
			continue
		case v == 0:
		case math.IsInf(r, 0):
			w.Infinite++
		case r == 0:
			w.Zero++
		case r < d.SmallestNormal():
			w.Subnormal++
		}
		w.Largest = max(w.Largest, math.Abs(v))
	}
	return w
}
