package saving

import (
	"encoding/json"
	"fmt"
	"strings"
)

// checkOperation reports calls of an operation of keras.ops with numbers, such as
// h + 3.0. Keras keeps operations under the names of its layers, Add and others,
// which they are here too; but layers take tensors alone.
func checkOperation(o *object) error {
	if !strings.HasPrefix(o.Module, "keras.src.ops.") && !strings.HasPrefix(o.Module, "keras.ops") || o.InboundNodes == nil {
		return nil
	}
	for _, n := range *o.InboundNodes {
		for _, a := range n.Args {
			if x, ok := a.(json.Number); ok {
				return fmt.Errorf("layer %s: operation %s of keras.ops takes the number %v, and only operations on tensors alone can be read; in Keras use a layer, such as Rescaling", o.Name, o.Class, x)
			}
		}
	}
	return nil
}
