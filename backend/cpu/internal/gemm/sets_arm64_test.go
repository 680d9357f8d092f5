package gemm

// setsHere are the sets that this processor runs.
func setsHere() []*Set {
	sets := []*Set{NEON}
	if HasBF16() {
		sets = append(sets, NEONBF16)
	}
	return sets
}
