package onnx

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// window is how the windows of a convolution or pooling slide over spatial axes.
type window struct {
	size, stride, dilation, low, high []int
}

// window reads the attributes that these nodes share, for n spatial axes of the sizes
// in.
func (c *call) window(n int, size, in []int) window {
	w := window{size: size, stride: c.ints("strides"), dilation: c.ints("dilations")}
	if w.size == nil {
		w.size = c.ints("kernel_shape")
	}
	ones := slices.Repeat([]int{1}, n)
	if w.stride == nil {
		w.stride = ones
	}
	if w.dilation == nil {
		w.dilation = ones
	}
	pads := c.ints("pads")
	if pads == nil {
		pads = make([]int, 2*n)
	}
	if len(w.size) != n || len(w.stride) != n || len(w.dilation) != n || len(pads) != 2*n || n < 1 || n > 3 {
		c.fail("kernel_shape %v, strides %v, dilations %v and pads %v for %d spatial axes, want 1 to 3", w.size, w.stride, w.dilation, pads, n)
	}
	for i := range n {
		if w.size[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1 || pads[i] < 0 || pads[n+i] < 0 {
			c.fail("kernel_shape %v, strides %v, dilations %v and pads %v: want positive numbers", w.size, w.stride, w.dilation, pads)
		}
	}
	w.low, w.high = slices.Clone(pads[:n]), slices.Clone(pads[n:])
	switch auto := c.text("auto_pad", "NOTSET"); auto {
	case "NOTSET", "":
	case "VALID":
		w.low, w.high = make([]int, n), make([]int, n)
	case "SAME_UPPER", "SAME_LOWER":
		for i := range n {
			extent := op.Times(w.size[i]-1, w.dilation[i]) + 1
			total := max(((in[i]+w.stride[i]-1)/w.stride[i]-1)*w.stride[i]+extent-in[i], 0)
			w.low[i], w.high[i] = total/2, total-total/2
			if auto == "SAME_LOWER" {
				w.low[i], w.high[i] = w.high[i], w.low[i]
			}
		}
	default:
		c.fail("auto_pad %q is not supported", auto)
	}
	return w
}

// image returns operand 0 with its channels last, and the number of spatial axes.
func (c *call) image() (x *tensor.Tensor, n int) {
	n = c.rank(0) - 2
	if n < 1 || n > 3 {
		c.fail("got %v, want a batch, channels and 1 to 3 spatial axes", c.shape(0))
	}
	return c.channelsLast(c.in[0], n+2), n
}

// imaged returns a result whose channels are last.
func (c *call) imaged(t *tensor.Tensor) []*value { return c.laid(t, t.Rank(), c.in[0].typ) }

// kernels returns operand 1, the kernels [O I window…], as [window… I O].
func (c *call) kernels(n int) *tensor.Tensor {
	if c.rank(1) != n+2 {
		c.fail("kernels %v for %d spatial axes", c.shape(1), n)
	}
	return c.permuted(c.in[1], kernelLast(n+2)...)
}

func (c *call) addBias(y *tensor.Tensor, i int) *tensor.Tensor {
	if !c.has(i) {
		return y
	}
	b := c.x(i)
	if b.Rank() != 1 {
		c.fail("the bias is %v, want a vector", b.Type())
	}
	return y.Add(b.Cast(y.DType()))
}

func opConv(c *call) []*value {
	x, n := c.image()
	k := c.kernels(n)
	if k.DType() != x.DType() {
		k = k.Cast(x.DType())
	}
	w := c.window(n, k.Shape()[:n], x.Shape()[1:n+1])
	groups := c.int("group", 1)
	if groups < 1 {
		c.fail("group is %d", groups)
	}
	y := x.Conv(k, tensor.ConvOptions{Stride: w.stride, Dilation: w.dilation, Low: w.low, High: w.high, Groups: groups})
	return c.imaged(c.addBias(y, 2))
}

func opConvTranspose(c *call) []*value {
	x, n := c.image()
	// The kernels are [C O/Groups window…]: as of the convolution whose gradient it is.
	k := c.kernels(n).Cast(x.DType())
	groups := c.int("group", 1)
	w := c.window(n, k.Shape()[:n], x.Shape()[1:n+1])
	more, want := c.ints("output_padding"), c.ints("output_shape")
	if more == nil {
		more = make([]int, n)
	}
	if len(more) != n || want != nil && len(want) != n || groups < 1 {
		c.fail("output_padding %v, output_shape %v and group %d for %d spatial axes", more, want, groups, n)
	}
	auto := c.text("auto_pad", "NOTSET")
	shape := []int{x.Dim(0)}
	for i := range n {
		if more[i] < 0 {
			c.fail("output_padding %v is negative", more)
		}
		all := op.Times(w.stride[i], x.Dim(i+1)-1) + more[i] + op.Times(w.size[i]-1, w.dilation[i]) + 1
		if want == nil && (auto == "SAME_UPPER" || auto == "SAME_LOWER") {
			want = make([]int, n)
			for k := range n {
				want[k] = op.Times(x.Dim(k+1), w.stride[k])
			}
		}
		if want != nil {
			total := max(all-want[i], 0)
			w.low[i], w.high[i] = total/2, total-total/2
			if auto != "SAME_UPPER" { // the opset says: the odd one before
				w.low[i], w.high[i] = w.high[i], w.low[i]
			}
			all = want[i]
		} else {
			all -= w.low[i] + w.high[i]
		}
		if all < 1 {
			c.fail("axis %d of the result would have the size %d", i+2, all)
		}
		// Of the convolution from the result to x: what output_padding adds lies behind.
		w.high[i] -= more[i]
		shape = append(shape, all)
	}
	shape = append(shape, op.Times(k.Dim(n), groups))
	y := x.ConvTranspose(k, shape, tensor.ConvOptions{Stride: w.stride, Dilation: w.dilation, Low: w.low, High: w.high, Groups: groups})
	return c.imaged(c.addBias(y, 2))
}

// ceil adds padding behind, so that a last window that is not whole counts too.
func (w *window) ceil(in []int) (extra []int) {
	extra = make([]int, len(in))
	for i := range in {
		extent := op.Times(w.size[i]-1, w.dilation[i]) + 1
		room := in[i] + w.low[i] + w.high[i] - extent
		if room < 0 {
			continue
		}
		count := (room+w.stride[i]-1)/w.stride[i] + 1
		if (count-1)*w.stride[i] >= in[i]+w.low[i] { // it would begin in the padding
			count--
		}
		extra[i] = max(0, (count-1)*w.stride[i]-room)
	}
	return extra
}

func opPool(c *call) []*value {
	x, n := c.image()
	if len(c.n.out) > 1 && c.n.out[1] != "" {
		c.fail("its indices are not supported")
	}
	if !x.DType().IsFloat() {
		c.fail("got %v, want floats", x.Type())
	}
	in := x.Shape()[1 : n+1]
	w := c.window(n, nil, in)
	extra := make([]int, n)
	if c.int("ceil_mode", 0) != 0 {
		extra = w.ceil(in)
	}
	if c.n.op == "AveragePool" && c.int("count_include_pad", 0) != 0 && slices.Max(slices.Concat(w.low, w.high)) > 0 {
		low, high := append(append([]int{0}, w.low...), 0), append(append([]int{0}, w.high...), 0)
		x = x.Pad(low, high, 0)
		w.low, w.high = make([]int, n), make([]int, n)
	}
	for i := range extra {
		w.high[i] += extra[i]
	}
	o := tensor.PoolOptions{Window: w.size, Stride: w.stride, Dilation: w.dilation, Low: w.low, High: w.high}
	if c.n.op == "MaxPool" {
		return c.imaged(x.MaxPool(o))
	}
	return c.imaged(x.AvgPool(o))
}

// opGlobalPool reduces all spatial axes, which stay with size 1.
func opGlobalPool(code op.Code) operation {
	return func(c *call) []*value {
		x, n := c.image()
		return c.imaged(tensor.Record(code, op.Attr{Axes: identity(n + 1)[1:], KeepDims: true}, x))
	}
}

// opBatchNormalization normalizes with the moving statistics, in training too.
func opBatchNormalization(c *call) []*value {
	if c.int("training_mode", 0) != 0 {
		c.fail("training_mode is not supported")
	}
	rank := c.rank(0)
	if rank < 2 {
		c.fail("got %v, want a batch and channels", c.shape(0))
	}
	x := c.x
	t := c.channelsLast(c.in[0], max(rank, 3))
	if rank == 2 {
		t = x(0)
	}
	d := t.DType().Accumulator()
	for i := 1; i < 5; i++ {
		if s := c.shape(i); len(s) != 1 || s[0] != t.Dim(-1) {
			c.fail("operand %d is %v, want a number for each channel of %v", i, s, c.shape(0))
		}
	}
	factor := c.accumulator(1, d).Mul(c.accumulator(4, d).AddScalar(c.float("epsilon", 1e-5)).Rsqrt())
	shift := c.accumulator(2, d).Sub(c.accumulator(3, d).Mul(factor))
	y := t.Cast(d).Mul(factor).Add(shift).Cast(t.DType())
	if rank == 2 {
		return c.one(y)
	}
	return c.imaged(y)
}

// opInstanceNormalization normalizes each channel of each sample.
func opInstanceNormalization(c *call) []*value {
	x, n := c.image()
	d := x.DType().Accumulator()
	wide, axes := x.Cast(d), identity(n + 1)[1:]
	h := wide.Sub(wide.MeanKeep(axes...))
	h = h.Mul(h.Square().MeanKeep(axes...).AddScalar(c.float("epsilon", 1e-5)).Rsqrt())
	return c.imaged(h.Mul(c.accumulator(1, d)).Add(c.accumulator(2, d)).Cast(x.DType()))
}

// opGroupNormalization normalizes groups of channels; gain and shift are per group before
// opset 21, per channel then.
func opGroupNormalization(c *call) []*value {
	x := c.x(0)
	s, groups := x.Shape(), c.int("num_groups", 0)
	if len(s) < 2 || groups < 1 || s[1]%groups != 0 {
		c.fail("%d groups of the channels of %v", groups, x.Type())
	}
	d := x.DType().Accumulator()
	wide := x.Cast(d).Reshape(s[0], groups, s[1:].Size()/groups)
	h := wide.Sub(wide.MeanKeep(2))
	h = h.Mul(h.Square().MeanKeep(2).AddScalar(c.float("epsilon", 1e-5)).Rsqrt()).Reshape(s...)
	each := func(i int) *tensor.Tensor {
		w := c.accumulator(i, d)
		if w.Rank() != 1 || w.Dim(0) != s[1] && w.Dim(0) != groups {
			c.fail("operand %d is %v, want a number for each channel", i, w.Type())
		}
		if w.Dim(0) == groups && groups != s[1] {
			w = w.Reshape(groups, 1).BroadcastTo(groups, s[1]/groups)
		}
		return w.Reshape(append([]int{s[1]}, slices.Repeat([]int{1}, len(s)-2)...)...)
	}
	return c.one(h.Mul(each(1)).Add(each(2)).Cast(x.DType()))
}

// opGroupNorm records what rewrite found: x, a gain and a shift [C 1…], a vector with an
// element for each group, and the shape of x.
func opGroupNorm(c *call) []*value {
	s, groups := c.shape(0), c.shape(3).Size()
	back := op.Shape(c.knownInts(4))
	if len(s) < 3 || len(s) > 5 || groups < 1 || s[1]%groups != 0 || len(back) != len(s) {
		c.fail("%d groups of the channels of %v", groups, s)
	}
	for i, d := range back {
		if d > 0 && d != s[i] {
			c.fail("the normalized %v becomes %v", s, back)
		}
	}
	x := c.channelsLast(c.in[0], len(s))
	d := x.DType().Accumulator()
	each := func(i int) *tensor.Tensor {
		w := c.accumulator(i, d)
		if want := append(op.Shape{s[1]}, slices.Repeat(op.Shape{1}, len(s)-2)...); !w.Shape().Equal(want) && !w.Shape().Equal(append(op.Shape{1}, want...)) {
			c.fail("operand %d is %v, want %v", i, w.Type(), want)
		}
		return w.Reshape(s[1])
	}
	t := x.Shape()
	y := tensor.BatchNorm(x.Reshape(s[0], t[1:len(t)-1].Size(), s[1]), each(1), each(2), tensor.BatchNormOptions{Epsilon: c.float("epsilon", 1e-5), Groups: groups})
	return c.imaged(y.Reshape(t...))
}

// opLayerNormalization normalizes the axes from axis on.
func opLayerNormalization(c *call) []*value {
	x := c.x(0)
	s := x.Shape()
	axis := c.axis(c.int("axis", -1), len(s))
	for i := 1; i < len(c.n.out); i++ {
		if c.n.out[i] != "" {
			c.fail("its statistics are not supported")
		}
	}
	d := x.DType().Accumulator()
	n := s[axis:].Size()
	vector := func(i int, otherwise float64) *tensor.Tensor {
		if !c.has(i) {
			return tensor.Full(d, otherwise).BroadcastTo(n)
		}
		t := c.accumulator(i, d)
		if !t.Shape().Equal(s[axis:]) {
			t = t.BroadcastTo(s[axis:]...)
		}
		return t.Reshape(n)
	}
	rows := s[:axis].Size()
	flat := x
	if len(s) != 2 || axis != 1 {
		flat = x.Reshape(rows, n)
	}
	o := tensor.LayerNormOptions{Epsilon: c.float("epsilon", 1e-5), Uncentered: c.n.op == "RMSNormalization"}
	return c.one(flat.LayerNorm(vector(1, 1), vector(2, 0), o).Reshape(s...))
}

// opLRN is local response normalization across channels.
func opLRN(c *call) []*value {
	x, n := c.image()
	size := c.int("size", 0)
	if size < 1 || size > 1024 {
		c.fail("size is %d", size)
	}
	d := x.DType().Accumulator()
	wide := x.Cast(d)
	low, high := make([]int, n+2), make([]int, n+2)
	low[n+1], high[n+1] = (size-1)/2, size/2
	padded := wide.Square().Pad(low, high, 0)
	sum := padded.Slice(n+1, 0, x.Dim(-1))
	for i := 1; i < size; i++ {
		sum = sum.Add(padded.Slice(n+1, i, i+x.Dim(-1)))
	}
	scale := sum.MulScalar(c.float("alpha", 1e-4) / float64(size)).AddScalar(c.float("bias", 1))
	return c.imaged(wide.Div(scale.Pow(tensor.Scalar(d, c.float("beta", 0.75)))).Cast(x.DType()))
}

// opResize resizes axes by a matrix for each: nearest takes one element for each of the
// result, linear two, cubic four.
func opResize(c *call) []*value {
	x := c.x(0)
	s := x.Shape()
	to, scales := s.Clone(), slices.Repeat([]float64{1}, len(s))
	at := 2
	if c.n.op == "Upsample" || c.opset < 11 {
		at = 1
	}
	axes := c.ints("axes")
	if axes == nil {
		axes = identity(len(s))
	}
	axes = slices.Clone(axes)
	for i := range axes {
		axes[i] = c.axis(axes[i], len(s))
	}
	var given []float64
	switch {
	case c.has(3):
		sizes := c.knownInts(3)
		if len(sizes) != len(axes) || c.text("keep_aspect_ratio_policy", "stretch") != "stretch" {
			c.fail("sizes %v for axes %v", sizes, axes)
		}
		for i, a := range axes {
			to[a], scales[a] = sizes[i], float64(sizes[i])/float64(max(s[a], 1))
		}
	case c.has(at):
		given = c.knownFloats(at)
	case c.n.attr("scales") != nil:
		for _, f := range c.n.attr("scales").floats {
			given = append(given, float64(f))
		}
	default:
		c.fail("it has neither sizes nor scales")
	}
	if given != nil {
		if len(given) != len(axes) {
			c.fail("scales %v for axes %v", given, axes)
		}
		for i, a := range axes {
			if !(given[i] > 0 && given[i] < 1<<20) {
				c.fail("scales are %v", given)
			}
			to[a], scales[a] = int(math.Floor(float64(s[a])*given[i])), given[i]
		}
	}
	for a := range s {
		if to[a] == s[a] && scales[a] == 1 {
			continue
		}
		if to[a] < 1 || to[a] > maxFolded || s[a] < 1 || s[a] > maxFolded {
			c.fail("axis %d of %v would have the size %d", a, s, to[a])
		}
		x = c.resized(x, a, to[a], scales[a])
	}
	return c.one(x)
}

// resized resizes one axis.
func (c *call) resized(x *tensor.Tensor, axis, to int, scale float64) *tensor.Tensor {
	n := x.Dim(axis)
	how := c.text("coordinate_transformation_mode", "half_pixel")
	if c.n.op == "Upsample" || c.opset < 11 {
		how = "asymmetric"
	}
	source := func(i int) float64 {
		switch how {
		case "half_pixel":
			return (float64(i)+0.5)/scale - 0.5
		case "pytorch_half_pixel":
			if to == 1 {
				return 0
			}
			return (float64(i)+0.5)/scale - 0.5
		case "align_corners":
			if to == 1 {
				return 0
			}
			return float64(i) * float64(n-1) / float64(to-1)
		case "asymmetric":
			return float64(i) / scale
		}
		c.fail("coordinate_transformation_mode %q is not supported", how)
		return 0
	}
	mode := c.text("mode", "nearest")
	if mode == "nearest" {
		order := make([]int32, to)
		for i := range order {
			at := source(i)
			switch rule := c.text("nearest_mode", "round_prefer_floor"); {
			case how == "asymmetric" && (c.n.op == "Upsample" || c.opset < 11), rule == "floor":
				at = math.Floor(at)
			case rule == "ceil":
				at = math.Ceil(at)
			case rule == "round_prefer_ceil":
				at = math.Floor(at + 0.5)
			default:
				at = math.Ceil(at - 0.5)
			}
			order[i] = int32(min(max(int(at), 0), n-1))
		}
		return gather(x, tensor.New(order, to), axis)
	}
	if op.Times(to, n) > 1<<24 {
		c.fail("resizing %d elements to %d", n, to)
	}
	weights := make([]float32, n*to)
	add := func(i, k int, w float64) { weights[min(max(k, 0), n-1)*to+i] += float32(w) }
	a := c.float("cubic_coeff_a", -0.75)
	for i := range to {
		at := source(i)
		switch mode {
		case "linear", "bilinear":
			at = min(max(at, 0), float64(n-1))
			lo := math.Floor(at)
			add(i, int(lo), 1-(at-lo))
			add(i, int(lo)+1, at-lo)
		case "cubic":
			lo := math.Floor(at)
			for k := -1; k <= 2; k++ {
				add(i, int(lo)+k, cubic(math.Abs(at-lo-float64(k)), a))
			}
		default:
			c.fail("mode %q is not supported", mode)
		}
	}
	if c.int("antialias", 0) != 0 || c.int("exclude_outside", 0) != 0 {
		c.fail("antialias and exclude_outside are not supported")
	}
	perm := append(slices.Delete(identity(x.Rank()), axis, axis+1), axis)
	back := make([]int, len(perm))
	for i, p := range perm {
		back[p] = i
	}
	y := x.Transpose(perm...)
	s := y.Shape().Clone()
	y = y.Reshape(s[:len(s)-1].Size(), n).MatMul(tensor.New(weights, n, to).Cast(x.DType()))
	s[len(s)-1] = to
	return y.Reshape(s...).Transpose(back...)
}

// cubic is Keys's kernel of parameter a at distance t.
func cubic(t, a float64) float64 {
	switch {
	case t <= 1:
		return ((a+2)*t-(a+3))*t*t + 1
	case t < 2:
		return ((a*t-5*a)*t+8*a)*t - 4*a
	}
	return 0
}
