package vec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// function is a function that is not a loop over the elements of slices.
type function struct {
	signature string // in Go, without the name
	args      int    // bytes of arguments and results
	write     func(a *emitter)
	name      string
	doc       string
	wide      bool // only for AVX-512
}

// special are these functions by output file.
var special = map[string][]function{"columns": {
	{columnParams, 40, columns(f32, ""), "sumColumns", columnDoc + "+= float64(x[r*stride+i]); 16-bit floats in fours, added in float32", false},
	{columnParams, 40, columns(f16, ""), "sumColumnsF16", columnDoc + "+= float64(x[r*stride+i]); 16-bit floats in fours, added in float32", false},
	{columnParams, 40, columns(bf16, ""), "sumColumnsBF16", columnDoc + "+= float64(x[r*stride+i]); 16-bit floats in fours, added in float32", false},
	{columnParams, 40, columns(f32, "VMAXPD"), "largestColumns", columnDoc + "= max(acc[i], x[r*stride+i]), NaN if there is one", false},
	{columnParams, 40, columns(f16, "VMAXPD"), "largestColumnsF16", columnDoc + "= max(acc[i], x[r*stride+i]), NaN if there is one", false},
	{columnParams, 40, columns(bf16, "VMAXPD"), "largestColumnsBF16", columnDoc + "= max(acc[i], x[r*stride+i]), NaN if there is one", false},
	{columnParams, 40, columns(f32, "VMINPD"), "smallestColumns", columnDoc + "= min(acc[i], x[r*stride+i]), NaN if there is one", false},
	{columnParams, 40, columns(f16, "VMINPD"), "smallestColumnsF16", columnDoc + "= min(acc[i], x[r*stride+i]), NaN if there is one", false},
	{columnParams, 40, columns(bf16, "VMINPD"), "smallestColumnsBF16", columnDoc + "= min(acc[i], x[r*stride+i]), NaN if there is one", false},
}, "erf": {
	{"(d unsafe.Pointer, ld, rows, n int)", 32, geluRows, "geluRows", "for rows r and i < n, d[r*ld+i] becomes that times normalCDFTable of it; ld is in bytes", true},
}, "special": {
	{philoxParams, 40, philox, "philox",
		"blocks first to first+n-1 of Philox4x32-10, as numbers in [0, 1); n is a multiple of 32", false},
	{philoxParams, 40, philox16, "philox16",
		"blocks first to first+n-1 of Philox4x32-10, as numbers of 16 bits in [0, 1); n is a multiple of 32", false},
	{philoxFlagsParams, 44, philoxAtLeast, "philoxAtLeast",
		"halves of words of blocks first to first+n-1 of Philox4x32-10: whether they are at least bound, which is there twice, as bytes; n is a multiple of 32", false},
	{tileParams, 32, transpose, "transpose8",
		"dst[i*to+j] = src[j*from+i] for i, j < 8, elements of four bytes", false},
	{tileParams, 32, transpose16, "transpose8U16",
		"dst[i*to+j] = src[j*from+i] for i, j < 8, elements of two bytes", false},
	{tileParams, 32, tile(false, false), "tile", tileDoc + "elements of four bytes, j < 16", true},
	{tileParams, 32, tile(false, true), "tileNT", "tile with non-temporal stores, to multiples of 64", true},
	{tileParams, 32, tile(true, false), "tileU16", tileDoc + "elements of two bytes, j < 32", true},
	{tileParams, 32, tile(true, true), "tileU16NT", "tileU16 with non-temporal stores, to multiples of 64", true},
	{"(n int)", 8, pause, "pause", "waits for n times the processor's pause in a loop", false},
}, "stream": {
	{copyParams, 24, copyNT, "copyNT", "dst[i] = src[i] for n bytes, a multiple of 512, with non-temporal stores; dst is a multiple of 64", false},
	{fillParams, 20, fillNT, "fillNT", "n bytes of dst, a multiple of 64, are x over and over; dst is one, too", false},
	{"(dst, src unsafe.Pointer, n, rows, to, from int)", 48, copyRowsNT, "copyRowsNT",
		"dst[r*to+i] = src[r*from+i] for rows r and i < n bytes, a multiple of 64, with non-temporal stores; dst and to are multiples of 64", false},
	{"()", 0, fence, "fence", "waits for the non-temporal stores", false},
	{"(src unsafe.Pointer, n int)", 16, prefetchLoad, "prefetchLoad", "reads n bytes, a multiple of 512", false},
	{"(src unsafe.Pointer, n int)", 16, prefetch, "prefetch", "prefetches n bytes to L1; src may be shorter", false},
	{"(src unsafe.Pointer, n, rows, step int)", 32, prefetchRows, "prefetchRows", "prefetches n bytes of each of some rows to L2; rows are step bytes apart and may be shorter", false},
}, "rows": {
	{foldRowParams, 40, foldRows(""), "sumRows", "for rows r, dst[r] = Σ float64(x[r*n+i]); rows is a multiple of a vector's float64", false},
	{foldRowParams, 40, foldRows("VMAXPD"), "largestRows", "for rows r, dst[r] = max x[r*n+i]; ret is not 0 if there is a NaN", false},
	{foldRowParams, 40, foldRows("VMINPD"), "smallestRows", "for rows r, dst[r] = min x[r*n+i]; ret is not 0 if there is a NaN", false},
	{rowParams, 32, softmaxRows(false), "softmaxRows", "for rows r, dst[r] = softmax(x[r]) of n elements, at most a vector", false},
	{rowParams, 32, softmaxRows(true), "logSoftmaxRows", "for rows r, dst[r] = log(softmax(x[r])) of n elements, at most a vector", false},
	{argParams, 36, argRows, "argRows", "for rows r, dst[r] = argmax(x[r] xor sign) of n elements, at most a vector", false},
}}

func init() {
	for _, t := range passTypes {
		for _, nt := range []bool{false, true} {
			if t.convert {
				continue
			}
			name, doc := "philoxScale"+t.suffix, "dst[i] = x[i]*s where half word i of blocks first to first+n-1 of Philox4x32-10 is at least bound, which is there twice, else 0; n is a multiple of 32"
			if nt {
				name, doc = name+"NT", doc+"; with non-temporal stores, dst a multiple of 64"
			}
			special["special"] = append(special["special"], function{philoxScaleParams, 56, philoxScale(t.elem, nt), name, doc, true})
		}
	}
}

const (
	tileParams    = "(dst, src unsafe.Pointer, to, from int)"
	tileDoc       = "dst[i*to+j] = src[j*from+i] for i < 16; "
	foldRowParams = "(dst, x unsafe.Pointer, n, rows int) (ret int)"
	columnParams  = "(acc, x unsafe.Pointer, n, rows, stride int)"
	columnDoc     = "for rows r and columns i < n, acc[i] "
)

func pause(a *emitter) {
	if a.arm {
		pauseNEON(a)
		return
	}
	a.op("MOVQ", "n+0(FP)", "CX")
	a.label("again")
	a.op("PAUSE")
	a.op("DECQ", "CX")
	a.op("JNZ", "again")
	a.op("RET")
}

// vector returns the operand of a vector with the given lanes.
func (a *emitter) vector(lanes []uint32) string {
	return a.named("lanes"+strings.Trim(strings.ReplaceAll(fmt.Sprint(lanes), " ", "_"), "[]"), lanes)
}

// named is vector with a name for the constant.
func (a *emitter) named(name string, lanes []uint32) string {
	var text strings.Builder
	for i := 0; i < len(lanes); i += 2 {
		fmt.Fprintf(&text, "DATA %s<>+%d(SB)/8, $0x%08x%08x\n", name, 4*i, lanes[i+1], lanes[i])
	}
	fmt.Fprintf(&text, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", name, 4*len(lanes))
	a.vectors[name] = text.String()
	return name + "<>(SB)"
}

// lanesData writes the constants with different lanes.
func (a *emitter) lanesData() {
	for _, v := range slices.Sorted(maps.Keys(a.vectors)) {
		a.Raw(a.vectors[v])
	}
}
