package optimizers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// average records the moving average of v after its update: avg = m·avg +
// (1-m)·v, the value of v itself in the first step. done is how many steps
// were applied before.
func (b *state) average(v *tensor.Variable, done *tensor.Tensor) {
	o := b.setup.options
	avg := b.slotVariables[v][averageSlot]
	d := avg.DType()
	zero := tensor.Scalar(dtype.Int64, 0)
	m := tensor.Where(done.Equal(zero), tensor.Scalar(d, 0), tensor.Scalar(d, o.EMAMomentum))
	avg.Assign(avg.Value().Mul(m).Add(v.Value().Cast(d).Mul(tensor.Scalar(d, 1).Sub(m))))
	if f := o.EMAOverwriteFrequency; f > 0 {
		due := done.AddScalar(1).Mod(tensor.Scalar(dtype.Int64, float64(f))).Equal(zero)
		v.Assign(tensor.Where(due, avg.Value().Cast(v.DType()), v.Value()))
	}
	if !slices.Contains(b.averaged, v) {
		b.averaged = append(b.averaged, v)
	}
}

// FinalizeVariables copies the moving averages into the weights if UseEMA is
// set and a step was applied.
func (b *state) FinalizeVariables() error {
	if b.held != nil {
		return fmt.Errorf("optimizer %s: FinalizeVariables: the averages are in the weights now; call SwapEMA again first", b.setup.name())
	}
	if n, err := b.Iterations(); n == 0 || err != nil {
		return err
	}
	for _, v := range b.averaged {
		avg, err := b.slotVariables[v][averageSlot].Float64s()
		if err != nil {
			return err
		}
		if err := v.Set(avg); err != nil {
			return err
		}
	}
	return nil
}

// SwapEMA exchanges the weights with their moving averages if UseEMA is set
// and a step was applied. A second call restores both, to the bit. Between the
// two calls the model may be evaluated but not trained.
func (b *state) SwapEMA() error {
	if n, err := b.Iterations(); n == 0 || err != nil {
		return err
	}
	// The averages of 16-bit weights are float32: their bits are kept here.
	back, held := b.held, map[*tensor.Variable][]float64{}
	for _, v := range b.averaged {
		avg := b.slotVariables[v][averageSlot]
		w, err := v.Float64s()
		if err != nil {
			return err
		}
		a, err := avg.Float64s()
		if err != nil {
			return err
		}
		if err := v.Set(a); err != nil {
			return err
		}
		held[v] = a
		if back != nil {
			w = back[v]
		}
		if err := avg.Set(w); err != nil {
			return err
		}
	}
	b.held = held
	if back != nil {
		b.held = nil
	}
	return nil
}
