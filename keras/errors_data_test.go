package keras_test

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/keras/data/images"
	"github.com/mezzo-ml/mezzo/keras/datasets/mnist"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
)

func init() {
	for name, f := range map[string]func(t *testing.T) error{
		"Dataset without an end": func(t *testing.T) error {
			d := data.FromDataset(samples(8, 4, 3)).Batch(2).Repeat()
			_, err := classifier(t).Fit(context.Background(), d, quiet)
			return err
		},
		"Samples or batches": func(t *testing.T) error {
			steps := data.FromGenerator(func(context.Context, int) iter.Seq2[keras.Batch, error] {
				return func(yield func(keras.Batch, error) bool) {
					yield(keras.Batch{X: keras.NewTensor(make([]float32, 21), 7, 3), Y: keras.NewTensor(make([]float32, 7), 7, 1)}, nil)
				}
			})
			m := keras.Sequential(&layers.Dense{Units: 1})
			if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}}); err != nil {
				t.Fatal(err)
			}
			_, err := m.Fit(context.Background(), steps, quiet)
			return err
		},
		"Batch that was handed back": func(t *testing.T) error {
			var kept []keras.Batch
			keep := keras.Callback{BatchEnd: func(_ context.Context, r *keras.Run) error {
				kept = append(kept, r.Batch)
				return nil
			}}
			c := quiet
			c.Callbacks = []keras.Callback{keep}
			if _, err := classifier(t).Fit(context.Background(), samples(8, 4, 3).Batch(2), c); err != nil {
				t.Fatal(err)
			}
			_, err := kept[0].X.Values()
			return err
		},
		"Table with another type": func(t *testing.T) error {
			dir, path := fileOf(t, "people.csv", []byte("name,age\nAnn,31\nBob,old\n"))
			type person struct {
				Age float32 `csv:"age"`
			}
			_, err := data.CSV[person](path, data.CSVOptions{}).Collect(context.Background())
			return plainError(err, dir)
		},
		"Damaged record": func(t *testing.T) error {
			good, err := os.ReadFile(filepath.Join("data", "testdata", "examples.tfrecord"))
			if err != nil {
				t.Fatal(err)
			}
			dir, path := fileOf(t, "train.tfrecord", good[:len(good)-9])
			_, err = data.TFRecord(path).Collect(context.Background())
			return plainError(err, dir)
		},
		"Record that is too long": func(t *testing.T) error {
			var b bytes.Buffer
			if err := data.NewTFRecordWriter(&b).Write(make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			dir, path := fileOf(t, "train.tfrecord", b.Bytes())
			_, err := data.TFRecordFiles([]string{path}, data.TFRecordOptions{MaxRecord: 7}).Collect(context.Background())
			return plainError(err, dir)
		},
		"Set of digits that is too large": func(t *testing.T) error {
			images := []byte{0, 0, 8, 3, 0, 0, 3, 232, 0, 0, 0, 28, 0, 0, 0, 28}
			dir, _ := fileOf(t, "train-images-idx3-ubyte", images)
			if err := os.WriteFile(filepath.Join(dir, "train-labels-idx1-ubyte"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := mnist.LoadWith(context.Background(), dir, mnist.Options{MaxBytes: 100})
			return plainError(err, dir)
		},
		"Picture with too many pixels": func(t *testing.T) error {
			var b bytes.Buffer
			if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 4, 4))); err != nil {
				t.Fatal(err)
			}
			dir, path := fileOf(t, "cat.png", b.Bytes())
			_, err := images.Load(path, "rgb", 15)
			return plainError(err, dir)
		},
		"Picture that is resized too far": func(t *testing.T) error {
			var b bytes.Buffer
			if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 1<<24, 1))); err != nil {
				t.Fatal(err)
			}
			dir, _ := fileOf(t, "cat.png", b.Bytes())
			d, _, err := images.FromDirectory(dir, images.Options{DirectoryOptions: data.DirectoryOptions{Unlabeled: true}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.Collect(context.Background())
			return plainError(err, dir)
		},
		"Directory without pictures": func(t *testing.T) error {
			dir, _ := fileOf(t, "cat.png", nil)
			_, _, err := images.FromDirectory(dir, images.Options{})
			return plainError(err, dir)
		},
	} {
		errorCases[name] = f
	}
}

// fileOf makes a file in a directory of its own.
func fileOf(t *testing.T, name string, content []byte) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, path
}
