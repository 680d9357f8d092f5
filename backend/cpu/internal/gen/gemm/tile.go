package gemm

import (
	"fmt"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
	"math/bits"
	"strings"
)

// kernelParams is the signature of every micro-kernel; package gemm documents it at its type
// Kernel.
const kernelParams = "k int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, mask uint"

// tile is a micro-kernel for amd64: a tile of C of rows × vectors registers is summed in
// registers over k, then s is added, and the tile is stored at d.
//
// In each step the vectors of a row of B are loaded, and each element of A is broadcast to a
// register and multiplied with them. An embedded broadcast would need a load for each
// multiplication, and loads would limit the speed.
type tile struct {
	name    string
	rows    int
	vectors int
	bytes   int    // of a register
	reg     string // "Z" or "Y"
	runs    bool   // operands are runs of memory, at a list of offsets
	next    bool   // the next operands are prefetched
	strips  bool   // computes a strip of rows
	copies  bool   // B is packed while it is read
	inner   bool   // A is transposed: its rows are adjacent, and lda is the bytes between elements of the inner dimension
	masked  bool   // columns of s and d are masked
	bcast   string
	loadB   string
	zero    string
	step1   func(acc, a, b int) string // acc += a·b
}

// prefetchParams are the further parameters of kernels that prefetch; package gemm documents
// them at its type PrefetchKernel.
const prefetchParams = ", next unsafe.Pointer, stride int"

// copyParams are the further parameters of kernels that pack B; package gemm documents them at
// its type CopyKernel.
const copyParams = ", packed unsafe.Pointer"

// pixelRunsParams is the signature of kernels on runs of pixels; package gemm documents it at
// its type PixelRuns.
const pixelRunsParams = "n int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, mask uint, at unsafe.Pointer"

// unroll is the number of steps in an iteration of the loop. Addresses have offsets for that
// many, so that pointers move once in an iteration: on some processors additions use the ports
// of multiplications.
const unroll = 4

// stepped returns an address u < unroll strides after a pointer, given the registers of the
// stride and of three times the stride.
func stepped(offset int, pointer, stride, three string, u int) string {
	return fmt.Sprintf("%d(%s)", offset, pointer) + []string{"", "(" + stride + "*1)", "(" + stride + "*2)", "(" + three + "*1)"}[u]
}

// prefetchDistanceB is the number of steps by which rows of B are prefetched: a panel of B
// comes from L3 when its first tile is computed, and the hardware prefetcher stops at every
// page, which is after 32 rows for a panel of 32 columns.
const prefetchDistanceB = 32

// prefetchDistanceA is the number of steps by which A is prefetched, which comes from L2.
const prefetchDistanceA = 32

// prefetchesA reports whether A is prefetched. Short runs of A would end before the prefetched
// line, and a few rows are in L1, or the hardware prefetcher follows them. Without AVX-512, and in
// runs with a single vector of columns, the load ports are busy: a step has as many broadcasts as
// multiplications.
func (t *tile) prefetchesA() bool {
	return !(t.runs && (t.inner || t.vectors == 1)) && !t.strips && t.bytes == 64 && (t.inner || t.rows >= unroll)
}

// prefetchDistanceCopy is that number for kernels that pack B: then B is mostly in L2, and its
// rows share lines of L1, which more prefetches would evict.
const prefetchDistanceCopy = 8

// acc returns the number of an accumulator register.
func (t *tile) acc(i, v int) int { return i*t.vectors + v }

// mask returns the operand of an instruction that masks vector v.
func (t *tile) mask(v int) string {
	if !t.masked {
		return ""
	}
	return fmt.Sprintf("K%d, ", v+1)
}

// Pointers to the rows of A: one for three rows, because an address has a base, once or twice
// lda, and an offset.
var rowBases = []string{"AX", "DX", "SI", "R9", "R10"}

func (t *tile) addressA(i, u int) string {
	if t.inner {
		return stepped(4*i, "AX", "R12", "R10", u)
	}
	at := fmt.Sprintf("%d(%s)", 4*u, rowBases[i/3])
	return at + []string{"", "(R12*1)", "(R12*2)"}[i%3]
}

func (t *tile) write(g *gen) {
	how := "a[i*lda+p]"
	if t.inner {
		how = "a[p*lda+i]"
	}
	lanes := t.bytes / 4
	if t.runs {
		g.text(t.name, pixelRunsParams, fmt.Sprintf("is a PixelRuns of %d rows and %d columns, of %s.", t.rows, t.vectors*lanes, how))
	} else {
		params, what := kernelParams, "Kernel"
		switch {
		case t.next:
			params, what = params+prefetchParams, "PrefetchKernel"
		case t.copies:
			params, what = params+copyParams, "CopyKernel"
		}
		g.text(t.name, params, fmt.Sprintf("is a %s of %d rows and %d columns: Σ %s·b[p*ldb+j].", what, t.rows, t.vectors*lanes, how))
	}
	kind := "KERNEL"
	switch {
	case t.runs:
		kind = "RUNS_KERNEL"
	case t.next:
		kind = "PREFETCH_KERNEL"
	case t.interleaves():
		kind = "COPY_KERNEL_PAIRS"
	case t.copies:
		kind = "COPY_KERNEL"
	}
	kind += map[bool]string{true: "_INNER", false: "_ROWS"}[t.inner]
	if t.runs && !t.inner && t.vectors == 1 {
		kind += "_NARROW"
	}
	if t.reg == "Y" {
		kind += "_AVX2"
	}
	if !t.inner && t.rows < unroll { // there is one pointer to A
		kind += "_FEW"
	}
	g.block(kind, func() { t.body(g) }, t.parts()...)
}

// parts returns the macros of a kernel's parts, by purpose.
func (t *tile) parts() []any {
	name := func(what string) string { return fmt.Sprintf("%s_%d%s", what, t.rows, t.width()) }
	list := []any{
		"mask", fmt.Sprintf("LOAD_MASK_%d", t.vectors), "prefetchw", name("PREFETCHW_C"), "zero", name("ZERO_C"),
		"point", fmt.Sprintf("POINT_A_%d", (t.rows+2)/3), "step", t.stepMacro(), "advance", t.advanceMacro(),
		"add", name("ADD_S"), "store", name("STORE_C"),
	}
	for u := range unroll {
		list = append(list, fmt.Sprintf("prefetch%d", u), t.prefetchMacro(u))
	}
	return list
}

// prefetchMacro returns the macro that prefetches A in step u, or "".
func (t *tile) prefetchMacro(u int) string {
	if n := (t.rows - u + unroll - 1) / unroll; !t.inner && t.prefetchesA() && n > 0 {
		return fmt.Sprintf("PREFETCH_A_%d_FROM_%d", n, u)
	}
	return ""
}

// arithmetic returns the name of the products of a step.
func (t *tile) arithmetic() string {
	return map[string]string{"VBROADCASTSS": "FMA", "VPBROADCASTD": "DOT"}[t.bcast]
}

// stepMacro returns the name of a step's macro.
func (t *tile) stepMacro() string {
	form := "_ROWS"
	if t.inner {
		form = "_INNER"
	}
	if t.copies {
		form += "_COPY"
	}
	if t.prefetchesA() {
		form += "_PREFETCH"
	}
	return fmt.Sprintf("%s_STEP%s_%d%s", t.arithmetic(), form, t.rows, t.width())
}

// advanceMacro returns the name of the macro that moves the pointers; for kernels that pack B
// it depends on the columns.
func (t *tile) advanceMacro() string {
	name := "ADVANCE"
	if t.copies {
		name += "_COPY"
	}
	if t.interleaves() {
		name += "_PAIRS"
	}
	if t.inner {
		name += "_INNER"
	} else {
		name += fmt.Sprintf("_ROWS%d", (t.rows+2)/3)
	}
	if t.inner && t.prefetchesA() {
		name += "_PREFETCH"
	}
	if t.copies {
		name += "_" + t.width()
	}
	return name
}

// body writes the instructions of a kernel.
func (t *tile) body(g *gen) {
	if t.runs {
		g.block("LOAD_RUNS_ARGS", func() {
			g.ins("MOVQ lda+16(FP), R12\nMOVQ ldb+32(FP), R13\nMOVQ d+56(FP), DI\nMOVQ ldd+64(FP), R8")
		})
	} else {
		g.block("LOAD_KERNEL_ARGS", func() {
			g.ins("MOVQ k+0(FP), CX\nMOVQ a+8(FP), AX\nMOVQ lda+16(FP), R12\nMOVQ b+24(FP), BX\nMOVQ ldb+32(FP), R13\nMOVQ d+56(FP), DI\nMOVQ ldd+64(FP), R8")
		})
		if t.next {
			g.ins("MOVQ next+80(FP), R15")
		}
		if t.copies {
			g.ins("MOVQ packed+80(FP), R15")
		}
	}
	if t.masked {
		g.macro(fmt.Sprintf("LOAD_MASK_%d", t.vectors), func() {
			g.ins("MOVQ mask+72(FP), DX\nKMOVW DX, K1")
			if t.vectors > 1 {
				g.ins("SHRQ $16, DX\nKMOVW DX, K2")
			}
		})
	}
	// The tile at d is prefetched with write intent while the sums are computed, because its
	// lines may be in other cores' caches.
	g.ins("MOVQ DI, DX")
	t.prefetchC(g)
	t.zeroC(g)
	if t.continues() {
		t.beginS(g)
	}
	bases := rowBases[:(t.rows+2)/3]
	begin := func() { // set the pointers to A, and prefetch B
		if !t.inner {
			t.pointA(g, bases)
		}
		if t.interleaves() {
			g.block("POINT_ODD_ROWS", func() { g.ins("LEAQ (BX)(R13*1), R8\nADDQ R13, R13") })
		}
		t.pointPrefetchB(g)
		if t.interleaves() {
			g.block("POINT_PREFETCH_ODD_ROWS", func() { g.ins("MOVQ R14, DI\nADDQ ldb+32(FP), DI") })
		}
		if t.inner && t.prefetchesA() {
			g.block("POINT_PREFETCH_A", func() {
				g.ins("MOVQ R12, SI\nSHLQ $%d, SI\nADDQ AX, SI", bits.TrailingZeros(prefetchDistanceA))
			})
		}
	}
	if !t.runs {
		begin()
	}
	if t.inner {
		g.block("THREE_STRIDES", func() { g.ins("LEAQ (R13)(R13*2), R11\nLEAQ (R12)(R12*2), R10") })
	} else {
		g.ins("LEAQ (R13)(R13*2), R11")
	}
	if t.runs {
		g.ins("MOVQ at+80(FP), R15")
		g.label("run")
		g.block("NEXT_RUN", func() {
			g.ins("MOVQ (R15), AX\nMOVQ 8(R15), BX\nMOVQ 16(R15), CX\nADDQ $24, R15\nADDQ a+8(FP), AX\nADDQ b+24(FP), BX")
		})
		begin()
	}
	end := "sum"
	switch {
	case t.runs:
		end = "next"
	case t.interleaves():
		end = "restore"
	}
	t.steps(g, bases, end)
	if t.runs {
		g.label("next")
		g.ins("DECQ n+0(FP)\nJNZ run")
	}
	if t.interleaves() {
		g.block("RESTORE_C", func() {
			g.label("restore")
			g.ins("MOVQ d+56(FP), DI\nMOVQ ldd+64(FP), R8")
		})
	}
	t.end(g)
}

// steps goes through the CX steps of the inner dimension, and to a label where there are none
// left.
func (t *tile) steps(g *gen, bases []string, end string) {
	advance := func(n int) { g.macro(t.advanceMacro(), func() { t.advance(g, n, bases) }, "n", n) }
	g.block("LOOP_OF_FOUR", func() {
		g.ins("SUBQ $%d, CX\nJLT tail\nPCALIGN $64", unroll)
		g.label("loop")
	})
	for u := range unroll {
		t.step(g, u)
		if t.next && u%2 == 1 {
			g.ins("PREFETCHT1 %d(R15)", 64*(u/2))
		}
	}
	if t.next {
		g.ins("ADDQ stride+88(FP), R15")
	}
	advance(unroll)
	g.block("LOOP_OF_ONE", func() {
		g.ins("SUBQ $%d, CX\nJGE loop", unroll)
		g.label("tail")
		g.ins("ADDQ $%d, CX\nJLE %s", unroll, end)
		g.label("rest")
	}, "end", end)
	t.step(g, 0)
	advance(1)
	g.ins("DECQ CX\nJNZ rest")
}

// prefetchC prefetches the rows of the result from DX on with write intent.
func (t *tile) prefetchC(g *gen) {
	g.sharedRows("PREFETCHW_C", t.width(), t.rows, func(i int) {
		if i > 0 {
			g.ins("ADDQ R8, DX")
		}
		for v := 0; v < t.vectors*t.bytes; v += 64 {
			g.ins("%s", amd64.Prefetchw(v, amd64.DX))
		}
	})
}

// zeroC clears the accumulators.
func (t *tile) zeroC(g *gen) {
	g.sharedRows("ZERO_C", t.width(), t.rows, func(i int) {
		for v := range t.vectors {
			g.ins("%s %[2]s%[3]d, %[2]s%[3]d, %[2]s%[3]d", t.zero, t.reg, t.acc(i, v))
		}
	})
}

// pointA sets the pointers to rows of A.
func (t *tile) pointA(g *gen, bases []string) {
	if len(bases) > 1 {
		g.macro(fmt.Sprintf("POINT_A_%d", len(bases)), func() {
			for i := 1; i < len(bases); i++ {
				g.ins("LEAQ (%s)(R12*2), %s\nADDQ R12, %s", bases[i-1], bases[i], bases[i])
			}
		})
	}
}

// pointPrefetchB sets the pointer to the rows of B that are prefetched.
func (t *tile) pointPrefetchB(g *gen) {
	steps := uint(prefetchDistanceB)
	if t.copies {
		steps = prefetchDistanceCopy
	}
	g.block("POINT_PREFETCH_B", func() {
		g.ins("MOVQ R13, R14\nSHLQ $%d, R14\nADDQ BX, R14", bits.TrailingZeros(steps))
	}, "shift", bits.TrailingZeros(steps))
}

// storeC stores the rows of the result; DI is the last one afterwards.
func (t *tile) storeC(g *gen) {
	g.sharedRows("STORE_C", t.width(), t.rows, func(i int) {
		if i > 0 {
			g.ins("ADDQ R8, DI")
		}
		for v := range t.vectors {
			g.ins("VMOVUPS %s%d, %s%d(DI)", t.reg, t.acc(i, v), t.mask(v), v*t.bytes)
		}
	})
}

// interleaves reports whether B is packed from rows of bfloat16, two of which make a row of
// pairs: R8 points to the odd rows, DI to the prefetched rows, and R13 is the bytes between
// every second row.
func (t *tile) interleaves() bool { return t.copies && t.arithmetic() == "DOT" }

// loadPairs interleaves two rows of B of step u in registers, stores them to the panel, and
// prefetches later rows.
func (t *tile) loadPairs(g *gen, u int, hints []any) {
	first := t.rows * t.vectors
	odd := stepped(0, "R8", "R13", "R11", u)
	g.block("LOAD_COPY_B_PAIRS", func() {
		g.ins("VMOVDQU64 %s, Z%d", stepped(0, "BX", "R13", "R11", u), first+2)
		for v := range 2 {
			g.ins("VMOVDQU64 interleave<>+%d(SB), Z%d", 64*v, first+v)
		}
		for v := range 2 {
			g.ins("VPERMI2W %s, Z%d, Z%d", odd, first+2, first+v)
		}
		for v := range 2 {
			g.ins("VMOVDQU64 Z%d, %d(R15)", first+v, 64*(2*u+v))
		}
		g.ins("PREFETCHT0 %s\nPREFETCHT0 %s", stepped(0, "R14", "R13", "R11", u), stepped(0, "DI", "R13", "R11", u))
	}, append(hints, "odd", odd[1:], "nextOdd", stepped(0, "DI", "R13", "R11", u)[1:], "copy", 128*u)...)
}

// interleaveTable writes the indices of the interleaved elements of two rows.
func (g *gen) interleaveTable() {
	var data strings.Builder
	for i := range 16 { // 64-bit words of 4 elements
		var w uint64
		for j := range 4 {
			n := 4*i + j
			w |= uint64(n/2+n%2*32) << (16 * j)
		}
		fmt.Fprintf(&data, "DATA interleave<>+%d(SB)/8, $0x%016x\n", 8*i, w)
	}
	data.WriteString("GLOBL interleave<>(SB), RODATA|NOPTR, $128\n")
	g.file.Raw(data.String())
}

// end adds s to the sums, stores them, and returns.
func (t *tile) end(g *gen) {
	add, store := fmt.Sprintf("ADD_S_%d%s", t.rows, t.width()), fmt.Sprintf("STORE_C_%d%s", t.rows, t.width())
	g.block("END_C", func() {
		g.label("sum")
		g.ins("MOVQ s+40(FP), SI\nTESTQ SI, SI\nJZ store\nMOVQ lds+48(FP), R9")
		t.addS(g)
		g.label("store")
		t.storeC(g)
		g.end()
	}, "add", add, "store", store)
}

// addS adds the rows at SI, R9 bytes apart, to the sums.
func (t *tile) addS(g *gen) {
	g.sharedRows("ADD_S", t.width(), t.rows, func(i int) {
		if i > 0 {
			g.ins("ADDQ R9, SI")
		}
		for v := range t.vectors {
			acc := t.acc(i, v)
			g.ins("VADDPS %d(SI), %s%d, %s%s%d", v*t.bytes, t.reg, acc, t.mask(v), t.reg, acc)
		}
	})
}

// continues reports whether the sums can begin with s: see gemm.Kernel.
func (t *tile) continues() bool {
	return t.masked && !t.inner && !t.runs && !t.next && (!t.copies || t.interleaves())
}

// beginS adds s to the sums before the first product rather than after the last one if the
// sign bit of the mask is set.
func (t *tile) beginS(g *gen) {
	g.block("BEGIN_S", func() {
		g.ins("CMPQ mask+72(FP), $0\nJGE begin\nMOVQ s+40(FP), SI\nMOVQ lds+48(FP), R9\nMOVQ $0, s+40(FP)")
		t.addS(g)
		g.label("begin")
	}, "add", fmt.Sprintf("ADD_S_%d%s", t.rows, t.width()))
}

// width returns the suffix of macros that depend on the columns.
func (t *tile) width() string {
	w := fmt.Sprintf("x%d", t.vectors)
	if t.reg == "Y" {
		w += "_AVX2"
	}
	return w
}

// step writes step u of the inner dimension: it loads a row of B, prefetches, and multiplies.
func (t *tile) step(g *gen, u int) {
	first := t.rows * t.vectors
	b := func(v int) string { return fmt.Sprintf("%s%d", t.reg, first+v) }
	load := "LOAD_B_" + t.width()[1:]
	if t.copies {
		load = "LOAD_COPY_B_" + t.width()[1:]
	}
	hints := []any{"b0", b(0), "b1", b(1), "a0", b(t.vectors), "a1", b(t.vectors + 1), "pb", stepped(0, "BX", "R13", "R11", u)[1:], "next", stepped(0, "R14", "R13", "R11", u)[1:], "a", stepped(0, "AX", "R12", "R10", u)[1:]}
	arithmetic := t.arithmetic()
	rows := arithmetic + "_ROWS"
	if t.inner {
		rows = arithmetic + "_INNER"
	}
	prefetch := t.prefetchMacro(u)
	body := func() {
		if t.interleaves() {
			t.loadPairs(g, u, hints)
		} else {
			g.block(load, func() {
				for v := range t.vectors {
					// Unmasked: on some processors a mask costs an operation on the ports of
					// multiplications.
					g.ins("%s %s, %s", t.loadB, stepped(v*t.bytes, "BX", "R13", "R11", u), b(v))
					if t.copies {
						g.ins("VMOVUPS %s, %d(R15)", b(v), (u*t.vectors+v)*t.bytes)
					}
				}
				for v := 0; v < t.vectors*t.bytes; v += 64 {
					g.ins("PREFETCHT0 %s", stepped(v, "R14", "R13", "R11", u))
				}
			}, append(hints, "copy", u*t.vectors*t.bytes)...)
		}
		if t.inner && t.prefetchesA() {
			for i := range t.rows {
				if i == 0 || i == t.rows-1 {
					g.ins("PREFETCHT0 %s", stepped(4*i, "SI", "R12", "R10", u))
				}
			}
		}
		if prefetch != "" {
			g.macro(prefetch, func() {
				for i := u; i < t.rows; i += unroll {
					g.ins("PREFETCHT0 %d(%s)%s", 4*prefetchDistanceA, rowBases[i/3], []string{"", "(R12*1)", "(R12*2)"}[i%3])
				}
			})
		}
		g.rowsOf(rows, t.width(), t.rows, func(i int) {
			a := t.vectors + i%2
			g.block(fmt.Sprintf("%s_ROW_%s", arithmetic, t.width()[1:]), func() {
				g.ins("%s %s, %s", t.bcast, t.addressA(i, u), b(a))
				for v := range t.vectors {
					g.ins("%s", t.step1(t.acc(i, v), first+a, first+v))
				}
			}, "acc0", fmt.Sprintf("%s%d", t.reg, t.acc(i, 0)), "acc1", fmt.Sprintf("%s%d", t.reg, t.acc(i, 1)), "b0", b(0), "b1", b(1), "a", b(a), "at", t.addressA(i, u))
		}, append(hints, "off", 4*u)...)
	}
	params := []any{"b", stepped(0, "BX", "R13", "R11", u)[1:], "next", stepped(0, "R14", "R13", "R11", u)[1:]}
	if t.inner {
		params = append(params, "a", stepped(0, "AX", "R12", "R10", u)[1:])
		if t.prefetchesA() {
			params = append(params, "later", stepped(0, "SI", "R12", "R10", u)[1:])
		}
	} else {
		params = append(params, "off", 4*u)
	}
	if t.copies {
		params = append(params, "copy", u*t.vectors*t.bytes)
	}
	if t.interleaves() {
		params = append(params, "odd", stepped(0, "R8", "R13", "R11", u)[1:], "nextOdd", stepped(0, "DI", "R13", "R11", u)[1:])
	}
	if prefetch != "" {
		params = append(params, "prefetch", prefetch)
	}
	g.macro(t.stepMacro(), body, params...)
}

// advance moves the pointers by n steps.
func (t *tile) advance(g *gen, n int, bases []string) {
	times := map[int]string{1: "*1", 4: "*4"}[n]
	g.ins("LEAQ (BX)(R13%[1]s), BX\nLEAQ (R14)(R13%[1]s), R14", times)
	if t.copies {
		g.ins("ADDQ $%d, R15", n*t.vectors*t.bytes)
	}
	if t.interleaves() {
		g.ins("LEAQ (R8)(R13%[1]s), R8\nLEAQ (DI)(R13%[1]s), DI", times)
	}
	if t.inner {
		g.ins("LEAQ (AX)(R12%s), AX", times)
		if t.prefetchesA() {
			g.ins("LEAQ (SI)(R12%s), SI", times)
		}
		return
	}
	for _, b := range bases {
		g.ins("ADDQ $%d, %s", 4*n, b)
	}
}

// family writes the kernels of one kind of arithmetic, and tables of them.
func (g *gen) family(prefix string, rows int, widths []int, base tile) {
	what, least := "Kernel", 1
	switch {
	case base.next:
		what, least = "PrefetchKernel", rows/2
	case base.copies:
		what, least = "CopyKernel", rows/2
	}
	forms := []bool{false, true}
	if base.interleaves() {
		least, forms = 1, forms[:1]
	}
	for _, inner := range forms {
		for _, vectors := range widths {
			name := func(mr int) string {
				form := "Rows"
				if inner {
					form = "Inner"
				}
				return fmt.Sprintf("%s%s%dx%d", prefix, form, mr, vectors*base.bytes/4)
			}
			for mr := least; mr <= rows; mr++ {
				t := base
				t.name, t.rows, t.vectors, t.inner = name(mr), mr, vectors, inner
				t.write(g)
			}
			table := name(0)
			g.table(what, least, table[:len(table)-len(fmt.Sprintf("0x%d", vectors*base.bytes/4))]+fmt.Sprint(vectors*base.bytes/4), rows, name)
		}
	}
}
