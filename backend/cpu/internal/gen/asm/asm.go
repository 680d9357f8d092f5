// Package asm writes files of Go assembly whose repeated parts are macros.
//
// A generator writes instructions, one to a line, and gives the meaningful parts names:
// [File.Block]. The package compares all blocks of a name, makes their differences parameters,
// and writes a #define and its calls. So a macro always has the instructions that the
// generator wrote: expanded, the file consists of exactly those.
//
// Main types: [File] is one file; [Unit] is the files of an instruction set, which share a
// header of the macros that several of them use; [Package] is all files of a Go package.
//
// Rules:
//
//   - Blocks of a name must have the same instructions in the same order.
//     Operands may differ. Blocks that differ otherwise need different names.
//   - Every name has a line of documentation in [Unit.Docs].
//   - A macro that would save no line is written out.
package asm

import (
	"fmt"
	"strings"
)

// File is a file of assembly: functions, and text outside them, in the order in which
// they are written.
type File struct {
	Name  string // without extension, as in "exp_avx512_amd64"
	items []*item
	code  *[]*node // the function or block that is being written
}

// item is a function, or text outside functions.
type item struct {
	head string // the comment and TEXT line of a function, or the text
	code []*node
}

// node is an instruction, a label, or a block.
type node struct {
	line  // valid unless block is set
	block *block
}

// line is an instruction, a label or a call of a macro, in its parts.
type line struct {
	name     string // of the instruction or macro; a label with its colon
	operands []string
	call     bool // NAME(a, b) instead of NAME a, b
	note     string
}

// block is a named part.
type block struct {
	name  string
	file  *File
	code  []*node
	hints []Hint
	keep  bool
	use   *line // the call of its macro; nil if it is written out
}

// Hint names the macro's parameter for an operand of a block. Value is the operand in this
// block: a register or another string, or a number. Other numbers of the block may be
// multiples of it, or sums with it.
type Hint struct {
	Name  string
	Value any // string or int
}

// Hints makes hints of pairs of a name and a value.
func Hints(pairs ...any) []Hint {
	var list []Hint
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, Hint{pairs[i].(string), pairs[i+1]})
	}
	return list
}

// NewFile returns an empty file.
func NewFile(name string) *File { return &File{Name: name} }

// Text begins a function. Head is its comment and its TEXT line.
func (f *File) Text(head string) {
	it := &item{head: head}
	f.items = append(f.items, it)
	f.code = &it.code
}

// Raw writes text outside functions, after the last one.
func (f *File) Raw(text string) {
	f.items = append(f.items, &item{head: text})
	f.code = nil
}

// Line writes an instruction.
func (f *File) Line(text string) {
	*f.code = append(*f.code, &node{line: parse(text)})
}

// Lines writes instructions, one to a line.
func (f *File) Lines(text string) {
	for l := range strings.Lines(text) {
		f.Line(l)
	}
}

// Label writes a label, local to the function.
func (f *File) Label(name string) {
	*f.code = append(*f.code, &node{line: line{name: name + ":"}})
}

// Block names what body writes.
func (f *File) Block(name string, body func(), hints ...Hint) {
	b := &block{name: name, file: f, hints: hints}
	b.code = f.Capture(body)
	if len(b.code) > 0 {
		*f.code = append(*f.code, &node{block: b})
	}
}

// Macro is a Block that is a macro even if it is short, so that it can be an argument of other
// macros. Its parameters are the hints, in order, even if all calls have the same values.
func (f *File) Macro(name string, body func(), hints ...Hint) {
	b := &block{name: name, file: f, hints: hints, keep: true}
	b.code = f.Capture(body)
	*f.code = append(*f.code, &node{block: b})
}

// Code is the instructions that a function has written.
type Code = []*node

// Capture returns the instructions that body writes, instead of appending them.
func (f *File) Capture(body func()) Code {
	outer := f.code
	var code []*node
	f.code = &code
	body()
	f.code = outer
	return code
}

// Append writes the code of Capture.
func (f *File) Append(code Code) { *f.code = append(*f.code, code...) }

// Count returns the number of instructions and labels of a code.
func Count(code Code) int {
	n := 0
	for _, x := range code {
		if x.block != nil {
			n += Count(x.block.code)
		} else {
			n++
		}
	}
	return n
}

// Mentions reports whether text occurs in an operand of a code.
func Mentions(code Code, text string) bool {
	for _, x := range code {
		if x.block != nil && Mentions(x.block.code, text) {
			return true
		}
		for _, o := range x.operands {
			if strings.Contains(o, text) {
				return true
			}
		}
	}
	return false
}

// parse splits an instruction into its parts.
func parse(text string) line {
	text = strings.TrimSpace(text)
	var l line
	if i := strings.Index(text, " // "); i >= 0 {
		text, l.note = text[:i], text[i+4:]
	}
	if strings.HasSuffix(text, ":") {
		l.name = text
		return l
	}
	end := strings.IndexAny(text, " \t(")
	if end < 0 {
		l.name = text
		return l
	}
	l.name = text[:end]
	rest := strings.TrimSpace(text[end:])
	if text[end] == '(' {
		l.call = true
		rest = strings.TrimSuffix(rest[1:], ")")
	}
	if strings.Contains(rest, ";") { // encoded as bytes
		l.operands = []string{rest}
		return l
	}
	l.operands = split(rest)
	for i, o := range l.operands {
		if strings.HasPrefix(o, "0(") { // a displacement of 0
			l.operands[i] = o[1:]
		}
	}
	return l
}

// split separates operands at commas outside parentheses and brackets.
func split(text string) []string {
	var out []string
	depth, from := 0, 0
	for i, c := range text {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(text[from:i]))
				from = i + 1
			}
		}
	}
	if s := strings.TrimSpace(text[from:]); s != "" {
		out = append(out, s)
	}
	return out
}

// String returns the line without its leading tab.
func (l line) String() string {
	s := l.name
	switch {
	case l.call && len(l.operands) > 0:
		s += "(" + strings.Join(l.operands, ", ") + ")"
	case len(l.operands) > 0:
		s += " " + strings.Join(l.operands, ", ")
	}
	if l.note != "" {
		s += " // " + l.note
	}
	return s
}

func (l line) label() bool { return strings.HasSuffix(l.name, ":") }

// flat returns a code in which the blocks without a macro are written out.
func flat(code []*node) []line {
	var out []line
	for _, n := range code {
		switch {
		case n.block == nil:
			out = append(out, n.line)
		case n.block.use != nil:
			out = append(out, *n.block.use)
		default:
			out = append(out, flat(n.block.code)...)
		}
	}
	return out
}

// expanded returns a code in which all blocks are written out.
func expanded(code []*node) []line {
	var out []line
	for _, n := range code {
		if n.block != nil {
			out = append(out, expanded(n.block.code)...)
		} else {
			out = append(out, n.line)
		}
	}
	return out
}

func writeLine(s *strings.Builder, l line) {
	if !l.label() {
		s.WriteByte('\t')
	}
	fmt.Fprintln(s, l)
}
