package optimizers

import (
	"fmt"
	"slices"
	"strings"
)

// classes are the optimizers by name, as Keras spells it.
var classes = map[string]func() Optimizer{
	"SGD":     func() Optimizer { return &SGD{} },
	"RMSprop": func() Optimizer { return &RMSprop{} },
	"Adam":    func() Optimizer { return &Adam{} },
	"AdamW":   func() Optimizer { return &AdamW{} },
}

// Get returns a new optimizer with the default settings by its Keras name, in
// any case: "SGD", "rmsprop". For a LossScaleOptimizer, write one with its
// Inner.
func Get(name string) (Optimizer, error) {
	var have []string
	for class, make := range classes {
		if strings.EqualFold(class, name) {
			return make(), nil
		}
		have = append(have, class)
	}
	slices.Sort(have)
	return nil, fmt.Errorf("unknown optimizer %q; have %s", name, strings.Join(have, ", "))
}
