package isa

import (
	"encoding/binary"
	"os"
)

// hasBF16 reports whether the processor has bfloat16 products (FEAT_BF16): bit BF16 of
// HWCAP2.
func hasBF16() bool {
	const tag, bit = 26, 1 << 14
	entries, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return false
	}
	for ; len(entries) >= 16; entries = entries[16:] {
		if binary.LittleEndian.Uint64(entries) == tag {
			return binary.LittleEndian.Uint64(entries[8:])&bit != 0
		}
	}
	return false
}
