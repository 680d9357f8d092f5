// Package suggest, without compatibility promise, writes the errors of unknown
// names: the nearest known name, then all of them. Layers, losses, metrics,
// optimizers and policies share it.
package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Unknown returns the error of a name that is not among those of a kind:
//
//	unknown loss "sparse_crossentropy"; did you mean "sparse_categorical_crossentropy"? have binary_crossentropy, …
func Unknown(kind, name string, have []string) error {
	return fmt.Errorf("unknown %s %q; %shave %s", kind, name, Meant(name, have), strings.Join(have, ", "))
}

// Meant returns the question whether one of have was meant, with a space
// behind it, or "" when none is near.
func Meant(name string, have []string) string {
	near := Nearest(name, have)
	if len(near) == 0 {
		return ""
	}
	quoted := make([]string, len(near))
	for i, n := range near {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	last := len(quoted) - 1
	if last > 0 {
		quoted = []string{strings.Join(quoted[:last], ", "), quoted[last]}
	}
	return "did you mean " + strings.Join(quoted, " or ") + "? "
}

const (
	enough = 0.6  // likeness from which a name is suggested
	about  = 0.07 // difference up to which names are equally near
	most   = 3    // names that are suggested
)

// Nearest returns the names of have that are most like name, the nearest first:
// one, or up to three that contain name. Cases and separators do not count; of
// aliases the one that is written like name is taken.
func Nearest(name string, have []string) []string {
	type match struct {
		name, plain string
		score       float64
	}
	of := plain(name)
	if of == "" {
		return nil
	}
	var all []match
	for _, h := range have {
		p := plain(h)
		if score := likeness(of, p); score >= enough {
			all = append(all, match{h, p, score})
		}
	}
	slices.SortStableFunc(all, func(a, b match) int {
		switch alike := written(a.name) == written(name); {
		case a.score != b.score:
			return cmp.Compare(b.score, a.score)
		case alike == (written(b.name) == written(name)):
			return 0
		case alike:
			return -1
		}
		return 1
	})
	all = slices.CompactFunc(all, func(a, b match) bool { return a.plain == b.plain }) // a name and its alias
	var near []string
	for i, m := range all {
		if i > 0 && (i == most || all[0].plain == of || !strings.Contains(m.plain, of) || m.score < all[0].score-about) {
			break
		}
		near = append(near, m.name)
	}
	return near
}

// plain is a name without cases and separators.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// written is the way in which a name is written: CamelCase, snake_case or
// neither.
func written(name string) [2]bool {
	return [2]bool{name != strings.ToLower(name), strings.Contains(name, "_")}
}

// likeness is 1 for equal names: of the longest common subsequence, the share
// of name counts three times the share of have, as parts of long names are left
// out more often than added.
func likeness(name, have string) float64 {
	if name == "" || have == "" {
		return 0
	}
	a, b := []rune(name), []rune(have)
	n := float64(common(a, b))
	return 0.75*n/float64(len(a)) + 0.25*n/float64(len(b))
}

// common is the length of the longest common subsequence.
func common(a, b []rune) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}
