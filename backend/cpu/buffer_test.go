package cpu

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestBufferWrites: only buffer.go accesses the memory of buffers, and only programs
// call its methods that return it for writing. All these methods change the version.
func TestBufferWrites(t *testing.T) {
	allowed := map[string][]string{
		"storage":    {"buffer.go"},
		"beginWrite": {"buffer.go", "program.go"},
		"endWrite":   {"buffer.go", "program.go"},
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || allowed[s.Sel.Name] == nil {
				return true
			}
			found[s.Sel.Name] = true
			if !slices.Contains(allowed[s.Sel.Name], name) {
				t.Errorf("%v: %s of a buffer is used outside %v; write through CopyIn or Fill, read through Data", files.Position(s.Pos()), s.Sel.Name, allowed[s.Sel.Name])
			}
			return true
		})
	}
	for name := range allowed {
		if !found[name] {
			t.Errorf("nothing uses %s: the test looks for names that are gone", name)
		}
	}
}
