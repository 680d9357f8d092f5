package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// parsePattern reads a pattern: a text, or a regular expression.
func parsePattern(b json.RawMessage) (literal string, expression *regexp.Regexp, err error) {
	var p struct{ String, Regex *string }
	if err := json.Unmarshal(b, &p); err != nil {
		return "", nil, fmt.Errorf("pattern: %w", err)
	}
	switch {
	case p.String != nil && *p.String != "":
		return *p.String, nil, nil
	case p.Regex != nil:
		// The white space and the words of Go's expressions are ASCII, others' are Unicode.
		if strings.Contains(*p.Regex, `\s`) || strings.Contains(*p.Regex, `\w`) || strings.Contains(*p.Regex, `\d`) || strings.Contains(*p.Regex, `\b`) || strings.Contains(*p.Regex, `\S`) || strings.Contains(*p.Regex, `\W`) {
			return "", nil, fmt.Errorf("pattern: got %s, and classes such as \\s mean something else in Go", safeio.Quote(*p.Regex))
		}
		expression, err = regexp.Compile(*p.Regex)
		return "", expression, err
	}
	return "", nil, errors.New("pattern: got neither String nor Regex")
}

// matches returns a function that finds the first match in t from character i on.
func matches(literal string, expression *regexp.Regexp) func(t text, i int) (from, to int, ok bool) {
	if expression == nil {
		content := []rune(literal)
		return func(t text, i int) (from, to int, ok bool) {
			for ; i+len(content) <= len(t); i++ {
				if startsWith(t[i:], content) {
					return i, i + len(content), true
				}
			}
			return 0, 0, false
		}
	}
	return func(t text, i int) (from, to int, ok bool) {
		s := t[i:].String()
		at := expression.FindStringIndex(s)
		if at == nil {
			return 0, 0, false
		}
		from = i + utf8.RuneCountInString(s[:at[0]])
		return from, from + utf8.RuneCountInString(s[at[0]:at[1]]), true
	}
}

// replaceExpression replaces matches of a regular expression.
func replaceExpression(expression *regexp.Regexp, with []rune) normalizer {
	return func(t text) text {
		var out text
		s := t.String()
		at, char := 0, 0 // bytes of s and characters of t that are done
		for _, m := range expression.FindAllStringIndex(s, -1) {
			from := char + utf8.RuneCountInString(s[at:m[0]])
			to := from + utf8.RuneCountInString(s[m[0]:m[1]])
			out = append(out, t[char:from]...)
			if to > from {
				for _, r := range with {
					c := t[to-1]
					c.r = r
					out = append(out, c)
				}
			}
			at, char = m[1], to
		}
		return append(out, t[char:]...)
	}
}
