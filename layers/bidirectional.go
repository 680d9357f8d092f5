package layers

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Bidirectional runs an RNN over a sequence in both directions and merges the
// outputs (Schuster and Paliwal 1997). With ReturnSequences, outputs of both
// directions belong to the same step, and are 0 at masked steps.
//
// Inputs: the inputs of Layer; states of the forward layer come before states of
// the backward layer. Result: the result of Layer; with MergeMode concat twice as
// wide, with MergeMode none a tuple of both outputs; with ReturnState followed by
// the states of both. Weights: the weights of both layers.
type Bidirectional struct {
	Layer         Layer  // forward: SimpleRNN, LSTM, GRU, RNN or ConvLSTM; required
	MergeMode     string `default:"concat"` // or sum, mul, ave, none (Keras: None)
	BackwardLayer Layer  // default: a layer like Layer with GoBackwards
	Name, DType   string

	Base
	SetsMask
	forward, backward recurrentLayer
	mode              string
}

// Config returns the fields Name and DType.
func (b *Bidirectional) Config() Config { return Config{b.Name, b.DType} }

// Build builds both layers.
func (b *Bidirectional) Build(in ...Shape) (err error) {
	c := Defaults(*b)
	switch b.mode = c.MergeMode; b.mode {
	case "concat", "sum", "mul", "ave", "none":
	default:
		return fmt.Errorf("MergeMode is %q, want concat, sum, mul, ave or none", b.mode)
	}
	if b.forward, err = recurrentOf("Layer", c.Layer); err != nil {
		return err
	}
	if c.BackwardLayer == nil {
		if c.BackwardLayer, err = backwardOf(c.Layer); err != nil {
			return err
		}
	}
	if b.backward, err = recurrentOf("BackwardLayer", c.BackwardLayer); err != nil {
		return err
	}
	states := (len(in) - 1) / 2
	if len(in) != 1+2*states {
		return fmt.Errorf("got %d inputs, want a sequence and states for both directions", len(in))
	}
	own := strings.TrimPrefix(nameOf(b.forward), "forward_")
	for i, l := range []recurrentLayer{b.forward, b.backward} {
		// Layers know their fields once they are built; outputs in the order of
		// the input need not be turned round.
		l.scan().inOrder = true
		name := [...]string{"forward_" + own, "backward_" + own}[i]
		if i == 1 && b.BackwardLayer != nil {
			name = nameOf(l)
		}
		b.AddLayer(name, l)
		l.base().rename(b.Path()+"/", name)
		shapes := append([]Shape{in[0]}, in[1+i*states:1+(i+1)*states]...)
		if err := l.base().buildAs(l, shapes); err != nil {
			return err
		}
		if s := l.scan(); s.sequences {
			s.zeroOutput = true
		}
	}
	f, r := b.forward.scan(), b.backward.scan()
	switch {
	case f.backwards == r.backwards:
		return fmt.Errorf("GoBackwards is %v in both layers, want them to differ", f.backwards)
	case f.sequences != r.sequences || f.state != r.state || f.stateful != r.stateful:
		return fmt.Errorf("ReturnSequences, ReturnState or Stateful differ between the layers, want them alike")
	}
	return nil
}

// nameOf returns the name of a layer, or that of its class.
func nameOf(l Layer) string {
	if n := l.Config().Name; n != "" {
		return n
	}
	return SnakeClass(l)
}

// recurrentOf returns a field's layer as a recurrent layer.
func recurrentOf(field string, l Layer) (recurrentLayer, error) {
	if l == nil {
		return nil, fmt.Errorf("%s is nil, want a recurrent layer", field)
	}
	r, ok := l.(recurrentLayer)
	if !ok {
		return nil, fmt.Errorf("%s is a %s, want a recurrent layer", field, Class(l))
	}
	return r, nil
}

// backwardOf is a layer like l that goes the other way.
func backwardOf(l Layer) (Layer, error) {
	data, err := MarshalConfig(l)
	if err != nil {
		return nil, err
	}
	return unmarshalWith(data, map[string]any{"go_backwards": true})
}

// CheckInput returns nil: the layers check their inputs.
func (b *Bidirectional) CheckInput(...Shape) error { return nil }

// ResetState makes the next call of stateful layers begin with zeros.
func (b *Bidirectional) ResetState() error {
	if err := b.forward.scan().ResetState(); err != nil {
		return err
	}
	return b.backward.scan().ResetState()
}

// Call computes the layer on x.
func (b *Bidirectional) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	parts := x.Unpack()
	seq, half := parts[0], (len(parts)-1)/2
	one := func(l Layer, states []*tensor.Tensor) (y *tensor.Tensor, next []*tensor.Tensor) {
		in := seq
		if len(states) > 0 {
			in = tensor.Tuple(append([]*tensor.Tensor{seq}, states...)...)
			if m := seq.Mask(); m != nil && p.Mask.Has(0) {
				l, in = With(l, Args{Mask: Inputs(0)}), tensor.Tuple(append(in.Unpack(), m)...)
			}
		}
		all := Apply(l, p, in).Unpack()
		return all[0], all[1:]
	}
	f, states := one(b.forward, parts[1:1+half])
	r, more := one(b.backward, parts[1+half:])
	mask := f.Mask()
	var y []*tensor.Tensor
	switch b.mode {
	case "concat":
		y = append(y, tensor.Concat(-1, f, r))
	case "sum":
		y = append(y, f.Add(r))
	case "mul":
		y = append(y, f.Mul(r))
	case "ave":
		y = append(y, f.Widen().Add(r.Widen()).MulScalar(0.5).Cast(f.DType()))
	default:
		y = append(y, f, r)
	}
	for i := range y {
		y[i] = y[i].WithMask(mask)
	}
	y = append(append(y, states...), more...)
	if len(y) == 1 {
		return y[0]
	}
	return tensor.Tuple(y...)
}
