package keras_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
)

// TestGodoc: what godoc shows of the packages that users import is complete.
// No exported function takes or returns an unexported type, and no exported
// type is defined as another one, since godoc then shows no fields.
func TestGodoc(t *testing.T) {
	keras.SkipRace(t)
	for _, root := range []string{"../keras", "../layers", "../losses", "../optimizers", "../policy"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "internal" || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			for _, x := range file.Decls {
				switch x := x.(type) {
				case *ast.FuncDecl:
					if hidden := unexported(x); hidden != "" {
						t.Errorf("%v: %s has the unexported type %s in its signature", set.Position(x.Pos()), x.Name.Name, hidden)
					}
				case *ast.GenDecl:
					for _, s := range x.Specs {
						s, ok := s.(*ast.TypeSpec)
						if !ok || !s.Name.IsExported() || s.Assign.IsValid() {
							continue
						}
						if of, ok := s.Type.(*ast.Ident); ok && types.Universe.Lookup(of.Name) == nil {
							t.Errorf("%v: type %s is defined as %s, whose fields godoc does not show", set.Position(s.Pos()), s.Name.Name, of.Name)
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// unexported returns the first type of the signature of an exported function,
// or of a method of an exported type, that is not exported; "" if there is none.
func unexported(f *ast.FuncDecl) (hidden string) {
	if !f.Name.IsExported() {
		return ""
	}
	var params []string // type parameters
	lists := []*ast.FieldList{f.Type.Params, f.Type.Results}
	if f.Type.TypeParams != nil {
		for _, p := range f.Type.TypeParams.List {
			for _, n := range p.Names {
				params = append(params, n.Name)
			}
		}
		lists = append(lists, f.Type.TypeParams)
	}
	if f.Recv != nil {
		var names []string
		ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names = append(names, id.Name)
			}
			return true
		})
		if !ast.IsExported(names[0]) {
			return ""
		}
		params = append(params, names[1:]...)
	}
	for _, l := range lists {
		if l == nil {
			continue
		}
		for _, field := range l.List {
			ast.Inspect(field.Type, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					return false
				case *ast.Field: // of a function or struct: its names are no types
					for _, name := range n.Names {
						params = append(params, name.Name)
					}
				case *ast.Ident:
					if !n.IsExported() && types.Universe.Lookup(n.Name) == nil && !slices.Contains(params, n.Name) {
						hidden = n.Name
					}
				}
				return true
			})
		}
	}
	return hidden
}
