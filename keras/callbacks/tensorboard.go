package callbacks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/exponents"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/keras/tensorboard"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TensorBoard writes event files for TensorBoard (Keras: TensorBoard):
//
//	tensorboard --logdir logs
//
// The run "train" has the model and the logs of each epoch, such as
// epoch_loss. The run "validation" has the logs of validations, by epoch and
// also by the optimizer's iterations, such as evaluation_loss_vs_iterations.
type TensorBoard struct {
	LogDir        string // default: "logs"
	HistogramFreq int    // epochs between histograms of the weights; 0: none
	// ExponentFreq is the number of epochs between histograms of binary
	// exponents; 0: none. They are of the weights at the end of the epoch, and
	// of the activations and gradients of each layer in an extra, slow step on
	// the epoch's first batch. They show what float16 would lose; see
	// keras.Model.Exponents. Not in Keras.
	ExponentFreq int
	// WithoutGraph leaves out the model. A model that cannot be written as
	// JSON is left out too, with a line in the output.
	WithoutGraph        bool
	WriteStepsPerSecond bool // writes epoch_steps_per_second
	// UpdateFreq is the number of batches between logs of the current epoch,
	// such as batch_loss; 0: none. Each one reads the totals back from the
	// device.
	UpdateFreq int

	train, validation *tensorboard.Writer
	steps             int64 // done
	begun             time.Time
	begin             int64 // steps when the epoch began
}

// Callback makes the hooks.
func (b *TensorBoard) Callback() keras.Callback {
	wrap := func(f func(*keras.Run) error) func(context.Context, *keras.Run) error {
		return func(_ context.Context, r *keras.Run) error {
			if err := f(r); err != nil {
				return fmt.Errorf("callback TensorBoard: %w", err)
			}
			return nil
		}
	}
	return keras.Callback{
		Name:          "TensorBoard",
		FirstRankOnly: true,
		TrainBegin:    wrap(b.trainBegin),
		EpochBegin: wrap(func(*keras.Run) error {
			b.begun, b.begin = time.Now(), b.steps
			return nil
		}),
		BatchBegin: func(ctx context.Context, r *keras.Run) error {
			return wrap(func(r *keras.Run) error { return b.exponents(ctx, r) })(ctx, r)
		},
		BatchEnd: wrap(b.batchEnd),
		EpochEnd: wrap(b.epochEnd),
		TrainEnd: wrap(func(*keras.Run) error { return b.close() }),
		Save:     func() (keras.CallbackState, error) { return save(b.steps) },
		Load:     func(s keras.CallbackState) error { return load(s, &b.steps) },
	}
}

func (b *TensorBoard) trainBegin(r *keras.Run) error {
	b.close() // of a Fit that failed
	if c, _ := r.Model.CompileConfig(); b.ExponentFreq > 0 && c.Distribution != nil && c.Distribution.Ranks().Size() > 1 {
		return errors.New("ExponentFreq: rank 0 cannot compute a step without the other ranks; leave it out with a Distribution")
	}
	b.steps, b.begun = 0, time.Now()
	for _, f := range []struct {
		name string
		n    int
	}{{"HistogramFreq", b.HistogramFreq}, {"ExponentFreq", b.ExponentFreq}, {"UpdateFreq", b.UpdateFreq}} {
		if f.n < 0 {
			return fmt.Errorf("%s: got %d, want a positive number, or 0 for none", f.name, f.n)
		}
	}
	var err error
	b.train, err = tensorboard.Create(filepath.Join(cmp.Or(b.LogDir, "logs"), "train"))
	return err
}

func (b *TensorBoard) close() (err error) {
	for _, w := range []**tensorboard.Writer{&b.train, &b.validation} {
		if *w != nil {
			err = errors.Join(err, (*w).Close())
			*w = nil
		}
	}
	return err
}

func (b *TensorBoard) batchEnd(r *keras.Run) error {
	b.steps++
	if b.UpdateFreq == 0 || b.steps%int64(b.UpdateFreq) != 0 {
		return nil
	}
	logs, err := r.Read()
	if err != nil {
		return err
	}
	for _, l := range logs {
		b.train.Scalar("batch_"+l.Name, b.steps, l.Value)
	}
	return b.train.Flush()
}

func (b *TensorBoard) epochEnd(r *keras.Run) error {
	if _, err := logRate(r); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if r.Epoch == r.Config.InitialEpoch && !b.WithoutGraph {
		if err := b.graph(r); err != nil {
			return err
		}
	}
	epoch := int64(r.Epoch)
	for _, l := range r.Logs {
		name, validated := strings.CutPrefix(l.Name, "val_")
		if !validated {
			b.train.Scalar("epoch_"+name, epoch, l.Value)
			continue
		}
		if err := b.validated(r, name, l.Value); err != nil {
			return err
		}
	}
	if s := time.Since(b.begun).Seconds(); b.WriteStepsPerSecond && s > 0 {
		b.train.Scalar("epoch_steps_per_second", epoch, float64(b.steps-b.begin)/s)
	}
	if err := b.weights(r); err != nil {
		return err
	}
	if b.validation != nil {
		if err := b.validation.Flush(); err != nil {
			return err
		}
	}
	return b.train.Flush()
}

// graph writes the model.
func (b *TensorBoard) graph(r *keras.Run) error {
	config, err := saving.ToJSON(r.Model)
	if err != nil {
		_, err := fmt.Fprintf(r.Config.Output, "\nTensorBoard: no graph: %v\n", err)
		return err
	}
	return b.train.Model("keras", 0, config)
}

// validated writes a log of a validation.
func (b *TensorBoard) validated(r *keras.Run, name string, value float64) (err error) {
	if b.validation == nil {
		b.validation, err = tensorboard.Create(filepath.Join(cmp.Or(b.LogDir, "logs"), "validation"))
		if err != nil {
			return err
		}
	}
	if err := b.validation.Scalar("epoch_"+name, int64(r.Epoch), value); err != nil {
		return err
	}
	iterations, err := optimizers.Iterations(r.Model.Optimizer())
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return err
	}
	return b.validation.Scalar("evaluation_"+name+"_vs_iterations", iterations, value)
}

// weights writes histograms of them.
func (b *TensorBoard) weights(r *keras.Run) error {
	due := func(freq int) bool { return due(freq, r.Epoch) }
	if !due(b.HistogramFreq) && !due(b.ExponentFreq) {
		return nil
	}
	for _, w := range r.Model.Weights() {
		values, err := w.Values()
		if err != nil {
			return err
		}
		if due(b.HistogramFreq) {
			b.train.Histogram(w.Name()+"/histogram", int64(r.Epoch), values)
		}
		if due(b.ExponentFreq) {
			var h exponents.Histogram
			h.Add(values...)
			b.train.Exponents(w.Name()+"/exponents", int64(r.Epoch), &h)
		}
	}
	return nil
}

func due(freq, epoch int) bool { return freq > 0 && epoch%freq == 0 }

// exponents writes those of activations and gradients, before the first step of
// an epoch.
func (b *TensorBoard) exponents(ctx context.Context, r *keras.Run) error {
	if r.Step > 0 || !due(b.ExponentFreq, r.Epoch) {
		return nil
	}
	all, err := r.Model.Exponents(ctx, r.Batch)
	if err != nil {
		return err
	}
	for _, e := range all {
		for _, part := range []struct {
			name string
			h    *exponents.Histogram
		}{{"activations", &e.Activations}, {"gradients", &e.Gradients}} {
			if part.h.Count > 0 {
				b.train.Exponents(e.Layer+"/"+part.name+"/exponents", int64(r.Epoch), part.h)
			}
		}
	}
	return b.train.Flush()
}
