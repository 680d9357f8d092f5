package simt

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestMMA multiplies matrices of whole numbers, whose sums are exact, with the elements
// placed as the manual's formulas for fragments of mma.m16n8k16 and m16n8k8 say.
func TestMMA(t *testing.T) {
	for _, c := range []struct {
		typ    string
		k      int
		encode func(x float32) uint32
	}{
		{"f16", 16, func(x float32) uint32 { return uint32(toHalf(x)) }},
		{"bf16", 16, func(x float32) uint32 { return uint32(toBFloat(x)) }},
		{"tf32", 8, func(x float32) uint32 { return math.Float32bits(x) | 0xfff }}, // bits that do not count
	} {
		t.Run(c.typ, func(t *testing.T) {
			a := func(i, j int) float32 { return float32((i*7+j*5)%23 - 11) }
			b := func(i, j int) float32 { return float32((i*3+j*11)%19 - 9) }
			init := func(i, j int) float32 { return float32(i - 16*j) }
			// Registers of a lane: four of A, two of B, four of C.
			in := make([]byte, 64*32)
			for l := range 32 {
				group, thread := l/4, l%4
				put := func(register int, u uint32) { binary.LittleEndian.PutUint32(in[64*l+4*register:], u) }
				if c.k == 8 {
					for i := range 4 { // row: group, or group+8 for a1 and a3; column: thread, or thread+4 for a2 and a3
						put(i, c.encode(a(group+8*(i%2), thread+4*(i/2))))
					}
					for i := range 2 {
						put(4+i, c.encode(b(thread+4*i, group)))
					}
				} else {
					for i := range 4 {
						row, column := group, 2*thread
						if i == 1 || i == 3 { // a2, a3, a6, a7
							row += 8
						}
						if i >= 2 { // a4 and later
							column += 8
						}
						put(i, c.encode(a(row, column))|c.encode(a(row, column+1))<<16)
					}
					for i := range 2 {
						put(4+i, c.encode(b(2*thread+8*i, group))|c.encode(b(2*thread+1+8*i, group))<<16)
					}
				}
				for i := range 4 {
					put(6+i, math.Float32bits(init(group+8*(i/2), 2*thread+i%2)))
				}
			}
			lines := []string{}
			for i := range 6 {
				lines = append(lines, fmt.Sprintf("ld.global.u32 %%r%d, [%%i+%d];", i, 4*i))
			}
			for i := range 4 {
				lines = append(lines, fmt.Sprintf("ld.global.f32 %%f%d, [%%i+%d];", i, 24+4*i))
			}
			lines = append(lines, fmt.Sprintf("mma.sync.aligned.m16n8k%d.row.col.f32.%s.%s.f32 {%%f0, %%f1, %%f2, %%f3}, {%%r0, %%r1, %%r2, %%r3}, {%%r4, %%r5}, {%%f0, %%f1, %%f2, %%f3};", c.k, c.typ, c.typ))
			for i := range 4 {
				lines = append(lines, fmt.Sprintf("st.global.f32 [%%o+%d], %%f%d;", 4*i, i))
			}
			out, _, err := execute(t, snippet("", lines...), in, 1, 32)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 16 {
				for j := range 8 {
					want := init(i, j)
					for x := range c.k {
						want += a(i, x) * b(x, j)
					}
					l, r := i%8*4+j/2, i/8*2+j%2
					if got := getF32(getElement(out[64*l+4*r:], 4)); got != want {
						t.Errorf("row %d, column %d: got %v, want %v", i, j, got, want)
					}
				}
			}
		})
	}
}

// TestLoadMatrix: four matrices of 8 by 8, as they lie and transposed, from rows that
// are apart.
func TestLoadMatrix(t *testing.T) {
	program := func(transposed string) string {
		return snippet(".shared .align 16 .b8 s[2048];",
			"mov.u32 %r1, s;", "mad.lo.s32 %r1, %t, 48, %r1;", // row %t%8 of matrix %t/8
			"shl.b32 %r2, %t, 3;", "mov.u32 %r3, 0;",
			"$fill:", "cvt.u16.u32 %h1, %r2;", "st.shared.u16 [%r1], %h1;", "add.s32 %r2, %r2, 1;", "add.s32 %r1, %r1, 2;", "add.s32 %r3, %r3, 1;",
			"setp.lt.u32 %p1, %r3, 8;", "@%p1 bra $fill;", "bar.sync 0;", "sub.s32 %r1, %r1, 16;",
			"ldmatrix.sync.aligned.m8n8.x4"+transposed+".shared.b16 {%r4, %r5, %r6, %r7}, [%r1];",
			"st.global.v4.u32 [%o], {%r4, %r5, %r6, %r7};")
	}
	for _, transposed := range []string{"", ".trans"} {
		out, _, err := execute(t, program(transposed), nil, 1, 32)
		if err != nil {
			t.Fatal(err)
		}
		for l := range 32 {
			for m := range 4 {
				for h := range 2 {
					row, column := l/4, l%4*2+h
					if transposed != "" {
						row, column = column, row
					}
					if got, want := binary.LittleEndian.Uint16(out[64*l+4*m+2*h:]), uint16(64*m+8*row+column); got != want {
						t.Errorf("%q: lane %d, matrix %d, half %d: got %d, want %d", transposed, l, m, h, got, want)
					}
				}
			}
		}
	}
	faultOf(t, strings.Replace(program(""), "bar.sync 0;", "", 1), 32, "ldmatrix", "race: ")
	faultOf(t, strings.Replace(program(""), "%r1, 16;", "%r1, 14;", 1), 32, "ldmatrix", "not aligned to 16")
}
