package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestBytes compares all kernels with the formula, with the most extreme integers, too.
func TestBytes(t *testing.T) {
	for _, set := range AllBytes() {
		for rows, kernel := range set.Rows {
			if kernel == nil {
				continue
			}
			for _, steps := range []int{1, 3, 16, 64} {
				for _, extreme := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%d/%d/%v", set.Algorithm, rows, steps, extreme), func(t *testing.T) {
						testBytes(t, set, kernel, rows, steps*set.Deep, extreme)
					})
				}
			}
		}
	}
}

func testBytes(t *testing.T, set *Bytes, kernel BytesKernel, rows, k int, extreme bool) {
	r := rand.New(rand.NewPCG(1, uint64(k)))
	const n = ByteColumns - 3
	draw := func(low int) int8 {
		if extreme {
			return int8([]int{low, 127}[r.IntN(2)])
		}
		return int8(r.IntN(128-low) + low)
	}
	a, b := make([]int8, rows*k), make([]int8, k*n)
	for i := range a {
		a[i] = draw(-127)
	}
	for i := range b {
		b[i] = draw(-128)
	}
	panel := make([]byte, PanelBytes(k))
	set.PackBytes(panel, b, n, k, n)
	lda := k*set.Size + 64
	packed := make([]byte, rows*lda)
	for i := range rows {
		for p := range k {
			if v := int(a[i*k+p]); set.Size == 2 {
				*(*int16)(unsafe.Pointer(&packed[i*lda+2*p])) = int16(v)
			} else {
				packed[i*lda+p] = byte(v + set.Offset)
			}
		}
	}
	const ld = ByteColumns + 8
	got := make([]int32, rows*ld)
	for i := range got {
		got[i] = 77
	}
	if set.Begin != nil {
		set.Begin()
		defer set.End()
	}
	kernel(k/4, unsafe.Pointer(&packed[0]), lda, unsafe.Pointer(&panel[0]), unsafe.Pointer(&got[0]), 4*ld)
	for i := range rows {
		for j := range ld {
			want := int32(77)
			if j < ByteColumns {
				want = 0
			}
			for p := 0; p < k && j < n; p++ {
				want += int32(a[i*k+p]) * int32(b[p*n+j])
			}
			if got[i*ld+j] != want {
				t.Fatalf("element %d, %d: got %d, want %d", i, j, got[i*ld+j], want)
			}
		}
	}
}

// TestTake: numbers of rows are cut into those that there are kernels for.
func TestTake(t *testing.T) {
	for _, set := range AllBytes() {
		for n := 1; n < 70; n++ {
			for left := n; left > 0; {
				k, rows := set.Take(left)
				if k == nil || rows < 1 || rows > left && !set.Pad {
					t.Fatalf("%s: Take(%d) has %d rows", set.Algorithm, left, rows)
				}
				left -= rows
			}
		}
	}
}
