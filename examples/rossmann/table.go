package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
)

// table holds the columns of the data.
type table struct {
	columns []models.Category // of classes, with their cardinalities
	classes [][]int32         // by column
	numbers []float32         // by row, len(models.RossmannNumbers) each
	sales   []float32
}

// split makes datasets of the table: the last part of it, and the rest.
func (t *table) split(part float64) (train, test *keras.Pipeline) {
	n := len(t.sales)
	var x []*keras.Tensor
	for _, c := range t.classes {
		x = append(x, keras.NewTensor(c, n))
	}
	x = append(x, keras.NewTensor(t.numbers, n, len(models.RossmannNumbers)))
	all := keras.FromTensors(keras.Tuple(x...), keras.NewTensor(t.sales, n, 1), nil)
	k := n - int(part*float64(n))
	return all.Take(k), all.Skip(k)
}

// generate draws n rows that look like the real ones: the same columns, as many
// classes, numbers in the same ranges, sales of 0 to 41,551 with a mean near
// 7,000. Sales are a product of what the shop, the day of the week, the month,
// a promotion and holidays do, and of noise of a twentieth.
func generate(n int, seed uint64) *table {
	rng := rand.New(rand.NewPCG(seed, 1))
	t := &table{columns: slices.Clone(models.RossmannCategories), sales: make([]float32, n)}
	at := map[string]int{}
	for i, c := range t.columns {
		t.classes = append(t.classes, make([]int32, n))
		at[c.Name] = i
	}
	shops := make([]float64, t.columns[at["Store"]].Cardinality)
	for i := range shops {
		shops[i] = 6200 * math.Exp(0.3*rng.NormFloat64())
	}
	week := []float64{1.25, 1.08, 1.02, 1.0, 1.05, 0.9, 0.75}
	for i := range n {
		for c, column := range t.columns {
			t.classes[c][i] = int32(rng.IntN(column.Cardinality))
		}
		class := func(name string) int { return int(t.classes[at[name]][i]) }
		promo, school := float64(rng.IntN(2)), float64(rng.IntN(5)/4)
		warm := 10 - 10*math.Cos(2*math.Pi*float64(class("Month"))/12) + 3*rng.NormFloat64() // degrees Celsius
		humidity := 75 + 10*rng.NormFloat64()
		wind := 10 + 10*rng.Float64()
		for _, v := range []float64{
			20 + 75840*rng.Float64()*rng.Float64(), // CompetitionDistance in metres
			warm + 4, warm, warm - 4, min(100, humidity+15), humidity, humidity - 20, wind + 8, wind,
			float64(rng.IntN(9)),                                   // CloudCover in eighths
			float64(28 + rng.IntN(73)), float64(35 + rng.IntN(65)), // searches, in per cent of the most
			float64(rng.IntN(120)), -float64(rng.IntN(120)), // days since and to a holiday
			promo, school,
		} {
			t.numbers = append(t.numbers, float32(v))
		}
		sales := shops[class("Store")] * week[class("DayOfWeek")] * (1 + 0.25*promo) * (1 + 0.05*school)
		sales *= 1 + 0.12*math.Cos(2*math.Pi*float64(class("Month")-11)/12) + 0.04*float64(class("Assortment"))
		if class("StateHoliday") == 1 {
			sales *= 0.8
		}
		t.sales[i] = float32(min(41551, sales*math.Exp(0.05*rng.NormFloat64())))
	}
	return t
}

// load reads train_clean.csv of a directory: a header line with the names of
// all columns, and a line for each day of a shop. Classes are numbered in the
// order in which they come up, nothing being a class of its own; a number that
// is missing is 0. Other columns are passed over.
func load(dir string) (*table, error) {
	path := filepath.Join(dir, "train_clean.csv")
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("-data: %w; without -data rows are generated", err)
	}
	defer file.Close()
	r := csv.NewReader(bufio.NewReader(file))
	r.ReuseRecord = true
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	header = slices.Clone(header) // the reader overwrites it
	place := map[string]int{}
	for i, name := range header {
		place[name] = i
	}
	find := func(name string) (int, error) {
		if i, ok := place[name]; ok {
			return i, nil
		}
		return 0, fmt.Errorf("%s: it has no column %s; have %q", path, name, slices.Sorted(slices.Values(header)))
	}
	t := &table{columns: slices.Clone(models.RossmannCategories)}
	known := make([]map[string]int32, len(t.columns))
	t.classes = make([][]int32, len(t.columns))
	var categories, numbers []int
	for i, c := range t.columns {
		known[i] = map[string]int32{}
		at, err := find(c.Name)
		if err != nil {
			return nil, err
		}
		categories = append(categories, at)
	}
	for _, name := range models.RossmannNumbers {
		at, err := find(name)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, at)
	}
	target, err := find("Sales")
	if err != nil {
		return nil, err
	}
	parse := func(record []string, at int) (float32, error) {
		switch record[at] {
		case "", "NaN", "nan":
			return 0, nil
		case "True", "False":
			return map[string]float32{"True": 1}[record[at]], nil
		}
		v, err := strconv.ParseFloat(record[at], 32)
		if err != nil {
			line, _ := r.FieldPos(at)
			return 0, fmt.Errorf("%s, line %d: column %s is %q, want a number", path, line, header[at], record[at])
		}
		return float32(v), nil
	}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for i, at := range categories {
			class, ok := known[i][record[at]]
			if !ok {
				class = int32(len(known[i]))
				known[i][strings.Clone(record[at])] = class
			}
			t.classes[i] = append(t.classes[i], class)
		}
		for _, at := range numbers {
			v, err := parse(record, at)
			if err != nil {
				return nil, err
			}
			t.numbers = append(t.numbers, v)
		}
		v, err := parse(record, target)
		if err != nil {
			return nil, err
		}
		t.sales = append(t.sales, v)
	}
	if len(t.sales) == 0 {
		return nil, fmt.Errorf("%s: it has no rows", path)
	}
	for i := range t.columns {
		t.columns[i].Cardinality = max(t.columns[i].Cardinality, len(known[i]))
	}
	return t, nil
}
