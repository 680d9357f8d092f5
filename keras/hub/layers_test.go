package hub

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// TestHeads: inputs and numbers of heads that attention cannot have are errors of Build.
func TestHeads(t *testing.T) {
	for _, make := range []func(heads int) layers.Layer{
		func(heads int) layers.Layer { return &CachedMultiHeadAttention{NumHeads: heads} },
		func(heads int) layers.Layer { return &TransformerEncoder{NumHeads: heads, IntermediateDim: 4} },
		func(heads int) layers.Layer { return &TransformerDecoder{NumHeads: heads, IntermediateDim: 4} },
	} {
		for _, c := range []struct {
			heads  int
			in     []layers.Shape
			within string
		}{
			{3, []layers.Shape{{2, 5, 8}}, "NumHeads is 3, want a divisor of the 8 features"},
			{0, []layers.Shape{{2, 5, 8}}, "NumHeads is 0, want a divisor of the 8 features"},
			{2, []layers.Shape{{2, 8}}, "want [batch steps features]"},
			{2, []layers.Shape{{2, 5, 8}, {2, 5, 1}}, "want [batch steps features], and [batch steps] for a padding mask"},
		} {
			l := make(c.heads)
			var in []*keras.Tensor
			for _, s := range c.in {
				in = append(in, keras.Input(s[1:]...))
			}
			_, err := keras.NewModel(keras.Tuple(in...), keras.Apply(l, in...))
			if err == nil || !strings.Contains(err.Error(), c.within) {
				t.Errorf("%T with %d heads on %v: got error %v, want one with %s", l, c.heads, c.in, err, c.within)
			}
		}
	}
}
