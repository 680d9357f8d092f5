package onnx

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocs: docs/onnx.md lists the operations that Import reads, and those that Export
// does not write.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../../docs/onnx.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(b), "<!-- operations -->")
	table, _, end := strings.Cut(table, "<!-- end -->")
	if !ok || !end {
		t.Fatal("docs/onnx.md has no list of operations")
	}
	var have []string
	for _, m := range regexp.MustCompile("`([A-Za-z.0-9]+)`").FindAllStringSubmatch(table, -1) {
		have = append(have, m[1])
	}
	for _, name := range sortedKeys(operations) {
		if !strings.HasPrefix(name, ownDomain+".") && !slices.Contains(have, name) {
			t.Errorf("docs/onnx.md does not list %s", name)
		}
	}
	for i, name := range have {
		if operations[name] == nil || slices.Contains(have[:i], name) {
			t.Errorf("docs/onnx.md lists %s, which Import does not read, or twice", name)
		}
	}
	for _, c := range notExported {
		if !c.Info().Epilogue && !strings.Contains(c.String(), "Grad") && c.String() != "Fused" && c.String() != "ExtraOutput" && !strings.Contains(string(b), "`"+c.String()+"`") {
			t.Errorf("docs/onnx.md does not say that %v is not exported", c)
		}
	}
}
