package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// Regular expressions as Oniguruma, which the package tokenizers uses, reads them: its
// Unicode classes, lookahead, and the first of several alternatives that matches, which
// Go's package regexp has not or has with other characters. What is not supported is an
// error by name.
//
// A search is backtracking that remembers the states that failed, so that its time is at
// most the size of the expression times that of the text, whatever a file says.

const (
	maxProgram = 4096 // instructions
	maxRepeat  = 256  // in {n,m}
	maxGroups  = 64   // within one another
)

// expression is a compiled regular expression.
type expression struct {
	code  []instruction
	marks int // number of instructions of kind split
}

type opcode uint8

const (
	opChar   opcode = iota // a character of class
	opSplit                // go on at x, or if that fails at y
	opJump                 // to x
	opAhead                // the next character is one of class, or with not: there is none such
	opStart                // start of a line
	opEnd                  // end of a line
	opAccept               // a match
)

type instruction struct {
	op    opcode
	x, y  int
	mark  int // of a split
	class *class
	not   bool
}

// class is a set of characters.
type class struct {
	not   bool
	sets  []*set
	ends  []rune // of ranges: first and last character in turn
	inner []*class
}

func (c *class) has(r rune) bool {
	in := false
	for i := 0; i < len(c.ends) && !in; i += 2 {
		in = r >= c.ends[i] && r <= c.ends[i+1]
	}
	for i := 0; i < len(c.sets) && !in; i++ {
		in = c.sets[i].has(r)
	}
	for i := 0; i < len(c.inner) && !in; i++ {
		in = c.inner[i].has(r)
	}
	return in != c.not
}

// in searches in t.
func (e *expression) in(t text) func(i int) (from, to int, ok bool) {
	failed := make([]uint64, ((len(t)+1)*e.marks+63)/64) // states: a split at a place
	type state struct{ pc, at int }
	var stack []state
	match := func(start int) (int, bool) {
		stack = append(stack[:0], state{0, start})
		for len(stack) > 0 {
			s := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
		path:
			for {
				in := &e.code[s.pc]
				switch in.op {
				case opAccept:
					return s.at, true
				case opJump:
					s.pc = in.x
					continue
				case opSplit:
					k := s.at*e.marks + in.mark
					if failed[k/64]>>(k%64)&1 != 0 {
						break path
					}
					failed[k/64] |= 1 << (k % 64)
					stack = append(stack, state{in.y, s.at})
					s.pc = in.x
					continue
				case opChar:
					if s.at == len(t) || !in.class.has(t[s.at].r) {
						break path
					}
					s.at++
				case opAhead:
					if (s.at < len(t) && in.class.has(t[s.at].r)) == in.not {
						break path
					}
				case opStart:
					if s.at > 0 && t[s.at-1].r != '\n' {
						break path
					}
				case opEnd:
					if s.at < len(t) && t[s.at].r != '\n' {
						break path
					}
				}
				s.pc++
			}
		}
		return 0, false
	}
	return func(i int) (from, to int, ok bool) {
		for ; i <= len(t); i++ {
			if end, ok := match(i); ok {
				// The states of the match itself did not fail. Those that a later search
				// can come to lie at its end.
				for k := end * e.marks; k < (end+1)*e.marks; k++ {
					failed[k/64] &^= 1 << (k % 64)
				}
				return i, end, true
			}
		}
		return 0, 0, false
	}
}

// compile reads a regular expression.
func compile(s string) (*expression, error) {
	p := &parser{in: []rune(s), e: &expression{}}
	if err := p.alternatives(0); err != nil {
		return nil, err
	}
	if p.at < len(p.in) {
		return nil, errors.New("it has a ) without a (")
	}
	p.emit(instruction{op: opAccept})
	if len(p.e.code) > maxProgram {
		return nil, fmt.Errorf("it is larger than %d instructions", maxProgram)
	}
	for i := range p.e.code {
		if p.e.code[i].op == opSplit {
			p.e.code[i].mark = p.e.marks
			p.e.marks++
		}
	}
	return p.e, nil
}

type parser struct {
	in   []rune
	at   int
	fold bool // (?i)
	deep int  // […] around
	last rune // a letter of a literal under fold, lower case
	e    *expression
}

func (p *parser) emit(i instruction) int {
	p.e.code = append(p.e.code, i)
	return len(p.e.code) - 1
}

// peek reports whether the rest starts with s.
func (p *parser) peek(s string) bool {
	return strings.HasPrefix(string(p.in[p.at:min(p.at+len(s), len(p.in))]), s)
}

// take is peek that goes past s.
func (p *parser) take(s string) bool {
	ok := p.peek(s)
	if ok {
		p.at += len([]rune(s))
	}
	return ok
}

func unsupportedSyntax(s string) error { return fmt.Errorf("%s is not supported", s) }

// alternatives reads a|b|c up to a ) or the end.
func (p *parser) alternatives(depth int) error {
	if depth > maxGroups {
		return fmt.Errorf("groups are nested more than %d deep", maxGroups)
	}
	fold := p.fold
	defer func() { p.fold = fold }() // (?i) ends with its group
	start := len(p.e.code)
	var ends []int
	for {
		if err := p.sequence(depth); err != nil {
			return err
		}
		if !p.take("|") {
			break
		}
		p.insert(start, instruction{op: opSplit, x: start + 1, y: len(p.e.code) + 2})
		ends = append(ends, p.emit(instruction{op: opJump}))
		start = len(p.e.code)
	}
	for _, i := range ends {
		p.e.code[i].x = len(p.e.code)
	}
	return nil
}

// insert puts an instruction before the one at, which moves with all after it.
func (p *parser) insert(at int, i instruction) {
	p.e.code = slices.Insert(p.e.code, at, i)
	for k := at + 1; k < len(p.e.code); k++ {
		c := &p.e.code[k]
		if c.op == opJump || c.op == opSplit {
			if c.x >= at {
				c.x++
			}
			if c.y >= at && c.op == opSplit {
				c.y++
			}
		}
	}
}

// sequence reads what is matched one after the other.
func (p *parser) sequence(depth int) error {
	p.last = 0
	for p.at < len(p.in) && !p.peek("|") && !p.peek(")") {
		if len(p.e.code) > maxProgram {
			return fmt.Errorf("it is larger than %d instructions", maxProgram)
		}
		start := len(p.e.code)
		if err := p.atom(depth); err != nil {
			return err
		}
		if err := p.repeats(start); err != nil {
			return err
		}
	}
	p.last = 0
	return nil
}

// repeats reads the quantifiers of the atom whose code begins at start.
func (p *parser) repeats(start int) error {
	for {
		low, high := 0, -1
		switch {
		case p.take("*"):
		case p.take("+"):
			low = 1
		case p.take("?"):
			high = 1
		default:
			if !p.peek("{") {
				return nil
			}
			ok, err := p.bounds(&low, &high)
			if !ok || err != nil {
				return err
			}
		}
		p.last = 0
		lazy := p.take("?")
		if p.peek("+") {
			return unsupportedSyntax("a possessive or repeated quantifier")
		}
		body := slices.Clone(p.e.code[start:])
		if len(body)*max(low, high, 1) > maxProgram {
			return fmt.Errorf("it is larger than %d instructions", maxProgram)
		}
		p.e.code = p.e.code[:start]
		add := func() {
			by := len(p.e.code) - start
			for _, c := range body {
				if c.op == opJump || c.op == opSplit {
					c.x, c.y = c.x+by, c.y+by
				}
				p.emit(c)
			}
		}
		fork := func() int { return p.emit(instruction{op: opSplit}) }
		set := func(i, in, out int) {
			if lazy {
				in, out = out, in
			}
			p.e.code[i].x, p.e.code[i].y = in, out
		}
		for range low {
			add()
		}
		if high < 0 {
			i := fork()
			add()
			p.emit(instruction{op: opJump, x: i})
			set(i, i+1, len(p.e.code))
			continue
		}
		var forks []int
		for range high - low {
			forks = append(forks, fork())
			add()
		}
		for _, i := range forks {
			set(i, i+1, len(p.e.code))
		}
	}
}

// bounds reads {n}, {n,}, {,m} or {n,m}; anything else is a literal {.
func (p *parser) bounds(low, high *int) (ok bool, err error) {
	end := slices.Index(p.in[p.at:], '}')
	if end < 0 {
		return false, unsupportedSyntax("a { without bounds")
	}
	from, to, both := strings.Cut(string(p.in[p.at+1:p.at+end]), ",")
	*low, *high = 0, -1
	if from != "" {
		if *low, err = strconv.Atoi(from); err != nil {
			return false, unsupportedSyntax("a { without bounds")
		}
	}
	switch {
	case !both:
		*high = *low
	case to != "":
		if *high, err = strconv.Atoi(to); err != nil {
			return false, unsupportedSyntax("a { without bounds")
		}
	}
	if from == "" && to == "" || *low < 0 || *low > maxRepeat || *high > maxRepeat || *high >= 0 && *high < *low {
		return false, fmt.Errorf("got {%s}, want bounds up to %d", safeio.Text(string(p.in[p.at+1:p.at+end])), maxRepeat)
	}
	p.at += end + 1
	return true, nil
}

// atom reads a character, a class, a group or an assertion.
func (p *parser) atom(depth int) error {
	r := p.in[p.at]
	switch r {
	case '(':
		p.last = 0
		p.at++
		return p.group(depth)
	case '[':
		p.last = 0
		c, err := p.set(0)
		p.emit(instruction{op: opChar, class: c})
		return err
	case '.':
		p.at++
		p.emit(instruction{op: opChar, class: &class{not: true, ends: []rune{'\n', '\n'}}})
		return nil
	case '^', '$':
		p.at++
		p.emit(instruction{op: map[rune]opcode{'^': opStart, '$': opEnd}[r]})
		return nil
	case '*', '+', '?':
		return fmt.Errorf("%c repeats nothing", r)
	}
	c, one, err := p.escape()
	if err != nil {
		return err
	}
	if c == nil {
		if c, err = p.folded(one); err != nil {
			return err
		}
	} else {
		p.last = 0
	}
	p.emit(instruction{op: opChar, class: c})
	return nil
}

// ligatures are letters that Oniguruma compares, without regard to case, with one
// character, such as ß and ﬁ.
var ligatures = []string{"ss", "st", "ff", "fi", "fl"}

// folded is the class of a literal character.
func (p *parser) folded(r rune) (*class, error) {
	c := &class{}
	if err := p.add(c, r, r); err != nil {
		return nil, err
	}
	if p.fold {
		low := unicode.ToLower(r)
		if slices.Contains(ligatures, string([]rune{p.last, low})) {
			return nil, unsupportedSyntax(fmt.Sprintf("%c%c after (?i)", p.last, low))
		}
		p.last = low
	}
	return c, nil
}

// add adds a range to c, under (?i) with the letters that differ in case.
func (p *parser) add(c *class, from, to rune) error {
	c.ends = append(c.ends, from, to)
	if !p.fold {
		return nil
	}
	if to > unicode.MaxASCII {
		return unsupportedSyntax("a character that is not ASCII after (?i)")
	}
	for r := from; r <= to; r++ {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			c.ends = append(c.ends, f, f)
		}
	}
	return nil
}

// group reads the rest of (…).
func (p *parser) group(depth int) error {
	fold := p.fold
	switch {
	case p.take("?:"):
	case p.take("?i:"):
		p.fold = true
	case p.take("?-i:"):
		p.fold = false
	case p.take("?i)"):
		p.fold = true // up to the end of the group around it
		return nil
	case p.peek("?=") || p.peek("?!"):
		return p.ahead()
	case p.peek("?"):
		return unsupportedSyntax("(" + string(p.in[p.at:min(p.at+3, len(p.in))]))
	}
	if err := p.alternatives(depth + 1); err != nil {
		return err
	}
	p.fold = fold
	if !p.take(")") {
		return errors.New("it has a ( without a )")
	}
	return nil
}

// ahead reads the rest of (?=c) or (?!c), where c is one character or class.
func (p *parser) ahead() error {
	not := p.peek("?!")
	p.at += 2
	inner := &parser{in: p.in, at: p.at, fold: p.fold, e: &expression{}}
	if inner.at < len(p.in) && !inner.peek("(") && !inner.peek(")") && !inner.peek("|") {
		if err := inner.atom(0); err != nil {
			return err
		}
	}
	if len(inner.e.code) != 1 || inner.e.code[0].op != opChar || !inner.take(")") {
		return unsupportedSyntax("lookahead to more than one character")
	}
	p.at = inner.at
	p.emit(instruction{op: opAhead, class: inner.e.code[0].class, not: not})
	return nil
}

// set reads […].
func (p *parser) set(depth int) (*class, error) {
	if depth > maxGroups {
		return nil, fmt.Errorf("classes are nested more than %d deep", maxGroups)
	}
	p.at++
	p.deep++
	defer func() { p.deep-- }()
	c := &class{not: p.take("^")}
	for first := true; ; first = false {
		switch {
		case p.at >= len(p.in):
			return nil, errors.New("it has a [ without a ]")
		case p.peek("[:"):
			return nil, unsupportedSyntax("a class such as [:alpha:]")
		case p.peek("&&"):
			return nil, unsupportedSyntax("&& in a class")
		case p.peek("["):
			inner, err := p.set(depth + 1)
			if err != nil {
				return nil, err
			}
			c.inner = append(c.inner, inner)
			continue
		case p.peek("]"):
			if first {
				return nil, unsupportedSyntax("a class that is empty or starts with ]")
			}
			p.at++
			return c, nil
		}
		named, from, err := p.escape()
		if err != nil {
			return nil, err
		}
		if named != nil {
			c.inner = append(c.inner, named)
			continue
		}
		to := from
		if p.peek("-") && p.at+1 < len(p.in) && p.in[p.at+1] != ']' {
			p.at++
			if p.peek("[") {
				return nil, unsupportedSyntax("a range to a class")
			}
			if named, to, err = p.escape(); err != nil {
				return nil, err
			}
			if named != nil || to < from {
				return nil, fmt.Errorf("got a range %c-%c, want one that ascends", from, to)
			}
		}
		if err := p.add(c, from, to); err != nil {
			return nil, err
		}
	}
}

// escape reads a character, which \ may precede, or a class that has a name.
func (p *parser) escape() (*class, rune, error) {
	r := p.in[p.at]
	p.at++
	if r != '\\' {
		return nil, r, nil
	}
	if p.at == len(p.in) {
		return nil, 0, errors.New("it ends with a \\")
	}
	r = p.in[p.at]
	p.at++
	if i := strings.IndexRune("rntfvae", r); i >= 0 {
		return nil, []rune("\r\n\t\f\v\a\x1b")[i], nil
	}
	switch {
	case strings.ContainsRune("sdwSDW", r):
		name := string(unicode.ToLower(r))
		if name == "w" && p.deep > 0 {
			name = "[w]" // which differs in Oniguruma
		}
		return &class{not: unicode.IsUpper(r), sets: []*set{category(name)}}, 0, nil
	case r == 'p' || r == 'P':
		return p.property(r == 'P')
	case r == 'x' || r == 'u':
		return p.number(r)
	case r > unicode.MaxASCII || unicode.IsLetter(r) || unicode.IsDigit(r):
		return nil, 0, unsupportedSyntax("\\" + string(r))
	}
	return nil, r, nil
}

// property reads the rest of \p{L}.
func (p *parser) property(not bool) (*class, rune, error) {
	end := slices.Index(p.in[p.at:], '}')
	if !p.peek("{") || end < 0 {
		return nil, 0, unsupportedSyntax("\\p without {…}")
	}
	name := string(p.in[p.at+1 : p.at+end])
	p.at += end + 1
	if rest, ok := strings.CutPrefix(name, "^"); ok {
		name, not = rest, !not
	}
	s := category(name)
	if s == nil || name == "[w]" || len(name) == 1 && unicode.IsLower(rune(name[0])) {
		return nil, 0, unsupportedSyntax("\\p{" + safeio.Text(name) + "}")
	}
	if p.fold && len(name) > 1 && name[0] == 'L' {
		return nil, 0, unsupportedSyntax("\\p{" + name + "} after (?i)")
	}
	return &class{not: not, sets: []*set{s}}, 0, nil
}

// number reads the rest of \x41, \x{41} or \u0041.
func (p *parser) number(kind rune) (*class, rune, error) {
	digits := 2
	if kind == 'u' {
		digits = 4
	}
	text := string(p.in[p.at:min(p.at+digits, len(p.in))])
	if end := slices.Index(p.in[p.at:], '}'); kind == 'x' && p.peek("{") && end > 0 {
		text = string(p.in[p.at+1 : p.at+end])
		p.at += end + 1
	} else {
		p.at += len([]rune(text))
	}
	n, err := strconv.ParseUint(text, 16, 31)
	if err != nil || n > unicode.MaxRune || kind == 'x' && n > unicode.MaxASCII && digits == len(text) {
		return nil, 0, unsupportedSyntax("\\" + string(kind) + safeio.Text(text))
	}
	return nil, rune(n), nil
}
