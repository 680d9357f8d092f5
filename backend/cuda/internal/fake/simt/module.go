package simt

import (
	"encoding/binary"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Module is PTX that was read: its functions are decoded when they are asked for.
type Module struct {
	functions map[string]*function
	variables map[string]variable
	data      []byte // of .global variables, which lie at globalWindow

	mu      sync.Mutex
	kernels map[string]*Kernel
}

// function is a kernel or a device function.
type function struct {
	name   string
	entry  bool
	result string // name of the parameter for the result, or ""
	params []parameter
	body   []statement
}

type parameter struct {
	name  string
	bytes int
}

// variable is memory that is declared: of a module or in a function.
type variable struct {
	space  space
	offset uint64
	bytes  int
	align  int
}

// space is a state space.
type space uint8

const (
	generic space = iota
	global
	shared
	local
	param
)

// Addresses of shared and local memory and of the module's variables, as
// generic addresses: far from the host's memory, which is global memory.
const (
	sharedWindow = 1 << 56
	localWindow  = 2 << 56
	globalWindow = 3 << 56
	windowMask   = 0xff << 56
)

var (
	headPattern     = regexp.MustCompile(`^(?:\.visible |\.weak |\.extern )*\.(entry|func) (?:\(\.param \.\w+ (\w+)\) ?)?(\w+) ?(?:\((.*?)\))?`)
	paramPattern    = regexp.MustCompile(`^\.param (?:\.align \d+ )?\.(\w+) (\w+)$`)
	variablePattern = regexp.MustCompile(`^(?:\.visible |\.extern )*\.(global|shared|local|const) (?:\.align (\d+) )?\.(\w+) ([\w$]+)(?:\[(\d*)\])?(?: ?= ?\{(.*)\})?$`)
)

// Parse reads the text of a module.
func Parse(text string) (*Module, error) {
	list, err := scan(text)
	if err != nil {
		return nil, err
	}
	m := &Module{functions: map[string]*function{}, variables: map[string]variable{}, kernels: map[string]*Kernel{}}
	for i := 0; i < len(list); i++ {
		s := list[i]
		switch {
		case strings.Contains(s.text, ".entry ") || strings.Contains(s.text, ".func "):
			f, err := parseHead(s)
			if err != nil {
				return nil, err
			}
			if i+1 == len(list) || list[i+1].text != "{" {
				continue // declared, and defined elsewhere
			}
			end, depth := i+2, 1
			for ; end < len(list) && depth > 0; end++ {
				switch list[end].text {
				case "{":
					depth++
				case "}":
					depth--
				}
			}
			if depth > 0 {
				return nil, fmt.Errorf("simt: line %d: %s has no end", s.line, f.name)
			}
			f.body = list[i+2 : end-1]
			m.functions[f.name] = f
			i = end - 1
		case variablePattern.MatchString(s.text):
			if err := m.declare(s); err != nil {
				return nil, err
			}
		case strings.HasPrefix(s.text, ".version "), strings.HasPrefix(s.text, ".target "), s.text == ".address_size 64",
			strings.HasPrefix(s.text, ".file "):
		default:
			return nil, fmt.Errorf("simt: line %d: got %q, want a function or a variable", s.line, s.text)
		}
	}
	return m, nil
}

// Kernels are the names of the kernels, sorted.
func (m *Module) Kernels() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.functions)), func(name string) bool { return !m.functions[name].entry })
}

func parseHead(s statement) (*function, error) {
	h := headPattern.FindStringSubmatch(s.text)
	if h == nil {
		return nil, fmt.Errorf("simt: line %d: got %q, want the head of a function", s.line, s.text)
	}
	f := &function{name: h[3], entry: h[1] == "entry", result: h[2]}
	for _, p := range split(h[4]) {
		d := paramPattern.FindStringSubmatch(p)
		if d == nil || sizeOf(d[1]) == 0 {
			return nil, fmt.Errorf("simt: line %d: %s: got parameter %q, want one number", s.line, f.name, p)
		}
		f.params = append(f.params, parameter{name: d[2], bytes: sizeOf(d[1])})
	}
	return f, nil
}

// sizeOf is the number of bytes of a fundamental type, or 0.
func sizeOf(t string) int {
	if t == "pred" || t == "" {
		return 0
	}
	n, err := strconv.Atoi(t[1:])
	if err != nil || !slices.Contains([]int{8, 16, 32, 64}, n) {
		return 0
	}
	return n / 8
}

// maxVariable bounds the memory that a variable declares.
const maxVariable = 1 << 20

// parseVariable reads a declaration, with the values of an initializer.
func parseVariable(s statement) (name string, v variable, init []byte, err error) {
	d := variablePattern.FindStringSubmatch(s.text)
	if d == nil || sizeOf(d[3]) == 0 {
		return "", v, nil, fmt.Errorf("simt: line %d: got %q, want a variable", s.line, s.text)
	}
	v.space = map[string]space{"global": global, "const": global, "shared": shared, "local": local}[d[1]]
	size := sizeOf(d[3])
	v.align = size
	if d[2] != "" {
		if v.align, err = strconv.Atoi(d[2]); err != nil || v.align < 1 || v.align > 4096 {
			return "", v, nil, fmt.Errorf("simt: line %d: alignment %s", s.line, d[2])
		}
	}
	count := 1
	switch {
	case d[5] != "":
		if count, err = strconv.Atoi(d[5]); err != nil || count > maxVariable {
			return "", v, nil, fmt.Errorf("simt: line %d: %s has %s elements, want at most %d", s.line, d[4], d[5], maxVariable)
		}
	case strings.Contains(s.text, "[]"):
		count = 0
	}
	v.bytes = count * size
	for i, e := range split(d[6]) {
		u, err := strconv.ParseUint(e, 0, 64)
		if err != nil || i >= count {
			return "", v, nil, fmt.Errorf("simt: line %d: %s: element %d is %q of %d", s.line, d[4], i, e, count)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], u)
		init = append(init, b[:size]...)
	}
	return d[4], v, init, nil
}

func roundUp(n, align int) int { return (n + align - 1) / align * align }

// declare notes a variable of the module. Shared ones get a place in each kernel.
func (m *Module) declare(s statement) error {
	name, v, init, err := parseVariable(s)
	if err != nil {
		return err
	}
	switch v.space {
	case global:
		at := roundUp(len(m.data), max(16, v.align))
		v.offset = globalWindow + uint64(at)
		m.data = append(m.data, make([]byte, at+v.bytes-len(m.data))...)
		copy(m.data[at:], init)
	case local:
		return fmt.Errorf("simt: line %d: local memory outside of a function", s.line)
	}
	m.variables[name] = v
	return nil
}
