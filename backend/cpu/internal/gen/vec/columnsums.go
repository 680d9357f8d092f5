package vec

import (
	"fmt"
	"strings"
)

// Kernels of this file are sums of columns in float32, for the statistics of normalizations: n
// must be a multiple of the lanes, and calls have so few rows that rounding errors stay small.

// columnPass is a loop down the rows of x, and of grad, that adds to slices
// with an element for each column.
type columnPass struct {
	name, doc string
	sums      int  // slices to which it adds: registers 4 and up, 8 and up
	centered  bool // a slice of values that are subtracted from x comes after them: registers 12 and up
	grad      bool
	body      func(a *emitter, sum [2]reg) // x, centered, is in register 0, grad in 1
}

func init() {
	for _, from := range []struct {
		suffix string
		elem   elem
	}{{"", f32}, {"F16", f16}, {"BF16", bf16}} {
		for _, p := range columnPasses() {
			slices := append(p.perColumn(), "x", "grad")
			special["columnsums"] = append(special["columnsums"], function{
				signature: "(" + strings.Join(slices, ", ") + " unsafe.Pointer, n, rows, stride int)",
				args:      8 * (len(slices) + 3), name: p.name + from.suffix,
				doc:   "for rows r and columns i < n, a multiple of the lanes, " + p.doc,
				write: func(a *emitter) { p.write(a, from.elem) },
			})
		}
	}
}

// perColumn names the slices with an element for each column.
func (p columnPass) perColumn() []string {
	names := []string{"sum", "products"}[:p.sums:p.sums]
	if p.centered {
		names = append(names, "center")
	}
	return names
}

func columnPasses() []columnPass {
	return []columnPass{
		{name: "columnSums", doc: "sum[i] += x[r*stride+i]", sums: 1, body: func(a *emitter, sum [2]reg) {
			a.op("VADDPS", reg(0), sum[0], sum[0])
		}},
		{name: "columnDeviations", doc: "d = x[r*stride+i]-center[i]: sum[i] += d, products[i] += d*d", sums: 2, centered: true, body: func(a *emitter, sum [2]reg) {
			a.op("VADDPS", reg(0), sum[0], sum[0])
			a.op("VFMADD231PS", reg(0), reg(0), sum[1])
		}},
		{name: "columnProducts", doc: "g = grad[r*stride+i]: sum[i] += g, products[i] += g*(x[r*stride+i]-center[i])", sums: 2, centered: true, grad: true, body: func(a *emitter, sum [2]reg) {
			a.op("VADDPS", reg(1), sum[0], sum[0])
			a.op("VFMADD231PS", reg(1), reg(0), sum[1])
		}},
	}
}

// write processes four adjacent vectors of columns, which are four independent chains of
// additions, and then one vector at a time.
func (p columnPass) write(a *emitter, from elem) {
	if a.arm {
		p.writeNEON(a, from)
		return
	}
	names := p.perColumn()
	bases := []string{"DI", "BX", "R12"}[:len(names)]
	a.block("BEGIN_"+macroName(p.name), func() {
		for i, b := range bases {
			a.op("MOVQ", fmt.Sprintf("%s+%d(FP)", names[i], 8*i), b)
		}
		at := 8 * len(bases)
		for _, s := range []struct{ name, to string }{{"x", "SI"}, {"grad", "R13"}, {"n", "CX"}, {"rows", "DX"}, {"stride", "R8"}} {
			a.op("MOVQ", fmt.Sprintf("%s+%d(FP)", s.name, at), s.to)
			at += 8
		}
	})
	a.op("IMULQ", from.size(), "R8")
	a.op("SUBQ", "SI", "R13") // distance from x to grad
	for _, side := range []int{4, 1} {
		loop := fmt.Sprintf("columns%d", side)
		each := func(name string, load bool) {
			for i, b := range bases {
				if i == p.sums && !load {
					continue // the centers stay as they are
				}
				for v := range side {
					r := reg(4 + 4*i + v)
					if i == p.sums {
						r = reg(12 + v)
					}
					address := fmt.Sprintf("%d(%s)", 4*a.lanes()*v, b)
					if load {
						a.op(name, address, r)
					} else {
						a.op(name, r, address)
					}
				}
			}
		}
		a.block(fmt.Sprintf("LOAD_%s_%d", macroName(p.name), side), func() {
			a.label(loop)
			a.op("CMPQ", "CX", side*a.lanes())
			a.op("JLT", loop+"end")
			each("VMOVUPS", true)
			a.op("MOVQ", "SI", "R9")
			a.op("MOVQ", "DX", "R10")
			a.label(loop + "row")
		})
		for v := range side {
			offset := v * from.size() * a.lanes()
			a.block(macroName(p.name)+"_"+elemNames[from]+"_STEP", func() {
				a.widened(from, fmt.Sprintf("%d(R9)", offset), 0)
				if p.centered {
					a.op("VSUBPS", reg(12+v), reg(0), reg(0))
				}
				if p.grad {
					a.widened(from, fmt.Sprintf("%d(R9)(R13*1)", offset), 1)
				}
				p.body(a, [2]reg{reg(4 + v), reg(8 + v)})
			}, "sum", reg(4+v), "products", reg(8+v), "center", reg(12+v))
		}
		a.block(fmt.Sprintf("WRITE_%s_%d", macroName(p.name), side), func() {
			a.op("ADDQ", "R8", "R9")
			a.op("DECQ", "R10")
			a.op("JNZ", loop+"row")
			each("VMOVUPS", false)
			for _, b := range bases {
				a.op("ADDQ", 4*side*a.lanes(), b)
			}
			a.op("ADDQ", from.size()*side*a.lanes(), "SI")
			a.op("SUBQ", side*a.lanes(), "CX")
			a.op("JMP", loop)
			a.label(loop + "end")
		}, "size", from.size())
	}
	a.end()
}

// writeNEON is write: R0 and on have the arguments in order.
func (p columnPass) writeNEON(a *emitter, from elem) {
	perColumn := p.perColumn()
	k := len(perColumn)
	x, grad, n, rows, stride := fmt.Sprintf("R%d", k), fmt.Sprintf("R%d", k+1), fmt.Sprintf("R%d", k+2), fmt.Sprintf("R%d", k+3), fmt.Sprintf("R%d", k+4)
	const atX, atGrad, left = "R10", "R11", "R12"
	a.framed(func() {
		a.block("BEGIN_"+macroName(p.name), func() { a.arguments(append(perColumn, "x", "grad", "n", "rows", "stride")...) })
	}, func() {
		a.line("LSL $%d, %s", map[int]int{2: 1, 4: 2}[from.size()], stride)
		for _, side := range []int{4, 1} {
			l := fmt.Sprint(side)
			each := func(f func(r reg, address string)) {
				for i := range perColumn {
					for v := range side {
						r := reg(4 + 4*i + v)
						if i == p.sums {
							r = reg(12 + v)
						}
						f(r, fmt.Sprintf("%d(R%d)", 16*v, i))
					}
				}
			}
			a.block(fmt.Sprintf("LOAD_%s_%d", macroName(p.name), side), func() {
				a.label("columns" + l)
				a.line("SUBS $%d, %s", 4*side, n)
				a.line("BLT less%s", l)
				each(func(r reg, address string) { a.op("VMOVUPS", address, r) })
				a.line("MOVD %s, %s", x, atX)
				a.line("MOVD %s, %s", grad, atGrad)
				a.line("MOVD %s, %s", rows, left)
				a.label("row" + l)
			})
			for v := range side {
				offset := v * 4 * from.size()
				a.block(macroName(p.name)+"_"+elemNames[from]+"_STEP", func() {
					a.widened(from, fmt.Sprintf("%d(%s)", offset, atX), 0)
					if p.centered {
						a.op("VSUBPS", reg(12+v), reg(0), reg(0))
					}
					if p.grad {
						a.widened(from, fmt.Sprintf("%d(%s)", offset, atGrad), 1)
					}
					p.body(a, [2]reg{reg(4 + v), reg(8 + v)})
				}, "sum", reg(4+v), "products", reg(8+v), "center", reg(12+v))
			}
			a.block(fmt.Sprintf("WRITE_%s_%d", macroName(p.name), side), func() {
				a.line("ADD %s, %s", stride, atX)
				a.line("ADD %s, %s", stride, atGrad)
				a.line("SUBS $1, %s", left)
				a.line("BNE row%s", l)
				each(func(r reg, address string) {
					if r < 12 {
						a.op("VMOVUPS", r, address)
					}
				})
				for i := range perColumn {
					a.line("ADD $%d, R%d", 16*side, i)
				}
				a.line("ADD $%d, %s", 4*side*from.size(), x)
				a.line("ADD $%d, %s", 4*side*from.size(), grad)
				a.line("B columns%s", l)
				a.label("less" + l)
				a.line("ADD $%d, %s", 4*side, n)
			}, "size", from.size())
		}
		a.line("RET")
	})
}
