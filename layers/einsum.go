package layers

import (
	"fmt"
	"slices"
	"strings"
)

// equation is a parsed einsum equation "x,y->out" of an input of known rank,
// with letters in place of "...".
type equation struct{ x, y, out string }

// parseEquation reads an equation for an input with rank axes. leading and trailing
// are the numbers of axes that "..." stands for at the front and the end.
func parseEquation(text string, rank int) (e equation, leading, trailing int, err error) {
	want := fmt.Errorf(`Equation is %q, want "x,y->z" with a letter for each axis, and "..." at the front of x and z, at the end of both, or nowhere`, text)
	operands, out, ok := strings.Cut(strings.ReplaceAll(text, " ", ""), "->")
	x, y, two := strings.Cut(operands, ",")
	if !ok || !two {
		return e, 0, 0, want
	}
	front, back := strings.HasPrefix(x, "..."), strings.HasSuffix(x, "...")
	if front && back || front != strings.HasPrefix(out, "...") || back != strings.HasSuffix(out, "...") {
		return e, 0, 0, want
	}
	x, out = strings.Trim(x, "."), strings.Trim(out, ".")
	for _, s := range []string{x, y, out} {
		for i, c := range s {
			letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
			if !letter || strings.IndexRune(s, c) != i {
				return e, 0, 0, want
			}
		}
		if s == "" {
			return e, 0, 0, want
		}
	}
	more := rank - len(x)
	if more < 0 || more > 0 && !front && !back {
		return e, 0, 0, fmt.Errorf("Equation is %q, want one for an input of %d axes", text, rank)
	}
	dots := ""
	for c := '0'; len(dots) < more; c++ { // no letter, so that none clashes
		dots += string(c)
	}
	if front {
		return equation{dots + x, y, dots + out}, more, 0, nil
	}
	return equation{x + dots, y, out + dots}, 0, more, nil
}

// fits checks that every letter has a size; the kernel's letters get it from the input
// or the output.
func (e equation) fits(text string) error {
	for _, c := range e.y {
		if !strings.ContainsRune(e.x+e.out, c) {
			return fmt.Errorf("Equation is %q, want %q of the second operand in the first or in the result", text, c)
		}
	}
	for _, c := range e.out {
		if !strings.ContainsRune(e.x+e.y, c) {
			return fmt.Errorf("Equation is %q, want %q of the result in an operand", text, c)
		}
	}
	return nil
}

// alongResult returns the shape of a number for each element of the result that a kernel
// of that shape determines: with the axes of the result, of size 1 where the kernel has
// none.
func (e equation) alongResult(kernel Shape) Shape {
	shape := make(Shape, 0, len(e.out))
	for _, c := range e.out {
		n := 1
		if i := strings.IndexRune(e.y, c); i >= 0 {
			n = kernel[i]
		}
		shape = append(shape, n)
	}
	return shape
}

// axesIn returns the positions of letters that are, or are not, in set.
func axesIn(letters, set string, in bool) []int {
	var out []int
	for i, c := range letters {
		if strings.ContainsRune(set, c) == in {
			out = append(out, i)
		}
	}
	return slices.Clip(out)
}
