package data_test

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/keras/data/images"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
	"github.com/mezzo-ml/mezzo/losses"
)

// TestDocs: the code of docs/data.md is that of this file.
func TestDocs(t *testing.T) {
	lines := func(path string) (all []string) {
		text, err := os.ReadFile(path)
		check(t, err)
		for l := range strings.SplitSeq(string(text), "\n") {
			if l = strings.TrimSpace(l); l != "must(err)" { // the page leaves it out
				all = append(all, l)
			}
		}
		return all
	}
	code := strings.Join(lines("example_test.go"), "\n")
	var block []string
	n, inside := 0, false
	for _, l := range lines("../../docs/data.md") {
		switch {
		case l == "```go":
			block, inside = nil, true
		case l == "```" && inside:
			if n++; !strings.Contains(code, "\n"+strings.Join(block, "\n")+"\n") {
				t.Errorf("docs/data.md has code that no example has:\n%s", strings.Join(block, "\n"))
			}
			inside = false
		case inside:
			block = append(block, l)
		}
	}
	if n < 8 {
		t.Errorf("docs/data.md has %d blocks of code", n)
	}
}

// inDirectory makes a directory of files the current one.
func inDirectory(files map[string]string) (leave func()) {
	old, err := os.Getwd()
	must(err)
	dir, err := os.MkdirTemp("", "data")
	must(err)
	must(os.Chdir(dir))
	for name, content := range files {
		if i := strings.LastIndexByte(name, '/'); i > 0 {
			must(os.MkdirAll(name[:i], 0o700))
		}
		must(os.WriteFile(name, []byte(content), 0o600))
	}
	return func() { must(errors.Join(os.Chdir(old), os.RemoveAll(dir))) }
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

var ctx = context.Background()

type flower struct {
	Length  float32 `csv:"petal_length"`
	Width   float32 `csv:"petal_width,default=0.2"`
	Species string  `csv:"species"`
}

var species = []string{"setosa", "virginica"}

func Example() {
	text := "petal_length,petal_width,species\n"
	for i := range 40 {
		text += fmt.Sprintf("%d.%d,,setosa\n%d.%d,2.%d,virginica\n", 1+i%2, i%10, 5+i%2, i%7, i%10)
	}
	defer inDirectory(map[string]string{"flowers.csv": text})()
	model := keras.Sequential(&layers.Dense{Units: 8, Activation: "relu"}, &layers.Dense{Units: 2})
	must(model.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}))

	rows := data.CSV[flower]("flowers.csv", data.CSVOptions{})
	samples := data.Map(rows, func(_ context.Context, f flower) (keras.Batch, error) {
		class := slices.Index(species, f.Species)
		if class < 0 {
			return keras.Batch{}, fmt.Errorf("got species %q, want one of %q", f.Species, species)
		}
		return keras.Batch{X: keras.NewTensor([]float32{f.Length, f.Width}, 2), Y: keras.NewTensor([]int32{int32(class)})}, nil
	}).Cache()
	train := samples.Shuffle(1000, 1).Batch(8).Prefetch(1)
	history, err := model.Fit(ctx, train, keras.FitConfig{Epochs: 20, Verbose: keras.VerbositySilent})
	must(err)
	first, last := history.Logs[0].Get("loss"), history.Logs[19].Get("loss")
	fmt.Println("the loss falls:", last < first)
	// Output: the loss falls: true
}

func ExampleRandom() {
	m := image.NewGray(image.Rect(0, 0, 40, 40))
	for i := range m.Pix {
		m.Pix[i] = uint8(i)
	}
	var picture strings.Builder
	must(png.Encode(&picture, m))
	defer inDirectory(map[string]string{"a.png": picture.String(), "b.png": picture.String()})()
	files := []string{"a.png", "b.png"}

	pictures := data.Zip(data.FromSlice(files).Shuffle(len(files), 1), data.Random(1))
	augmented := data.ParallelMap(pictures, 0, func(_ context.Context, p data.Pair[string, uint64]) (keras.Batch, error) {
		m, err := images.Load(p.First, "rgb")
		if err != nil {
			return keras.Batch{}, err
		}
		rng := rand.New(rand.NewPCG(p.Second, 0))
		x, err := m.Window(rng.IntN(5)-2, rng.IntN(5)-2, m.Height, m.Width).Resize(32, 32, "bilinear")
		return keras.Batch{X: keras.NewTensor(x, 32, 32, 3)}, err
	})

	text := func(epoch int) string {
		all, err := read(augmented.Epoch(ctx, epoch, 0))
		must(err)
		return fmt.Sprint(all[0].X.Values()) + fmt.Sprint(all[1].X.Values())
	}
	first, again, second := text(0), text(0), text(1)
	fmt.Println("an epoch is the same each time:", first == again)
	fmt.Println("epochs are the same:", first == second)
	// Output:
	// an epoch is the same each time: true
	// epochs are the same: false
}

func ExampleTFRecord() {
	defer inDirectory(nil)()
	pixels := []byte{1, 2, 3, 4}
	file, err := os.Create("train.tfrecord")
	must(err)

	features := data.Example{
		"image": {Bytes: [][]byte{pixels}},
		"label": {Ints: []int64{7}},
	}
	err = data.NewTFRecordWriter(file).Write(features.Marshal())
	must(errors.Join(err, file.Close()))

	samples := data.Map(data.TFRecord("train.tfrecord"), func(_ context.Context, record []byte) (keras.Batch, error) {
		e, err := data.ParseExample(record)
		if err != nil {
			return keras.Batch{}, err
		}
		image, err := e.Blob("image")
		if err != nil {
			return keras.Batch{}, err
		}
		label, err := data.Numbers[int64](e, "label", 1)
		if err != nil {
			return keras.Batch{}, err
		}
		return keras.Batch{X: keras.NewTensor(image, len(image)), Y: keras.NewTensor(label)}, nil
	})
	for b, err := range samples.Batch(32).All(ctx) {
		must(err)
		fmt.Println(b.X)
		fmt.Println(b.Y)
	}
	// Output:
	// uint8[1 4]
	// [[1 2 3 4]]
	// int64[1] [7]
}

func ExampleFilesFromDirectory() {
	var picture strings.Builder
	must(png.Encode(&picture, image.NewGray(image.Rect(0, 0, 4, 3))))
	files := map[string]string{}
	for i := range 5 {
		files[fmt.Sprintf("photos/cats/%d.png", i)] = picture.String()
		files[fmt.Sprintf("photos/dogs/%d.png", i)] = picture.String()
	}
	defer inDirectory(files)()

	train, classes, err := images.FromDirectory("photos", images.Options{
		Height: 64, Width: 64, CropToAspectRatio: true,
		DirectoryOptions: data.DirectoryOptions{Seed: 1, ValidationSplit: 0.2, Subset: "training"},
	})
	must(err)
	for b, err := range train.All(ctx) {
		must(err)
		fmt.Println(classes, b.X.Type(), b.Y.Type())
	}
	// Output: [cats dogs] float32[8 64 64 3] int32[8]
}

func ExamplePadSequences() {
	series := keras.NewTensor([]float32{0, 1, 2, 3, 4}, 5)
	next := keras.NewTensor([]float32{3, 4}, 2)

	x, err := data.PadSequences([][]int32{{7, 8, 9}, {5}}, data.PadSequencesOptions[int32]{MaxLen: 2})
	must(err)
	y, err := data.ToCategorical(keras.NewTensor([]int32{0, 2}, 2), 3)
	must(err)
	windows, err := data.TimeseriesFromArray(series, next, 3, data.TimeseriesOptions{BatchSize: 2})
	must(err)
	left, right, err := data.SplitDataset(data.Range(0, 10), 0.8, 0)
	must(err)
	weights := data.ClassWeights([]int{0, 0, 0, 1}) // for FitConfig.ClassWeight

	fmt.Println(x)
	fmt.Println(y)
	for b, err := range windows.All(ctx) {
		must(err)
		fmt.Println(b.X)
		fmt.Println(b.Y)
	}
	fmt.Println(left.Len(), right.Len(), weights[1])
	// Output:
	// int32[2 2]
	// [[8 9]
	//  [0 5]]
	// float32[2 3]
	// [[1 0 0]
	//  [0 0 1]]
	// float32[2 3]
	// [[0 1 2]
	//  [1 2 3]]
	// float32[2] [3 4]
	// 8 2 2
}

// What a loop keeps of batches stays.
func ExampleDataset_Batch() {
	train := data.FromDataset(keras.FromTensors(keras.NewTensor([]float32{0, 1, 2, 3, 4}, 5, 1), nil, nil)).Batch(2)
	model := keras.Sequential(&layers.Dense{Units: 1, KernelInitializer: "ones"})
	must(model.Build(1))
	loop := func() error {
		var batches []keras.Batch
		var predictions []*keras.Tensor
		for b, err := range train.Batches() {
			if err != nil {
				return err
			}
			batches = append(batches, b)
			predictions = append(predictions, model.Call(b.X)) // computed when it is read
		}

		for i, p := range predictions {
			x, err := batches[i].X.Values()
			must(err)
			y, err := p.Values()
			must(err)
			fmt.Println(x, y)
		}
		return nil
	}
	must(loop())
	// Output:
	// [0 1] [0 1]
	// [2 3] [2 3]
	// [4] [4]
}

// A loop that hands the memory of batches back.
func ExampleDataset_Epoch() {
	train := data.FromDataset(keras.FromTensors(keras.NewTensor([]float32{0, 1, 2, 3, 4}, 5, 1), nil, nil)).Batch(2)
	sum := &metrics.Mean{}
	step := keras.Function(func(b keras.Batch) *keras.Tensor {
		sum.Add(b.X.Sum())
		return b.X
	}, sum)
	loop := func(epoch int) error {
		for b, err := range train.Epoch(ctx, epoch, 0) {
			if err != nil {
				return err
			}
			if err := step.Run(ctx, b); err != nil {
				return err
			}
			b.Release()
		}

		return nil
	}
	must(loop(0))
	mean, err := sum.Result()
	must(err)
	fmt.Printf("%.3f\n", mean)
	// Output: 3.333
}

func ExampleDataset_Progress() {
	defer inDirectory(map[string]string{"corpus.txt": "to be\nor not to be\n"})()

	bar := keras.NewProgbar(os.Stderr)
	texts, err := data.Lines("corpus.txt").Progress(bar.Update).Collect(ctx)
	bar.Finish()
	must(err)
	fmt.Printf("%q\n", texts)
	// Output: ["to be" "or not to be"]
}

func ExampleAdapt() {
	defer inDirectory(map[string]string{"corpus.txt": "to be\nor not to be\n"})()
	bar := keras.NewProgbar(os.Stderr)

	words := &preprocessing.TextVectorization{MaxTokens: 20000}
	err := data.Adapt(ctx, words, data.Lines("corpus.txt").Progress(bar.Update))
	must(err)
	bar.Finish()
	fmt.Printf("%q\n", words.Vocabulary)
	// Output: ["to" "be" "or" "not"]
}

type patient struct {
	Age    float32 `csv:"age"`
	Chol   float32 `csv:"chol"`
	Sex    int     `csv:"sex"`
	Thal   string  `csv:"thal"`
	Target float32 `csv:"target"`
}

// patients is a table like that of Keras's guide to structured data.
func patients() string {
	var b strings.Builder
	b.WriteString("age,chol,sex,thal,target\n")
	rng := rand.New(rand.NewPCG(1, 0))
	for range 400 {
		age, sex, thal := 30+rng.IntN(48), rng.IntN(2), rng.IntN(3)
		target := 0
		if float64(age)/10+2*float64(sex*thal)+rng.NormFloat64() > 7 {
			target = 1
		}
		fmt.Fprintf(&b, "%d,%d,%d,%s,%d\n", age, 150+rng.IntN(200), sex, []string{"normal", "fixed", "reversible"}[thal], target)
	}
	return b.String()
}

func Example_featureSpace() {
	defer inDirectory(map[string]string{"heart.csv": patients()})()
	space := &preprocessing.FeatureSpace{
		Features: map[string]preprocessing.Feature{
			"age":  {Type: "float_discretized", NumBins: 10},
			"chol": {Type: "float_normalized"},
			"sex":  {Type: "integer_categorical", NumOOVIndices: new(0)},
			"thal": {Type: "string_categorical"},
		},
		Crosses: []preprocessing.Cross{{Features: []string{"sex", "thal"}, Dim: 32}},
	}
	rows := data.CSV[patient]("heart.csv", data.CSVOptions{})
	err := data.AdaptColumns(ctx, space, rows)
	must(err)

	train := data.ParallelMap(data.Chunk(rows, 32, false), 0, func(_ context.Context, p []patient) (keras.Batch, error) {
		columns, err := data.Columns(p)
		if err != nil {
			return keras.Batch{}, err
		}
		x, err := space.Encode(columns)
		y := keras.NewTensor(columns["target"].([]float64), len(p), 1).Cast(keras.Float32)
		return keras.Batch{X: x, Y: y}, err
	})
	model := keras.Sequential(space, &layers.Dense{Units: 16, Activation: "relu"}, &layers.Dense{Units: 1, Activation: "sigmoid"})
	err = model.Compile(keras.CompileConfig{Loss: &losses.BinaryCrossentropy{}, Metrics: []metrics.Metric{&metrics.BinaryAccuracy{Name: "accuracy"}}})
	must(err)
	history, err := model.Fit(ctx, train, keras.FitConfig{Epochs: 30, Verbose: keras.VerbositySilent})
	must(err)
	accuracy := history.Get("accuracy")
	fmt.Println("better than 4 of 5:", accuracy[len(accuracy)-1] > 0.8)

	err = saving.Save("heart.keras", model)
	must(err)
	served, err := saving.Load("heart.keras")
	must(err)
	x, err := served.Layers()[0].(*preprocessing.FeatureSpace).Encode(preprocessing.Columns{
		"age": []float64{67, 34}, "chol": []float64{286, 182}, "sex": []int{1, 0}, "thal": []string{"reversible", "normal"},
	})
	must(err)
	p, err := served.Predict(ctx, x)
	must(err)
	ill, err := p.Float64s()
	must(err)
	fmt.Println("ill:", ill[0] > 0.5, ill[1] > 0.5)
	// Output:
	// better than 4 of 5: true
	// ill: true false
}
