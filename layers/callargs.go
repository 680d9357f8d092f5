package layers

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Args are arguments of one call of a layer, under Keras's names; see With.
// Those of attention layers are also fields of the layer, which hold for all
// calls.
type Args struct {
	UseCausalMask         bool // attention: step t sees steps up to t only
	ReturnAttentionScores bool // attention: the result is a tuple with the scores
	Reverse               bool // ReversibleEmbedding: from vectors to logits of the indices
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
