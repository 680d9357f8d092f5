// Package checkpoint keeps trainings and weights in files.
//
// Main types: [Directory] keeps the last states of a training; give it to
// keras.FitConfig, and a training that was killed goes on, to the bit as if it
// had not been:
//
//	model.Fit(ctx, data, keras.FitConfig{
//		Epochs:     10,
//		Checkpoint: &checkpoint.Directory{Path: "run1"},
//		SaveEvery:  500,
//	})
//
// [SaveWeights] and [LoadWeights] keep the weights of a model, [SaveVariables]
// and [LoadVariables] what a custom loop changes.
//
// Rules:
//   - A file is written under another name, brought to the disk and renamed, so
//     that there is the old file or the new one whatever happens.
//   - A file ends with the SHA-256 of all before it and is read only as a
//     whole: damage is an error, never other numbers. No memory is taken that
//     the size of the file does not warrant.
//   - States come back to the bit and only into the same variables. Weights
//     are found by name, and their element types are converted: what was
//     saved under one policy loads under another.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
)

// What errors.Is finds in the errors of this package, besides those of the file
// system: fs.ErrNotExist, syscall.ENOSPC.
var (
	ErrDamaged      = errors.New("the file is damaged")
	ErrTruncated    = errors.New("it is truncated")
	ErrNoCheckpoint = errors.New("it is no checkpoint")
	ErrVersion      = errors.New("another version of this module wrote it")
)

// The kinds of files.
const (
	kindTraining  = "training"
	kindWeights   = "weights"
	kindVariables = "variables"
)

// Names of parts.
const (
	partModel     = "model"
	partOptimizer = "optimizer"
	partMetrics   = "metrics"
	partParts     = "parts" // only where there are any
	partCallback  = "callback"
)

// meta is the part of a keras.State that is not arrays.
type meta struct {
	Epoch, Step int
	Stopped     bool
	Data        keras.Position
	Setup       keras.RunConfig
	Epochs      []int
	Logs        []keras.Logs
	Callbacks   []callback

	Skipped, SkippedInRow int64 `json:",omitempty"`
}

type callback struct {
	Name string
	Data json.RawMessage `json:",omitempty"`
}

// Save writes the state of a training. See Directory for how files are kept.
func Save(path string, s *keras.State) error { return save(atomicfile.System{}, path, s) }

func save(fs atomicfile.FS, path string, s *keras.State) error {
	m := meta{s.Epoch, s.Step, s.Stopped, s.Data, s.Setup, s.History.Epochs, s.History.Logs, nil, s.Skipped, s.SkippedInRow}
	parts := []Part{{partModel, s.Model}, {partOptimizer, s.Optimizer}, {partMetrics, s.Metrics}}
	if len(s.Parts) > 0 {
		parts = append(parts, Part{partParts, s.Parts})
	}
	for _, c := range s.Callbacks {
		m.Callbacks = append(m.Callbacks, callback{c.Name, c.Data})
		parts = append(parts, Part{partCallback, c.Arrays})
	}
	return write(fs, path, kindTraining, m, parts)
}

// Load reads the state of a training.
func Load(path string) (*keras.State, error) {
	f, err := ReadFile(path, kindTraining)
	if err != nil {
		return nil, err
	}
	var m meta
	if err := json.Unmarshal(f.Meta, &m); err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	fixed := 3
	if len(f.Parts) > 3 && f.Parts[3].Name == partParts {
		fixed = 4
	}
	if m.Epoch < 0 || m.Step < 0 || m.Data.Epoch < 0 || m.Data.Batch < 0 || len(m.Epochs) != len(m.Logs) ||
		len(f.Parts) != fixed+len(m.Callbacks) {
		return nil, fmt.Errorf("checkpoint: %s: its header contradicts itself", path)
	}
	s := &keras.State{
		Epoch: m.Epoch, Step: m.Step, Stopped: m.Stopped, Data: m.Data, Setup: m.Setup,
		History: keras.History{Epochs: m.Epochs, Logs: m.Logs},
		Model:   f.Parts[0].Arrays, Optimizer: f.Parts[1].Arrays, Metrics: f.Parts[2].Arrays,
		Skipped: m.Skipped, SkippedInRow: m.SkippedInRow,
	}
	if fixed > 3 {
		s.Parts = f.Parts[3].Arrays
	}
	for i, c := range m.Callbacks {
		s.Callbacks = append(s.Callbacks, keras.CallbackState{Name: c.Name, Data: c.Data, Arrays: f.Parts[fixed+i].Arrays})
	}
	return s, nil
}

// SaveWeights writes the weights of a model, which must be built.
func SaveWeights(path string, m *keras.Model) error {
	ws := m.Weights()
	if len(ws) == 0 {
		return fmt.Errorf("checkpoint: %s: model %s has no weights; call it on data or Build it first", path, m.Name())
	}
	vs := make([]*tensor.Variable, len(ws))
	for i, w := range ws {
		vs[i] = w.Variable
	}
	data, err := tensor.BytesOf(vs...)
	if err != nil {
		return err
	}
	p := Part{Name: partModel}
	for i, w := range ws {
		p.Arrays = append(p.Arrays, keras.Array{Name: w.Name(), Type: w.Type(), Data: data[i]})
	}
	return WriteFile(path, kindWeights, nil, p)
}

// LoadWeights sets the weights of a model, which must be built, from a file of
// SaveWeights or from the state of a training. Weights are found by their
// names; all must be there, and of the shapes the model has. Element types are
// converted. When anything does not fit no weight changes.
func LoadWeights(path string, m *keras.Model) error {
	f, err := ReadFile(path, kindWeights, kindTraining)
	if err != nil {
		return err
	}
	if len(f.Parts) == 0 {
		return fmt.Errorf("checkpoint: %s: it has no weights", path)
	}
	saved := map[string]keras.Array{}
	for _, a := range f.Parts[0].Arrays {
		saved[a.Name] = a
	}
	var values []*keras.Tensor
	for _, w := range m.Weights() {
		a, ok := saved[w.Name()]
		if !ok {
			return fmt.Errorf("checkpoint: %s: there is no weight %s %v", path, w.Name(), w.Type())
		}
		if !a.Type.Shape.Equal(w.Shape()) {
			return fmt.Errorf("checkpoint: %s: weight %s: got %v, want %v", path, w.Name(), a.Type, w.Type())
		}
		values = append(values, tensor.FromBytes(a.Type, a.Data))
	}
	for _, v := range m.Variables() {
		delete(saved, v.Name())
	}
	for _, a := range f.Parts[0].Arrays {
		if _, ok := saved[a.Name]; ok {
			return fmt.Errorf("checkpoint: %s: model %s has no weight %s %v", path, m.Name(), a.Name, a.Type)
		}
	}
	if err := m.SetWeights(values); err != nil {
		return fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	return nil
}

// SaveVariables writes everything that the owners change, for custom training
// loops: the model, the optimizer, metrics.
func SaveVariables(path string, owners ...keras.Stateful) error {
	arrays, err := keras.ArraysOf(owners...)
	if err != nil {
		return err
	}
	return WriteFile(path, kindVariables, nil, Part{kindVariables, arrays})
}

// LoadVariables sets what SaveVariables has saved, into the same variables.
// The slots of an optimizer exist after the first step that it has recorded:
// call the step's MemoryOf before.
func LoadVariables(path string, owners ...keras.Stateful) error {
	f, err := ReadFile(path, kindVariables)
	if err != nil {
		return err
	}
	var arrays []keras.Array
	for _, p := range f.Parts {
		arrays = append(arrays, p.Arrays...)
	}
	if err := keras.SetArrays(arrays, owners...); err != nil {
		return fmt.Errorf("checkpoint: %s: %w", path, err)
	}
	return nil
}
