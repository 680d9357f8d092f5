package saving

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/optimizers/kerasstate"
)

// The groups of an optimizer in a weight file. Keras's LossScaleOptimizer
// writes variables of its own and those of the optimizer within it to the
// first, and the latter once more to the second.
const (
	optimizerGroup = "optimizer"
	innerGroup     = "optimizer/inner_optimizer"
)

// ownOfScaling are the variables of Keras's LossScaleOptimizer: iteration and
// learning_rate, which it does not use, step_counter and dynamic_scale.
const ownOfScaling = 4

// inner takes an optimizer out of its LossScaleOptimizer, which is nil when it
// has none.
func inner(o optimizers.Optimizer) (optimizers.Optimizer, *optimizers.LossScaleOptimizer) {
	if scaled, ok := o.(*optimizers.LossScaleOptimizer); ok {
		return scaled.Inner, scaled
	}
	return o, nil
}

// putOptimizer writes the state of an optimizer.
func putOptimizer(root *hdf5.Group, o optimizers.Optimizer, m *keras.Model, all []place) error {
	name, vs, err := optimizerVariables(o, m, all)
	if err != nil {
		return err
	}
	state, err := kerasstate.Export(o)
	if err != nil {
		return err
	}
	var values []value
	for _, v := range vs {
		values = append(values, value{v.Type(), state[v]})
	}
	_, scaled := inner(o)
	if scaled == nil {
		put(root, optimizerGroup, name, values)
		return nil
	}
	put(root, innerGroup, name, values)
	scalar := func(d dtype.DType, b []byte) value { return value{op.Type{DType: d}, b} }
	own := []value{scalar(dtype.Int64, make([]byte, 8)), scalar(dtype.Float32, make([]byte, 4))}
	ofScaling, _ := kerasstate.Variables(scaled)
	for _, v := range ofScaling[:ownOfScaling-len(own)] {
		own = append(own, value{v.Type(), state[v]})
	}
	name, _, _ = strings.Cut(ofScaling[0].Name(), "/")
	put(root, optimizerGroup, name, append(own, values...))
	return nil
}

// readOptimizer reads the state of an optimizer: what is to be set. A file
// with loss scaling has it for an optimizer without, and the other way round:
// then the scale stays what it is.
func readOptimizer(root *hdf5.Group, o optimizers.Optimizer, m *keras.Model, all []place) (map[*tensor.Variable][]byte, error) {
	owner, vs, err := optimizerVariables(o, m, all)
	if err != nil {
		return nil, err
	}
	owner = "optimizer " + owner
	path, n := optimizerGroup+"/vars", len(vs)
	scaling := root.Group(innerGroup) != nil
	if scaling {
		n += ownOfScaling
		owner += " with loss scaling"
	}
	arrays, err := arraysOf(root, path, n, owner)
	if err != nil {
		return nil, fmt.Errorf("%w; the slots of an optimizer exist after its first step", err)
	}
	if scaling {
		_, scaled := inner(o)
		if own := arrays[ownOfScaling-2 : ownOfScaling]; scaled != nil {
			arrays = slices.Concat(own, arrays[ownOfScaling:])
			ofScaling, _ := kerasstate.Variables(scaled)
			vs = slices.Concat(ofScaling[:len(own)], vs)
		} else {
			arrays = arrays[ownOfScaling:]
		}
	}
	state := map[*tensor.Variable][]byte{}
	for i, v := range vs {
		if !arrays[i].typ.Shape.Equal(v.Shape()) {
			return nil, fmt.Errorf("%s: variable %s: got %v, want %v", owner, v.Name(), arrays[i].typ, v.Type())
		}
		b, err := arrays[i].bytes()
		if err != nil {
			return nil, err
		}
		if state[v], err = tensor.FromBytes(arrays[i].typ, b).Cast(v.DType()).Bytes(); err != nil {
			return nil, err
		}
	}
	return state, kerasstate.Import(o, state)
}

// optimizerVariables lists the state of an optimizer, without that of loss
// scaling, in Keras's order.
func optimizerVariables(o optimizers.Optimizer, m *keras.Model, all []place) (name string, vs []*tensor.Variable, err error) {
	if o, _ = inner(o); o == nil {
		return "", nil, errors.New("optimizer LossScaleOptimizer: Inner: got nil, want an optimizer")
	}
	o.Variables() // makes those that are there before the first step
	vs, ok := kerasstate.Variables(o)
	if !ok {
		return "", nil, fmt.Errorf("optimizer %T: Keras has no such optimizer; keep its state with package checkpoint", o)
	}
	if len(vs) > 0 {
		name, _, _ = strings.Cut(vs[0].Name(), "/")
	}
	return name, kerasOrder(vs, m, all), nil
}

// kerasOrder sorts slots such that within each group of slots those of a
// weight stand where Keras, which has the layers in another order, has them.
func kerasOrder(vs []*tensor.Variable, m *keras.Model, all []place) []*tensor.Variable {
	slotOf := map[string]int{} // start of a slot's name, without its optimizer's → place of its weight in the model
	inKeras := map[int]int{}   // place in the model → place in Keras's model
	index := map[*layers.Weight]int{}
	ws := m.Weights()
	for i, w := range ws {
		index[w] = i
		slotOf[strings.ReplaceAll(w.Name(), "/", "_")] = i
	}
	for _, p := range all {
		for _, w := range p.weights {
			if _, twice := inKeras[index[w]]; !twice {
				inKeras[index[w]] = len(inKeras)
			}
		}
	}
	owner := func(v *tensor.Variable) int {
		_, n, _ := strings.Cut(v.Name(), "/")
		for ; strings.Contains(n, "_"); n = n[:strings.LastIndexByte(n, '_')] {
			if i, ok := slotOf[n]; ok {
				return i
			}
		}
		return -1
	}
	out := slices.Clone(vs)
	for from := 0; from < len(out); {
		to, last := from+1, owner(out[from])
		for to < len(out) && (last < 0) == (owner(out[to]) < 0) && owner(out[to]) >= last {
			last = owner(out[to])
			to++
		}
		if last >= 0 {
			slices.SortStableFunc(out[from:to], func(a, b *tensor.Variable) int { return inKeras[owner(a)] - inKeras[owner(b)] })
		}
		from = to
	}
	return out
}
