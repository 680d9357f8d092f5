package vec

// passes returns the passes of normalizations and softmaxes.
func passes() []pass {
	// powers computes the exponential of slice 1 and its sum.
	powers := func(a *emitter, p passAt) {
		p.load(1, 0)
		a.op("VFMADD213PS", p.number(1), p.number(0), reg(0))
		exp2(a)
		a.op("VADDPS", reg(0), p.sum[0], p.sum[0])
	}
	// deviate adds the deviation of register 0 from number i, and its square.
	deviate := func(a *emitter, p passAt, i int) {
		a.block("ADD_DEVIATION", func() {
			a.op("VSUBPS", p.number(i), reg(0), reg(0))
			a.op("VADDPS", reg(0), p.sum[0], p.sum[0])
			a.op("VFMADD231PS", reg(0), reg(0), p.sum[1])
		}, "sum", p.sum[0], "squares", p.sum[1], "mean", p.number(i))
	}
	// keep stores the elements of slice i, of 16 bits, as float32 in slice to, and adds their
	// deviations from a number.
	keep := func(a *emitter, p passAt, i, to, number int) {
		p.load(i, 0)
		a.op("VMOVUPS", reg(0), p.at(to))
		deviate(a, p, number)
	}
	// normalized computes slice 1 normalized by the mean and the scale, times slice 2 plus
	// slice 3.
	normalized := func(a *emitter, p passAt) {
		a.block("NORMALIZE", func() {
			p.load(1, 0)
			a.op("VSUBPS", p.number(0), reg(0), reg(0))
			a.op("VMULPS", p.number(1), reg(0), reg(0))
			a.op("VMOVUPS", p.at(2), reg(1))
			a.op("VFMADD213PS", p.at(3), reg(1), reg(0))
		}, "x", p.at(1), "gain", p.at(2), "shift", p.at(3))
		p.store(0)
	}
	return []pass{
		{
			name: "exp2Sum", doc: "dst[i] = 2 to the power of x[i]*s[0] + s[1], s[2] = Σ dst[i], prefetching n elements of prefetch",
			slices: []string{"dst", "*x", "*prefetch"}, numbers: 2, sums: 1,
			body: func(a *emitter, p passAt) {
				p.prefetch(2)
				powers(a, p)
				a.op("VMOVUPS", reg(0), p.at(0))
			},
		},
		{
			name: "exp2BelowSum", doc: "dst[i] = s[2] times 2 to the power of min(0, x[i]-s[1]) * s[0], s[3] = Σ dst[i]",
			slices: []string{"dst", "x"}, numbers: 3, sums: 1,
			body: func(a *emitter, p passAt) {
				p.load(1, 0)
				a.op("VSUBPS", p.number(1), reg(0), reg(0))
				a.op("VPXOR", reg(1), reg(1), reg(1))
				a.op("VMINPS", reg(0), reg(1), reg(0)) // a NaN stays, as the second operand
				a.op("VMULPS", p.number(0), reg(0), reg(0))
				exp2(a)
				a.op("VMULPS", p.number(2), reg(0), reg(0))
				a.op("VADDPS", reg(0), p.sum[0], p.sum[0])
				a.op("VMOVUPS", reg(0), p.at(0))
			},
		},
		{
			// A row's exponentials are computed while the previous row is stored and the next
			// one is read: otherwise the processor waits for memory and for arithmetic in
			// turn.
			name: "exp2SumScale", doc: "e[i] = 2 to the power of x[i]*s[0] + s[1], s[3] = Σ e[i], dst[i] = last[i] * s[2], s[4] and s[5] the largest and the smallest of next as integers, prefetching n elements of prefetch",
			slices: []string{"*dst", "last", "e", "*x", "*next", "*prefetch"}, only: []string{"F16", "BF16", "ConvertBF16"}, nt: true, numbers: 3, sums: 1,
			wide: true, before: beginTops, after: endTops,
			body: func(a *emitter, p passAt) {
				p.prefetch(5)
				p.top(4)
				p.load(3, 0)
				a.op("VFMADD213PS", p.number(1), p.number(0), reg(0))
				exp2(a) // the error of a shorter polynomial would act as a second rounding
				a.op("VADDPS", reg(0), p.sum[0], p.sum[0])
				a.op("VMOVUPS", reg(0), p.at(2))
				a.op("VMULPS", p.at(1), p.number(2), reg(0))
				p.store(0)
			},
		},
		{
			name: "deviations", doc: "s[1] = Σ x[i]-s[0], s[2] = Σ (x[i]-s[0])²",
			slices: []string{"x"}, numbers: 1, sums: 2,
			body: func(a *emitter, p passAt) {
				p.load(0, 0)
				deviate(a, p, 0)
			},
		},
		{
			name: "keepDeviations", doc: "dst[i] = x[i], s[1] = Σ x[i]-s[0], s[2] = Σ (x[i]-s[0])²",
			slices: []string{"dst", "*x"}, only: []string{"F16", "BF16"}, numbers: 1, sums: 2,
			body: func(a *emitter, p passAt) { keep(a, p, 1, 0, 0) },
		},
		{
			name: "products", doc: "s[0] = Σ x[i]*y[i], prefetching n elements of prefetch",
			slices: []string{"*x", "*y", "*prefetch"}, sums: 1,
			body: func(a *emitter, p passAt) {
				p.prefetch(2)
				p.load(0, 0)
				p.load(1, 1)
				a.op("VFMADD231PS", reg(1), reg(0), p.sum[0])
			},
		},
		{
			name: "scaleRow", doc: "dst[i] = x[i] * s[0]", slices: []string{"*dst", "x"}, nt: true, numbers: 1,
			body: func(a *emitter, p passAt) {
				a.op("VMULPS", p.at(1), p.number(0), reg(0))
				p.store(0)
			},
		},
		{
			name: "narrow", doc: "dst[i] = x[i], rounded", slices: []string{"*dst", "x"}, only: []string{"F16", "BF16"}, onlyNT: true,
			body: func(a *emitter, p passAt) {
				a.op("VMOVUPS", p.at(1), reg(0))
				p.store(0)
			},
		},
		{
			name: "cut", doc: "dst[i] = x[i], which is of the type", slices: []string{"*dst", "x"}, only: []string{"BF16"}, nt: true,
			body: func(a *emitter, p passAt) {
				a.op("VMOVUPS", p.at(1), reg(0))
				p.cut(0)
			},
		},
		{
			name: "lessRow", doc: "dst[i] = x[i] - s[0] - s[1]", slices: []string{"*dst", "*x"}, nt: true, numbers: 2,
			body: func(a *emitter, p passAt) {
				p.load(1, 0)
				a.op("VSUBPS", p.number(0), reg(0), reg(0))
				a.op("VSUBPS", p.number(1), reg(0), reg(0))
				p.store(0)
			},
		},
		{
			name: "normalizeRow", doc: "dst[i] = (x[i]-s[0])*s[1]*gain[i] + shift[i], prefetching n elements of prefetch",
			slices: []string{"*dst", "x", "gain", "shift", "*prefetch"}, nt: true, numbers: 2,
			body: func(a *emitter, p passAt) {
				p.prefetch(4)
				normalized(a, p)
			},
		},
		{
			name: "normalizeKeep", doc: "normalizeRow, and kept[i] = next[i], s[3] = Σ next[i]-s[2], s[4] = Σ (next[i]-s[2])²",
			slices: []string{"*dst", "x", "gain", "shift", "kept", "*next", "*prefetch"}, only: []string{"F16", "BF16", "ConvertBF16"},
			nt: true, wide: true, numbers: 3, sums: 2,
			body: func(a *emitter, p passAt) {
				p.prefetch(6)
				normalized(a, p)
				keep(a, p, 5, 4, 2)
			},
		},
		{
			name: "gradRowSums", doc: "h = (x[i]-s[0])*s[1]: dgain[i] += grad[i]*h, dshift[i] += grad[i], gained[i] = grad[i]*gain[i], s[2] = Σ gained[i], s[3] = Σ gained[i]*h, prefetching n elements of prefetch",
			slices: []string{"dgain", "dshift", "gained", "x", "*grad", "gain", "*prefetch"}, numbers: 2, sums: 2, once: true,
			body: func(a *emitter, p passAt) {
				p.prefetch(6)
				p.load(3, 0)
				a.op("VSUBPS", p.number(0), reg(0), reg(0))
				a.op("VMULPS", p.number(1), reg(0), reg(0))
				p.load(4, 1)
				a.block("ADD_GRADS", func() {
					a.op("VMOVUPS", p.at(0), reg(2))
					a.op("VFMADD231PS", reg(1), reg(0), reg(2))
					a.op("VMOVUPS", reg(2), p.at(0))
					a.op("VADDPS", p.at(1), reg(1), reg(2))
					a.op("VMOVUPS", reg(2), p.at(1))
					a.op("VMULPS", p.at(5), reg(1), reg(1))
					a.op("VMOVUPS", reg(1), p.at(2))
					a.op("VADDPS", reg(1), p.sum[0], p.sum[0])
					a.op("VFMADD231PS", reg(0), reg(1), p.sum[1])
				}, "dgain", p.at(0), "dshift", p.at(1), "gained", p.at(2), "gain", p.at(5))
			},
		},
		{
			name: "gradRow", doc: "dst[i] = gained[i]*s[1] + (x[i]-s[0])*s[2] + s[3], none of which is a NaN with lower bits than bfloat16 has, prefetching n elements of prefetch",
			slices: []string{"*dst", "x", "gained", "*prefetch"}, nt: true, numbers: 4,
			only: []string{"", "F16", "BF16"}, // a cast of float32 gives the same bits
			body: func(a *emitter, p passAt) {
				p.prefetch(3)
				a.block("GRAD_OF_NORMALIZED", func() {
					p.load(1, 0)
					a.op("VSUBPS", p.number(0), reg(0), reg(0))
					a.op("VFMADD213PS", p.number(3), p.number(2), reg(0))
					a.op("VFMADD231PS", p.at(2), p.number(1), reg(0))
				}, "x", p.at(1), "gained", p.at(2))
				p.number16(0)
			},
		},
		{
			name: "softmaxGradRow", doc: "dst[i] = y[i]*(grad[i]-s[0]), prefetching n elements of prefetch",
			slices: []string{"*dst", "*y", "*grad", "*prefetch"}, nt: true, numbers: 1,
			body: func(a *emitter, p passAt) {
				p.prefetch(3)
				p.load(2, 0)
				a.op("VSUBPS", p.number(0), reg(0), reg(0))
				p.load(1, 1)
				a.op("VMULPS", reg(1), reg(0), reg(0))
				p.store(0)
			},
		},
		// These two are chains of element-wise operations: every operation rounds.
		{
			name: "affine", doc: "dst[i] = (a[i]-b[i])*c[i] + d[i]", slices: []string{"dst", "a", "b", "c", "d"},
			body: func(a *emitter, p passAt) {
				a.op("VMOVUPS", p.at(1), reg(0))
				a.op("VSUBPS", p.at(2), reg(0), reg(0))
				a.op("VMULPS", p.at(3), reg(0), reg(0))
				a.op("VADDPS", p.at(4), reg(0), reg(0))
				p.store(0)
			},
		},
		{
			name: "affineSum", doc: "dst[i] = a[i]*b[i] + (c[i]-d[i])*e[i] + f[i]", slices: []string{"dst", "a", "b", "c", "d", "e", "f"},
			body: func(a *emitter, p passAt) {
				a.op("VMOVUPS", p.at(3), reg(0))
				a.op("VSUBPS", p.at(4), reg(0), reg(0))
				a.op("VMULPS", p.at(5), reg(0), reg(0))
				a.op("VMOVUPS", p.at(1), reg(1))
				a.op("VMULPS", p.at(2), reg(1), reg(1))
				a.op("VADDPS", reg(1), reg(0), reg(0))
				a.op("VADDPS", p.at(6), reg(0), reg(0))
				p.store(0)
			},
		},
	}
}
