package simt

import (
	"fmt"
	"strings"
)

// statement is one statement of PTX: an instruction, a directive, a label
// ("name:"), the head of a function, or one of the braces around a block.
type statement struct {
	text string // blanks are single; without the semicolon
	line int
}

// maxText bounds the PTX that is read: the largest unit of the kernels has 1.8 MB.
const maxText = 64 << 20

// scan splits PTX into statements. Braces of vectors and initializers belong to
// their statement, others are statements of their own.
func scan(text string) ([]statement, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("simt: PTX of %d bytes, want at most %d", len(text), maxText)
	}
	text = strings.TrimRight(text, "\x00")
	var (
		list  []statement
		begin int // of the statement
		line  = 1
		first = 1 // line of the statement
		inner = 0 // braces inside of it
		plain []byte
	)
	head := func() string { return strings.TrimSpace(string(plain)) }
	emit := func(s string) {
		list = append(list, statement{text: strings.Join(strings.Fields(s), " "), line: first})
		plain = plain[:0]
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '/' && i+1 < len(text) && (text[i+1] == '/' || text[i+1] == '*') {
			end := "\n"
			if text[i+1] == '*' {
				end = "*/"
			}
			n := strings.Index(text[i+2:], end)
			if n < 0 {
				n = len(text) - i - 2
			}
			line += strings.Count(text[i:min(len(text), i+2+n)], "\n")
			i += 1 + n
			if end == "*/" {
				i += 2
			}
			plain = append(plain, ' ')
			continue
		}
		switch {
		case c == '\n':
			line++
			plain = append(plain, ' ')
			if len(plain) > 0 && (plain[0] == ' ') && head() == "" {
				plain = plain[:0]
			}
			// Directives of a module end with their line.
			if s := head(); strings.HasPrefix(s, ".version") || strings.HasPrefix(s, ".target") || strings.HasPrefix(s, ".address_size") || strings.HasPrefix(s, ".file") || strings.HasPrefix(s, ".loc ") {
				emit(s)
			}
			continue
		case c == ';' && inner == 0:
			if s := head(); s != "" {
				emit(s)
			}
			continue
		case c == '{' && inner == 0:
			s := head()
			if s == "" || strings.Contains(s, ".entry ") || strings.Contains(s, ".func ") {
				if s != "" {
					emit(s)
				}
				first = line
				emit("{")
				continue
			}
			inner++
		case c == '{':
			inner++
		case c == '}' && inner > 0:
			inner--
		case c == '}':
			if s := head(); s != "" {
				return nil, fmt.Errorf("simt: line %d: %q has no semicolon", first, s)
			}
			first = line
			emit("}")
			continue
		case c == ':' && inner == 0 && isName(head()):
			emit(head() + ":")
			continue
		}
		if len(plain) == 0 {
			if c == ' ' || c == '\t' || c == '\r' {
				continue
			}
			first, begin = line, i
		}
		plain = append(plain, c)
	}
	if s := head(); s != "" {
		return nil, fmt.Errorf("simt: line %d: %q at byte %d has no end", first, s, begin)
	}
	return list, nil
}

// isName reports whether s is an identifier, as labels are.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c|32 >= 'a' && c|32 <= 'z' || c == '_' || c == '$' || c == '%'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// split cuts an instruction into its operands at the commas outside of brackets.
func split(s string) []string {
	var list []string
	depth, begin := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			depth--
		case ',':
			if depth == 0 {
				list = append(list, strings.TrimSpace(s[begin:i]))
				begin = i + 1
			}
		}
	}
	if last := strings.TrimSpace(s[begin:]); last != "" {
		list = append(list, last)
	}
	return list
}
