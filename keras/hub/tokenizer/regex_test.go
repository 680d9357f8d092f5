package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPatterns compares Split with the package tokenizers: the patterns of
// testdata/patterns.py.
func TestPatterns(t *testing.T) {
	paths := []string{"testdata/patterns.json.gz"}
	if *large != "" {
		if path := filepath.Join(*large, "patterns.json.gz"); fileExists(path) {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		var all struct {
			Texts []string
			Rows  []struct {
				Name, Pattern, Behavior string
				Pieces                  [][]string
			}
		}
		if err := json.NewDecoder(z).Decode(&all); err != nil {
			t.Fatal(err)
		}
		for _, r := range all.Rows {
			e, err := compile(r.Pattern)
			if err != nil {
				t.Errorf("%s: %v", r.Name, err)
				continue
			}
			split := separate(e.in, r.Behavior, false)
			failed := 0
			for i, s := range all.Texts {
				var got []string
				for _, p := range split([]text{textOf(s, 0)}) {
					got = append(got, p.String())
				}
				if slices.Equal(got, r.Pieces[i]) {
					continue
				}
				if failed++; failed <= 2 {
					t.Errorf("%s, %s: %q:\ngot  %q\nwant %q", r.Name, r.Behavior, s, got, r.Pieces[i])
				}
			}
			if failed > 0 {
				t.Errorf("%s, %s: %d of %d texts differ", r.Name, r.Behavior, failed, len(all.Texts))
			}
		}
		t.Logf("%s: %d texts, %d patterns", path, len(all.Texts), len(all.Rows))
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestPatternErrors: what is not supported is named.
func TestPatternErrors(t *testing.T) {
	for pattern, want := range map[string]string{
		`\bword`: `\b is not supported`, `(a)\1`: `\1 is not supported`, `(?<=a)b`: `(?<= is not supported`, `(?<name>a)`: `(?<n is not supported`,
		`(?>a)`: `(?>a is not supported`, `\d{1,3}(?=(?:\d{3})*)`: `lookahead to more than one character`, `(?!ab)c`: `lookahead to more than one character`,
		`a++`: `possessive`, `[[:alpha:]]`: `[:alpha:]`, `[a&&b]`: `&& in a class`, `[]a]`: `starts with ]`, `[a`: `a [ without a ]`, `(a`: `a ( without a )`, `a)`: `a ) without a (`,
		`\p{Letter}`: `\p{Letter} is not supported`, `\pL`: `\p without {…}`, `\p{C}`: `\p{C} is not supported`, `\p{s}`: `\p{s} is not supported`, `*a`: `* repeats nothing`, `a{2,1}`: `got {2,1}`,
		`a{1000}`: `got {1000}`, `((a{200}){200}){200}`: `larger than 4096`, `(?i)ß`: `not ASCII after (?i)`, `(?i:ss)`: `ss after (?i)`, `(?i)\p{Lu}`: `\p{Lu} after (?i)`,
		`a\`: `ends with a \`, `[z-a]`: `got a range z-a`, `\xff`: `\xff is not supported`, `\h`: `\h is not supported`, strings.Repeat("(", 100): "nested more than",
		`(?`: `(? is not supported`,
	} {
		if _, err := compile(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %s", pattern, err, want)
		}
	}
}

// TestPatternTime: patterns that take exponential time elsewhere do not here.
func TestPatternTime(t *testing.T) {
	start := time.Now()
	long := textOf(strings.Repeat("a", 20_000), 0)
	for _, p := range []string{`(a+)+b`, `(a|a)*b`, `(a*)*(a*)*b`, `(a?){20}a{20}b`} {
		e, err := compile(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, ok := e.in(long)(0); ok {
			t.Errorf("%s matches", p)
		}
	}
	if d := time.Since(start); d > time.Minute { // exponential time is more than any limit
		t.Errorf("it took %v", d)
	}
}

// FuzzPattern: any expression on any text ends, with matches in order.
func FuzzPattern(f *testing.F) {
	f.Add(`(?i:'s|'t)|[^\r\n\p{L}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}]+[\r\n]*|\s+(?!\S)|\s+`, "It's  1234 Ω\n\n x")
	f.Add(`(a|b*)*?c|^x$`, "aabbc\nx")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		e, err := compile(pattern)
		if err != nil {
			return
		}
		if len(s) > 1000 {
			s = s[:1000]
		}
		last := 0
		finder(e.in).each(textOf(s, 0), func(from, to int) {
			if from < last || to < from || to > len(s) {
				t.Errorf("%q in %q: got %d to %d after %d", pattern, s, from, to, last)
			}
			last = to
		})
	})
}
