// Package isa has the levels of vector instructions that kernels are written for: which
// of them the processor supports, and which one is in use.
//
// On amd64 there are AVX2 (with FMA and F16C), AVX-512, AVX-512 with products of
// bfloat16, and AMX; on arm64 Advanced SIMD (NEON), without and with products of
// bfloat16. Processors with AMX run the products of AVX512-BF16 at half the rate of
// float32's: there the level avx512bf16 widens bfloat16 to float32.
package isa

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend"
)

// Level is a set of the processor's vector instructions that kernels are written
// for. Levels of one architecture are ordered: each has everything that the lower
// ones have, so a kernel compares with >=.
type Level uint32

// The levels.
const (
	Portable   Level = iota // Go, no assembly
	NEON                    // arm64: Advanced SIMD
	NEONBF16                // arm64: Advanced SIMD and its products of bfloat16
	AVX2                    // amd64: AVX2, FMA and F16C
	AVX512                  // amd64: AVX-512 F, BW, DQ, VL
	AVX512BF16              // amd64: AVX-512 and its products of bfloat16
	AMX                     // amd64: AVX-512 and AMX's products of tiles of bfloat16
)

var names = map[Level]struct{ word, name string }{
	Portable:   {"portable", "portable Go"},
	NEON:       {"neon", "NEON"},
	NEONBF16:   {"neonbf16", "NEON and its products of bfloat16"},
	AVX2:       {"avx2", "AVX2"},
	AVX512:     {"avx512", "AVX-512"},
	AVX512BF16: {"avx512bf16", "AVX-512 and AVX512-BF16"},
	AMX:        {"amx", "AVX-512 and AMX-BF16"},
}

// String returns the level's word in MEZZO_CPU.
func (l Level) String() string { return names[l].word }

// Name returns the level's full name.
func (l Level) Name() string { return names[l].name }

// level is the level in use: the best of the processor unless MEZZO_CPU names a
// lower one.
var level = func() (level atomic.Uint32) {
	l, err := choose(os.Getenv("MEZZO_CPU"), Levels())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	level.Store(uint32(l))
	return
}()

// Current returns the level that kernels must use. Programs keep the kernels that
// they were compiled with.
func Current() Level { return Level(level.Load()) }

// Use sets the level and returns the one before. It is for tests.
func Use(l Level) Level { return Level(level.Swap(uint32(l))) }

// PortableBits reports whether results must have the same bits on every level, by
// [backend.SetBits]: kernels then must choose what does not depend on the level.
func PortableBits() bool { return backend.CurrentBits() == backend.PortableBits }

// choose returns the level among levels, which are in order, that word names. An
// empty word is the highest level; an unknown one is too, with an error.
func choose(word string, levels []Level) (Level, error) {
	best := levels[len(levels)-1]
	if word == "" {
		return best, nil
	}
	var words []string
	for _, l := range levels {
		if l.String() == word {
			return l, nil
		}
		words = append([]string{l.String()}, words...)
	}
	return best, fmt.Errorf("MEZZO_CPU: got %q, want one of %s on this processor; using %s", word, strings.Join(words, ", "), best)
}
