package keras

import (
	"context"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/exponents"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/layers"
)

// LayerExponents has histograms of the binary exponents of a layer's weights,
// activations and gradients in a training step.
type LayerExponents struct {
	Layer string // path

	// Weights are the layer's own, as they are stored; Activations what it
	// computes in the forward pass, and Gradients in the backward pass, as they
	// are computed: times the loss scale where there is one, and in DType.
	Weights, Activations, Gradients exponents.Histogram
	DType                           DType // the layer's compute type
}

// Exponents runs a training step on b without changing any variable and
// returns, for each layer that computes something, histograms of the binary
// exponents of its numbers. They show whether float16 can hold these numbers,
// and with which loss scale. Copies, constants and casts of weights are not
// counted. The model must be compiled. Exponents is slow.
func (m *Model) Exponents(ctx context.Context, b Batch) (all []LayerExponents, err error) {
	defer tensor.Catch(&err)
	if err := needs(ctx, "Exponents"); err != nil {
		return nil, err
	}
	defer func() { err = pipeline.WithCause(ctx, err) }()
	if err := m.ready(b); err != nil {
		return nil, err
	}
	at := map[string]*LayerExponents{}
	var order []string
	var index func(ls []layers.Layer)
	index = func(ls []layers.Layer) {
		for _, l := range ls {
			base := layers.BaseOf(l)
			e := &LayerExponents{Layer: base.Path(), DType: base.ComputeDType()}
			if at[e.Layer] == nil {
				at[e.Layer] = e
				order = append(order, e.Layer)
			}
			index(base.Sublayers())
		}
	}
	index(m.layers)
	err = m.training.train.Watch(ctx, b, func(v *ir.Value, data []byte) error {
		switch {
		case !v.Type.DType.IsFloat() || v.Op == op.Param || v.Op == op.Const || v.Op.Info().Class == op.Movement:
			return nil
		case v.Op == op.Cast && v.Args[0].Op == op.Param: // of a weight, or of the batch
			return nil
		}
		path, backward := strings.CutSuffix(v.Path, "/grad")
		switch e := at[path]; {
		case e == nil:
		case backward:
			e.Gradients.AddBytes(data, v.Type.DType)
		default:
			e.Activations.AddBytes(data, v.Type.DType)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, w := range m.Weights() {
		path := w.Name()[:max(strings.LastIndexByte(w.Name(), '/'), 0)]
		if e := at[path]; e != nil && w.DType().IsFloat() {
			data, err := w.Bytes()
			if err != nil {
				return nil, err
			}
			e.Weights.AddBytes(data, w.DType())
		}
	}
	for _, path := range order {
		if e := at[path]; e.Weights.Count+e.Activations.Count+e.Gradients.Count > 0 {
			all = append(all, *e)
		}
	}
	return all, nil
}
