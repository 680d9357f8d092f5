package cpu

// isaLevels are the levels that the processor supports, from the lowest to
// the highest. Every arm64 processor that Go runs on has Advanced SIMD.
func isaLevels() []isa { return []isa{isaPortable, isaNEON} }
