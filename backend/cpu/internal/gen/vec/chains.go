package vec

// prefetchDistance is the distance in bytes at which chains prefetch their results.
const prefetchDistance = 2048

// chainKernels compute a few operations on each element in registers: the updates of
// optimizers. Every operation rounds, as in a loop with that operation alone; nothing is
// contracted to a fused multiply-add.
func chainKernels() []*kernel {
	a, b, c, s, t := reg(0), reg(1), reg(2), scalarReg, scalarReg+1
	vectors := func(name string, n int, body func(k *emitter)) func(k *emitter) {
		return func(k *emitter) {
			for i := n; i > 0; i-- {
				k.load(i, reg(i-1))
			}
			k.macro(macroName(name)+"_STEP", func() { body(k) })
			k.store(0)
		}
	}
	numbers := []param{{name: "s", scalar: true}, {name: "t", scalar: true}}
	chain := func(name, doc string, body func(k *emitter)) *kernel {
		return &kernel{
			name: name, doc: doc, form: "CHAIN", step: macroName(name) + "_STEP",
			body: func(k *emitter) {
				k.prefetchW(0, prefetchDistance)
				vectors(name, 2, body)(k)
			},
			params: append([]param{{name: "dst"}, {name: "a"}, {name: "b"}}, numbers...),
		}
	}
	// Square roots and divisions take so long that the next elements can be prefetched
	// meanwhile.
	slowChain := func(name, doc string, body func(k *emitter)) *kernel {
		return &kernel{
			name: name, doc: doc + ", prefetching p, q, u and v", form: "SLOW_CHAIN", step: macroName(name) + "_STEP",
			body: func(k *emitter) {
				k.prefetchW(0, prefetchDistance)
				if !k.rest {
					k.block("PREFETCH_NEXT", func() {
						for i := 4; i < 8; i++ {
							k.op("PREFETCHT0", k.address(i))
						}
					})
				}
				vectors(name, 3, body)(k)
			},
			params: append([]param{
				{name: "dst"}, {name: "a"}, {name: "b"}, {name: "c"},
				{name: "p"}, {name: "q"}, {name: "u"}, {name: "v"},
			}, numbers...),
		}
	}
	// Operands are in the order of the Go assembler: y, x, x-y.
	square := func(k *emitter) { k.op("VMULPS", b, b, b) }
	lerp := func(k *emitter) {
		k.op("VSUBPS", a, b, b)
		k.op("VMULPS", s, b, b)
		k.op("VADDPS", b, a, a)
	}
	flush := func(k *emitter) {
		k.op("VADDPS", t, a, a)
		k.op("VSUBPS", t, a, a)
	}
	blend := func(k *emitter) {
		k.op("VMULPS", s, a, a)
		k.op("VMULPS", t, b, b)
		k.op("VADDPS", b, a, a)
	}
	step := func(k *emitter) {
		k.op("VMULPS", s, b, b)
		k.op("VDIVPS", c, b, b)
		k.op("VSUBPS", b, a, a)
	}
	return []*kernel{
		chain("lerp", "dst[i] = a[i] + (b[i]-a[i])*s", lerp),
		chain("lerpSquare", "dst[i] = a[i] + (b[i]*b[i]-a[i])*s", func(k *emitter) {
			square(k)
			lerp(k)
		}),
		chain("lerpFlush", "dst[i] = a[i] + (b[i]-a[i])*s + t - t", func(k *emitter) {
			lerp(k)
			flush(k)
		}),
		chain("lerpSquareFlush", "dst[i] = a[i] + (b[i]*b[i]-a[i])*s + t - t", func(k *emitter) {
			square(k)
			lerp(k)
			flush(k)
		}),
		chain("blend", "dst[i] = a[i]*s + b[i]*t", blend),
		chain("blendSquare", "dst[i] = a[i]*s + b[i]*b[i]*t", func(k *emitter) {
			square(k)
			blend(k)
		}),
		chain("blendSub", "dst[i] = a[i]*s - b[i]*t", func(k *emitter) {
			k.op("VMULPS", s, a, a)
			k.op("VMULPS", t, b, b)
			k.op("VSUBPS", b, a, a)
		}),
		chain("addScaled", "dst[i] = a[i] + b[i]*s", func(k *emitter) {
			k.op("VMULPS", s, b, b)
			k.op("VADDPS", b, a, a)
		}),
		chain("subScaled", "dst[i] = a[i] - b[i]*s", func(k *emitter) {
			k.op("VMULPS", s, b, b)
			k.op("VSUBPS", b, a, a)
		}),
		slowChain("rootStep", "dst[i] = a[i] - b[i]*s/(√c[i]+t)", func(k *emitter) {
			k.op("VSQRTPS", c, c)
			k.op("VADDPS", t, c, c)
			step(k)
		}),
		slowChain("rootStepInside", "dst[i] = a[i] - b[i]*s/√(c[i]+t)", func(k *emitter) {
			k.op("VADDPS", t, c, c)
			k.op("VSQRTPS", c, c)
			step(k)
		}),
		moments(),
	}
}

// moments is Adam's update in one loop: the arithmetic of the moments is done
// while root and quotient keep the divider busy.
func moments() *kernel {
	const m, v, w, g, t = reg(0), reg(1), reg(2), reg(3), reg(4)
	const numbers = reg(6)
	k := &kernel{
		name: "moments", spread: numbers,
		doc:    "m[i] += (grad[i]-m[i])*s + t - t; v[i] += (grad[i]*grad[i]-v[i])*u + x - x; w[i] -= m[i]*y/(√v[i]+z)",
		params: []param{{name: "m"}, {name: "v"}, {name: "w"}, {name: "grad"}},
		body: func(k *emitter) {
			for i := range 3 {
				k.prefetchW(i, prefetchDistance)
			}
			if !k.rest {
				k.op("PREFETCHT0", k.further(3, prefetchDistance))
			}
			for i := 3; i >= 0; i-- {
				k.load(i, reg(i))
			}
			k.block("MOMENTS", func() {
				// Operands are in the order of the Go assembler: y, x, x-y.
				move := func(to, by, slot reg) {
					k.op("VSUBPS", slot, to, t)
					k.op("VMULPS", by, t, t)
					k.op("VADDPS", t, slot, slot)
					k.op("VADDPS", by+1, slot, slot)
					k.op("VSUBPS", by+1, slot, slot)
				}
				move(g, numbers, m)
				k.op("VMULPS", g, g, g)
				move(g, numbers+2, v)
				k.op("VSQRTPS", v, t)
				k.op("VADDPS", numbers+5, t, t)
				k.op("VMULPS", numbers+4, m, g)
				k.op("VDIVPS", t, g, g)
				k.op("VSUBPS", g, w, w)
			})
			for i := range 3 {
				k.storeTo(i, reg(i))
			}
		},
	}
	for _, name := range []string{"s", "t", "u", "x", "y", "z"} {
		k.params = append(k.params, param{name: name, scalar: true})
	}
	return k
}

// normalKernels are the normal distribution, and the activation that uses it (GELU) with its
// gradient. They round as chains do.
func normalKernels() []*kernel {
	list := []*kernel{
		unary("normalCDF", "dst[i] = the normal distribution function at a[i]", f32, f32, normalCDF),
		unary("normalPDF", "dst[i] = the normal density at a[i]", f32, f32, func(a *emitter) {
			a.op("VPAND", bits(^signBit), reg(0), reg(0))
			bell(a)
			a.op("VMULPS", density, reg(0), reg(0))
		}),
		unary("gelu", "dst[i] = a[i]*normalCDF(a[i])", f32, f32, func(a *emitter) {
			normalCDF(a)
			a.op("VMULPS", reg(7), reg(0), reg(0))
		}),
		{
			name: "geluGrad", doc: "dst[i] = b[i]*normalCDF(a[i]) + b[i]*a[i]*normalPDF(a[i])",
			params: []param{{name: "dst"}, {name: "a"}, {name: "b"}},
			body: func(k *emitter) {
				k.load(1, 0)
				normalCDF(k)
				k.op("VMULPS", density, reg(5), reg(5))
				k.load(2, 6)
				geluGradOf(k)
				k.store(0)
			},
		},
	}
	byTable := []*kernel{
		unary("normalCDFTable", "dst[i] = the normal distribution function at a[i], by a table", f32, f32, normalCDFByTable),
		unary("geluTable", "dst[i] = a[i]*normalCDFTable(a[i])", f32, f32, geluByTable),
		{
			name: "geluGradTable", doc: "dst[i] = b[i]*normalCDFTable(a[i]) + b[i]*a[i]*normalPDF(a[i])",
			params: []param{{name: "dst"}, {name: "a"}, {name: "b"}},
			body: func(k *emitter) {
				k.load(1, 0)
				k.op("VMOVUPS", reg(0), reg(10))
				k.op("VPAND", bits(^signBit), reg(0), reg(0))
				bell(k)
				k.op("VMULPS", density, reg(0), reg(11))
				k.op("VMOVUPS", reg(10), reg(0))
				normalCDFByTable(k)
				k.op("VMOVUPS", reg(11), reg(5))
				k.load(2, 6)
				geluGradOf(k)
				k.store(0)
			},
		},
	}
	for _, k := range byTable {
		k.wide, k.prepare = true, normalTable
	}
	return append(list, byTable...)
}

// geluGradOf computes v6·(v0 + v7·v5).
func geluGradOf(k *emitter) {
	k.block("GELU_GRAD", func() {
		k.op("VMULPS", reg(6), reg(0), reg(0))
		k.op("VMULPS", reg(6), reg(7), reg(7))
		k.op("VMULPS", reg(5), reg(7), reg(7))
		k.op("VADDPS", reg(7), reg(0), reg(0))
	})
}

func geluByTable(a *emitter) {
	normalCDFByTable(a)
	a.op("VMULPS", reg(7), reg(0), reg(0))
}

// geluRows is geluTable in place, for rows.
func geluRows(a *emitter) {
	a.op("MOVQ", "d+0(FP)", "DI")
	a.op("MOVQ", "ld+8(FP)", "R8")
	a.op("MOVQ", "rows+16(FP)", "CX")
	a.op("MOVQ", "n+24(FP)", "DX")
	normalTable(a)
	a.op("MOVQ", "DX", "BX")
	a.op("ANDQ", -16, "BX")
	a.op("MOVQ", "DX", "R9")
	a.op("SUBQ", "BX", "R9")
	a.op("MOVL", 0xffff, "R10")
	a.op("BZHIL", "R9", "R10", "R10")
	a.op("KMOVW", "R10", "K7")
	a.label("row")
	a.op("XORQ", "AX", "AX")
	a.op("TESTQ", "BX", "BX")
	a.op("JZ", "rest")
	a.label("loop")
	a.op("VMOVUPS", "(DI)(AX*4)", reg(0))
	a.macro("GELU_TABLE_STEP", func() { geluByTable(a) })
	a.op("VMOVUPS", reg(0), "(DI)(AX*4)")
	a.op("ADDQ", 16, "AX")
	a.op("CMPQ", "AX", "BX")
	a.op("JLT", "loop")
	a.label("rest")
	a.op("CMPQ", "AX", "DX")
	a.op("JEQ", "next")
	a.op("VMOVUPS.Z", "(DI)(AX*4)", "K7", reg(0))
	a.macro("GELU_TABLE_STEP", func() { geluByTable(a) })
	a.op("VMOVUPS", reg(0), "K7", "(DI)(AX*4)")
	a.label("next")
	a.op("ADDQ", "R8", "DI")
	a.op("DECQ", "CX")
	a.op("JNZ", "row")
	a.end()
}
