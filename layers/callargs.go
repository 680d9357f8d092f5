package layers

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Args are arguments of one call of a layer, under Keras's names; see With.
// The arguments of attention layers are also fields of the layer, which hold for
// all calls.
type Args struct {
	UseCausalMask         bool // attention: step t sees steps up to t only
	ReturnAttentionScores bool // attention: the result is a tuple with the scores
	Reverse               bool // ReversibleEmbedding: from vectors to logits of the indices

	// Mask is the set of inputs whose masks are given as tensors, which replace the
	// masks that the inputs have. They come after the inputs, in the inputs' order:
	//
	//	y := keras.Apply(layers.With(lstm, layers.Args{Mask: layers.Inputs(0)}), x, mask)
	//
	// A mask is true, or not 0, where the input is to be seen. Any layer takes it
	// (Keras: mask, and query_mask, value_mask and key_mask of attention).
	Mask InputSet
}

// InputSet is a set of the inputs of a call; see Inputs.
type InputSet uint64

// Inputs returns the set of inputs with these numbers, from 0 to 63.
func Inputs(numbers ...int) (s InputSet) {
	for _, n := range numbers {
		s |= 1 << n
	}
	return s
}

// Has reports whether input n is in s.
func (s InputSet) Has(n int) bool { return s>>n&1 != 0 }

// Numbers lists the inputs of s.
func (s InputSet) Numbers() (all []int) {
	for n := range 64 {
		if s>>n&1 != 0 {
			all = append(all, n)
		}
	}
	return all
}

// masked returns x, whose last tensors are masks, as the tensors before them with these
// masks. The result is a tuple if more than one is left.
func (s InputSet) masked(x *tensor.Tensor) *tensor.Tensor {
	of, parts := s.Numbers(), slices.Clone(x.Unpack())
	n := len(parts) - len(of)
	if n < 1 || of[len(of)-1] >= n {
		tensor.Fail("Call", "got %d tensors, want inputs, and then the masks of the inputs %v", len(parts), of)
	}
	for i, k := range of {
		m := parts[n+i]
		if m.DType() != dtype.Bool {
			m = m.NotEqual(tensor.Scalar(m.DType(), 0))
		}
		if !isPrefix(m.Shape(), parts[k].Shape()) {
			tensor.Fail("Call", "got mask %v for input %d, which is %v, want its first axes", m.Type(), k, parts[k].Type())
		}
		parts[k] = parts[k].WithMask(m)
	}
	if n == 1 {
		return parts[0]
	}
	return tensor.Tuple(parts[:n]...)
}

// With is layer l called with arguments:
//
//	logits := keras.Apply(layers.With(embedding, layers.Args{Reverse: true}), x)
//
// In all else it is l: weights, name and path are shared with other calls. An
// argument that l does not take is an error of the call.
func With(l Layer, a Args) Layer {
	inner, given := Unwrap(l)
	a.UseCausalMask = a.UseCausalMask || given.UseCausalMask
	a.ReturnAttentionScores = a.ReturnAttentionScores || given.ReturnAttentionScores
	a.Reverse = a.Reverse || given.Reverse
	a.Mask |= given.Mask
	if a == (Args{}) {
		return inner
	}
	return &withArgs{inner, a}
}

// Unwrap returns the layer and the arguments that With combined.
func Unwrap(l Layer) (Layer, Args) {
	if w, ok := l.(*withArgs); ok {
		return w.Layer, w.args
	}
	return l, Args{}
}

// withArgs is a layer with call arguments. Apply, and code that needs a layer's class,
// unwraps it.
type withArgs struct {
	Layer
	args Args
}

// ArgsTaker is a Layer that accepts some fields of Args. Call gets them in
// Pass.Args.
type ArgsTaker interface {
	// TakesArgs lists the fields of Args that the layer takes.
	TakesArgs() []string
}

// check requires that l accepts the arguments.
func (a Args) check(l Layer) {
	if a == (Args{}) {
		return
	}
	var takes []string
	if t, ok := l.(ArgsTaker); ok {
		takes = t.TakesArgs()
	}
	a.Mask = 0 // which any layer takes
	v := reflect.ValueOf(a)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !v.Field(i).IsZero() && !slices.Contains(takes, name) {
			panic(&tensor.Error{Op: "Call", Err: fmt.Errorf("got argument %s, which a %s does not take, want one of %v", name, Class(l), takes)})
		}
	}
}

// attends is embedded by layers that take the arguments of attention.
type attends struct{}

// TakesArgs implements ArgsTaker.
func (attends) TakesArgs() []string { return []string{"UseCausalMask", "ReturnAttentionScores"} }
