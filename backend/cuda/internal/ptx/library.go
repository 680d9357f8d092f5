package ptx

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Library is device functions as NVRTC compiles them, taken apart so that a
// kernel gets only those that it needs: short ones are written into it, and
// those that need tables or memory of their own are called.
type Library struct {
	header    string // .version, .target, .address_size
	functions map[string]*function
	globals   map[string]string // declarations of tables
}

// function is one device function.
type function struct {
	name   string
	text   string   // from .func to the closing brace
	params []string // types of the parameters in order: "f32", "b64"
	result string   // type of the result
	body   []string // lines between the braces
	inline bool
	needs  []string // functions and tables that it refers to
}

var (
	headPattern   = regexp.MustCompile(`^(?:\.visible )?\.func\s+\(\.param \.(b\d+) func_retval0\) (\w+)\(?$`)
	paramPattern  = regexp.MustCompile(`^\s*\.param \.(\w+) (\w+),?$`)
	globalPattern = regexp.MustCompile(`^\.global .*?\.b8 (\w+)\[`)
	wordPattern   = regexp.MustCompile(`[\w$]+`)
)

// ParseLibrary reads PTX that NVRTC made of device functions with
// relocatable-device-code.
func ParseLibrary(text string) (*Library, error) {
	l := &Library{functions: map[string]*function{}, globals: map[string]string{}}
	var open *function
	depth := 0
	for n, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case open == nil && (strings.HasPrefix(trimmed, ".version") || strings.HasPrefix(trimmed, ".target") || strings.HasPrefix(trimmed, ".address_size")):
			l.header += trimmed + "\n"
		case open == nil && globalPattern.MatchString(line):
			l.globals[globalPattern.FindStringSubmatch(line)[1]] = line
		case open == nil:
			if m := headPattern.FindStringSubmatch(line); m != nil {
				open = &function{result: m[1], name: m[2], text: strings.TrimPrefix(line, ".visible ") + "\n"}
			} else if strings.Contains(line, ".func") {
				return nil, fmt.Errorf("ptx: line %d: got %q, want a function with one result", n+1, line)
			}
		default:
			open.text += line + "\n"
			if m := paramPattern.FindStringSubmatch(line); m != nil && depth == 0 {
				open.params = append(open.params, m[1])
			}
			if depth > 0 {
				open.body = append(open.body, trimmed)
			}
			depth += strings.Count(line, "{") - strings.Count(line, "}")
			switch {
			case depth == 0 && trimmed == ";": // a declaration: the function follows later
				open = nil
			case depth == 0 && trimmed == "}":
				open.body = open.body[:len(open.body)-1]
				l.functions[open.name] = open
				open = nil
			}
		}
	}
	if open != nil || l.header == "" {
		return nil, fmt.Errorf("ptx: the library is cut off")
	}
	for _, f := range l.functions {
		for _, w := range wordPattern.FindAllString(strings.Join(f.body, "\n"), -1) {
			if _, ok := l.functions[w]; ok || l.globals[w] != "" {
				f.needs = append(f.needs, w)
			}
		}
		f.inline = len(f.needs) == 0 && !strings.Contains(f.text, ".local")
	}
	return l, nil
}

// declare writes what a function needs, then itself, unless it has been.
func (l *Library) declare(s *strings.Builder, name string, done map[string]bool) {
	if done[name] {
		return
	}
	done[name] = true
	if g, ok := l.globals[name]; ok {
		s.WriteString(g + "\n")
		return
	}
	f := l.functions[name]
	for _, need := range f.needs {
		l.declare(s, need, done)
	}
	s.WriteString(f.text)
}

// call writes an application of a function to registers, and notes it in used
// when it must be declared.
func (l *Library) call(s *strings.Builder, name, result string, args []string, n int, used map[string]bool) error {
	f := l.functions[name]
	if f == nil || len(args) != len(f.params) {
		return fmt.Errorf("ptx: no device function %s of %d arguments", name, len(args))
	}
	if f.inline {
		f.write(s, result, args, n)
		return nil
	}
	used[name] = true
	s.WriteString("{\n")
	for i, t := range f.params {
		fmt.Fprintf(s, "\t.param .%s a%d;\n\tst.param.%s [a%d], %s;\n", t, i, t, i, args[i])
	}
	fmt.Fprintf(s, "\t.param .%s r;\n\tcall (r), %s, (", f.result, name)
	for i := range f.params {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(s, "a%d", i)
	}
	fmt.Fprintf(s, ");\n\tld.param.%s %s, [r];\n}\n", f.result, result)
	return nil
}

var (
	loadParam   = regexp.MustCompile(`^ld\.param\.(\w+)\s+(%\w+), \[\w+_param_(\d+)\];$`)
	storeResult = regexp.MustCompile(`^st\.param\.(\w+)\s+\[func_retval0\+0\], (.+);$`)
)

// write puts the body of f into a block of its own: parameters and the result
// are moves, and a return is a jump to the end. n makes labels unique.
func (f *function) write(s *strings.Builder, result string, args []string, n int) {
	s.WriteString("{\n")
	jumps := false
	for i, line := range f.body {
		line = strings.ReplaceAll(line, "$L__", fmt.Sprintf("$L%d_", n))
		if m := loadParam.FindStringSubmatch(line); m != nil {
			line = fmt.Sprintf("mov.%s %s, %s;", untyped(m[1]), m[2], args[m[3][0]-'0'])
			switch wide := strings.HasPrefix(m[2], "%rd"); {
			case wide && m[1][1:] == "32": // a load may widen
				line = fmt.Sprintf("cvt.%c64.%s %s, %s;", m[1][0], m[1], m[2], args[m[3][0]-'0'])
			case strings.HasPrefix(m[2], "%rs"): // or take the low half of 32 bits
				line = fmt.Sprintf("cvt.u16.u32 %s, %s;", m[2], args[m[3][0]-'0'])
				if m[1][1:] == "8" {
					line += fmt.Sprintf("\n\tand.b16 %s, %s, 255;", m[2], m[2])
				}
			}
		} else if m := storeResult.FindStringSubmatch(line); m != nil {
			line = fmt.Sprintf("mov.%s %s, %s;", untyped(m[1]), result, m[2])
		} else if line == "ret;" {
			if last(f.body[i+1:]) {
				continue
			}
			line, jumps = fmt.Sprintf("bra $R%d;", n), true
		}
		if line != "" {
			s.WriteString("\t" + line + "\n")
		}
	}
	if jumps {
		fmt.Fprintf(s, "$R%d:\n", n)
	}
	s.WriteString("}\n")
}

// last reports whether nothing but blank lines is left.
func last(lines []string) bool { return strings.TrimSpace(strings.Join(lines, "")) == "" }

// untyped is the type of bits that a mov takes whatever the register holds.
func untyped(t string) string { return "b" + t[1:] }

func sortedKeys(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }

// Has reports whether the library has a function.
func (l *Library) Has(name string) bool { return l.functions[name] != nil }
