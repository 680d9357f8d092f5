package hub

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// PositionEmbedding returns a learned vector for each step of its input, to be
// added to it.
//
// Shapes: [batch steps features] → the same. Weight: position_embeddings
// [SequenceLength features].
type PositionEmbedding struct {
	SequenceLength int    // longest sequence; required
	Initializer    string `default:"glorot_uniform"`
	Name, DType    string

	layers.Base
	table *layers.Weight
}

// Config returns the fields Name and DType.
func (p *PositionEmbedding) Config() layers.Config {
	return layers.Config{Name: p.Name, DType: p.DType}
}

// Build makes the table.
func (p *PositionEmbedding) Build(in ...layers.Shape) (err error) {
	if err := p.CheckInput(in...); err != nil {
		return err
	}
	if in[0][2] < 1 {
		return fmt.Errorf("got input %v, want a known number of features", in[0])
	}
	p.table, err = p.AddWeight("position_embeddings", layers.Shape{p.SequenceLength, in[0][2]}, layers.Defaults(*p).Initializer)
	return err
}

// CheckInput requires one sequence of at most SequenceLength steps.
func (p *PositionEmbedding) CheckInput(in ...layers.Shape) error {
	if len(in) != 1 || len(in[0]) != 3 {
		return fmt.Errorf("got inputs %v, want one [batch steps features]", in)
	}
	if in[0][1] > p.SequenceLength {
		return fmt.Errorf("got %d steps, want at most SequenceLength, %d", in[0][1], p.SequenceLength)
	}
	return nil
}

// Call computes the layer on x.
func (p *PositionEmbedding) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	if x.Dim(1) < 0 {
		return x // of a model that is being built
	}
	s := x.Shape()
	return p.table.Value().Slice(0, 0, s[1]).ExpandDims(0).BroadcastTo(s...)
}

// at returns the vectors of positions, int32 [n], as [n 1 features].
func (p *PositionEmbedding) at(positions *keras.Tensor) *keras.Tensor {
	return p.table.Variable.Value().Gather(positions).Cast(p.ComputeDType()).ExpandDims(1)
}

// TokenAndPositionEmbedding is the sum of a vector for each token and one for its
// position, both learned (KerasHub's layer of this name).
//
// Shapes: int [batch steps] → [batch steps EmbeddingDim]. Weights:
// token_embedding/embeddings [VocabularySize EmbeddingDim],
// position_embedding/position_embeddings [SequenceLength EmbeddingDim].
type TokenAndPositionEmbedding struct {
	VocabularySize        int    // required
	SequenceLength        int    // longest sequence; required
	EmbeddingDim          int    // required
	EmbeddingsInitializer string `default:"uniform"`
	Name, DType           string

	layers.Base
	tokens    *layers.ReversibleEmbedding
	positions *PositionEmbedding
}

// Config returns the fields Name and DType.
func (e *TokenAndPositionEmbedding) Config() layers.Config {
	return layers.Config{Name: e.Name, DType: e.DType}
}

// Build makes the tables.
func (e *TokenAndPositionEmbedding) Build(in ...layers.Shape) error {
	c := layers.Defaults(*e)
	e.tokens = &layers.ReversibleEmbedding{InputDim: c.VocabularySize, OutputDim: c.EmbeddingDim, EmbeddingsInitializer: c.EmbeddingsInitializer}
	e.positions = &PositionEmbedding{SequenceLength: c.SequenceLength, Initializer: c.EmbeddingsInitializer}
	e.AddLayer("token_embedding", e.tokens)
	e.AddLayer("position_embedding", e.positions)
	return e.CheckInput(in...)
}

// CheckInput requires one sequence of at most SequenceLength tokens.
func (e *TokenAndPositionEmbedding) CheckInput(in ...layers.Shape) error {
	if len(in) != 1 || len(in[0]) != 2 {
		return fmt.Errorf("got inputs %v, want one [batch steps]", in)
	}
	if in[0][1] > e.SequenceLength {
		return fmt.Errorf("got %d steps, want at most SequenceLength, %d", in[0][1], e.SequenceLength)
	}
	return nil
}

// Call computes the layer on x.
func (e *TokenAndPositionEmbedding) Call(p layers.Pass, x *keras.Tensor) *keras.Tensor {
	y := layers.Apply(e.tokens, p, x)
	return y.Add(layers.Apply(e.positions, p, y))
}

// block has the fields that both Transformer layers share.
type block struct {
	intermediateDim, numHeads    int
	dropout, epsilon             float64
	activation, kernel, bias     string
	attention, attentionNorm     layers.Layer
	inner, output, norm          layers.Layer
	attentionDropout, outDropout layers.Layer
}

// checkHeads is an error unless in is [batch steps features], optionally with a
// padding mask [batch steps], and heads divides the features.
func checkHeads(heads int, in []layers.Shape) error {
	if len(in) < 1 || len(in) > 2 || len(in[0]) != 3 || in[0][2] < 1 || len(in) == 2 && len(in[1]) != 2 {
		return fmt.Errorf("got inputs %v, want [batch steps features], and [batch steps] for a padding mask", in)
	}
	if heads < 1 || in[0][2]%heads != 0 {
		return fmt.Errorf("NumHeads is %d, want a divisor of the %d features", heads, in[0][2])
	}
	return nil
}

// build makes the sublayers for inputs of these shapes, under KerasHub's names.
// attention is the name of the attention, which the caller has made.
func (b *block) build(base *layers.Base, in []layers.Shape, attention string) error {
	if err := checkHeads(b.numHeads, in); err != nil {
		return err
	}
	if b.intermediateDim < 1 {
		return fmt.Errorf("IntermediateDim is %d, want a positive number", b.intermediateDim)
	}
	b.attentionNorm = &layers.LayerNormalization{Epsilon: &b.epsilon}
	b.attentionDropout = &layers.Dropout{Rate: b.dropout}
	b.norm = &layers.LayerNormalization{Epsilon: &b.epsilon}
	b.inner = &layers.Dense{Units: b.intermediateDim, Activation: b.activation, KernelInitializer: b.kernel, BiasInitializer: b.bias}
	b.output = &layers.Dense{Units: in[0][2], KernelInitializer: b.kernel, BiasInitializer: b.bias}
	b.outDropout = &layers.Dropout{Rate: b.dropout}
	base.AddLayer(attention, b.attention)
	base.AddLayer("self_attention_layer_norm", b.attentionNorm)
	base.AddLayer("self_attention_dropout", b.attentionDropout)
	base.AddLayer("feedforward_layer_norm", b.norm)
	base.AddLayer("feedforward_intermediate_dense", b.inner)
	base.AddLayer("feedforward_output_dense", b.output)
	base.AddLayer("feedforward_dropout", b.outDropout)
	return nil
}

// call computes the block on x, where attend computes the attention.
func (b *block) call(p layers.Pass, x *keras.Tensor, normalizeFirst bool, attend func(x *keras.Tensor) *keras.Tensor) *keras.Tensor {
	part := func(x *keras.Tensor, norm layers.Layer, f func(x *keras.Tensor) *keras.Tensor) *keras.Tensor {
		if normalizeFirst {
			return x.Add(f(layers.Apply(norm, p, x)))
		}
		return layers.Apply(norm, p, x.Add(f(x)))
	}
	x = part(x, b.attentionNorm, func(x *keras.Tensor) *keras.Tensor {
		return layers.Apply(b.attentionDropout, p, attend(x))
	})
	return part(x, b.norm, func(x *keras.Tensor) *keras.Tensor {
		return layers.Apply(b.outDropout, p, layers.Apply(b.output, p, layers.Apply(b.inner, p, x)))
	})
}

// TransformerEncoder is multi-head self-attention and two Dense layers, each
// with a residual connection and a layer normalization (Vaswani et al. 2017).
//
// A second input is a padding mask, 0 for the steps that no step attends to.
//
// Shapes: [batch steps features], optionally with [batch steps] → [batch steps
// features].
type TransformerEncoder struct {
	IntermediateDim   int // units of the first Dense layer; required
	NumHeads          int // required
	Dropout           float64
	Activation        string   `default:"relu"`
	LayerNormEpsilon  *float64 `default:"1e-05"`
	KernelInitializer string   `default:"glorot_uniform"`
	BiasInitializer   string   `default:"zeros"`
	NormalizeFirst    bool     // whether inputs of attention and Dense are normalized, and not the sums
	Name, DType       string

	layers.Base
	block block
}

// Config returns the fields Name and DType.
func (e *TransformerEncoder) Config() layers.Config {
	return layers.Config{Name: e.Name, DType: e.DType}
}

// Build makes the sublayers.
func (e *TransformerEncoder) Build(in ...layers.Shape) error {
	c := layers.Defaults(*e)
	e.block = block{intermediateDim: c.IntermediateDim, numHeads: c.NumHeads, dropout: c.Dropout, epsilon: *c.LayerNormEpsilon,
		activation: c.Activation, kernel: c.KernelInitializer, bias: c.BiasInitializer}
	if len(in) > 0 && len(in[0]) == 3 && c.NumHeads > 0 {
		e.block.attention = &layers.MultiHeadAttention{NumHeads: c.NumHeads, KeyDim: in[0][2] / c.NumHeads, Dropout: c.Dropout,
			KernelInitializer: c.KernelInitializer, BiasInitializer: c.BiasInitializer, UseAttentionMask: len(in) == 2}
	}
	return e.block.build(&e.Base, in, "self_attention_layer")
}

// CheckInput accepts sequences of any length.
func (e *TransformerEncoder) CheckInput(...layers.Shape) error { return nil }

// Call computes the layer on x.
func (e *TransformerEncoder) Call(p layers.Pass, in *keras.Tensor) *keras.Tensor {
	all := in.Unpack()
	return e.block.call(p, all[0], e.NormalizeFirst, func(x *keras.Tensor) *keras.Tensor {
		if len(all) == 1 {
			return layers.Apply(e.block.attention, p, keras.Tuple(x, x))
		}
		return layers.Apply(e.block.attention, p, keras.Tuple(x, x, keys(all[1]).ExpandDims(1)))
	})
}

// keys returns the bool mask of a padding mask.
func keys(padding *keras.Tensor) *keras.Tensor {
	if padding.DType() == dtype.Bool {
		return padding
	}
	return padding.NotEqual(tensor.Scalar(padding.DType(), 0))
}

// TransformerDecoder is a [TransformerEncoder] whose steps see only steps up to
// themselves. Cross-attention, which KerasHub's layer has too, is not supported.
//
// Shapes: [batch steps features], optionally with a padding mask [batch steps]
// → [batch steps features].
type TransformerDecoder struct {
	IntermediateDim   int // units of the first Dense layer; required
	NumHeads          int // required
	Dropout           float64
	Activation        string   `default:"relu"`
	LayerNormEpsilon  *float64 `default:"1e-05"`
	KernelInitializer string   `default:"glorot_uniform"`
	BiasInitializer   string   `default:"zeros"`
	NormalizeFirst    bool     // whether inputs of attention and Dense are normalized, and not the sums
	Name, DType       string

	layers.Base
	block     block
	attention *CachedMultiHeadAttention
}

// Config returns the fields Name and DType.
func (d *TransformerDecoder) Config() layers.Config {
	return layers.Config{Name: d.Name, DType: d.DType}
}

// Build makes the sublayers.
func (d *TransformerDecoder) Build(in ...layers.Shape) error {
	c := layers.Defaults(*d)
	d.attention = &CachedMultiHeadAttention{NumHeads: c.NumHeads, Dropout: c.Dropout,
		KernelInitializer: c.KernelInitializer, BiasInitializer: c.BiasInitializer}
	d.block = block{intermediateDim: c.IntermediateDim, numHeads: c.NumHeads, dropout: c.Dropout, epsilon: *c.LayerNormEpsilon,
		activation: c.Activation, kernel: c.KernelInitializer, bias: c.BiasInitializer, attention: d.attention}
	return d.block.build(&d.Base, in, "self_attention")
}

// CheckInput accepts sequences of any length.
func (d *TransformerDecoder) CheckInput(...layers.Shape) error { return nil }

// Call computes the layer on x.
func (d *TransformerDecoder) Call(p layers.Pass, in *keras.Tensor) *keras.Tensor {
	all := in.Unpack()
	return d.block.call(p, all[0], d.NormalizeFirst, func(x *keras.Tensor) *keras.Tensor {
		return layers.Apply(d.attention, p, keras.Tuple(append([]*keras.Tensor{x}, all[1:]...)...))
	})
}

// step computes the layer on steps that follow the ones in the cache.
func (d *TransformerDecoder) step(x *keras.Tensor, c *cache) *keras.Tensor {
	return d.block.call(layers.Pass{}, x, d.NormalizeFirst, func(x *keras.Tensor) *keras.Tensor { return d.attention.step(x, c) })
}

// CachedMultiHeadAttention is causal multi-head self-attention with the weights
// of [layers.MultiHeadAttention], for models that generate step by step.
//
// Shapes: [batch steps features], optionally with a padding mask [batch steps]
// → [batch steps features]. Weights as of MultiHeadAttention.
type CachedMultiHeadAttention struct {
	NumHeads          int // required
	Dropout           float64
	KernelInitializer string `default:"glorot_uniform"`
	BiasInitializer   string `default:"zeros"`
	Name, DType       string

	layers.Base
	query, key, value, out *layers.EinsumDense
	random                 *keras.Variable
	keyDim                 int
}

// Config returns the fields Name and DType.
func (a *CachedMultiHeadAttention) Config() layers.Config {
	return layers.Config{Name: a.Name, DType: a.DType}
}

// Build makes the projections.
func (a *CachedMultiHeadAttention) Build(in ...layers.Shape) error {
	c := layers.Defaults(*a)
	if err := checkHeads(c.NumHeads, in); err != nil {
		return err
	}
	n := in[0][2]
	a.keyDim = n / c.NumHeads
	project := func(equation, bias string, sizes ...int) *layers.EinsumDense {
		return &layers.EinsumDense{Equation: equation, BiasAxes: bias, OutputShape: append([]int{tensor.Unknown}, sizes...),
			KernelInitializer: c.KernelInitializer, BiasInitializer: c.BiasInitializer}
	}
	a.query = project("abc,cde->abde", "de", c.NumHeads, a.keyDim)
	a.key = project("abc,cde->abde", "de", c.NumHeads, a.keyDim)
	a.value = project("abc,cde->abde", "de", c.NumHeads, a.keyDim)
	a.out = project("abde,dec->abc", "c", n)
	a.AddLayer("query", a.query)
	a.AddLayer("key", a.key)
	a.AddLayer("value", a.value)
	a.AddLayer("attention_output", a.out)
	if !(c.Dropout >= 0 && c.Dropout <= 1) {
		return fmt.Errorf("Dropout is %v, want a number from 0 to 1", c.Dropout)
	}
	if c.Dropout > 0 {
		a.random = a.AddRandomState(nil)
	}
	return nil
}

// CheckInput accepts sequences of any length.
func (a *CachedMultiHeadAttention) CheckInput(...layers.Shape) error { return nil }

// Call computes the layer on x.
func (a *CachedMultiHeadAttention) Call(p layers.Pass, in *keras.Tensor) *keras.Tensor {
	all := in.Unpack()
	q, k, v := layers.Apply(a.query, p, all[0]), layers.Apply(a.key, p, all[0]), layers.Apply(a.value, p, all[0])
	o := tensor.AttentionOptions{Scale: a.scale(), Causal: true}
	if len(all) > 1 {
		o.Mask = keys(all[1]).ExpandDims(1).ExpandDims(1)
	}
	if p.Training && a.random != nil && !q.Symbolic() {
		o.Dropout, o.State = a.Dropout, layers.NextState(a.random, q)
	}
	return layers.Apply(a.out, p, tensor.Attention(q, k, v, o))
}

func (a *CachedMultiHeadAttention) scale() float64 { return 1 / math.Sqrt(float64(a.keyDim)) }
