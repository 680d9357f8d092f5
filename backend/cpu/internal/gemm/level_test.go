package gemm

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"

// setsHere are the sets that this processor runs.
func setsHere() (sets []*Set) {
	for _, l := range isa.Levels() {
		if s := levels[l]; s != nil {
			sets = append(sets, s)
		}
	}
	return sets
}
