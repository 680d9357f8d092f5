package gemm

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
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
					for i, taps := range [][]int{{0}, {0, 7 * 16}, {48, 0, 160}} {
						t.Run(fmt.Sprintf("%s/%d/%d/%v/%v", set.Algorithm, rows, steps, extreme, taps), func(t *testing.T) {
							testBytes(t, set, kernel, rows, steps*set.Deep, extreme, taps, []int{ByteColumns, 9, 1}[i])
						})
					}
				}
			}
		}
	}
}

// testBytes has rows of parts that begin at taps; they overlap, as windows do.
func testBytes(t *testing.T, set *Bytes, kernel BytesKernel, rows, k int, extreme bool, taps []int, columns int) {
	r := rand.New(rand.NewPCG(1, uint64(k)))
	const n = ByteColumns - 3
	draw := func(low int) int8 {
		if extreme {
			return int8([]int{low, 127}[r.IntN(2)])
		}
		return int8(r.IntN(128-low) + low)
	}
	deep, lda := k*len(taps), 32
	a, b := make([]int8, rows*lda+slices.Max(taps)+k), make([]int8, deep*n)
	for i := range a {
		a[i] = draw(-128)
	}
	for i := range b {
		b[i] = draw(-128)
	}
	panel := make([]byte, set.PanelBytes(deep))
	set.PackBytes(panel, b, n, deep, n)
	start := unsafe.Slice((*int32)(unsafe.Pointer(&panel[0])), ByteColumns)
	for j := range start {
		start[j] += int32(1000 * j)
	}
	packed, offsets := make([]byte, 0, 2*len(a)), slices.Clone(taps)
	for _, x := range a {
		if set.Widen != nil {
			packed = binary.LittleEndian.AppendUint16(packed, uint16(x))
			continue
		}
		packed = append(packed, byte(int(x)+set.Offset))
	}
	for i := range offsets {
		offsets[i] *= set.Size()
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
	kernel(unsafe.Pointer(&offsets[0]), len(taps), k/4, unsafe.Pointer(&packed[0]), set.Size()*lda, unsafe.Pointer(&panel[0]), unsafe.Pointer(&got[0]), 4*ld, columns)
	for i := range rows {
		for j := range ld {
			want := int32(77)
			computed := j < (columns+set.Group-1)/set.Group*set.Group
			if computed {
				want = int32(1000 * j)
			}
			for p := 0; p < deep && j < n && computed; p++ {
				want += int32(a[i*lda+taps[p/k]+p%k]) * int32(b[p*n+j])
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
