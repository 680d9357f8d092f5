package optimizers

import "github.com/mezzo-ml/mezzo/policy"

// ForLevel returns inner with the loss scale of one of Apex's levels (see
// policy.OptLevel): inner itself for a scale of 1 under float32, else a
// LossScaleOptimizer around it, dynamic or Fixed.
//
//	level, err := policy.OptLevel("O2", policy.LevelOptions{})
//	policy.SetGlobal(level.Policy)
//	optimizer := optimizers.ForLevel(&optimizers.Adam{}, level)
func ForLevel(inner Optimizer, l policy.Level) Optimizer {
	if l.LossScale == 1 && l.Policy == policy.Float32 {
		return inner
	}
	return &LossScaleOptimizer{Inner: inner, InitialScale: l.LossScale, Fixed: l.LossScale != 0, MinScale: l.MinScale, MaxScale: l.MaxScale}
}
