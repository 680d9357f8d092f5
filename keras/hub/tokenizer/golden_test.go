package tokenizer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// large are tokenizers and texts of a more realistic size than those of testdata.
var large = flag.String("large", "", "directory that testdata/golden.py DIR 10000 wrote: compare its tokenizers too")

// row is what tokenizers made of a text. Its offsets count characters.
type row struct {
	Text    string   `json:"text"`
	Pair    *string  `json:"pair"`
	IDs     []int32  `json:"ids"`
	Types   []int32  `json:"types"`
	Offsets [][2]int `json:"offsets"`
	Decoded string   `json:"decoded"`
	All     string   `json:"all"`
	Max     int      `json:"max"`
	Cut     []int32  `json:"cut"`
	Left    bool     `json:"left"`
}

// rows reads a file of golden.py.
func rows(t testing.TB, path string) (all []row) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil || len(all) == 0 {
		t.Fatal(path, len(all), err)
	}
	return all
}

// encode makes tokens of a row's text.
func encode(k *Tokenizer, r row) *Encoding {
	if r.Pair != nil {
		return k.EncodePair(r.Text, *r.Pair)
	}
	return k.Encode(r.Text)
}

// inCharacters counts characters where offsets count bytes.
func inCharacters(e *Encoding, r row) [][2]int {
	out := slices.Clone(e.Offsets)
	for i, o := range out {
		s := r.Text
		if e.Text[i] == 1 {
			s = *r.Pair
		}
		out[i] = [2]int{utf8.RuneCountInString(s[:o[0]]), utf8.RuneCountInString(s[:o[1]])}
	}
	return out
}

// TestGolden compares with tokenizers: numbers, types, offsets, decoded and cut texts.
func TestGolden(t *testing.T) {
	paths, _ := filepath.Glob("testdata/*.golden.gz")
	if *large != "" {
		more, _ := filepath.Glob(filepath.Join(*large, "*.golden.gz"))
		if len(more) == 0 {
			t.Fatalf("%s has no *.golden.gz", *large)
		}
		paths = append(paths, more...)
	}
	if len(paths) < 3 {
		t.Fatalf("got %v", paths)
	}
	for _, path := range paths {
		k, err := Read(strings.TrimSuffix(path, ".golden.gz") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		all := rows(t, path)
		failed := 0
		for i, r := range all {
			e := encode(k, r)
			var wrong []string
			if !slices.Equal(e.IDs, r.IDs) {
				wrong = append(wrong, "numbers")
			}
			if !slices.Equal(e.TypeIDs, r.Types) {
				wrong = append(wrong, "types")
			}
			if got := inCharacters(e, r); !slices.Equal(got, r.Offsets) {
				wrong = append(wrong, "offsets")
			}
			if got := k.Decode(r.IDs, true); got != r.Decoded {
				wrong = append(wrong, "decoded text")
			}
			if got := k.Decode(r.IDs, false); got != r.All {
				wrong = append(wrong, "decoded text with special tokens")
			}
			if r.Max > 0 {
				if got := encode(with(t, k, Options{MaxLength: r.Max, TruncateLeft: r.Left}), r); !slices.Equal(got.IDs, r.Cut) {
					wrong = append(wrong, "cut text")
				}
			}
			if len(wrong) == 0 {
				continue
			}
			if failed++; failed <= 3 {
				t.Errorf("%s: text %d %q: other %v:\ngot  %v\nwant %v\ngot  %v\nwant %v\ngot  %q\nwant %q", path, i, r.Text, wrong,
					e.IDs, r.IDs, inCharacters(e, r), r.Offsets, k.Decode(r.IDs, true), r.Decoded)
			}
		}
		if failed > 0 {
			t.Errorf("%s: %d of %d texts differ", path, failed, len(all))
		}
		t.Logf("%s: %d texts", path, len(all))
	}
}

// TestVocabularies: the older files make the tokenizer that tokenizer.json makes.
func TestVocabularies(t *testing.T) {
	for _, name := range []string{"bert", "gpt2"} {
		content, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var f struct {
			Model struct {
				Vocab  map[string]int32
				Merges [][2]string
			}
		}
		if err := json.Unmarshal(content, &f); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		write := func(name string, b []byte) {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if name == "bert" {
			lines := make([]string, len(f.Model.Vocab))
			for s, id := range f.Model.Vocab {
				lines[id] = s
			}
			write("vocab.txt", []byte(strings.Join(lines, "\n")+"\n"))
			write("tokenizer_config.json", []byte(`{"do_lower_case": true}`))
		} else {
			b, err := json.Marshal(f.Model.Vocab)
			if err != nil {
				t.Fatal(err)
			}
			write("vocab.json", b)
			var merges bytes.Buffer
			merges.WriteString("#version: 0.2\n")
			for _, m := range f.Model.Merges {
				merges.WriteString(m[0] + " " + m[1] + "\n")
			}
			write("merges.txt", merges.Bytes())
		}
		k, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows(t, "testdata/"+name+".golden.gz") {
			if e := encode(k, r); !slices.Equal(e.IDs, r.IDs) || !slices.Equal(inCharacters(e, r), r.Offsets) || k.Decode(r.IDs, true) != r.Decoded {
				t.Errorf("%s: %q: got %v, want %v", name, r.Text, e.IDs, r.IDs)
			}
		}
	}
}
