package asm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The registers and operands that name a Go function's arguments in instructions.
var (
	declared = regexp.MustCompile(`(?m)^// func (\w+)\((.*?)\)(?: \(?(.*?)\)?)?$`)
	argument = regexp.MustCompile(`^(\w+)\+(\d+)\(FP\)$`)
)

// sizes are the bytes of the types of arguments.
var sizes = map[string]int{"unsafe.Pointer": 8, "int": 8, "uint": 8, "float64": 8, "float32": 4, "uint32": 4}

// offsets returns the offsets of a function's arguments and results in its frame.
func offsets(params, results string) (map[string]int, error) {
	at, places := 0, map[string]int{}
	for i, list := range []string{params, results} {
		if list == "" {
			continue
		}
		if i == 1 {
			at = (at + 7) &^ 7
			if !strings.Contains(list, " ") {
				list = "ret " + list
			}
		}
		var names []string
		for p := range strings.SplitSeq(list, ",") {
			name, kind, typed := strings.Cut(strings.TrimSpace(p), " ")
			names = append(names, name)
			if !typed {
				continue
			}
			size := sizes[kind]
			if size == 0 {
				return nil, fmt.Errorf("no size of type %q", kind)
			}
			for _, n := range names {
				at = (at + size - 1) &^ (size - 1)
				places[n] = at
				at += size
			}
			names = nil
		}
	}
	return places, nil
}

// checkArguments compares the arguments that instructions name with the declaration in the
// comment of their function. Go vet does this, too, but not in macros.
func (f *File) checkArguments() error {
	for _, it := range f.items {
		m := declared.FindStringSubmatch(it.head)
		if m == nil {
			if len(it.code) > 0 {
				return fmt.Errorf("asm: %s: no declaration in %q", f.Name, it.head)
			}
			continue
		}
		places, err := offsets(m[2], m[3])
		if err != nil {
			return fmt.Errorf("asm: %s: %s: %w", f.Name, m[1], err)
		}
		var check func(code []*node) error
		check = func(code []*node) error {
			for _, n := range code {
				if n.block != nil {
					if err := check(n.block.code); err != nil {
						return err
					}
					continue
				}
				for _, o := range n.operands {
					a := argument.FindStringSubmatch(o)
					if a == nil {
						continue
					}
					if at, ok := places[a[1]]; !ok || strconv.Itoa(at) != a[2] {
						return fmt.Errorf("asm: %s: %s has no argument %s", f.Name, m[1], o)
					}
				}
			}
			return nil
		}
		if err := check(it.code); err != nil {
			return err
		}
	}
	return nil
}
