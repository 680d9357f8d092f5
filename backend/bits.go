package backend

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

// Bits says on what the last bits of results may depend. What it is belongs to what
// identifies a program.
type Bits int32

// The settings.
const (
	// FastBits lets each instruction set add in the order that is fastest on it. The same
	// program, data and seed give the same bits on the same instruction set.
	FastBits Bits = iota
	// PortableBits has every device compute the same bits on every processor and
	// instruction set, or refuse to compile.
	PortableBits
)

// String returns the word of MEZZO_BITS.
func (b Bits) String() string {
	if b == PortableBits {
		return "portable"
	}
	return "fast"
}

// ParseBits returns the setting that a word of MEZZO_BITS names. An empty word is
// FastBits.
func ParseBits(word string) (Bits, error) {
	switch strings.TrimSpace(word) {
	case "", FastBits.String():
		return FastBits, nil
	case PortableBits.String():
		return PortableBits, nil
	}
	return FastBits, fmt.Errorf("MEZZO_BITS: got %q, want fast or portable", word)
}

// bits is the current setting.
var bits = func() (now atomic.Int32) {
	b, err := ParseBits(os.Getenv("MEZZO_BITS"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	now.Store(int32(b))
	return
}()

// SetBits replaces the setting of MEZZO_BITS and returns the one before. Programs that are
// compiled later obey.
func SetBits(b Bits) (before Bits) { return Bits(bits.Swap(int32(b))) }

// CurrentBits returns the setting.
func CurrentBits() Bits { return Bits(bits.Load()) }
