package vec

// lowPrecisionKernels are operations of a 16-bit type from memory to memory; each rounds to
// the type. A second operand that is called a row is in float32, with numbers of the type.
// Operands have none of the bits that rounding removes, and so have the NaNs that they
// produce.
func lowPrecisionKernels(suffix string, t elem) []*kernel {
	half := func(name, doc string, params []param, body func(a *emitter)) *kernel {
		return &kernel{
			name: name + suffix, doc: doc, body: body,
			params: append([]param{{name: "dst", elem: t}}, params...),
		}
	}
	of := func(name string, e elem) param { return param{name: name, elem: e} }
	numbers := []param{{name: "s", scalar: true}, {name: "t", scalar: true}}
	s, other := scalarReg, scalarReg+1
	arithmetic := func(name, value, instruction string, b elem, relu bool) *kernel {
		doc := "dst[i] = a[i] " + value + " b[i]"
		if relu {
			doc = "dst[i] = relu(a[i] " + value + " b[i])"
		}
		step := macroName(name) + "_" + suffix + "_STEP"
		k := half(name, doc, []param{of("a", t), of("b", b)}, func(a *emitter) {
			a.load(2, 1)
			a.load(1, 0)
			a.macro(step, func() {
				with(instruction)(a)
				if relu {
					// Numbers that round to -0 stay, as -0 itself does.
					a.cmp(lt, 0, map[elem]num{f16: -0x1p-25, bf16: -0x1p-134}[t], 0)
					a.blend(0, 0, bits(0), 0)
				}
			})
			a.storeRounding(0)
		})
		k.form, k.step = "BINARY", step
		return k
	}
	var list []*kernel
	for _, b := range []struct {
		name string
		elem elem
	}{{"", t}, {"Row", f32}} {
		list = append(list,
			arithmetic("lowpAdd"+b.name, "+", "VADDPS", b.elem, false),
			arithmetic("lowpSub"+b.name, "-", "VSUBPS", b.elem, false),
			arithmetic("lowpMul"+b.name, "*", "VMULPS", b.elem, false),
			arithmetic("lowpAddRelu"+b.name, "+", "VADDPS", b.elem, true))
	}
	return append(list,
		half("lowpRelu", "dst[i] = 0 if a[i] < 0, else a[i]", []param{of("a", t)}, func(a *emitter) {
			a.load(1, 0)
			a.op("VPXOR", reg(1), reg(1), reg(1))
			a.op("VMAXPS", reg(0), reg(1), reg(0))
			a.storeExactly(0)
		}),
		half("lowpWhereGreater", "dst[i] = b[i] if a[i] > s, else t", append([]param{of("a", t), of("b", t)}, numbers...), func(a *emitter) {
			a.load(2, 1)
			a.load(1, 0)
			a.cmp(lt, s, reg(0), 0)
			a.blend(0, other, reg(1), 0)
			a.storeExactly(0)
		}),
		half("lowpWhereScaled", "dst[i] = a[i]*s if c[i] != 0, else t", append([]param{of("c", truth), of("a", t)}, numbers...), func(a *emitter) {
			a.load(2, 1)
			a.op("VMULPS", s, reg(1), reg(1))
			a.loadFlags(1, 0, 0)
			a.blend(0, other, reg(1), 0)
			a.store(0) // s may be any float32
		}))
}
