package backend

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDebugSettingsAreDocumented compares the words of KERAS_DEBUG with the
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
