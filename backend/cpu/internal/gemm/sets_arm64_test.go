package gemm

// setsHere are the sets that this processor runs.
func setsHere() []*Set { return []*Set{NEON} }
