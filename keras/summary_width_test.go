package keras

import (
	"strings"
	"testing"

	"github.com/rivo/uniseg"

	"github.com/mezzo-ml/mezzo/layers"
)

// residual is a model with names that make its table wide.
func residual(t *testing.T) *Model {
	t.Helper()
	in := Input(8, 8, 3)
	x := Apply(&layers.Conv2D{Filters: 4, KernelSize: []int{3}, Padding: "same", Name: "stage_one_block_one_convolution_of_the_shortcut"}, in)
	y := Apply(&layers.BatchNormalization{Name: "stage_one_block_one_batch_normalization"}, x)
	x = Apply(&layers.Add{Name: "stage_one_block_one_sum"}, x, y)
	m, err := NewModel(in, Apply(&layers.Dense{Units: 2, Name: "head"}, Apply(&layers.GlobalAveragePooling2D{}, x)))
	check(t, err)
	return m
}

// TestSummaryFits: no row is wider than the output, cells continue on the next
// line, and nothing of them is lost.
func TestSummaryFits(t *testing.T) {
	m := residual(t)
	whole := m.summary(1000, false)
	for _, width := range []int{60, 80, 100, 250} {
		text := m.summary(width, false)
		var first strings.Builder // the cells of the first column, joined
		for _, line := range strings.Split(text, "\n") {
			if strings.ContainsAny(line, "┃│┏├└┡") {
				if n := uniseg.StringWidth(line); n > width {
					t.Errorf("%d columns: got %d in %q", width, n, line)
				}
			}
			if cells := strings.Split(line, "│"); len(cells) > 2 {
				first.WriteString(strings.TrimSpace(cells[1]))
			}
		}
		for _, want := range []string{"stage_one_block_one_convolution_of_the_shortcut(Conv2D)", "stage_one_block_one_batch_normalization(BatchNormalization)", "head(Dense)"} {
			if got := strings.ReplaceAll(first.String(), " ", ""); !strings.Contains(got, want) {
				t.Errorf("%d columns: got\n%s\nwant %s in the first column", width, text, want)
			}
		}
		if fits := width >= 250; fits != (text == whole) {
			t.Errorf("%d columns: got\n%s", width, text)
		}
	}
	var b strings.Builder
	check(t, m.Summary(&b))
	if b.String() != m.summary(100, false) {
		t.Errorf("without a terminal: got\n%s\nwant a table of at most 100 columns", &b)
	}
	in := Input(2)
	m, err := NewModel(in, Apply(&layers.Dense{Units: 2, Name: "a_quite_long_name"}, in))
	check(t, err)
	for width, want := range map[int]string{
		63: `
┏━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━┓
┃ Layer (type)      ┃ Output   ┃ Param # ┃ Compute ┃ Variable ┃
┃                   ┃ Shape    ┃         ┃         ┃          ┃
┡━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━┩
│ a_quite_long_name │ (None,   │       6 │ float32 │ float32  │
│ (Dense)           │ 2)       │         │         │          │
└───────────────────┴──────────┴─────────┴─────────┴──────────┘
`,
		51: `
┏━━━━━━━━━━━┳━━━━━━━━┳━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━┓
┃ Layer     ┃ Output ┃ Param ┃ Compute ┃ Variable ┃
┃ (type)    ┃ Shape  ┃     # ┃         ┃          ┃
┡━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━┩
│ a_quite_  │ (None, │     6 │ float32 │ float32  │
│ long_name │ 2)     │       │         │          │
│ (Dense)   │        │       │         │          │
└───────────┴────────┴───────┴─────────┴──────────┘
`,
	} {
		if got := m.summary(width, false); !strings.HasPrefix(got, `Model: "functional"`+want) {
			t.Errorf("%d columns: got\n%s\nwant%s", width, got, want)
		}
	}
}

// TestSummaryNested: the row of a nested model shows what its layers compute and
// store in.
func TestSummaryNested(t *testing.T) {
	underPolicy(t, "mixed_float16")
	for _, c := range []struct {
		inner *Model
		want  string
	}{
		{Sequential(dense(2), &layers.Dropout{Rate: 0.5}), "float16 │ float32"},
		{Sequential(dense(2), &layers.Activation{Activation: "softmax", DType: "float32"}), "float16, float32 │ float32"},
		{Sequential(Sequential(&layers.Dense{Units: 2, DType: "bfloat16"}).Layer()), "bfloat16 │ bfloat16"},
	} {
		m := Sequential(c.inner.Layer(), &layers.Dense{Units: 1, DType: "float32"})
		check(t, m.Build(4))
		text := m.summary(200, false)
		var row string
		for _, line := range strings.Split(text, "\n") {
			if strings.Contains(line, "(Sequential)") {
				row = strings.Join(strings.Fields(line), " ")
			}
		}
		if !strings.HasSuffix(row, "│ "+c.want+" │") {
			t.Errorf("got row %s, want %s at its end", row, c.want)
		}
	}
}

// TestSummaryUnbuilt: layers have the names that building gives them.
func TestSummaryUnbuilt(t *testing.T) {
	m := Sequential(dense(2), &layers.Dense{Units: 2, Name: "dense_1"}, dense(3), &layers.Dropout{Rate: 0.5}, Sequential(dense(2)).Layer(), dense(1))
	names := func() (all []string) {
		for _, line := range strings.Split(m.summary(200, false), "\n") {
			if cells := strings.Split(line, "│"); len(cells) > 2 {
				all = append(all, strings.TrimSpace(cells[1]))
			}
		}
		return all
	}
	before := strings.Join(names(), "; ")
	check(t, m.Build(4))
	if after := strings.Join(names(), "; "); before != after {
		t.Errorf("before Build: got %s\nwant %s", before, after)
	}
}
