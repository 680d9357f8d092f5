package callbacks

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// events reads the one event file of a run.
func events(t *testing.T, dir string) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	check(t, err)
	if len(files) != 1 {
		t.Fatalf("%s has the event files %v, want one", dir, files)
	}
	b, err := os.ReadFile(files[0])
	check(t, err)
	return b
}

func TestTensorBoard(t *testing.T) {
	dir := t.TempDir()
	m := classifier(t, &optimizers.SGD{})
	board := &TensorBoard{LogDir: dir, HistogramFreq: 2, ExponentFreq: 3, WriteStepsPerSecond: true, UpdateFreq: 2}
	_, _, err := fit(m, keras.FitConfig{Epochs: 4, ValidationSplit: 0.5, Callbacks: List(board)})
	check(t, err)
	train, validation := events(t, filepath.Join(dir, "train")), events(t, filepath.Join(dir, "validation"))
	kernel := m.Weights()[0].Name()
	for _, tag := range []struct {
		file  []byte
		name  string
		count int
	}{
		{train, "epoch_loss", 4}, {train, "epoch_accuracy", 4}, {train, "epoch_learning_rate", 4}, {train, "epoch_steps_per_second", 4},
		{train, "epoch_val_loss", 0}, {train, "batch_loss", 4}, {train, kernel + "/histogram", 2}, {train, kernel + "/exponents", 2},
		{train, "dense/activations/exponents", 2}, {train, "dense/gradients/exponents", 2}, {train, "dense_1/gradients/exponents", 2},
		{train, "graph_keras_model", 1}, {train, `"class_name":"Sequential"`, 1},
		{validation, "epoch_loss", 4}, {validation, "evaluation_loss_vs_iterations", 4}, {validation, "epoch_learning_rate", 0},
	} {
		if got := bytes.Count(tag.file, []byte(tag.name)); got != tag.count {
			t.Errorf("%s: %d times, want %d", tag.name, got, tag.count)
		}
	}
	if board.steps != 8 || board.train != nil {
		t.Errorf("got %d steps and a writer %v after training, want 8 and none", board.steps, board.train)
	}
}

// TestTensorBoardResumes: batches are counted on from the checkpoint.
func TestTensorBoardResumes(t *testing.T) {
	state := &checkpoint.Directory{Path: t.TempDir()}
	for _, want := range []int64{6, 9} {
		board := &TensorBoard{LogDir: t.TempDir()}
		_, _, err := fit(classifier(t, &optimizers.SGD{}), keras.FitConfig{Epochs: int(want) / 3, Checkpoint: state, Callbacks: List(board)})
		check(t, err)
		if board.steps != want {
			t.Errorf("got %d steps, want %d", board.steps, want)
		}
	}
}

func TestTensorBoardErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o644))
	_, _, err := fit(classifier(t, nil), keras.FitConfig{Callbacks: List(&TensorBoard{LogDir: t.TempDir(), HistogramFreq: -1})})
	wantError(t, err, "callback TensorBoard: HistogramFreq: got -1, want a positive number, or 0 for none")
	if _, _, err := fit(classifier(t, nil), keras.FitConfig{Callbacks: List(&TensorBoard{LogDir: file})}); err == nil {
		t.Error("no error for a directory that is a file")
	}
}
