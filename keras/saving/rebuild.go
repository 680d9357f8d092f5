package saving

import (
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

const (
	maxModels = 32     // within one another
	maxLayers = 20_000 // of all models in a file
	maxCalls  = 20_000 // of layers, in one model
)

// rebuild makes the model that config.json describes. It is built.
func rebuild(o *object, c config) (*keras.Model, error) { return rebuildWith(&builder{}, o, c) }

func rebuildWith(b *builder, o *object, c config) (*keras.Model, error) {
	b.repolicy = func(name string) string { return name }
	if c.policy != nil {
		general := generalPolicy(o)
		b.repolicy = func(name string) string {
			if name != "" && source(name) != general {
				return name
			}
			// An error of the layer where there is no quantized form.
			return strings.TrimSuffix(name, source(name)) + c.policy.Name
		}
	}
	return b.model(o, 0)
}

// generalPolicy is the policy of most layers, the first one of several. Those of quantized
// layers count as what they are made from.
func generalPolicy(o *object) (general string) {
	counts := map[string]int{}
	var order []string
	var count func(o *object, depth int)
	count = func(o *object, depth int) {
		inner, err := list(o.Config["layers"])
		if err == nil && depth < maxModels {
			for _, l := range inner {
				count(l, depth+1)
			}
			return
		}
		if isOperation(o) {
			return
		}
		if p, err := policyOf(o.Config["dtype"]); err == nil && o.Class != "InputLayer" {
			p = source(p)
			if counts[p] == 0 {
				order = append(order, p)
			}
			counts[p]++
		}
	}
	count(o, 0)
	for _, p := range order {
		if counts[p] > counts[general] {
			general = p
		}
	}
	return general
}

// list reads a list of objects.
func list(v any) ([]*object, error) {
	all, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("layers: got %T, want a list of objects", v)
	}
	out := make([]*object, len(all))
	for i, x := range all {
		if !isObject(x) {
			return nil, fmt.Errorf("layers: entry %d is no object with a class_name", i)
		}
		var err error
		if out[i], err = decode(x); err != nil {
			return nil, fmt.Errorf("layers: entry %d: %w", i, err)
		}
	}
	return out, nil
}

type builder struct {
	repolicy func(string) string
	layers   int // so far

	// masksWithStates: recurrent layers use the mask of a sequence beside initial
	// states, as in Keras 2, which is an error.
	masksWithStates bool
}

func (b *builder) model(o *object, depth int) (m *keras.Model, err error) {
	if depth > maxModels {
		return nil, fmt.Errorf("models are nested more than %d deep", maxModels)
	}
	if o.Class == spaceClass {
		return nil, errors.New("got a FeatureSpace, want a model; LoadFeatureSpace reads it")
	}
	name, _ := o.Config["name"].(string)
	known := safeio.Text(name) // in errors
	all, err := list(o.Config["layers"])
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", known, err)
	}
	if b.layers += len(all); b.layers > maxLayers {
		return nil, fmt.Errorf("model %s: got more than %d layers", known, maxLayers)
	}
	switch o.Class {
	case "Sequential":
		m, err = b.sequential(o, all, depth)
	case "Functional":
		m, err = b.functional(o, all, depth)
	default:
		return nil, fmt.Errorf("got a model of class %s, want Sequential or Functional", safeio.Quote(o.Class))
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", known, err)
	}
	if name != "" {
		m.Named(name)
	}
	if o.Config["trainable"] == false {
		m.SetTrainable(false)
	}
	return m, nil
}

// layer makes a layer, or a model as a layer.
func (b *builder) layer(o *object, depth int) (layers.Layer, error) {
	if isModel(o.Class) {
		m, err := b.model(o, depth+1)
		if err != nil {
			return nil, err
		}
		return m.Layer(), nil
	}
	return b.translated(o, depth)
}

func (b *builder) sequential(o *object, all []*object, depth int) (*keras.Model, error) {
	var in *keras.Tensor
	var stack []layers.Layer
	for i, l := range all {
		if l.Class == "InputLayer" && i == 0 {
			var err error
			if in, err = input(l, all[1:min(2, len(all))]); err != nil {
				return nil, err
			}
			if name, _ := l.Config["name"].(string); !defaultInput.MatchString(name) {
				in = keras.Named(name, in)
			}
			continue
		}
		made, err := b.layer(l, depth)
		if err != nil {
			return nil, err
		}
		stack = append(stack, made)
	}
	m := keras.Sequential(stack...)
	if in == nil {
		shape, err := shapeFrom(o.Config["build_input_shape"])
		if err != nil {
			return nil, fmt.Errorf("it has no InputLayer, and build_input_shape: %w; build the model before it is saved", err)
		}
		in = keras.Input(shape...)
	}
	return m, m.BuildOn(in)
}

// defaultInput matches the names that inputs have without one of their own.
var defaultInput = regexp.MustCompile(`^(input_layer(_\d+)?)?$`)

// readers returns the layers that each Input of a functional model goes to.
func readers(all []*object) map[string][]*object {
	found := map[string][]*object{}
	for _, l := range all {
		if l.InboundNodes == nil {
			continue
		}
		for _, n := range *l.InboundNodes {
			in, err := flatten(n.Args, nil)
			if err != nil {
				continue
			}
			for _, k := range in {
				if f := found[k.layer]; k.node == 0 && k.part == 0 && (len(f) == 0 || f[len(f)-1] != l) {
					found[k.layer] = append(f, l)
				}
			}
		}
	}
	return found
}

// input makes the Input of an InputLayer that readers take. Of texts it is the
// indices that a preprocessing.StringEncoder makes of them.
func input(o *object, readers []*object) (*keras.Tensor, error) {
	shape := o.Config["batch_shape"]
	if shape == nil {
		shape = o.Config["batch_input_shape"] // of old files
	}
	s, err := shapeFrom(shape)
	if err != nil {
		return nil, fmt.Errorf("InputLayer: batch_shape: %w", err)
	}
	name, _ := o.Config["dtype"].(string)
	if name == stringType {
		for _, l := range readers {
			if l.Class == "TextVectorization" && l.Config["split"] != nil {
				s = []int{tensor.Unknown} // words of a text
				if n, ok := l.Config["output_sequence_length"].(json.Number); ok {
					if length, err := n.Int64(); err == nil && length > 0 && length < 1<<31 {
						s[0] = int(length)
					}
				}
			}
		}
		return keras.InputOf(keras.Int64, s...), nil
	}
	d, err := dtype.Parse(name)
	if err != nil {
		p, e := policyOf(o.Config["dtype"])
		named, e2 := policy.Parse(p)
		if e != nil || e2 != nil {
			return nil, fmt.Errorf("InputLayer: dtype: %w", err)
		}
		d = named.Compute
	}
	return keras.InputOf(d, s...), nil
}

// shapeFrom reads a shape and leaves the batch axis out.
func shapeFrom(v any) ([]int, error) {
	all, ok := v.([]any)
	if !ok || len(all) == 0 {
		return nil, fmt.Errorf("got %s, want a list of sizes", safeio.Text(v))
	}
	var out []int
	for _, x := range all[1:] {
		size := tensor.Unknown
		if x != nil {
			n, ok := x.(json.Number)
			i, err := n.Int64()
			if !ok || err != nil || i < 1 || i > 1<<40 {
				return nil, fmt.Errorf("got size %s, want a positive integer or null", safeio.Text(x))
			}
			size = int(i)
		}
		out = append(out, size)
	}
	return out, nil
}

// key names a tensor of a functional model as Keras does.
type key struct {
	layer      string
	node, part int
}

// pending is a call whose inputs are not all there yet.
type pending struct {
	layer layers.Layer
	name  string
	node  int
	in    []key
	args  layers.Args
}

func (b *builder) functional(o *object, all []*object, depth int) (*keras.Model, error) {
	at := map[key]*keras.Tensor{}
	var calls []pending
	taken := map[string]bool{}
	nested := map[string]*object{} // functional models among the layers
	readersOf := readers(all)
	for _, l := range all {
		name := l.Name
		known := safeio.Text(name) // in errors
		if taken[name] || name == "" {
			return nil, fmt.Errorf("got two layers named %s, want names that are unique", safeio.Quote(name))
		}
		taken[name] = true
		if l.Class == "InputLayer" {
			in, err := input(l, readersOf[name])
			if err != nil {
				return nil, fmt.Errorf("layer %s: %w", known, err)
			}
			if !defaultInput.MatchString(name) {
				in = keras.Named(name, in)
			}
			at[key{name, 0, 0}] = in
			continue
		}
		if l.InboundNodes == nil || len(calls)+len(*l.InboundNodes) > maxCalls {
			return nil, fmt.Errorf("layer %s: it has no inbound_nodes, or the model has more than %d calls", known, maxCalls)
		}
		if isOperation(l) {
			for i, n := range *l.InboundNodes {
				made, in, err := operationOf(l, name, n)
				if err != nil {
					return nil, err
				}
				for k := 1; i > 0 && taken[made.Name]; k++ { // Keras's one object is one for each call here
					made.Name = fmt.Sprintf("%s_call_%d", name, i+k)
				}
				taken[made.Name] = true
				calls = append(calls, pending{made, name, i, in, layers.Args{}})
			}
			continue
		}
		if slices.ContainsFunc(*l.InboundNodes, func(n inbound) bool { return n.Kwargs[maskArgument] != nil }) {
			l.Config[withMask] = true
		}
		made, err := b.layer(l, depth)
		if err != nil {
			return nil, err
		}
		if isFunctional(made) {
			nested[name] = l
		}
		for i, n := range *l.InboundNodes {
			in, args, err := n.inputs()
			if err != nil {
				return nil, fmt.Errorf("layer %s: inbound_nodes: entry %d: %w", known, i, err)
			}
			calls = append(calls, pending{made, name, i, in, args})
		}
	}
	ins, inNest, err := endKeys(o.Config["input_layers"], nested)
	if err != nil {
		return nil, fmt.Errorf("input_layers: %w", err)
	}
	outs, outNest, err := endKeys(o.Config["output_layers"], nested)
	if err != nil {
		return nil, fmt.Errorf("output_layers: %w", err)
	}
	if err := countFromZero(calls, outs, nested); err != nil {
		return nil, err
	}
	if err := b.run(calls, at); err != nil {
		return nil, err
	}
	in, err := endsOf(ins, at)
	if err != nil {
		return nil, fmt.Errorf("input_layers: %w", err)
	}
	out, err := endsOf(outs, at)
	if err != nil {
		return nil, fmt.Errorf("output_layers: %w", err)
	}
	m, err := keras.NewModel(in, out)
	if err != nil {
		return nil, err
	}
	return m, m.SetNests(inNest, outNest)
}

// run makes the calls, whose results go to at. Usually they are in order. If
// not, they are made in rounds: in each those, in order, whose inputs are there.
func (b *builder) run(calls []pending, at map[key]*keras.Tensor) error {
	missing := make([]int, len(calls)) // inputs
	waiting := map[key][]int{}         // calls
	for i, c := range calls {
		for _, k := range c.in {
			if at[k] == nil {
				missing[i]++
				waiting[k] = append(waiting[k], i)
			}
		}
	}
	round, next := &numbers{}, &numbers{} // calls whose inputs are there
	for i, n := range missing {
		if n == 0 {
			heap.Push(round, i)
		}
	}
	for done := 0; done < len(calls); done++ {
		if round.Len() == 0 {
			round, next = next, round
		}
		if round.Len() == 0 {
			i := slices.IndexFunc(missing, func(n int) bool { return n > 0 })
			_, k := tensors(calls[i].in, at)
			return fmt.Errorf("layer %s: its input %s comes from nowhere", safeio.Text(calls[i].name), safeio.Text(*k))
		}
		i := heap.Pop(round).(int)
		c := calls[i]
		in, _ := tensors(c.in, at)
		if b.masksWithStates && isRecurrent(c.layer) && len(in) > 1 && c.args.Mask == 0 && in[0].Mask() != nil {
			return fmt.Errorf("layer %s: it has initial states and a sequence with a mask, which Keras 2 uses and Keras 3 does not; want a call with the argument mask", safeio.Text(c.name))
		}
		out := keras.Apply(layers.With(c.layer, c.args), in...)
		if out.Err() != nil {
			return out.Err()
		}
		for part, t := range out.Unpack() {
			k := key{c.name, c.node, part}
			at[k] = t
			for _, j := range waiting[k] {
				if missing[j]--; missing[j] > 0 {
					continue
				}
				if j > i {
					heap.Push(round, j)
				} else {
					heap.Push(next, j)
				}
			}
			delete(waiting, k)
		}
	}
	return nil
}

// numbers is a heap of them.
type numbers struct{ sort.IntSlice }

// Push is of heap.Interface.
func (h *numbers) Push(x any) { h.IntSlice = append(h.IntSlice, x.(int)) }

// Pop is of heap.Interface.
func (h *numbers) Pop() any {
	last := len(h.IntSlice) - 1
	x := h.IntSlice[last]
	h.IntSlice = h.IntSlice[:last]
	return x
}

// countFromZero makes the inputs of calls name the calls of nested functional
// models by indices from 0, as Keras writes them there; see endKeys for
// input_layers and output_layers. Older files of this package count from 1.
// These can be told apart: Keras writes a build_config for each model, and they
// have none. In a file without one, the right way of counting is that by which
// every call of the model is used; it is an error when both are.
func countFromZero(calls []pending, outs []key, nested map[string]*object) error {
	readersOf, outsOf := map[string][]*key{}, map[string][]key{}
	for _, c := range calls {
		for i, k := range c.in {
			readersOf[k.layer] = append(readersOf[k.layer], &c.in[i])
		}
	}
	for _, k := range outs {
		outsOf[k.layer] = append(outsOf[k.layer], k)
	}
	for _, name := range slices.Sorted(maps.Keys(nested)) {
		l := nested[name]
		if l.BuildConfig != nil {
			continue
		}
		n, readers := len(*l.InboundNodes), readersOf[name]
		usesAll := func(first int) bool { // if indices start there
			used := map[int]bool{}
			for _, k := range readers {
				used[k.node-first] = true
			}
			for _, k := range outsOf[name] {
				used[k.node] = true
			}
			for i := range used {
				if i < 0 || i >= n {
					return false
				}
			}
			return len(used) == n
		}
		switch zero, one := usesAll(0), usesAll(1); {
		case zero && one && len(readers) > 0:
			return fmt.Errorf("layer %s: it has no build_config, so its calls may be counted from 0 or from 1; make the model in Go, read the file with LoadWeights, and Save it again", safeio.Text(name))
		case one && !zero:
			for _, k := range readers {
				k.node--
			}
		}
	}
	return nil
}

func tensors(keys []key, at map[key]*keras.Tensor) (out []*keras.Tensor, missing *key) {
	for _, k := range keys {
		if at[k] == nil {
			return nil, &k
		}
		out = append(out, at[k])
	}
	return out, nil
}

// inputs lists the tensors that a layer is called with: those of its
// positional arguments, lists taken apart, then those of the arguments that layers
// here take as inputs, then masks; and the arguments of the call.
func (n inbound) inputs() (in []key, args layers.Args, err error) {
	if in, err = flatten(n.Args, nil); err != nil {
		return nil, args, err
	}
	for _, name := range inputArguments {
		if in, err = flatten(n.Kwargs[name], in); err != nil {
			return nil, args, err
		}
		if name == "key" && n.Kwargs["key_mask"] != nil && len(in) == 2 {
			in = append(in, in[1]) // the key is the value, with a mask of its own
		}
	}
	if len(in) == 0 {
		return nil, args, fmt.Errorf("the call has no inputs")
	}
	masks := make([]*key, len(in))
	for name, v := range n.Kwargs {
		at := slices.Index(maskArguments, name)
		if name == "mask" {
			at = 0
		}
		given, err := leaves(v, nil)
		if err != nil {
			return nil, args, err
		}
		given = slices.DeleteFunc(given, func(k *key) bool { return k == nil && at < 0 })
		switch to := argumentOf(&args, name); {
		case to != nil:
			*to = v == true
		case slices.Contains(inputArguments, name) || len(given) == 0:
		case at < 0:
			return nil, args, fmt.Errorf("argument %s of the call is a tensor, which cannot be read", safeio.Quote(name))
		case at+len(given) > len(in):
			return nil, args, fmt.Errorf("argument %s of the call has more masks than there are inputs", safeio.Quote(name))
		default:
			for i, k := range given {
				if k != nil {
					masks[at+i] = k
				}
			}
		}
	}
	for i, k := range masks {
		if k == nil {
			continue
		}
		if i > 63 {
			return nil, args, fmt.Errorf("got a mask for input %d of the call, want masks for the first 64 inputs", i)
		}
		in, args.Mask = append(in, *k), args.Mask|layers.Inputs(i)
	}
	return in, args, nil
}

// inputArguments are the names of arguments that hold inputs, in their order here.
var inputArguments = []string{"inputs", "sequences", "query", "value", "key", maskArgument, "initial_state"}

// maskArguments are the names of the masks of inputs of attention layers, in the
// order of the inputs.
var maskArguments = []string{"query_mask", "value_mask", "key_mask"}

// flatten appends the tensors in an argument, in order.
func flatten(v any, to []key) ([]key, error) {
	all, err := leaves(v, nil)
	for _, k := range all {
		if k != nil {
			to = append(to, *k)
		}
	}
	return to, err
}

// leaves appends the tensors in an argument, in order: those of dicts by their keys. A
// None in a list or dict, or alone, is nil.
func leaves(v any, to []*key) ([]*key, error) {
	var err error
	switch v := v.(type) {
	case nil:
		to = append(to, nil)
	case []any:
		for _, x := range v {
			if to, err = leaves(x, to); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		if v["class_name"] == nil {
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if to, err = leaves(v[name], to); err != nil {
					return nil, err
				}
			}
			return to, nil
		}
		if v["class_name"] != "__keras_tensor__" {
			return nil, fmt.Errorf("got an argument of class %s, want tensors of the model", safeio.Text(v["class_name"]))
		}
		c, _ := v["config"].(map[string]any)
		k, err := keyFrom(c["keras_history"])
		if err != nil {
			return nil, err
		}
		to = append(to, &k)
	}
	return to, nil
}

// keyFrom reads ["dense", 0, 0].
func keyFrom(v any) (k key, err error) {
	all, _ := v.([]any)
	if len(all) == 3 {
		name, ok := all[0].(string)
		node, ok1 := all[1].(json.Number)
		part, ok2 := all[2].(json.Number)
		n, err1 := node.Int64()
		p, err2 := part.Int64()
		if ok && ok1 && ok2 && err1 == nil && err2 == nil {
			return key{name, int(n), int(p)}, nil
		}
	}
	return k, fmt.Errorf("got %s, want the name of a layer and two indices", safeio.Text(v))
}

// endKeys reads a model's inputs or outputs: one triple, or lists and dicts of them.
// There Keras counts the calls of nested functional models from 1, and those of
// other layers from 0.
func endKeys(v any, nested map[string]*object) (keys []key, nest *keras.Nest, err error) {
	var read func(v any) (*keras.Nest, error)
	read = func(v any) (*keras.Nest, error) {
		list, isList := v.([]any)
		dict, isDict := v.(map[string]any)
		switch {
		case isList && len(list) > 0 && isText(list[0]):
			k, err := keyFrom(v)
			if nested[k.layer] != nil {
				k.node--
			}
			keys = append(keys, k)
			return &keras.Nest{}, err
		case isDict && len(dict) > 0:
			n := &keras.Nest{Keys: slices.Sorted(maps.Keys(dict))}
			for _, name := range n.Keys {
				list = append(list, dict[name])
			}
			return n, parts(n, list, read)
		case isList && len(list) > 0:
			n := &keras.Nest{}
			return n, parts(n, list, read)
		}
		return nil, fmt.Errorf("got %s, want a list", safeio.Text(v))
	}
	nest, err = read(v)
	return keys, nest, err
}

func isText(v any) bool {
	_, ok := v.(string)
	return ok
}

// parts reads the parts of n.
func parts(n *keras.Nest, all []any, read func(v any) (*keras.Nest, error)) error {
	for _, v := range all {
		p, err := read(v)
		if err != nil {
			return err
		}
		n.Parts = append(n.Parts, p)
	}
	return nil
}

// endsOf finds a model's inputs or outputs.
func endsOf(keys []key, at map[key]*keras.Tensor) (*keras.Tensor, error) {
	ts, missing := tensors(keys, at)
	if missing != nil {
		return nil, fmt.Errorf("there is no tensor %s", safeio.Text(*missing))
	}
	if len(ts) == 1 {
		return ts[0], nil
	}
	return keras.Tuple(ts...), nil
}
