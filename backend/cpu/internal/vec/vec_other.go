//go:build !amd64 && !arm64

package vec

// AVX2 returns nil: the processor has no such instructions.
func AVX2() *Set { return nil }

// AVX512 returns nil: the processor has no such instructions.
func AVX512() *Set { return nil }

// NEON returns nil: the processor has no such instructions.
func NEON() *Set { return nil }
