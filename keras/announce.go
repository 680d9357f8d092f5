package keras

import (
	"fmt"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// announce says on the first line of the first Fit of a process on which device
// it runs, again when that or the policy has changed.
func (f *fitting) announce() {
	if f.announced || f.c.Verbose == VerbositySilent {
		return
	}
	f.announced = true
	if text := policy.EffectiveText(); !told(text) {
		fmt.Fprintln(f.c.Output, text)
	}
	if text := policy.EnvironmentText(); text != "" && !told(text) {
		fmt.Fprintln(f.c.Output, text)
	}
	if text := f.m.outdated(); text != "" {
		if !told(text) {
			fmt.Fprintln(f.c.Output, text)
		}
	}
	for _, t := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		if !f.m.computesIn(t) {
			continue
		}
		if text := policy.Compatibility(t); text != "" {
			if !told(text) {
				fmt.Fprintln(f.c.Output, text)
			}
		}
	}
}

// outdated returns the note that layers keep the policy they were built with although
// another one has been set since, or "".
func (m *Model) outdated() string {
	var first layers.Layer
	var now policy.Policy
	n := 0
	for _, l := range m.leaves() {
		if p, yes := layers.Outdated(l); yes {
			if n++; n == 1 {
				first, now = l, p
			}
		}
	}
	if n == 0 {
		return ""
	}
	b := layers.BaseOf(first)
	also := ""
	if n > 1 {
		also = fmt.Sprintf(" (so do %d more)", n-1)
	}
	return fmt.Sprintf("Policy: layer %s was built under %s and keeps it%s; %s was set later. Set it before the layers are built.",
		b.Path(), b.Policy().Name, also, now.Name)
}

// leaves returns the model's layers, with nested models replaced by their layers.
func (m *Model) leaves() []layers.Layer {
	var all []layers.Layer
	for _, l := range m.layers {
		if inner, ok := l.(*modelLayer); ok {
			all = append(all, inner.model.leaves()...)
		} else {
			all = append(all, l)
		}
	}
	return all
}

// texts holds the messages that Fit prints once per process.
var texts sync.Map

// told reports whether Fit has said a text before, and notes that it has now.
func told(text string) bool {
	_, again := texts.LoadOrStore(text, true)
	return again
}
