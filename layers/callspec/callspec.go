// Package callspec, without compatibility promise, reads the strings by which activations, initializers,
// regularizers and constraints are chosen: a Keras name, alone or with
// arguments as in a Python call, "random_normal(stddev=0.02, seed=7)".
//
// [Parse] reads a string into a [Spec], Spec.Bind hands its arguments to the
// parameters of whatever it names, and a [Table] finds that by name.
//
// Rules:
//   - Names are in snake_case; Keras's class names mean the same
//     ("GlorotUniform" is "glorot_uniform").
//   - Values are numbers, True, False, true, false, None, strings, quoted or
//     bare, and lists of these, "[0, 1]" or "(0, 1)".
//   - Positional arguments come before named ones.
package callspec

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/suggest"
)

// Spec is a name with arguments.
type Spec struct {
	Name string // in snake_case
	Args []Arg  // positional ones first
}

// Arg is one argument.
type Arg struct {
	Name  string // "" for a positional argument
	Value any    // nil (None), bool, int64, float64, string, or []any of these
}

var (
	snake1 = regexp.MustCompile(`(.)([A-Z][a-z]+)`)
	snake2 = regexp.MustCompile(`([a-z])([A-Z])`)
)

// SnakeCase turns a class name into snake_case as Keras does:
// "MinMaxNorm" into "min_max_norm", "L1L2" into "l1l2".
func SnakeCase(class string) string {
	s := snake1.ReplaceAllString(class, "${1}_${2}")
	return strings.ToLower(snake2.ReplaceAllString(s, "${1}_${2}"))
}

// String is a text that Parse reads as s.
func (s Spec) String() string {
	if len(s.Args) == 0 {
		return s.Name
	}
	parts := make([]string, len(s.Args))
	for i, a := range s.Args {
		parts[i] = format(a.Value)
		if a.Name != "" {
			parts[i] = a.Name + "=" + parts[i]
		}
	}
	return s.Name + "(" + strings.Join(parts, ", ") + ")"
}

// format writes a value as Python does.
func format(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	case string:
		if strings.Contains(v, `"`) {
			return "'" + v + "'"
		}
		return `"` + v + `"`
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = format(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// Parse reads a spec.
func Parse(text string) (Spec, error) {
	p := parser{text: text}
	s, err := p.spec()
	if err != nil {
		return Spec{}, fmt.Errorf("%q cannot be read: %w", text, err)
	}
	return s, nil
}

type parser struct {
	text string
	at   int
}

func (p *parser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// next reports whether the next character is c, and goes past it if so.
func (p *parser) next(c byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// wants is the error for anything but what is wanted at this place.
func (p *parser) wants(what string) error {
	p.space()
	if p.at == len(p.text) {
		return fmt.Errorf("got its end, want %s", what)
	}
	return fmt.Errorf("got %q at byte %d, want %s", p.text[p.at:], p.at, what)
}

func (p *parser) spec() (s Spec, err error) {
	name, ok := p.word()
	if !ok || !identifier(name) {
		p.at -= len(name)
		return s, p.wants("a name")
	}
	s.Name = SnakeCase(name)
	if p.next('(') {
		for !p.next(')') {
			if len(s.Args) > 0 && !p.next(',') {
				return s, p.wants(`"," or ")"`)
			}
			if len(s.Args) > 0 && p.next(')') {
				break // Python allows a comma at the end
			}
			a, err := p.arg()
			if err != nil {
				return s, err
			}
			switch same := func(b Arg) bool { return b.Name == a.Name }; {
			case a.Name == "" && len(s.Args) > 0 && s.Args[len(s.Args)-1].Name != "":
				return s, fmt.Errorf("positional argument %s follows a named one", format(a.Value))
			case a.Name != "" && slices.ContainsFunc(s.Args, same):
				return s, fmt.Errorf("argument %s is given twice", a.Name)
			}
			s.Args = append(s.Args, a)
		}
	}
	p.space()
	if p.at != len(p.text) {
		return s, p.wants("its end")
	}
	return s, nil
}

func (p *parser) arg() (Arg, error) {
	from := p.at
	if name, ok := p.word(); ok && identifier(name) && p.next('=') {
		v, err := p.value(true)
		return Arg{Name: name, Value: v}, err
	}
	p.at = from
	v, err := p.value(true)
	return Arg{Value: v}, err
}

// word reads up to a character with a meaning of its own.
func (p *parser) word() (string, bool) {
	p.space()
	n := strings.IndexAny(p.text[p.at:], " \t\r\n()[]=,'\"")
	if n < 0 {
		n = len(p.text) - p.at
	}
	w := p.text[p.at : p.at+n]
	p.at += n
	return w, n > 0
}

func identifier(w string) bool {
	for i, c := range []byte(w) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return w != ""
}

func (p *parser) value(lists bool) (any, error) {
	p.space()
	for _, quote := range []byte(`"'`) {
		if p.next(quote) {
			n := strings.IndexByte(p.text[p.at:], quote)
			if n < 0 {
				p.at = len(p.text)
				return nil, p.wants(fmt.Sprintf("a closing %c", quote))
			}
			s := p.text[p.at : p.at+n]
			p.at += n + 1
			return s, nil
		}
	}
	if lists {
		switch {
		case p.next('['):
			return p.list(']')
		case p.next('('):
			return p.list(')')
		}
	}
	w, ok := p.word()
	if !ok {
		return nil, p.wants("a value")
	}
	switch w {
	case "None":
		return nil, nil
	case "True", "true":
		return true, nil
	case "False", "false":
		return false, nil
	}
	if identifier(w) {
		return w, nil
	}
	if i, err := strconv.ParseInt(w, 10, 64); err == nil {
		return i, nil
	}
	if f, err := strconv.ParseFloat(w, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
		return f, nil
	}
	p.at -= len(w)
	return nil, p.wants("a finite number, a bool, None, a string or a list")
}

func (p *parser) list(end byte) (any, error) {
	list := []any{}
	for !p.next(end) {
		if len(list) > 0 && !p.next(',') {
			return nil, p.wants(fmt.Sprintf(`"," or "%c"`, end))
		}
		if len(list) > 0 && p.next(end) {
			break
		}
		v, err := p.value(false)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// Table finds things of one kind by name.
type Table[T any] struct {
	Kind string // what they are called in errors: "activation"
	Make map[string]func(Spec) (T, error)
}

// Names lists what Get knows, sorted.
func (t Table[T]) Names() []string { return slices.Sorted(maps.Keys(t.Make)) }

// Get makes what text names, with the arguments in it.
func (t Table[T]) Get(text string) (T, error) {
	var none T
	s, err := Parse(text)
	if err != nil {
		return none, fmt.Errorf("%s %w", t.Kind, err)
	}
	f := t.Make[s.Name]
	if f == nil {
		return none, suggest.Unknown(t.Kind, s.Name, t.Names())
	}
	made, err := f(s)
	if err != nil {
		return none, err
	}
	return made, nil
}
