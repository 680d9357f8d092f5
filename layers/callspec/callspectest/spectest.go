// Package callspectest, without compatibility promise, turns the configs of golden cases into specs, for the tests
// of what is made from specs. Its only function is [Text].
package callspectest

import (
	"maps"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
)

// Text is the spec of a golden case: its class with the arguments in its
// config, but for those in skip.
func Text(c *tensortest.Case, skip ...string) string {
	skip = append(skip, "class_name")
	var args []string
	for _, k := range slices.Sorted(maps.Keys(c.Config)) {
		if !slices.Contains(skip, k) {
			args = append(args, k+"="+string(c.Config[k])) // JSON's values are a spec's
		}
	}
	if len(args) == 0 {
		return c.Class()
	}
	return c.Class() + "(" + strings.Join(args, ", ") + ")"
}
