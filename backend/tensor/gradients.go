package tensor

import (
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Gradients returns the derivative of loss, a scalar, by each variable: a
// tensor of the variable's type, or nil where loss does not depend on it. The
// graph that was recorded is the tape; nothing needs to be watched.
//
// The values of a variable before and after an assignment in the same step are
// leaves, and the derivative is the sum of those by both, as with TensorFlow's tape: a
// loss computed after a step of an optimizer has no derivatives through that step.
// 16-bit gradients of float32 variables are stored
// in float32 directly (see Tensor.Widen).
func Gradients(loss *Tensor, vars []*Variable) []*Tensor {
	leaves := map[*Variable][]*Tensor{}
	visit(func(t *Tensor) {
		switch {
		case t.variable != nil:
			leaves[t.variable] = append(leaves[t.variable], t)
		case t.assigned != nil:
			leaves[t.assigned] = append(leaves[t.assigned], t)
		}
	}, loss)
	var at []*Tensor
	for _, v := range vars {
		at = append(at, leaves[v]...)
	}
	grads := GradientsAt(loss, at...)
	out := make([]*Tensor, len(vars))
	for i, v := range vars {
		for range leaves[v] {
			if g := grads[0]; g != nil {
				if out[i] != nil {
					g = out[i].Add(g)
				}
				out[i] = g
			}
			grads = grads[1:]
		}
	}
	if loss.trace != nil {
		loss.trace.derivatives = append(loss.trace.derivatives, derivative{loss, slices.Clone(vars), slices.Clone(out)})
	}
	return out
}

// visit calls f for every tensor that ts depend on, themselves included.
func visit(f func(*Tensor), ts ...*Tensor) {
	seen := map[*Tensor]bool{}
	stack := slices.Clone(ts)
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[t] {
			continue
		}
		seen[t] = true
		f(t)
		stack = append(stack, t.sources()...)
	}
}

// GradientsAt returns the derivative of loss, a float scalar, by each of the
// tensors at: of their types, or nil where loss does not depend on one.
func GradientsAt(loss *Tensor, at ...*Tensor) []*Tensor {
	switch {
	case loss.err != nil:
		panic(&Error{Op: "Gradients", Err: loss.err})
	case loss.parts != nil || !loss.typ.DType.IsFloat() || len(loss.typ.Shape) != 0:
		Fail("Gradients", "the loss is %v, want a float scalar", loss.describe())
	}
	if tr := loss.trace; tr != nil {
		paint(loss)
		defer func(d dtype.DType) { tr.autocast = d }(tr.autocast)
		tr.autocast = dtype.Invalid // gradients follow the types of what they are of
	}
	remat := rematerializer{start: SequencePoint()}
	pending := 0 // means over shards that the forward pass has asked for
	if loss.trace != nil {
		pending = len(loss.trace.means)
	}
	one := Scalar(loss.typ.DType, 1)
	one.scaled, one.trace = loss.scaled, loss.trace
	out, through16, grad := differentiate([]*Tensor{loss}, []*Tensor{one}, at, blocksOf(loss.scaled), &remat)
	ends := out
	if loss.trace != nil {
		for _, m := range loss.trace.means[pending:] { // of the backward pass, which no gradient leads to yet
			ends = append(ends[:len(ends):len(ends)], m.Value)
		}
	}
	remat.rewrite(ends)
	if loss.trace != nil {
		loss.trace.castAgain(remat.segments)
		loss.trace.keepGradients(grad)
	}
	for i, g := range out {
		if g == nil {
			continue
		}
		// Whatever gradients loss is made of, this one is a gradient of loss.
		if g.gradient = nil; loss.scaled == nil {
			g.gradient = &GradientTag{Unscaled: true, Float16: through16[i]}
		}
	}
	return out
}

// differentiate returns the gradients of roots with respect to the tensors at, and for
// each whether it passed through float16; grad has those of all tensors between. blocks,
// if not nil, scale parts of it. It records the applied rules in remat.
func differentiate(roots, seeds, at []*Tensor, blocks Blocks, remat *rematerializer) (out []*Tensor, through16 []bool, grad map[*Tensor]*Tensor) {
	wanted := map[*Tensor]bool{}
	for _, t := range at {
		wanted[t] = true
	}
	// Everything between the roots and the tensors at, in recording order.
	var all []*Tensor
	visit(func(t *Tensor) { all = append(all, t) }, roots...)
	slices.SortFunc(all, bySeq)
	needs := map[*Tensor]bool{}
	in := map[*Tensor]int{} // blocks
	for _, t := range all {
		if t.op == op.Result {
			in[t] = in[t.args[0]]
		} else {
			in[t] = block(blocks, t)
		}
		n := wanted[t]
		if !t.stop && t.op.Info().Grad {
			for _, a := range t.sources() {
				n = n || needs[a]
			}
		}
		needs[t] = n && t.typ.DType.IsFloat()
	}
	grad = map[*Tensor]*Tensor{}
	for i, r := range roots {
		if !needs[r] {
			continue
		}
		g := cross(blocks, seeds[i], 0, in[r])
		if grad[r] != nil {
			g = grad[r].Add(g)
		}
		grad[r] = g
	}
	parts := map[*Tensor][]partGradient{} // of operations with several results
	float16 := map[*Tensor]bool{}         // its gradient passed through float16
	for _, t := range slices.Backward(all) {
		if parts[t] != nil && gradientsOfParts[t.op] == nil {
			g := joinParts(t, parts[t])
			if old := grad[t]; old != nil {
				g = old.Add(g)
			}
			grad[t] = g
		}
		g := grad[t]
		float16[t] = float16[t] || t.typ.DType == dtype.Float16
		sources := t.sources()
		if g == nil && parts[t] == nil || !needs[t] || t.stop || len(sources) == 0 {
			continue
		}
		if t.op == op.Result {
			parts[t.args[0]] = append(parts[t.args[0]], partGradient{t, g})
			float16[t.args[0]] = float16[t.args[0]] || float16[t]
			continue
		}
		relevant := false
		for _, a := range sources {
			relevant = relevant || needs[a]
		}
		if !relevant {
			continue
		}
		rule := gradients[t.op]
		if t.custom != nil {
			rule = func(_, g *Tensor) []*Tensor { return t.custom.rule(g) }
		}
		if several := gradientsOfParts[t.op]; several != nil {
			own := parts[t]
			g = own[0].g
			rule = func(t, _ *Tensor) []*Tensor { return several(t, own, needs) }
		}
		if rule == nil {
			panic(&Error{Path: t.path, Op: "Gradients", Err: fmt.Errorf("%v has no gradient", t.op)})
		}
		since := SequencePoint()
		from := t
		if t.segment != nil {
			from = t.segment.recompute(t, g)
			remat.recomputes(t.segment)
		}
		byArgument := rule(from, g)
		for i, a := range sources {
			if i >= len(byArgument) || byArgument[i] == nil || !needs[a] {
				continue
			}
			p := byArgument[i]
			if !p.typ.Equal(a.typ) {
				Fail("Gradients", "the gradient of argument %d of %v is %v, want %v", i, t.op, p.typ, a.typ) // a mistake in the table
			}
			p = cross(blocks, p, in[t], in[a])
			if old := grad[a]; old != nil {
				p = old.Add(p)
			}
			grad[a] = p
			float16[a] = float16[a] || float16[t]
			if t.path != "" {
				Label(t.path+"/grad", since, p)
			}
		}
		remat.ruleApplied(g)
	}
	for _, t := range at {
		g := grad[t]
		if g != nil {
			g = cross(blocks, g, in[t], 0)
		}
		out, through16 = append(out, g), append(through16, float16[t])
	}
	return out, through16, grad
}

// sumTo undoes broadcasting: it sums g over the axes along which shape was
// repeated.
func sumTo(g *Tensor, shape Shape) *Tensor {
	if g.typ.Shape.Equal(shape) {
		return g
	}
	off := len(g.typ.Shape) - len(shape)
	var axes []int
	for i, d := range g.typ.Shape {
		if i < off || shape[i-off] == 1 && d != 1 {
			axes = append(axes, i)
		}
	}
	if len(axes) > 0 {
		g = g.SumKeep(axes...)
	}
	return g.Reshape(shape...)
}

// sumOfRows is SumKeep of an axis. Of rows with one element that is not 0, of
// ScatterAlongAxis, that is the sum: a cross-entropy of sparse targets.
func (t *Tensor) sumOfRows(axis int) *Tensor {
	if last := len(t.typ.Shape) - 1; t.op == op.ScatterAlongAxis && axis == last {
		return t.args[0].Reshape(append(t.typ.Shape[:last:last], 1)...)
	}
	return t.SumKeep(axis)
}

// gradients holds, for each operation with a gradient, the rule from the gradient g of
// the result t to those of the arguments. Rules use the result where possible, so that
// arguments need not be saved (relu, exp, tanh …). nil is no gradient.
var gradients map[op.Code]func(t, g *Tensor) []*Tensor

// gradientsOfParts holds the rules of operations with several results: from the
// gradients of the results that are used to those of the arguments that need one.
var gradientsOfParts = map[op.Code]func(t *Tensor, parts []partGradient, needs map[*Tensor]bool) []*Tensor{}

func one(g *Tensor) []*Tensor { return []*Tensor{g} }

// both undoes broadcasting for a binary operation.
func both(t, a, b *Tensor) []*Tensor {
	if a != nil {
		a = sumTo(a, t.args[0].typ.Shape)
	}
	if b != nil {
		b = sumTo(b, t.args[1].typ.Shape)
	}
	return []*Tensor{a, b}
}

func init() {
	// In init because the rules record operations whose rules are in it.
	gradientsOfParts[op.RNN] = rnnGradient
	gradientsOfParts[op.Loop] = loopGradient
	gradients = map[op.Code]func(t, g *Tensor) []*Tensor{
		op.Identity: func(t, g *Tensor) []*Tensor { return one(g) },
		op.Cast: func(t, g *Tensor) []*Tensor {
			to := t.args[0].typ.DType
			if to == dtype.Float32 || to == dtype.Float64 {
				// The gradient was rounded only for this cast, so weights get the
				// unrounded one.
				if g.op == op.Cast && g.args[0].typ.DType == dtype.Float32 && g.typ.DType.Is16() {
					g = g.args[0]
				}
				g = g.Widen()
			}
			return one(g.Cast(to))
		},
		op.Neg: func(t, g *Tensor) []*Tensor { return one(g.Neg()) },
		op.Abs: func(t, g *Tensor) []*Tensor { return one(g.Mul(t.args[0].Sign())) },
		op.Exp: func(t, g *Tensor) []*Tensor { return one(g.Mul(t)) },
		op.Expm1: func(t, g *Tensor) []*Tensor {
			return one(g.Mul(t.args[0].Exp())) // t+1 would cancel where t is near -1
		},
		op.Log:        func(t, g *Tensor) []*Tensor { return one(g.Div(t.args[0])) },
		op.Log1p:      func(t, g *Tensor) []*Tensor { return one(g.Div(t.args[0].AddScalar(1))) },
		op.Sqrt:       func(t, g *Tensor) []*Tensor { return one(g.MulScalar(0.5).Div(t)) },
		op.Rsqrt:      func(t, g *Tensor) []*Tensor { return one(g.MulScalar(-0.5).Mul(t).Div(t.args[0])) },
		op.Reciprocal: func(t, g *Tensor) []*Tensor { return one(g.Neg().Mul(t.Square())) },
		op.Square:     func(t, g *Tensor) []*Tensor { return one(g.Mul(t.args[0].MulScalar(2))) },
		op.Sin:        func(t, g *Tensor) []*Tensor { return one(g.Mul(t.args[0].Cos())) },
		op.Cos:        func(t, g *Tensor) []*Tensor { return one(g.Mul(t.args[0].Sin()).Neg()) },
		op.Tanh:       func(t, g *Tensor) []*Tensor { return one(g.Mul(t.Square().Neg().AddScalar(1))) },
		op.Sigmoid:    func(t, g *Tensor) []*Tensor { return one(g.Mul(t).Mul(t.Neg().AddScalar(1))) },
		op.Relu: func(t, g *Tensor) []*Tensor {
			return one(Where(t.GreaterScalar(0), g, g.like(0)))
		},
		op.Erf: func(t, g *Tensor) []*Tensor {
			return one(g.Mul(t.args[0].Square().Neg().Exp()).MulScalar(2 / math.Sqrt(math.Pi)))
		},
		op.Softplus: func(t, g *Tensor) []*Tensor {
			return one(g.accumulator().Mul(t.args[0].accumulator().Sigmoid()).CastLike(t))
		},
		op.NormalCDF: func(t, g *Tensor) []*Tensor { return one(g.Mul(NormalPDF(t.args[0]))) },
		op.NormalPDF: func(t, g *Tensor) []*Tensor { return one(g.Mul(t.args[0]).Mul(t).Neg()) },
		op.Add:       func(t, g *Tensor) []*Tensor { return both(t, g, g) },
		op.Sub:       func(t, g *Tensor) []*Tensor { return both(t, g, g.Neg()) },
		op.Mul:       func(t, g *Tensor) []*Tensor { return both(t, g.Mul(t.args[1]), g.Mul(t.args[0])) },
		op.Div: func(t, g *Tensor) []*Tensor {
			d := g.Div(t.args[1])
			return both(t, d, d.Mul(t).Neg())
		},
		op.Mod: func(t, g *Tensor) []*Tensor {
			return both(t, g, g.Mul(t.args[0].Div(t.args[1]).Floor()).Neg())
		},
		op.Pow: func(t, g *Tensor) []*Tensor {
			x, y := t.args[0], t.args[1]
			// The derivative by x is 0 for exponent 0, also where x is 0; that by
			// the exponent 0 where it has no meaning (x ≤ 0): as in PyTorch.
			less := Where(y.Equal(y.like(0)), y.like(1), y).AddScalar(-1)
			safe := Where(x.GreaterScalar(0), x, x.like(1))
			return both(t, g.Mul(y).Mul(x.Pow(less)), g.Mul(t).Mul(safe.Log()))
		},
		op.Maximum: func(t, g *Tensor) []*Tensor { return chosen(t, g, t.args[0].GreaterEqual(t.args[1])) },
		op.Minimum: func(t, g *Tensor) []*Tensor { return chosen(t, g, t.args[0].LessEqual(t.args[1])) },
		op.Where: func(t, g *Tensor) []*Tensor {
			zero := g.like(0)
			c := t.args[0]
			return []*Tensor{nil,
				sumTo(Where(c, g, zero), t.args[1].typ.Shape),
				sumTo(Where(c, zero, g), t.args[2].typ.Shape)}
		},
		op.Sum: func(t, g *Tensor) []*Tensor {
			x := t.args[0].typ
			return one(spread(t, g).Cast(x.DType).BroadcastTo(x.Shape...))
		},
		op.Mean: func(t, g *Tensor) []*Tensor {
			x := t.args[0].typ
			n := 1
			for _, a := range t.attr.Axes {
				n *= x.Shape[a]
			}
			// In float32: float16 does not hold every n.
			return one(spread(t, g).accumulator().DivScalar(float64(n)).Cast(x.DType).BroadcastTo(x.Shape...))
		},
		op.Prod: func(t, g *Tensor) []*Tensor {
			// The product of the others: the whole product over x. Where x is 0, it is
			// the product of the nonzero elements if x is the only 0.
			x, axes := t.args[0].accumulator(), t.attr.Axes
			zero := x.Equal(x.like(0))
			safe := Where(zero, x.like(1), x)
			zeros := zero.Cast(x.typ.DType).reduce(op.Sum, true, dtype.Invalid, axes)
			rest := Where(zeros.Equal(zero.Cast(x.typ.DType)), safe.reduce(op.Prod, true, dtype.Invalid, axes), x.like(0))
			return one(spread(t, g).Cast(x.typ.DType).Mul(rest.Div(safe)).Cast(t.args[0].typ.DType))
		},
		op.Max: extreme,
		op.Min: extreme,
		op.SumSquares: func(t, g *Tensor) []*Tensor {
			x := t.args[0]
			return one(x.Cast(g.typ.DType).Mul(g.MulScalar(2)).Cast(x.typ.DType))
		},
		op.MatMul:         matmulGradient,
		op.Conv:           convGradient,
		op.ConvInputGrad:  convInputGradGradient,
		op.ConvKernelGrad: convKernelGradGradient,
		op.MaxPool:        func(t, g *Tensor) []*Tensor { return one(t.recordLike(op.MaxPoolGrad, nil, t.args[0], g)) },
		op.MaxPoolGrad: func(t, g *Tensor) []*Tensor {
			return []*Tensor{nil, t.recordLike(op.MaxPoolGradGrad, nil, t.args[0], g)}
		},
		op.MaxPoolGradGrad: func(t, g *Tensor) []*Tensor {
			return []*Tensor{nil, t.recordLike(op.MaxPoolGrad, nil, t.args[0], g)}
		},
		op.AvgPool:     func(t, g *Tensor) []*Tensor { return one(t.recordLike(op.AvgPoolGrad, t.args[0].typ.Shape, g)) },
		op.AvgPoolGrad: func(t, g *Tensor) []*Tensor { return one(t.recordLike(op.AvgPool, nil, g)) },
		op.Softmax: func(t, g *Tensor) []*Tensor {
			return one(t.record(op.SoftmaxGrad, op.Attr{Axes: t.attr.Axes, DType: t.args[0].typ.DType}, t, g))
		},
		op.SoftmaxGrad: throughExpansion,
		op.LogSoftmax: func(t, g *Tensor) []*Tensor {
			x, axis := t.args[0].typ.DType, t.attr.Axes[0]
			y, d := t.accumulator(), g.accumulator()
			return one(d.Sub(y.Exp().Mul(d.sumOfRows(axis))).Cast(x))
		},
		op.LayerNorm:        normalizeGradient,
		op.LayerNormGrad:    throughExpansion,
		op.Moments:          throughExpansion,
		op.BatchNormReduce:  throughExpansion,
		op.BatchNorm:        batchNormGradient,
		op.Attention:        attentionGradient,
		op.AttentionForward: throughExpansion,
		op.AttentionGrad:    throughExpansion,
		op.Reshape:          func(t, g *Tensor) []*Tensor { return one(g.Reshape(t.args[0].typ.Shape...)) },
		op.Barrier:          func(t, g *Tensor) []*Tensor { return one(g) },
		op.Transpose: func(t, g *Tensor) []*Tensor {
			inverse := make([]int, len(t.attr.Perm))
			for i, p := range t.attr.Perm {
				inverse[p] = i
			}
			return one(g.Transpose(inverse...))
		},
		op.BroadcastTo: func(t, g *Tensor) []*Tensor { return one(sumTo(g, t.args[0].typ.Shape)) },
		op.Concat: func(t, g *Tensor) []*Tensor {
			axis, at := t.attr.Axes[0], 0
			out := make([]*Tensor, len(t.args))
			for i, a := range t.args {
				n := a.typ.Shape[axis]
				out[i] = g.Slice(axis, at, at+n)
				at += n
			}
			return out
		},
		op.Slice: func(t, g *Tensor) []*Tensor { return one(unslice(t, g)) },
		op.Pad: func(t, g *Tensor) []*Tensor {
			x := t.args[0].typ.Shape
			limit, stride := make([]int, len(x)), make([]int, len(x))
			for i := range x {
				limit[i], stride[i] = t.attr.Low[i]+x[i], 1
			}
			return one(g.SliceAll(t.attr.Low, limit, stride))
		},
		op.Gather: func(t, g *Tensor) []*Tensor {
			return []*Tensor{g.ScatterAdd(t.args[1], t.args[0].typ.Shape[0]), nil}
		},
		op.ScatterAdd: func(t, g *Tensor) []*Tensor { return []*Tensor{g.Gather(t.args[1]), nil} },
		op.TakeAlongAxis: func(t, g *Tensor) []*Tensor {
			return []*Tensor{g.ScatterAlongAxis(t.args[1], t.args[0].Dim(-1)), nil}
		},
		op.ScatterAlongAxis: func(t, g *Tensor) []*Tensor { return []*Tensor{g.TakeAlongAxis(t.args[1]), nil} },
	}
}

// accumulator returns t in the type its sums are computed in.
func (t *Tensor) accumulator() *Tensor { return t.Cast(t.typ.DType.Accumulator()) }

// spread gives g, the gradient of a reduction t, the reduced axes back with
// size 1.
func spread(t, g *Tensor) *Tensor {
	if t.attr.KeepDims {
		return g
	}
	s := t.args[0].typ.Shape.Clone()
	for _, a := range t.attr.Axes {
		s[a] = 1
	}
	return g.Reshape(s...)
}

// chosen is the gradient of Maximum and Minimum: it goes to the argument that
// won, the first one where they are equal (as in TensorFlow). So a limit passes
// the gradient of elements that are exactly at it.
func chosen(t, g, first *Tensor) []*Tensor {
	zero := g.like(0)
	return both(t, Where(first, g, zero), Where(first, zero, g))
}

// extreme is the gradient of Max and Min: it is shared by the elements that
// are equal to the result.
func extreme(t, g *Tensor) []*Tensor {
	x := t.args[0]
	hit := x.Equal(spread(t, t)).Cast(g.typ.DType.Accumulator())
	n := hit.reduce(op.Sum, true, dtype.Invalid, t.attr.Axes)
	return one(hit.Mul(spread(t, g).accumulator().Div(n)).Cast(x.typ.DType))
}

// matmulGradient gives dX = dY·Yᵀ and dY = Xᵀ·dY with the transposes folded
// into the product. Operands stay 16-bit when the forward ones were, whatever
// type the product was stored in.
func matmulGradient(t, g *Tensor) []*Tensor {
	x, y := t.args[0], t.args[1]
	g = g.Cast(x.typ.DType)
	ta, tb := t.attr.TransA, t.attr.TransB
	var dx, dy *Tensor
	switch {
	case !ta && !tb:
		dx, dy = g.MatMulT(y, false, true), x.MatMulT(g, true, false)
	case !ta && tb:
		dx, dy = g.MatMulT(y, false, false), g.MatMulT(x, true, false)
	case ta && !tb:
		dx, dy = y.MatMulT(g, false, true), x.MatMulT(g, false, false)
	default:
		dx, dy = y.MatMulT(g, true, true), g.MatMulT(x, true, true)
	}
	return both(t, dx, dy)
}

// unslice puts g back where Slice took it from, zeros elsewhere.
func unslice(t, g *Tensor) *Tensor {
	x := t.args[0].typ.Shape
	for _, s := range t.attr.Stride {
		if s != 1 {
			g = spreadStride(t, g)
			break
		}
	}
	low, high := t.attr.Start, make([]int, len(x))
	for i := range x {
		high[i] = x[i] - low[i] - g.typ.Shape[i]
	}
	return g.Pad(low, high, 0)
}

// spreadStride puts Stride-1 zeros after each element but the last: an extra
// axis after each, padded, and folded in.
func spreadStride(t, g *Tensor) *Tensor {
	for axis, s := range t.attr.Stride {
		n := g.typ.Shape[axis]
		if s == 1 || n == 0 {
			continue
		}
		rank := len(g.typ.Shape)
		high := make([]int, rank+1)
		high[axis+1] = s - 1
		shape := g.typ.Shape.Clone()
		shape[axis] = n * s
		g = g.ExpandDims(axis+1).Pad(make([]int, rank+1), high, 0).Reshape(shape...).Slice(axis, 0, (n-1)*s+1)
	}
	return g
}
