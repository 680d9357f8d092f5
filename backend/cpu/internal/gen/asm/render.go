package asm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// text is the output: the lines of functions, and the macros that they use.
type text struct {
	unit   *Unit
	macros []*macro
	byName map[string]*macro // by name; macros of one file by file and name
	bodies map[*item][]line
}

// Package is the generated files of a Go package.
type Package struct {
	Units []*Unit
	Go    map[string]string // Go files by name
}

// Files returns the contents of all files by name.
func (p *Package) Files() (map[string]string, error) {
	all := maps.Clone(p.Go)
	for _, u := range p.Units {
		list, err := u.Write()
		if err != nil {
			return nil, err
		}
		maps.Copy(all, list)
	}
	return all, nil
}

// Expanded returns the contents of the files by name with all macros written out, except those
// of encodings.
func (u *Unit) Expanded() map[string]string {
	t := &text{unit: u, byName: map[string]*macro{}, bodies: map[*item][]line{}}
	for _, f := range u.Files {
		for _, it := range f.items {
			t.bodies[it] = expanded(it.code)
		}
	}
	return t.contents()
}

// render writes the files and, if several of them share macros, the header.
func (u *Unit) render(macros []*macro) map[string]string {
	t := &text{unit: u, macros: macros, byName: map[string]*macro{}, bodies: map[*item][]line{}}
	for _, m := range macros {
		if m.local {
			for f := range m.files {
				t.byName[f.Name+"/"+m.name] = m
			}
			continue
		}
		t.byName[m.name] = m
	}
	for _, f := range u.Files {
		for _, it := range f.items {
			t.bodies[it] = flat(it.code)
		}
	}
	for t.inline() {
	}
	return t.contents()
}

// contents returns the files by name.
func (t *text) contents() map[string]string {
	out := map[string]string{}
	if h := t.header(); h != "" {
		out[t.unit.Header+".h"] = t.unit.Preface + h
	}
	for _, f := range t.unit.Files {
		out[f.Name+".s"] = t.file(f)
	}
	return out
}

// find returns the macro that a line of a file calls, or nil.
func (t *text) find(f *File, l line) *macro {
	if !l.call {
		return nil
	}
	if m := t.byName[f.Name+"/"+l.name]; m != nil {
		return m
	}
	return t.byName[l.name]
}

// each applies do to all lines, of macros and of functions.
func (t *text) each(do func(f *File, lines []line) []line) {
	for _, m := range t.macros {
		for f := range m.files { // any file: the macros that m calls are in all of them
			m.body = do(f, m.body)
			break
		}
	}
	for _, f := range t.unit.Files {
		for _, it := range f.items {
			t.bodies[it] = do(f, t.bodies[it])
		}
	}
}

// inline writes out macros that save no line, and reports whether there was one. Of macros
// that call each other it takes one at a time, because the uses and lengths of the others
// change.
func (t *text) inline() bool {
	uses := map[*macro]int{}
	near := map[*macro][]*macro{} // callers and callees of a macro
	for _, m := range t.macros {
		for f := range m.files {
			for _, l := range m.body {
				if c := t.find(f, l); c != nil {
					uses[c]++
					near[m], near[c] = append(near[m], c), append(near[c], m)
				}
			}
			break
		}
	}
	for _, f := range t.unit.Files {
		for _, it := range f.items {
			for _, l := range t.bodies[it] {
				if m := t.find(f, l); m != nil {
					uses[m]++
				}
			}
		}
	}
	family := map[string]int{}
	for _, m := range t.macros {
		family[t.unit.doc(m.name)]++
	}
	out, changed := map[*macro]bool{}, map[*macro]bool{}
	for _, m := range t.macros {
		overhead := 1 // lines of a definition: its name
		if family[t.unit.doc(m.name)] == 1 {
			overhead = 3 // a comment and an empty line, too
		}
		if n, l := uses[m], len(m.body); m.keep || changed[m] || n*l >= n+l+overhead {
			continue
		}
		out[m] = true
		for _, c := range near[m] {
			changed[c] = true
		}
	}
	if len(out) == 0 {
		return false
	}
	t.each(func(f *File, lines []line) []line {
		var list []line
		for _, l := range lines {
			if m := t.find(f, l); m != nil && out[m] {
				list = append(list, m.expand(l)...)
			} else {
				list = append(list, l)
			}
		}
		return list
	})
	t.macros = slices.DeleteFunc(t.macros, func(m *macro) bool { return out[m] })
	return true
}

// expand returns the lines of a call.
func (m *macro) expand(use line) []line {
	args := map[string]string{}
	for i, p := range m.params {
		args[p] = use.operands[i]
	}
	replace := func(s string) string {
		list := tokens.FindAllString(s, -1)
		for i, t := range list {
			if a, ok := args[t]; ok {
				list[i] = a
			}
		}
		return folded(strings.Join(list, ""))
	}
	out := make([]line, len(m.body))
	for i, l := range m.body {
		out[i] = line{name: replace(l.name), call: l.call, note: l.note}
		for _, o := range l.operands {
			out[i].operands = append(out[i].operands, replace(o))
		}
	}
	return out
}

// header returns the header: the encodings that are used, and the macros of several files.
func (t *text) header() string {
	used := map[string]bool{}
	t.each(func(_ *File, lines []line) []line {
		for _, l := range lines {
			used[l.name] = true
			for _, o := range l.operands {
				used[o] = true
			}
		}
		return lines
	})
	var s strings.Builder
	for _, e := range t.unit.Encodings {
		for _, f := range t.unit.Files {
			for _, it := range f.items {
				used[e.Name] = used[e.Name] || strings.Contains(it.head, e.Name+"(")
			}
		}
		if !used[e.Name] {
			continue
		}
		if strings.Contains(e.Text, "\\") {
			s.WriteByte('\n')
		}
		s.WriteString(e.Text)
	}
	w := macroWriter{unit: t.unit, s: &s, documented: map[string]bool{}}
	for _, m := range t.macros {
		if m.shared() {
			w.write(m)
		}
	}
	return strings.TrimPrefix(s.String(), "\n")
}

// arguments reports whether a macro reads arguments of functions.
func (m *macro) arguments() bool {
	for _, l := range m.body {
		for _, o := range l.operands {
			if strings.Contains(o, "(FP)") {
				return true
			}
		}
	}
	return false
}

// shared reports whether a macro is in the header.
func (m *macro) shared() bool { return len(m.files) > 1 }

// file returns the text of a file. A macro comes before the first function that uses it.
func (t *text) file(f *File) string {
	encoding := map[string]bool{}
	for _, e := range t.unit.Encodings {
		encoding[e.Name] = true
	}
	include := false
	written := map[*macro]bool{}
	var s strings.Builder
	w := macroWriter{unit: t.unit, s: &s, documented: map[string]bool{}}
	var need func(lines []line, arguments bool)
	need = func(lines []line, arguments bool) {
		for _, l := range lines {
			for _, o := range l.operands { // macros as arguments
				if l.call && t.find(f, line{name: o, call: true}) != nil {
					need([]line{{name: o, call: true}}, arguments)
				}
			}
			m := t.find(f, l)
			if encoding[l.name] || m != nil && m.shared() {
				include = true
			}
			if m == nil || m.shared() {
				continue
			}
			need(m.body, arguments)
			if written[m] || arguments && !m.arguments() {
				continue
			}
			written[m] = true
			w.write(m)
		}
	}
	// Go vet takes a macro after a function for a part of the function, and would check the
	// macro's arguments against the function's.
	for _, it := range f.items {
		need(t.bodies[it], true)
	}
	for _, it := range f.items {
		for name := range encoding {
			include = include || strings.Contains(it.head, name+"(")
		}
		need(t.bodies[it], false)
		s.WriteString(it.head)
		for _, l := range t.bodies[it] {
			writeLine(&s, l)
		}
	}
	head := t.unit.Preface + "#include \"textflag.h\"\n"
	if include {
		head += fmt.Sprintf("#include %q\n", t.unit.Header+".h")
	}
	return head + s.String()
}

// macroWriter writes the definitions of macros to a file. The comment of a family of macros,
// whose names differ in numbers, stands before the first one; the next ones follow without
// an empty line.
type macroWriter struct {
	unit       *Unit
	s          *strings.Builder
	documented map[string]bool // comments that the file has
	end        int             // of the last definition
}

// write writes a definition, one instruction to a line.
func (w *macroWriter) write(m *macro) {
	s, doc := w.s, w.unit.doc(m.name)
	if first := !w.documented[doc]; first || s.Len() != w.end {
		s.WriteByte('\n')
		if first {
			fmt.Fprintf(s, "// %s %s\n", m.name, doc)
		}
	}
	w.documented[doc] = true
	s.WriteString("#define " + m.name)
	if len(m.params) > 0 {
		s.WriteString("(" + strings.Join(m.params, ", ") + ")")
	}
	const longLine = 100
	if len(m.body) == 1 && !m.body[0].label() && len(m.body[0].String()) < longLine {
		s.WriteString(" " + m.body[0].String() + "\n")
		w.end = s.Len()
		return
	}
	for i, l := range m.body {
		s.WriteString(" \\\n")
		if !l.label() {
			s.WriteByte('\t')
		}
		s.WriteString(l.String())
		if i < len(m.body)-1 && !l.label() {
			s.WriteByte(';')
		}
	}
	s.WriteByte('\n')
	w.end = s.Len()
}
