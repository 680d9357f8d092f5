package exec

import (
	"strings"
	"testing"
	"unsafe"
)

// All tests of this package run between guards.
func init() { Checking = true }

func TestGuards(t *testing.T) {
	for _, n := range []int{1, 63, 64, 1000} {
		for _, at := range []int{-guardBytes, -1, n, n + guardBytes - 1} {
			b := Aligned(n)
			for i := range b {
				b[i] = 1
			}
			checkGuards(b, nil)
			*(*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), at)) = 0
			func() {
				defer func() {
					want := "a kernel wrote behind"
					if at < 0 {
						want = "a kernel wrote before"
					}
					if got, _ := recover().(string); !strings.Contains(got, want) {
						t.Errorf("byte %d of %d: got %q, want %q", at, n, got, want)
					}
				}()
				checkGuards(b, func() string { return "a kernel" })
			}()
		}
	}
}
