package plot

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/policy"
)

//go:generate go test . -run TestFiles -generate

var generate = flag.Bool("generate", false, "write the pictures of docs/images that differ")

func history() *keras.History {
	h := &keras.History{}
	for i := range 12 {
		x := float64(i)
		loss := 2 / (1 + x)
		if i == 5 {
			loss = math.NaN()
		}
		h.Epochs = append(h.Epochs, i)
		h.Logs = append(h.Logs, keras.Logs{{Name: "loss", Value: loss}, {Name: "accuracy", Value: 1 - 0.9/(1+x)},
			{Name: "val_loss", Value: 2.2/(1+x) + 0.02*x}, {Name: "val_accuracy", Value: 0.9 - 0.8/(1+x)}})
	}
	return h
}

// branches is a model with two inputs of one layer that is called twice.
func branches(t *testing.T) *keras.Model {
	t.Helper()
	a, b := keras.Input(4), keras.Input(4)
	shared := &layers.Dense{Units: 3, Name: "shared", Activation: "relu"}
	x := keras.Apply(&layers.Concatenate{}, keras.Apply(shared, a), keras.Apply(shared, b))
	y := keras.Apply(&layers.Dense{Units: 6, Name: "residual"}, keras.Apply(&layers.LayerNormalization{}, x))
	x = keras.Apply(&layers.Add{}, x, y)
	x = keras.Apply(&layers.Dense{Units: 2, Name: "head"}, keras.Apply(&layers.Dropout{Rate: 0.5}, x))
	m, err := keras.NewModel(keras.Tuple(a, b), x)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// gradients are numbers such as float16 loses: of many small sizes.
func gradients(scale float64) []float32 {
	var all []float32
	for i := range 4000 {
		x := float64(i%200)/10 - 10
		for range int(20 * math.Exp(-x*x/18)) {
			all = append(all, float32(scale*math.Exp2(x)))
		}
	}
	return append(all, 0)
}

// classifierExponents are those of a step of a small network of digits, with
// the first loss scale.
func classifierExponents(t *testing.T) []keras.LayerExponents {
	t.Helper()
	defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
	m := keras.Sequential(&layers.Reshape{TargetShape: []int{28, 28, 1}},
		&layers.Conv2D{Filters: 8, KernelSize: []int{3}, Activation: "relu"}, &layers.MaxPooling2D{},
		&layers.Conv2D{Filters: 16, KernelSize: []int{3}, Activation: "relu"}, &layers.Flatten{},
		&layers.Dense{Units: 64, Activation: "relu"}, &layers.Dense{Units: 10, Activation: "softmax"})
	if err := m.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}}); err != nil {
		t.Fatal(err)
	}
	train, _, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	var all []keras.LayerExponents
	for b, err := range train.Take(64).Batch(64).Batches() {
		if err == nil {
			all, err = m.Exponents(context.Background(), b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestFiles draws everything in every format, and compares with the pictures of docs.
// With -generate it writes those that differ.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	draw := map[string]func(path string) error{
		"history": func(path string) error { return History(path, history()) },
		"exponents": func(path string) error {
			return Exponents(path, Series{"gradients", gradients(0x1p-18)}, Series{"times 1024", gradients(0x1p-8)})
		},
		"confusion": func(path string) error {
			return Confusion(path, [][]int{{48, 2, 0}, {5, 40, 5}, {0, 11, 39}}, []string{"cat", "dog", "fox"})
		},
		"layers": func(path string) error { return Layers(path, classifierExponents(t)) },
		"model":  func(path string) error { return Model(path, branches(t)) },
	}
	for name, f := range draw {
		for _, suffix := range []string{".png", ".svg", ".PDF"} {
			path := filepath.Join(dir, name+suffix)
			if err := f(path); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			switch suffix {
			case ".png":
				picture, err := png.Decode(bytes.NewReader(data))
				if err != nil {
					t.Fatal(name, err)
				}
				seen := map[any]bool{}
				for x := range picture.Bounds().Dx() {
					for y := range picture.Bounds().Dy() {
						seen[picture.At(x, y)] = true
					}
				}
				if len(seen) < 10 {
					t.Errorf("%s: got %d colours, want a picture", name, len(seen))
				}
			case ".svg":
				d := xml.NewDecoder(bytes.NewReader(data))
				for {
					if _, err := d.Token(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						t.Fatal(name, err)
					}
				}
			default:
				if !bytes.HasPrefix(data, []byte("%PDF")) {
					t.Errorf("%s: no PDF", name)
				}
			}
		}
		data, err := os.ReadFile(filepath.Join(dir, name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		path := "../../docs/images/" + name + ".png"
		shown, err := os.ReadFile(path)
		if err == nil && samePicture(t, data, shown, differing[name]) {
			continue
		}
		if !*generate {
			t.Errorf("%s is not what is drawn (%v); go test ./keras/plot -generate draws it", path, err)
		} else if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// differing is the share of a picture's pixels that may differ from the one that is
// shown: gradients near 0 have other exponents on other instruction sets, each a cell
// of the picture.
var differing = map[string]float64{"layers": 0.005}

// samePicture compares the pixels of two pictures. Encoders differ.
func samePicture(t *testing.T, x, y []byte, differing float64) bool {
	t.Helper()
	a, err := png.Decode(bytes.NewReader(x))
	if err != nil {
		t.Fatal(err)
	}
	b, err := png.Decode(bytes.NewReader(y))
	if err != nil || a.Bounds() != b.Bounds() {
		return false
	}
	others := 0
	size := a.Bounds().Max
	for i := range size.X * size.Y {
		if color.NRGBAModel.Convert(a.At(i%size.X, i/size.X)) != color.NRGBAModel.Convert(b.At(i%size.X, i/size.X)) {
			others++
		}
	}
	return float64(others) <= differing*float64(size.X*size.Y)
}

func TestModelDot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.dot")
	if err := Model(path, branches(t)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`n2 [label="shared: Dense\nfloat32[? 3]"]`, "\tn0 -> n2;\n\tn1 -> n3;\n\tn2 -> n4;\n\tn3 -> n4;\n\tn4 -> n5;\n\tn5 -> n6;\n\tn4 -> n7;\n\tn6 -> n7;\n\tn7 -> n8;\n\tn8 -> n9;\n}\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("got\n%s\nwant it to contain\n%s", got, want)
		}
	}
}

// TestLayered: lines that skip rows have a way of their own in each, next to
// the boxes, which all lines of a node share.
func TestLayered(t *testing.T) {
	nodes := []node{{}, {from: []int{0}, depth: 1}, {from: []int{1}, depth: 2}, {from: []int{2, 0, 1, 0}, depth: 3}}
	rows := layered(nodes)
	want := [][]int{{0}, {1, -1}, {2, -1, -1}, {3}}
	for d, row := range rows {
		var got []int
		seen := map[float64]bool{}
		for _, p := range row {
			got = append(got, p.node)
			seen[p.order] = true
		}
		if !slices.Equal(got, want[d]) || len(seen) != len(row) {
			t.Errorf("row %d: got the nodes %v at %v, want %v at different places", d, got, seen, want[d])
		}
	}
	if got := rows[3][0].from; !slices.Equal(got, []int{0, 1, 2, 1}) {
		t.Errorf("got lines from the places %v, want 0, 1, 2, 1", got)
	}
}

func TestQuoted(t *testing.T) {
	if got, want := quoted("a\"b\\c\nd"), `"a\"b\\c\nd"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// log is a history of one log.
func log(name string, values ...float64) *keras.History {
	h := &keras.History{}
	for i, x := range values {
		h.Epochs = append(h.Epochs, i)
		h.Logs = append(h.Logs, keras.Logs{{Name: name, Value: x}})
	}
	return h
}

// TestAxes: what is drawn lies within the axes, in the middle where it does not
// change, and labels differ.
func TestAxes(t *testing.T) {
	for _, c := range []struct {
		values []float64
		y      string // labels
		x      string
	}{
		{[]float64{0.001, 0.001, 0.001}, "0.00090 0.00095 0.00100 0.00105 0.00110", "1 2 3"},
		{[]float64{0.5}, "0.46 0.48 0.50 0.52 0.54", "1"},
		{[]float64{0, 0}, "-1.0 -0.5 0.0 0.5 1.0", "1 2"},
		{[]float64{32768, 32768, 32768}, "30000 32000 34000 36000", "1 2 3"},
		{[]float64{1.8, 1.78, 1.74, 1.7}, "1.70 1.72 1.74 1.76 1.78 1.80", "1 2 3 4"},
		{[]float64{2e-7, 1e-7, 0}, "0 5.0e-08 1.0e-07 1.5e-07 2.0e-07", "1 2 3"},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "2 4 6 8 10 12", "2 4 6 8 10 12"},
		{[]float64{16777216, 1}, "5.0e+06 1.0e+07 1.5e+07", "1 2"},
	} {
		p, err := panel(log("loss", c.values...), "loss")
		if err != nil {
			t.Fatal(err)
		}
		for _, axis := range []struct {
			name string
			a    plot.Axis
			want string
			data []float64
		}{{"y", p.Y, c.y, c.values}, {"x", p.X, c.x, []float64{1, float64(len(c.values))}}} {
			var got []string
			for _, tick := range axis.a.Tick.Marker.Ticks(axis.a.Min, axis.a.Max) {
				got = append(got, tick.Label)
			}
			if text := strings.Join(got, " "); text != axis.want {
				t.Errorf("%v: axis %s: got labels %s, want %s", c.values, axis.name, text, axis.want)
			}
			for _, x := range axis.data {
				if !(x >= axis.a.Min && x <= axis.a.Max) || axis.a.Max <= axis.a.Min {
					t.Errorf("%v: axis %s from %v to %v: %v is not in it", c.values, axis.name, axis.a.Min, axis.a.Max, x)
				}
			}
		}
	}
}

// TestTerminal: without a terminal there are no escape sequences, curves differ
// in their characters, the axes have numbers, and nothing is wider than asked
// for. A value that is not finite is a gap.
func TestTerminal(t *testing.T) {
	for _, h := range []*keras.History{history(), log("loss", 0.001, 0.001, 0.001), log("loss", 0.5), log("loss", 0, 0), log("loss", 123456789, 1e-9)} {
		for _, width := range []int{30, 60} {
			var b strings.Builder
			if err := Terminal(&b, h, "loss", width, 6); err != nil {
				t.Fatal(err)
			}
			if lines := strings.Count(b.String(), "\n"); lines < 4 || lines > 12 || strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "\x1b") {
				t.Errorf("got\n%s", b.String())
			}
			for _, line := range strings.Split(b.String(), "\n") {
				if n := len([]rune(line)); n > width {
					t.Errorf("got %d columns of %d in %q of\n%s", n, width, line, &b)
				}
			}
		}
	}
	var b strings.Builder
	if err := Terminal(&b, history(), "loss", 50, 8); err != nil {
		t.Fatal(err)
	}
	const want = ` 2.2 ┼•
 1.9 ┼••
 1.7 ┤╰•
 1.4 ┤ ••
 1.2 ┤  ••
 0.9 ┤   ••••
 0.7 ┤     ╰••••••
 0.4 ┤        ╰──••••••••••••••••••••••••••••••••
 0.2 ┤                       ╶───────────────────
     └┬──────────┬──────────┬─────────┬──────────┬
      1          4          7         9         12
                    loss over epochs
      ── loss   •• validation
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTerminalColors: a terminal that takes them gets the colours, and one
// character for all curves.
func TestTerminalColors(t *testing.T) {
	var b strings.Builder
	if err := terminal(&b, history(), "loss", 50, 8, true); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); !strings.Contains(s, "\x1b[") || strings.Contains(s, "•") || !strings.Contains(s, "validation") {
		t.Errorf("got\n%s", s)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	nan := &keras.History{Epochs: []int{0}, Logs: []keras.Logs{{{Name: "loss", Value: math.NaN()}}}}
	file := filepath.Join(dir, "x.png")
	for _, c := range []struct {
		err  error
		want string
	}{
		{History(file, &keras.History{}), "the history has no epochs"},
		{History(file, nan), `"loss" has no finite value, want one of loss`},
		{History(filepath.Join(dir, "x.gif"), history()), `got suffix ".gif", want .png, .svg or .pdf`},
		{History(filepath.Join(dir, "none", "x.png"), history()), "no such file or directory"},
		{Terminal(io.Discard, history(), "mae", 10, 5), `"mae" has no finite value`},
		{Exponents(file), "no series given"},
		{Layers(file, nil), "no layers given"},
		{Exponents(file, Series{Name: "w"}), `series "w" has no values`},
		{Confusion(file, nil, nil), "no classes given"},
		{Confusion(file, [][]int{{1, 2}, {3}}, nil), "row 1 has 1 counts, want 2"},
		{Confusion(file, [][]int{{-1}}, nil), "got count -1 of class 0 as 0, want 0 or more"},
		{Confusion(file, [][]int{{1}}, []string{"a", "b"}), "got 2 names of classes, want 1"},
		{Model(file, keras.Sequential(&layers.Dense{Units: 1})), "not built"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) || !strings.HasPrefix(c.err.Error(), "plot: ") {
			t.Errorf("got error %v, want one with %q", c.err, c.want)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("got %d files after errors, want none", len(left))
	}
}
