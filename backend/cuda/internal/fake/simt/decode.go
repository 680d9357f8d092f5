package simt

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Kernel is a kernel that can be run.
type Kernel struct {
	Name       string
	Parameters int // each of 8 bytes, or fewer

	module     *Module
	code       []instruction
	registers  int // rows of a warp
	predicates int
	constants  []constant
	early      []int32 // registers that may be read before they are written
	local      int     // bytes of a thread
	shared     layout
}

// Limits of what a kernel decodes to.
const (
	maxInstructions = 1 << 20
	maxRegisters    = 1 << 18
	maxDepth        = 8 // of calls
)

// Kernel decodes a kernel, once.
func (m *Module) Kernel(name string) (*Kernel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.kernels[name]; k != nil {
		return k, nil
	}
	f := m.functions[name]
	if f == nil || !f.entry {
		return nil, fmt.Errorf("simt: no kernel %s in a module of %v", name, m.Kernels())
	}
	b := &builder{m: m, k: &Kernel{Name: name, Parameters: len(f.params), module: m}, numbers: map[constant]int32{}, places: map[string]uint64{}}
	b.constant(constant{0, -1})
	params := map[string]int32{}
	for i, p := range f.params {
		params[p.name] = b.constant(constant{parameter: i})
	}
	if err := b.function(f, params, none); err != nil {
		return nil, fmt.Errorf("simt: %s: %w", name, err)
	}
	b.k.code = b.code
	b.k.shared.granule = b.granule()
	b.k.allocate(b.registers)
	m.kernels[name] = b.k
	return b.k, nil
}

// builder decodes one kernel. Functions that it calls are written into it.
type builder struct {
	m         *Module
	k         *Kernel
	code      []instruction
	registers int
	numbers   map[constant]int32
	places    map[string]uint64 // of shared variables, by function and name
	depth     int

	// Of the function at hand:
	f      *function
	params map[string]int32 // its parameters: registers, or constants
	result int32
	scopes []*scope
	labels map[string]int32
	jumps  []jump
	out    []int32 // branches to its end
}

type jump struct {
	at    int
	label string
	line  int
}

// register is what a name stands for.
type register struct {
	number int32
	bytes  int // 0: a predicate
}

// scope is a block: names declared in it hide others.
type scope struct {
	names  map[string]register
	ranges []span
	vars   map[string]variable
	params map[string]int32 // .param of a call
}

// span is a declaration of %r<5>.
type span struct {
	prefix string
	count  int
	bytes  int
}

// at is an error with its line.
func at(line int, format string, v ...any) error {
	return fmt.Errorf("line %d: %w", line, fmt.Errorf(format, v...))
}

func newScope() *scope {
	return &scope{names: map[string]register{}, vars: map[string]variable{}, params: map[string]int32{}}
}

// constant is the operand of a constant.
func (b *builder) constant(c constant) int32 {
	n, ok := b.numbers[c]
	if !ok {
		n = ^int32(len(b.k.constants))
		b.k.constants = append(b.k.constants, c)
		b.numbers[c] = n
	}
	return n
}

func (b *builder) newRegister() int32 {
	b.registers++
	return int32(b.registers - 1)
}

// function decodes a function whose parameters lie in registers or constants.
func (b *builder) function(f *function, params map[string]int32, result int32) error {
	if b.depth++; b.depth > maxDepth {
		return fmt.Errorf("calls of %s are nested deeper than %d", f.name, maxDepth)
	}
	outer := *b
	b.f, b.params, b.result = f, params, result
	b.scopes, b.labels, b.jumps, b.out = []*scope{newScope()}, map[string]int32{}, nil, nil
	for _, s := range f.body {
		if err := b.statement(s); err != nil {
			return err
		}
		if len(b.code) > maxInstructions || b.registers > maxRegisters {
			return at(s.line, "more than %d instructions or %d registers", maxInstructions, maxRegisters)
		}
	}
	for _, j := range b.jumps {
		to, ok := b.labels[j.label]
		if !ok {
			return at(j.line, "no label %s", j.label)
		}
		b.code[j.at].target = to
	}
	for _, i := range b.out {
		b.code[i].target = int32(len(b.code))
	}
	if f.entry {
		last := 0
		if n := len(f.body); n > 0 {
			last = f.body[n-1].line
		}
		end := b.blank(last, "ret")
		end.kind = exits
		b.add(end)
	}
	b.f, b.params, b.result, b.scopes, b.labels, b.jumps, b.out = outer.f, outer.params, outer.result, outer.scopes, outer.labels, outer.jumps, outer.out
	b.depth--
	return nil
}

func (b *builder) add(in instruction) { b.code = append(b.code, in) }

// blank is an instruction without operands.
func (b *builder) blank(line int, text string) instruction {
	zero := b.constant(constant{0, -1})
	return instruction{line: int32(line), text: text, guard: none, d: none, a: zero, b: zero, c: zero, p: none, q: none, r: none}
}

var (
	spanPattern  = regexp.MustCompile(`^([\w$%]+)<(\d+)>$`)
	guardPattern = regexp.MustCompile(`^@(!?)([\w$%]+) (.*)$`)
)

// statement decodes one statement of a body.
func (b *builder) statement(s statement) error {
	switch {
	case s.text == "{":
		b.scopes = append(b.scopes, newScope())
	case s.text == "}":
		if len(b.scopes) == 1 {
			return at(s.line, "a brace too many")
		}
		b.scopes = b.scopes[:len(b.scopes)-1]
	case strings.HasSuffix(s.text, ":"):
		b.labels[strings.TrimSuffix(s.text, ":")] = int32(len(b.code))
	case strings.HasPrefix(s.text, ".reg "):
		return b.declareRegisters(s)
	case strings.HasPrefix(s.text, ".param "):
		d := paramPattern.FindStringSubmatch(s.text)
		if d == nil {
			return at(s.line, "got %q, want a parameter", s.text)
		}
		b.scope().params[d[2]] = b.newRegister()
	case strings.HasPrefix(s.text, ".pragma "), strings.HasPrefix(s.text, ".loc "):
	case strings.HasPrefix(s.text, "."):
		name, v, _, err := parseVariable(s)
		if err != nil {
			return err
		}
		switch v.space {
		case shared:
			v.offset = b.k.shared.place(v)
		case local:
			b.k.local = roundUp(b.k.local, v.align)
			v.offset = uint64(b.k.local)
			b.k.local += v.bytes
		default:
			return at(s.line, "%q in a function", s.text)
		}
		b.scope().vars[name] = v
	default:
		in := b.blank(s.line, s.text)
		text := s.text
		if g := guardPattern.FindStringSubmatch(text); g != nil {
			r, ok := b.lookup(g[2])
			if !ok || r.bytes != 0 {
				return at(s.line, "%s is no predicate: %s", g[2], s.text)
			}
			in.guard, in.not, text = r.number, g[1] != "", g[3]
		}
		name, rest, _ := strings.Cut(text, " ")
		if err := b.instruction(in, name, split(rest)); err != nil {
			return at(s.line, "%s: %w", s.text, err)
		}
	}
	return nil
}

func (b *builder) scope() *scope { return b.scopes[len(b.scopes)-1] }

func (b *builder) declareRegisters(s statement) error {
	t, names, _ := strings.Cut(strings.TrimPrefix(s.text, ".reg ."), " ")
	bytes := sizeOf(t)
	if bytes == 0 && t != "pred" {
		return at(s.line, "registers of type %q", t)
	}
	for _, name := range split(names) {
		if m := spanPattern.FindStringSubmatch(name); m != nil {
			n, err := strconv.Atoi(m[2])
			if err != nil || n > maxRegisters {
				return at(s.line, "%s registers, want at most %d", m[2], maxRegisters)
			}
			b.scope().ranges = append(b.scope().ranges, span{m[1], n, bytes})
		} else {
			b.scope().names[name] = b.makeRegister(bytes)
		}
	}
	return nil
}

func (b *builder) makeRegister(bytes int) register {
	if bytes == 0 {
		b.k.predicates++
		return register{int32(b.k.predicates - 1), 0}
	}
	return register{b.newRegister(), bytes}
}

// lookup finds a register: from the innermost block outwards.
func (b *builder) lookup(name string) (register, bool) {
	digits := len(name)
	for digits > 0 && name[digits-1] >= '0' && name[digits-1] <= '9' {
		digits--
	}
	n, err := strconv.Atoi(name[digits:])
	for i := len(b.scopes) - 1; i >= 0; i-- {
		s := b.scopes[i]
		if r, ok := s.names[name]; ok {
			return r, true
		}
		if err != nil {
			continue
		}
		for _, g := range s.ranges {
			if g.prefix == name[:digits] && n < g.count {
				r := b.makeRegister(g.bytes)
				s.names[name] = r
				return r, true
			}
		}
	}
	return register{}, false
}

// variable finds a variable: of the function or the module.
func (b *builder) variable(name string) (variable, bool) {
	for i := len(b.scopes) - 1; i >= 0; i-- {
		if v, ok := b.scopes[i].vars[name]; ok {
			return v, true
		}
	}
	v, ok := b.m.variables[name]
	if ok && v.space == shared {
		place, known := b.places[name]
		if !known {
			place = b.k.shared.place(v)
			b.places[name] = place
		}
		v.offset = place
	}
	return v, ok
}

// number reads a literal.
func number(s string) (uint64, error) {
	if len(s) > 2 && s[0] == '0' && strings.ContainsRune("fFdD", rune(s[1])) {
		bits := 32
		if s[1]|32 == 'd' {
			bits = 64
		}
		return strconv.ParseUint(s[2:], 16, bits)
	}
	s = strings.TrimSuffix(s, "U")
	if strings.HasPrefix(s, "-") {
		i, err := strconv.ParseInt(s, 0, 64)
		return uint64(i), err
	}
	return strconv.ParseUint(s, 0, 64)
}

// operand is a register, a number or the address of a variable.
func (b *builder) operand(s string) (int32, error) {
	if r, ok := b.lookup(s); ok {
		if r.bytes == 0 {
			return 0, fmt.Errorf("%s is a predicate", s)
		}
		return r.number, nil
	}
	if v, ok := b.variable(s); ok {
		return b.constant(constant{v.offset, -1}), nil
	}
	u, err := number(s)
	if err != nil {
		return 0, fmt.Errorf("%q is no register, variable or number", s)
	}
	return b.constant(constant{u, -1}), nil
}

// destination is a register that is written.
func (b *builder) destination(s string) (register, error) {
	r, ok := b.lookup(s)
	if !ok || r.bytes == 0 {
		return r, fmt.Errorf("%q is no register", s)
	}
	return r, nil
}

func (b *builder) predicate(s string) (int32, error) {
	r, ok := b.lookup(s)
	if !ok || r.bytes != 0 {
		return 0, fmt.Errorf("%q is no predicate", s)
	}
	return r.number, nil
}

// address reads [register+offset], [variable+offset] or [number].
func (b *builder) address(s string) (base int32, offset uint64, err error) {
	if len(s) < 3 || s[0] != '[' || s[len(s)-1] != ']' {
		return 0, 0, fmt.Errorf("%q is no address", s)
	}
	s = s[1 : len(s)-1]
	if i := strings.LastIndexAny(s, "+"); i > 0 {
		u, err := number(s[i+1:])
		if err != nil {
			return 0, 0, fmt.Errorf("offset of %q: %w", s, err)
		}
		s, offset = s[:i], u
	}
	base, err = b.operand(strings.TrimSpace(s))
	return base, offset, err
}

// elements are the operands in braces, or one without.
func elements(s string) []string {
	if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") {
		return split(s[1 : len(s)-1])
	}
	return []string{s}
}
