package backend

import (
	"os"
	"strings"
	"testing"
)

func TestParseSkips(t *testing.T) {
	set := func(list string) *Skips {
		t.Helper()
		s, err := ParseSkips(list)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	defer SetSkips(SetSkips(set("")))
	for _, c := range []struct {
		list   string
		caches int
		passes string
	}{
		{"", 0, ""},
		{"plans, fuse,cse", 1, "fuse cse"},
		{"caches", len(Caches), ""},
		{"caches,fuse,fuse", len(Caches), "fuse"},
		{"passes", 0, "simplify cse precisions dce split reshapes fuse epilogue requantize donate multioutput horizontal separable share"},
		{"all", len(Caches), "simplify cse precisions dce split reshapes fuse epilogue requantize donate multioutput horizontal separable share"},
	} {
		SetSkips(set(c.list))
		off := 0
		for _, cache := range Caches {
			if !Keeps(cache) {
				off++
			}
		}
		if got := strings.Join(SkippedPasses(), " "); off != c.caches || got != c.passes {
			t.Errorf("%q: %d caches off and passes %q, want %d and %q", c.list, off, got, c.caches, c.passes)
		}
	}
	SetSkips(set("plans"))
	if Keeps(Plans) || !Keeps(Programs) {
		t.Error("plans: another cache is off")
	}
	_, err := ParseSkips("plans,fused")
	if want := `MEZZO_SKIP: unknown word "fused"; want a comma-separated list of all, caches, passes, packed-operands, `; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got error %v, want %s…", err, want)
	}
}

// TestSkipsAreDocumented: docs/debugging.md names every word.
func TestSkipsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/debugging.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "`MEZZO_SKIP`")
	if !ok {
		t.Fatal("docs/debugging.md does not mention MEZZO_SKIP")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for _, word := range SkipWords() {
		if !strings.Contains(text, "`"+word+"`") {
			t.Errorf("docs/debugging.md: the paragraphs on MEZZO_SKIP do not name `%s`", word)
		}
	}
}
