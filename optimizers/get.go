package optimizers

import (
	"maps"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/suggest"
)

// classes are the optimizers by name, as Keras spells it.
var classes = map[string]func() Optimizer{
	"Adadelta":          func() Optimizer { return &Adadelta{} },
	"Adafactor":         func() Optimizer { return &Adafactor{} },
	"Adagrad":           func() Optimizer { return &Adagrad{} },
	"Adam":              func() Optimizer { return &Adam{} },
	"Adamax":            func() Optimizer { return &Adamax{} },
	"AdamW":             func() Optimizer { return &AdamW{} },
	"Ftrl":              func() Optimizer { return &Ftrl{} },
	"Lamb":              func() Optimizer { return &Lamb{} },
	"Lion":              func() Optimizer { return &Lion{} },
	"Muon":              func() Optimizer { return &Muon{} },
	"Nadam":             func() Optimizer { return &Nadam{} },
	"RMSprop":           func() Optimizer { return &RMSprop{} },
	"SGD":               func() Optimizer { return &SGD{} },
	"ScheduleFreeAdamW": func() Optimizer { return &ScheduleFreeAdamW{} },
	divider:             func() Optimizer { return &MultiOptimizer{} },
	wrapper:             func() Optimizer { return &LossScaleOptimizer{} },
}

// The classes that are nothing without other optimizers.
const (
	wrapper = "LossScaleOptimizer"
	divider = "MultiOptimizer"
)

// schedules are the schedules by name, as Keras spells it; OneCycle is
// PyTorch's.
var schedules = map[string]func() Schedule{
	"CosineDecay":            func() Schedule { return &CosineDecay{} },
	"CosineDecayRestarts":    func() Schedule { return &CosineDecayRestarts{} },
	"ExponentialDecay":       func() Schedule { return &ExponentialDecay{} },
	"InverseTimeDecay":       func() Schedule { return &InverseTimeDecay{} },
	"OneCycle":               func() Schedule { return &OneCycle{} },
	"PiecewiseConstantDecay": func() Schedule { return &PiecewiseConstantDecay{} },
	"PolynomialDecay":        func() Schedule { return &PolynomialDecay{} },
}

// Names lists the classes of optimizers, sorted.
func Names() []string { return slices.Sorted(maps.Keys(classes)) }

// ScheduleNames lists the classes of schedules, sorted.
func ScheduleNames() []string { return slices.Sorted(maps.Keys(schedules)) }

// Get returns a new optimizer with default settings by its Keras name in any
// case, such as "SGD" or "rmsprop". "LossScaleOptimizer" and "MultiOptimizer"
// are errors, because they need an Inner and an OptimizerMap. For an optimizer
// with settings see UnmarshalConfig.
func Get(name string) (Optimizer, error) {
	have := slices.DeleteFunc(Names(), func(class string) bool { return class == wrapper || class == divider })
	for _, class := range have {
		if strings.EqualFold(class, name) {
			return classes[class](), nil
		}
	}
	return nil, suggest.Unknown("optimizer", name, have)
}
