package keras_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
)

// Limits that keep the module readable: of the branches of a function, as gocyclo
// counts them, and of the files of a package of kernels, which one reads in a sitting.
const (
	mostBranches = 40
	mostFiles    = 25
)

// TestBranches holds functions and packages to the limits.
func TestBranches(t *testing.T) {
	keras.SkipRace(t)
	files := map[string]int{}
	positions := token.NewFileSet()
	functions := 0
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files[filepath.ToSlash(filepath.Dir(path))]++
		file, err := parser.ParseFile(positions, path, nil, 0)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				functions++
				if n := branches(f); n > mostBranches {
					t.Errorf("%s: %s has %d branches, want at most %d", positions.Position(f.Pos()), f.Name.Name, n, mostBranches)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if functions < 1000 {
		t.Errorf("found %d functions, want those of the module", functions)
	}
	for directory, n := range files {
		kernels := strings.HasPrefix(directory, "../backend/cpu") && !strings.Contains(directory, "/gen/") // one file per family there
		if kernels && n > mostFiles {
			t.Errorf("%s has %d files, want at most %d", directory, n, mostFiles)
		}
	}
}

// branches counts a function's conditions, loops, cases and short-circuit operators.
func branches(f *ast.FuncDecl) int {
	n := 0
	ast.Inspect(f, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.CommClause:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
