package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/examples/models"
)

// TestGenerate checks the ranges of what is generated.
func TestGenerate(t *testing.T) {
	g := generate(5000, 0)
	for i, c := range g.columns {
		if got := slices.Max(g.classes[i]); int(got) >= c.Cardinality || slices.Min(g.classes[i]) != 0 {
			t.Errorf("%s: got classes up to %d, want 0 to %d", c.Name, got, c.Cardinality-1)
		}
	}
	if got, want := len(g.numbers), 5000*len(models.RossmannNumbers); got != want {
		t.Errorf("got %d numbers, want %d", got, want)
	}
	mean := 0.0
	for _, s := range g.sales {
		mean += float64(s) / 5000
		if s < 0 || s > 41551 {
			t.Errorf("got sales of %v, want 0 to 41,551", s)
		}
	}
	if mean < 6000 || mean > 8500 {
		t.Errorf("got mean sales of %v, want about 7,000", mean)
	}
}

// TestLoad reads two days with a column too many, a number and a class that
// are missing.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	header, first, second := []string{"index"}, []string{"0"}, []string{"1"}
	for _, c := range models.RossmannCategories {
		header, first, second = append(header, c.Name), append(first, "x"), append(second, "")
	}
	for _, name := range models.RossmannNumbers {
		header, first, second = append(header, name), append(first, "1.5"), append(second, "")
	}
	header, first, second = append(header, "Sales"), append(first, "5263"), append(second, "6064")
	path := filepath.Join(dir, "train_clean.csv")
	write := func(lines ...[]string) {
		var b strings.Builder
		for _, l := range lines {
			b.WriteString(strings.Join(l, ",") + "\n")
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(header, first, second)
	got, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.sales, []float32{5263, 6064}) || !slices.Equal(got.classes[21], []int32{0, 1}) ||
		got.numbers[15] != 1.5 || got.numbers[16] != 0 || got.columns[0].Cardinality != 1115 {
		t.Errorf("got %+v", got)
	}
	second[len(second)-1] = "many"
	write(header, first, second)
	if _, err := load(dir); err == nil || !strings.HasSuffix(err.Error(), `line 3: column Sales is "many", want a number`) {
		t.Errorf("sales that are no number: got %v", err)
	}
	write(header[:len(header)-1], first[:len(header)-1])
	if _, err := load(dir); err == nil || !strings.Contains(err.Error(), "it has no column Sales; have ") {
		t.Errorf("no sales: got %v", err)
	}
	if _, err := load(t.TempDir()); err == nil || !strings.HasPrefix(err.Error(), "-data: ") {
		t.Errorf("no file: got %v", err)
	}
}
