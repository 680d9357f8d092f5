package backend

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDebugSettingsAreDocumented compares the words of MEZZO_DEBUG with the
// headings of docs/debugging.md: tools that nobody can find do not exist.
func TestDebugSettingsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/debugging.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatchIndex(string(page), -1)
	var documented []string
	for i, s := range sections {
		end := len(page)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		word := string(page[s[2]:s[3]])
		documented = append(documented, word)
		if text := strings.TrimSpace(string(page[s[1]:end])); len(text) < 80 {
			t.Errorf("docs/debugging.md: section %q: got %q, want a description", word, text)
		}
	}
	if !slices.Equal(documented, DebugSettings) {
		t.Errorf("docs/debugging.md has the sections %q, want one for each of DebugSettings, in order: %q", documented, DebugSettings)
	}
	for _, word := range DebugSettings {
		d, err := ParseDebug(word)
		if err != nil || d == (Debug{}) {
			t.Errorf("ParseDebug(%q): got %+v, %v, want a field that is set", word, d, err)
		}
	}
}

// TestEnvironmentIsDocumented: docs/environment.md lists the environment variables
// that the code reads, and no others.
func TestEnvironmentIsDocumented(t *testing.T) {
	name := regexp.MustCompile(`\bMEZZO_[A-Z0-9_]+\b`)
	page, err := os.ReadFile("../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, v := range name.FindAllString(string(page), -1) {
		documented[v] = true
	}
	read := map[string]bool{}
	err = filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, v := range regexp.MustCompile(`"(MEZZO_[A-Z0-9_]+)"`).FindAllStringSubmatch(string(source), -1) {
			read[v[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for v := range read {
		if !documented[v] && !strings.HasPrefix(v, "MEZZO_TEST_") { // marks of child processes of tests
			t.Errorf("docs/environment.md does not list %s", v)
		}
	}
	for v := range documented {
		if !read[v] {
			t.Errorf("docs/environment.md lists %s, which nothing reads", v)
		}
	}
}
