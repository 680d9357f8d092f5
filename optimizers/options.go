package optimizers

import "reflect"

// options are the fields that every class has. The package's page describes
// them.
type options struct {
	Schedule                  Schedule
	WeightDecay               *float64
	ExcludeFromWeightDecay    []string
	ClipNorm                  float64
	ClipValue                 float64
	GlobalClipNorm            float64
	UseEMA                    bool
	EMAMomentum               float64
	EMAOverwriteFrequency     int
	GradientAccumulationSteps int
	AllowUnscaledLoss         bool
	StochasticRounding        *int64 // a seed; nil: weights are rounded to nearest
	Name                      string
}

// optionsOf copies the common fields of o, a pointer to an optimizer's struct.
func optionsOf(o any) *options {
	out := new(options)
	from, to := reflect.ValueOf(o).Elem(), reflect.ValueOf(out).Elem()
	for i := range to.NumField() {
		to.Field(i).Set(from.FieldByName(to.Type().Field(i).Name))
	}
	return out
}
