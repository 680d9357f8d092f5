package asm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// text is what is written: the lines of functions, and the macros that they use.
type text struct {
	unit   *Unit
	macros []*macro
	byName map[string]*macro // by name, and by file and name of those of a file
	bodies map[*item][]line
}

// Package is what is generated for a Go package.
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

// Expanded returns the contents of the files by name as they are without macros but
// those of the encodings.
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

// contents is the files by name.
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

// find is the macro that a line of a file calls, or nil.
func (t *text) find(f *File, l line) *macro {
	if !l.call {
		return nil
	}
	if m := t.byName[f.Name+"/"+l.name]; m != nil {
		return m
	}
	return t.byName[l.name]
}

// each calls do for all lines: of macros, and of functions.
func (t *text) each(do func(f *File, lines []line) []line) {
	for _, m := range t.macros {
		for f := range m.files { // any: what it calls is in all of them
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

// inline writes out macros that save no line, and reports whether there was one. Of
// macros that call each other it takes one: the others' uses or lengths change.
func (t *text) inline() bool {
	uses := map[*macro]int{}
	near := map[*macro][]*macro{} // that call a macro, or that it calls
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
	out, changed := map[*macro]bool{}, map[*macro]bool{}
	for _, m := range t.macros {
		const around = 3 // lines of a definition: a comment, its name, and an empty one
		if n, l := uses[m], len(m.body); m.keep || changed[m] || n*l >= n+l+around {
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

// expand is what a call stands for.
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

// header is the encodings that are used, and the macros of several files.
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
	for _, m := range t.macros {
		if m.shared() {
			s.WriteByte('\n')
			t.unit.writeMacro(&s, m)
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

// file is the text of a file. A macro comes before the first function that uses it.
func (t *text) file(f *File) string {
	encoding := map[string]bool{}
	for _, e := range t.unit.Encodings {
		encoding[e.Name] = true
	}
	include := false
	written := map[*macro]bool{}
	var s strings.Builder
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
			s.WriteByte('\n')
			t.unit.writeMacro(&s, m)
		}
	}
	// Go vet takes a macro behind a function for a part of it, and would look for
	// arguments there that this function does not have.
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

// writeMacro writes a definition, an instruction to a line.
func (u *Unit) writeMacro(s *strings.Builder, m *macro) {
	fmt.Fprintf(s, "// %s %s\n", m.name, u.doc(m.name))
	s.WriteString("#define " + m.name)
	if len(m.params) > 0 {
		s.WriteString("(" + strings.Join(m.params, ", ") + ")")
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
}
