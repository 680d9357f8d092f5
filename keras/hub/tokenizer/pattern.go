package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// A finder prepares the search of a pattern in a text. The function that it returns finds
// the first match from character i on; calls on one text must have growing i.
type finder func(t text) func(i int) (from, to int, ok bool)

// parsePattern reads a pattern: a text, or a regular expression.
func parsePattern(b json.RawMessage) (finder, error) {
	var p struct{ String, Regex *string }
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	switch {
	case p.String != nil && *p.String != "":
		return literal([]rune(*p.String)), nil
	case p.Regex != nil:
		e, err := compile(*p.Regex)
		if err != nil {
			return nil, fmt.Errorf("pattern: %s: %w", safeio.Quote(*p.Regex), err)
		}
		return e.in, nil
	}
	return nil, errors.New("pattern: got neither String nor Regex")
}

// literal finds a text that is not empty.
func literal(content []rune) finder {
	return func(t text) func(i int) (from, to int, ok bool) {
		return func(i int) (from, to int, ok bool) {
			for ; i+len(content) <= len(t); i++ {
				if startsWith(t[i:], content) {
					return i, i + len(content), true
				}
			}
			return 0, 0, false
		}
	}
}

// members finds characters of a set.
func members(s *set) finder {
	return func(t text) func(i int) (from, to int, ok bool) {
		return func(i int) (from, to int, ok bool) {
			for ; i < len(t); i++ {
				if s.has(t[i].r) {
					return i, i + 1, true
				}
			}
			return 0, 0, false
		}
	}
}

// each calls f with the matches in t, in order. A match of nothing right after another
// match is none.
func (find finder) each(t text, f func(from, to int)) {
	next := find(t)
	last := -1
	for i := 0; i <= len(t); {
		from, to, ok := next(i)
		if !ok {
			return
		}
		if i = to; to == from {
			i++
		}
		if to > from || from != last {
			f(from, to)
		}
		last = to
	}
}

// replaceMatches replaces matches of a pattern that are not empty. What replaces one has the place of its
// last character.
func replaceMatches(find finder, with []rune) normalizer {
	return func(t text) text {
		var out text
		at := 0
		find.each(t, func(from, to int) {
			out = append(out, t[at:from]...)
			at = to
			if from == to {
				return
			}
			for _, r := range with {
				c := t[to-1]
				c.r = r
				out = append(out, c)
			}
		})
		return append(out, t[at:]...)
	}
}

// replaceString is replaceMatches of a string.
func replaceString(find finder, s, with string) string {
	t := textOf(s, 0)
	var out strings.Builder
	at := 0
	find.each(t, func(from, to int) {
		if from < to {
			out.WriteString(t[at:from].String() + with)
			at = to
		}
	})
	return out.String() + t[at:].String()
}
