package cpu

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

// isa is a level of the processor's vector instructions that kernels are
// written for. Levels of one architecture are ordered: each has everything
// that those below it have, so a kernel asks with >=.
type isa uint32

const (
	isaPortable   isa = iota // Go, no assembly
	isaNEON                  // arm64: Advanced SIMD
	isaNEONBF16              // arm64: Advanced SIMD and its products of bfloat16
	isaAVX2                  // amd64: AVX2, FMA and F16C
	isaAVX512                // amd64: AVX-512 F, BW, DQ, VL
	isaAVX512BF16            // amd64: AVX-512 and its products of bfloat16
	isaAMX                   // amd64: AVX-512 and AMX's products of tiles of bfloat16
)

var isaNames = map[isa]struct{ word, name string }{
	isaPortable:   {"portable", "portable Go"},
	isaNEON:       {"neon", "NEON"},
	isaNEONBF16:   {"neonbf16", "NEON and its products of bfloat16"},
	isaAVX2:       {"avx2", "AVX2"},
	isaAVX512:     {"avx512", "AVX-512"},
	isaAVX512BF16: {"avx512bf16", "AVX-512 and AVX512-BF16"},
	isaAMX:        {"amx", "AVX-512 and AMX-BF16"},
}

// String is the level's word, as KERAS_CPU has it.
func (l isa) String() string { return isaNames[l].word }

// isaLevel is the level in use: the best of the processor unless KERAS_CPU
// names a lower one. Programs keep the kernels they were compiled with. Only
// tests change it.
var isaLevel = func() (level atomic.Uint32) {
	l, err := chooseISA(os.Getenv("KERAS_CPU"), isaLevels())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	level.Store(uint32(l))
	return
}()

// current is the level that kernels are to use.
func current() isa { return isa(isaLevel.Load()) }

// chooseISA is the level that word names among those of the processor, which
// are in order, or the best with an error if there is none such. No word is
// the best.
func chooseISA(word string, levels []isa) (isa, error) {
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
	return best, fmt.Errorf("KERAS_CPU: got %q, want one of %s on this processor; using %s", word, strings.Join(words, ", "), best)
}
