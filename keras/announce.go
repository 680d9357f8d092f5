package keras

import (
	"fmt"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/policy"
)

// announce says on the first line of Fit what really runs.
func (f *fitting) announce() {
	if f.announced || f.c.Verbose == Silent {
		return
	}
	f.announced = true
	fmt.Fprintln(f.c.Output, policy.EffectiveText())
	for _, t := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		if !f.m.computesIn(t) {
			continue
		}
		if text := policy.Compatibility(t); text != "" {
			if _, again := warned.LoadOrStore(text, true); !again {
				fmt.Fprintln(f.c.Output, text)
			}
		}
	}
}

// warned has the compatibility warnings that were printed: each once.
var warned sync.Map
