// Command gen writes the assembly of packages gemm and vec with its Go declarations.
// Run it by go generate in backend/cpu; docs/kernels.md describes how a kernel comes to
// be.
//
// Its test fails if a file differs from what the generators write, or is left over.
package main

//go:generate go run . ..

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/vec"
)

func main() {
	log.SetFlags(0)
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: gen DIRECTORY\n\nDIRECTORY is the one with packages gemm and vec.")
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

// files returns the contents of all files by path, relative to the directory.
func files() (map[string]string, error) {
	all := map[string]string{}
	for _, p := range []struct {
		name string
		*asm.Package
	}{{"gemm", gemm.Package()}, {"vec", vec.Package()}} {
		list, err := p.Files()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		for name, text := range list {
			all[filepath.Join(p.name, name)] = text
		}
	}
	return all, nil
}

// write writes all files, and removes those left over.
func write(dir string) error {
	all, err := files()
	if err != nil {
		return err
	}
	old, err := generated(dir)
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, ok := all[path]; !ok {
			if err := os.Remove(filepath.Join(dir, path)); err != nil {
				return err
			}
		}
	}
	for path, text := range all {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generated returns the existing generated files: all assembly, and Go files marked as
// such.
func generated(dir string) ([]string, error) {
	var list []string
	for _, p := range []string{"gemm", "vec"} {
		names, err := filepath.Glob(filepath.Join(dir, p, "*"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			first, _, _ := strings.Cut(string(text), "\n")
			if !slices.Contains([]string{".s", ".h"}, filepath.Ext(name)) && !strings.HasPrefix(first, "// Code generated") {
				continue
			}
			list = append(list, filepath.Join(p, filepath.Base(name)))
		}
	}
	return list, nil
}
