package asm

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Unit is the files of an instruction set, which are written together.
type Unit struct {
	Header    string            // its name, without extension
	Preface   string            // the text at the start of every file
	Encodings []Definition      // of instructions; the header has those that are used
	Docs      map[string]string // of macros, by name without the numbers at its end
	Variants  bool              // blocks of a name may differ: further macros have the suffixes V2, V3, …
	Files     []*File

	undocumented []string
}

// Definition is a macro written by hand.
type Definition struct {
	Name string
	Text string // the comment and the #define
}

// macro is a #define.
type macro struct {
	name   string
	params []string
	body   []line
	files  map[*File]bool // the files that use it
	local  bool           // it belongs to one file and not to the header
	keep   bool           // it may be an argument of other macros, so it must not be written out
}

// Write returns the contents of the files by name.
func (u *Unit) Write() (map[string]string, error) {
	var blocks []*block
	var walk func(code []*node)
	walk = func(code []*node) {
		for _, n := range code {
			if n.block != nil {
				walk(n.block.code)
				blocks = append(blocks, n.block)
			}
		}
	}
	for _, f := range u.Files {
		if err := f.checkArguments(); err != nil {
			return nil, err
		}
		for _, it := range f.items {
			walk(it.code)
		}
	}
	names, err := order(blocks)
	if err != nil {
		return nil, err
	}
	byName := map[string][]*block{}
	for _, b := range blocks {
		byName[b.name] = append(byName[b.name], b)
	}
	var macros []*macro
	defined := map[string]*macro{} // by name, and by file and name
	for _, name := range names {
		ms, err := u.define(name, byName[name], defined)
		if err != nil {
			return nil, err
		}
		macros = append(macros, ms...)
	}
	if len(u.undocumented) > 0 {
		return nil, fmt.Errorf("asm: no documentation of macros %v", u.undocumented)
	}
	return u.render(macros), nil
}

// order sorts the names of blocks so that inner blocks come before outer ones.
func order(blocks []*block) ([]string, error) {
	inner := map[string]map[string]bool{}
	var all []string
	for _, b := range blocks {
		if inner[b.name] == nil {
			inner[b.name] = map[string]bool{}
			all = append(all, b.name)
		}
		for _, n := range b.code {
			if n.block != nil {
				inner[b.name][n.block.name] = true
			}
		}
	}
	var out []string
	state := map[string]int{}
	var visit func(name string) error
	visit = func(name string) error {
		switch state[name] {
		case 1:
			return fmt.Errorf("asm: block %s is within itself", name)
		case 2:
			return nil
		}
		state[name] = 1
		for _, i := range slices.Sorted(maps.Keys(inner[name])) {
			if err := visit(i); err != nil {
				return err
			}
		}
		state[name] = 2
		out = append(out, name)
		return nil
	}
	for _, name := range all {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// define makes the macros of a name: one for all files, or one for each file if the files use
// different symbols in it.
func (u *Unit) define(name string, blocks []*block, defined map[string]*macro) ([]*macro, error) {
	groups := [][]*block{blocks}
	byFile := map[*File][]*block{}
	var files []*File
	for _, b := range blocks {
		if byFile[b.file] == nil {
			files = append(files, b.file)
		}
		byFile[b.file] = append(byFile[b.file], b)
	}
	local := false
	if len(files) > 1 {
		for _, b := range blocks {
			for _, l := range flat(b.code) {
				if m := lookup(defined, b.file, l.name); m != nil && m.local {
					local = true
				}
				for _, o := range l.operands {
					local = local || strings.Contains(o, "<>")
				}
			}
		}
	}
	if local {
		groups = nil
		for _, f := range files {
			groups = append(groups, byFile[f])
		}
	}
	var out []*macro
	var shapes [][]*block
	var variants []string
	for _, g := range groups {
		first := len(shapes)
		for _, b := range g {
			i := slices.IndexFunc(shapes[first:], func(s []*block) bool { return differs(flat(s[0].code), flat(b.code)) == "" })
			if i >= 0 && u.Variants {
				shapes[first+i] = append(shapes[first+i], b)
				continue
			}
			if len(shapes) > first && !u.Variants {
				shapes[first] = append(shapes[first], b)
				continue
			}
			shapes = append(shapes, []*block{b})
		}
		slices.SortStableFunc(shapes[first:], func(a, b []*block) int { return len(b) - len(a) })
		for i := range shapes[first:] {
			v := name
			if i > 0 {
				v = fmt.Sprintf("%s_V%d", name, i+1)
			}
			variants = append(variants, v)
		}
	}
	for i, g := range shapes {
		name := variants[i]
		m, err := u.unify(name, g)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		m.local = local
		if local {
			defined[g[0].file.Name+"/"+name] = m
		} else {
			defined[name] = m
		}
		out = append(out, m)
	}
	return out, nil
}

func lookup(defined map[string]*macro, f *File, name string) *macro {
	if m := defined[f.Name+"/"+name]; m != nil {
		return m
	}
	return defined[name]
}

// unify returns a macro for blocks and its calls. The macro is nil if it would save no line.
func (u *Unit) unify(name string, blocks []*block) (*macro, error) {
	codes := make([][]line, len(blocks))
	for i, b := range blocks {
		codes[i] = flat(b.code)
	}
	first := codes[0]
	for i, c := range codes[1:] {
		if d := differs(first, c); d != "" {
			return nil, fmt.Errorf("asm: blocks %s of %s and %s differ: %s", name, blocks[0].file.Name, blocks[i+1].file.Name, d)
		}
	}
	keep := blocks[0].keep
	if !keep && (len(blocks) < 2 || len(first) < 2) {
		return nil, nil
	}
	n := len(blocks)
	doc := u.doc(name)
	if doc == "" {
		u.undocumented = append(u.undocumented, name)
	}
	m := &macro{name: name, files: map[*File]bool{}, keep: keep}
	for _, b := range blocks {
		m.files[b.file] = true
	}
	p := newParams(blocks, codes)
	if keep {
		for _, h := range p.hints {
			p.add(h.name, h.text, h.value)
		}
	}
	for i := range first {
		at := line{name: first[i].name, call: first[i].call}
		if first[i].call {
			column := make([]string, n)
			for j := range codes {
				column[j] = codes[j][i].name
			}
			at.name = p.text(column, "step")
		}
		if first[i].label() {
			column := make([]string, n)
			for j := range codes {
				column[j] = strings.TrimSuffix(codes[j][i].name, ":")
			}
			at.name = p.text(column, "label") + ":"
		}
		for o := range first[i].operands {
			column := make([]string, n)
			for j := range codes {
				column[j] = codes[j][i].operands[o]
			}
			at.operands = append(at.operands, p.operand(column))
		}
		m.body = append(m.body, at)
	}
	if keep && len(p.names) > len(p.hints) {
		return nil, fmt.Errorf("asm: macro %s needs hints for %v", name, p.names[len(p.hints):])
	}
	m.params = p.names
	for j, b := range blocks {
		use := line{name: name, call: true}
		for i := range p.names {
			use.operands = append(use.operands, p.columns[i][j])
		}
		b.use = &use
	}
	return m, nil
}

// differs returns how the instructions of two codes differ, or "".
func differs(a, b []line) string {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x.label() && y.label() {
			continue
		}
		if x.name != y.name && !x.call || len(x.operands) != len(y.operands) || x.call != y.call {
			return fmt.Sprintf("line %d: %q and %q", i+1, x, y)
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%d and %d lines", len(a), len(b))
	}
	return ""
}

// numbered matches the end of a name that does not matter to its documentation.
var numbered = regexp.MustCompile(`_[A-Z0-9x]+$`)

func (u *Unit) doc(name string) string {
	for {
		if d := u.Docs[name]; d != "" {
			return d
		}
		short := numbered.ReplaceAllString(name, "")
		if short == name {
			return ""
		}
		name = short
	}
}

// params are the parameters of a macro in construction.
type params struct {
	names   []string
	columns [][]string // value of each parameter in each block
	numbers [][]int    // columns as numbers
	hints   []hinted
	taken   map[string]bool
	n       int
}

type hinted struct {
	name  string
	text  []string
	value []int // values as numbers
}

func newParams(blocks []*block, codes [][]line) *params {
	p := &params{n: len(blocks), taken: map[string]bool{}}
	for _, c := range codes {
		for _, l := range c {
			for _, t := range tokens.FindAllString(l.String(), -1) {
				p.taken[t] = true
			}
		}
	}
	for i, h := range blocks[0].hints {
		one := hinted{name: h.Name}
		for _, b := range blocks {
			switch v := b.hints[i].Value.(type) {
			case int:
				one.value = append(one.value, v)
				one.text = append(one.text, strconv.Itoa(v))
			default:
				text := fmt.Sprint(v)
				if strings.HasPrefix(text, "0(") {
					text = text[1:]
				}
				one.text = append(one.text, text)
			}
		}
		p.hints = append(p.hints, one)
	}
	return p
}

var tokens = regexp.MustCompile(`[A-Za-z_·][A-Za-z0-9_·]*|0x[0-9a-fA-F]+|[0-9]+|<>|<<|.`)

// operand returns an operand of the macro; column has the operand of each block.
func (p *params) operand(column []string) string {
	if same(column) {
		return column[0]
	}
	for _, h := range p.hints {
		if slices.Equal(h.text, column) {
			return p.text(column, h.name)
		}
	}
	lists := make([][]string, p.n)
	based := false
	for i, c := range column {
		lists[i] = tokens.FindAllString(c, -1)
		based = based || isNumber(lists[i][0]) || lists[i][0] == "-"
	}
	for i := range lists {
		if based && lists[i][0] == "(" { // a displacement of 0
			lists[i] = append([]string{"0"}, lists[i]...)
		}
		lists[i] = signed(lists[i])
	}
	alike := true
	for _, l := range lists[1:] {
		alike = alike && slices.EqualFunc(lists[0], l, func(a, b string) bool {
			return kind(a) == kind(b) && (kind(a) != 'p' || a == b)
		})
	}
	if !alike {
		// An operand is a displacement and the rest.
		ends, numbers := make([]string, p.n), make([]string, p.n)
		memory := based
		for i, l := range lists {
			memory = memory && isNumber(l[0]) && len(l) > 1 && l[1] == "("
			if memory {
				numbers[i], ends[i] = l[0], strings.Join(l[1:], "")
			}
		}
		if memory {
			n := p.number(numbers, true)
			switch {
			case n == "0":
				n = ""
			default: // two identifiers
				n += " "
			}
			return n + p.text(ends, "at")
		}
		return p.text(column, "at")
	}
	var s strings.Builder
	for t := range lists[0] {
		values := make([]string, p.n)
		for i := range lists {
			values[i] = lists[i][t]
		}
		switch {
		case same(values):
			s.WriteString(values[0])
		case isNumber(values[0]):
			s.WriteString(p.number(values, t == 0))
		default:
			s.WriteString(p.text(values, ""))
		}
	}
	return s.String()
}

// signed joins signs to numbers at the start or after $.
func signed(list []string) []string {
	for i := range list {
		if list[i] == "-" && i+1 < len(list) && isNumber(list[i+1]) && (i == 0 || list[i-1] == "$") {
			return slices.Concat(list[:i], []string{"-" + list[i+1]}, list[i+2:])
		}
	}
	return list
}

func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && s[0] >= '0' && s[0] <= '9'
}

func kind(token string) byte {
	switch {
	case isNumber(token):
		return 'n'
	case tokens.FindString(token) == token && (token[0] == '_' || token[0] >= 'A' && token[0] <= 'Z' || token[0] >= 'a' && token[0] <= 'z' || token[0] > 127):
		return 'i'
	}
	return 'p'
}

func same(column []string) bool {
	for _, c := range column[1:] {
		if c != column[0] {
			return false
		}
	}
	return true
}

// text returns the parameter with the values of column.
func (p *params) text(column []string, name string) string {
	if same(column) {
		return column[0]
	}
	for i, c := range p.columns {
		if slices.Equal(c, column) {
			return p.names[i]
		}
	}
	for _, h := range p.hints {
		if slices.Equal(h.text, column) {
			return p.add(h.name, column, h.value)
		}
	}
	if name == "" {
		name = guess(column[0])
	}
	return p.add(name, column, nil)
}

// guess returns a parameter's name for a register by its kind: z for Z5.
func guess(value string) string {
	switch value[0] {
	case 'X', 'Y', 'Z', 'V', 'F', 'K':
		if len(value) > 1 && isNumber(value[1:]) {
			return strings.ToLower(value[:1])
		}
	case 'R', 'A', 'B', 'C', 'D', 'S':
		return "r"
	}
	return "x"
}

// number returns a number of the macro: a parameter, a multiple of one, or a sum with one.
func (p *params) number(column []string, displacement bool) string {
	if same(column) {
		return column[0]
	}
	values := make([]int, p.n)
	for i, c := range column {
		v, err := strconv.ParseInt(c, 0, 64)
		if err != nil {
			return p.text(column, "n")
		}
		values[i] = int(v)
	}
	for i, have := range p.numbers {
		if have == nil {
			continue
		}
		if times, plus, ok := affine(have, values); ok && (times == 1 || plus == 0 || p.hintedName(p.names[i])) {
			return expression(p.names[i], times, plus)
		}
	}
	for _, h := range p.hints {
		if h.value == nil {
			continue
		}
		if times, plus, ok := affine(h.value, values); ok {
			return expression(p.add(h.name, h.text, h.value), times, plus)
		}
	}
	name := "n"
	if displacement {
		name = "off"
	}
	return p.add(name, column, values)
}

func (p *params) hintedName(name string) bool {
	return slices.ContainsFunc(p.hints, func(h hinted) bool { return h.name == name })
}

// affine solves to = times·from + plus for a positive times.
func affine(from, to []int) (times, plus int, ok bool) {
	for i := range from {
		if d := from[i] - from[0]; d != 0 {
			if (to[i]-to[0])%d != 0 {
				return 0, 0, false
			}
			times = (to[i] - to[0]) / d
			break
		}
	}
	if times <= 0 {
		return 0, 0, false
	}
	plus = to[0] - times*from[0]
	for i := range from {
		if to[i] != times*from[i]+plus {
			return 0, 0, false
		}
	}
	return times, plus, true
}

func expression(name string, times, plus int) string {
	s := name
	if times != 1 {
		s = fmt.Sprintf("%d*%s", times, name)
	}
	if plus != 0 {
		s = fmt.Sprintf("%s%+d", s, plus)
	}
	if s != name {
		s = "(" + s + ")"
	}
	return s
}

// add adds a parameter.
func (p *params) add(name string, column []string, values []int) string {
	base := name
	for i := 2; p.taken[name]; i++ {
		name = fmt.Sprintf("%s%d", base, i)
	}
	p.taken[name] = true
	p.names = append(p.names, name)
	p.columns = append(p.columns, column)
	p.numbers = append(p.numbers, values)
	return name
}

// folded evaluates the sums and products of numbers that result from arguments.
func folded(s string) string {
	for {
		m := product.FindStringSubmatchIndex(s)
		if m == nil {
			break
		}
		a, _ := strconv.ParseInt(s[m[2]:m[3]], 0, 64)
		b, _ := strconv.ParseInt(s[m[4]:m[5]], 0, 64)
		s = s[:m[2]] + strconv.FormatInt(a*b, 10) + s[m[5]:]
	}
	for {
		m := sum.FindStringSubmatchIndex(s)
		if m == nil {
			break
		}
		a, _ := strconv.ParseInt(s[m[2]:m[3]], 0, 64)
		b, _ := strconv.ParseInt(s[m[4]:m[5]], 0, 64)
		s = s[:m[0]] + strconv.FormatInt(a+b, 10) + s[m[1]:]
	}
	s = single.ReplaceAllString(s, "$1$2")
	if strings.HasPrefix(s, "0 (") {
		s = s[2:]
	}
	if strings.HasPrefix(s, "0(") {
		s = s[1:]
	}
	return displaced.ReplaceAllString(s, "$1(")
}

var (
	product   = regexp.MustCompile(`\((-?[0-9]+)\*(-?[0-9]+)[+)-]`)
	sum       = regexp.MustCompile(`\((-?[0-9]+)([+-][0-9]+)\)`)
	single    = regexp.MustCompile(`(^|\$)\((-?[0-9]+)\)`)
	displaced = regexp.MustCompile(`^([0-9]+) \(`)
)
