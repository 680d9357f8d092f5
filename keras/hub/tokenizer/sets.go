package tokenizer

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// set is a set of characters: edges are the first character of a range and the
// one after its last, in turn.
type set struct {
	ascii [2]uint64
	edges []rune
}

// parseSet reads one of the sets of unicode_tables.go.
func parseSet(text string) *set {
	s := &set{}
	at := rune(0)
	for _, f := range strings.Fields(text) {
		n, err := strconv.ParseInt(f, 36, 32)
		if err != nil {
			panic(err) // of a constant
		}
		at += rune(n)
		s.edges = append(s.edges, at)
	}
	return s.withASCII()
}

// withASCII fills in s.ascii.
func (s *set) withASCII() *set {
	for r := range rune(128) {
		if s.find(r) {
			s.ascii[r/64] |= 1 << (r % 64)
		}
	}
	return s
}

// parseRanges reads ranges, in base 16: first and last character in turn.
func parseRanges(text string) *set {
	s := &set{}
	for i, f := range strings.Fields(text) {
		n, err := strconv.ParseInt(f, 16, 32)
		if err != nil {
			panic(err) // of a constant
		}
		s.edges = append(s.edges, rune(n)+rune(i%2))
	}
	return s
}

// has reports whether r is in the set.
func (s *set) has(r rune) bool {
	if r < 128 {
		return s.ascii[r/64]>>(r%64)&1 != 0
	}
	return s.find(r)
}

func (s *set) find(r rune) bool {
	low, high := 0, len(s.edges)
	for low < high {
		if middle := (low + high) / 2; s.edges[middle] <= r {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low%2 == 1
}

// sets are all of them, parsed when they are first used.
var sets = sync.OnceValue(func() (all struct {
	control, chinese, nonspacing, mark, punctuation, white, letter, number, numeric, wordLike *set

	lower map[rune]rune
}) {
	for _, s := range []struct {
		to   **set
		text string
	}{
		{&all.control, controlSet}, {&all.chinese, chineseSet}, {&all.nonspacing, nonspacingSet}, {&all.mark, markSet},
		{&all.punctuation, punctuationSet}, {&all.white, whiteSet}, {&all.letter, letterSet}, {&all.number, numberSet},
		{&all.numeric, numericSet}, {&all.wordLike, wordLikeSet},
	} {
		*s.to = parseSet(s.text)
	}
	all.lower = map[rune]rune{}
	pairs := []rune(lowerPairs)
	for i := 0; i+1 < len(pairs); i += 2 {
		all.lower[pairs[i]] = pairs[i+1]
	}
	return all
})

// categories are sets that category has parsed, by name.
var categories sync.Map

// category returns the characters of a general category, "Lu" or "L", of a script, or of
// a class "s", "d" or "w"; nil if the name is unknown.
func category(name string) *set {
	if s, ok := categories.Load(name); ok {
		return s.(*set)
	}
	text, ok := categorySets[name]
	s := &set{}
	switch {
	case ok:
		s = parseSet(text)
	case len(name) != 1:
		return nil
	case name == "C": // includes what is not assigned
		return nil
	default: // the union of its parts
		var ranges [][2]rune
		for part := range categorySets {
			if len(part) == 2 && part[:1] == name {
				e := category(part).edges
				for i := 0; i+1 < len(e); i += 2 {
					ranges = append(ranges, [2]rune{e[i], e[i+1]})
				}
			}
		}
		if ranges == nil {
			return nil
		}
		slices.SortFunc(ranges, func(a, b [2]rune) int { return int(a[0] - b[0]) })
		for _, r := range ranges { // which do not overlap
			if n := len(s.edges); n > 0 && s.edges[n-1] == r[0] {
				s.edges[n-1] = r[1]
			} else {
				s.edges = append(s.edges, r[0], r[1])
			}
		}
		s = s.withASCII()
	}
	categories.Store(name, s)
	return s
}

// toLower returns the small letter of r.
func toLower(r rune) rune {
	if r < 128 {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	if s, ok := sets().lower[r]; ok {
		return s
	}
	return unicode.ToLower(r)
}
