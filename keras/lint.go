package keras

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// Diagnostic is a finding of Lint: something in a model that costs time or
// precision in 16 bits.
type Diagnostic struct {
	Layer string // path of the layer, or the name of the model
	What  string // "420 filters are not a multiple of 8"
	Why   string
	Fix   string
}

// String returns the diagnostic on one line.
func (f Diagnostic) String() string {
	return fmt.Sprintf("%s: %s: %s; %s", f.Layer, f.What, f.Why, f.Fix)
}

// Lint returns what costs time or precision in 16 bits, each with a fix: sizes
// that are no multiple of what matrix units need, outputs and losses in 16
// bits, losses of probabilities whose logits are not known, constants that are
// 0 or infinite in float16, float16 without a loss scale, weights stored in 16
// bits. It runs nothing. Only types and shapes of b matter; Batch{} stands for
// 8 samples with 64 elements on axes of unknown size. Diagnostics are in the
// order in which the layers run.
func (m *Model) Lint(b Batch) (findings []Diagnostic, err error) {
	defer tensor.Catch(&err)
	x := b.X
	switch {
	case x != nil:
		if err := m.buildFor(x); err != nil {
			return nil, err
		}
		x = b.resized(x.Unpack()[0].Dim(0)).X
	case !m.built:
		return nil, m.errorf("Lint: %w; give a batch, or Build it first", ErrNotBuilt)
	default:
		x = eachPart(m.in, func(t *Tensor) *Tensor {
			shape := t.Shape().Clone()
			shape[0] = 8
			for i, n := range shape {
				if n == tensor.Unknown {
					shape[i] = 64
				}
			}
			return tensor.Placeholder(t.DType(), shape...)
		})
	}
	l := linter{m: m, layers: map[string]layers.Layer{}, seen: map[string]bool{}, sizes: map[int]bool{}}
	l.index(m.layers)
	forward := Function(func(x *Tensor) *Tensor {
		y := m.call(layers.Pass{Training: true}, x, true)
		l.logits = l.logits[:0]
		for _, p := range y.Unpack() {
			_, _, ok := tensor.Logits(p)
			l.logits = append(l.logits, ok)
		}
		return y
	}, m)
	forward.KeepCasts(false)
	forward.Options(ir.Options{Watch: true}) // every value apart
	g, err := forward.Plan(x)
	if err != nil {
		return nil, err
	}
	for _, v := range g.Values {
		l.value(v)
	}
	if n := x.Unpack()[0].Dim(0); b.X != nil && n%8 != 0 && l.products {
		l.add(m.name, fmt.Sprintf("a batch of %d samples is not a multiple of 8", n), whyEight,
			fmt.Sprintf("take %d or %d", max(n/8*8, 8), (n+7)/8*8))
	}
	l.outputs(g)
	l.policies()
	l.losses()
	return l.findings, nil
}

type linter struct {
	m        *Model
	layers   map[string]layers.Layer // by path
	findings []Diagnostic
	seen     map[string]bool // findings without their layers' sublayers
	sizes    map[int]bool    // outputs that were found: whoever reads them is not to blame
	products bool            // there are products of 16-bit operands
	inLoop   bool            // operands of products may be the layer's results at the last step
	logits   []bool          // whether each output's logits are known
}

func (l *linter) index(all []layers.Layer) {
	for _, x := range all {
		b := layers.BaseOf(x)
		l.layers[b.Path()] = x
		l.index(b.Sublayers())
	}
}

func (l *linter) add(layer, what, why, fix string) {
	if key := layer + what; !l.seen[key] {
		l.seen[key] = true
		l.findings = append(l.findings, Diagnostic{layer, what, why, fix})
	}
}

const whyEight = "matrix units (Tensor Cores, AVX512-BF16, AMX) take 16-bit numbers in groups of 8, and fill up or fall back for the rest"

// value checks a value, and the values of a loop's steps.
func (l *linter) value(v *ir.Value) {
	l.sizesOf(v)
	l.constant(v)
	if v.Op == op.Loop {
		l.inLoop = true
		for _, inner := range ir.LoopBody(v).Values {
			l.value(inner)
		}
		l.inLoop = false
	}
}

// sizesOf looks at the columns that a product reads and makes.
func (l *linter) sizesOf(v *ir.Value) {
	if len(v.Args) < 2 || !v.Args[1].Type.DType.Is16() {
		return
	}
	last := func(t op.Type, from int) int { return t.Shape[len(t.Shape)-from] }
	w := v.Args[1].Type
	switch v.Op {
	case op.MatMul:
		in := 2
		if v.Attr.TransB {
			in = 1
		}
		l.size(v.Path, last(w, in), last(v.Type, 1))
	case op.Conv, op.ConvInputGrad:
		if v.Attr.Groups > 1 {
			return
		}
		in, out := last(w, 2), last(w, 1)
		if v.Op == op.ConvInputGrad { // a transposed convolution goes the other way
			in, out = out, in
		}
		if in < 8 { // images of few channels, which libraries fill up by themselves
			in = 8
		}
		l.size(v.Path, in, out)
	case op.RNN:
		units := last(w, 2)
		if v.Attr.Scan.Product { // the kernel of the input is the last but its bias and the mask
			for _, a := range v.Args[3:] {
				if n := len(a.Type.Shape); n == 2 && last(a.Type, 1) == last(w, 1) {
					l.size(v.Path, last(a.Type, 2), 8)
				}
			}
		}
		l.size(v.Path, units, units)
	case op.Attention, op.AttentionForward:
		l.size(v.Path, last(v.Args[0].Type, 1), last(v.Args[2].Type, 1))
	}
}

// size records the features that a product reads and returns. A product of one column
// needs no padding.
func (l *linter) size(path string, in, out int) {
	l.products = true
	layer := l.layers[path]
	if in%8 != 0 && in > 1 && !l.sizes[in] {
		if field := fieldOf(layer, in); (in == out || l.inLoop) && field != "" {
			l.add(path, fmt.Sprintf("%s %d is not a multiple of 8", field, in), whyEight, l.enlarge(path, field, in))
		} else {
			l.add(path, fmt.Sprintf("its input has %d features, not a multiple of 8", in), whyEight,
				fmt.Sprintf("fill the input up to %d", (in+7)/8*8))
		}
		l.sizes[in] = true
	}
	if out%8 != 0 && out > 1 && !l.sizes[out] {
		what, fix := fmt.Sprintf("its output has %d features, not a multiple of 8", out), fmt.Sprintf("make them %d", (out+7)/8*8)
		if field := fieldOf(layer, out); field != "" {
			what, fix = fmt.Sprintf("%s %d is not a multiple of 8", field, out), l.enlarge(path, field, out)
		}
		l.add(path, what, whyEight, fix)
		l.sizes[out] = true
	}
}

// fieldOf is the field of a layer that has a size, "" when none has.
func fieldOf(l layers.Layer, size int) string {
	if l == nil {
		return ""
	}
	v := reflect.Indirect(reflect.ValueOf(l))
	for _, name := range []string{"Units", "Filters", "KeyDim", "ValueDim", "OutputDim"} {
		if f := v.FieldByName(name); f.IsValid() && f.CanInt() && f.Int() == int64(size) {
			return name
		}
	}
	return ""
}

func (l *linter) enlarge(path, field string, n int) string {
	more := (n + 7) / 8 * 8
	fix := fmt.Sprintf("%s: %d (%.3g %% more multiplications)", field, more, 100*float64(more-n)/float64(n))
	if slices.Contains(l.m.outputNames(), path) {
		fix += fmt.Sprintf("; where they are classes, labels stay below %d", n)
	}
	return fix
}

// constant looks for numbers that float16 does not have.
func (l *linter) constant(v *ir.Value) {
	x := v.Attr.Value
	if v.Op != op.Const || v.Attr.Data != nil || v.Type.DType != Float16 || x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return
	}
	became, why := Float16.Round(float32(x)), "a sum with it or a quotient by it goes unprotected"
	switch {
	case became == 0:
	case math.IsInf(float64(became), 0):
		why = "what is added to it or multiplied with it is lost, and ∞-∞ is NaN"
	default:
		return
	}
	l.add(v.Path, fmt.Sprintf("the constant %v is %v in float16", x, became), why,
		`compute that in float32: DType: "float32" for the layer, or Cast before the constant; for attention masks use bools`)
}

// outputs looks for results that were rounded to 16 bits.
func (l *linter) outputs(g *ir.Graph) {
	names := l.m.outputNames()
	for i, v := range g.Outputs[len(g.Outputs)-len(names):] {
		switch {
		case v.Type.DType.Is16():
			l.add(names[i], fmt.Sprintf("the model returns it in %v", v.Type.DType),
				"losses and what follows get numbers of few digits, and a softmax loses small probabilities", "leave KeepOutputDType out")
		case v.Op == op.Cast && v.Args[0].Type.DType.Is16() && v.Args[0].Op != op.Param:
			l.add(names[i], fmt.Sprintf("the output is rounded to %v before it is float32", v.Args[0].Type.DType),
				"losses and what follows get numbers of few digits", `DType: "float32" for this layer`)
		}
	}
}

// policies looks at how layers store, and whether float16 is scaled.
func (l *linter) policies() {
	m := l.m
	for _, x := range m.layers {
		b := layers.BaseOf(x)
		if isModel(x) {
			continue
		}
		// The weights, not the policy: layers that normalize store float32.
		stored := b.TrainableWeights()
		if i := slices.IndexFunc(stored, func(v *layers.Weight) bool { return v.DType().Is16() }); i >= 0 {
			d := stored[i].DType()
			l.add(b.Path(), fmt.Sprintf("its weights are stored in %v", d),
				fmt.Sprintf("updates of less than about %.1g of a weight change nothing", d.Epsilon()/2),
				fmt.Sprintf(`DType: "mixed_%v"`, d))
		}
	}
	t := m.training
	if t == nil || t.scaler != nil || !m.computesIn(Float16) {
		return
	}
	if t.outputs == nil && (t.config.AutoScaleLoss == nil || *t.config.AutoScaleLoss) {
		return // prepare will see to it
	}
	l.add(m.name, "layers compute in float16, and the loss is not scaled",
		fmt.Sprintf("gradients below %.1g are 0", Float16.SmallestSubnormal()), "leave AutoScaleLoss out, or compute in bfloat16")
}

// losses looks for losses that take logarithms of probabilities.
func (l *linter) losses() {
	t := l.m.training
	if t == nil {
		return
	}
	outs, err := l.m.judgedOutputs()
	if err != nil {
		return // Fit says it
	}
	for i, o := range outs {
		if o.loss == nil || l.logits[i] {
			continue
		}
		v := reflect.Indirect(reflect.ValueOf(o.loss))
		if v.Kind() != reflect.Struct {
			continue
		}
		if f := v.FieldByName("FromLogits"); f.Kind() != reflect.Bool || f.Bool() {
			continue
		}
		class := v.Type().Name()
		l.add(o.name, class+" takes this output for probabilities whose logits it does not know",
			"they are cut off at 1e-7, where the gradient ends; logits that are taken for probabilities teach nothing",
			fmt.Sprintf("end the model in a softmax or sigmoid, which %s looks behind, or return logits and set FromLogits: true", class))
	}
}
