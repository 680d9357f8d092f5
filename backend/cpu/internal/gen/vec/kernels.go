package vec

// files returns the kernels by output file.
func files() map[string][]*kernel {
	return map[string][]*kernel{
		"convert": convertKernels(),
		"binary":  binaryKernels(),
		"rounded": roundedKernels(),
		"chain":   chainKernels(),
		"unary":   unaryKernels(),
		"round":   roundKernels(),
		"compare": compareKernels(),
		"exp":     expKernels(),
		"tanh":    tanhKernels(),
		"erf":     append(normalKernels(), unary("erf", "dst[i] = erf a[i]", f32, f32, erf)),
		"log":     logKernels(),
		"trig": {
			unary("sin", "dst[i] = sin a[i], of no great number", f32, f32, trig(0)),
			unary("cos", "dst[i] = cos a[i], of no great number", f32, f32, trig(1)),
		},
		"fold":   foldKernels("", f32),
		"fold16": foldKernels("F16", f16),
		"foldbf": foldKernels("BF16", bf16),
		"lowp":   append(lowPrecisionKernels("F16", f16), lowPrecisionKernels("BF16", bf16)...),
	}
}

func unary(name, doc string, to, from elem, body func(a *emitter)) *kernel {
	return &kernel{
		name: name, doc: doc, form: map[bool]string{true: "UNARY"}[to == f32 && from == f32], step: macroName(name) + "_STEP",
		params: []param{{name: "dst", elem: to}, {name: "a", elem: from}},
		body: func(a *emitter) {
			a.load(1, 0)
			if to == f32 && from == f32 {
				a.macro(macroName(name)+"_STEP", func() { body(a) })
			} else {
				body(a)
			}
			a.store(0)
		},
	}
}

func binary(name, doc string, body func(a *emitter)) *kernel {
	return &kernel{
		name: name, doc: doc, form: "BINARY", step: macroName(name) + "_STEP",
		params: []param{{name: "dst"}, {name: "a"}, {name: "b"}},
		body: func(a *emitter) {
			a.load(2, 1)
			a.load(1, 0)
			a.macro(macroName(name)+"_STEP", func() { body(a) })
			a.store(0)
		},
	}
}

// convertKernels convert types. Rounding in place converts and converts back.
func convertKernels() []*kernel {
	none := func(*emitter) {}
	prefetchW := func(k *emitter) { k.prefetchW(0, prefetchDistance/2) } // copies of weights are written after all cores have read them: the lines are shared
	return []*kernel{
		unary("f32FromF16", "dst[i] = float32(a[i]), exactly", f32, f16, none),
		unary("f32FromBF16", "dst[i] = float32(a[i]), exactly", f32, bf16, none),
		unary("f32FromU8", "dst[i] = float32(a[i]), exactly", f32, u8, none),
		unary("f32FromI8", "dst[i] = float32(a[i]), exactly", f32, i8, none),
		unary("f32FromI32", "dst[i] = float32(a[i]), to nearest even", f32, i32, none),
		unary("f16FromF32", "dst[i] = float16(a[i]), to nearest even", f16, f32, prefetchW),
		unary("bf16FromF32", "dst[i] = bfloat16(a[i]), to nearest even", bf16, f32, prefetchW),
		quantizeKernel(),
		requantizeKernel("requantizeI32", "float32(a[i])", i32),
		requantizeKernel("requantizeF32", "a[i]", f32),
		{
			name: "scaleI32", doc: "dst[i] = float32(a[i]) * b[i]",
			params: []param{{name: "dst"}, {name: "a", elem: i32}, {name: "b"}},
			body: func(a *emitter) {
				a.load(2, 1)
				a.load(1, 0)
				with("VMULPS")(a)
				a.store(0)
			},
		},
		plus("plusF16", f16),
		plus("plusBF16", bf16),
		unary("roundF16", "dst[i] = float32(float16(a[i]))", f32, f32, roundF16),
		unary("roundBF16", "dst[i] = float32(bfloat16(a[i]))", f32, f32, roundBF16),
	}
}

// quantizeKernel rounds to integers and stores their low bytes.
func quantizeKernel() *kernel {
	return &kernel{
		name: "quantize", doc: "dst[i] = byte(int32(min(max(a[i]*s, lo), hi), to nearest even) + z), lo of NaN",
		params: []param{{name: "dst", elem: u8}, {name: "a"}, {name: "s", scalar: true}, {name: "lo", scalar: true}, {name: "hi", scalar: true}, {name: "z", scalar: true}},
		body: func(a *emitter) {
			a.load(1, 0)
			a.quantize()
		},
	}
}

// requantizeKernel is a product, as that of scaleI32, a sum and quantize.
func requantizeKernel(name, a string, from elem) *kernel {
	return &kernel{
		name: name, doc: "dst[i] = byte(int32(min(max((" + a + "*b[i]+c[i])*s, lo), hi), to nearest even) + z), lo of NaN",
		params: []param{{name: "dst", elem: u8}, {name: "a", elem: from}, {name: "b"}, {name: "c"}, {name: "s", scalar: true}, {name: "lo", scalar: true}, {name: "hi", scalar: true}, {name: "z", scalar: true}},
		body: func(a *emitter) {
			a.load(2, 1)
			a.load(1, 0)
			with("VMULPS")(a)
			a.load(3, 1)
			with("VADDPS")(a)
			a.quantize()
		},
	}
}

// quantize rounds register 0, times a number and between two others, to integers, adds a
// fourth number, and stores the low bytes.
func (a *emitter) quantize() {
	a.block("QUANTIZE", func() {
		a.op("VMULPS", scalarReg, reg(0), reg(0))
		a.op("VMAXPS", scalarReg+1, reg(0), reg(0)) // NaN becomes the second operand
		a.op("VMINPS", scalarReg+2, reg(0), reg(0))
		a.op("VCVTPS2DQ", reg(0), reg(0))
		a.op("VPADDD", scalarReg+3, reg(0), reg(0))
	})
	a.storeBytes()
}

// plus adds elements of a 16-bit type to the result.
func plus(name string, from elem) *kernel {
	return &kernel{
		name: name, doc: "dst[i] += float32(a[i])",
		params: []param{{name: "dst"}, {name: "a", elem: from}},
		body: func(a *emitter) {
			a.load(1, 1)
			a.load(0, 0)
			with("VADDPS")(a)
			a.store(0)
		},
	}
}

func roundF16(a *emitter) {
	if a.arm {
		a.ins("FCVTN", 0, 0)
		a.ins("FCVTL", 0, 0)
		return
	}
	half := "X0"
	if a.wide {
		half = "Y0"
	}
	a.op("VCVTPS2PH", 0, reg(0), half)
	a.op("VCVTPH2PS", half, reg(0))
}

func roundBF16(a *emitter) {
	a.toBF16(0, 1, 2)
	a.op("VPAND", bits(0xffff0000), reg(0), reg(0))
}

// withScalar returns a kernel whose second operand is a number, in scalarReg.
func withScalar(name, doc string, body func(a *emitter)) *kernel {
	k := unary(name, doc, f32, f32, body)
	k.params = append(k.params, param{name: "s", scalar: true})
	return k
}

// with applies an instruction to the operands of a binary kernel.
func with(name string) func(*emitter) {
	return func(a *emitter) { a.op(name, reg(1), reg(0), reg(0)) }
}

// roundedKernels are arithmetic of 16-bit floats kept in float32.
func roundedKernels() []*kernel {
	var list []*kernel
	for _, c := range [][3]string{{"add", "+", "VADDPS"}, {"sub", "-", "VSUBPS"}, {"mul", "*", "VMULPS"}} {
		value := "(a[i] " + c[1] + " b[i]))"
		list = append(list,
			binary(c[0]+"F16", "dst[i] = float32(float16"+value, func(a *emitter) {
				with(c[2])(a)
				roundF16(a)
			}),
			binary(c[0]+"BF16", "dst[i] = float32(bfloat16"+value, func(a *emitter) {
				with(c[2])(a)
				roundBF16(a)
			}))
	}
	return list
}

func binaryKernels() []*kernel {
	// VMAXPS and VMINPS return their second operand, b, if either is NaN or both are zero. So
	// only a NaN of a must be blended in.
	larger := func(name string) func(*emitter) {
		return func(a *emitter) {
			a.op(name, reg(1), reg(0), reg(1))
			a.cmp(nan, 0, reg(0), 0)
			a.blend(0, 1, reg(0), 0)
		}
	}
	scale := func(name string) func(*emitter) {
		return func(a *emitter) { a.op(name, scalarReg, reg(0), reg(0)) }
	}
	from := func(name string) func(*emitter) {
		return func(a *emitter) { a.op(name, reg(0), scalarReg, reg(0)) }
	}
	return []*kernel{
		binary("add", "dst[i] = a[i] + b[i]", with("VADDPS")),
		binary("sub", "dst[i] = a[i] - b[i]", with("VSUBPS")),
		binary("mul", "dst[i] = a[i] * b[i]", with("VMULPS")),
		binary("div", "dst[i] = a[i] / b[i]", with("VDIVPS")),
		binary("maximum", "dst[i] = a[i] if it is NaN or > b[i], else b[i]", larger("VMAXPS")),
		binary("minimum", "dst[i] = a[i] if it is NaN or < b[i], else b[i]", larger("VMINPS")),
		withScalar("addScalar", "dst[i] = a[i] + s", scale("VADDPS")),
		withScalar("mulScalar", "dst[i] = a[i] * s", scale("VMULPS")),
		withScalar("subScalar", "dst[i] = a[i] - s", scale("VSUBPS")),
		withScalar("divScalar", "dst[i] = a[i] / s", scale("VDIVPS")),
		withScalar("scalarSub", "dst[i] = s - a[i]", from("VSUBPS")),
		withScalar("scalarDiv", "dst[i] = s / a[i]", from("VDIVPS")),
	}
}

func unaryKernels() []*kernel {
	return []*kernel{
		unary("neg", "dst[i] = -a[i]", f32, f32, func(a *emitter) { a.op("VPXOR", bits(signBit), reg(0), reg(0)) }),
		unary("abs", "dst[i] = a[i] without its sign", f32, f32, func(a *emitter) { a.op("VPAND", bits(^signBit), reg(0), reg(0)) }),
		unary("square", "dst[i] = a[i] * a[i]", f32, f32, func(a *emitter) { a.op("VMULPS", reg(0), reg(0), reg(0)) }),
		unary("relu", "dst[i] = 0 if a[i] < 0, else a[i]", f32, f32, func(a *emitter) {
			a.op("VPXOR", reg(1), reg(1), reg(1))
			a.op("VMAXPS", reg(0), reg(1), reg(0)) // a NaN and -0 stay: the second operand
		}),
		unary("sign", "dst[i] = ±1 by the sign of a[i]; ±0 and NaN stay", f32, f32, func(a *emitter) {
			a.op("VPXOR", reg(1), reg(1), reg(1))
			a.cmp(lt, 1, reg(0), 0)
			a.cmp(lt, 0, reg(1), 1)
			a.blend(0, 0, num(1), 0)
			a.blend(1, 0, num(-1), 0)
		}),
		unary("sqrt", "dst[i] = √a[i]", f32, f32, func(a *emitter) { a.op("VSQRTPS", reg(0), reg(0)) }),
		unary("rsqrt", "dst[i] = 1/√a[i]", f32, f32, func(a *emitter) {
			a.op("VSQRTPS", reg(0), reg(0))
			reciprocal(a)
		}),
		unary("reciprocal", "dst[i] = 1/a[i]", f32, f32, reciprocal),
	}
}

func roundKernels() []*kernel {
	return []*kernel{
		unary("round", "dst[i] = a[i] to the nearest whole number, ties to even", f32, f32, func(a *emitter) { a.round(0, 0, 0) }),
		unary("floor", "dst[i] = ⌊a[i]⌋", f32, f32, func(a *emitter) { a.round(1, 0, 0) }),
		unary("ceil", "dst[i] = ⌈a[i]⌉", f32, f32, func(a *emitter) { a.round(2, 0, 0) }),
	}
}

const signBit uint32 = 1 << 31

func reciprocal(a *emitter) {
	a.op("VMOVUPS", num(1), reg(1))
	a.op("VDIVPS", reg(0), reg(1), reg(0))
}

func compareKernels() []*kernel {
	compare := func(name, doc string, pred int) *kernel {
		return &kernel{
			name: name, doc: doc, form: "COMPARE", step: macroName(name) + "_STEP",
			params: []param{{name: "dst", elem: truth}, {name: "a"}, {name: "b"}},
			body: func(a *emitter) {
				a.load(2, 1)
				a.load(1, 0)
				a.macro(macroName(name)+"_STEP", func() { a.cmp(pred, 0, reg(1), 0) })
				a.storeFlags(0)
			},
		}
	}
	return []*kernel{
		compare("equal", "dst[i] = a[i] == b[i]", eq),
		compare("notEqual", "dst[i] = a[i] != b[i]", ne),
		compare("less", "dst[i] = a[i] < b[i]", lt),
		compare("lessEqual", "dst[i] = a[i] <= b[i]", le),
		{
			name: "isFinite", doc: "dst[i] = a[i] is neither NaN nor infinite",
			params: []param{{name: "dst", elem: truth}, {name: "a"}},
			body: func(a *emitter) {
				a.load(1, 0)
				a.op("VSUBPS", reg(0), reg(0), reg(0)) // 0, or NaN
				a.cmp(eq, 0, reg(0), 0)
				a.storeFlags(0)
			},
		},
		{
			name: "where", doc: "dst[i] = a[i] if c[i] != 0, else b[i]",
			params: []param{{name: "dst"}, {name: "c", elem: truth}, {name: "a"}, {name: "b"}},
			body: func(a *emitter) {
				a.load(3, 2)
				a.load(2, 1)
				a.loadFlags(1, 0, 0)
				a.blend(0, 2, reg(1), 0)
				a.store(0)
			},
		},
		{
			name: "whereScaled", doc: "dst[i] = a[i]*s if c[i] != 0, else t",
			params: []param{{name: "dst"}, {name: "c", elem: truth}, {name: "a"}, {name: "s", scalar: true}, {name: "t", scalar: true}},
			body: func(a *emitter) {
				a.load(2, 1)
				a.loadFlags(1, 0, 0)
				a.op("VMULPS", scalarReg, reg(1), reg(1))
				a.blend(0, scalarReg+1, reg(1), 0)
				a.store(0)
			},
		},
	}
}

// Bits of infinities.
const plusInf, minusInf = 0x7f800000, 0xff800000

// foldKernels reduce a row of a type to a number. Sums are in float64, in a fixed number of
// lanes.
func foldKernels(suffix string, from elem) []*kernel {
	fold := func(name, doc string, f fold, s *streams, body func(a *emitter)) *kernel {
		f.streams = s
		return &kernel{
			name: name + suffix, doc: doc, folds: &f, params: []param{{name: "a", elem: from}},
			body: func(a *emitter) {
				a.load(0, 0)
				a.block(macroName(name)+"_STEP", func() { body(a) })
			},
		}
	}
	sums := fold64()
	sumStreams := fours(from)
	if from == f32 {
		sumStreams = join64(from, "SUM", addDouble)
	}
	squares := func(a *emitter, low, high reg) {
		a.op("VFMADD231PD", reg(1), reg(1), low)
		a.op("VFMADD231PD", reg(2), reg(2), high)
	}
	order := func(name string, neutral uint32) *streams {
		return join32(from, joinName(name), name, func(a *emitter, r reg) { a.op("VMOVUPS", bits(neutral), r) },
			func(a *emitter, sum reg) { orderStep(a, name, sum) })
	}
	infinities := func(a *emitter, sum reg) {
		a.op("VSUBPS", reg(0), reg(0), reg(0))
		a.op("VADDPS", reg(0), sum, sum)
	}
	return []*kernel{
		fold("sum", "ret += float64(a[i]); 16-bit floats in fours, added in float32", sums, sumStreams, func(a *emitter) {
			widen(a)
			addDouble(a, 4, 5)
		}),
		fold("sumSquares", "ret += float64(a[i]) * float64(a[i])", sums, join64(from, "SQUARES", squares), func(a *emitter) {
			widen(a)
			squares(a, 4, 5)
		}),
		fold("largest", "ret = max(ret, a[i]), NaN if there is one", foldOrder("VMAXPS", minusInf), order("VMAXPS", minusInf),
			func(a *emitter) { orderStep(a, "VMAXPS", 4) }),
		fold("smallest", "ret = min(ret, a[i]), NaN if there is one", foldOrder("VMINPS", plusInf), order("VMINPS", plusInf),
			func(a *emitter) { orderStep(a, "VMINPS", 4) }),
		fold("infinities", "ret += a[i] - a[i]: 0, or NaN unless all are finite", foldInf(),
			join32(from, "INFINITIES", "VADDPS", func(a *emitter, r reg) { a.op("VPXOR", r, r, r) }, infinities),
			func(a *emitter) { infinities(a, 4) }),
	}
}

// widen converts register 0 to float64 in registers 1 and 2.
func widen(a *emitter) { a.block("WIDEN_F64", func() { widenTo(a) }) }

func widenTo(a *emitter) {
	if a.arm {
		a.ins("FCVTL.2D", 1, 0)
		a.ins("FCVTL2.2D", 2, 0)
		return
	}
	if a.wide {
		a.op("VEXTRACTF64X4", 1, reg(0), "Y2")
		a.op("VCVTPS2PD", "Y0", reg(1))
		a.op("VCVTPS2PD", "Y2", reg(2))
		return
	}
	a.op("VEXTRACTF128", 1, reg(0), "X2")
	a.op("VCVTPS2PD", "X0", reg(1))
	a.op("VCVTPS2PD", "X2", reg(2))
}

// halve applies an instruction to the halves of register 4 until each lane of its lowest 128
// bits is the result of four lanes, or of two of float64.
func halve(a *emitter, name string) {
	if a.wide {
		a.op("VEXTRACTF64X4", 1, reg(4), "Y5")
		a.op(name, "Y5", "Y4", "Y4")
	}
	a.op("VEXTRACTF128", 1, "Y4", "X5")
	a.op(name, "X5", "X4", "X4")
}

func fold64() fold {
	return fold{
		double: true,
		before: func(a *emitter) {
			a.op("VPXOR", reg(4), reg(4), reg(4))
			a.op("VPXOR", reg(5), reg(5), reg(5))
		},
		after: func(a *emitter) {
			a.block("SUM_64", func() {
				a.op("VADDPD", reg(5), reg(4), reg(4))
				if a.arm {
					a.ins("FADDP.D", 0, 4)
					return
				}
				halve(a, "VADDPD")
				a.op("VPERMILPD", 1, "X4", "X5")
				a.op("VADDSD", "X5", "X4", "X0")
			})
		},
	}
}

// across32 ends a reduction in float32: from four lanes to one.
func across32(a *emitter, name string) {
	a.block("ACROSS_TO_LANE_"+joinName(name), func() { toLane(a, name) })
}

// joinName returns the name of an instruction that reduces.
func joinName(name string) string {
	return map[string]string{"VADDPS": "ADD", "VMAXPS": "MAX", "VMINPS": "MIN", "VPMAXSW": "MAX16", "VPMINSW": "MIN16", "VADDPD": "ADD64", "VMAXPD": "MAX64", "VMINPD": "MIN64", "": "ADD64"}[name]
}

func toLane(a *emitter, name string) {
	if a.arm {
		across(a, name, 4, 5)
		a.op("VMOVUPS", reg(4), reg(0))
		return
	}
	halve(a, name)
	a.op("VPERMILPS", 0x4e, "X4", "X5")
	a.op(name, "X5", "X4", "X4")
	a.op("VPERMILPS", 0xb1, "X4", "X5")
	a.op(name, "X5", "X4", "X0")
}

// foldOrder returns a maximum or minimum. The instruction ignores NaNs, so mask 1 has the
// lanes with a NaN.
func foldOrder(name string, neutral uint32) fold {
	return fold{
		neutral: neutral,
		before: func(a *emitter) {
			a.op("VMOVUPS", bits(neutral), reg(4))
			if a.wide {
				a.op("KXORW", mask(1), mask(1), mask(1))
			} else {
				a.op("VPXOR", mask(1), mask(1), mask(1))
			}
		},
		after: func(a *emitter) {
			switch {
			case a.wide:
				a.op("KORTESTW", mask(1), mask(1))
				a.op("JZ", "numbers")
			case a.arm:
				a.anyLane(1, "R10")
				a.line("CBZW R10, numbers")
			default:
				a.op("VPTEST", mask(1), mask(1))
				a.op("JZ", "numbers")
			}
			a.op("VMOVUPS", bits(0x7fc00000), reg(4))
			a.label("numbers")
			across32(a, name)
		},
	}
}

// orderStep folds register 0 into a register and changes mask 0.
func orderStep(a *emitter, name string, sum reg) {
	a.block("KEEP_NAN_"+joinName(name), func() { orderOne(a, name, sum) }, "top", sum)
}

func orderOne(a *emitter, name string, sum reg) {
	a.op(name, reg(0), sum, sum)
	a.cmp(nan, 0, reg(0), 0)
	if a.wide {
		a.op("KORW", mask(0), mask(1), mask(1))
	} else {
		a.op("VPOR", mask(0), mask(1), mask(1))
	}
}

func foldInf() fold {
	return fold{
		before: func(a *emitter) { a.op("VPXOR", reg(4), reg(4), reg(4)) },
		after:  func(a *emitter) { across32(a, "VADDPS") },
	}
}
