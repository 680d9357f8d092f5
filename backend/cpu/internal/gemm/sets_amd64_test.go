package gemm

import "golang.org/x/sys/cpu"

// setsHere are the sets that this processor runs.
func setsHere() (sets []*Set) {
	x := &cpu.X86
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		sets = append(sets, AVX2)
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		sets = append(sets, AVX512)
		if x.HasAVX512BF16 {
			sets = append(sets, AVX512BF16)
		}
	}
	if x.HasAMXBF16 && UseAMX() {
		sets = append(sets, AMX)
	}
	return sets
}
