package exec

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Algorithm is a row of a table: one way to compute the operations of a family, such
// as products of matrices. P is what the choice depends on and what Build needs.
type Algorithm[P any] struct {
	Name string
	// Applies returns "" if the algorithm can compute p, else why not.
	Applies func(p P) string
	// Pays returns "" if the algorithm is faster than the rows below it, else why
	// not. nil: it always is.
	Pays func(p P) string
	// Build makes the kernel, or returns nil if the algorithm does not fit after all.
	Build func(p P) Kernel
}

// Choice is the algorithm that computes a value, and why the rows before it do not.
type Choice struct {
	Algorithm string
	Reasons   []string
	Kernel    Kernel
}

// String describes the choice in a line.
func (c Choice) String() string {
	s := c.Algorithm
	if k, ok := c.Kernel.(fmt.Stringer); ok {
		s += ": " + k.String()
	}
	if len(c.Reasons) > 0 {
		s += " (" + strings.Join(c.Reasons, "; ") + ")"
	}
	return s
}

// Choose builds the kernel of v by the first algorithm of a table that applies and
// pays, or by the one that MEZZO_ALGORITHM names for the family if it applies. The last
// row must apply to everything.
func Choose[P any](b *Builder, v *ir.Value, family string, table []Algorithm[P], p P) Kernel {
	var c Choice
	if name := Forced(family); name != "" {
		known := false
		for _, a := range table {
			if a.Name != name {
				continue
			}
			known = true
			reason := a.Applies(p)
			if reason == "" {
				if c.Kernel = a.Build(p); c.Kernel != nil {
					c.Algorithm = name
					c.Reasons = []string{"forced"}
					b.choose(v, c)
					return c.Kernel
				}
				reason = "does not fit"
			}
			c.Reasons = append(c.Reasons, "not "+name+", which is forced: "+reason)
		}
		if !known {
			unknown(family, name, table)
		}
	}
	for _, a := range table {
		reason := a.Applies(p)
		if reason == "" && a.Pays != nil {
			reason = a.Pays(p)
		}
		if reason == "" {
			if c.Kernel = a.Build(p); c.Kernel != nil {
				c.Algorithm = a.Name
				b.choose(v, c)
				return c.Kernel
			}
			reason = "does not fit"
		}
		c.Reasons = append(c.Reasons, "not "+a.Name+": "+reason)
	}
	panic(fmt.Sprintf("cpu: no algorithm of %s for %v: %s", family, v.Describe(), strings.Join(c.Reasons, "; ")))
}

// choose notes the choice for v, which may be an alias of a value of the plan.
func (b *Builder) choose(v *ir.Value, c Choice) {
	if b.Choices == nil {
		b.Choices = map[int]Choice{}
	}
	b.Choices[b.Pos[v]] = c
}

var forced struct {
	sync.Mutex
	byFamily map[string]string // of Force
	warned   map[string]bool
}

// Forced returns the algorithm that MEZZO_ALGORITHM or Force names for a family, or "".
func Forced(family string) string {
	forced.Lock()
	defer forced.Unlock()
	if name, ok := forced.byFamily[family]; ok {
		return name
	}
	return backend.ForcedAlgorithm(family)
}

// Force makes Choose prefer an algorithm until the returned function is called. It is
// for tests.
func Force(family, name string) (restore func()) {
	forced.Lock()
	defer forced.Unlock()
	if forced.byFamily == nil {
		forced.byFamily = map[string]string{}
	}
	before, was := forced.byFamily[family]
	forced.byFamily[family] = name
	return func() {
		forced.Lock()
		defer forced.Unlock()
		if delete(forced.byFamily, family); was {
			forced.byFamily[family] = before
		}
	}
}

// unknown reports a forced algorithm that its family lacks, once.
func unknown[P any](family, name string, table []Algorithm[P]) {
	forced.Lock()
	defer forced.Unlock()
	if forced.warned[family] {
		return
	}
	if forced.warned == nil {
		forced.warned = map[string]bool{}
	}
	forced.warned[family] = true
	fmt.Fprintf(os.Stderr, "MEZZO_ALGORITHM: %s has no algorithm %q; want one of %s\n", family, name, strings.Join(Names(table), ", "))
}

// Names returns the names of the algorithms of a table.
func Names[P any](table []Algorithm[P]) (names []string) {
	for _, a := range table {
		names = append(names, a.Name)
	}
	return names
}
