// Command typecheck type-checks the packages that match patterns, with their tests, for
// another system: as a build for it would, but in seconds, since nothing is compiled.
// What they import from other modules and the standard library is taken without the
// bodies of functions.
//
//	go run ./.ci/typecheck [-tests=false] GOOS/GOARCH patterns...
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// A listed package, as go list prints it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Standard        bool
	Module          *struct{ Main bool }
	Error           *struct{ Err string }
}

func main() {
	log.SetFlags(0)
	tests := flag.Bool("tests", true, "with the packages' tests")
	flag.Parse()
	system, arch, ok := strings.Cut(flag.Arg(0), "/")
	if !ok || flag.NArg() < 2 {
		log.Fatalf("%q: want a GOOS/GOARCH and patterns of packages", flag.Args())
	}
	failed, err := check(system, arch, *tests, flag.Args()[1:])
	if err != nil {
		log.Fatalf("%s: %v", flag.Arg(0), err)
	}
	for _, e := range failed {
		log.Printf("%s: %v", flag.Arg(0), e)
	}
	if len(failed) > 0 {
		os.Exit(1)
	}
}

// check type-checks packages in the order in which go list has them, each one after what it
// imports, and returns the errors of types.
func check(system, arch string, tests bool, patterns []string) (failed []error, err error) {
	list := exec.Command("go", append([]string{"list", "-deps", fmt.Sprintf("-test=%t", tests), "-json=ImportPath,Dir,GoFiles,ImportMap,Standard,Module,Error"}, patterns...)...)
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var (
		packages = map[string]*types.Package{"unsafe": types.Unsafe}
		files    = token.NewFileSet()
		checked  int
	)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("what go list printed: %w", err)
		}
		if p.Error != nil {
			return nil, fmt.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		}
		// A test binary's main package is written by go test.
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		own := p.Module != nil && p.Module.Main
		syntax, err := parse(files, p, own)
		if err != nil {
			return nil, err
		}
		c := types.Config{
			Importer: importer(func(path string) (*types.Package, error) {
				if mapped, ok := p.ImportMap[path]; ok {
					path = mapped
				}
				if found := packages[path]; found != nil {
					return found, nil
				}
				return nil, fmt.Errorf("%s is not among the packages of go list", path)
			}),
			Sizes:            types.SizesFor("gc", arch),
			IgnoreFuncBodies: !own,
			Error:            func(err error) { failed = append(failed, err) },
		}
		// "path [path.test]" is path, compiled for the tests of a package.
		path, _, _ := strings.Cut(p.ImportPath, " ")
		packages[p.ImportPath], _ = c.Check(path, files, syntax, nil)
		if own {
			checked++
		}
	}
	if checked == 0 {
		return nil, fmt.Errorf("no package of this module matches %q", patterns)
	}
	fmt.Printf("%s/%s: %d packages\n", system, arch, checked)
	return failed, nil
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }

// parse parses a package's files, several at a time.
func parse(files *token.FileSet, p listed, own bool) ([]*ast.File, error) {
	mode := parser.SkipObjectResolution
	if own {
		mode |= parser.AllErrors
	}
	var (
		syntax = make([]*ast.File, len(p.GoFiles))
		failed = make([]error, len(p.GoFiles))
		all    sync.WaitGroup
		slots  = make(chan struct{}, runtime.NumCPU())
	)
	for i, name := range p.GoFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			syntax[i], failed[i] = parser.ParseFile(files, name, nil, mode)
		})
	}
	all.Wait()
	return syntax, errors.Join(failed...)
}
